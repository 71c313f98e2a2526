"""The codec: what goes in comes out; what does not fit is a ValueError and nothing else."""

from __future__ import annotations

import runpy
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coordinator
from coordinator.model.events import Event, EventType
from coordinator.model.limits import bounds_of
from coordinator.state import levels
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import (
    Check,
    Command,
    Create,
    CreateMode,
    Delete,
    Enter,
    Guarded,
    HeldCondition,
    Kind,
    Multi,
    Read,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcome_codec import (
    OUTCOME_FORMAT,
    decode_outcome,
    encode_outcome,
)
from coordinator.state.outcomes import (
    Checked,
    Created,
    Entered,
    LevelSet,
    LimitsSet,
    MultiDone,
    Outcome,
    Refusal,
    Revoked,
    SessionOpened,
    Stat,
)
from coordinator.state.packing import check_in_pieces, pack, stamped
from tests.amount import histories as histories_of
from tests.state.strategies import SMALL_LIMITS, apply_all, commands, histories
from tests.state.values import changed

STAT = Stat(
    czxid=1,
    mzxid=2,
    pzxid=3,
    ctime_ms=4,
    mtime_ms=5,
    version=6,
    cversion=7,
    aversion=0,
    ephemeral_owner="s1",
    data_length=8,
    num_children=9,
    mode="ephemeral",
    ttl_ms=None,
)
CREATE_ROW = (1, "/a", b"", "persistent", None, None, None)
OPENING = (8, "s1", 9_000, "", "", "", "")
ENTER_ROW = (14, ("/locks/a",), "lock-", "exclusive", "s1", b"", "", False, 0, 0, None, OPENING)
LIMITS_ROW = (21, (("znodes_max", 1),), -1, (), "")


primitives = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text() | st.binary(),
    lambda each: st.lists(each).map(tuple) | st.dictionaries(st.text(), each),
)


@histories_of(100)
@given(commands)
def test_commands_round_trip(command: Command) -> None:
    """A command decodes to what was encoded."""
    assert decode_command(encode_command(command)) == command


@histories_of(100)
@given(commands, st.data())
def test_damaged_bytes_are_refused_or_say_something_else(
    command: Command, data: st.DataObject
) -> None:
    """Two commands never have the same bytes, nor one command different ones."""
    written = bytearray(encode_command(command))
    for _ in range(data.draw(st.integers(min_value=0, max_value=3))):
        at = data.draw(st.integers(min_value=0, max_value=len(written) - 1))
        written[at] = data.draw(st.sampled_from([0, 1, 0x90, 0xA0, 0xC0, 0xC3, 0xCA, 0xCB, 0xCC]))
    with suppress(ValueError):
        assert encode_command(decode_command(bytes(written))) == written


@histories_of(100)
@given(primitives)
def test_values_are_packed_as_by_the_reference(value: Any) -> None:
    """Every member writes the same bytes, whichever library packs them."""
    assert pack(value) == msgpack.packb(value, use_bin_type=True)


@histories_of(50)
@given(commands, st.integers(0, 2**62))
def test_a_stamp_changes_the_wall_time_and_nothing_else(command: Command, wall_ms: int) -> None:
    """What a leader proposes for another member is that member's command at the leader's time."""
    again = decode_command(stamped(encode_command(command), wall_ms))

    assert again == changed(command, wall_ms=wall_ms)


@histories_of(50)
@given(histories)
def test_outcomes_round_trip(history: list[Command]) -> None:
    """An outcome decodes to what was encoded, with its events and facts."""
    for outcome in apply_all(StateMachine(SMALL_LIMITS), history):
        assert decode_outcome(encode_outcome(outcome)) == outcome


