"""Being alive: heartbeats, suspended, lost, and the truth after a pause."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import pytest
from msgspec.structs import replace

from coordinator.client import Response, RetryPolicy, Session, SessionState
from coordinator.client.calling.calls import Call
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.sessions.session import open_session
from coordinator.errors import (
    ConnectionLostError,
    CoordinatorError,
    NoLeaderError,
    NoNodeError,
    SessionExpiredError,
)
from coordinator.model.sessions import SessionLease
from tests.client.fake_members import (
    BROKEN,
    REFUSED,
    A,
    B,
    C,
    FakeMembers,
    Happening,
    Seen,
    answer,
    refusal,
)
from tests.client.virtual_time import LoopClock, run

TIMEOUT_MS = 9_000
Script = Callable[[Seen], Happening | Awaitable[Happening]]
ALIVE = {"session_id": "s1", "timeout_ms": TIMEOUT_MS}


class World:
    """Members whose heartbeats do as ``happens`` says; everything else works."""

    def __init__(self, clock: LoopClock | None = None) -> None:
        self.happens: Script = lambda seen: answer(ALIVE)
        self.other: Script = lambda seen: answer({})
        self.members = FakeMembers(self._on_request)
        self.clock = clock or LoopClock(asyncio.get_running_loop())
        self.delivery = CallDelivery(
            self.members, endpoints=(A, B, C), clock=self.clock, retry=RetryPolicy(seed=3)
        )
        self.states: list[tuple[SessionState, float]] = []

    async def open(self) -> Session:
        session = await open_session(
            self.delivery, TIMEOUT_MS, label="", timeout_ms=5_000, margin_ratio=0.025
        )
        began = asyncio.get_running_loop().time()
        session.on_state(
            lambda state: self.states.append((state, asyncio.get_running_loop().time() - began))
        )
        return session

    def _on_request(self, seen: Seen) -> Happening | Awaitable[Happening]:
        if seen.request.target.endswith("/heartbeat"):
            return self.happens(seen)
        if seen.request.method == "DELETE":
            return answer({"session_id": "s1", "was_open": True})
        if seen.request.method == "GET":
            return self.other(seen)
        return answer(ALIVE, 201)

    def heartbeats(self) -> list[Seen]:
        return [each for each in self.members.seen if each.request.target.endswith("/heartbeat")]


def test_heartbeats_keep_a_session_without_any_user_code() -> None:
    """A ten minute task lives on a nine second lease."""

    async def scenario() -> None:
        world = World()
        session = await world.open()

        await asyncio.sleep(600)

        assert session.state is SessionState.CONNECTED
        assert session.remaining_safe_ms() > TIMEOUT_MS / 2
        assert 198 <= len(world.heartbeats()) <= 202
        assert world.states == []
        await session.close(1_000)

    run(scenario())


def test_three_seconds_without_heartbeats_change_nothing() -> None:
    """A short blockade suspends and heals."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        world.happens = lambda seen: refusal(NoLeaderError())
        await asyncio.sleep(3.5)
        during = session.state
        world.happens = lambda seen: answer(ALIVE)
        await asyncio.sleep(3)

        assert during is SessionState.SUSPENDED
        assert session.state is SessionState.CONNECTED
        assert [state for state, _ in world.states] == ["suspended", "connected"]
        session.check()
        await session.close(1_000)

    run(scenario())


@pytest.mark.parametrize("trouble", [REFUSED, BROKEN, None, refusal(NoLeaderError())])
def test_heartbeats_are_tried_until_the_real_deadline_and_then_the_session_is_lost(
    trouble: Happening,
) -> None:
    """Lost is told before the server can expire the session, and not much earlier."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        world.happens = lambda seen: trouble
        await asyncio.sleep(30)

        (suspended, _), (lost, at_s) = world.states
        assert (suspended, lost) == (SessionState.SUSPENDED, SessionState.LOST)
        assert 8.5 < at_s <= (TIMEOUT_MS - 225) / 1000 + 0.02
        assert world.heartbeats()[-1].at_s - world.heartbeats()[0].at_s > 3.5
        assert {each.endpoint for each in world.heartbeats()} == {A, B, C}
        with pytest.raises(SessionExpiredError, match="no heartbeat"):
            session.check()

    run(scenario())


def test_a_member_that_says_expired_ends_the_session_at_once() -> None:
    """The holder on the wrong side of a partition is told "expired", never "still held"."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        world.happens = lambda seen: refusal(SessionExpiredError("it ended"))
        await asyncio.sleep(3.1)

        assert session.state is SessionState.LOST
        assert "it ended" in session.reason
        assert len(world.heartbeats()) == 1

    run(scenario())


