"""Grants cut into pieces: in the order of the queue, whatever comes between; none is forgotten."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

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
)
from coordinator.state.limits import MachineLimits
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered, GrantsFinished, Outcome
from tests.state.locks.lock_histories import lock_history
from tests.state.strategies import SMALL_LIMITS

QUEUE = "/locks/q"
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
        entry = Enter((QUEUE,), prefix, kind, session_id, b"", is_try=is_try, size=size)
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
    first = room.do(Enter(names, "lock-", Kind.EXCLUSIVE, "s1", b"")).unwrap()
    assert isinstance(first, Entered)
    for name in names:
        for _ in range(2):
            room.do(Enter((name,), "read-", Kind.SHARED, "s2", b""))

    granted = [
        len(room.do(Release(first.contenders[0].path, first.contenders[0].stat.czxid)).granted)
    ]
    while room.machine.locks.has_ungranted:
        granted.append(room.go_on()[0])

    assert granted == [3, 3, 3, 3, 3, 1]


def test_a_log_of_before_is_granted_at_once() -> None:
    """Until a command sets the limit there is none."""
    room = Room(MachineLimits())
    writer = room.enter(Kind.EXCLUSIVE).contenders[0]
    for _ in range(1_200):
        room.machine.apply(
            Command(Enter((QUEUE,), "read-", Kind.SHARED, "s2", b""), 1),
            room.machine.applied_index + 1,
            1,
        )
    released = Command(Revoke(writer.path, writer.stat.czxid, "ann", "stuck"), 1)

    outcome = room.machine.apply(released, room.machine.applied_index + 1, 1)

    assert len(outcome.granted) == 1_200


@pytest.mark.parametrize("seed", range(40))
def test_drawn_histories_end_with_nobody_forgotten(seed: int) -> None:
    """One grant by each command, pieces and snapshots between: at the end who may hold holds."""
    chance = random.Random(seed)
    limits = replace(SMALL_LIMITS, grants_per_command_max=1, znodes_max=60, children_max=30)
    machine = StateMachine(limits)
    pieces = 0
    for index, drawn in enumerate(lock_history(random.Random(seed), limits, 80), 1):
        machine.apply(decode_command(encode_command(drawn)), index, 1)
        if chance.randrange(4) == 0:
            again = StateMachine(limits)
            again.restore(machine.snapshot())
            assert again.digest() == machine.digest()
            machine = again
        if machine.locks.has_ungranted and chance.randrange(2):
            pieces += bool(machine.apply(Command(FinishGrants(), 1), index, 1).granted)
    while machine.locks.has_ungranted:
        machine.apply(Command(FinishGrants(), 1), machine.applied_index, 1)

    table = machine._locks
    for directory, queue in table.queues.items():
        assert not table._grant(machine._tree, directory, queue, [], 0), directory
    assert pieces >= 0


def test_multi_locks_beyond_what_one_command_may_delete_are_refused() -> None:
    """Their places elsewhere go along, so they count; one multi-lock always goes as a whole."""
    room = Room(MachineLimits(recursive_delete_max=20))
    for number in range(3):
        names = (QUEUE, *[f"/locks/q-{number}-{each}" for each in range(9)])
        room.do(Enter(names, "lock-", Kind.EXCLUSIVE, "s1", b""))
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
            room.do(Enter((name,), "lock-", Kind.EXCLUSIVE, session_id, b""))
    assert len(room.do(CloseSession("s1")).granted) == 3
    assert room.machine.locks.has_ungranted
    waiting = [room.machine.locks.contenders(name)[0] for name in names]

    if leaves == "at once":
        room.do(CloseSession("s2"))
    else:
        for each in waiting:
            room.do(Revoke(each.path, each.czxid, "ops", "stuck"))

    assert not room.machine.locks.has_ungranted
    assert room.go_on() == (0, 0)