BAD_OPERATIONS: list[Any] = [
    None,
    (),
    (0,),
    (99, "/a"),
    ("1", "/a"),
    (True, *CREATE_ROW[1:]),
    ((1,), "/a"),
    (5, "/a"),
    (1, "/a"),
    (*CREATE_ROW, None),
    (1, b"/a", b"", "persistent", None, None, None),
    (1, "/a", "", "persistent", None, None, None),
    (1, "/a", b"", "lasting", None, None, None),
    (1, "/a", b"", "", None, None, None),
    (1, "/a", b"", 0, None, None, None),
    (1, "/a", b"", None, None, None, None),
    (1, "/a", b"", "persistent", 1, None, None),
    (1, "/a", b"", "persistent", None, 1.0, None),
    (1, "/a", b"", "persistent", None, True, None),
    (1, "/a", b"", "persistent", None, None, "lasting"),
    (4, "/a", 1, -1, None, None, None),
    (6, CREATE_ROW, "", ""),
    (6, (CREATE_ROW,)),
    (6, ((6, (), "", ""),), "", ""),
    (6, (OPENING,), "", ""),
    (6, (ENTER_ROW,), "", ""),
    (7, (CREATE_ROW,), (), ()),
    (7, ((5, "/a"),), (), ()),
    (9, "s1", "sick"),
    (10, "s1", 1, 0),
    (11, "/locks/a/lock-1", 3),
    (12, "c1", 3, 0, "/locks/a"),
    ENTER_ROW[:-1],
    (*ENTER_ROW[:-1], ()),
    (*ENTER_ROW[:-1], OPENING[1:]),
    (*ENTER_ROW[:-1], OPENING[:4]),
    (*ENTER_ROW[:-1], (9, "s1", "", 0)),
    (*ENTER_ROW[:-1], (8, "s1", "9000", "", "", "", "")),
    (*ENTER_ROW[:1], "/locks/a", *ENTER_ROW[2:]),
    (*ENTER_ROW[:1], (b"/locks/a",), *ENTER_ROW[2:]),
    (*ENTER_ROW[:3], 0, *ENTER_ROW[4:]),
    (*ENTER_ROW[:3], "closed", *ENTER_ROW[4:]),
    (19, "/locks/a/lock-1", 3, 1),
    LIMITS_ROW[:-1],
    (21, (("znodes_max", "1"),), -1, (), ""),
    (21, ("znodes_max",), -1, (), ""),
    (21, (), -1, (("rule", 1),), ""),
    (29, "r", (("/a", (9,)),)),
    (29, "r", (("/a", ("look",)),)),
    (29, "r", (("/a", "read"),)),
    (31, "i", (1,), (), ()),
    (31, "i", None, None, (("znodes", "1"),)),
    (31, "i", None, None, (("znodes",),)),
    (31, "i", None, None, None),
    (33, "i", "t", "text", 0, ""),
]
BAD_COMMANDS: list[Any] = [
    None,
    1,
    "text",
    (),
    [],
    {},
    (1,),
    *[(1, row, 0, None, None, ()) for row in BAD_OPERATIONS],
    (levels.NEWEST + 1, CREATE_ROW, 0, None, None, ()),
    (0, CREATE_ROW, 0, None, None, ()),
    (True, CREATE_ROW, 0, None, None, ()),
    (1.0, CREATE_ROW, 0, None, None, ()),
    (1, CREATE_ROW, 0, None, None),
    (1, CREATE_ROW, 0, None, None, (), 1),
    (1, CREATE_ROW, True, None, None, ()),
    (1, CREATE_ROW, "0", None, None, ()),
    (1, CREATE_ROW, 0.5, None, None, ()),
    (1, CREATE_ROW, 0, (), None, ()),
    (1, CREATE_ROW, 0, ("c", 1), None, ()),
    (1, CREATE_ROW, 0, ("c", "1", 0), None, ()),
    (1, CREATE_ROW, 0, None, "", ()),
    (1, CREATE_ROW, 0, None, ("x", "token:1"), ()),
    (1, CREATE_ROW, 0, None, ("x", "token:1", "5"), ()),
    (1, CREATE_ROW, 0, None, None, None),
    (1, CREATE_ROW, 0, None, None, ("/locks/a",)),
    (1, CREATE_ROW, 0, None, None, (("/locks/a", "7"),)),
    (1, CREATE_ROW, 0, None, None, (("/locks/a", 7, 7),)),
]


@pytest.mark.parametrize("row", BAD_COMMANDS, ids=range(len(BAD_COMMANDS)))
def test_a_wrong_shape_is_a_value_error(row: Any) -> None:
    """Every element of a command is checked for its type and its place."""
    with pytest.raises(ValueError, match="expected"):
        decode_command(msgpack.packb(row))


@histories_of(500)
@given(
    st.one_of(st.binary(max_size=60), st.binary(max_size=20).map(lambda tail: b"\x96\x01" + tail))
)
def test_any_bytes_decode_or_are_a_value_error(data: bytes) -> None:
    """Nothing but ValueError comes out of bytes that are no command or outcome."""
    for decode in (decode_command, decode_outcome):
        try:
            decode(data)
        except ValueError:
            pass


@histories_of(100)
@given(commands, st.data())
def test_a_cut_or_longer_command_is_a_value_error(command: Command, chance: st.DataObject) -> None:
    """A command is exactly its bytes: none missing, none more."""
    encoded = encode_command(command)
    cut = chance.draw(st.integers(0, len(encoded) - 1))

    for damaged in (encoded[:cut], encoded + b"\x00"):
        with pytest.raises(ValueError):  # noqa: PT011 # the library's words differ
            decode_command(damaged)


