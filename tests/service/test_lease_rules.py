"""Leases by themselves: each rule at its edge, with a log that says what it is told to say."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import NoLeaderError, OutcomeUnknownError, ThrottledError
from coordinator.model.limits import MachineLimits
from coordinator.node.config import Config, SessionConfig
from coordinator.service.base.replica import MachineReplica
from coordinator.service.sessions import leases as module
from coordinator.service.sessions.leases import Leases
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import (
    CloseSession,
    Command,
    Enter,
    ExpireSession,
    Kind,
    OpenSession,
    Operation,
)
from coordinator.state.machine import StateMachine
from tests.service.contexts import context_of

TERM = 3
TIMEOUT_MS = 100
TICK_MS = 50


class Clock:
    """Stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now_ms = 10_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 0


class Log:
    """An engine of which a test says what becomes of a proposal: an error, silence, or a commit."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.proposed: list[ExpireSession] = []
        self.answers: list[Exception | None] = []
        self.is_held = False
        self.release = asyncio.Event()

    async def propose(self, command: bytes) -> None:
        operation = decode_command(command).operation
        assert isinstance(operation, ExpireSession)
        self.proposed.append(operation)
        if self.is_held:
            await self.release.wait()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self._room.commit(operation)


class Room:
    """Leases of a leader of term 3, over a machine with sessions of 100 ms."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.replica = MachineReplica(StateMachine(MachineLimits(timeout_ms_min=1)))
        self.log = Log(self)
        self.failures: list[BaseException] = []
        context = context_of(
            self.clock,
            self.replica,
            engine=self.log,
            config=Config(sessions=SessionConfig(tick_ms=TICK_MS)),
            on_failure=self.failures.append,
        )
        self.metrics = context.metrics
        self.leases = Leases(context)
        self.replica.add_listener(self.leases)

    def commit(self, operation: Operation) -> None:
        index = self.replica.machine.applied_index + 1
        self.replica.apply(index, TERM, encode_command(Command(operation, 0)))

    def open(self, *session_ids: str, timeout_ms: int = TIMEOUT_MS) -> None:
        for session_id in session_ids:
            self.commit(OpenSession(session_id, timeout_ms))

    async def after(self, passed_ms: int) -> None:
        """Let time pass, tick, and let what was spawned run."""
        self.clock.now_ms += passed_ms
        self.leases.tick(self.clock.now_ms)
        for _ in range(5):
            await asyncio.sleep(0)
        assert self.failures == []

    @property
    def ended(self) -> list[str]:
        return [each.session_id for each in self.log.proposed]

    def is_open(self, session_id: str) -> bool:
        return self.replica.machine.session(session_id) is not None

    def metric(self, name: str) -> float:
        for family in self.metrics.registry.collect():
            for sample in family.samples:
                if sample.name.endswith(name):
                    return sample.value
        raise AssertionError(f"no metric {name}")


@pytest.fixture
def room() -> Room:
    room = Room()
    room.open("s1")
    room.leases.start(TERM)
    return room


async def test_a_lease_ends_at_its_deadline_and_not_before(room: Room) -> None:
    """The end is proposed at the tick of the very millisecond, with the silence as it was."""
    await room.after(TIMEOUT_MS - 1)
    assert room.log.proposed == []
    assert room.leases.remaining_ms("s1") == 1

    await room.after(1)

    assert room.log.proposed == [
        ExpireSession("s1", term=TERM, silent_ms=TIMEOUT_MS, at_once=ENDED_AT_ONCE)
    ]
    assert not room.is_open("s1")
    assert room.leases.remaining_ms("s1") is None
    assert room.leases.deadline_ms("s1") is None


async def test_the_silence_that_is_told_is_counted_from_the_last_heartbeat(room: Room) -> None:
    """Also when the tick came late."""
    room.leases.extend("s1", room.clock.now_ms + 30)

    await room.after(30 + TIMEOUT_MS + 7)

    assert room.log.proposed == [
        ExpireSession("s1", term=TERM, silent_ms=TIMEOUT_MS + 7, at_once=ENDED_AT_ONCE)
    ]


async def test_a_heartbeat_extends_from_its_arrival_and_never_shortens(room: Room) -> None:
    """An older one that is worked off later takes nothing away."""
    began_ms = room.clock.now_ms
    room.leases.extend("s1", began_ms + 60)
    room.leases.extend("s1", began_ms + 20)

    assert room.leases.deadline_ms("s1") == began_ms + 60 + TIMEOUT_MS
    await room.after(TIMEOUT_MS)
    assert room.log.proposed == []
    await room.after(60)
    assert room.ended == ["s1"]


