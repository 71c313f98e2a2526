"""/v1/tree and /v1/multi, over a socket."""

from __future__ import annotations

import base64
from typing import Any

import msgpack
import pytest

from coordinator.node.config import HttpConfig
from coordinator.raft.engine import Applied
from coordinator.raft.loopback import LoopbackEngine
from tests.wire.serving import MSGPACK, Api, serving


async def test_a_znode_is_created_read_changed_and_deleted(api: Api) -> None:
    """The life of a znode, with the headers that say where one stands."""
    created = await api.post("/v1/tree/config", {"data": "größer"})
    read = await api.get("/v1/tree/config")
    written = await api.put("/v1/tree/config", {"data": "b"}, **{"If-Match": '"0"'})
    deleted = await api.delete("/v1/tree/config?expected_version=1")
    gone = await api.get("/v1/tree/config")

    assert (created.status, created.headers["Location"]) == (201, "/v1/tree/config")
    assert created.body["stat"] == read.body["stat"]
    assert (read.status, read.body["data"], read.headers["ETag"]) == (200, "größer", '"0-1"')
    assert (written.status, written.headers["ETag"]) == (200, '"1-1"')
    assert (deleted.status, deleted.body) == (200, {"path": "/config", "deleted_count": 1})
    assert (gone.status, gone.code) == (404, "NoNode")
    assert [r.headers["Coordinator-Zxid"] for r in (created, read, written, deleted, gone)] == list(
        "11233"
    )
    for reply in (created, read, written, deleted, gone):
        assert reply.headers["Coordinator-Member"] == "1"
        assert reply.headers["Coordinator-Index"].isdecimal()
        assert reply.headers["Server"] == "coordinator"


async def test_bytes_travel_as_base64_raw_and_msgpack(api: Api) -> None:
    """What is not text is not forced to be."""
    data = b"\x00\xff\x1b"
    await api.post("/v1/tree/a", {"data_base64": base64.b64encode(data).decode()})
    raw = await api.call("POST", "/v1/tree/b?raw&mode=persistent_sequential", data=data)
    packed = await api.call(
        "POST", "/v1/tree/c", data=msgpack.packb({"data": data}), headers=MSGPACK
    )

    assert (await api.get("/v1/tree/a")).body["data_base64"] == "AP8b"
    again = await api.get("/v1/tree/a?raw")
    assert (again.raw, again.headers["Content-Type"]) == (data, "application/octet-stream")
    assert again.headers["ETag"] == '"0-1"'
    assert raw.body["path"] == "/b0000000000"
    assert (await api.get("/v1/tree/b0000000000?raw")).raw == data
    assert msgpack.unpackb(packed.raw)["path"] == "/c"
    read = await api.get("/v1/tree/c", Accept="application/msgpack")
    assert read.headers["Content-Type"] == "application/msgpack"
    assert msgpack.unpackb(read.raw)["data"] == data
    await api.call("PUT", "/v1/tree/c?raw&expected_version=0", data=b"")
    assert (await api.get("/v1/tree/c?raw")).raw == b""


async def test_every_create_mode_is_there(api: Api) -> None:
    """Sequences, sessions, containers and time to live."""
    session_id = await api.session_id()
    for number in range(2):
        reply = await api.post("/v1/tree/n-", {"mode": "persistent_sequential"})
        assert reply.body["path"] == f"/n-{number:010d}"
        assert reply.headers["Location"] == f"/v1/tree/n-{number:010d}"
    ephemeral = await api.post("/v1/tree/e", {"mode": "ephemeral", "session_id": session_id})
    assert ephemeral.body["stat"]["ephemeral_owner"] == session_id
    ttl = await api.post("/v1/tree/t", {"mode": "ttl", "ttl_ms": 60_000})
    assert ttl.body["stat"]["ttl_ms"] == 60_000
    deep = await api.post("/v1/tree/x/y/z", {"parents": "container"})
    assert deep.status == 201
    assert (await api.get("/v1/tree/x/y")).body["stat"]["mode"] == "container"
    raw = await api.call("POST", f"/v1/tree/r?raw&mode=ephemeral&session_id={session_id}")
    assert raw.status == 201
    assert (await api.post("/v1/tree/q/y", {})).code == "NoNode"
    assert (await api.post("/v1/tree/e/y", {})).code == "NoChildrenForEphemerals"
    assert (await api.post("/v1/tree/e", {})).code == "NodeExists"