def test_after_a_pause_the_first_question_gets_the_truth_before_any_task_ran() -> None:
    """A frozen process learns on waking that its session is lost, before it can act."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        await asyncio.sleep(4)
        assert not session.is_lost

        world.clock.paused_ms += 60_000  # no await: the process wakes and asks at once

        assert session.is_lost
        assert session.remaining_safe_ms() == 0
        with pytest.raises(SessionExpiredError):
            session.check()
        await asyncio.sleep(20)
        assert [state for state, _ in world.states] == ["lost"]

    run(scenario())


class HandlerClock(LoopClock):
    """A clock at whose next look a signal handler runs first."""

    handler: Callable[[], None] | None = None

    def monotonic_ms(self) -> int:
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return super().monotonic_ms()


def test_a_lease_that_is_renewed_while_the_clock_is_read_is_not_lost() -> None:
    """A signal handler takes eight seconds there, in which the client's loop goes on."""

    async def scenario() -> None:
        clock = HandlerClock(asyncio.get_running_loop())
        session = await World(clock).open()

        def reload() -> None:
            for _ in range(3):
                clock.paused_ms += TIMEOUT_MS // 3
                session._renew(clock.monotonic_ms(), SessionLease(**ALIVE))  # type: ignore[arg-type]

        clock.handler = reload

        assert session.remaining_safe_ms() > TIMEOUT_MS / 2
        assert not session.is_lost
        await session.close(1_000)

    run(scenario())


def test_an_acknowledgement_that_comes_after_the_safe_time_does_not_revive() -> None:
    """Once anybody may have been told "lost" it stays lost."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        world.happens = lambda seen: REFUSED
        await asyncio.sleep(8.0)
        assert not session.is_lost

        def paused_before_it_is_read(_seen: Seen) -> Happening:
            world.clock.paused_ms += 1_000
            return answer(ALIVE)

        world.happens = paused_before_it_is_read

        await asyncio.sleep(5)

        assert session.state is SessionState.LOST

    run(scenario())


def test_a_slow_acknowledgement_counts_from_when_it_was_sent() -> None:
    """A heartbeat that took a second extends the lease by a second less."""

    async def scenario() -> None:
        world = World()

        async def slow() -> Happening:
            await asyncio.sleep(1)
            return answer(ALIVE)

        world.happens = lambda seen: slow()
        session = await world.open()
        await asyncio.sleep(4.05)

        assert session.remaining_safe_ms() == pytest.approx(TIMEOUT_MS - 225 - 1_050, abs=10)
        await session.close(1_000)

    run(scenario())


RENEWED = Response(
    status=200, headers={**answer({}).headers, "coordinator-safe-ms": "8775"}, body=b"{}"
)


async def read(world: World) -> None:
    await world.delivery.read(Call("GET", "/v1/tree/a"), lambda body: body, 5_000)


def renewing(world: World) -> list[Seen]:
    return [each for each in world.members.seen if "coordinator-session-id" in each.request.headers]


def test_a_busy_client_sends_no_heartbeats() -> None:
    """A few of its requests renew the session beside what they ask for."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        world.other = lambda seen: RENEWED
        for _ in range(600):
            await asyncio.sleep(0.1)
            await read(world)

        assert world.heartbeats() == []
        assert {each.request.headers["coordinator-session-id"] for each in renewing(world)} == {
            "s1"
        }
        assert 35 <= len(renewing(world)) <= 42  # one in a sixth of the timeout
        assert session.remaining_safe_ms() > TIMEOUT_MS / 2
        assert world.states == []
        await asyncio.sleep(60)
        assert 19 <= len(world.heartbeats()) <= 21
        await session.close(1_000)
        await read(world)
        assert len(renewing(world)) <= 42

    run(scenario())


