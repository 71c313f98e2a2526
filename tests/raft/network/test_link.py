"""A connection between members: of many frames in one read, so many are handled in a pass."""

from __future__ import annotations

import asyncio
from typing import Any

from coordinator.raft.network.frames import frame
from coordinator.raft.network.handshake import Acceptor, Identity
from coordinator.raft.network.link import FRAMES_AT_ONCE, Link
from coordinator.raft.network.messages import NEWEST, Message, TermQuestion
from coordinator.raft.network.seals import SEAL_BYTES, Seals
from tests.raft.network.test_relay import Owner

KEY = b"k" * 32


class Line:
    """A stream that says whether it is read."""

    def __init__(self) -> None:
        self.is_read = True
        self.is_aborted = False

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def abort(self) -> None:
        self.is_aborted = True


class Heard:
    """A proved link, and what it delivered."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.line: Any = Line()
        acceptor = Acceptor(Identity("c", member_id="1", secret=b""), b"a" * 32)
        self.link = Link(Owner(), acceptor, self._note)
        self.link._stream = self.line
        self.link._received = Seals(KEY)
        self._sent = Seals(KEY)

    def _note(self, _link: Link, message: Message) -> None:
        assert isinstance(message, TermQuestion)
        self.numbers.append(message.number)

    def bring(self, numbers: range, then: bytes = b"") -> None:
        """Have one read bring so many questions."""
        framed = [
            self._sent.sealed_frame(NEWEST.encode(TermQuestion(number))) for number in numbers
        ]
        self.link.data_received(b"".join(framed) + then)


async def test_many_frames_of_one_read_take_several_passes() -> None:
    """In their order; nothing more is read before the last one is handled."""
    heard = Heard()

    heard.bring(range(2 * FRAMES_AT_ONCE + 1))
    counts = [(len(heard.numbers), heard.line.is_read)]
    for _ in range(3):
        await asyncio.sleep(0)
        counts.append((len(heard.numbers), heard.line.is_read))

    assert counts == [
        (FRAMES_AT_ONCE, False),
        (2 * FRAMES_AT_ONCE, False),
        (2 * FRAMES_AT_ONCE + 1, True),
        (2 * FRAMES_AT_ONCE + 1, True),
    ]
    assert heard.numbers == list(range(2 * FRAMES_AT_ONCE + 1))


async def test_what_comes_meanwhile_follows() -> None:
    """TLS may have decrypted more before it was told to pause."""
    heard = Heard()

    heard.bring(range(FRAMES_AT_ONCE + 1))
    heard.bring(range(FRAMES_AT_ONCE + 1, FRAMES_AT_ONCE + 3))
    assert len(heard.numbers) == FRAMES_AT_ONCE
    await asyncio.sleep(0)

    assert heard.numbers == list(range(FRAMES_AT_ONCE + 3))
    assert heard.line.is_read


async def test_a_wrong_frame_among_many_ends_the_connection() -> None:
    """What stood before it counts, nothing after it does."""
    heard = Heard()

    heard.bring(range(FRAMES_AT_ONCE + 1), then=frame(b"of no seal" + b"x" * 16))
    await asyncio.sleep(0)
    heard.bring(range(5))
    await asyncio.sleep(0)

    assert heard.line.is_aborted
    assert heard.numbers == list(range(FRAMES_AT_ONCE + 1))


async def test_nothing_is_handled_after_the_end() -> None:
    """What waits for the next pass when the connection is lost, or given up, is forgotten."""
    lost, given_up = Heard(), Heard()
    for heard in (lost, given_up):
        heard.bring(range(FRAMES_AT_ONCE + 1))

    lost.link.connection_lost(None)
    given_up.link.abort("no more of this")
    await asyncio.sleep(0)

    assert len(lost.numbers) == len(given_up.numbers) == FRAMES_AT_ONCE


async def test_a_frame_is_handled_however_the_stream_brings_it() -> None:
    """Alone in a read, as a heartbeat is, in two reads, or with the beginning of the next one."""
    two = [Seals(KEY)]
    framed = [two[0].sealed_frame(NEWEST.encode(TermQuestion(number))) for number in range(2)]
    stream = b"".join(framed)
    for first in range(len(stream) + 1):
        for second in (first, len(framed[0]), len(stream)):
            if second < first:
                continue
            heard = Heard()
            for part in (stream[:first], stream[first:second], stream[second:]):
                if part:
                    heard.link.data_received(part)
            assert heard.numbers == [0, 1], (first, second)
            assert not heard.line.is_aborted


async def test_a_wrong_frame_alone_ends_the_connection() -> None:
    """One without the right seal, one of another kind than there is, and one that is too long."""
    unknown, changed, long = Heard(), Heard(), Heard()

    unknown.link.data_received(unknown._sent.sealed_frame(b"\x91\x7f"))
    changed.link.data_received(frame(b"of no seal" + b"x" * 16))
    payload_bytes = long.link._reader.frame_bytes_max - SEAL_BYTES + 1
    long.link.data_received(long._sent.sealed_frame(b"x" * payload_bytes))

    for each in (unknown, changed, long):
        assert each.line.is_aborted
        each.bring(range(1))
        assert not each.numbers