async def test_children_come_in_pages(api: Api) -> None:
    """A listing is sorted and continues after a name."""
    for name in ("b", "a", "c", "%C3%A4"):
        await api.post(f"/v1/tree/p/{name}", {"parents": "persistent"})

    first = (await api.get("/v1/tree/p?children&limit=2")).body
    rest = (await api.get(f"/v1/tree/p?children&limit=2&after={first['next']}")).body
    full = (await api.get("/v1/tree/p?children&stat=true&limit=1")).body

    assert (first["children"], first["next"], first["path"]) == (["a", "b"], "b", "/p")
    assert (rest["children"], rest["next"]) == (["c", "ä"], None)
    assert first["stat"]["num_children"] == 4
    assert full["children"][0]["name"] == "a"
    assert full["children"][0]["stat"]["version"] == 0
    assert (await api.get("/v1/tree?children")).body["children"] == ["p"]
    assert (await api.get("/v1/tree/?children")).body["children"] == ["p"]


async def test_conditions_hold_or_nothing_changes(api: Api) -> None:
    """Versions by header, body or query; a refusal says which version is there."""
    await api.post("/v1/tree/a", {"data": "1"})
    await api.put("/v1/tree/a", {"data": "2", "expected_version": 0})

    stale = await api.put("/v1/tree/a", {"data": "3", "expected_version": 0})
    by_header = await api.delete("/v1/tree/a", **{"If-Match": '"0"'})
    both = await api.put("/v1/tree/a", {"data": "3", "expected_version": 0}, **{"If-Match": '"1"'})

    assert (stale.status, stale.code, stale.body["current_version"]) == (412, "BadVersion", 1)
    assert by_header.code == "BadVersion"
    assert both.code == "BadArguments"
    for tag in ('W/"1"', "1", '"1", "2"', '"x"', '"9223372036854775808"'):
        assert (await api.delete("/v1/tree/a", **{"If-Match": tag})).code == "BadArguments"
    assert (await api.get("/v1/tree/a")).body["data"] == "2"
    assert (await api.delete("/v1/tree/a", **{"If-Match": "*"})).status == 200


async def test_unchanged_data_is_not_sent_again(api: Api) -> None:
    """If-None-Match and HEAD say the same with fewer bytes."""
    await api.post("/v1/tree/a", {"data": "12345"})

    unchanged = await api.get("/v1/tree/a", **{"If-None-Match": '"7-1", "0-1"'})
    anything = await api.get("/v1/tree/a", **{"If-None-Match": "*"})
    changed = await api.get("/v1/tree/a", **{"If-None-Match": '"7"'})
    head = await api.call("HEAD", "/v1/tree/a?raw")

    assert (unchanged.status, unchanged.raw, unchanged.headers["ETag"]) == (304, b"", '"0-1"')
    assert anything.status == 304
    assert changed.status == 200
    assert (head.status, head.raw, head.headers["Content-Length"]) == (200, b"", "5")
    assert (await api.call("HEAD", "/v1/tree/b")).status == 404


async def test_an_etag_names_one_incarnation(api: Api) -> None:
    """Versions begin anew when a znode does: what was seen of the old one is not taken for it."""
    await api.post("/v1/tree/a", {"data": "old"})
    seen = (await api.get("/v1/tree/a")).headers["ETag"]
    await api.delete("/v1/tree/a")
    created = await api.post("/v1/tree/a", {"data": "new"})

    read = await api.get("/v1/tree/a", **{"If-None-Match": seen})
    written = await api.put("/v1/tree/a", {"data": "mine"}, **{"If-Match": seen})
    deleted = await api.delete("/v1/tree/a", **{"If-Match": seen})
    torn = await api.delete("/v1/tree/a?expected_czxid=1", **{"If-Match": created.headers["ETag"]})
    known = await api.put("/v1/tree/a", {"data": "b"}, **{"If-Match": created.headers["ETag"]})

    assert (read.status, read.body["data"]) == (200, "new")
    assert (written.status, written.code) == (412, "BadVersion")
    assert (deleted.status, deleted.code) == (412, "BadVersion")
    assert torn.code == "BadArguments"
    assert (known.status, known.headers["ETag"], known.body["path"]) == (200, '"1-3"', "/a")
    gone = await api.put("/v1/tree/gone", {"data": "b"}, **{"If-Match": seen})
    assert (gone.status, gone.code) == (404, "NoNode")


