"""Conversations of the stream, damaged: in their bytes, or frame by frame with the right lengths.

What comes back is frames of a server, and each request is answered at most once, never with 500.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator.node.config import HttpConfig
from coordinator.wire.stream import frames
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import changed, damaged
from tests.fuzz.served import Served, on_loopback
from tests.fuzz.test_raw_requests import is_ready
from tests.fuzz.watch import WALL_SECONDS, watching
from tests.wire.chance import Chance
from tests.wire.stream.speaking import Speaker

IMPATIENT = HttpConfig(
    header_deadline_ms=250,
    body_deadline_ms=250,
    idle_deadline_ms=250,
    request_deadline_ms=400,
    request_deadline_ms_max=400,
)
CALLERS = 24
_REQUESTS_MAX = 6
_LAST_PING = 77
_DONORS: list[Any] = [(3, 1), (4, 1, 2**31 - 1), (5, 0), (1, 1, {}), b"\xc1", {"a": 1}, "é" * 99]


def conversation(chance: Chance, draw: random.Random) -> bytes:
    """Return what one client sends, usually with something wrong in it."""
    sent: list[Any] = [(1, 1, {"window_bytes": draw.choice((1, 100, 2**31 - 1))})]
    for number in range(1, draw.randrange(2, _REQUESTS_MAX)):
        method, target, headers, body = chance.request()
        named = {name.lower(): value for name, value in headers.items()}
        named.setdefault("coordinator-timeout-ms", "100")
        sent.append((2, number, method, target, named, body or None))
        if draw.random() < 0.3:
            sent.append(draw.choice([(3, number), (4, number, 10), (5, number)]))
    sent.append((5, _LAST_PING))
    for _ in range(draw.choice((0, 1, 1, 2))):
        at = draw.randrange(len(sent))
        sent[at] = changed(sent[at], draw, _DONORS)
    out = frames.PREFACE + b"".join(map(_framed, sent))
    return out if draw.random() < 0.5 else damaged(out, draw)


def _framed(frame: Any) -> bytes:
    try:
        payload = msgpack.packb(frame, use_bin_type=True, unicode_errors="surrogatepass")
    except (OverflowError, ValueError):
        payload = b"\x93\x02"  # of what has no bytes: half a frame
    return len(payload).to_bytes(4, "big") + bytes(payload)


async def exchange(served: Served, sent: bytes) -> list[frames.FromServer] | None:
    """Send ``sent``; return what came back until the last PING was answered or the end; None:
    it was no stream to the member, which answered in HTTP."""
    speaker = await Speaker.to(served.port, hello=False)
    found: list[frames.FromServer] = []
    try:
        async with asyncio.timeout(WALL_SECONDS):
            speaker.writer.write(sent)
            if not sent.startswith(frames.PREFACE):
                await speaker.reader.read(65_536)
                return None
            while (frame := await speaker.next()) is not None:
                found.append(frame)
                if frame == frames.Pong(_LAST_PING):
                    break
    except OSError:
        pass
    finally:
        speaker.break_off()
    return found


def judge(found: list[frames.FromServer], shown: str) -> bool:
    """Fail for what no client could trust; return whether something was done."""
    ends = Counter(each.id for each in found if isinstance(each, frames.AnswerFrame | frames.End))
    answers = [each for each in found if isinstance(each, frames.AnswerFrame)]
    assert all(count == 1 for count in ends.values()), f"{shown}: {found}"
    assert 500 not in [each.status for each in answers], f"{shown}: {found}"
    goaways = [at for at, each in enumerate(found) if isinstance(each, frames.GoAway)]
    assert len(goaways) <= 1, f"{shown}: {found}"
    return any(each.status < 400 for each in answers)


async def test_damaged_conversations_get_frames_or_nothing(fuzz: Fuzz) -> None:
    """Over the loopback engine: no 500, no answer twice, no traceback; the member goes on."""
    count = fuzz.count("streams")
    numbers = iter(range(count))
    with on_loopback(IMPATIENT) as served, watching(fuzz.of("streams")) as watch:

        async def call() -> None:
            for number in numbers:
                draw = random.Random(f"{fuzz.seed} streams {number}")
                sent = conversation(Chance(draw.randrange(2**32)), draw)
                shown = f"seed {fuzz.seed}, number {number}: {sent[:1_500]!r}"
                began = asyncio.get_running_loop().time()
                found = await exchange(served, sent)
                watch.took(asyncio.get_running_loop().time() - began, shown)
                watch.done.accepted += found is not None and judge(found, shown)

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(call())
        assert await asyncio.to_thread(is_ready, served)