async def test_who_has_no_lease_here_gets_none_by_a_heartbeat(room: Room) -> None:
    """A session that nobody knows, and one that came with another leadership."""
    room.leases.extend("nobody", room.clock.now_ms)
    room.leases.stop()
    room.leases.extend("s1", room.clock.now_ms)

    assert [room.leases.deadline_ms(each) for each in ("nobody", "s1")] == [None, None]
    assert not room.leases.is_promised("s1")
    assert room.leases.remaining_ms("s1") is None


async def test_a_leadership_that_ended_leaves_nothing(room: Room) -> None:
    """No deadline, no proposal, no doubt; the next one begins in full."""
    room.log.answers = [OutcomeUnknownError("nobody knows")]
    await room.after(TIMEOUT_MS)
    assert not room.leases.is_promised("s1")

    room.leases.stop()
    await room.after(10 * TIMEOUT_MS)
    assert len(room.log.proposed) == 1
    assert room.metric("leases") == 0
    room.leases.start(TERM)

    assert room.leases.is_promised("s1")
    assert room.leases.remaining_ms("s1") == TIMEOUT_MS
    assert room.metric("leases") == 1


async def test_a_snapshot_ends_the_leases(room: Room) -> None:
    """Whoever is given one does not lead."""
    room.leases.on_restore()

    assert room.leases.term is None
    assert room.leases.deadline_ms("s1") is None


async def test_an_end_that_is_answered_late_belongs_to_its_leadership(room: Room) -> None:
    """What it left open then is not touched by it now."""
    room.log.is_held = True
    room.log.answers = [ThrottledError("full")]
    await room.after(TIMEOUT_MS)
    room.leases.stop()
    room.leases.start(TERM + 1)

    room.log.release.set()
    await room.after(1)

    assert room.leases.is_promised("s1")
    room.log.is_held = False
    await room.after(TIMEOUT_MS)
    assert [each.term for each in room.log.proposed] == [TERM, TERM + 1]


@pytest.mark.parametrize("refusal", [ThrottledError("full"), NoLeaderError("none")])
async def test_an_end_that_is_refused_is_proposed_again_by_the_same_leader(
    room: Room, refusal: Exception
) -> None:
    """Certainly not proposed: a heartbeat may win; without one the next tick tries again."""
    room.log.answers = [refusal]
    await room.after(TIMEOUT_MS)
    assert room.is_open("s1")
    assert room.leases.is_promised("s1")
    assert room.leases.remaining_ms("s1") == 0

    await room.after(TICK_MS)

    assert room.ended == ["s1", "s1"]
    assert not room.is_open("s1")


async def test_a_heartbeat_wins_over_an_end_that_was_refused(room: Room) -> None:
    """The lease goes on, and ends when that is over."""
    room.log.answers = [ThrottledError("full")]
    await room.after(TIMEOUT_MS)
    room.leases.extend("s1", room.clock.now_ms)

    await room.after(TICK_MS)
    assert room.ended == ["s1"]
    await room.after(TICK_MS)

    assert room.ended == ["s1", "s1"]


async def test_an_end_of_which_nobody_knows_is_proposed_again_and_promises_nothing(
    room: Room,
) -> None:
    """Neither a refusal of the second try nor a heartbeat makes it certain (rule 3)."""
    room.log.answers = [OutcomeUnknownError("nobody knows"), ThrottledError("full")]
    await room.after(TIMEOUT_MS)
    assert not room.leases.is_promised("s1")

    await room.after(TICK_MS)
    assert not room.leases.is_promised("s1")
    await room.after(TICK_MS)

    assert room.ended == ["s1"] * 3
    assert not room.is_open("s1")


async def test_one_end_at_a_time(room: Room) -> None:
    """While one is under way, ticks and stalls propose no other, and promise nothing."""
    room.log.is_held = True
    await room.after(TIMEOUT_MS)
    for _ in range(3):
        await room.after(TIMEOUT_MS)
        assert not room.leases.is_promised("s1")
    await room.after(10_000)

    assert room.ended == ["s1"]
    room.log.release.set()
    await room.after(1)
    assert not room.is_open("s1")
    assert room.metric("sessions_expired_total") == 1


@pytest.mark.parametrize(("late_ms", "is_stalled"), [(0, False), (1, True)])
async def test_a_tick_that_comes_too_late_starts_all_leases_again(
    room: Room, late_ms: int, is_stalled: bool
) -> None:
    """A second and a tick are not late; one millisecond more is."""
    room.open("s2", timeout_ms=5_000)

    await room.after(module._STALL_MS + TICK_MS + late_ms)

    assert room.ended == ([] if is_stalled else ["s1"])
    assert room.metric("lease_restarts_total") == is_stalled
    if is_stalled:
        assert [room.leases.remaining_ms(each) for each in ("s1", "s2")] == [TIMEOUT_MS, 5_000]
        await room.after(TIMEOUT_MS - 1)
        assert room.ended == []
        await room.after(1)
        assert room.ended == ["s1"]


