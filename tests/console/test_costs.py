"""What the console costs a member: how often a page that nobody touches asks, and for what."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.testing import local_cluster
from tests.console.browser import Visitor, faults, launched, missing
from tests.console.scene import Scene
from tests.patience import patient

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(bool(missing()), reason=missing() or "all is there"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Give a member on which one lock is held, with a lease of a minute."""
    with local_cluster(members=1) as cluster:
        scene = Scene(cluster)
        scene.acquire("held", "worker", scene.session("worker", 60_000))
        scene.call("POST", "/v1/tree/app", {"data": "x"})
        yield scene.url


@pytest.fixture
def visitor(browser: Any, url: str) -> Iterator[Visitor]:
    """Give a tab whose clock the test moves."""
    tab = Visitor(browser, url)
    tab.page.clock.install()
    yield tab
    tab.close()


_COUNTING = """
  window.underWay = 0;
  const ask = window.fetch;
  window.fetch = async (...asked) => {
    if (asked[1]?.headers?.Accept === "application/x-ndjson") return ask(...asked);
    underWay += 1;
    try {
      const answer = await ask(...asked);
      const body = [204, 304].includes(answer.status) ? null : await answer.arrayBuffer();
      return new Response(body, { status: answer.status, headers: answer.headers });
    } finally {
      underWay -= 1;
    }
  };"""
"""Whole answers at once, and how many have not come; of a watch nobody waits for the end."""
_SETTLED = """async () => {
  for (let turn = 0; turn < 20; turn += 1)
    await new Promise((go) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = go;
      port2.postMessage(0);
    });
  return !underWay;
}"""


def settle(page: Any) -> None:
    """Wait until every answer is here and used: one that is late by the page's clock, which only
    the test moves, would be one of a slow member, which the page asks less."""
    ends_s = time.monotonic() + patient(20)
    while not page.evaluate(_SETTLED):
        assert time.monotonic() < ends_s, "an answer does not come"
        page.wait_for_timeout(5)


def test_a_page_that_nobody_touches_asks_for_little(visitor: Visitor) -> None:
    """In a minute: the members each two seconds; of a lock why it is so; else nothing."""
    asked: list[str] = []
    visitor.page.add_init_script(_COUNTING)
    visitor.page.on("request", lambda request: asked.append(request.url.partition("/v1/")[2]))

    def asked_in_a_minute(screen: str, step_s: int) -> list[str]:
        page = visitor.open(screen)
        page.wait_for_timeout(150)  # what it reads at first
        settle(page)
        asked.clear()
        for _ in range(60 // step_s):
            page.clock.run_for(step_s * 1_000)
            page.wait_for_timeout(20)
            settle(page)
        return asked

    members = asked_in_a_minute("cluster", 2)
    assert set(members) == {"status", "members"}
    assert 20 < len(members) <= 62
    leases = asked_in_a_minute("locks/held", 10)
    assert 3 <= len(leases) <= 7
    assert set(leases) == {"locks/held/why"}
    assert "safe for" in visitor.page.inner_text(".lease")
    for screen in ("locks", "waits", "recipes", "sessions", "tree/%2Fapp", "events", "locks/free"):
        assert asked_in_a_minute(screen, 20) == [], screen


def test_the_focus_stays_while_a_lease_is_renewed(visitor: Visitor) -> None:
    """Who works by keyboard does not lose the button under the finger each two seconds."""
    page = visitor.open("locks/held")
    page.get_by_role("button", name="Revoke…").focus()
    with page.expect_response(lambda reply: reply.url.endswith("/why")):
        page.clock.run_for(10_000)
    page.clock.run_for(5_000)
    assert page.evaluate("document.activeElement.textContent") == "Revoke…"


def test_a_slow_member_is_asked_less(visitor: Visitor) -> None:
    """What took a second is not asked again within four, whatever changes meanwhile."""
    page = visitor.open("events")
    page.evaluate(
        """async () => {
          const { Refresher } = await import("/console/parts/refresher.js");
          window.calls = 0;
          const work = () => new Promise((go) => { calls += 1; setTimeout(go, 1_000); });
          const refresher = new Refresher(work, { atLeastMs: 500, everyMs: 2_000 });
          setInterval(() => refresher.soon(), 100);
        }"""
    )
    for _ in range(12):
        page.clock.run_for(5_000)
    assert 10 <= page.evaluate("calls") <= 14


def test_a_story_is_offered_on_a_development_cluster_alone(visitor: Visitor) -> None:
    """A member says where; an address that is none of this machine is not offered."""
    page = visitor.page
    told = ""
    page.route(re.compile(r"/v1/status"), lambda route: route.fulfill(
        json={**route.fetch().json(), "learn_url": told}))  # fmt: skip
    offered = page.get_by_role("link", name="Play a story here")
    url = "http://127.0.0.1:9/learn#key=a_-b"
    for told in ("", "http://10.0.0.1:9/learn#key=a", "javascript:alert(1)", f"{url}&play=x", url):
        visitor.open("locks")
        visitor.open("cluster")
        assert offered.count() == int(told == url), told
    assert offered.get_attribute("href") == f"{url}&play=freeze-ray"
    assert faults(page) == []