def test_what_does_not_say_that_it_has_renewed_has_not() -> None:
    """Heartbeats go on, and a member that knows nothing of it costs nothing."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        for _ in range(600):
            await asyncio.sleep(0.1)
            await read(world)

        assert 19 <= len(world.heartbeats()) <= 21
        await session.close(1_000)

    run(scenario())


def test_a_slow_request_counts_from_when_it_was_sent() -> None:
    """The member counts from its arrival at the earliest, however long it takes."""

    async def scenario() -> None:
        world = World()
        world.happens = lambda seen: None

        async def slow() -> Happening:
            await asyncio.sleep(4)
            return RENEWED

        world.other = lambda seen: slow()
        session = await world.open()
        await asyncio.sleep(2)
        await read(world)

        assert session.remaining_safe_ms() == pytest.approx(TIMEOUT_MS - 225 - 4_000, abs=10)
        assert session.state is SessionState.SUSPENDED
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert session.state is SessionState.CONNECTED
        await session.close(1_000)

    run(scenario())


def test_a_refused_request_may_renew_and_a_late_one_revives_nothing() -> None:
    """What the request comes to is another matter; once it is lost the session stays lost."""

    async def scenario() -> None:
        world = World()
        world.happens = lambda seen: REFUSED
        session = await world.open()
        refused = refusal(NoNodeError())
        world.other = lambda seen: replace(refused, headers=RENEWED.headers)
        await asyncio.sleep(5)
        with suppress(CoordinatorError):
            await read(world)
        assert session.remaining_safe_ms() == pytest.approx(TIMEOUT_MS - 225, abs=10)

        async def late() -> Happening:
            await asyncio.sleep(4.5)
            world.clock.paused_ms += 5_000
            return RENEWED

        world.other = lambda seen: late()
        await asyncio.sleep(4)
        await read(world)
        assert session.state is SessionState.LOST

    run(scenario())


@pytest.mark.parametrize("rate", [0.99, 1.01])
def test_a_client_whose_clock_drifts_still_gives_up_first(rate: float) -> None:
    """At 0.99 or 1.01 of the true rate lost comes before the server's expiry."""

    async def scenario() -> None:
        world = World()
        world.clock = LoopClock(asyncio.get_running_loop(), rate)
        world.delivery.clock = world.clock
        session = await world.open()
        world.happens = lambda seen: None
        await asyncio.sleep(30)

        assert session.is_lost
        assert world.states[-1][1] < TIMEOUT_MS / 1000 / 1.01  # a server that runs 1 % fast

    run(scenario())


def test_a_step_of_the_wall_clock_changes_nothing() -> None:
    """Only the monotonic clock decides."""

    async def scenario() -> None:
        world = World()
        world.clock.wall_ms = lambda: 0  # type: ignore[method-assign]
        session = await world.open()
        await asyncio.sleep(100)

        assert not session.is_lost
        await session.close(1_000)

    run(scenario())


def test_opening_again_after_a_lost_answer_opens_one_session() -> None:
    """The opening carries a request number, and its lease counts from the first sending."""

    async def scenario() -> None:
        world = World()
        opened: Iterator[Happening] = iter([ConnectionLostError("lost"), answer(ALIVE, 201)])
        world.members.on_request = lambda seen: (
            world.happens(seen) if seen.request.target.endswith("/heartbeat") else next(opened)
        )
        began = world.clock.monotonic_ms()
        session = await world.open()

        openings = [each for each in world.members.seen if each.request.target == "/v1/sessions"]
        assert len({(each.client_id, each.number) for each in openings}) == 1
        assert session.remaining_safe_ms() <= began + TIMEOUT_MS - 225 - world.clock.monotonic_ms()

    run(scenario())


def test_one_callback_that_fails_does_not_keep_the_others_uninformed() -> None:
    """Every holder hears of the loss."""

    async def scenario() -> None:
        world = World()
        session = await world.open()
        reported: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context["exception"])
        )

        def broken(_: SessionState) -> None:
            raise ValueError("a holder's mistake")

        received: list[SessionState] = []
        session.on_state(broken)
        session.on_state(received.append)
        world.happens = lambda seen: refusal(SessionExpiredError())
        await asyncio.sleep(3.1)

        assert received == [SessionState.LOST]
        assert isinstance(reported[0], ValueError)

    run(scenario())
