"""Every route, asked through both doors with the same request, answers the same.

One row for each route of the table: a route without a row fails. What differs from run to run
(times, ids that were drawn) is compared by its kind.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from coordinator.wire.stream import frames
from tests.wire.serving import NDJSON, Api, serving
from tests.wire.stream.speaking import Speaker, speaking

MSGPACK = "application/msgpack"
LINES = NDJSON["Accept"]
_DRAWN = frozenset({"session_id", "label", "previous", "cluster_id"})
_SESSION_ID = re.compile(r"\b[0-9a-f]{16}\b")
_OF_HTTP = frozenset(
    {"content-length", "content-type", "date", "server", "coordinator-member", "cache-control",
     "x-accel-buffering", "transfer-encoding", "connection"}
)  # fmt: skip
"""Headers that say how HTTP carries it, or what WELCOME has said."""


@dataclass(frozen=True, slots=True)
class Row:
    """One request; ``{session}`` and ``{grant}`` stand for those of the scene."""

    method: str
    target: str
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    lines: int = 0
    """How many lines are compared, of a response that goes on."""


_LEASE = {"lease_ms": 60_000, "timeout_ms": 0}
ROWS: dict[str, Row] = {
    "read_root": Row("GET", "/v1/tree"),
    "read_znode": Row("GET", "/v1/tree/a?children&stat"),
    "head_znode": Row("HEAD", "/v1/tree/a"),
    "create_znode": Row(
        "POST", "/v1/tree/a/new-", {"data": b"\xff", "mode": "persistent_sequential"}
    ),
    "set_data": Row("PUT", "/v1/tree/a?create", {"data": b"two"}),
    "delete_znode": Row("DELETE", "/v1/tree/a?recursive", headers={"if-match": '"0"'}),
    "multi": Row("POST", "/v1/multi", {"operations": [{"op": "read", "path": "/a"}]}),
    "watch": Row("GET", "/v1/watch?path=/a&from_zxid=0", headers={"accept": LINES}, lines=2),
    "watch_many": Row(
        "POST",
        "/v1/watch",
        {"watches": [{"path": "/a", "kind": "children"}], "from_zxid": 0},
        headers={"accept": LINES},
        lines=2,
    ),
    "open_session": Row("POST", "/v1/sessions", {"timeout_ms": 60_000, "label": "new"}),
    "list_sessions": Row("GET", "/v1/sessions?limit=1"),
    "get_session": Row("GET", "/v1/sessions/{session}"),
    "close_session": Row("DELETE", "/v1/sessions/{session}?failure=ill&by=ann"),
    "heartbeat": Row("POST", "/v1/sessions/{session}/heartbeat"),
    "heartbeats": Row("POST", "/v1/sessions/heartbeats", {"session_ids": ["{session}", "none"]}),
    "list_locks": Row("GET", "/v1/locks"),
    "acquire_locks": Row("POST", "/v1/locks", {"names": ["x", "y"], **_LEASE}),
    "get_lock": Row("GET", "/v1/locks/held"),
    "acquire_lock": Row(
        "POST", "/v1/locks/free", {**_LEASE, "kind": "shared"}, {"accept": LINES}, lines=1
    ),
    "release_lock": Row("DELETE", "/v1/locks/held/grants/{grant}"),
    "abandon_lock_attempt": Row("DELETE", "/v1/locks/held/attempts/c1/1?floor_index=1"),
    "downgrade_lock": Row("POST", "/v1/locks/held/grants/{grant}/downgrade", {}),
    "note_lock": Row("PUT", "/v1/locks/held/grants/{grant}/note", {"note": "so far"}),
    "extend_lock": Row("POST", "/v1/locks/short/grants/{short}/extend", {"by_ms": 1_000}),
    "resize_semaphore": Row("PUT", "/v1/locks/sized/size", {"size": 3}),
    "revoke_lock": Row(
        "POST", "/v1/locks/held/revoke", {"grant_id": "{grant}", "by": "ann", "reason": "test"}
    ),
    "list_grants": Row("GET", "/v1/grants?lock=held", headers={"accept": LINES}, lines=1),
    "get_grant": Row("GET", "/v1/grants/held/{grant}"),
    "explain_lock": Row("GET", "/v1/locks/held/why"),
    "diagnose": Row("GET", "/v1/diagnosis"),
    "get_election": Row("GET", "/v1/elections/e?observe", headers={"accept": LINES}, lines=1),
    "campaign": Row("POST", "/v1/elections/e", {**_LEASE, "value": b"\xfe"}),
    "proclaim": Row("PUT", "/v1/elections/e/grants/1-1", {"value": "v"}),
    "resign": Row("DELETE", "/v1/elections/e/grants/1-1"),
    "abandon_campaign": Row("DELETE", "/v1/elections/e/attempts/c1/1"),
    "get_limits": Row("GET", "/v1/limits"),
    "set_limits": Row("PATCH", "/v1/limits", {"limits": {"znodes_max": 999}, "by": "ann"}),
    "get_access": Row("GET", "/v1/access"),
    "set_access": Row("PUT", "/v1/access", {"is_on": False}),
    "init_access": Row("POST", "/v1/access/init", {"token_id": "first000", "digest": b"\xfd" * 32}),
    "get_caller": Row("GET", "/v1/access/me"),
    "explain_access": Row("GET", "/v1/access/can?identity=ann&verb=read&resource=/a"),
    "list_roles": Row("GET", "/v1/access/roles"),
    "put_role": Row(
        "PUT", "/v1/access/roles/new", {"rules": [{"prefix": "/a", "verbs": ["read"]}]}
    ),
    "drop_role": Row("DELETE", "/v1/access/roles/spare"),
    "list_identities": Row("GET", "/v1/access/identities?limit=1"),
    "put_identity": Row("PUT", "/v1/access/identities/new", {"roles": ["spare"]}),
    "list_quotas": Row("GET", "/v1/access/quotas?limit=1"),
    "get_quota": Row("GET", "/v1/access/identities/ann/quota"),
    "set_quota": Row(
        "PATCH", "/v1/access/identities/ann/quota", {"quota": {"znodes": 9, "bytes": -1}}
    ),
    "drop_identity": Row("DELETE", "/v1/access/identities/ann"),
    "add_token": Row(
        "POST", "/v1/access/identities/ann/tokens", {"token_id": "more0000", "digest": b"\xfe" * 32}
    ),
    "drop_token": Row("DELETE", "/v1/access/tokens/spare000"),
    "backup": Row("GET", "/v1/backup"),
    "status": Row("GET", "/v1/status"),
    "upgrade_status": Row("GET", "/v1/upgrade"),
    "finish_upgrade": Row("POST", "/v1/upgrade/finish", body={"by": "ops"}),
    "hand_over": Row("POST", "/v1/members/handover"),
    "set_log_level": Row("PUT", "/v1/members/log-level", {"level": "warning"}),
    "list_deadlocks": Row("GET", "/v1/deadlocks"),
    "list_members": Row("GET", "/v1/members"),
    "health_live": Row("GET", "/health/live"),
    "health_live_head": Row("HEAD", "/health/live"),
    "health_ready": Row("GET", "/health/ready"),
    "health_ready_head": Row("HEAD", "/health/ready"),
    "metrics": Row("GET", "/metrics"),
    "openapi": Row("GET", "/openapi.json"),
    "root": Row("GET", "/"),
    "root_head": Row("HEAD", "/"),
    "console": Row("GET", "/console"),
    "console_head": Row("HEAD", "/console"),
    "console_file": Row("GET", "/console/index.html"),
    "console_file_head": Row("HEAD", "/console/index.html"),
    "learn": Row("GET", "/learn"),
    "learn_head": Row("HEAD", "/learn"),
    "learn_file": Row("GET", "/learn/index.html"),
    "learn_file_head": Row("HEAD", "/learn/index.html"),
}
ODD: dict[str, Row] = {
    "a client id that is none": Row("DELETE", "/v1/locks/held/attempts/c%201/1"),
    "a path that is plain otherwise": Row("GET", "/v1/tree/%61"),
    "a literal that is escaped": Row("GET", "/v1/%74ree/a"),
    "an escaped slash": Row("GET", "/v1/tree/a%2Fb"),
    "dots": Row("GET", "/v1/tree/a/../b"),
    "an escaped line end": Row("GET", "/v1/tree/a%0a"),
    "a bad escape": Row("GET", "/v1/tree/a%"),
    "an empty name in a path": Row("GET", "/v1/tree/a//b"),
    "the root with a slash": Row("GET", "/v1/tree/"),
    "a write to the root": Row("POST", "/v1/tree", {"data": b""}),
    "no name": Row("GET", "/v1/locks/"),
    "no name in between": Row("DELETE", "/v1/locks//grants/1-1"),
    "a name that is a route's": Row("GET", "/v1/sessions/heartbeats"),
    "a name that is a route's, with more": Row("POST", "/v1/sessions/heartbeats/heartbeat"),
    "no route": Row("GET", "/v2/tree"),
    "a route with more": Row("GET", "/v1/status/more"),
    "no method": Row("PATCH", "/v1/tree/a", {}),
    "an unknown method": Row("OPTIONS", "/v1/locks/a"),
    "a query that is none": Row("GET", "/v1/tree/a?nonsense=1"),
    "a query twice": Row("GET", "/v1/tree/a?limit=1&limit=2&children"),
    "raw data": Row("GET", "/v1/tree/a?raw"),
    "raw data, written": Row(
        "PUT", "/v1/tree/a?raw", b"raw", {"content-type": "application/octet-stream"}
    ),
    "a body of another type": Row("PUT", "/v1/tree/a", b"{}", {"content-type": "text/plain"}),
    "an unchanged znode": Row("GET", "/v1/tree/a", headers={"if-none-match": "*"}),
    "a precondition of no use": Row("POST", "/v1/multi", {}, {"if-match": '"1"'}),
    "a create with a precondition": Row("POST", "/v1/tree/n", {}, {"if-match": '"1"'}),
    "a body that is none": Row("PUT", "/v1/tree/a", b"\xc1"),
    "a body with more": Row("PUT", "/v1/tree/a", {"data": b"", "dta": 1}),
    "a body with a delete": Row("DELETE", "/v1/tree/a", {}),
    "a body with a watch": Row("GET", "/v1/watch?path=/a", {}),
    "a body over the bound of its route": Row("PUT", "/v1/locks/held/size", b"x" * 70_000),
    "a body over the bound of all": Row("PUT", "/v1/tree/a", b"x" * 1_572_865),
    "data over the limit": Row("PUT", "/v1/tree/a", {"data": b"x" * 1_500_000}),
    "a znode that is not there": Row("GET", "/v1/tree/nothing"),
    "a time-out that is none": Row("GET", "/v1/tree/a", headers={"coordinator-timeout-ms": "soon"}),
    "half a request number": Row(
        "PUT", "/v1/tree/a", {"data": b""}, {"coordinator-client-id": "c"}
    ),
    "a heartbeat with a body": Row("POST", "/v1/sessions/{session}/heartbeat", {"a": 1}),
    "a session that is not there": Row("POST", "/v1/sessions/none/heartbeat"),
    "a held lock, tried": Row("POST", "/v1/locks/held", dict(_LEASE)),
    "a lock that is waited for with a number": Row(
        "POST",
        "/v1/locks/held",
        dict(_LEASE),
        {"coordinator-client-id": "c", "coordinator-request-number": "1"},
    ),
}


@dataclass(frozen=True, slots=True)
class Heard:
    """What a door answered."""

    status: int
    headers: dict[str, str]
    body: Any
    lines: list[Any]


async def _made(api: Api) -> dict[str, str]:
    """Make the scene; return what stands for what in a row."""
    await api.post("/v1/tree/a", {"data": "one"})
    await api.post("/v1/tree/a/b", {"data_base64": "/w=="})
    session_id = await api.session_id()
    body = {"session_id": session_id, "timeout_ms": 0}
    grant = (await api.post("/v1/locks/held", body)).body["grant"]
    bounded = {"session_id": await api.session_id(), "timeout_ms": 0, "max_hold_ms": 600_000}
    short = (await api.post("/v1/locks/short", bounded)).body["grant"]
    await api.post("/v1/locks/sized", {**body, "kind": "slot", "size": 2})
    await api.put("/v1/access/roles/spare", {"rules": [{"prefix": "/b", "verbs": ["lock"]}]})
    await api.put("/v1/access/identities/ann", {"subjects": ["cert:coordinator://main/ann"]})
    spare = {"token_id": "spare000", "digest_base64": "/" * 42 + "8="}
    await api.post("/v1/access/identities/ann/tokens", spare)
    known = {"{session}": session_id, "{grant}": grant["grant_id"]}
    return {**known, "{short}": short["grant_id"]}


def _filled(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, str):
        for name, found in names.items():
            value = value.replace(name, found)
    if isinstance(value, dict):
        return {key: _filled(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, names) for each in value]
    return value


async def _by_http(row: Row, api: Api) -> Heard:
    names = await _made(api)
    raw = _raw(_filled(row.body, names))
    headers = {"Accept": MSGPACK, "Content-Type": MSGPACK, "Coordinator-Test": "1"}
    if raw is None:
        del headers["Content-Type"]
    headers.update({name.title(): value for name, value in row.headers.items()})
    target = _filled(row.target, names)
    if not row.lines:
        reply = await api.call(
            row.method, target, headers=headers, data=raw, without_type=raw is None
        )
        found = {name.lower(): value for name, value in reply.headers.items()}
        return Heard(reply.status, found, _decoded(reply.raw, found.get("content-type")), [])
    from yarl import URL

    url = URL(api.server.url + target, encoded=True)
    async with api.session.request(row.method, url, headers=headers, data=raw) as response:
        found = {name.lower(): value for name, value in response.headers.items()}
        lines = []
        while len(lines) < row.lines:
            line = await response.content.readline()
            lines += [json.loads(line)] if line.strip() else []
        return Heard(response.status, found, None, lines)


async def _by_stream(row: Row, api: Api, speaker: Speaker) -> Heard:
    names = await _made(api)
    request = speaker.request(
        row.method, _filled(row.target, names), _raw(_filled(row.body, names))
    )
    request = msgspec.structs.replace(request, headers=row.headers)
    speaker.send(request)
    if not row.lines:
        answer = await speaker.expect(frames.AnswerFrame)
        kind = answer.headers.get("content-type", MSGPACK)
        return Heard(answer.status, answer.headers, _decoded(answer.body, kind), [])
    head = await speaker.expect(frames.Head)
    lines = [msgspec.msgpack.decode((await speaker.expect(frames.Line)).body)]
    while len(lines) < row.lines:
        lines.append(msgspec.msgpack.decode((await speaker.expect(frames.Line)).body))
    return Heard(head.status, head.headers, None, lines)


def _raw(body: Any) -> bytes | None:
    return body if body is None or isinstance(body, bytes) else msgspec.msgpack.encode(body)


def _decoded(raw: bytes, kind: str | None) -> Any:
    if not raw:
        return None
    if kind == MSGPACK:
        return msgspec.msgpack.decode(raw)
    if kind is not None and "json" in kind:
        return json.loads(raw)
    return raw


def _comparable(value: Any, name: str = "") -> Any:
    """Return ``value``, with what differs from run to run as its kind."""
    if isinstance(value, dict):
        return {key: _comparable(each, key) for key, each in value.items()}
    if isinstance(value, list) and name != "sentences":  # which say times
        return [_comparable(each) for each in value]
    if isinstance(value, list) or name in _DRAWN or name.endswith("_ms"):
        return type(value).__name__
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, str):
        return _SESSION_ID.sub("...", value)
    return value


def _said(heard: Heard, row: Row) -> tuple[Any, ...]:
    headers = {name: each for name, each in heard.headers.items() if name not in _OF_HTTP}
    if row.target == "/v1/sessions":
        headers.pop("location")  # of the session that was drawn
    body = None if row.target == "/metrics" else _comparable(heard.body)
    return heard.status, headers, body, [_comparable(_as_json(each)) for each in heard.lines]


def _as_json(line: Any) -> Any:
    """Return a line with its bytes as JSON has them: data of a line is text there if it can be."""
    if isinstance(line, dict):
        return {name: _as_json(each) for name, each in line.items()}
    return line.decode() if isinstance(line, bytes) else line


async def test_every_route_has_a_row() -> None:
    """A new route is asked through both doors."""
    async with serving() as api:
        known = {route.operation_id for route in api.server._what.routes}

    assert set(ROWS) == known


@pytest.mark.parametrize("name", [*ROWS, *ODD])
async def test_both_doors_answer_the_same(name: str) -> None:
    """Status, headers, body and lines; each of a member of its own in the same state."""
    row = ROWS.get(name) or ODD[name]
    async with serving() as api:
        by_http = await _by_http(row, api)
    async with serving() as api, speaking(api.server.port) as speaker:
        by_stream = await _by_stream(row, api, speaker)

    assert _said(by_stream, row) == _said(by_http, row)


async def test_the_rows_are_requests_that_are_done() -> None:
    """Nearly all are answered with what was asked for, so that there is something to compare."""
    refused = []
    for name, row in ROWS.items():
        async with serving() as api, speaking(api.server.port) as speaker:
            if (await _by_stream(row, api, speaker)).status >= 400:
                refused.append(name)

    # Of a member that is alone, which has nobody to hand over to, and keeps nothing on a disk that
    # a backup could be made of; and / leads browsers alone.
    assert refused == ["proclaim", "resign", "backup", "hand_over", "root", "root_head"]


_OF_A_QUEUE = re.compile(r"^(/v1/(?:locks|elections|grants)/)[^/?]+")
_NO_NAME = "%2Fdaily-report"


def _with_a_path() -> dict[str, Row]:
    """Return the rows that name a lock or an election, each with a path instead."""
    rows = {
        name: replace(row, target=_OF_A_QUEUE.sub(rf"\g<1>{_NO_NAME}", row.target), lines=0)
        for name, row in ROWS.items()
        if _OF_A_QUEUE.match(row.target)
    }
    condition = {"lock": "/daily-report", "fencing_token": 1}
    return {
        **rows,
        "acquire_locks": Row("POST", "/v1/locks", {"names": ["a", "/daily-report"], **_LEASE}),
        "list_grants": Row("GET", f"/v1/grants?lock={_NO_NAME}"),
        "list_grants of an election": Row("GET", f"/v1/grants?election={_NO_NAME}"),
        "a condition": Row("PUT", "/v1/tree/a", {"data": b"", "if_held": condition}),
        "a condition in a query": Row("DELETE", f"/v1/tree/a?if_held={_NO_NAME}:1"),
        "a condition on an election": Row("DELETE", f"/v1/tree/a?if_elected={_NO_NAME}:1"),
    }


@pytest.mark.parametrize("name", _with_a_path())
async def test_a_path_is_no_name_of_a_lock_or_an_election(name: str) -> None:
    """``/daily-report`` would be another lock than ``daily-report``; both doors say what to write.

    So do routes that come later, each of which has a row."""
    row = _with_a_path()[name]
    async with serving() as api:
        answers = [await _by_http(row, api)]
    async with serving() as api, speaking(api.server.port) as speaker:
        answers.append(await _by_stream(row, api, speaker))

    for each in answers:
        assert (each.status, each.body["code"]) == (400, "BadArguments")
        assert "write 'daily-report'" in each.body["detail"]
