"""No answer of another member takes longer to read than the loop may be held: 20 ms.

One row or more for each kind of request, by what its answer is at its largest, and by what is no
answer but as long as a frame may be. Reading one is a step of the loop of whoever asked; what
follows from it is small.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator

import pytest

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.sessions import LostGrant, SessionLease
from coordinator.raft.network import rpc
from coordinator.raft.network.messages import REPLY_ERROR, Reply
from coordinator.service.comparing.digest_messages import decode_digests
from coordinator.service.sessions import heartbeats, lease_remaining
from coordinator.service.writes import proposals
from coordinator.state.outcome_codec import encode_outcome
from coordinator.state.outcomes import Created, MultiDone, Outcome, ReadDone, Stat
from coordinator.state.packing import check_in_pieces, pack
from tests.loop_meter import HELD_MS_MAX, fixed_work_speed
from tests.members.stage import RAFT

FRAME = RAFT.frame_bytes_max - 4_096
NOTHING = b"[" + b"[]," * (FRAME // 3 - 2) + b"1]"
NAMED = b'{"%s":' + NOTHING[: FRAME - 100] + b"}"
PACKED_NOTHING = b"\xdd" + FRAME.to_bytes(4, "big") + b"\x90" * FRAME
STAT = Stat(
    czxid=2**40,
    mzxid=2**40,
    pzxid=2**40,
    ctime_ms=2**40,
    mtime_ms=2**40,
    version=1,
    cversion=1,
    aversion=1,
    ephemeral_owner="s" * 16,
    data_length=200,
    num_children=0,
    mode="who",
    ttl_ms=None,
)
OUTCOME = b"\x00" + bytes(8)

Row = tuple[Callable[[bytes], object], bytes]


def _multi(results: list[Created] | list[ReadDone]) -> bytes:
    return OUTCOME + encode_outcome(
        Outcome(
            zxid=2**40,
            result=MultiDone(tuple(results)),
            refusal=None,
            events=(),
            is_repeat=False,
            granted=(),
        )
    )


def _told(sessions: int, lost: int, holds: int) -> bytes:
    taken = tuple(
        LostGrant(
            path=f"/locks/lost-{n:05}/lock-0000000000",
            fencing_token=2**40,
            how="forced",
            by="b" * 100,
            reason="r" * 100,
        )
        for n in range(lost)
    )
    held = {f"/locks/of-one-{n:05}/lock-0000000000": 3_600_000 for n in range(holds)}
    acks = {
        f"s{n:015}": SessionLease(f"s{n:015}", timeout_ms=30_000, holds=held, lost=taken)
        for n in range(sessions)
    }
    return heartbeats._encode_reply(acks, FRAME)


def _error(message: str) -> bytes:
    return rpc._pack_error(BadArgumentsError(message))


def _read_error(payload: bytes) -> object:
    return rpc._unpack_error(
        Reply(request_id=1, status=REPLY_ERROR, code="BadArguments", payload=payload)
    )


ROWS: dict[str, dict[str, Callable[[], Row]]] = {
    "heartbeat": {
        "of a round": lambda: (heartbeats._decode_reply, _told(1_000, 0, 0)),
        "of losers": lambda: (heartbeats._decode_reply, _told(100, 100, 0)),
        "of one with all holds": lambda: (heartbeats._decode_reply, _told(1, 0, 20_000)),
        "of nothing": lambda: (heartbeats._decode_reply, NAMED % b"timeouts"),
    },
    "propose": {
        "of a multi": lambda: (
            proposals._decode_reply,
            _multi([Created(f"/wide/m-{n}", STAT) for n in range(1_000)]),
        ),
        "of reads": lambda: (
            proposals._decode_reply,
            _multi([ReadDone(f"/wide/m-{n}", data=b"x" * 3_000, stat=STAT) for n in range(1_000)]),
        ),
        "of nothing": lambda: (proposals._decode_reply, OUTCOME + PACKED_NOTHING),
        "a problem of nothing": lambda: (proposals._decode_reply, b"\x01" + NAMED % b"code"),
    },
    "remaining_times": {
        "of all": lambda: (
            lease_remaining._decoded,
            json.dumps(
                {
                    "leases": {f"s{n:015}": 30_000 for n in range(100)},
                    "bounds": {f"/locks/{'x' * 1_000}-{n}": 30_000 for n in range(100)},
                }
            ).encode(),
        ),
        "of nothing": lambda: (lease_remaining._decoded, NAMED % b"leases"),
    },
    "digest": {
        "long": lambda: (decode_digests, pack((b"d" * FRAME,))),
        "of nothing": lambda: (decode_digests, PACKED_NOTHING),
    },
    "error": {
        "the longest": lambda: (_read_error, _error("m" * FRAME)),
        "of nothing": lambda: (_read_error, PACKED_NOTHING),
    },
}
CASES = [(kind, name) for kind, rows in ROWS.items() for name in rows]


@pytest.fixture(autouse=True)
def _uncollected() -> Iterator[None]:
    """How long a collection takes is no matter of an answer."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}-{name}" for kind, name in CASES])
def test_no_answer_takes_long_to_read(kind: str, name: str) -> None:
    """By the processor's clock, the least of some repetitions."""
    read, payload = ROWS[kind][name]()
    least_ms = float("inf")

    for _ in range(6):
        started = time.thread_time()
        try:
            read(payload)
        except CoordinatorError:
            assert "nothing" in name, "an honest answer is read"
        took_ms = (time.thread_time() - started) * 1_000
        least_ms = min(least_ms, took_ms / fixed_work_speed())

    assert least_ms <= HELD_MS_MAX


NESTED = {
    "nothing": b"\xc0",
    "no text": b"\xa0",
    "numbers": b"\xcd\xff\xff",
    "texts": b"\xa3xyz",
    "rows": b"\x91\x01",
}


@pytest.mark.parametrize("inside", NESTED)
def test_rows_within_rows_are_read_in_pieces(inside: str) -> None:
    """What cannot be counted before a row is complete is looked at piece by piece."""
    value = NESTED[inside]
    row = b"\xdc\x13\x88" + value * 4_999
    payload = row * (FRAME // len(row))
    least_ms = float("inf")

    for _ in range(6):
        pieces, longest = check_in_pieces(payload), 0.0
        is_over = False
        while not is_over:
            started = time.thread_time()
            try:
                next(pieces)
            except (ValueError, StopIteration):
                is_over = True
                del pieces
            longest = max(longest, (time.thread_time() - started) * 1_000)
        least_ms = min(least_ms, longest / fixed_work_speed())

    assert least_ms <= HELD_MS_MAX
