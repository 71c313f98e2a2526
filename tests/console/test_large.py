"""A member that is really large, looked at in a browser: what each screen asks for, and draws.

10,000 locks are held, 50,000 sessions are open, and there are 1,000,000 znodes. The costs are
counts, of requests and of elements, so they are the same on any machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from coordinator.model.limits import NEW_CLUSTER
from coordinator.state.commands import Create, Multi, OpenSession
from tests.console.browser import Visitor, launched, missing
from tests.loop_meter import metered
from tests.wire.crowded import Crowded

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is there"),
]
LOCKS = 10_000
SESSIONS = 50_000
ZNODES = 1_000_000
WIDE = ("/a", "/b", "/c", "/d")
CHILDREN = ZNODES // len(WIDE)
_TOGETHER = 500
LIMITS = replace(
    NEW_CLUSTER,
    znodes_max=2 * ZNODES,
    children_max=CHILDREN + 1,
    sessions_max=2 * SESSIONS,
    sessions_per_identity_max=2 * SESSIONS,
    sessions_per_address_max=2 * SESSIONS,
    sessions_per_client_max=2 * SESSIONS,
    znodes_per_identity_max=2 * ZNODES,
    bytes_per_identity_max=8 * 1024**3,
    state_bytes_max=8 * 1024**3,
)
ELEMENTS_MAX = 1_200
"""Of the whole page, on any screen."""
_PAGE = 1_000


async def _all_done(made: Iterator[Any]) -> None:
    while some := list(islice(made, _TOGETHER)):
        await asyncio.gather(*some)


async def _fill_wide(crowded: Crowded, parent: str) -> None:
    await crowded.do(Create(parent))
    for start in range(0, CHILDREN, _PAGE):
        names = (f"{parent}/c{number:06}" for number in range(start, start + _PAGE))
        await crowded.do(Multi(tuple(Create(name, b"x") for name in names)))


def _parts(crowded: Crowded) -> Iterator[Coroutine[Any, Any, Any]]:
    """Yield what fills it, one after the other: each takes some seconds."""
    yield crowded.open()
    ids = [f"s{number:06}" for number in range(SESSIONS)]
    yield _all_done(
        crowded.do(OpenSession(each, timeout_ms=3_600_000, label=f"worker {each}")) for each in ids
    )
    yield crowded.do(Create("/locks"))
    locks = enumerate(ids[:LOCKS])
    yield _all_done(crowded.enter(each, f"/locks/l{number:05}") for number, each in locks)
    for parent in WIDE:
        yield _fill_wide(crowded, parent)


@pytest.fixture(scope="module")
def large() -> Iterator[Crowded]:
    with metered() as loop:
        crowded = Crowded(loop, LIMITS)
        for part in _parts(crowded):
            loop.run(part)
        try:
            yield crowded
        finally:
            loop.run(crowded.stop())


class Looking:
    """A tab whose requests are counted."""

    def __init__(self, tab: Visitor) -> None:
        self.tab = tab
        self.asked: list[str] = []
        self.tab.page.on("request", lambda request: self.asked.append(request.url))

    def opened(self, screen: str, total: int) -> int:
        """Open a list, to its end as it is read; return how many requests it made."""
        self.asked.clear()
        page = self.tab.open(screen)
        page.wait_for_selector(f"table.virtual[aria-rowcount='{total + 1}']", timeout=20_000)
        page.wait_for_timeout(300)
        assert 10 < page.locator("tbody tr").count() < 80
        assert page.evaluate("document.querySelectorAll('*').length") < ELEMENTS_MAX
        return self._asked_of_the_api()

    def scrolled(self, share: float) -> int:
        """Scroll to that share of the list; return how many requests it made."""
        self.asked.clear()
        page = self.tab.page
        for _ in range(3):
            page.evaluate(
                "share => { const list = document.querySelector('.window');"
                " list.scrollTop = share * list.scrollHeight; }", share)  # fmt: skip
            page.wait_for_timeout(200)
        assert 10 < page.locator("tbody tr").count() < 80
        assert page.evaluate("document.querySelectorAll('*').length") < ELEMENTS_MAX
        return self._asked_of_the_api()

    def _asked_of_the_api(self) -> int:
        return sum("/v1/" in each for each in self.asked)


def test_large_lists_are_read_in_pages_and_drawn_in_rows(large: Crowded) -> None:
    """Locks are read whole, as they are sorted by who waits; the others as far as one looks."""
    assert large.server is not None
    status = large.member.status()
    assert (status.sessions, status.znodes) >= (SESSIONS, ZNODES)
    with launched() as browser:
        tab = Visitor(browser, large.server.url)
        tab.context.set_default_timeout(20_000)
        looking = Looking(tab)

        assert looking.opened("locks", LOCKS) <= LOCKS // _PAGE + 4
        assert looking.scrolled(0.5) == 0
        assert looking.opened("sessions", SESSIONS) <= 4
        assert looking.scrolled(1.0) <= 4
        assert looking.opened("tree/%2Fa", CHILDREN) <= 6
        assert looking.scrolled(1.0) <= 4

        page = tab.open("tree/%2Fd")
        looking.asked.clear()
        page.get_by_placeholder("Name begins with").fill(f"c{CHILDREN - 5:06}"[:-1])
        page.wait_for_selector("text=children whose name begins with")
        page.wait_for_selector(f"a:text-is('c{CHILDREN - 1:06}')")
        assert sum("/v1/" in each for each in looking.asked) <= 40

        for screen in ("cluster", "waits", "recipes", "events", "locks/l00007", "sessions/s000007"):
            looking.asked.clear()
            page = tab.open(screen)
            page.wait_for_timeout(300)
            assert sum("/v1/" in each for each in looking.asked) <= LOCKS // _PAGE + 6, screen
            assert page.evaluate("document.querySelectorAll('*').length") < ELEMENTS_MAX, screen
        tab.close()


def test_one_connection_tells_what_changes_in_a_large_tree(large: Crowded) -> None:
    """A hundred locks change at once: the pages that hold them are read again, not all."""
    assert large.server is not None
    with launched() as browser:
        tab = Visitor(browser, large.server.url)
        looking = Looking(tab)
        looking.opened("locks", LOCKS)
        tab.page.wait_for_selector(".live.good")
        assert sum(each.endswith("/v1/watch") for each in looking.asked) == 1
        looking.asked.clear()

        async def change() -> None:
            for number in range(100):
                await large.enter("s040000", f"/locks/l{number:05}")

        large.loop.run(change())
        tab.page.wait_for_selector("p:has-text('100 contenders wait')", timeout=20_000)
        assert len(looking.asked) <= 6
        tab.close()
