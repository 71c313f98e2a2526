"""Wall clocks that are stepped by less than a second, or by some: the audit log does not notice.

A clock that is hours off is noticed by everybody. One that is set back by a second, or differs a
little from that of the former leader, is daily business. So random lives of a log, with restarts,
torn ends and rotation, are told under such clocks: each change has one line, in the order of the
log. And each life is told twice, under a steady clock and under one that is stepped: nothing is
counted, folded, left out, kept, deleted or tried again otherwise.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.audit.chain import read_line
from coordinator.audit.event import AuditEvent, Source
from coordinator.audit.log import LEFT_OUT, AuditLog
from coordinator.audit.targets import FileTarget, rotated
from coordinator.clock import ManualClock
from tests.audit.audited import change, log_of, refusal, verdict
from tests.audit.test_log import until

STEPS_MS = (-2_000, -1_000, -300, -1, 1, 300, 1_000, 2_000)
"""By how much a clock is stepped: more and less than a second, in which a file is synced."""
APART_MS = (0, -1_500, 700)
"""By how much the clock of the member that leads then differs."""
FILE_BYTES = 3_000
"""Five lines: nearly every life begins another file."""


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of all files of a log but those that are torn, the oldest first."""
    found = [line for file in [*rotated(path), path] for line in file.read_bytes().split(b"\n")]
    return [json.loads(line) for line in found if read_line(line) is not None]


