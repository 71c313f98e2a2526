"""Bodies are read and written as the definitions of the model say, and schemas say the same."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import Meta, Struct, field

from coordinator.errors import BadArgumentsError, CoordinatorError, NoNodeError
from coordinator.model.fields import (
    INTERNAL,
    LEFT_OUT,
    Count,
    Positive,
    ShortText,
    also_called,
    described,
    one_of,
    or_called,
    unless,
)
from coordinator.wire.codec import encoded, from_body, to_body, union_from_body
from coordinator.wire.encoding import Encoding, decode, encode
from coordinator.wire.http.schemas import Schemas


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Place(NamedTuple):
    x: Count
    y: Count = 0


class Inner(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="inner"):
    path: str
    data: Annotated[bytes, described("the data")] = b""


class Other(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="other"):
    path: str
    data: Annotated[bytes, described("the data")]


class Asked(Struct, frozen=True, forbid_unknown_fields=True):
    """A request with a field of every kind."""

    name: str
    count: Positive = 7
    is_new: bool = field(name="new", default=False)
    label: ShortText = ""
    colour: Colour = Colour.RED
    when: Annotated[str, one_of("now", "later")] = "now"
    size: Annotated[int, Meta(ge=1, le=9)] | None = None
    operations: Annotated[tuple[Inner | Other, ...], Meta(max_length=3)] = ()
    limits: Annotated[dict[str, Count], Meta(min_length=1, max_length=2)] | None = None
    origin: Annotated[int, INTERNAL] = 1


class Said(Struct, frozen=True):
    """An answer with a field of every kind."""

    place: Place
    owner: str | None
    colour: Colour = Colour.RED
    when: Annotated[str, one_of("now", "later")] = "now"
    extra: Annotated[str | None, LEFT_OUT] = None
    places: tuple[Place, ...] = ()


class Ended(Struct, frozen=True, tag_field="type", tag="error"):
    error: CoordinatorError = field(name="problem")


class Went(Struct, frozen=True, tag_field="type", tag="went"):
    zxid: Count


class Held(Struct, frozen=True):
    """A lock, or an election, which goes by other names."""

    lock: Annotated[str, or_called("election", "is_election")]
    token: Annotated[Positive, also_called("epoch", "is_election")]
    owner: Annotated[str, unless("is_election")] = ""
    is_election: Annotated[bool, INTERNAL] = False


class Noted(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for one field of bytes."""

    note: Annotated[bytes, Meta(max_length=3), described("the note")]


ASKED = Asked("n", 3, True, "l", Colour.BLUE, "later", 4, (Inner("/a", b"\xff"),), {"a": 1})
KINDS = {"Asked": Asked, "Said": Said, "Place": Place, "Inner": Inner, "Other": Other}
SCHEMAS = {name: Schemas(KINDS).of(kind) for name, kind in KINDS.items()}


def is_described(name: str, body: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": {"schemas": SCHEMAS}}
    return bool(Draft202012Validator(schema).is_valid(body))


@pytest.mark.parametrize("encoding", Encoding)
@pytest.mark.parametrize(
    "value",
    [
        Asked("n"),
        ASKED,
        Said(Place(1), None),
        Said(Place(1, 2), "me", Colour.BLUE, "later", "x", (Place(3),)),
    ],
)
def test_what_is_written_is_read_and_described(value: Any, encoding: Encoding) -> None:
    """Every kind of field survives both encodings, and is as its schema says."""
    body = decode(encode(to_body(value, encoding), encoding), encoding)

    assert from_body(type(value), body) == value
    assert is_described(type(value).__name__, to_body(value))
    assert encoded(value, encoding) == encode(to_body(value, encoding), encoding)


def test_a_request_is_written_without_defaults_and_an_answer_whole() -> None:
    """Only what is marked so is left out of an answer."""
    assert to_body(Asked("n")) == {"name": "n"}
    assert to_body(Said(Place(1), None)) == {
        "place": {"x": 1, "y": 0}, "owner": None, "colour": "red", "when": "now", "places": [],
    }  # fmt: skip


def test_null_is_as_good_as_absent() -> None:
    """Where there is a default, or null is a value."""
    body = {"name": "n", "count": None, "new": None, "colour": None, "operations": None}

    assert from_body(Asked, body) == Asked("n")
    assert is_described("Asked", body)
    assert from_body(Said, {"place": {"x": 1, "y": None}}) == Said(Place(1), None)


def test_a_client_lives_with_what_a_later_server_says() -> None:
    """New fields, new words; a known word becomes the name it has."""
    body = {"place": {"x": 1, "z": 1}, "colour": "green", "when": "never", "new": 1}
    read = from_body(Said, body)

    assert (read.colour, read.when) == ("green", "never")
    assert from_body(Said, {"place": {"x": 1}, "colour": "blue"}).colour is Colour.BLUE


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "body: expected an object, found an array of 0"),
        ({}, "body.name: expected text, found no such field"),
        ({"name": None}, "body.name: expected text, found null"),
        ({"name": 7}, "body.name: expected text, found the number 7"),
        ({"name": "n", "count": 0}, "body.count: expected an integer from 1 to"),
        ({"name": "n", "count": True}, "body.count: expected an integer, found true"),
        ({"name": "n", "size": 10}, "body.size: expected an integer from 1 to 9"),
        ({"name": "n", "new": 1}, "body.new: expected true or false"),
        ({"name": "n", "is_new": True}, "unknown field 'is_new'"),
        ({"name": "n", "origin": 1}, "unknown field 'origin'"),
        ({"name": "n", "cuont": 1}, "did you mean 'count'?"),
        ({"name": "n", "label": "x" * 201}, "body.label: expected at most 200 characters"),
        ({"name": "n", "colour": "green"}, "body.colour: expected one of red, blue"),
        ({"name": "n", "when": "never"}, "body.when: expected one of now, later"),
        ({"name": "n", "operations": {}}, "body.operations: expected an array, found an object"),
        ({"name": "n", "operations": [7]}, "body.operations[0]: expected an object"),
        ({"name": "n", "operations": [{}]}, "body.operations[0].op: expected one of inner, other"),
        (
            {"name": "n", "operations": [{"op": "inner", "path": "/"}, {"op": "x"}]},
            "body.operations[1].op: expected one of inner, other",
        ),
        (
            {"name": "n", "operations": [{"op": "inner", "path": "/", "pth": 1}]},
            "body.operations[0]: found the unknown field 'pth'; did you mean 'path'?",
        ),
        (
            {"name": "n", "operations": [{"op": "other", "path": "/"}]},
            "body.operations[0].data: expected data or data_base64, found none",
        ),
        (
            {"name": "n", "operations": [{"op": "other", "path": "/", "data_base64": "!"}]},
            "body.operations[0].data_base64: expected base64",
        ),
        (
            {"name": "n", "operations": [{"op": "inner", "path": "/"}] * 4},
            "body.operations: expected at most 3 items, found 4",
        ),
        ({"name": "n", "limits": {"a": -1}}, "body.limits.a: expected an integer from 0 to"),
        ({"name": "n", "limits": dict.fromkeys("abc", 1)}, "expected 1 to 2 names, found 3"),
    ],
)
def test_a_wrong_body_is_refused_with_its_place(body: Any, said: str) -> None:
    """Where, what was expected, what was found; and the schema refuses it as well."""
    with pytest.raises(BadArgumentsError) as refused:
        from_body(Asked, body)

    assert said in refused.value.message
    assert "found none" in said or "base64" in said or not is_described("Asked", body)


