"""The codec of the stream against its table of bytes, its page, and every way to cut it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.errors import BadArgumentsError
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FrameReader, FrameWriter

HERE = Path(__file__).parent
PAGE = (HERE.parents[2] / "docs" / "stream.md").read_text(encoding="utf-8")
ROW = re.compile(r"(client|server) ([0-9a-f ]*?) *([=~!?]) *(.*)")


def rows() -> list[tuple[str, bytes, str, str]]:
    found = []
    for line in (HERE / "frames.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            row = ROW.fullmatch(line)
            assert row is not None, f"not a row: {line}"
            sender, text, sign, rest = row.groups()
            found.append((sender, bytes.fromhex(text), sign, rest))
    return found


def reader(sender: str) -> FrameReader[Any]:
    return frames.from_client() if sender == "client" else frames.from_server(65_536)


def as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, list) else value


def array(frame: Any) -> Any:
    return msgpack.unpackb(frames.encoded(frame)[4:])


@pytest.mark.parametrize(
    ("sender", "raw", "sign", "rest"), rows(), ids=[f"{row[0]}-{row[1].hex()}" for row in rows()]
)
def test_the_table(sender: str, raw: bytes, sign: str, rest: str) -> None:
    """Each row of the table is read, and written, as it says."""
    reading = reader(sender)
    reading.feed(raw)

    if sign == "!":
        with pytest.raises(BadArgumentsError, match=r"^stream: expected .*, found"):
            reading.take()
        with pytest.raises(BadArgumentsError):  # and for ever
            reading.take()
        return
    found = reading.take()
    if sign == "?":
        assert found == []
        assert reading.has_rest is bool(raw)
        return
    assert [as_json(array(each)) for each in found] == [json.loads(rest)]
    assert not reading.has_rest
    if sign == "=":
        assert frames.encoded(found[0]) == raw


def test_every_kind_is_in_the_table() -> None:
    """No frame is left without its bytes."""
    kinds = {json.loads(rest)[0] for _, _, sign, rest in rows() if sign == "="}

    assert kinds == {1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16, 17, 18}


def conversation() -> Iterator[tuple[str, bytes, str]]:
    """Yield sender, bytes and array of each frame that the page shows."""
    block = re.search(r"```stream\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    for part in re.split(r"^(?=client|server)", block[1], flags=re.MULTILINE)[1:]:
        sender, rest = part.split(" ", 1)
        text, opening, array_text = rest.partition("[")
        yield sender, bytes.fromhex("".join(text.split())), opening + " ".join(array_text.split())


def shown(value: Any) -> Any:
    """Return ``value`` as the page shows it: bodies decoded, binary as text."""
    if isinstance(value, bytes):
        return shown(msgpack.unpackb(value))
    if isinstance(value, dict):
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in value.items()}
    return value


def test_the_conversation_of_the_page() -> None:
    """docs/stream.md shows each frame as the bytes that it is."""
    (sender, preface, _), *rest = conversation()

    assert (sender, preface) == ("client", frames.PREFACE)
    assert len(rest) > 10
    for sender, raw, array_text in rest:
        reading = reader(sender)
        reading.feed(raw)
        (frame,) = reading.take()
        assert [shown(each) for each in array(frame)] == json.loads(array_text)
        assert frames.encoded(frame) == raw


def test_the_preface_is_told_apart_by_its_first_byte() -> None:
    """A method of HTTP or a record of TLS is no stream; a part of the preface is not known yet."""
    for cut in range(len(frames.PREFACE)):
        assert frames.begins_stream(frames.PREFACE[:cut]) is None
    assert frames.begins_stream(frames.PREFACE + b"\0\0") is True
    assert frames.begins_stream(b"G") is False
    assert frames.begins_stream(b"\x16\x03\x01") is False
    assert frames.begins_stream(b"\0coordinator/2\r\n") is False
    assert frames.PREFACE.hex(" ") in PAGE


def told(sender: str) -> bytes:
    return b"".join(raw for who, raw, sign, _ in rows() if who == sender and sign in "=~")


@pytest.mark.parametrize("sender", ["client", "server"])
def test_frames_do_not_depend_on_where_the_bytes_were_cut(sender: str) -> None:
    """Byte by byte, in two at every place, and at random: the same frames in the same order."""
    stream, random_source = told(sender), random.Random(7)
    whole = reader(sender)
    whole.feed(stream)
    expected = whole.take()
    assert len(expected) > 10
    size = len(stream)
    cuts: list[list[int]] = [list(range(1, size)), *([each] for each in range(1, size))]
    cuts += [sorted(random_source.sample(range(1, size), 9)) for _ in range(50)]

    for cut in cuts:
        reading, found = reader(sender), []
        for start, end in zip([0, *cut], [*cut, size], strict=True):
            reading.feed(stream[start:end])
            while taken := reading.take(random_source.randint(1, 5)):
                found += taken
        assert found == expected
        assert not reading.has_rest


def test_what_was_whole_before_a_mistake_is_read() -> None:
    """A mistake ends the connection after the frames before it."""
    reading = frames.from_client()
    reading.feed(frames.encoded(frames.Cancel(3)) + bytes.fromhex("00000003 92 63 09"))

    assert reading.take() == [frames.Cancel(3)]
    with pytest.raises(BadArgumentsError, match="found: Invalid value 99"):
        reading.take()


def test_bytes_that_come_behind_a_long_mistake_are_taken() -> None:
    """Nothing of it holds the buffer, though the mistake is kept to be raised again."""
    reading = frames.from_client(1 << 20)
    bad = (20_000).to_bytes(4, "big") + bytes.fromhex("92 63") + bytes(19_998)
    for part in (bad[:9_000], bad[9_000:15_000], bad[15_000:]):
        reading.feed(part)
    for _ in range(2):
        with pytest.raises(BadArgumentsError):
            reading.take()
        reading.feed(b"more")


def test_a_long_frame_in_many_pieces() -> None:
    """A frame near its limit arrives in pieces, beside short ones; one byte more is refused."""
    body = bytes(range(256)) * 1000
    request = frames.RequestFrame(1, method="PUT", target="/v1/tree/a", headers={}, body=body)
    raw = frames.encoded(request)
    stream = frames.encoded(frames.PingFrame(1)) + raw + frames.encoded(frames.PingFrame(2))
    reading = frames.from_client(len(raw) - 4)

    found: list[Any] = []
    for at in range(0, len(stream), 1000):
        reading.feed(stream[at : at + 1000])
        found += reading.take()

    assert found == [frames.PingFrame(1), request, frames.PingFrame(2)]
    reading = frames.from_client(len(raw) - 5)
    reading.feed(raw[:4])
    with pytest.raises(BadArgumentsError, match=f"at most {len(raw) - 5} bytes, found"):
        reading.take()


@pytest.mark.parametrize(
    ("most", "beyond"),
    [
        (
            frames.RequestFrame(
                1,
                method="G" * 16,
                target="/",
                headers={str(each): "" for each in range(32)},
                body=None,
            ),
            frames.RequestFrame(
                1,
                method="G" * 16,
                target="/",
                headers={str(each): "" for each in range(33)},
                body=None,
            ),
        ),
        (
            frames.RequestFrame(1, method="GET", target="/" * 8192, headers={}, body=None),
            frames.RequestFrame(1, method="GET", target="/" * 8193, headers={}, body=None),
        ),
        (frames.Cancel(2**63 - 1), frames.Cancel(2**63)),
    ],
    ids=["headers", "target", "id"],
)
def test_the_bounds_of_a_frame(most: Any, beyond: Any) -> None:
    """The last that is allowed is read, the first beyond it is a mistake."""
    reading = frames.from_client(1 << 20)
    reading.feed(frames.encoded(most) + frames.encoded(beyond))

    assert reading.take() == [most]
    with pytest.raises(BadArgumentsError):
        reading.take()


def test_depth_is_bounded() -> None:
    """A problem of a thousand levels is a mistake, and no end of the process."""
    payload = b"\x92\x11" + b"\x81\xa1a" * 100_000 + b"\xc0"
    reading = frames.from_server(1 << 20)
    reading.feed(len(payload).to_bytes(4, "big") + payload)

    with pytest.raises(BadArgumentsError):
        reading.take()


def test_a_writer_collects_the_frames_of_a_pass() -> None:
    """What was added leaves as one piece of bytes, once."""
    writer = FrameWriter()
    writer.add(frames.PingFrame(1))
    writer.add(frames.Cancel(2))

    assert len(writer) == 14
    assert writer.take() == frames.encoded(frames.PingFrame(1)) + frames.encoded(frames.Cancel(2))
    assert writer.take() == b""


def test_random_bytes_raise_nothing_else() -> None:
    """Whatever arrives is frames, too little, or a mistake."""
    source = random.Random(11)
    good, mistakes = told("client"), 0
    for _ in range(2000):
        stream = bytearray(good)
        for _ in range(source.randint(1, 4)):
            stream[source.randrange(len(stream))] = source.randrange(256)
        reading = frames.from_client()
        reading.feed(bytes(stream))
        try:
            while reading.take():
                pass
        except BadArgumentsError:
            mistakes += 1

    assert 500 < mistakes < 2000


def test_a_frame_that_cannot_be_written_leaves_nothing_behind() -> None:
    writer = frames.FrameWriter()
    writer.add(frames.PingFrame(1))
    with pytest.raises(UnicodeEncodeError):
        writer.add(frames.RequestFrame(1, method="GET", target="/\ud800", headers={}, body=None))
    writer.add(frames.PingFrame(2))

    assert writer.take() == frames.encoded(frames.PingFrame(1)) + frames.encoded(
        frames.PingFrame(2)
    )
