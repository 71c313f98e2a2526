"""Snapshots: cheap to capture, whole or refused, the same bytes from the same history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.state import snapshot
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    OpenSession,
    Operation,
    Release,
    RequestId,
    SetData,
)
from coordinator.state.machine import StateMachine


def small_machine() -> StateMachine:
    """Return a machine that has something in every table."""
    machine = StateMachine()
    steps: list[tuple[Operation, RequestId | None]] = [
        (OpenSession("s1", 5000, "worker"), RequestId("c1", 1)),
        (OpenSession("s2", 5000), None),
        (
            Create("/locks/a/l-", b"me", CreateMode.EPHEMERAL_SEQUENTIAL, "s1", None,
                   CreateMode.CONTAINER),
            RequestId("s1", 1),
        ),
        (Create("/locks/a/l-", b"", CreateMode.EPHEMERAL_SEQUENTIAL, "s2"), RequestId("c2", 1)),
        (Release("/locks/a/l-0000000001", 4), RequestId("c2", 2)),
        (Create("/t", b"", CreateMode.TTL, None, 500), None),
        (SetData("/none", b""), RequestId("c1", 2)),
    ]  # fmt: skip
    for index, (operation, request) in enumerate(steps, 1):
        machine.apply(Command(operation, index * 1000, request), index, 1)
    return machine


def test_restored_state_equals_the_captured_one() -> None:
    """restore(snapshot(s)) is s: digest, indexes, remembered requests and released contenders."""
    machine = small_machine()
    restored = StateMachine()

    restored.restore(machine.snapshot())

    assert restored.digest() == machine.digest()
    assert (restored.zxid, restored.applied_index) == (machine.zxid, machine.applied_index)
    assert restored.ephemerals_of("s1") == ("/locks/a/l-0000000000",)
    assert b"".join(restored.snapshot()) == b"".join(machine.snapshot())
    again = Command(Release("/locks/a/l-0000000001", 4), 0)
    assert restored.apply(again, 8, 1).refusal is None


def test_commands_applied_after_the_capture_do_not_show() -> None:
    """Pieces are encoded when they are drawn, and still tell of the moment of capture."""
    machine = small_machine()
    expected = b"".join(machine.snapshot())

    pieces = machine.snapshot()
    for number in range(3, 40):
        machine.apply(Command(Create(f"/n{number}"), 0, RequestId("c1", number)), 8 + number, 1)
        machine.apply(Command(SetData("/t", b"x"), 0, RequestId("s1", number)), 8 + number, 1)

    assert b"".join(pieces) == expected


def test_pieces_are_made_when_drawn_and_not_large() -> None:
    """A large state comes in pieces of about 64 KiB; the first is there without the rest."""
    machine = StateMachine()
    for number in range(300):
        machine.apply(Command(Create(f"/n{number}", b"x" * 1000), 0), number + 1, 1)

    pieces = machine.snapshot()

    assert isinstance(pieces, Iterator)
    sizes = [len(piece) for piece in pieces]
    assert len(sizes) >= 4
    assert max(sizes) <= snapshot.PIECE_BYTES + 2000


def test_pieces_may_be_cut_anywhere() -> None:
    """The engine stores and sends the bytes in pieces of its own size."""
    machine = small_machine()
    whole = b"".join(machine.snapshot())

    for size in (1, 7, 31, 33, len(whole)):
        restored = StateMachine()
        restored.restore(whole[at : at + size] for at in range(0, len(whole), size))

        assert restored.digest() == machine.digest()


def test_every_flipped_byte_is_found() -> None:
    """Damage anywhere is a ValueError, and the state before stays as it was."""
    whole = b"".join(small_machine().snapshot())
    machine = StateMachine()
    machine.apply(Command(Create("/kept"), 0), 1, 1)
    before = machine.digest()

    for at in range(len(whole)):
        for bit in (0x01, 0x80):
            damaged = bytearray(whole)
            damaged[at] ^= bit
            with pytest.raises(ValueError):  # noqa: PT011 # what is found first differs
                machine.restore([bytes(damaged)])

    assert machine.digest() == before


def test_every_cut_is_found() -> None:
    """A snapshot that ends early, or goes on, is a ValueError."""
    whole = b"".join(small_machine().snapshot())
    machine = StateMachine()

    for damaged in (*(whole[:length] for length in range(len(whole))), whole + b"\x00"):
        with pytest.raises(ValueError):  # noqa: PT011 # what is found first differs
            machine.restore([damaged])

    assert machine.znode_count == 1


def sealed(rows: list[object]) -> bytes:
    """Return a stream of these rows with a right digest."""
    body = b"".join(msgpack.packb(row) for row in rows)
    return body + hashlib.sha256(body).digest()


HEADER = ("coordinator-state", 2, 5, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
HEADER_1 = ("coordinator-state", 1, *HEADER[2:12])
ROOT_ROW = ("/", b"", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, None, None)
ORPHAN_ROW = ("/a/b", b"", 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, None, None)
OWNED_ROW = ("/a", b"", 1, 1, 1, 0, 0, 0, 0, 0, 0, 2, "s9", None)
PARENT_ROW = ("/", b"", 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, None, None)

WELL_SEALED = {
    "another kind": [("something else", *HEADER[1:]), ROOT_ROW],
    "another format": [("coordinator-state", 3, *HEADER[2:]), ROOT_ROW],
    "the header of another format": [("coordinator-state", 1, *HEADER[2:]), ROOT_ROW],
    "the former header": [("coordinator-state", 2, *HEADER_1[2:]), ROOT_ROW],
    "no header": [],
    "header of other types": [(*HEADER[:-1], "0"), ROOT_ROW],
    "too few rows": [HEADER],
    "too many rows": [HEADER, ROOT_ROW, ROOT_ROW],
    "no root": [HEADER, ORPHAN_ROW],
    "an orphan": [(*HEADER[:6], 2, *HEADER[7:]), ROOT_ROW, ORPHAN_ROW],
    "twice the same path": [(*HEADER[:6], 2, *HEADER[7:]), ROOT_ROW, ROOT_ROW],
    "an owner without session": [(*HEADER[:6], 2, *HEADER[7:]), PARENT_ROW, OWNED_ROW],
    "a znode of other types": [HEADER, ("/", "", *ROOT_ROW[2:])],
    "a mode that is none": [HEADER, (*ROOT_ROW[:11], 77, None, None)],
    "a row too long": [HEADER, (*ROOT_ROW, 1)],
    "not a row": [HEADER, 5],
}


@pytest.mark.parametrize("rows", WELL_SEALED.values(), ids=WELL_SEALED.keys())
def test_a_right_digest_over_a_wrong_state_is_refused(rows: list[object]) -> None:
    """What was written wrong is refused too, not only what was damaged since."""
    with pytest.raises(ValueError, match=r"."):
        StateMachine().restore([sealed(rows)])


def test_the_smallest_snapshot_is_taken() -> None:
    """The rows of the cases above are right but for what each case breaks."""
    machine = StateMachine()

    machine.restore([sealed([HEADER, ROOT_ROW])])

    assert (machine.zxid, machine.applied_index, machine.znode_count) == (4, 5, 1)


def test_an_older_snapshot_is_refused() -> None:
    """The zxid is never lowered by a restore (house law 5)."""
    machine = small_machine()
    old = list(machine.snapshot())
    machine.apply(Command(Create("/new"), 0), 8, 1)

    with pytest.raises(ValueError, match="or later"):
        machine.restore(old)

    assert machine.get("/new") is not None


def test_digest_ignores_the_order_of_creation() -> None:
    """Two histories that come to the same znodes have the same digest."""
    machine = StateMachine()
    other = StateMachine()
    machine.apply(Command(Create("/a"), 0), 1, 1)
    digest_before = machine.digest()

    refused = machine.apply(Command(SetData("/a", b"", 7), 0), 2, 1)
    other.apply(Command(Create("/a"), 0), 5, 1)

    assert refused.refusal is not None
    assert machine.digest() == digest_before == other.digest()


def test_a_prepared_restore_leaves_the_state_alone_until_it_is_done() -> None:
    """Decoding changes nothing; commands applied meanwhile are only lost if they are in it."""
    source = small_machine()
    target = StateMachine()
    before = target.digest()

    replace_state = target.prepare_restore(source.snapshot())

    assert target.digest() == before
    replace_state()
    assert target.digest() == source.digest()
    assert target.applied_index == source.applied_index
