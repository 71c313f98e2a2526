"""Entries that nobody here wrote: the member stops, and says which entry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from coordinator.errors import LeaderChangedError
from coordinator.node.config import RaftConfig
from coordinator.raft.engine import InvariantError
from coordinator.raft.entries import FOUNDING, NO_OP, REGULAR, Entries, Proposals
from tests.raft.simulated_cluster import ListReplica, SimulatedCluster
from tests.raft.simulated_loop import run


@pytest.mark.parametrize(
    "entry",
    [
        b"", b"\x7f", FOUNDING, FOUNDING + bytes(15), REGULAR,
        REGULAR + b"\xc1", REGULAR + msgpack.packb([b"a"]) + b"x",
        REGULAR + msgpack.packb(["text"]), REGULAR + msgpack.packb(5), REGULAR + b"\x92\xc4\x01a",
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_taken_apart_is_named(entry: bytes) -> None:
    """Not by a surprise of the decoder, and before any of its commands is applied (tests/fuzz)."""
    replica = ListReplica()
    entries = _entries(replica)
    entries.begin_applying()
    assert entries.apply(6, 1, NO_OP)

    with pytest.raises(InvariantError, match="entry 7"):
        entries.apply(7, 1, entry)

    assert replica.commands == []


class _SlowReplica(ListReplica):
    """A millisecond goes by with each command."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0

    def apply(self, index: int, term: int, command: bytes) -> Any:
        self.now_ms += 1
        return super().apply(index, term, command)


def test_a_pass_that_comes_late_applies_something_all_the_same() -> None:
    """On a processor that stands still in every pass nothing would ever be applied."""
    replica = _SlowReplica()
    entries = _entries(replica, lambda: replica.now_ms)
    entry = REGULAR + msgpack.packb([b"1", b"2"])
    for _ in range(2):
        entries.begin_applying()
        replica.now_ms += 1_000
        is_done = entries.apply(2, 1, entry)

    assert is_done
    assert replica.commands == [b"1", b"2"]


def test_a_pass_ends_within_an_entry_and_the_next_one_goes_on_there() -> None:
    """Each command is applied once, in order, whatever the number that share an entry."""
    replica = _SlowReplica()
    entries = _entries(replica, lambda: replica.now_ms)
    commands = [b"%d" % number for number in range(12)]
    entry = REGULAR + msgpack.packb(commands)
    passes = 0

    is_done = False
    while not is_done:
        entries.begin_applying()
        is_done = entries.apply(7, 1, entry)
        passes += 1
        assert entries.is_between_entries == is_done, "no snapshot is made of a part"

    assert replica.commands == commands
    assert passes == 3, "five milliseconds in each pass"


def test_a_pass_of_cheap_commands_is_bounded_by_their_number() -> None:
    """Also where no time goes by, as in a simulation."""
    replica = ListReplica()
    entries = _entries(replica)
    entry = REGULAR + msgpack.packb([b"x"] * 1_200)
    counts = []

    for _ in range(3):
        entries.begin_applying()
        entries.apply(7, 1, entry)
        counts.append(len(replica.commands))

    assert counts == [500, 1_000, 1_200]


async def test_who_waits_for_the_rest_of_an_entry_is_told_when_the_member_ends() -> None:
    """Nobody knows what will have become of it."""
    replica = ListReplica()
    proposals = Proposals(RaftConfig(), command_bytes_max=1_000)
    entries = _entries(replica, proposals=proposals)
    waiters = [proposals.add(b"x") for _ in range(600)]
    proposals.begin_pass()
    group = proposals.take_group()
    assert group is not None
    proposals.on_logged(7, 0)
    entries.begin_applying()
    assert not entries.apply(7, 1, REGULAR + group)

    entries.fail(LeaderChangedError("it ends"))
    await asyncio.wait(waiters)  # they are woken some at a time

    assert [each.exception() is None for each in waiters] == [True] * 500 + [False] * 100


def test_a_pass_logs_a_bounded_number_of_groups() -> None:
    """The rest waits in its order for the next pass."""

    async def act() -> None:
        proposals = Proposals(RaftConfig(append_batch_bytes=1_000), command_bytes_max=1_000)
        for _ in range(10):
            proposals.add(b"x" * 900)
        taken = []
        for _ in range(3):
            proposals.begin_pass()
            count = 0
            while proposals.take_group() is not None:
                proposals.on_logged(len(taken) * 10 + count, 0)
                count += 1
            taken.append((count, proposals.is_cut_off))

        assert taken == [(4, True), (4, True), (2, False)]

    asyncio.run(act())


def _entries(
    replica: ListReplica,
    now_ms: Callable[[], int] = lambda: 0,
    proposals: Proposals | None = None,
) -> Entries:
    proposals = proposals or Proposals(RaftConfig(), command_bytes_max=1_000)
    entries = Entries(proposals, now_ms, lambda _: None)
    nothing: Any = None
    entries.open(replica, nothing, nothing, on_applied=lambda _: None, refusal=nothing)
    return entries


def test_a_member_that_stops_first_ends_the_entry_that_it_has_begun() -> None:
    """Its commands are committed: who waits for them hears what they came to."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(1, seed=3, proposals_in_flight_max=5_000).start()
        leader = await cluster.leader()
        proposed = [
            asyncio.ensure_future(leader.engine.propose(b"%d" % number)) for number in range(2_400)
        ]
        for _ in range(100):
            await asyncio.sleep(0)
            if leader.engine._entries.waiting:
                break
        assert leader.engine._entries.waiting

        await leader.engine.stop()

        found = await asyncio.gather(*proposed, return_exceptions=True)
        assert not [each for each in found if isinstance(each, Exception)]

    run(scenario())