class Story:
    """The lives of one member's audit log, and what its cluster has committed."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.clock = ManualClock()
        self.committed: list[AuditEvent] = []
        self.former: list[AuditEvent] = []
        """Of the cluster before it began again."""
        self._draw = random.Random(seed)
        self._cluster = 1

    def life(self) -> None:
        """Start, apply the end of the Raft log again, and then what is new."""
        target = FileTarget(self.path, bytes_max=FILE_BYTES, files_max=1_000)
        log = log_of(self.path, self.clock, target)
        replayed = self.replayed()
        log.start()
        for event in replayed:
            log.note(event)
        apart_ms = self._draw.choice(APART_MS)
        for _ in range(self._draw.randrange(1, 9)):
            log.note(self.change(apart_ms))
            self.clock.step_wall(self._draw.choice(STEPS_MS))
            self.clock.advance(self._draw.choice((0, 10, 400)))
        log.stop()
        assert log.figures()["audit_left_out_total"] == 0

    def change(self, apart_ms: int) -> AuditEvent:
        """Commit one more: in the entry of the last one or in another, with a zxid or without."""
        last = self.committed[-1] if self.committed else change(0, index=0)
        more = self._draw.choice((0, 1, 1, 3)) if self.committed else 1
        made = change(
            (last.zxid or 0) + self._draw.choice((0, 1)),
            index=(last.index or 0) + more,
            time_ms=self.clock.wall_ms() + apart_ms,
            cluster_id=self.cluster_id,
            request=f"c/{len(self.committed)}",
        )
        self.committed.append(made)
        return made

    @property
    def cluster_id(self) -> str:
        return f"{self._cluster:032x}"

    def replayed(self) -> list[AuditEvent]:
        """Return the end of the Raft log, from a snapshot on: whole entries, and at least all that
        have no line any more."""
        if not self.committed:
            return []
        written = [each for each in whole_lines(self.path) if each["source"] == "applied"]
        count = sum(each["cluster_id"] == self.cluster_id for each in written)
        first = self._draw.randrange(count + 1)
        indexes = [each.index for each in self.committed]
        while 0 < first < len(indexes) and indexes[first] == indexes[first - 1]:
            first -= 1
        return self.committed[first:]

    def lose_power(self) -> None:
        """Lose the end of the file: some lines, or a part of one."""
        data = self.path.read_bytes()
        self.path.write_bytes(data[: max(0, len(data) - self._draw.randrange(1_500))])

    def begin_again(self) -> None:
        """Begin the cluster again without any data: it counts from 1, and its id is another."""
        self.former += self.committed
        self.committed = []
        self._cluster += 1

    def check(self) -> None:
        """Each change has one line, in the order of the log; the chain is whole."""
        found = verdict(self.path)
        assert (found.broken, found.begins_at) == ("", 1)
        shown = [
            (each["cluster_id"], each["index"], each["zxid"], each["request"])
            for each in whole_lines(self.path)
            if each["source"] == "applied"
        ]
        assert shown == [
            (each.cluster_id, each.index, each.zxid, each.request)
            for each in self.former + self.committed
        ]


@pytest.mark.parametrize("seed", range(12))
def test_each_change_has_one_line_under_any_clocks(tmp_path: Path, seed: int) -> None:
    """Through restarts and losses of power; also where a change is older than the one before it,
    by the clocks of their leaders."""
    story = Story(tmp_path / "audit.jsonl", seed)
    for _ in range(8):
        story.life()
        if story._draw.random() < 0.4:
            story.lose_power()
    story.life()

    story.check()
    assert len(rotated(story.path)) > 2, "it was about rotation, too"


@pytest.mark.parametrize("seed", range(12))
def test_a_cluster_that_begins_again_has_its_lines_under_any_clocks(
    tmp_path: Path, seed: int
) -> None:
    """Its first changes have lower numbers than those before, and may be older by their clocks."""
    story = Story(tmp_path / "audit.jsonl", seed)
    for _ in range(4):
        story.life()
        story.life()
        story.clock.step_wall(-2_000)
        story.begin_again()
    story.life()

    story.check()


# --- the same life under a steady clock and under one that is stepped


class Noting(FileTarget):
    """A file that fails on demand, and says which lines it was given."""

    def __init__(self, path: Path, **settings: int) -> None:
        super().__init__(path, **settings)
        self.is_failing = False
        self.seen: list[bytes] = []

    def write(self, line: bytes) -> None:
        if self.is_failing:
            raise OSError(28, "No space left on device")
        super().write(line)
        self.seen.append(line)


class Life:
    """One life of a log, step by step: each is written, or has failed, before the next."""

    def __init__(self, path: Path, step_ms: int, **settings: int) -> None:
        self.clock = ManualClock()
        self.target = Noting(path, bytes_max=FILE_BYTES, files_max=3)
        self.path = path
        self.log: AuditLog = log_of(path, self.clock, self.target, **settings)
        self._step_ms = step_ms
        self._count = 0
        self.log.start()

    def note(self, event: AuditEvent) -> None:
        """Note an event of now, step the wall clock, and wait until the event is dealt with."""
        self.log.note(replace(event, time_ms=self.clock.wall_ms()))
        self.clock.step_wall(self._step_ms)
        self._count += 1
        mark, failed = f"mark {self._count}", self.log.figures()["audit_write_failures_total"]
        self.log.note(AuditEvent(event=mark, source=Source.MEMBER, time_ms=self.clock.wall_ms()))
        until(
            lambda: (
                any(mark.encode() in line for line in self.target.seen[-2:])
                or self.log.figures()["audit_write_failures_total"] > failed
            )
        )

    def told(self) -> tuple[object, ...]:
        """Return all that came of it but times, and the numbers of lines."""
        self.log.stop()
        found = [each for each in whole_lines(self.path) if each["event"] != LEFT_OUT]
        assert verdict(self.path).broken == ""
        shown = ("event", "address", "identity", "zxid", "index", "outcome", "resource", "detail")
        return (
            [[each[name] for name in shown] for each in found],
            sum(each["left_out"] for each in whole_lines(self.path)),
            self.log.figures()["audit_left_out_total"],
            len(rotated(self.path)),
        )


def changes(life: Life) -> None:
    """Changes alone: files are begun, and deleted."""
    for zxid in range(1, 40):
        life.note(change(zxid))
        life.clock.advance(100)


def refusals_in_two_minutes(life: Life) -> None:
    """Of two callers, more than have lines; what is folded has its line after a minute."""
    for number in range(70):
        life.note(refusal(number % 2))
        life.clock.advance(1_750)


def refusals_beyond_their_rate(life: Life) -> None:
    """Of many callers at once, then as time passes: so many as are earned."""
    for number in range(40):
        life.note(refusal(number))
        life.clock.advance(130 if number > 20 else 0)


def a_disk_that_fails(life: Life) -> None:
    """It is tried again after a second, not before and not later."""
    for number in range(1, 30):
        life.target.is_failing = 8 <= number < 11
        life.note(change(number))
        life.clock.advance(450)


STORIES: dict[str, Callable[[Life], None]] = {
    each.__name__: each
    for each in (
        changes, refusals_in_two_minutes, refusals_beyond_their_rate, a_disk_that_fails,
    )
}  # fmt: skip


@pytest.mark.parametrize("step_ms", [-1_000, -300, 300])
@pytest.mark.parametrize("story", STORIES)
def test_a_stepped_clock_changes_nothing_but_times(
    tmp_path: Path, story: str, step_ms: int
) -> None:
    """What has a line, a count, a file of its own, and what is tried again when."""
    told = []
    for name, by_ms in (("steady", 0), ("stepped", step_ms)):
        life = Life(tmp_path / name / "audit.jsonl", by_ms, refusals_per_second_max=5)
        STORIES[story](life)
        told.append(life.told())

    steady, stepped = told
    assert str(stepped).replace("/stepped/", "/steady/") == str(steady)
