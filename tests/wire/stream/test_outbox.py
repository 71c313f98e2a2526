"""What one stream connection has to send, to clients that read and that do not."""

from __future__ import annotations

import asyncio

from coordinator.wire.stream import frames
from coordinator.wire.stream.outbox import ANSWERS_AT_ONCE, UNSENT_BYTES_MAX, Outbox

HIGH_WATER = 64 * 1024


class Unread(asyncio.Transport):
    """A transport of which nothing is taken until ``drain``; it pauses as asyncio's does."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox: Outbox | None = None
        self.unsent = 0
        self.writes: list[bytes] = []
        self.is_broken = False

    def is_closing(self) -> bool:
        return self.is_broken

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert self.outbox is not None
        self.unsent += len(data)
        self.writes.append(bytes(data))
        if self.unsent > HIGH_WATER and not self.outbox.is_paused:
            self.outbox.pause()

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def drain(self) -> None:
        assert self.outbox is not None
        self.unsent = 0
        self.outbox.resume()

    def abort(self) -> None:
        self.is_broken = True


def opened(running: set[int]) -> tuple[Outbox, Unread]:
    transport = Unread()
    transport.outbox = outbox = Outbox(transport, running, 60.0)
    return outbox, transport


def answer(outbox: Outbox, size: int) -> None:
    """Send one answer as a connection does."""
    outbox.allow(size)
    outbox.send(frames.AnswerFrame(1, status=200, headers={}, body=b"x" * size))


async def test_many_answers_of_one_pass_leave_in_parts_and_in_their_order() -> None:
    """The client works on the first while the rest is made; the last part waits for the pass."""
    outbox, transport = opened({1})
    count = 2 * ANSWERS_AT_ONCE + 1
    sent = [frames.AnswerFrame(k, status=200, headers={}, body=b"") for k in range(1, count + 1)]
    for position, frame in enumerate(sent, 1):
        outbox.answer(frame)
        assert len(transport.writes) == position // ANSWERS_AT_ONCE

    outbox.flush()

    reader = frames.from_server(1024)
    parts = []
    for written in transport.writes:
        reader.feed(written)
        parts.append(reader.take())
    assert [len(part) for part in parts] == [ANSWERS_AT_ONCE, ANSWERS_AT_ONCE, 1]
    assert [frame for part in parts for frame in part] == sent
    outbox.close()


async def test_what_is_sent_between_answers_leaves_between_them() -> None:
    outbox, transport = opened({1, 2})
    one = frames.AnswerFrame(1, status=200, headers={}, body=b"")
    sent = [one, frames.Line(2, b"line"), *[one] * (ANSWERS_AT_ONCE - 1), frames.End(2)]
    for frame in sent:
        outbox.answer(frame) if frame is one else outbox.send(frame)
    assert transport.writes == [b"".join(frames.encoded(each) for each in sent[:-1])]

    outbox.flush()

    assert transport.writes[1:] == [frames.encoded(sent[-1])]
    outbox.close()


async def test_a_long_answer_is_sent_though_the_one_before_drains_in_the_same_pass() -> None:
    """It waits for the end of the pass with its leave to be longer than what may wait."""
    outbox, transport = opened({1, 2})
    answer(outbox, UNSENT_BYTES_MAX + 1)
    outbox.flush()
    assert outbox.is_paused

    answer(outbox, UNSENT_BYTES_MAX + 1)
    transport.drain()
    outbox.flush()

    assert not transport.is_broken
    assert transport.unsent > UNSENT_BYTES_MAX
    outbox.close()


async def test_an_answer_that_was_let_through_cuts_no_client_off() -> None:
    """One of nearly what may wait, behind a rest of the one before."""
    outbox, transport = opened({1, 2})
    answer(outbox, 1_000_000)
    outbox.flush()
    answer(outbox, UNSENT_BYTES_MAX - 500_000)
    outbox.flush()

    assert not transport.is_broken
    outbox.close()


async def test_answers_that_nobody_takes_cut_their_client_off() -> None:
    outbox, transport = opened({1, 2})
    for _ in range(20):
        answer(outbox, 1_000_000)
        outbox.flush()

    assert transport.is_broken
    outbox.close()


async def test_a_short_answer_takes_no_leave_from_a_long_one_that_waits() -> None:
    """Its client still reads the long one."""
    outbox, transport = opened({1, 2})
    answer(outbox, UNSENT_BYTES_MAX + 4_000_000)
    outbox.flush()
    answer(outbox, 5_000)
    outbox.flush()

    assert not transport.is_broken
    outbox.close()
