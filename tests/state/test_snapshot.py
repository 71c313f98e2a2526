"""Snapshots: cheap to capture, whole or refused, the same bytes from the same history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.model.limits import MachineLimits
from coordinator.state import snapshot
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Enter,
    ExpireSession,
    Kind,
    OpenSession,
    Operation,
    Release,
    RequestId,
    SetData,
)
from coordinator.state.locks.contender import Ending
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine


def small_machine() -> StateMachine:
    """Return a machine that has something in every table."""
    machine = StateMachine()
    steps: list[tuple[Operation, RequestId | None]] = [
        (OpenSession("s1", timeout_ms=5000, label="worker"), RequestId("c1", 1)),
        (OpenSession("s2", 5000), None),
        (OpenSession("s3", 5000), None),
        (
            Create(
                "/locks/a/l-",
                data=b"me",
                mode=CreateMode.EPHEMERAL_SEQUENTIAL,
                session_id="s1",
                ttl_ms=None,
                parents=CreateMode.CONTAINER,
            ),
            RequestId("s1", 1),
        ),
        (
            Create("/locks/a/l-", data=b"", mode=CreateMode.EPHEMERAL_SEQUENTIAL, session_id="s2"),
            RequestId("c2", 1),
        ),
        (Release("/locks/a/l-0000000001", 5), RequestId("c2", 2)),
        (Create("/t", data=b"", mode=CreateMode.TTL, session_id=None, ttl_ms=500), None),
        (SetData("/none", b""), RequestId("c1", 2)),
        (
            Enter(
                ("/locks/b", "/locks/c"),
                prefix="lock-",
                kind=Kind.EXCLUSIVE,
                session_id="s2",
                data=b"us",
                owner="t1",
            ),
            None,
        ),
        (
            Enter(
                ("/locks/d",),
                prefix="lock-",
                kind=Kind.EXCLUSIVE,
                session_id="s3",
                data=b"",
                owner="",
                is_try=False,
                lock_delay_ms=500,
            ),
            None,
        ),
        (
            Enter(("/locks/p",), prefix="slot-", kind=Kind.SLOT, session_id="s2", data=b"", size=3),
            RequestId("c2", 3),
        ),
        (ExpireSession("s3", term=1, silent_ms=700), None),
    ]
    for index, (operation, request) in enumerate(steps, 1):
        machine.apply(Command(operation, wall_ms=index * 1000, request=request), index, 1)
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
    again = Command(Release("/locks/a/l-0000000001", 5), 0)
    assert restored.apply(again, 12, 1).refusal is None
    assert [each.delay_ms for each in restored.locks.closings()] == [500]
    assert restored.locks.size("/locks/p") == 3
    assert restored.locks.history(GrantQuery()) == machine.locks.history(GrantQuery())
    assert len(restored.locks.history(GrantQuery(how=Ending.EXPIRED))) == 1


def test_commands_applied_after_the_capture_do_not_show() -> None:
    """Pieces are encoded when they are drawn, and still tell of the moment of capture."""
    machine = small_machine()
    expected = b"".join(machine.snapshot())

    pieces = machine.snapshot()
    for number in range(3, 40):
        machine.apply(
            Command(Create(f"/n{number}"), wall_ms=0, request=RequestId("c1", number)),
            12 + number,
            1,
        )
        machine.apply(
            Command(SetData("/t", b"x"), wall_ms=0, request=RequestId("s1", number)), 12 + number, 1
        )

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


def test_a_long_value_is_cut_into_pieces() -> None:
    """The store refuses a piece of more than 64 MiB, which would stop the member; and each piece
    holds up the requests that come meanwhile."""
    machine = StateMachine(MachineLimits(data_bytes_max=4 * 1024 * 1024))
    data = bytes(range(256)) * 12_000
    machine.apply(Command(Create("/long", data), 0), 1, 1)
    machine.apply(Command(Create("/short", b"x"), 0), 2, 1)
    restored = StateMachine()

    pieces = list(machine.snapshot())
    restored.restore(pieces)

    assert max(len(piece) for piece in pieces) == snapshot.LONG_BYTES
    assert restored.data("/long") == data
    assert restored.digest() == machine.digest()


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


def header(
    znodes: int = 1, sessions: int = 0, locks: tuple[int, ...] = (0, 0, 0, 0, 0)
) -> tuple[object, ...]:
    counts = (znodes, sessions, 0, 0, 0, 0, *locks)
    return ("coordinator-snapshot", 1, 5, 4, 0, 0, *counts, 0, 0, 0, 0, 0, 0)


HEADER = header()
LIMITS_ROW = (0, "", 0, (), ())
ACCESS_ROW = (False, 0, 0)
ROOT_ROW = ("/", b"", 0, 0, 0, 0, 0, 0, 0, 0, 0, "persistent", None, None, "")
ORPHAN_ROW = ("/a/b", b"", 1, 1, 1, 0, 0, 0, 0, 0, 0, "persistent", None, None, "")
OWNED_ROW = ("/a", b"", 1, 1, 1, 0, 0, 0, 0, 0, 0, "ephemeral", "s9", None, "")
PARENT_ROW = ("/", b"", 0, 0, 0, 0, 0, 0, 1, 1, 0, "persistent", None, None, "")


def limited(*values: object) -> list[object]:
    return [HEADER, (1, "", 0, values, ()), ROOT_ROW, ACCESS_ROW]


WELL_SEALED: dict[str, list[object]] = {
    "another kind": [("something else", *HEADER[1:]), LIMITS_ROW, ROOT_ROW, ACCESS_ROW],
    "another format": [(HEADER[0], 2, *HEADER[2:]), LIMITS_ROW, ROOT_ROW, ACCESS_ROW],
    "a header too short": [HEADER[:-1], LIMITS_ROW, ROOT_ROW, ACCESS_ROW],
    "a header without a level": [HEADER[:1], LIMITS_ROW, ROOT_ROW, ACCESS_ROW],
    "no header": [],
    "header of other types": [(*HEADER[:-1], "0"), LIMITS_ROW, ROOT_ROW, ACCESS_ROW],
    "too few rows": [HEADER, LIMITS_ROW],
    "too many rows": [HEADER, LIMITS_ROW, ROOT_ROW, ACCESS_ROW, ACCESS_ROW],
    "no root": [HEADER, LIMITS_ROW, ORPHAN_ROW, ACCESS_ROW],
    "an orphan": [header(2), LIMITS_ROW, ROOT_ROW, ORPHAN_ROW, ACCESS_ROW],
    "twice the same path": [header(2), LIMITS_ROW, ROOT_ROW, ROOT_ROW, ACCESS_ROW],
    "an owner without session": [header(2), LIMITS_ROW, PARENT_ROW, OWNED_ROW, ACCESS_ROW],
    "a znode of other types": [HEADER, LIMITS_ROW, ("/", "", *ROOT_ROW[2:]), ACCESS_ROW],
    "a mode that is none": [HEADER, LIMITS_ROW, (*ROOT_ROW[:11], "", *ROOT_ROW[12:]), ACCESS_ROW],
    "a row too long": [HEADER, LIMITS_ROW, (*ROOT_ROW, 1), ACCESS_ROW],
    "not a row": [HEADER, 5],
    "no limits": [HEADER, ROOT_ROW, ACCESS_ROW],
    "no access": [HEADER, LIMITS_ROW, ROOT_ROW],
    "a limit of nothing": limited(("znodes_max", 0)),
    "a limit not known": limited(("nodes_max", 1)),
    "a limit of another type": limited(("znodes_max", "1")),
}


OF_S1 = ("ephemeral_sequential", "s1", None, "")
LOCKED_ROWS = [
    LIMITS_ROW,
    ("/", b"", 0, 0, 0, 0, 0, 0, 1, 1, 0, "persistent", None, None, ""),
    ("/locks", b"", 2, 2, 2, 0, 0, 0, 1, 1, 0, "ttl", None, None, ""),
    ("/locks/a", b"", 2, 2, 3, 0, 0, 0, 2, 2, 2, "ttl", None, None, ""),
    ("/locks/a/lock-0000000000", b"", 2, 2, 2, 0, 0, 0, 0, 0, 0, *OF_S1),
    ("/locks/a/lock-0000000001", b"", 3, 3, 3, 0, 0, 0, 0, 0, 0, *OF_S1),
    ("s1", 5000, "", 0, 1, 1, "", "", "", None),
    ("s2", 5000, "", 0, 1, 1, "", "", "", None),
]
HOLDS = (
    "/locks/a/lock-0000000000", 0, 2, "exclusive", "s1", b"", 0, "t1", 0, 0, (), b"", 2, 0, 1,
    False, "", 0,
)  # fmt: skip
WAITS = (
    "/locks/a/lock-0000000001", 1, 3, "exclusive", "s1", b"", 0, "", 0, 0, (), b"", None, 0, 0,
    False, "", 0,
)  # fmt: skip
GAVE_BACK = ("released", 1, "", "", 0)
LOCKS_SEALED = {
    "none recorded": [(0, 0, 0, 0, 0)],
    "one not recorded": [(1, 0, 0, 0, 1), HOLDS],
    "one recorded twice": [(2, 0, 0, 0, 1), HOLDS, HOLDS],
    "one that is not there": [(2, 0, 0, 0, 1), HOLDS, ("/locks/b" + WAITS[0][8:], *WAITS[1:])],
    "of another incarnation": [(2, 0, 0, 0, 1), HOLDS, (*WAITS[:2], 2, *WAITS[3:])],
    "of another number": [(2, 0, 0, 0, 1), HOLDS, (WAITS[0], 7, *WAITS[2:])],
    "of another session": [(2, 0, 0, 0, 1), HOLDS, (*WAITS[:4], "s2", *WAITS[5:])],
    "a kind that is none": [(2, 0, 0, 0, 1), HOLDS, (*WAITS[:3], "closed", *WAITS[4:])],
    "a group of numbers": [(2, 0, 0, 0, 1), HOLDS, (*WAITS[:10], (1,), *WAITS[11:])],
    "a holder behind one who waits": [
        (2, 0, 0, 0, 1),
        (*HOLDS[:12], None, 0, 0, *HOLDS[15:]),
        (*WAITS[:12], 3, 0, 1, *WAITS[15:]),
    ],
    "a size of nothing": [(2, 1, 0, 0, 1), HOLDS, WAITS, ("/locks/b", 3)],
    "a lock-delay of nothing": [
        (2, 0, 1, 0, 1), HOLDS, WAITS, ("/locks/a/delay-0000000002", 3, 500),
    ],
    "an ending that is none": [
        (2, 0, 0, 1, 1), HOLDS, WAITS, (HOLDS, 4, 0, ("lost", *GAVE_BACK[1:])),
    ],
    "a group that is not whole": [
        (2, 0, 0, 0, 1), HOLDS, (*WAITS[:10], (WAITS[0], HOLDS[0]), *WAITS[11:]),
    ],
    "one more that is not there": [
        (3, 0, 0, 0, 1), HOLDS, WAITS, ("/locks/b/lock-0000000000", *HOLDS[1:]),
    ],
    "a group with one that is not there": [
        (2, 0, 0, 0, 1), HOLDS,
        (*WAITS[:10], (WAITS[0], "/locks/b/lock-0000000000"), *WAITS[11:]),
    ],
    "without whether it was repeated": [(2, 0, 0, 0, 1), HOLDS, WAITS[:-1]],
    "a row too few": [(2, 0, 0, 1, 1), HOLDS, WAITS],
    "a row too many": [(2, 0, 0, 0, 1), HOLDS, WAITS, WAITS],
}  # fmt: skip


def locked(counts: tuple[object, ...], *rows: object) -> bytes:
    return sealed([header(5, 2, counts), *LOCKED_ROWS, *rows, ACCESS_ROW])  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", LOCKS_SEALED.values(), ids=LOCKS_SEALED.keys())
def test_locks_that_do_not_fit_the_tree_are_refused(rows: list[tuple[object, ...]]) -> None:
    """The contenders recorded are those that stand there, and hold in their order."""
    with pytest.raises(ValueError, match=r"."):
        StateMachine().restore([locked(rows[0], *rows[1:])])


def test_locks_that_fit_the_tree_are_taken() -> None:
    """The rows of the cases above are right but for what each case breaks."""
    machine = StateMachine()
    ended = (HOLDS, 4, 0, GAVE_BACK)

    machine.restore([locked((2, 1, 0, 1, 2), HOLDS, WAITS, ("/locks/a", 3), ended)])

    assert machine.locks.standing("/locks/a/lock-0000000000").is_holder
    assert machine.locks.standing("/locks/a/lock-0000000001").position == 1
    assert machine.locks.size("/locks/a") == 3


def test_a_snapshot_says_whose_request_was_repeated() -> None:
    """A member that begins from it spares the same grants as the others."""
    machine, restored = StateMachine(), StateMachine()
    machine.apply(Command(OpenSession("s1", 10_000), 0), 1, 1)
    enter = Enter(("/locks/a",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"")
    for index in (2, 3):
        machine.apply(Command(enter, wall_ms=0, request=RequestId("c1", 1)), index, 1)

    restored.restore(machine.snapshot())

    release = Command(Release("/locks/a/lock-0000000000", 2, spares_repeated=True), 0)
    for each in (machine, restored):
        refusal = each.apply(release, 4, 1).refusal
        assert refusal is not None
        assert refusal.code == "BadArguments"
    assert restored.digest() == machine.digest()


@pytest.mark.parametrize("rows", WELL_SEALED.values(), ids=WELL_SEALED.keys())
def test_a_right_digest_over_a_wrong_state_is_refused(rows: list[object]) -> None:
    """What was written wrong is refused too, not only what was damaged since."""
    with pytest.raises(ValueError, match=r"."):
        StateMachine().restore([sealed(rows)])


def test_the_smallest_snapshot_is_taken() -> None:
    """The rows of the cases above are right but for what each case breaks."""
    machine = StateMachine()

    machine.restore([sealed([HEADER, LIMITS_ROW, ROOT_ROW, ACCESS_ROW])])

    assert (machine.zxid, machine.applied_index, machine.znode_count) == (4, 5, 1)


def test_an_older_snapshot_is_refused() -> None:
    """The zxid is never lowered by a restore."""
    machine = small_machine()
    old = list(machine.snapshot())
    machine.apply(Command(Create("/new"), 0), 12, 1)

    with pytest.raises(ValueError, match="or later"):
        machine.restore(old)

    assert machine.get("/new") is not None


def test_digest_ignores_the_order_of_creation() -> None:
    """Two histories that come to the same znodes have the same digest."""
    machine = StateMachine()
    other = StateMachine()
    machine.apply(Command(Create("/a"), 0), 1, 1)
    digest_before = machine.digest()

    refused = machine.apply(Command(SetData("/a", data=b"", expected_version=7), 0), 2, 1)
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
