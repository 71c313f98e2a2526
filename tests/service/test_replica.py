"""The replica: a snapshot replaces the state at once, and the former one is freed between."""

from __future__ import annotations

import asyncio
import collections
import gc
from collections.abc import Iterator

import pytest

from coordinator.service.base.replica import ALL_OUTCOMES, QUEUES, Interest, MachineReplica
from coordinator.state.codec import encode_command
from coordinator.state.commands import (
    Command,
    Create,
    Enter,
    Kind,
    OpenSession,
    Operation,
    Release,
    RequestId,
    SetData,
)
from coordinator.state.large_map import MERGED_TOGETHER
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, Refusal
from coordinator.state.tree import Tree

_MANY = 300


@pytest.fixture
def no_collector() -> Iterator[None]:
    """A cycle in a frozen state is never found (``coordinator.node.garbage``)."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def full() -> MachineReplica:
    machine = StateMachine()
    for number in range(1, _MANY):
        machine.apply(Command(Create(f"/z{number}", b"x"), 1), number, 1).unwrap()
    return MachineReplica(machine)


def trees() -> int:
    """Return how many there are; compiled ones cannot be referred to weakly."""
    return sum(type(each) is Tree for each in gc.get_objects())


async def passes() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("no_collector")
async def test_nothing_of_the_former_state_is_kept() -> None:
    """Its tree goes when nothing refers to it any more, without a collection."""
    replica = full()
    before = trees()
    snapshot = list(replica.snapshot())

    replica.restore(snapshot)
    await passes()

    assert trees() == before
    assert replica.machine.znode_count == _MANY


@pytest.mark.usefixtures("no_collector")
async def test_a_snapshot_that_is_being_written_keeps_what_it_captured() -> None:
    """Another one that is installed meanwhile changes nothing of it; then it is freed."""
    replica = full()
    expected = list(full().snapshot())
    before = trees()
    written = replica.snapshot()

    replica.restore(expected)
    await passes()
    assert list(written) == expected
    await passes()

    assert trees() == before


async def test_what_changed_meanwhile_is_merged_when_a_snapshot_is_written() -> None:
    """Between other work, and nothing is left of it for the next snapshot to do in one step."""
    replica, asked = MachineReplica(StateMachine()), 3 * MERGED_TOGETHER

    def ask_all(first: int) -> None:
        for number in range(asked):
            request = RequestId(f"client{number}", first)
            create = Create(f"/z{number}-{first}")
            command = Command(create, wall_ms=1, request=request)
            replica.machine.apply(command, replica.machine.applied_index + 1, 1).unwrap()

    ask_all(1)
    written = replica.snapshot()
    ask_all(2)
    expected = replica.machine.digest()
    tables = (replica.machine._tree._znodes, replica.machine._requests._free)
    assert [len(each._beside or ()) for each in tables] == [asked + 1, asked], "with the root"

    collections.deque(written, maxlen=0)
    left = []
    while tables[0]._beside is not None:
        left.append(len(tables[0]._beside))
        await asyncio.sleep(0)

    assert left == [MERGED_TOGETHER + 1, 1], "two steps at once, then one in each pass"
    assert tables[1]._beside is None
    assert replica.machine.digest() == expected


class Listener:
    """Records the commands that it is called for."""

    def __init__(self, interest: Interest) -> None:
        self.interest = interest
        self.notified: list[type] = []

    def on_outcome(self, command: Command, _outcome: Outcome) -> None:
        self.notified.append(type(command.operation))

    def on_restore(self) -> None:
        raise AssertionError("nothing is restored here")


@pytest.mark.parametrize(
    ("interest", "notified"),
    [
        (ALL_OUTCOMES, [Create, OpenSession, SetData, Enter, Release, SetData]),
        (QUEUES, [Create, OpenSession, Enter, Release, SetData]),
        (ALL_OUTCOMES - {Refusal}, [Create, OpenSession, SetData, Enter, Release]),
        (frozenset({Enter, Refusal}), [Enter, SetData]),
        (frozenset({SetData}), [SetData]),
        (frozenset(), []),
    ],
)
def test_a_listener_is_called_for_the_operations_in_its_interest_and_for_refusals(
    interest: Interest, notified: list[type]
) -> None:
    replica, listener = MachineReplica(StateMachine()), Listener(interest)
    replica.add_listener(listener)
    done: list[Operation] = [
        Create("/a", b""),
        OpenSession("s", 10_000),
        SetData("/a", b"x"),
        Enter(
            ("/locks/a",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s", data=b"", owner=""
        ),
        Release("/locks/a/lock-0000000000", 4),
    ]
    for index, operation in enumerate(done, 1):
        replica.apply(index, 1, encode_command(Command(operation, 1))).unwrap()

    assert replica.apply(9, 1, encode_command(Command(SetData("/b", b""), 1))).refusal is not None
    assert listener.notified == notified