def test_what_the_url_says_is_no_field_of_the_body() -> None:
    """An item of a list alone: its path is in the URL, and its kind is the route's."""
    alone = Inner("/a", b"x")

    assert to_body(alone, given=("path",)) == {"data": "x"}
    assert from_body(Inner, {"data": "x"}, given={"path": "/a"}) == alone
    assert from_body(Inner, {"by": 1}, given={"path": "/a"}, beside={"by"}) == Inner("/a")
    for name in ("op", "path"):
        with pytest.raises(BadArgumentsError, match=f"unknown field '{name}'"):
            from_body(Inner, {name: "inner"}, given={"path": "/a"})


def test_a_line_says_which_kind_it_is() -> None:
    """An error comes back as its class."""
    lines = Ended | Went
    ended = union_from_body(lines, to_body(Ended(NoNodeError("gone"))), "line")

    assert isinstance(ended.error, NoNodeError)
    assert union_from_body(lines, to_body(Went(3)), "line") == Went(3)
    with pytest.raises(BadArgumentsError, match=r"line\.type: expected one of error, went"):
        union_from_body(lines, {"type": "gone"}, "line")


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (Held("a", 7), {"lock": "a", "token": 7, "owner": ""}),
        (Held("a", 7, is_election=True), {"election": "a", "token": 7, "epoch": 7}),
    ],
)
def test_a_field_goes_by_other_names_while_another_is_true(value: Held, body: Any) -> None:
    """Instead, beside, or not at all; each of both schemas has its own names."""
    schemas = [Schemas({}, when=when).of(Held) for when in (False, True)]

    assert to_body(value) == body
    assert from_body(Held, body) == value
    assert [set(each["required"]) == set(body) for each in schemas] == [
        not value.is_election, value.is_election,
    ]  # fmt: skip
    with pytest.raises(BadArgumentsError, match="expected lock or election, found both"):
        from_body(Held, {"lock": "a", "election": "a", "token": 7})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "body.note: expected note or note_base64, found none"),
        ({"note": "abcd"}, "body.note: expected at most 3 bytes, found 4"),
        ({"note": "a", "note_base64": "YQ=="}, "body.note: expected note or note_base64"),
        ({"note_base64": "?"}, "body.note_base64: expected base64"),
    ],
)
def test_bytes_have_their_own_name_and_bound(body: Any, said: str) -> None:
    """A refusal calls the field as the body does."""
    with pytest.raises(BadArgumentsError) as refused:
        from_body(Noted, body)

    assert said in refused.value.message
    assert from_body(Noted, {"note": "abc"}) == Noted(b"abc")
    assert to_body(Noted(b"")) == {"note": ""}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*to_body(ASKED), "op", "path", "data", "x"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from([*to_body(ASKED), "size", "x"]), PLAIN), PLAIN)
def test_reading_and_schema_agree(body: dict[str, Any], name: Any) -> None:
    """What is read is described, and what is refused is not (but for two forms of data)."""
    try:
        from_body(Asked, {"name": name, **body})
    except BadArgumentsError:
        is_read = False
    else:
        is_read = True

    is_valid = is_described("Asked", {"name": name, **body})
    assert is_read is is_valid or (is_valid and "data" in str(body))
