"""The mask of a record: no sector of it reads as zeros, and to find the mask takes no time."""

from __future__ import annotations

import struct
import time

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.pysyncobj_engine import ENTRY_OVERHEAD_BYTES
from coordinator.raft.storage.records import RecordKind, encode
from tests.loop_meter import HELD_MS_MAX, fixed_work_speed


def run_of(value: int) -> bytes:
    return bytes((value,)) * 512


EVERY_RUN = b"".join(map(run_of, range(256)))
ALMOST_EVERY_RUN = b"".join(run_of(value)[1:] + b"\xff\x00" for value in range(1, 256))


@pytest.mark.parametrize("before", [0, 1, 63, 64, 511])
def test_no_record_holds_a_sector_of_zeros(before: int) -> None:
    """Wherever in the payload the runs are that most masks would make zeros of."""
    payload = b"z" * before + b"".join(map(run_of, (0, *range(3, 256), 1)))
    header, stored, padding = encode(RecordKind.ENTRY, 2, 0, payload, 12345)

    assert stored == bytes(each ^ 2 for each in payload)
    assert bytes(512) not in header + stored + padding


@pytest.mark.parametrize("width", ["I", "Q"])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 63])
def test_tables_of_numbers_leave_a_mask(before: int, width: str) -> None:
    """Nobody has made them to defeat all."""
    payload = b"z" * before + struct.pack(f"<65536{width}", *range(65_536)) + bytes(4_096)
    header, stored, padding = encode(RecordKind.ENTRY, 2, 0, payload, 12345)

    assert stored != payload
    assert bytes(512) not in header + stored + padding


@pytest.mark.parametrize("before", [b"\0" * 512, ALMOST_EVERY_RUN, bytes(range(256))])
def test_a_mask_is_soon_found_or_none(before: bytes) -> None:
    """In the longest command, by the processor's clock: a client may fill it with what all masks
    have to be tried for, the runs that defeat them at its end."""
    room = RaftConfig().frame_bytes_max - ENTRY_OVERHEAD_BYTES - len(EVERY_RUN)
    payload = before * (room // len(before)) + EVERY_RUN
    least = float("inf")
    for _ in range(6):
        started = time.thread_time()
        encode(RecordKind.ENTRY, 2, 0, payload, 12345)
        least = min(least, (time.thread_time() - started) * 1_000 / fixed_work_speed())

    assert least <= HELD_MS_MAX
