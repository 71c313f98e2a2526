"""No piece of a backup holds the loop for more than 20 ms, however large the member's data are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator.model.access import NOBODY
from coordinator.service.member import Member
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create
from tests.loop_meter import HELD_MS_MAX
from tests.members.stage import Stage, entry_of, staged, uncollected

pytestmark = pytest.mark.check

LARGE = bytes(range(256)) * 2_000
SMALL_ENTRIES = 30_000


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A member with a snapshot of 50 MB, and 30,000 entries of the log behind it."""
    with staged(tmp_path_factory.mktemp("stage"), member_count=3) as running:
        running.follow()
        running.have_applied([Create("/large"), Create("/small")])
        for number in range(100):
            running.have_applied([Create(f"/large/{number}", data=LARGE)])
        snapshots = running.engine._passes.snapshots  # type: ignore[union-attr]
        snapshots.due._entries_max = 1
        running.have_applied([Create("/last")])
        running.until(lambda: snapshots.made_total == 1)
        snapshots.due._entries_max = 1_000_000_000
        for first in range(0, SMALL_ENTRIES, 500):
            made = [Create(f"/small/{number}") for number in range(first, first + 500)]
            running.append([entry_of([encode_command(Command(each, 1))]) for each in made])
            running.settle()
        running.lead()
        with uncollected():
            yield running


async def read_whole(member: Member) -> int:
    """Read a backup as a client does; return its length."""
    deadline_ms = member.timers.clock.monotonic_ms() + 60_000
    piece = await member.backups.begin(NOBODY, deadline_ms)
    while not piece.is_last:
        piece = await member.backups.read(piece.backup_id, piece.next_offset, NOBODY)
    member.backups.close()
    return piece.size_bytes


def test_no_step_of_a_backup_holds_the_loop(stage: Stage) -> None:
    """From the first byte to the last, of a leader that has made a snapshot and not the next."""
    lengths: list[int] = []

    held_ms = stage.measured(lambda _: lengths.append(stage.loop.run(read_whole(stage.member))))

    assert lengths[-1] > 90 * len(LARGE) + 40 * SMALL_ENTRIES
    assert held_ms <= HELD_MS_MAX, f"a backup holds the loop for {held_ms:.1f} ms"