def test_a_release_that_reads_no_state_of_level_1_reads_its_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each operation is written at the level that added it, for ever: those of level 1 at 1."""
    monkeypatch.setattr(levels, "OLDEST", 2)
    monkeypatch.setattr(levels, "NEWEST", 2)
    later = runpy.run_path(str(Path(coordinator.__file__).parent / "state" / "codec.py"))

    encoded = encode_command(Command(Create("/a"), 0))
    written = msgpack.unpackb(encoded)

    assert later["decode_command"](encoded).operation == Create("/a")
    for level in (0, 3):
        with pytest.raises(ValueError, match="expected a command"):
            later["decode_command"](msgpack.packb([level, *written[1:]]))


def test_deep_nesting_is_a_value_error() -> None:
    """Nested bytes exhaust nothing."""
    for depth in (100, 600, 100_000):
        with pytest.raises(ValueError):  # noqa: PT011 # the library's words differ
            decode_command(b"\x91" * depth + b"\x01")


def test_what_has_no_encoding_is_a_value_error_and_spoils_nothing() -> None:
    """Lone surrogates and huge numbers are refused; the next command is encoded as ever."""
    good = Command(Create("/a"), 0)
    expected = encode_command(good)
    for bad in (
        Create("/\ud800"),
        Create("/a", data=b"", mode=CreateMode.TTL, session_id=None, ttl_ms=2**70),
    ):
        with pytest.raises(ValueError):  # noqa: PT011 # the library's words differ
            encode_command(Command(bad, 0))

        assert encode_command(good) == expected


def test_a_read_stands_only_among_several() -> None:
    """A read is an operation of a multi, not a command."""
    several = Command(Multi((Read("/a"),)), 0)
    guarded = Command(Guarded((Check("/a"),), then=(Read("/a"),), otherwise=()), 0)

    assert decode_command(encode_command(several)) == several
    assert decode_command(encode_command(guarded)) == guarded


def test_who_deletes_several_and_why_is_written() -> None:
    """With the grants that the deletions end it is kept."""
    said = Command(Multi((Delete("/a"),), by="ann", reason="a new disk"), 0)
    assert decode_command(encode_command(said)) == said


REFUSED = {"code": "Code", "message": "text", "fields": {}}
CHECKED = {"op": "check", "path": "/a"}


def kept(result: Any = None, refusal: Any = None, zxid: Any = 0, size: int = 768) -> bytes:
    packed: bytes = msgpack.packb((zxid, result, refusal))
    return size.to_bytes(4, "big") + packed


def with_facts(facts: Any) -> Any:
    return (1, kept(refusal={**REFUSED, "fields": facts}), (), False, ())


DONE = kept(CHECKED)
BAD_OUTCOMES: list[Any] = [
    None,
    (),
    (1,),
    (OUTCOME_FORMAT + 1, DONE, (), False, ()),
    (True, DONE, (), False, ()),
    (1, DONE, (), False),
    (1, DONE, (), False, (), 1),
    (1, DONE, (), False, None),
    (1, DONE, (), False, (b"/a",)),
    (1, DONE, (), 0, ()),
    (1, "text", (), False, ()),
    (1, b"", (), False, ()),
    (1, DONE + b"\x00", (), False, ()),
    (1, kept(CHECKED, size=769), (), False, ()),
    (1, kept(CHECKED, zxid=True), (), False, ()),
    (1, kept(CHECKED, zxid=1.0), (), False, ()),
    (1, kept(), (), False, ()),
    (1, kept(CHECKED, REFUSED), (), False, ()),
    (1, kept({**CHECKED, "more": 1}), (), False, ()),
    (1, kept({"op": "check"}), (), False, ()),
    (1, kept({"op": "none of ours"}), (), False, ()),
    (1, kept({"op": "set_limits", "version": 1, "changes": (("znodes_max", 1),)}), (), False, ()),
    (1, kept({"op": "revoke", "path": "/a", "czxid": 1, "paths": (1,), "was_holder": True}),
     (), False, ()),
    (1, kept({"op": "multi", "results": ({"op": "multi", "results": ()},)}, size=512),
     (), False, ()),
    (1, kept({"op": "multi", "results": ("/a",)}, size=512), (), False, ()),
    (1, kept({"op": "create", "path": "/a", "stat": (1, 2, 3)}), (), False, ()),
    with_facts({"a": ((1,),)}),
    with_facts({"a": {"b": 1}}),
    with_facts({"a": ({"b": ()},)}),
    with_facts({"a": (1.5,)}),
    with_facts({"a": 1.5}),
    with_facts({"a": b"bytes"}),
    with_facts({"a": (1,) * 5_001}),
    with_facts(()),
    (1, DONE, ((9, "/a", 0, 0, None),), False, ()),
    (1, DONE, (("NodeCreated", "/a", 0, 0),), False, ()),
    (1, DONE, (), False, ("/a",) * 5_001),
]  # fmt: skip


@pytest.mark.parametrize("row", BAD_OUTCOMES, ids=range(len(BAD_OUTCOMES)))
def test_a_wrong_outcome_is_a_value_error(row: Any) -> None:
    """Every element of an outcome is checked; another member is not trusted to be of our kind."""
    with pytest.raises(ValueError, match="expected"):
        decode_outcome(msgpack.packb(row))


def test_the_wrong_outcomes_are_right_but_for_what_each_breaks() -> None:
    """What msgpack packs by hand is what is written."""
    right = Outcome(0, Checked("/a"))
    assert encode_outcome(right) == msgpack.packb((1, DONE, (), False, ()))
    assert decode_outcome(msgpack.packb(with_facts({"a": (1, "b")}))).refusal == Refusal(
        "Code", message="text", fields={"a": (1, "b")}
    )


def test_outcome_with_everything_round_trips() -> None:
    """Results, refusals with facts of every plain type, and events of each kind survive."""
    events = tuple(
        Event(kind, path="/ü", version=1, czxid=2, ephemeral_owner="s1") for kind in EventType
    )
    facts = {"a": 1, "b": "text", "c": None, "d": True, "f": (1, "x"), "g": ()}
    cycle = {"cycle": ({"owner": "t1", "waits_for": "a"}, {"owner": "t2", "waits_for": "b"})}

    for outcome in (
        Outcome(
            zxid=3, result=SessionOpened("s1", 10), refusal=None, events=events, is_repeat=True
        ),
        Outcome(zxid=3, result=None, refusal=Refusal("NoNode", message="text", fields=facts)),
        Outcome(zxid=3, result=None, refusal=Refusal("Deadlock", message="text", fields=cycle)),
        Outcome(3, MultiDone(())),
        Outcome(
            zxid=3,
            result=Entered((Created("/a", STAT),), is_granted=True, position=0),
            refusal=None,
            events=(),
            is_repeat=False,
            granted=("/a", "/b"),
        ),
        Outcome(3, Entered((), is_granted=False, position=4, is_entered=False)),
        Outcome(3, LimitsSet(2, (("znodes_max", 10, 20),))),
        Outcome(3, LevelSet(2, was_changed=True)),
        Outcome(3, Revoked("/a", czxid=5, paths=("/a", "/b"), was_holder=True)),
    ):
        assert decode_outcome(encode_outcome(outcome)) == outcome


def test_encoded_commands_keep_their_bytes() -> None:
    """Format 1 does not change: logs on disk hold these bytes."""
    expected = (
        "96019c0e91a82f6c6f636b732f61a56c6f636b2da96578636c7573697665a27331c40178a27431c2cd03e8"
        "00c0c0cf0000018bcfe56800c0c09192a82f6c6f636b732f6207"
    )
    command = Command(
        Enter(
            ("/locks/a",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id="s1",
            data=b"x",
            owner="t1",
            lock_delay_ms=1000,
        ),
        1_700_000_000_000,
        if_held=(HeldCondition("/locks/b", 7),),
    )

    assert encode_command(command).hex() == expected
    assert decode_command(bytes.fromhex(expected)) == command


def test_the_largest_multi_that_may_be_allowed_is_read_from_another_member() -> None:
    """Whatever an operator sets ``operations_per_multi_max`` to, a follower can forward it."""
    _, most = bounds_of("operations_per_multi_max")
    create = Create("/a/b-", data=b"x", mode=CreateMode.EPHEMERAL_SEQUENTIAL, session_id="s1")
    checks, creates = (Check("/a"),) * (most // 2), (create,) * (most // 2)
    for operation in (Multi((create,) * most), Guarded(checks, then=creates, otherwise=())):
        command = Command(operation, 1)
        assert decode_command(encode_command(command)) == command
    done = Outcome(
        zxid=7, result=MultiDone((Created("/a/b-0000000001", STAT),) * most), refusal=None
    )
    assert decode_outcome(encode_outcome(done)) == done


@pytest.mark.parametrize("length", [10, 70_000, 200_000])
def test_what_is_whole_passes_the_check_in_pieces(length: int) -> None:
    """One value within its bounds, long or short; of a longer row it is refused."""
    for _ in check_in_pieces(pack((1, "x" * length, (2, 3)))):
        pass
    if length > 64 * 1024:
        with pytest.raises(ValueError, match="exceeds max_array_len"):
            list(check_in_pieces(pack(tuple(range(length)))))
