"""What two readers could understand differently is refused, in JSON and in msgpack."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct

from coordinator.errors import BadArgumentsError
from coordinator.model.fields import described
from coordinator.wire.codec import from_body
from coordinator.wire.encoding import Encoding, data_fields, decode, encode
from coordinator.wire.strict_json import (
    INTEGER_MAX,
    INTEGER_MIN,
    decode_json,
    decode_msgpack,
    encode_json,
)


class WithData(Struct, frozen=True, forbid_unknown_fields=True):
    """A request with bytes in it."""

    data: Annotated[bytes, described("the data")] = b""


HOSTILE_JSON = {
    b"": "expecting value",
    b"{": "expecting property name",
    b'{"a":NaN}': "NaN",
    b"[Infinity]": "Infinity",
    b"[-Infinity]": "-Infinity",
    b"1e999": "inf",
    b'{"a":1,"a":2}': '"a" twice',
    b'{"x":{"a":1,"a":1}}': '"a" twice',
    b'"\\ud800"': "U+D800",
    b'{"\\udfff":1}': "U+DFFF",
    b"9223372036854775808": "64 bits",
    b"-9223372036854775809": "64 bits",
    b"1" * 5_000: "thousands of digits",
    b"[" * 33 + b"]" * 33: "32 levels",
    b'{"a":' * 33 + b"1" + b"}" * 33: "32 levels",
    b"[" * 40_000 + b"]" * 40_000: "32 levels",
    b"[" * 40_000: "body: expected",  # by version of Python its depth is found first, or its end
    b"[" * 500_000: "at most 50000 values",
    b"[" + b"{}," * 50_000 + b"{}]": "at most 50000 values",
    b'["' + b'","' * 60_000 + b'"]': "at most 50000 values",
    b'["\\\\",' + b'"\\"",' * 60_000 + b"0]": "at most 50000 values",
    b"\xff": "0xff at offset 0",
    b'"\xed\xa0\x80"': "UTF-8",
    b"\xef\xbb\xbf{}": "expecting value",
    b"{} {}": "extra data",
    "{}".encode("utf-16"): "UTF-8",
    b"\x00": "expecting value",
}

HOSTILE_MSGPACK = {
    b"": "msgpack",
    b"\xc1": "msgpack",
    b"\x01\x02": "msgpack",
    b"\xa1\xff": "msgpack",
    b"\xdd\xff\xff\xff\xff": "msgpack",
    b"\x91" * 5_000: "32 levels",
    b"\xdd\x00\x01\x00\x00" + b"\x90" * 65_536: "at most 50000 values",
    b"\xdd\x00\x01\x00\x00" + b"\x80" * 65_536: "at most 50000 values",
    b"\xdd\x00\x01\x00\x00" + b"\x01" * 65_536: "at most 50000 values",
    msgpack.packb({1: 2}): "msgpack",
    msgpack.packb({b"a": 2}): "names that are text",
    b"\x82\xc4\x01a\x01\xc4\x01a\x02": "names that are text",  # the same bytes twice
    b"\x82\xa1a\x01\xa1a\x02": '"a" twice',
    msgpack.packb(float("nan")): "nan",
    msgpack.packb(2**63): "64 bits",
    msgpack.packb(msgpack.ExtType(3, b"")): "extension type",
    b"\xd6\xff\x00\x00\x00\x00": "extension type",
}


@pytest.mark.parametrize(("raw", "said"), HOSTILE_JSON.items(), ids=range(len(HOSTILE_JSON)))
def test_hostile_json_is_refused_with_reasons(raw: bytes, said: str) -> None:
    """Each trick is a BadArgumentsError that says what was found."""
    with pytest.raises(BadArgumentsError) as refused:
        decode_json(raw)

    assert said in refused.value.message
    assert len(refused.value.message) < 250


@pytest.mark.parametrize(("raw", "said"), HOSTILE_MSGPACK.items(), ids=range(len(HOSTILE_MSGPACK)))
def test_hostile_msgpack_is_refused_with_reasons(raw: bytes, said: str) -> None:
    """The other encoding has the same rules."""
    with pytest.raises(BadArgumentsError) as refused:
        decode_msgpack(raw)

    assert said in refused.value.message


def test_the_limits_themselves_pass() -> None:
    """The greatest integers and the deepest nesting that are allowed are read."""
    assert decode_json(b"[9223372036854775807,-9223372036854775808]") == [INTEGER_MAX, INTEGER_MIN]
    assert decode_json(b"[" * 32 + b"]" * 32)
    assert decode_msgpack(msgpack.packb([INTEGER_MAX, INTEGER_MIN])) == [INTEGER_MAX, INTEGER_MIN]
    assert decode_json(b'"' + b"[,{" * 100_000 + b'\\",\\\\"'), "what is in a text is no value"
    assert decode_json(b"[" + b"0," * 49_998 + b"0]")
    assert decode_json(b'"\\ud83d\\ude00"') == "😀"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(PLAIN, st.sampled_from(Encoding))
def test_what_is_written_is_read_back(value: Any, encoding: Encoding) -> None:
    """Every plain value survives both encodings."""
    assert decode(encode(value, encoding), encoding) == value


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_refusal(raw: bytes) -> None:
    """Whatever arrives is read or refused; nothing else is raised."""
    for encoding in Encoding:
        try:
            decode(raw, encoding)
        except BadArgumentsError as refused:
            assert refused.message  # noqa: PT017


@given(st.binary(max_size=100), st.sampled_from(Encoding))
def test_data_survives_in_either_form(data: bytes, encoding: Encoding) -> None:
    """Text, control characters and plain bytes all come back as they were."""
    body = decode(encode(data_fields(data, encoding), encoding), encoding)

    assert from_body(WithData, body).data == data


def test_data_is_text_only_when_a_terminal_can_show_it() -> None:
    """Tab and line ends are text; other control characters and bad UTF-8 are base64."""
    assert data_fields(b"a\tb\r\n", Encoding.JSON) == {"data": "a\tb\r\n"}
    assert data_fields("größer".encode(), Encoding.JSON) == {"data": "größer"}
    for other in (b"\x00", b"\x1b[2J", b"\xff", b"\x7f", "\x85".encode()):
        assert list(data_fields(other, Encoding.JSON)) == ["data_base64"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"timeout": 1},
            "body: found the unknown field 'timeout'; did you mean 'timeout_ms'? The fields are "
            "by, label, timeout_ms",
        ),
        ({"zzz": 1, "yyy": 2}, "body: found the unknown field 'yyy' (and 1 more). The fields are"),
        ({"timeout_ms": "1"}, 'body.timeout_ms: expected an integer, found the text "1"'),
        ({"timeout_ms": 1.5}, "body.timeout_ms: expected an integer, found the number 1.5"),
        ({"timeout_ms": True}, "body.timeout_ms: expected an integer, found true"),
        ({"timeout_ms": -1}, "body.timeout_ms: expected an integer from 1 to"),
        ({"label": 7}, "body.label: expected text, found the number 7"),
        ([], "body: expected an object, found an array of 0"),
        (None, "body: expected an object, found null"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found(body: Any, said: str) -> None:
    """A refusal says where, what was expected and what was found."""
    from coordinator.model.sessions import SessionRequest

    with pytest.raises(BadArgumentsError) as refused:
        from_body(SessionRequest, body)

    assert said in refused.value.message


@pytest.mark.parametrize(
    "body",
    [
        {"data": "a", "data_base64": "YQ=="},
        {"data_base64": "not base64!"},
        {"data_base64": "YQ"},
        {"data_base64": 7},
        {"data": 7},
        {"data": ["a"]},
    ],
)
def test_data_that_means_two_things_or_none_is_refused(body: dict[str, Any]) -> None:
    """Both forms at once, and base64 that is not, are refused."""
    with pytest.raises(BadArgumentsError):
        from_body(WithData, body)


def test_json_is_compact_utf8() -> None:
    """Responses carry no padding and no escapes that a person would have to decode."""
    assert encode({"name": "größer", "n": [1, 2]}) == '{"name":"größer","n":[1,2]}'.encode()
    assert json.loads(encode({"bad": "\udc80"})) == {"bad": "\udc80"}


JSON_TEXTS = [
    b'{"data":"x"}', b'{"data":"\x01"}', b'{"data":"\x7f"}', b'{"a":1,"a":2}', b'{"a":"","a":""}',
    b'{"a":-0}', b'{"a":1.0}', b'{"a":1e3}', b' {"a" : null , "b":true}\n', b'{"a":01}', b'{}', b"",
    b'{"a":18446744073709551616}', b'{"a":9223372036854775808}', b'{"a":-9223372036854775808}',
    b'{"a":"\xed\xa0\x80"}', b'{"a":"\xc3\xa9"}', b'{"a":"\xff"}', b'{"a":NaN}', b'{"a":[]}',
    b'{"a":{}}', b"\xef\xbb\xbf{}", b'{"a":1}x', b'{"a":1,}', b"[1]", b'{"a":"\\u0041"}',
    b'{"a":tru}', b'{"a":"b\tc"}', b'\x0b{"a":1}', b'{"a":1}\x00', b"{'a':1}", b'{"":""}',
    b'{"a":"1","b":"2","a":3,"c":"x"}',
]  # fmt: skip


def _read(raw: bytes, items_max: int) -> object:
    try:
        return repr(decode_json(raw, items_max=items_max))
    except BadArgumentsError as error:
        return error.message


FRAGMENTS = st.text('{}[]":,\\ 01-.etrufalsn\t', max_size=12)


@example(b'{"a":"","a":""}')
@given(st.sampled_from(JSON_TEXTS) | FRAGMENTS.map(str.encode))
def test_a_plain_object_is_read_as_any_other(raw: bytes) -> None:
    """With few values allowed each is counted: the long way comes to the same as the short one,
    whatever is wrong with a text."""
    assert _read(raw, items_max=1_000) == _read(raw, items_max=32)


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=())) | st.dictionaries(st.text(), st.integers()),
    )
)  # fmt: skip
def test_a_plain_object_is_written_as_any_other(value: dict[str, Any]) -> None:
    assert encode_json(value) == encode_json([value])[1:-1]
