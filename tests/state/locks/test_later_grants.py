"""Grants cut into pieces: in the order of the queue, whatever comes between; none is forgotten."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from coordinator.model.limits import MachineLimits
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import (
    CloseSession,
    Command,
    Delete,
    Enter,
    FinishGrants,
    Kind,
    Multi,
    OpenSession,
    Operation,
    Release,
    Resize,
    Revoke,
    SetLimits,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered, GrantsFinished, Outcome
from tests import amount
from tests.met import Met
from tests.state.locks.lock_histories import lock_history
from tests.state.locks.test_lock_laws import check_next
from tests.state.strategies import SMALL_LIMITS

QUEUE = "/locks/q"
ROOMY = replace(SMALL_LIMITS, znodes_max=60, children_max=30, ephemerals_per_session_max=30)
MANY = MachineLimits(grants_per_command_max=3)


class Room:
    """A machine, and one that is restored from a snapshot before each command."""

    def __init__(self, limits: MachineLimits = MANY) -> None:
        self.limits = limits
        self.machine, self.restored = StateMachine(limits), StateMachine(limits)
        for session_id in ("s1", "s2", "s3"):
            self.do(OpenSession(session_id, 5_000))

    def do(self, operation: Operation) -> Outcome:
        index = self.machine.applied_index + 1
        command = Command(operation, index)
        again = StateMachine(self.limits)
        again.restore(self.restored.snapshot())
        self.restored = again
        outcome = self.machine.apply(command, index, 1)
        assert self.restored.apply(command, index, 1) == outcome
        assert self.restored.digest() == self.machine.digest()
        return outcome

    def enter(self, kind: Kind, *, session_id: str = "s1", is_try: bool = False) -> Entered:
        prefix = {Kind.SHARED: "read-", Kind.SLOT: "slot-", Kind.EXCLUSIVE: "lock-"}[kind]
        size = 1 if kind is Kind.SLOT else None
        entry = Enter(
            (QUEUE,),
            prefix=prefix,
            kind=kind,
            session_id=session_id,
            data=b"",
            is_try=is_try,
            size=size,
        )
        result = self.do(entry).unwrap()
        assert isinstance(result, Entered)
        return result

    def held(self) -> int:
        return len(self.machine.locks.holders(QUEUE))

    def go_on(self) -> tuple[int, int]:
        """Return how many were granted, and in how many queues more will be."""
        outcome = self.do(FinishGrants())
        result = outcome.unwrap()
        assert isinstance(result, GrantsFinished)
        return len(outcome.granted), result.left


def behind_a_writer(readers: int) -> tuple[Room, Release]:
    room = Room()
    writer = room.enter(Kind.EXCLUSIVE).contenders[0]
    for number in range(readers):
        room.enter(Kind.SHARED, session_id=f"s{number % 2 + 2}")
    return room, Release(writer.path, writer.stat.czxid)


def test_readers_behind_a_writer_come_in_in_their_order() -> None:
    """Three at a time, and a command that has nothing left to do changes nothing."""
    room, release = behind_a_writer(8)
    standing = [each.path for each in room.machine.locks.contenders(QUEUE)][1:]

    granted = list(room.do(release).granted)
    assert granted == standing[:3]
    assert room.go_on() == (3, 1)
    assert room.go_on() == (2, 0)
    zxid = room.machine.zxid
    assert room.go_on() == (0, 0)

    assert room.machine.zxid == zxid
    assert room.held() == 8
    numbers = [each.grant_number for each in room.machine.locks.holders(QUEUE)]
    assert numbers == list(range(2, 10))


def test_nobody_gets_in_between() -> None:
    """A newcomer stands behind all who wait, and a try among them is refused as before."""
    room, release = behind_a_writer(8)
    room.do(release)

    assert not room.enter(Kind.SHARED, is_try=True).is_entered
    assert not room.enter(Kind.SHARED).is_granted
    assert not room.enter(Kind.EXCLUSIVE).is_granted
    while room.go_on()[1]:
        pass

    assert room.held() == 9
    assert room.machine.locks.contenders(QUEUE)[-1].kind is Kind.EXCLUSIVE


def test_places_of_a_semaphore_are_given_as_far_as_they_go() -> None:
    """Also when it is made smaller before all of them were given."""
    room = Room()
    for _ in range(12):
        room.enter(Kind.SLOT)
    assert len(room.do(Resize(QUEUE, 10)).granted) == 3
    assert room.held() == 4
    room.do(Resize(QUEUE, 6))
    assert room.held() == 6
    assert not room.machine.locks.has_ungranted


def test_a_queue_that_goes_takes_what_was_left_along() -> None:
    """By a recursive delete, or because everybody in it leaves."""
    room, release = behind_a_writer(8)
    room.do(release)
    room.do(Delete(QUEUE, is_recursive=True))
    assert room.go_on() == (0, 0)

    room, release = behind_a_writer(8)
    room.do(release)
    for session_id in ("s2", "s3"):
        room.do(CloseSession(session_id))
    assert not room.machine.locks.has_ungranted


def test_many_queues_share_what_one_command_may_grant() -> None:
    """A multi-lock goes, behind each of whose places readers wait."""
    names = tuple([f"/locks/m{number}" for number in range(8)])
    room = Room()
    first = room.do(
        Enter(names, prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"")
    ).unwrap()
    assert isinstance(first, Entered)
    for name in names:
        for _ in range(2):
            room.do(Enter((name,), prefix="read-", kind=Kind.SHARED, session_id="s2", data=b""))

    granted = [
        len(room.do(Release(first.contenders[0].path, first.contenders[0].stat.czxid)).granted)
    ]
    while room.machine.locks.has_ungranted:
        granted.append(room.go_on()[0])

    assert granted == [3, 3, 3, 3, 3, 1]


def test_a_multi_lock_granted_by_one_of_its_queues_is_left_in_none() -> None:
    """Another command looks at one of them: there is nothing to go on with in the other."""
    room = Room(MachineLimits(grants_per_command_max=1))

    def enter(session_id: str, *names: str) -> None:
        queues = tuple(f"/locks/{each}" for each in names)
        room.do(Enter(queues, prefix="lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b""))

    for name in ("0", "a", "b"):
        enter("s1", name)
    enter("s2", "0")
    enter("s2", "a", "b")
    room.do(CloseSession("s1"))
    assert room.machine.locks.has_ungranted

    enter("s3", "a")

    locks = room.machine.locks
    assert all(locks.holders(f"/locks/{each}") for each in ("0", "a", "b"))
    assert not locks.has_ungranted


def test_a_log_of_before_is_granted_at_once() -> None:
    """Until a command sets the limit there is none."""
    room = Room(MachineLimits())
    writer = room.enter(Kind.EXCLUSIVE).contenders[0]
    for _ in range(1_200):
        room.machine.apply(
            Command(
                Enter((QUEUE,), prefix="read-", kind=Kind.SHARED, session_id="s2", data=b""), 1
            ),
            room.machine.applied_index + 1,
            1,
        )
    released = Command(Revoke(writer.path, czxid=writer.stat.czxid, by="ann", reason="stuck"), 1)

    outcome = room.machine.apply(released, room.machine.applied_index + 1, 1)

    assert len(outcome.granted) == 1_200


@pytest.mark.histories
def test_drawn_histories_end_with_nobody_forgotten() -> None:
    """Pieces and snapshots between: after each command all that may hold do, or will."""
    met = Met()
    for seed in range(amount.drawn(60)):
        chance = random.Random(seed)
        machine = StateMachine(ROOMY)
        for index, drawn in enumerate(lock_history(random.Random(seed), ROOMY, 80), 1):
            machine.apply(decode_command(encode_command(drawn)), index, 1)
            if chance.randrange(4) == 0:
                again = copy_of(machine)
                assert again.digest() == machine.digest()
                machine = again
            if machine.locks.has_ungranted and chance.randrange(2):
                met["pieces"] += bool(machine.apply(Command(FinishGrants(), 1), index, 1).granted)
            for directory in machine.locks.directories():
                met["to be granted later"] += check_next(machine, directory)
        while machine.locks.has_ungranted:
            piece(machine)
        assert not any(check_next(machine, each) for each in machine.locks.directories())

    met.check(**amount.least(pieces=12, to_be_granted_later=18))


@pytest.mark.histories
def test_pieces_come_to_what_one_command_would_have_granted() -> None:
    """In the order of each queue; each piece grants, or is done with a queue: so it ends."""
    met = Met()
    for seed in range(amount.drawn(120)):
        machine = StateMachine(ROOMY)
        for index, drawn in enumerate(lock_history(random.Random(seed), ROOMY, 80), 1):
            outcome = machine.apply(drawn, index, 1)
            if not outcome.granted or not machine.locks.has_ungranted:
                continue
            in_pieces, at_once = copy_of(machine), copy_of(machine)
            pieces = []
            while in_pieces.locks.has_ungranted:
                pieces.append(piece(in_pieces))
            do(at_once, SetLimits((("grants_per_command_max", 1_000),)))
            every = do(at_once, FinishGrants()).granted

            assert not at_once.locks.has_ungranted
            found = [path for each in pieces for path in each]
            assert by_queue(found) == by_queue(every)
            assert not any(check_next(in_pieces, each) for each in in_pieces.locks.directories())
            met["compared"] += 1
            met["in several pieces"] += sum(map(bool, pieces)) > 1
            met["several"] += any(_group(at_once, path) for path in every)
            met["nothing was left"] += not every

    met.check(**amount.least(compared=75, in_several_pieces=28, several=1))


def copy_of(machine: StateMachine) -> StateMachine:
    copied = StateMachine(ROOMY)
    copied.restore(machine.snapshot())
    return copied


def do(machine: StateMachine, operation: Operation) -> Outcome:
    return machine.apply(Command(operation, 0), machine.applied_index + 1, 1)


def by_queue(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(path.rpartition("/")[0], []).append(path)
    return found


def piece(machine: StateMachine) -> tuple[str, ...]:
    """Grant one piece more: as much as the limit says, a multi-lock at its end as a whole."""
    left = len(machine._locks.ungranted)
    granted = do(machine, FinishGrants()).granted
    assert granted or len(machine._locks.ungranted) < left
    last = set(_group(machine, granted[-1])) if granted else set()
    assert len(set(granted[:-1]) - last) < machine.limits.grants_per_command_max
    return granted


def _group(machine: StateMachine, path: str) -> tuple[str, ...]:
    contender = machine.locks.record(path)
    assert contender is not None
    return contender.group


def test_multi_locks_beyond_what_one_command_may_delete_are_refused() -> None:
    """Their places elsewhere go along, so they count; one multi-lock always goes as a whole."""
    room = Room(MachineLimits(recursive_delete_max=20))
    for number in range(3):
        names = (QUEUE, *[f"/locks/q-{number}-{each}" for each in range(9)])
        room.do(Enter(names, prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""))
    first, second, third = [each.path for each in room.machine.locks.contenders(QUEUE)]

    refused = room.do(Delete(QUEUE, is_recursive=True)).refusal
    assert refused is not None
    assert refused.fields["limit"] == "recursive_delete_max"
    assert room.do(Multi((Delete(first), Delete(second), Delete(third)))).refusal is not None
    assert room.do(Multi((Delete(first), Delete(second)))).refusal is None
    assert room.do(Delete(QUEUE, is_recursive=True)).refusal is None


@pytest.mark.parametrize("leaves", ["at once", "one by one"])
def test_who_leaves_before_its_turn_leaves_nothing_to_go_on_with(leaves: str) -> None:
    """Queues in which one alone was still to be granted are forgotten with it."""
    room = Room()
    names = [f"/locks/{letter}" for letter in "abcde"]
    for session_id in ("s1", "s2"):
        for name in names:
            room.do(
                Enter((name,), prefix="lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b"")
            )
    assert len(room.do(CloseSession("s1")).granted) == 3
    assert room.machine.locks.has_ungranted
    waiting = [room.machine.locks.contenders(name)[0] for name in names]

    if leaves == "at once":
        room.do(CloseSession("s2"))
    else:
        for each in waiting:
            room.do(Revoke(each.path, czxid=each.czxid, by="ops", reason="stuck"))

    assert not room.machine.locks.has_ungranted
    assert room.go_on() == (0, 0)