@pytest.mark.parametrize(
    ("method", "query", "name", "value"),
    [
        ("PUT", "", "If-None-Match", "*"),
        ("PUT", "?create", "If-None-Match", "*"),
        ("PUT", "?create", "If-Match", "*"),
        ("PUT", "", "If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT"),
        ("DELETE", "", "If-None-Match", '"0"'),
        ("POST", "", "If-Match", '"0"'),
        ("POST", "", "If-None-Match", '"0"'),
    ],
)
async def test_a_condition_is_judged_or_refused(
    api: Api, method: str, query: str, name: str, value: str
) -> None:
    """Who asks not to overwrite must not learn by the loss that nobody listened."""
    path = "/v1/tree/b" if method == "POST" else "/v1/tree/a"
    await api.post("/v1/tree/a", {"data": "kept"})

    body = None if method == "DELETE" else {"data": "x"}
    reply = await api.call(method, path + query, body, headers={name: value})

    assert (reply.status, reply.code) == (400, "BadArguments")
    assert name in reply.body["detail"] or "found both" in reply.body["detail"]
    assert (await api.get("/v1/tree/a")).body["data"] == "kept"
    assert (await api.get("/v1/tree/b")).status == 404


async def test_a_create_may_say_that_it_is_one(api: Api) -> None:
    """``If-None-Match: *`` is what a POST means anyway."""
    first = await api.post("/v1/tree/a", {"data": "1"}, **{"If-None-Match": "*"})
    second = await api.post("/v1/tree/a", {"data": "2"}, **{"If-None-Match": "*"})

    assert (first.status, second.status) == (201, 409)


@pytest.mark.parametrize(
    ("accept", "is_msgpack"),
    [
        ("application/msgpack", True),
        ("application/msgpack;q=0", False),
        ("application/msgpack;q=0, application/json", False),
        ("application/msgpack;q=0.5, application/json;q=0.9", False),
        ("application/json;q=0.2, application/x-msgpack", True),
        ("application/msgpack;q=x", True),
        ("text/html, */*", False),
        ("application/vnd.msgpack-like", False),
    ],
)
async def test_accept_is_weighed(api: Api, accept: str, is_msgpack: bool) -> None:
    """A format that is not wanted is not sent; JSON where it is left open."""
    reply = await api.get("/v1/tree", Accept=accept)

    kind = "application/msgpack" if is_msgpack else "application/json"
    assert reply.headers["Content-Type"] == kind


async def test_a_compressed_body_is_named(api: Api) -> None:
    """Not as bad UTF-8, which it would be next."""
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    reply = await api.call("POST", "/v1/tree/a", data=b"\x1f\x8b\x08", headers=headers)
    plain = await api.post("/v1/tree/a", {"data": "x"}, **{"Content-Encoding": "identity"})

    assert reply.code == "BadArguments"
    assert "Content-Encoding" in reply.body["detail"]
    assert plain.status == 201


async def test_put_with_create_writes_in_any_case(api: Api) -> None:
    """An upsert says whether it created, and is one command."""
    first = await api.put("/v1/tree/a?create", {"data": "1"})
    second = await api.call("PUT", "/v1/tree/a?create&raw", data=b"2")
    refused = await api.put("/v1/tree/a?create", {"data": "3", "expected_version": 1})

    assert (first.status, first.headers["Location"]) == (201, "/v1/tree/a")
    assert (second.status, second.body["stat"]["version"]) == (200, 1)
    assert refused.code == "BadArguments"


