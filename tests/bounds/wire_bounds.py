"""Every bound of what is read from a client or a member before anything is done."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import CoordinatorError
from coordinator.guards import tokens
from coordinator.model import acquire, contention, fields, grants
from coordinator.model.contention import HolderInfo
from coordinator.model.sessions import SessionRequest
from coordinator.node import secret_file
from coordinator.raft.network import agreement, frames
from coordinator.raft.network.messages import FrameError
from coordinator.service.locks import contenders, holder_info
from coordinator.wire import strict_json
from coordinator.wire.codec import from_body
from coordinator.wire.if_held import read_if_held
from coordinator.wire.lock_requests import read_acquire, read_acquire_several
from coordinator.wire.multi import read_multi
from coordinator.wire.routes import queries
from coordinator.wire.stream import frames as stream_frames
from tests.bounds.machine_bounds import Bound


def is_read(read: Callable[[], object]) -> bool:
    """Say whether something is read; a refusal is one of our errors, and no other."""
    try:
        read()
    except (CoordinatorError, FrameError):
        return False
    return True


def reads_credential(length: int) -> bool:
    """Say whether a member reads a credential of so many characters from the stream."""
    reader = stream_frames.from_client(64 * 1024)
    reader.feed(stream_frames.encoded(stream_frames.Credential("t" * length)))
    return is_read(lambda: list(reader.take(1)))


def acquiring(**changed: Any) -> bool:
    body = {"session_id": "s1", **changed}
    return is_read(lambda: read_acquire_several(body) if "names" in changed else read_acquire(body))


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def reads_frame(length: int) -> bool:
    reader = frames.PayloadReader(100)
    reader.feed(frames.frame(b"x" * length))
    return is_read(reader.next)


def is_secret(length: int, different: int = 16) -> bool:
    letters = b"0123456789abcdef"[:different]
    return secret_file.is_strong((letters * length)[:length])


def shows(count: int, name_bytes: int = 6, value_bytes: int = 1) -> bool:
    facts = [
        agreement.Fact(f"{number:0{name_bytes}d}", value="v" * value_bytes, advice="")
        for number in range(count)
    ]
    return is_read(lambda: agreement.check_facts(facts))


def _json_items(count: int) -> bytes:
    """Return an array with ``count`` values, itself counted."""
    return b"[" + b",".join([b"1"] * (count - 1)) + b"]"


def _packed_items(count: int) -> bytes:
    return b"\xdd" + (count - 1).to_bytes(4, "big") + b"\x01" * (count - 1)


def of_bodies() -> Iterator[Bound]:
    """Bodies of requests, in both encodings."""
    json_of, pack = strict_json.decode_json, strict_json.decode_msgpack
    yield Bound("strict_json.DEPTH_MAX", strict_json.DEPTH_MAX, lambda n: is_read(
        lambda: json_of(nested(n))))  # fmt: skip
    yield Bound("strict_json.DEPTH_MAX", strict_json.DEPTH_MAX, lambda n: is_read(
        lambda: pack(b"\x91" * (n - 1) + b"\x90")))  # fmt: skip
    yield Bound("fields.INTEGER_MAX", fields.INTEGER_MAX, lambda n: is_read(
        lambda: json_of(json.dumps(n).encode())))  # fmt: skip
    yield Bound("fields.INTEGER_MAX", fields.INTEGER_MAX, lambda n: is_read(
        lambda: pack(msgpack.packb(n))))  # fmt: skip
    yield Bound("fields.INTEGER_MIN", fields.INTEGER_MIN, lambda n: is_read(
        lambda: json_of(json.dumps(n).encode())), is_least=True)  # fmt: skip
    for items, decode in ((_json_items, json_of), (_packed_items, pack)):
        yield Bound("strict_json.ITEMS_MAX", strict_json.ITEMS_MAX, lambda n, i=items, d=decode: (
            is_read(lambda: d(i(n)))))  # fmt: skip
    yield Bound("queries: greatest number", 10_000, lambda n: is_read(
        lambda: queries.parsed_integer(str(n), "limit", maximum=10_000)))  # fmt: skip
    yield Bound("queries: least number", 1, lambda n: is_read(
        lambda: queries.parsed_integer(str(n), "limit", minimum=1)), is_least=True)  # fmt: skip
    yield Bound("queries._PARAMETERS_MAX", queries._PARAMETERS_MAX, lambda n: is_read(
        lambda: queries.Query("&".join(["if_held=a:1"] * n), ("if_held",))))  # fmt: skip
    one = {"lock": "a", "fencing_token": 1}
    yield Bound("acquire.IF_HELD_MAX", acquire.IF_HELD_MAX, lambda n: is_read(
        lambda: read_if_held({"if_held": [one] * n})))  # fmt: skip
    yield Bound("fields.INTEGER_MAX", fields.INTEGER_MAX, lambda n: is_read(
        lambda: read_multi({"operations": [
            {"op": "delete", "path": "/a", "expected_version": n}]})))  # fmt: skip


def of_locks() -> Iterator[Bound]:
    """Wishes to hold."""
    named, module = "contention.", contention
    named_fields = {
        "WAIT_MS_MAX": "timeout_ms", "LOCK_DELAY_MS_MAX": "lock_delay_ms",
        "MAX_HOLD_MS_MAX": "max_hold_ms", "PID_MAX": "pid",
    }  # fmt: skip
    for constant, field in named_fields.items():
        yield Bound(
            f"{named}{constant}", getattr(module, constant), lambda n, f=field: acquiring(**{f: n})
        )
    yield Bound("acquire: least wait", 0, lambda n: acquiring(timeout_ms=n), is_least=True)
    yield Bound("acquire: least lease", 1, lambda n: acquiring(lease_ms=n, session_id=None),
                is_least=True)  # fmt: skip
    yield Bound(f"{named}SIZE_MAX", module.SIZE_MAX, lambda n: acquiring(kind="slot", size=n))
    yield Bound(f"{named}OWNER_CHARACTERS_MAX", module.OWNER_CHARACTERS_MAX, lambda n: acquiring(
        owner="o" * n))  # fmt: skip
    yield Bound(f"{named}NAMES_MAX", module.NAMES_MAX, lambda n: acquiring(
        names=[f"l{number}" for number in range(n)]))  # fmt: skip
    for field in ("label", "host", "trace_id", "guard"):
        yield Bound(
            "fields.TEXT_CHARACTERS_MAX", fields.TEXT_CHARACTERS_MAX,
            lambda n, f=field: acquiring(**{f: "x" * n}),
        )  # fmt: skip
    yield Bound("grants.NOTE_BYTES_MAX", grants.NOTE_BYTES_MAX, lambda n: is_read(
        lambda: from_body(grants.NoteRequest, {"note": "x" * n})))  # fmt: skip
    yield Bound(
        "fields.TEXT_CHARACTERS_MAX", fields.TEXT_CHARACTERS_MAX,
        lambda n: is_read(lambda: from_body(SessionRequest, {"label": "x" * n})),
    )  # fmt: skip
    yield Bound("contenders._NAME_CHARS_MAX", contenders._NAME_CHARS_MAX, lambda n: is_read(
        lambda: contenders.LOCKS.directory("x" * n)))  # fmt: skip
    beside = len(holder_info.holder_data(HolderInfo("x" * 300))) - 300
    yield Bound(
        "holder_info._HOLDER_BYTES_MAX", holder_info._HOLDER_BYTES_MAX,
        lambda n: is_read(
            lambda: holder_info.holder_data(HolderInfo("x" * (n - beside)))
        ),
    )  # fmt: skip
    yield Bound("tokens.TOKEN_MAX", tokens.TOKEN_MAX, lambda n: is_read(
        lambda: tokens.checked_token(n)))  # fmt: skip
    yield Bound("tokens: least token", 1, lambda n: is_read(
        lambda: tokens.checked_token(n)), is_least=True)  # fmt: skip
    yield Bound("tokens.RESOURCE_BYTES_MAX", tokens.RESOURCE_BYTES_MAX, lambda n: is_read(
        lambda: tokens.checked_resource("x" * n)))  # fmt: skip


def of_members() -> Iterator[Bound]:
    """What members send each other, and the file that proves who they are."""
    yield Bound("frames.frame_bytes_max", 100, reads_frame)
    yield Bound("frames.AUTHORIZATION_CHARACTERS_MAX",
        stream_frames.AUTHORIZATION_CHARACTERS_MAX, reads_credential)  # fmt: skip
    yield Bound("agreement.FACTS_MAX", agreement.FACTS_MAX, shows)
    yield Bound("agreement.NAME_BYTES_MAX", agreement.NAME_BYTES_MAX, lambda n: shows(1, n))
    yield Bound("agreement.VALUE_BYTES_MAX", agreement.VALUE_BYTES_MAX, lambda n: shows(1, 6, n))
    yield Bound("secret_file.FILE_BYTES_MAX", secret_file.FILE_BYTES_MAX, is_secret)
    yield Bound("secret_file: least characters", 43, is_secret, is_least=True)
    yield Bound(
        "secret_file._DIFFERENT_MIN", secret_file._DIFFERENT_MIN,
        lambda n: is_secret(64, n), is_least=True,
    )  # fmt: skip


BOUNDS = (*of_bodies(), *of_locks(), *of_members())
