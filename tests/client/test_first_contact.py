"""Nobody is at the endpoints: how soon a client that has never met a member says so."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator import Election, Lock
from coordinator.client import connect
from coordinator.client.calling.endpoints import FIRST_CONTACT_MS
from coordinator.client.calling.securing import cannot_connect, is_nobody_there
from coordinator.errors import CoordinatorError, NoLeaderError, NoNodeError, UnavailableError
from tests.client.fake_members import A, B, C, FakeMembers, Happening, Seen, refusal
from tests.client.virtual_time import LoopClock, run

NOBODY = cannot_connect(A, "Connection refused", ConnectionRefusedError())
SOON_S = FIRST_CONTACT_MS / 1000


class Nowhere(FakeMembers):
    """Members of which, at first, the question for the log index fails as any other."""

    async def request(self, endpoint: str, request: Any, timeout_ms: int) -> Any:
        if request.target == "/v1/status" and not any(self.seen):
            return await self._happened(self.on_request(Seen(endpoint, request, 0)), timeout_ms)
        return await super().request(endpoint, request, timeout_ms)


def failing_with(*happenings: Happening) -> Nowhere:
    """Members that do these things in turn, again and again."""
    at: Iterator[int] = iter(range(10**6))

    def happening(seen: Seen) -> Any:
        return happenings[next(at) % len(happenings)]

    return Nowhere(happening, happening)


def seconds_until(members: FakeMembers, verb: Callable[[Any], Any], **options: Any) -> float:
    """Return after how many seconds ``verb`` of a new client raised an Unavailable."""

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        clock = LoopClock(loop)
        async with connect([A, B, C], transport=members, clock=clock, **options) as client:
            began_s = loop.time()
            with pytest.raises(UnavailableError):
                await verb(client)
            return loop.time() - began_s

    return run(scenario())


@pytest.mark.parametrize(
    "verb",
    [
        lambda client: client.get("/a"),
        lambda client: client.set("/a", b""),
        lambda client: client.session(),
        lambda client: Lock(client, "a").acquire(),
        lambda client: Election(client, "a").campaign(timeout=10),
    ],
    ids=["read", "write", "session", "lock", "election"],
)
def test_nobody_there_is_said_soon(verb: Callable[[Any], Any]) -> None:
    """Each endpoint was tried twice, and the reason is the system's."""
    members = failing_with(NOBODY)

    assert seconds_until(members, verb) <= SOON_S
    tried = [each.endpoint for each in members.seen]
    assert min(tried.count(url) for url in (A, B, C)) >= 2


@pytest.mark.parametrize("timeout", [4.0, 10.0, 30.0])
def test_who_asks_for_a_deadline_gets_it(timeout: float) -> None:
    """As a program does that starts before its cluster."""
    taken_s = seconds_until(failing_with(NOBODY), lambda client: client.get("/a"), timeout=timeout)

    assert timeout - 2.5 < taken_s <= timeout


def test_a_longer_wait_for_a_lock_is_asked_for() -> None:
    """A minute for the lock is a minute, also for its cluster to start."""
    taken_s = seconds_until(
        failing_with(NOBODY), lambda client: Lock(client, "a").acquire(timeout=60)
    )

    assert 57 < taken_s <= 60


@pytest.mark.parametrize(
    "other",
    [UnavailableError("no route"), refusal(NoLeaderError()), None],
    ids=["no route", "a member without a leader", "silence"],
)
def test_one_that_may_be_there_is_waited_for(other: Happening) -> None:
    """Only what certainly nobody listens at is given up early."""
    taken_s = seconds_until(failing_with(NOBODY, NOBODY, other), lambda client: client.get("/a"))

    assert taken_s > 7


def test_members_that_have_been_met_may_all_be_restarting() -> None:
    """After an answer only the deadline counts."""
    is_down = False

    def happening(seen: Seen) -> Happening:
        return NOBODY if is_down else refusal(NoNodeError())

    async def verb(client: Any) -> None:
        nonlocal is_down
        with pytest.raises(NoNodeError):
            await client.get("/a")
        is_down = True
        await client.get("/a")

    assert seconds_until(FakeMembers(happening), verb) > 7


def two(first: int, second: int) -> OSError:
    """Return what asyncio makes of two addresses of a host."""
    said = (f"[Errno {each}] Connect call failed ('::1', 9)" for each in (first, second))
    return OSError(f"Multiple exceptions: {', '.join(said)}")


@pytest.mark.parametrize(
    ("error", "is_nobody"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), True),
        (two(errno.ECONNREFUSED, errno.ECONNREFUSED), True),
        (two(errno.ECONNREFUSED, errno.EHOSTUNREACH), False),
        (socket.gaierror(socket.EAI_NONAME, "no such name"), True),
        (socket.gaierror(socket.EAI_AGAIN, "the name server is busy"), False),
        (OSError(errno.EHOSTUNREACH, "no route"), False),
        (ConnectionResetError(errno.ECONNRESET, "reset"), False),
        (OSError("something"), False),
        (None, False),
    ],
)
def test_only_a_refusal_and_a_name_without_address_mean_nobody(
    error: OSError | None, is_nobody: bool
) -> None:
    """A full, slow or cut-off member is somebody."""
    assert is_nobody_there(error) is is_nobody


@pytest.mark.parametrize("transport", ["http", "stream", "auto"])
@pytest.mark.parametrize("is_sync", [False, True])
def test_every_transport_says_so(transport: Any, is_sync: bool) -> None:
    """A closed port of this machine."""
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # bound, and nobody listens
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        options: dict[str, Any] = {"transport": transport, "timeout": 0.3}

        async def ask() -> CoordinatorError:
            async with connect(url, **options) as client:
                with pytest.raises(UnavailableError) as raised:
                    await client.get("/a")
                return raised.value

        if is_sync:
            with connect(url, **options) as client, pytest.raises(UnavailableError) as raised:
                client.get("/a")
            error: CoordinatorError = raised.value
        else:
            error = asyncio.run(ask())
    assert error.is_nobody_there is True
