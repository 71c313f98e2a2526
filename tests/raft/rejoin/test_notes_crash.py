"""What is left of the notes of rejoining after a power cut at any moment, byte by byte.

The files ``owner``, ``unproven``, ``proof`` and ``chapters`` of one member, through the lives of a
member that is new, proven, accused and proven again. In each state that a cut may leave, the next
life must know what the lives before said to others, or must not vote.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coordinator.raft.network.messages import (
    INCARNATION_ID_BYTES,
    Incarnation,
    IncarnationSeen,
)
from coordinator.raft.rejoin import incarnation_record, refounding
from coordinator.raft.rejoin.incarnations import INCARNATION_MS, Incarnations
from coordinator.raft.rejoin.recovering import Proof, Recovering
from coordinator.raft.rejoin.refounding import HeldData, Position
from coordinator.raft.storage import ownership
from coordinator.raft.storage.ownership import Owner
from tests.raft.simulated_cluster import ListReplica
from tests.raft.storage.every_crash import Files, cut_at_each_step, disk_of, left_by
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk

IDS = ("1", "2", "3")
CLUSTER_ID = b"\x07" * 16
NO_PROOF = Proof(0, 0)
EMPTY: Files = {"data": {}, "data/log": {}}


@dataclass(frozen=True)
class Said:
    """What a life has said, or relied on, and what a later one must therefore know."""

    number: int = 0
    incarnation_id: bytes = b""
    """The last incarnation that it showed."""
    seen: dict[str, int] = field(default_factory=dict)
    """Whose incarnation it said to have noted."""
    cluster_id: bytes = b""
    is_history_known: bool = False
    must_recover: bool = False
    """It has lost something, or never was proven: it must not vote."""
    may_be_proven: bool = False
    """It was being proven, and that may be stable by now."""
    may_recover: bool = False
    """It was about to note that it has lost something."""
    proof: Proof = NO_PROOF


class Life:
    """A member from its start until the power goes."""

    def __init__(self, disk: SimulatedDisk, said: Said) -> None:
        self.disk = disk
        self.said = said
        self.now_ms = 0
        record = incarnation_record.load(disk, "data")
        draw = random.Random(f"{record.number} {said}")
        self.owned = ownership.take(
            disk, "data", Owner("coordinator", "1"), IDS, draw=lambda: draw.getrandbits(32)
        )
        is_new = not disk.exists("data/log/begun")
        self.recovering = Recovering(disk, "data", "1", member_count=3, is_new=is_new)
        if is_new:
            disk.create("data/log/begun").sync()
            disk.sync_directory("data/log")
        self.incarnations = Incarnations(
            disk, "data", ("2", "3"), random=draw, now_ms=lambda: self.now_ms,
            resend_ms=50,
send=self._send, run_blocking=_at_once, recovering=self.recovering,
            ownership=self.owned, on_met=lambda _: None, on_older_copy=self.recovering.begin,
            on_cluster_id=lambda _: None, on_failure=_raised,
        )  # fmt: skip

    def _send(self, member_id: str, message: Any) -> bool:
        if isinstance(message, Incarnation):
            last = message.ids[-INCARNATION_ID_BYTES:]
            self.said = replace(self.said, number=message.number, incarnation_id=last)
        if isinstance(message, IncarnationSeen):
            self.said = replace(self.said, seen={**self.said.seen, member_id: message.number})
        return True

    def check(self) -> None:
        """This life knows what the lives before have said."""
        said, recovering = self.said, self.recovering
        record = self.incarnations._record
        assert record.number >= said.number
        if said.number:
            assert said.incarnation_id in record.ids, "it would be taken for an older copy"
        for member_id, number in said.seen.items():
            assert record.met[member_id].number >= number, "it counted on that one"
        assert self.owned.cluster_id in (b"", CLUSTER_ID)
        assert self.owned.cluster_id == said.cluster_id or not said.cluster_id
        assert recovering.proof >= said.proof, "an older life is taken for the later one"
        if said.must_recover:
            is_fine = said.may_be_proven and recovering.proof > said.proof
            assert not recovering.is_proven or is_fine, "it may have forgotten a vote"
        elif not said.may_recover:
            assert recovering.is_proven, "it lost its vote for nothing"
        if said.is_history_known:
            assert not recovering.is_new, "a second history may begin"


async def _at_once(work: Callable[[], Any]) -> Any:
    return work()


def _raised(error: BaseException) -> None:
    assert isinstance(error, SimulatedCrashError), error


def shown_by(number: int) -> Incarnation:
    last, first = [bytes([each]) * INCARNATION_ID_BYTES for each in (number, 1)]
    return Incarnation(
        number, last, life_id=first, is_proven=True, is_asking=False, proof_term=1, proof_index=1,
        cluster_id=CLUSTER_ID, seal=b"s" * 16,
    )  # fmt: skip


# Each step of a life; before it, what it may come to is noted.


async def meet(life: Life) -> None:
    """The two others are met, each again in a later incarnation."""
    for member_id in ("2", "3"):
        life.incarnations.on_connected(member_id)
        number = life.said.seen.get(member_id, 0) + 1
        life.incarnations.on_message(member_id, shown_by(number))
        await until_noted(life)


async def a_minute_passes(life: Life) -> None:
    """Something was written: another incarnation begins, and is shown."""
    life.incarnations.on_connected("2")
    life.now_ms += INCARNATION_MS
    life.incarnations.tick("a position in the log", None)
    await until_noted(life)


async def until_noted(life: Life) -> None:
    while life.incarnations._saving is not None:
        await asyncio.wait({life.incarnations._saving})
    if life.disk.crash_at_step and life.disk.step_count >= life.disk.crash_at_step:
        raise SimulatedCrashError("in the thread that notes it")


async def learn_id(life: Life) -> None:
    life.owned.learn(CLUSTER_ID)
    life.said = replace(life.said, cluster_id=CLUSTER_ID)


async def hear_of_history(life: Life) -> None:
    life.recovering.note_history()
    life.said = replace(life.said, is_history_known=True)


async def be_proven(life: Life) -> None:
    proof = Proof(life.said.proof.term + 1, life.said.proof.commit_index + 10)
    life.said = replace(life.said, may_be_proven=True)
    life.recovering.note_caught_up(proof)
    life.recovering.maybe_end(proof.commit_index, 0)
    assert life.recovering.is_proven
    life.said = replace(life.said, must_recover=False, may_recover=False, proof=proof)


async def be_accused(life: Life) -> None:
    """By one that has met a later life; from the return on it has given up its vote."""
    life.said = replace(life.said, may_recover=True)
    life.recovering.begin("a test")
    life.said = replace(life.said, must_recover=True, may_be_proven=False)


async def be_accused_without_room(life: Life) -> None:
    life.disk.fill(0)
    await be_accused(life)
    life.disk.capacity_bytes = None


Step = Callable[[Life], Any]
NEW = Said(must_recover=True)
HISTORY: tuple[Step, ...] = (
    meet, learn_id, hear_of_history, be_proven, a_minute_passes, meet, be_accused, meet, be_proven,
    be_accused_without_room, a_minute_passes, be_proven,
)  # fmt: skip


def began_with(runner: asyncio.Runner, steps: tuple[Step, ...]) -> tuple[Files, Said]:
    """Return the files after these steps, each in a life of its own, and what was said."""
    files, said = EMPTY, NEW
    for step in steps:
        disk = disk_of(files)
        said = runner.run(lived(disk, said, step))
        for path in disk.directories:
            disk.sync_directory(path)
        files = next(left_by(disk))
    return files, said


async def lived(disk: SimulatedDisk, said: Said, step: Step) -> Said:
    """A life that starts, takes one step, and ends; return what was said until then."""
    life = Life(disk, said)
    life.check()
    await step(life)
    return life.said


def says_until_the_cut(
    runner: asyncio.Runner, files: Files, said: Said, step: Step
) -> list[tuple[Files, Said]]:
    """Cut the power at each moment of a life; return what is left, and what was said by then."""
    by_then: list[Said] = []

    def run(disk: SimulatedDisk) -> None:
        async def live() -> None:
            by_then[:] = [replace(said, may_be_proven=said.may_be_proven or step is be_proven)]
            life = Life(disk, said)
            try:
                await step(life)
            finally:
                by_then[:] = [life.said]

        runner.run(live())

    return list(cut_at_each_step(run, files, lambda: by_then[0]))


async def nothing(_life: Life) -> None:
    """Only start."""


@pytest.mark.parametrize("count", range(len(HISTORY)))
def test_the_next_life_knows_what_was_said_or_does_not_vote(count: int) -> None:
    """Whenever the power goes, also again while the next life starts."""
    with asyncio.Runner() as runner:
        files, said = began_with(runner, HISTORY[:count])
        after = says_until_the_cut(runner, files, said, HISTORY[count])
        assert len(after) > 5
        for left, by_then in after:
            runner.run(lived(disk_of(left), by_then, nothing))
        for left, by_then in after:
            for again, then in says_until_the_cut(runner, left, by_then, nothing):
                runner.run(lived(disk_of(again), then, nothing))


def test_data_to_begin_again_with_are_whole_or_are_not_there() -> None:
    """The note that says who did it is the last: where it is, there is all the rest."""
    replica = ListReplica()
    replica.apply(7, 3, b"one")
    at, owner = Position(7, 3), Owner("coordinator", "1", cluster_id=CLUSTER_ID, member_ids=IDS)
    seen = {"whole": 0, "not there": 0}

    def run(disk: SimulatedDisk) -> None:
        refounding.write(disk, "data", owner, at, replica.snapshot(), {"by": "a test"})

    for files, _ in cut_at_each_step(run, {}, lambda: None):
        disk = disk_of(files)
        if not refounding.read_note(disk, "data"):
            seen["not there"] += 1
            continue
        seen["whole"] += 1
        held, again = HeldData(disk, "data"), ListReplica()
        assert (held.owner, held.has_vote, held.replay(again)) == (owner, False, at)
        assert again.commands == replica.commands
        assert Recovering(disk, "data", "1", member_count=3, is_new=True).is_founding
    assert seen["whole"]
    assert seen["not there"] > 10
