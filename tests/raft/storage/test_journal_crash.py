"""What is left of the log after the power goes, or the process dies, at any moment.

Rows 1, 10 and 14 of the engine's list of defects: synced entries are never lost, a suffix that was
cut never comes back over what replaced it, compaction may die at every step.
"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.journal import Journal, SyncToken
from coordinator.raft.storage.reserve import Reservation
from tests.amount import drawn
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk

Entry = tuple[bytes, int, int]


class Rig:
    """A journal on a simulated disk beside the states it may come back to.

    ``has_reserve``: zeros are written behind its records, as an engine does it, and the log goes on
    between their steps. A sync may have stored only what was written when it began."""

    def __init__(self, seed: int, *, has_reserve: bool = False) -> None:
        self.has_reserve = has_reserve
        self.steps = STEPS + RESERVING * has_reserve
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed, is_orderly=bool(seed % 3))
        self.disk.is_spoiling = bool(seed % 2)
        sizes = [200, 9_000, 30_000, 1_000_000]
        self.segment_bytes = self.random.choice([70_000, 300_000] if has_reserve else sizes)
        self.needed_index = 0
        self.term: tuple[int, str | None] = (0, None)
        self.terms_possible: set[tuple[int, str | None]] = {self.term}
        self.token: SyncToken | None = None
        self.reservation: Reservation | None = None
        self.token_position = 0
        self.open()
        self.history: list[list[Entry]] = [[]]
        self.stable_position = self.written_position = 0

    def open(self) -> None:
        salt = self.random.getrandbits(32)
        self.journal = Journal(
            "data", self.disk, segment_bytes=self.segment_bytes, draw_salt=lambda: salt
        )
        if self.has_reserve:
            # So many that some are behind the end of most files, and must go for the next one.
            self.journal._reserve._reserve_bytes = self.random.choice([20_000, 66_000])
            self.journal._reserve._segment_bytes += 66_000

    @property
    def now(self) -> list[Entry]:
        return self.history[-1]

    def payload(self) -> bytes:
        length = self.random.choice([0, 1, 7, 40, 511, 513, 1500, self.random.randint(0, 3000)])
        if self.random.random() < 0.3:
            return bytes(length)
        return self.random.randbytes(length)

    def add(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            last = self.now[-1][1] if self.now else self.needed_index
            entry = (self.payload(), last + 1, self.term[0])
            self.journal.add(*entry)
            self.history.append([*self.now, entry])

    def cut(self) -> None:
        if len(self.journal) < 2:
            return
        position = self.random.randint(1, len(self.journal) - 1)
        index = self.journal[position][1]
        self.journal.deleteEntriesFrom(position)
        self.history.append([entry for entry in self.now if entry[1] < index])

    def compact(self) -> None:
        if len(self.journal) < 2:
            return
        position = self.random.randint(1, len(self.journal) - 1)
        self.needed_index = self.journal[position][1]
        self.journal.deleteEntriesTo(position)

    def install(self) -> None:
        last = self.now[-1][1] if self.now else self.needed_index
        start = self.random.randint(self.needed_index + 1, max(last, self.needed_index) + 50)
        self.journal.clear()
        self.history.append([])
        for index in (start, start + 1):
            self.journal.add(b"installed", index, self.term[0])
            self.history.append([*self.now, (b"installed", index, self.term[0])])

    def vote(self) -> None:
        chosen = (self.term[0] + 1, self.random.choice([None, "1", "2"]))
        self.terms_possible.add(chosen)
        self.journal.setCurrentTerm(*chosen)
        self.term = chosen

    def sync(self) -> None:
        if self.token is None:
            self.journal.sync()
            self.note_written()
            if self.journal.is_term_stable:
                self.terms_possible = {self.term}
            if self.journal._size_bytes == self.journal._synced_bytes:
                self.stable_position = self.written_position

    def begin_sync(self) -> None:
        if self.token is None:
            self.token = self.journal.begin_sync()
            self.note_written()
            self.token_position = self.written_position
            if self.token is not None and self.has_reserve and self.random.random() < 0.5:
                self.token()

    def note_written(self) -> None:
        if not self.journal._pending:
            self.written_position = len(self.history) - 1

    def end_sync(self) -> None:
        if self.token is not None:
            token, self.token = self.token, None
            if not token.is_done:
                token()
            if token.term is None:
                self.stable_position = max(self.stable_position, self.token_position)
            elif not token.is_full:
                self.terms_possible = {(token.term.term, token.term.voted_for), self.term}
            self.journal.end_sync(token)

    def fill(self) -> None:
        """Somebody else takes all of the disk but a little."""
        self.disk.capacity_bytes = 0
        self.disk.capacity_bytes = -self.disk.room_bytes() + self.random.choice([0, 90, 2000])

    def make_room(self) -> None:
        self.disk.capacity_bytes = None

    def begin_reserving(self) -> None:
        if self.reservation is None and self.token is None:  # as an engine does: behind a sync
            self.journal._reserve._due_at_bytes = 0
            self.reservation = self.journal.begin_reserving()

    def end_reserving(self) -> None:
        if self.reservation is not None:
            if self.random.random() < 0.2:
                skip = self.random.randint(0, 4)
                self.disk.fail("write", error=errno.ENOSPC, skip=skip, path_part=".log")
            self.disk.before_step = self.maybe_go_on
            self.reservation()
            self.disk.before_step = None
            self.disk.faults.clear()
            self.journal.end_reserving()
            self.reservation = None

    def maybe_go_on(self) -> None:
        if self.random.random() < 0.4:
            getattr(self, self.random.choice(BESIDE_ZEROS))()
            self.check_durable_index()

    def check_durable_index(self) -> None:
        """What it says is stable is in every state that a crash may leave."""
        index = self.journal.durable_index
        promised = [entry for entry in self.now if self.needed_index <= entry[1] <= index]
        for state in self.history[self.stable_position :]:
            assert (
                promised
                == [e for e in state if self.needed_index <= e[1] <= index][: len(promised)]
            )

    def end_life(self) -> None:
        if self.random.random() < 0.7:
            self.disk.crash()
        else:
            self.disk.kill()

    def die_in_a_start(self) -> None:
        self.disk.crash_at_step = self.disk.step_count + self.random.randint(1, 14)
        with suppress(SimulatedCrashError):
            self.open()
        self.end_life()

    def crash(self) -> None:
        self.end_life()
        self.token = self.reservation = self.disk.before_step = None
        self.disk.faults.clear()
        self.make_room()
        for _ in range(self.random.choice([0, 0, 1, 2, 3])):
            self.die_in_a_start()
        self.open()
        found = self.journal[:]
        candidates = self.history[self.stable_position :]
        assert any(self.is_what_is_left(found, state) for state in candidates), (
            f"found {[e[1:] for e in found]}, stable state was {[e[1:] for e in candidates[0]]}"
        )
        vote = self.journal.getVotedForNodeId()
        assert (self.journal.getCurrentTerm(), vote) in self.terms_possible
        self.term = (self.journal.getCurrentTerm(), vote)
        self.terms_possible = {self.term}
        assert self.journal.durable_index == self.journal.last_index
        self.history = [found]
        self.stable_position = self.written_position = 0
        if self.journal.last_index < self.needed_index:
            self.install()  # as the engine does when its snapshot is beyond the log

    def is_what_is_left(self, found: list[Entry], state: list[Entry]) -> bool:
        """The state, without entries that compaction had made unnecessary, at its front."""
        missing = state[: len(state) - len(found)]
        return state[len(missing) :] == found and all(e[1] < self.needed_index for e in missing)


STEPS: tuple[str, ...] = ("add",) * 8 + ("cut", "cut", "compact", "install", "vote") + ("sync",) * 3
STEPS += ("begin_sync", "end_sync", "end_sync", "write", "second", "fill", "make_room", "make_room")


RESERVING = ("begin_reserving",) * 4 + ("end_reserving",) * 4
BESIDE_ZEROS = ("add",) * 3 + ("sync", "begin_sync", "begin_sync", "end_sync", "cut", "fill")


def run(seed: int, steps: int, *, has_reserve: bool = False) -> int:
    rig = Rig(seed, has_reserve=has_reserve)
    crashes = 0
    for _ in range(steps):
        step = rig.random.choice(rig.steps)
        if rig.random.random() < 0.1:
            rig.disk.crash_at_step = rig.disk.step_count + rig.random.randint(1, 8)
        try:
            if step == "write":
                rig.journal.write()
                rig.note_written()
            elif step == "second":
                rig.journal.onOneSecondTimer()
            else:
                getattr(rig, step)()
            rig.check_durable_index()
            is_down = rig.random.random() < 0.03
        except SimulatedCrashError:
            is_down = True
        if is_down:
            rig.crash()
            crashes += 1
    return crashes


UNNEEDED_GONE = 1485
"""A start removes a segment, and the term file that says it may is not stable under its name."""


@pytest.mark.histories
@pytest.mark.parametrize("seed", [*range(drawn(60)), UNNEEDED_GONE])
def test_a_crash_leaves_a_state_not_before_the_last_sync(seed: int) -> None:
    """Random operations, the power going off and the disk filling up at random steps: nothing
    synced is ever lost, cut entries stay cut, term and vote are those last stored, and the log
    always opens again."""
    assert run(seed, 300) > 0


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(5000, 5000 + drawn(60)))
def test_a_crash_leaves_the_same_with_zeros_behind_the_log(seed: int) -> None:
    """The same where zeros are written ahead, or find no room, at random steps."""
    assert run(seed, 300, has_reserve=True) > 0


@pytest.mark.slow
@pytest.mark.parametrize("has_reserve", [False, True])
def test_a_crash_leaves_a_state_not_before_the_last_sync_many_times(has_reserve: bool) -> None:
    """The same for two thousand seeds."""
    for seed in range(1000, 3000):
        try:
            run(seed, 300, has_reserve=has_reserve)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def test_the_same_seed_gives_the_same_disk() -> None:
    """A found seed can be replayed: the simulated disk draws nothing from elsewhere."""

    def trace(seed: int) -> dict[str, bytes]:
        rig = Rig(seed)
        for _ in range(20):
            rig.add()
            rig.sync()
        rig.add()
        rig.journal.write()
        rig.disk.crash()
        directory = rig.disk.directories["data"]
        return {name: bytes(inode.data) for name, inode in directory.names.items()}

    assert trace(7) == trace(7)
    assert trace(7) != trace(8)


@pytest.mark.histories
def test_compaction_may_die_at_every_step() -> None:
    """Row 10: whatever compaction was doing, every synced entry that it keeps is there after."""

    def prepare() -> tuple[SimulatedDisk, Journal]:
        disk = SimulatedDisk(1)
        journal = Journal("data", disk, segment_bytes=500)
        for index in range(1, 41):
            journal.add(b"x" * 50, index, 0)
            journal.sync()
        return disk, journal

    disk, journal = prepare()
    before = disk.step_count
    journal.deleteEntriesTo(29)
    journal.sync()
    steps = disk.step_count - before
    assert steps > 5

    for step in range(1, steps + 2):
        for seed in range(drawn(8)):
            disk, journal = prepare()
            disk.random.seed(seed)
            disk.crash_at_step = disk.step_count + step
            try:
                journal.deleteEntriesTo(29)
                journal.sync()
            except SimulatedCrashError:
                pass
            disk.crash()

            again = Journal("data", disk, segment_bytes=500)

            assert again[-1][1] == 40
            assert again[0][1] <= 30
            assert [e[1] for e in again[:]] == list(range(again[0][1], 41))


def test_stock_loses_its_tail_when_compaction_dies(tmp_path: Path) -> None:
    """Row 10: the library's journal is cleared in place and filled again."""
    from pysyncobj.journal import FileJournal

    class Dying(FileJournal):  # type: ignore[misc]
        adds_left = 1000

        def add(self, command: bytes, idx: int, term: int) -> None:
            if self.adds_left == 0:
                raise SimulatedCrashError
            self.adds_left -= 1
            super().add(command, idx, term)

    journal = Dying(str(tmp_path / "journal"))
    for index in range(1, 41):
        journal.add(b"x", index, 0)
    journal.adds_left = 3
    with pytest.raises(SimulatedCrashError):
        journal.deleteEntriesTo(29)

    assert FileJournal(str(tmp_path / "journal"))[-1][1] == 32


