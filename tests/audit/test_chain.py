"""The chain: whatever is done to a line that was written is found, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.audit.chain import LINE_BYTES_MAX, Chain, ChainHead
from tests.audit.audited import change, lines, verdict, write

LINES = 6


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "audit.jsonl"
    write(path, *[change(zxid) for zxid in range(1, LINES + 1)])
    return path


def rewritten(path: Path, change_lines: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change_lines(path.read_bytes().splitlines(keepends=True))))


def test_what_was_written_is_whole(written: Path) -> None:
    """Each line names the one before; the first has none."""
    found = verdict(written)

    assert (found.broken, found.lines, found.begins_at) == ("", LINES, 1)
    assert found.head.number == LINES
    assert lines(written)[0]["previous"] == "0" * 64
    assert verdict(written, found.head).broken == ""
    assert verdict(written, ChainHead()).broken == ""


TAMPERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "a name changed": (
        lambda lines: [each.replace(b"ann", b"bob") if n == 2 else each
                       for n, each in enumerate(lines)],
        4,
    ),
    "a line removed": (lambda lines: lines[:2] + lines[3:], 3),
    "the first removed": (lambda lines: [lines[1].replace(b'r":2', b'r":1'), *lines[2:]], 1),
    "a line added": (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4),
    "two lines exchanged": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], 3),
    "an end in the middle": (lambda lines: [*lines[:2], lines[2][:50] + b"\n", *lines[3:]], 3),
    "an empty line": (lambda lines: [*lines[:2], b"\n", *lines[2:]], 3),
    "other JSON": (lambda lines: [*lines[:2], b'{"number":3}\n', *lines[3:]], 3),
    "a space": (lambda lines: [*lines[:2], lines[2].replace(b",", b", ", 1), *lines[3:]], 4),
}  # fmt: skip


@pytest.mark.parametrize("name", TAMPERED)
def test_a_change_is_found_at_its_line_or_the_next(written: Path, name: str) -> None:
    """The first line that does not follow from the one before is named."""
    tamper, line = TAMPERED[name]
    rewritten(written, tamper)

    found = verdict(written)

    assert found.broken
    assert found.where is not None
    assert found.where.line == line


def test_every_changed_byte_is_found(written: Path) -> None:
    """Of any line but the last, which a head that was noted elsewhere covers."""
    whole = written.read_bytes()
    head = verdict(written).head
    for position in range(0, len(whole), 7):
        changed = bytes([whole[position] ^ 0x01])
        written.write_bytes(whole[:position] + changed + whole[position + 1 :])

        assert verdict(written, head).broken, f"byte {position}"


def test_lines_cut_off_at_the_end_need_a_head_that_was_noted(written: Path) -> None:
    """A chain alone cannot know that it was longer."""
    head = verdict(written).head
    rewritten(written, lambda lines: lines[:-2])

    assert verdict(written).broken == ""
    assert "ends before line 6" in verdict(written, head).broken


def test_a_chain_made_anew_needs_a_head_that_was_noted(written: Path) -> None:
    """Whoever may write the file can make another chain of it."""
    head = verdict(written).head
    written.unlink()
    write(written, *[change(zxid, identity="bob") for zxid in range(1, LINES + 1)])

    assert verdict(written).broken == ""
    assert "noted elsewhere" in verdict(written, head).broken


def test_a_token_that_someone_takes_for_a_path_or_a_name_is_in_no_line() -> None:
    """Only its id is; those who read the log are not those who may use it. Nor is a part of it."""
    secret = "Zm9vYmFyYmF6Zm9vYmFyYmF6Zm9vYmFyYmF6Zm9vYmE"
    token, other = f"co_abcdefgh12_{secret}", f"eyJhbGciOiJSUzI1NiJ9.{secret}.{secret}"
    long = "x" * 200 + token
    for text in (token, f"/v1/access/tokens/{token}", f"it is {other}!", long, token[:-9]):
        line = Chain("c", "1").line(
            change(1, resource=text, identity=text, request=text, detail={"reason": [text]})
        )
        assert secret[:12].encode() not in line
        assert b"co_abcdefgh12_***" in line or b"it is ***!" in line


def test_no_text_of_a_caller_makes_a_long_line_or_a_second_one() -> None:
    """Names are bounded and escaped, and so are details."""
    hostile = "x\n{\x1b]0;\u202e\x00\ud800" * 9_999
    chain = Chain("c", "1")
    line = chain.line(
        change(1, identity=hostile, resource=hostile, detail={hostile: [hostile] * 99, "n": {}})
    )

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert line.isascii()
    assert len(line) <= LINE_BYTES_MAX + 1
    assert line.decode().rstrip("\n").isprintable()
    assert json.loads(line)["detail"] == {"shortened": True}