class _Log(LoopbackEngine):
    """The loopback engine, and what was proposed to it."""

    def __init__(self) -> None:
        super().__init__()
        self.proposed: list[bytes] = []

    async def propose(self, command: bytes, *, is_patient: bool = False) -> Applied:
        self.proposed.append(command)
        return await super().propose(command, is_patient=is_patient)


async def test_put_with_create_has_its_data_in_the_log_once() -> None:
    """Whether it creates or sets: a megabyte is one of proposals, of the journal and of links."""
    log = _Log()
    async with serving(engine=log) as api:
        assert (await api.put("/v1/tree/a?create", {"data": "the first"})).status == 201
        assert (await api.put("/v1/tree/a?create", {"data": "the second"})).status == 200

    for data in (b"the first", b"the second"):
        assert sum([command.count(data) for command in log.proposed]) == 1


async def test_a_subtree_goes_only_when_asked(api: Api) -> None:
    """Recursive is explicit."""
    await api.post("/v1/tree/a/b/c", {"parents": "persistent"})

    assert (await api.delete("/v1/tree/a")).code == "NotEmpty"
    assert (await api.delete("/v1/tree/a?recursive")).body["deleted_count"] == 3


async def test_a_repeated_request_number_gets_the_first_outcome(api: Api) -> None:
    """The headers make a write exactly-once; a refusal is remembered as well."""
    headers = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
    first = await api.post("/v1/tree/n-", {"mode": "persistent_sequential"}, **headers)
    again = await api.post("/v1/tree/n-", {"mode": "persistent_sequential"}, **headers)

    assert first.body == again.body
    assert (await api.get("/v1/tree?children")).body["children"] == ["n-0000000000"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Coordinator-Client-Id": "c"},
        {"Coordinator-Request-Number": "1"},
        {"Coordinator-Client-Id": "c", "Coordinator-Request-Number": "0"},
        {"Coordinator-Client-Id": "c", "Coordinator-Request-Number": "+1"},
        {"Coordinator-Client-Id": "c d", "Coordinator-Request-Number": "1"},
        {"Coordinator-Client-Id": "c" * 65, "Coordinator-Request-Number": "1"},
        {
            "Coordinator-Client-Id": "c",
            "Coordinator-Request-Number": "1",
            "Coordinator-Floor-Index": "-1",
        },
        {"Coordinator-Timeout-Ms": "0"},
        {"Coordinator-Timeout-Ms": "60001"},
        {"Coordinator-Timeout-Ms": "1e3"},
    ],
)
async def test_headers_are_read_strictly(api: Api, headers: dict[str, str]) -> None:
    """A header that cannot mean what it says is refused, and nothing is written."""
    assert (await api.post("/v1/tree/a", {}, **headers)).code == "BadArguments"
    assert (await api.get("/v1/tree/a")).code == "NoNode"


async def test_reads_say_how_fresh_they_are(api: Api) -> None:
    """Stale reads carry their age; a zxid that is not reached is not answered."""
    zxid = (await api.post("/v1/tree/a", {})).headers["Coordinator-Zxid"]

    fresh = await api.get("/v1/tree/a")
    at_least = await api.get(f"/v1/tree/a?at_least_zxid={zxid}")
    stale = await api.get("/v1/tree/a?stale")
    future = await api.get("/v1/tree/a?at_least_zxid=99", **{"Coordinator-Timeout-Ms": "20"})

    assert "Coordinator-Stale-Age-Ms" in stale.headers
    assert "Coordinator-Stale-Age-Ms" not in fresh.headers
    assert at_least.status == 200
    assert (future.status, future.code, future.headers["Retry-After"]) == (503, "NoLeader", "1")