WRITER = """
import sys
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.journal import Journal

journal = Journal(sys.argv[1], OsDisk(), segment_bytes=20_000)
index = journal.last_index
while True:
    for _ in range(1 + index % 5):
        index += 1
        journal.add(index.to_bytes(8, "big") * (index % 200), index, 0)
    journal.sync()
    if len(journal) > 500:
        journal.deleteEntriesTo(300)
    print(journal.durable_index, flush=True)
"""


def test_kill_minus_nine_loses_nothing_synced(tmp_path: Path) -> None:
    """A process killed while it appends and compacts: what it said was synced is there."""
    directory = str(tmp_path / "raft")
    generator = random.Random(5)
    total = 0
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, directory],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        ) as process:
            assert process.stdout is not None
            said = 0
            for _ in range(generator.randint(1, 120)):
                said = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            said = max([said, *(int(line) for line in process.stdout if line.endswith("\n"))])

        journal = Journal(directory, OsDisk(), segment_bytes=20_000)

        assert journal.last_index >= said > total
        entries = journal[:]
        for command, index, _ in entries:
            assert command == index.to_bytes(8, "big") * (index % 200)
        assert [e[1] for e in entries] == list(range(entries[0][1], entries[-1][1] + 1))
        total = journal.last_index
        journal._destroy()