async def test_the_first_tick_of_a_leadership_is_no_stall() -> None:
    """It is counted from the beginning of the lead."""
    room = Room()
    room.open("s1")
    room.clock.now_ms += 60_000
    room.leases.start(TERM)

    await room.after(TIMEOUT_MS)

    assert room.ended == ["s1"]


async def test_sessions_come_and_go(room: Room) -> None:
    """One that is opened has its lease; one that is closed has none; a void expiry ends nothing."""
    room.open("s2")
    assert room.leases.remaining_ms("s2") == TIMEOUT_MS
    assert room.metric("leases") == 2
    room.commit(ExpireSession("s2", TERM + 1))
    assert room.leases.is_promised("s2")
    room.commit(CloseSession("s1"))

    assert room.leases.deadline_ms("s1") is None
    assert room.metric("leases") == 1
    await room.after(TIMEOUT_MS)
    assert room.ended == ["s2"]


async def test_a_session_that_an_attempt_opens_has_a_lease(room: Room) -> None:
    """From that command on, for its own timeout; a try that was refused opens none."""
    opening = OpenSession("s2", TIMEOUT_MS)
    room.commit(
        Enter(
            ("/locks/a",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id="s2",
            data=b"",
            is_try=True,
            opening=opening,
        )
    )
    other = OpenSession("s3", TIMEOUT_MS)
    room.commit(
        Enter(
            ("/locks/a",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id="s3",
            data=b"",
            is_try=True,
            opening=other,
        )
    )

    assert room.leases.remaining_ms("s2") == TIMEOUT_MS
    assert room.leases.remaining_ms("s3") is None


async def test_an_open_that_is_repeated_extends_nothing(room: Room) -> None:
    """The outcome of the first is told again; the lease goes on as it was."""
    await room.after(60)
    outcome = room.replica.machine.apply(
        Command(OpenSession("s2", TIMEOUT_MS), 0), room.replica.machine.applied_index + 1, TERM
    )
    room.leases.on_outcome(Command(OpenSession("s2", TIMEOUT_MS), 0), outcome)
    await room.after(30)

    room.leases.on_outcome(Command(OpenSession("s2", TIMEOUT_MS), 0), outcome)

    assert room.leases.remaining_ms("s2") == TIMEOUT_MS - 30


async def test_many_ends_are_proposed_in_portions(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more at once than are allowed, those under way included; the others at the next ticks."""
    monkeypatch.setattr(module, "_EXPIRING_AT_ONCE_MAX", 3)
    room.commit(CloseSession("s1"))
    room.open(*[f"t{number}" for number in range(5)])
    room.log.is_held = True

    await room.after(TIMEOUT_MS)
    assert len(room.log.proposed) == 3
    await room.after(TICK_MS)
    assert len(room.log.proposed) == 3
    room.log.is_held = False
    room.log.release.set()
    await room.after(TICK_MS)
    await room.after(TICK_MS)

    assert sorted(room.ended) == [f"t{number}" for number in range(5)]


async def test_a_leadership_that_follows_at_once_begins_in_full(room: Room) -> None:
    """Nobody stepped down between; what was in doubt then is not now."""
    room.log.answers = [OutcomeUnknownError("nobody knows")]
    await room.after(TIMEOUT_MS)

    room.leases.start(TERM + 1)

    assert room.leases.is_promised("s1")
    await room.after(TIMEOUT_MS)
    assert [each.term for each in room.log.proposed] == [TERM, TERM + 1]


async def test_who_was_opened_last_may_end_first(room: Room) -> None:
    """Leases of one start are looked at in the order of their ends."""
    room.leases.stop()
    room.open("slow", timeout_ms=900)
    room.open("quick", timeout_ms=20)
    room.leases.start(TERM)

    await room.after(20)
    assert room.ended == ["quick"]
    await room.after(TIMEOUT_MS - 20)

    assert room.ended == ["quick", "s1"]


async def test_an_open_that_is_told_again_after_the_end_makes_no_lease(room: Room) -> None:
    """The session is not there any more."""
    command = Command(OpenSession("s2", TIMEOUT_MS), 0)
    opened = room.replica.machine.apply(command, room.replica.machine.applied_index + 1, TERM)
    room.commit(CloseSession("s2"))

    room.leases.on_outcome(command, opened)

    assert room.leases.deadline_ms("s2") is None


async def test_a_session_that_is_closed_leaves_no_doubt_behind(room: Room) -> None:
    """Nothing of it is kept, though nobody knows what came of its expiry."""
    room.log.answers = [OutcomeUnknownError("nobody knows")]
    await room.after(TIMEOUT_MS)
    room.commit(CloseSession("s1"))

    assert room.leases._undecided == set()
    await room.after(TIMEOUT_MS)
    assert room.ended == ["s1"]