HOSTILE: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/v1/tree//a", {}),
    ("GET", "/v1/tree/a/../b", {}),
    ("GET", "/v1/tree/a%2Fb", {}),
    ("GET", "/v1/tree/%00", {}),
    ("GET", "/v1/tree/a%0Ab", {}),
    ("GET", "/v1/tree/a?unknown", {}),
    ("GET", "/v1/tree/a?limit=1", {}),
    ("GET", "/v1/tree/a?children&limit=0", {}),
    ("GET", "/v1/tree/a?children&raw", {}),
    ("GET", "/v1/tree/" + "x" * 1_025, {}),
    ("GET", "/v1/tree" + "/x" * 65, {}),
    ("POST", "/v1/tree/a", {"body": []}),
    ("POST", "/v1/tree/a", {"body": {"unknown": 1}}),
    ("POST", "/v1/tree/a", {"body": {"mode": "ephemeral"}}),
    ("POST", "/v1/tree/a", {"body": {"mode": "ttl"}}),
    ("POST", "/v1/tree/a", {"body": {"mode": "ttl", "ttl_ms": 0}}),
    ("POST", "/v1/tree/a", {"body": {"mode": "ttl", "ttl_ms": 1e308}}),
    ("POST", "/v1/tree/a", {"body": {"session_id": "aa"}}),
    ("POST", "/v1/tree/a?mode=ephemeral", {"body": {}}),
    ("POST", "/v1/tree/a?raw&ttl_ms=-1", {"data": b""}),
    ("POST", "/v1/tree/a", {"data": b"{}"}),
    ("POST", "/v1/tree/a", {"data": b"x=1", "headers": {"Content-Type": "text/plain"}}),
    ("POST", "/v1/tree/a", {"data": b'{"a":NaN}', "headers": {"Content-Type": "application/json"}}),
    ("PUT", "/v1/tree/a", {"body": {}}),
    ("PUT", "/v1/tree/a", {"body": {"data": "x", "expected_version": -2}}),
    ("DELETE", "/v1/tree/a", {"body": {"expected_version": 1}}),
    ("DELETE", "/v1/tree/a?exepcted_version=1", {}),
    ("DELETE", "/v1/tree/", {}),
    ("POST", "/v1/multi", {"body": {"operations": [{"op": "read", "path": "/a/../b"}]}}),
    ("POST", "/v1/multi", {"body": {"operations": [{"op": "read", "path": "a"}]}}),
]


@pytest.mark.parametrize(("method", "path", "given"), HOSTILE, ids=range(len(HOSTILE)))
async def test_what_cannot_be_meant_is_refused(
    api: Api, method: str, path: str, given: dict[str, Any]
) -> None:
    """Each is a 400 with a reason, and changes nothing."""
    reply = await api.call(method, path, **given)

    assert (reply.status, reply.code) == (400, "BadArguments")
    assert reply.body["detail"]
    assert reply.headers["Coordinator-Zxid"] == "0"


async def test_large_data_has_a_limit() -> None:
    """The value's limit and the body's limit are both a 413."""
    async with serving(http=HttpConfig(body_bytes_max=1_572_864)) as api:
        fits = await api.call("POST", "/v1/tree/a?raw", data=b"x" * 1_048_576)
        value = await api.call("POST", "/v1/tree/b?raw", data=b"x" * 1_048_577)
        body = await api.call("POST", "/v1/tree/b?raw", data=b"x" * 1_572_865)

        assert fits.status == 201
        assert (value.status, value.code) == (413, "DataTooLarge")
        assert (body.status, body.code) == (413, "DataTooLarge")
        assert (await api.get("/v1/tree/b")).status == 404


async def test_a_multi_is_all_or_nothing(api: Api) -> None:
    """Results come in order; a refusal names the operation and undoes the rest."""
    done = await api.post(
        "/v1/multi",
        {
            "operations": [
                {"op": "create", "path": "/a", "data": "1"},
                {"op": "set", "path": "/a", "data": "2", "expected_version": 0},
                {"op": "check", "path": "/a", "expected_version": 1},
                {"op": "read", "path": "/a"},
                {"op": "read", "path": "/nothing"},
                {"op": "create", "path": "/b/c", "parents": "persistent"},
                {"op": "delete", "path": "/b", "recursive": True},
            ]
        },
    )
    refused = await api.post(
        "/v1/multi",
        {
            "operations": [
                {"op": "set", "path": "/a", "data": "3"},
                {"op": "check", "path": "/nothing", "exists": True},
            ]
        },
    )

    results = done.body["results"]
    done_in_order = ["create", "set", "check", "read", "read", "create", "delete"]
    assert [each["op"] for each in results] == done_in_order
    assert (results[3]["data"], results[4]["stat"], results[6]["deleted_count"]) == ("2", None, 2)
    assert done.body["zxid"] == 1
    assert (refused.status, refused.body["operation_index"]) == (404, 1)
    assert (await api.get("/v1/tree/a")).body["data"] == "2"


