"""No request of another member holds the loop for more than 20 ms.

One row for each kind of request that a member has a handler for, asked of it at its largest and
shape by shape; a kind without a row fails. Answers have a table of their own
(``test_answer_loop_time``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count

import msgspec
import pytest

from coordinator.raft.read_index import READ_INDEX
from coordinator.service.base.active_clients import REQUEST_KIND as ASKING
from coordinator.service.base.turns import ASKING_SHOWN_MAX
from coordinator.service.comparing.digest_messages import FORMAT
from coordinator.service.comparing.divergence import DIGEST_KIND, VERDICT_KIND
from coordinator.service.reporting.examination import ECHO_KIND as ECHO
from coordinator.service.reporting.examination import REQUEST_KIND as EXAMINE
from coordinator.service.reporting.log_levels import REQUEST_KIND as LOG_LEVEL
from coordinator.service.reporting.members import HANDOVER_KIND
from coordinator.service.reporting.members import REQUEST_KIND as FACTS
from coordinator.service.sessions.heartbeats import _SESSIONS_PER_ROUND_MAX
from coordinator.service.sessions.heartbeats import REQUEST_KIND as HEARTBEAT
from coordinator.service.sessions.lease_remaining import REQUEST_KIND as PROMISES
from coordinator.service.writes.proposals import REQUEST_KIND as PROPOSE
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create, Multi, SetData
from coordinator.state.packing import pack
from tests.loop_meter import HELD_MS_MAX
from tests.members.crowd import HOLDERS, LOSERS, SESSIONS, fill
from tests.members.stage import RAFT, Stage, staged, uncollected

pytestmark = pytest.mark.check

LARGEST = RAFT.frame_bytes_max - 64 * 1024 - 100
DEADLINE = (5_000).to_bytes(8, "big")
_NUMBERS = count()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage"), member_count=3) as running:
        fill(running)
        with uncollected():
            yield running


Row = Callable[[Stage], bytes]
"""Prepares the member; returns the payload."""


def _ids(first: int, how_many: int) -> list[str]:
    return [f"s{number}" for number in range(first, first + how_many)]


def _leading(payload: bytes) -> Row:
    def prepared(stage: Stage) -> bytes:
        stage.lead()
        stage.until(lambda: not stage.member._hold_timers.is_starting)
        return payload

    return prepared


def _proposed(make: Callable[[], Command]) -> Row:
    def prepared(stage: Stage) -> bytes:
        stage.lead()
        return DEADLINE + encode_command(make())

    return prepared


def _multi() -> Command:
    number = next(_NUMBERS)
    return Command(
        Multi(tuple([Create(f"/wide/m{number}-{n}", b"x" * 200) for n in range(1000)])), 1
    )


def _digest(cursor: tuple[int, int, str, int]) -> Row:
    def prepared(stage: Stage) -> bytes:
        stage.follow()
        return pack((FORMAT, stage.core.term, (stage.last[0], cursor), 8))

    return prepared


def _verdict(stage: Stage) -> bytes:
    stage.follow()
    digests = tuple((str(number), b"d" * 64) for number in range(1, 10))
    return pack(((stage.last[0], (0, 0, "", 0)), digests))


ASKED: dict[str, dict[str, Row]] = {
    HEARTBEAT: {
        "of a round": _leading(
            json.dumps(_ids(SESSIONS - 2_000, _SESSIONS_PER_ROUND_MAX)).encode()
        ),
        "of holders": _leading(json.dumps(_ids(HOLDERS // 2, _SESSIONS_PER_ROUND_MAX)).encode()),
        "of losers": _leading(json.dumps(_ids(1, LOSERS)).encode()),
        "of one with all holds": _leading(json.dumps(["s0"]).encode()),
        "of too many": _leading(json.dumps(_ids(0, SESSIONS)).encode()),
        "of nothing": _leading(b"[" + b"[]," * 1_300_000 + b"1]"),
    },
    PROPOSE: {
        "the largest": _proposed(lambda: Command(SetData("/wide", b"x" * LARGEST), 1)),
        "many operations": _proposed(_multi),
        "of nothing": _leading(DEADLINE + b"\xdd\x00\x3f\x00\x00" + b"\x90" * 0x3F0000),
        "of rows of nothing": _leading(
            DEADLINE + b"\x96" + (b"\xdc\x13\x88" + b"\x90" * 5_000) * 800
        ),
        "of rows of numbers": _leading(
            DEADLINE + b"\x96" + (b"\xdc\x13\x88" + (b"\xcf" + b"\xff" * 8) * 5_000) * 90
        ),
        "of rows in rows of numbers": _leading(
            DEADLINE + b"\x91" * 400 + (b"\xdc\x13\x88" + b"\xcc\xff" * 4_999) * 400
        ),
    },
    PROMISES: {
        "of all": _leading(
            json.dumps(
                {
                    "sessions": _ids(1, 100),
                    "paths": [f"/locks/of-{n:05}/lock-0000000000" for n in range(1, 101)],
                }
            ).encode()
        ),
        "of nothing": _leading(b'{"sessions": [' + b"[]," * 1_300_000 + b"1]}"),
    },
    DIGEST_KIND: {
        "first": _digest((0, 0, "", 0)),
        "of nothing": _leading(b"\xdd\x00\x3f\x00\x00" + b"\x90" * 0x3F0000),
    },
    VERDICT_KIND: {
        "of nine": _verdict,
        "of nothing": _leading(b"\xdd\x00\x3f\x00\x00" + b"\x90" * 0x3F0000),
    },
    HANDOVER_KIND: {"alone": _leading(b""), "of nothing": _leading(b"\x90" * 1_000_000)},
    FACTS: {"alone": _leading(b""), "of nothing": _leading(b"\x90" * 1_000_000)},
    READ_INDEX: {"alone": _leading(b"")},
    EXAMINE: {"alone": _leading(b""), "of nothing": _leading(b"\x90" * 1_000_000)},
    ECHO: {"alone": _leading(b""), "of nothing": _leading(b"\x90" * 1_000_000)},
    LOG_LEVEL: {"a level": _leading(b"warning"), "of nothing": _leading(b"\x90" * 1_000_000)},
    ASKING: {
        "of all": _leading(msgspec.msgpack.encode([("c" * 64, True)] * ASKING_SHOWN_MAX)),
        "the longest": _leading(msgspec.msgpack.encode([("", True)] * 80_000)),
        "too long": _leading(msgspec.msgpack.encode([("", True)] * 1_000_000)),
    },
}


def test_every_kind_of_request_has_a_row(stage: Stage) -> None:
    """A new one says how large it gets."""
    assert set(ASKED) == set(stage.engine._desk._handlers)


CASES = [(kind, name) for kind, rows in ASKED.items() for name in rows]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}-{name}" for kind, name in CASES])
def test_no_request_holds_the_loop(stage: Stage, kind: str, name: str) -> None:
    """The least of some repetitions: 20 ms."""

    def act(_repetition: int) -> None:
        payload = ASKED[kind][name](stage)
        stage.begin()
        stage.ask(kind, payload)

    held_ms = stage.measured(act)

    assert held_ms <= HELD_MS_MAX, f"{kind} ({name}) holds the loop for {held_ms:.1f} ms"
