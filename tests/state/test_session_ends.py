"""The end of a session in pieces: over at once, gone piece by piece, whatever comes in between."""

from __future__ import annotations

import random

import pytest

from coordinator.model.access import NOBODY
from coordinator.state.commands import (
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    Downgrade,
    Enter,
    ExpireSession,
    FinishSession,
    HeldCondition,
    Kind,
    OpenSession,
    Operation,
    SetData,
)
from coordinator.state.locks.contender import Ending
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered, Outcome, SessionEnded, SessionFinished
from coordinator.state.sessions import SessionRecord
from tests.amount import drawn, least
from tests.met import Met
from tests.state.strategies import SMALL_LIMITS
from tests.state.test_laws import check_ephemerals
from tests.state.znode_histories import mixed_history


class Room:
    """A machine, and one that is restored from a snapshot before each command."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.restored = StateMachine()
        self.index = 0

    def apply(self, operation: Operation, *if_held: HeldCondition) -> Outcome:
        self.index += 1
        command = Command(
            operation, wall_ms=self.index, request=None, caller=NOBODY, if_held=if_held
        )
        again = StateMachine()
        again.restore(self.restored.snapshot())
        self.restored = again
        outcome = self.machine.apply(command, self.index, 1)
        assert self.restored.apply(command, self.index, 1) == outcome
        assert self.restored.digest() == self.machine.digest()
        return outcome

    def enter(self, session_id: str, *names: str, **options: object) -> tuple[str, int]:
        directories = tuple([f"/locks/{name}" for name in names])
        entry = Enter(
            directories,
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id=session_id,
            data=b"",
            **options,
        )  # type: ignore[arg-type]
        result = self.apply(entry).unwrap()
        assert isinstance(result, Entered)
        return result.contenders[0].path, result.contenders[0].stat.czxid

    def holder(self, name: str) -> str | None:
        holders = self.machine.locks.holders(f"/locks/{name}")
        return holders[0].session_id if holders else None


def _room(count: int) -> Room:
    room = Room()
    for session_id in ("s1", "s2"):
        room.apply(OpenSession(session_id, 5_000))
    for number in range(count):
        room.enter("s1", f"a{number}")
    return room


def test_a_session_is_over_at_once_and_its_znodes_go_piece_by_piece() -> None:
    """As many as the command says; the rest by commands that follow, until none is left."""
    room = _room(5)

    ended = room.apply(CloseSession("s1", at_once=2))
    lefts = [room.apply(FinishSession("s1", 2)).unwrap() for _ in range(3)]

    assert ended.unwrap() == SessionEnded("s1", was_open=True)
    assert [each.path for each in ended.events] == [
        "/locks/a0/lock-0000000000",
        "/locks/a1/lock-0000000000",
    ]
    assert lefts == [
        SessionFinished("s1", 1),
        SessionFinished("s1", 0),
        SessionFinished("s1", 0),  # void
    ]
    assert room.machine.ephemerals_of("s1") == ()
    assert room.machine.leaving_sessions() == ()


def test_nothing_is_done_in_the_name_of_a_session_that_is_leaving() -> None:
    """Its grants are held for no condition, and it can neither write nor come again."""
    room = _room(3)
    path, token = "/locks/a2/lock-0000000000", room.machine.locks.holders("/locks/a2")[0].czxid
    room.apply(CloseSession("s1", at_once=1))
    assert room.holder("a2") == "s1", "it stands there still"

    under = room.apply(Create("/x"), HeldCondition("/locks/a2", token))
    ephemeral = room.apply(Create("/e", mode=CreateMode.EPHEMERAL, session_id="s1"))
    again = room.apply(OpenSession("s1", 5_000))
    downgraded = room.apply(Downgrade(path, token))
    entered = room.apply(
        Enter(("/locks/b",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"")
    )

    assert [
        each.refusal and each.refusal.code
        for each in (under, ephemeral, again, downgraded, entered)
    ] == ["LockLost", "SessionExpired", "BadArguments", "NotOwner", "SessionExpired"]


def test_no_session_comes_again_while_one_of_its_id_is_leaving() -> None:
    """Also when so many have ended since that its end is not remembered for retries."""
    machine = StateMachine(SMALL_LIMITS)

    def do(operation: Operation) -> str | None:
        outcome = machine.apply(Command(operation, 0), machine.applied_index + 1, 1)
        return outcome.refusal and outcome.refusal.code

    do(OpenSession("s1", 50))
    for name in "abc":
        do(Create(f"/{name}", data=b"", mode=CreateMode.EPHEMERAL, session_id="s1"))
    do(CloseSession("s1", at_once=1))
    for number in range(SMALL_LIMITS.clients_max + 1):
        do(OpenSession(f"t{number}", 50))
        do(CloseSession(f"t{number}"))

    assert do(OpenSession("s1", 50)) == "BadArguments"
    do(FinishSession("s1", 9))
    assert do(OpenSession("s1", 50)) is None
    assert machine.ephemerals_of("s1") == ()


def test_who_waits_behind_is_granted_in_the_command_in_which_its_lock_goes() -> None:
    """Not before, so nobody holds beside who may still think that it holds."""
    room = _room(4)
    room.enter("s2", "a3")
    room.apply(CloseSession("s1", at_once=2))

    first = room.apply(FinishSession("s1", 1))
    second = room.apply(FinishSession("s1", 1))

    assert first.granted == ()
    assert second.granted == ("/locks/a3/lock-0000000001",)


def test_the_history_says_of_every_grant_how_its_session_ended() -> None:
    """Also of those that went by a later command."""
    room = _room(4)

    room.apply(ExpireSession("s1", term=1, silent_ms=700, at_once=1))
    room.apply(FinishSession("s1", 9))

    ended = room.machine.locks.history(GrantQuery())
    assert [(each.how, each.silent_ms, each.term) for each in ended] == [
        (Ending.EXPIRED, 700, 1)
    ] * 4


def test_a_lock_delay_holds_for_what_goes_later_too() -> None:
    """The queue is closed by the command in which the lost holder goes."""
    room = _room(1)
    room.enter("s1", "slow", lock_delay_ms=500)

    room.apply(ExpireSession("s1", term=1, silent_ms=700, at_once=1))
    assert room.machine.locks.closed("/locks/slow") == ()
    room.apply(FinishSession("s1", 1))

    assert [each.delay_ms for each in room.machine.locks.closed("/locks/slow")] == [500]


def test_a_multi_lock_goes_as_a_whole() -> None:
    """A piece has some more then, and no other has a part of it."""
    room = _room(1)
    room.enter("s1", "m1", "m2", "m3")
    room.enter("s1", "last")

    ended = room.apply(CloseSession("s1", at_once=2))

    assert {each.path.split("/")[2] for each in ended.events if "lock-" in each.path} == {
        "a0", "m1", "m2", "m3",
    }  # fmt: skip
    assert room.holder("last") == "s1"


def test_a_session_that_is_leaving_closes_no_circle() -> None:
    """It gives everything back by itself, so waiting for it is no deadlock."""
    room = _room(1)
    room.enter("s1", "x", owner="one")
    room.enter("s2", "y", owner="two")
    room.enter("s1", "y", owner="one")
    room.apply(CloseSession("s1", at_once=1))
    assert room.holder("x") == "s1"

    waiting = room.apply(
        Enter(
            ("/locks/x",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id="s2",
            data=b"",
            owner="two",
        )
    )
    room.apply(FinishSession("s1", 9))

    assert waiting.refusal is None
    assert room.holder("x") == "s2"


def test_what_others_take_away_meanwhile_is_not_counted() -> None:
    """The end is through when nothing is left, whoever deleted it."""
    room = _room(2)
    room.apply(Create("/d", mode=CreateMode.PERSISTENT))
    room.apply(Create("/d/e", data=b"", mode=CreateMode.EPHEMERAL, session_id="s1"))
    room.apply(CloseSession("s1", at_once=2))
    room.apply(SetData("/d/e", b"anybody may"))
    room.apply(Delete("/d/e"))

    assert room.apply(FinishSession("s1", 1)).unwrap() == SessionFinished("s1", 0)
    assert room.machine.leaving_sessions() == ()


@pytest.mark.parametrize("at_once", [0, 5, 6])
def test_few_go_in_the_command_that_ends_their_session(at_once: int) -> None:
    """All of them, where the command does not say how many at once."""
    room = _room(5)

    ended = room.apply(CloseSession("s1", at_once=at_once))

    assert len(ended.events) >= 5
    assert room.machine.leaving_sessions() == ()


@pytest.mark.histories
def test_whatever_comes_in_between_a_session_goes_whole() -> None:
    """In many histories: who is leaving owns something, until nothing of it is left (law 7)."""
    met = Met()
    for seed in range(drawn(250)):
        machine = StateMachine(SMALL_LIMITS)
        for command in mixed_history(random.Random(seed), SMALL_LIMITS, 40):
            before, zxid = machine.leaving_sessions(), machine.zxid
            outcome = machine.apply(command, machine.applied_index + 1, 1)
            after = machine.leaving_sessions()

            check_ephemerals(machine)
            result = outcome.result
            if isinstance(command.operation, FinishSession) and not outcome.is_repeat:
                session_id = command.operation.session_id
                met["went on"] += bool(outcome.events)
                if isinstance(result, SessionFinished):
                    assert result.left == len(machine.ephemerals_of(session_id)) or not before
                    assert (session_id in after) == (session_id in before and result.left > 0)
                assert machine.zxid == zxid + bool(outcome.events or before != after)
                met["through"] += before != after
                met["nothing was left"] += before != after and not outcome.events
            elif isinstance(result, SessionEnded) and before != after:
                met["in pieces"] += 1
                assert after == (*before, result.session_id)
            else:
                assert after == before

    met.check(**least(in_pieces=26, went_on=26, through=26, nothing_was_left=1))


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_pages_of_sessions_are_all_of_them(length: int) -> None:
    """Read one behind the other, each once, as they were opened, also when some have ended."""
    machine = StateMachine()
    for number in range(9):
        session_id = f"s{(number * 5) % 9}"  # not as they sort
        machine.apply(Command(OpenSession(session_id, 5_000), 0), number + 1, 1)
    for session_id in ("s0", "s4"):
        machine.apply(Command(CloseSession(session_id), 0), 20, 1)
    every = list(machine.sessions())

    found: list[SessionRecord] = []
    while page := list(machine.sessions(found[-1].opened_zxid if found else 0, length)):
        assert len(page) == min(length, len(every) - len(found))
        found += page

    assert found == every
    assert [each.session_id for each in every] == ["s5", "s1", "s6", "s2", "s7", "s3", "s8"]
    assert list(machine.sessions(0, 0)) == []