async def test_a_guarded_write_takes_one_branch(api: Api) -> None:
    """The reply says which branch ran."""
    guarded = {
        "conditions": [{"path": "/a", "exists": False}],
        "then": [{"op": "create", "path": "/a", "data": "mine"}],
        "otherwise": [{"op": "read", "path": "/a"}],
    }
    first = (await api.post("/v1/multi", guarded)).body
    second = (await api.post("/v1/multi", guarded)).body

    assert (first["branch"], first["results"][0]["op"]) == ("then", "create")
    assert (second["branch"], second["results"][0]["data"]) == ("otherwise", "mine")


async def test_a_refused_write_is_labelled_with_the_zxid_at_which_it_was_refused(api: Api) -> None:
    """Not with that of its answer: whoever watches from there must not miss what came between."""
    await api.post("/v1/tree/a", {})
    once = {"Coordinator-Client-Id": "once", "Coordinator-Request-Number": "1"}
    refused = await api.put("/v1/tree/b", {"data": "x"}, **once)
    await api.post("/v1/tree/b", {})

    again = await api.put("/v1/tree/b", {"data": "x"}, **once)

    for reply in (refused, again):
        assert reply.code == "NoNode"
        assert reply.headers["Coordinator-Zxid"] == "1"
        assert reply.body["zxid"] == 1


async def test_a_request_number_stands_for_one_operation(api: Api) -> None:
    """A number used for something else is refused: its first outcome is no answer to this, and to
    say "done" would be a lie (found by tests/fuzz)."""
    numbered = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
    created = await api.post("/v1/tree/a", {"data": "first"}, **numbered)
    multi = {"operations": [{"op": "set", "path": "/a", "data": "x"}]}
    guarded = {"conditions": [], "then": multi["operations"]}

    others = [
        await api.put("/v1/tree/a", {"data": "second"}, **numbered),
        await api.put("/v1/tree/a?create", {"data": "second"}, **numbered),
        await api.post("/v1/tree/b", {}, **numbered),
        await api.delete("/v1/tree/a", **numbered),
        await api.post("/v1/multi", multi, **numbered),
        await api.post("/v1/multi", guarded, **numbered),
        await api.post("/v1/sessions", {}, **numbered),
        await api.delete("/v1/sessions/00000000000000aa", **numbered),
        await api.delete("/v1/locks/x/grants/1-1", **numbered),
        await api.delete("/v1/elections/x/grants/1-1", **numbered),
    ]

    assert [(each.status, each.code) for each in others] == [(400, "BadArguments")] * len(others)
    assert all("another operation" in each.body["detail"] for each in others)
    assert (await api.post("/v1/tree/a", {"data": "first"}, **numbered)).body == created.body
    assert (await api.get("/v1/tree/a")).body["data"] == "first"


async def test_a_queue_knows_a_number_that_is_not_its_own(api: Api) -> None:
    """Whatever a number was used for before, acquiring and campaigning with it is refused."""
    session_id = await api.session_id()
    read = {"conditions": [], "then": [{"op": "read", "path": "/"}]}
    for number, body in enumerate(({"operations": []}, read, {"conditions": []}), 1):
        numbered = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": str(number)}
        assert (await api.post("/v1/multi", body, **numbered)).status == 200
        for room in ("locks", "elections"):
            for wait_ms in (0, 50):
                wish = {"session_id": session_id, "timeout_ms": wait_ms}
                reply = await api.post(f"/v1/{room}/x", wish, **numbered)
                assert (reply.status, reply.code) == (400, "BadArguments"), reply.raw
