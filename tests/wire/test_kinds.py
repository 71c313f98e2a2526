"""Kinds of locks, conditions, notes, forced ends and the history, over a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgpack
import pytest

from tests.wire.serving import MSGPACK, NDJSON, Api


async def granted(api: Api, name: str, **wish: Any) -> Any:
    """Return the grant of an acquire that is expected to succeed."""
    if "session_id" not in wish:
        wish.setdefault("lease_ms", 30_000)
    reply = await api.post(f"/v1/locks/{name}", wish)
    assert reply.status == 200, reply
    return reply.body["grant"]


async def test_what_a_holder_declares_is_recorded_and_shown(api: Api) -> None:
    """Owner, policy, purpose and guard: in the look and in the history, for people."""
    fields = {"owner": "task-1", "when_unsure": "continue", "purpose": "correctness", "guard": "pg"}
    grant = await granted(api, "daily", label="me", lock_delay_ms=7, **fields)

    (holder,) = (await api.get("/v1/locks/daily")).body["holders"]
    (record,) = (await api.get("/v1/grants?lock=daily")).body["grants"]

    for shown in (holder, record):
        assert {name: shown[name] for name in fields} == fields
        assert (shown["label"], shown["kind"]) == ("me", "exclusive")
    assert (holder["is_holder"], holder["lock_delay_ms"]) == (True, 7)
    assert holder["safe_ms"] > 20_000
    assert record["grant_id"] == grant["grant_id"]


async def test_readers_share_over_http_and_each_is_current(api: Api) -> None:
    """Two holders, both tokens current; the queue says who waits."""
    grants = [await granted(api, "cat", kind="shared") for _ in range(2)]
    view = (await api.get("/v1/locks/cat")).body

    assert [each["grant_id"] for each in view["holders"]] == [each["grant_id"] for each in grants]
    for grant in grants:
        path = f"/v1/locks/cat?fencing_token={grant['fencing_token']}"
        assert (await api.get(path)).body["is_current"] is True
    (listed,) = (await api.get("/v1/locks")).body["locks"]
    assert (listed["holder_count"], listed["queue_length"]) == (2, 0)


async def test_several_locks_are_streamed_granted_and_released_as_one(api: Api) -> None:
    """The wait is told line by line; one release gives all of them back."""
    held = await granted(api, "b")
    body = {"lease_ms": 30_000, "names": ["c", "b"]}
    async with api.stream("POST", "/v1/locks", body) as lines:
        first = await lines.next()
        await api.delete(f"/v1/locks/b/grants/{held['grant_id']}")
        line = await lines.next()

    assert first == {"type": "queued", "position": 1, "session_id": line["grant"]["session_id"]}
    assert line["type"] == "granted"
    grants = line["grant"]["grants"]
    assert [each["lock"] for each in grants] == ["b", "c"]
    await api.delete(f"/v1/locks/c/grants/{grants[1]['grant_id']}")
    for name in ("b", "c"):
        assert (await api.get(f"/v1/locks/{name}")).body["holder"] is None


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_several_locks_are_refused_names_that_no_url_can_say(api: Api, name: str) -> None:
    """They could be taken in a body, and not be given back."""
    reply = await api.post("/v1/locks", {"lease_ms": 30_000, "names": ["a", name]})

    assert (reply.status, reply.body["code"]) == (400, "BadArguments")
    assert (await api.get("/v1/locks/a")).body["holder"] is None


async def test_a_client_that_goes_away_while_it_waits_for_several_leaves_all_queues(
    api: Api,
) -> None:
    """The same as for one lock: nothing is left behind."""
    await granted(api, "b")
    async with api.stream("POST", "/v1/locks", {"lease_ms": 30_000, "names": ["a", "b"]}) as lines:
        await lines.next()
    async with asyncio.timeout(5):
        while (await api.get("/v1/locks/b")).body["queue"]:
            pass
    assert (await api.get("/v1/locks/a")).body["queue"] == []


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/tree/new", {"data": "x"}),
        ("PUT", "/v1/tree/there", {"data": "x"}),
        ("PUT", "/v1/tree/there?create", {"data": "x"}),
        ("DELETE", "/v1/tree/there", None),
        ("POST", "/v1/multi", {"operations": [{"op": "create", "path": "/new"}]}),
        ("POST", "/v1/multi", {"conditions": [], "then": [{"op": "create", "path": "/new"}]}),
        ("POST", "/v1/sessions", {}),
        ("DELETE", "/v1/sessions/{session}", None),
        ("POST", "/v1/locks/other", {"session_id": "{session}"}),
        ("POST", "/v1/locks", {"session_id": "{session}", "names": ["x", "y"]}),
        ("POST", "/v1/locks/mine/grants/{grant}/downgrade", {}),
        ("PUT", "/v1/locks/mine/grants/{grant}/note", {"note": "x"}),
        ("POST", "/v1/locks/mine/revoke", {"by": "ann", "reason": "x"}),
        ("PUT", "/v1/locks/slots/size", {"size": 3}),
        ("DELETE", "/v1/locks/mine/grants/{grant}", None),
        ("PATCH", "/v1/limits", {"limits": {"recursive_delete_max": 9}}),
        ("POST", "/v1/elections/e", {"session_id": "{session}"}),
        ("PUT", "/v1/elections/won/grants/{won}", {"value": "x"}),
        ("DELETE", "/v1/elections/won/grants/{won}", None),
    ],
)
async def test_any_write_may_depend_on_a_grant(api: Api, method: str, path: str, body: Any) -> None:
    """In the query of every write: refused with LockLost and not done; done while it holds."""
    session = await api.session_id()
    await api.post("/v1/tree/there", {"data": "x"})
    mine = await granted(api, "mine", session_id=session)
    await granted(api, "slots", session_id=session, kind="slot", size=2)
    won = (await api.post("/v1/elections/won", {"session_id": session})).body["grant"]
    outer = await granted(api, "a:b%2Fc")
    text = json.dumps([path, body]).replace("{session}", session)
    text = text.replace("{grant}", mine["grant_id"]).replace("{won}", won["grant_id"])
    path, body = json.loads(text)
    mark = "&" if "?" in path else "?"
    zxid = (await api.get("/v1/status")).body["zxid"]

    stale = f"{path}{mark}if_held=a:b%2Fc:{outer['fencing_token'] - 1}"
    refused = await api.call(method, stale, body)
    assert (refused.status, refused.code) == (410, "LockLost")
    assert refused.body["definite"] is True
    assert (await api.get("/v1/status")).body["zxid"] == zxid
    held = f"{path}{mark}if_held=a:b%2Fc:{outer['fencing_token']}"
    done = await api.call(method, f"{held}&if_elected=won:{won['epoch']}", body)

    assert done.status in (200, 201), done


async def test_a_raw_write_takes_its_condition_in_the_query(api: Api) -> None:
    """Its body is the data itself; a JSON body may say it, alone or several."""
    grant = await granted(api, "l")
    token = grant["fencing_token"]
    raw = await api.call("POST", f"/v1/tree/r?raw&if_held=l:{token}", data=b"\x00")
    both = {"data": "x", "if_held": [{"lock": "l", "fencing_token": token}] * 2}
    changed = await api.put("/v1/tree/r", both)
    stale = {"data": "y", "if_held": {"lock": "l", "fencing_token": token + 1}}
    refused = await api.put("/v1/tree/r", stale)

    assert (raw.status, changed.status, refused.status) == (201, 200, 410)
    assert refused.body["holder_tokens"] == [token]


@pytest.mark.parametrize("query", ["if_held=", "if_held=l", "if_held=l:x", "if_elected=:1"])
async def test_a_mistyped_condition_never_makes_an_unconditional_write(
    api: Api, query: str
) -> None:
    """It is refused; so is one on a read, which knows none."""
    reply = await api.post(f"/v1/tree/new?{query}", {"data": "x"})
    read = await api.get(f"/v1/tree?{query}")

    assert (reply.status, reply.code) == (400, "BadArguments")
    assert read.status == 400
    assert (await api.get("/v1/tree/new")).status == 404


async def test_notes_are_bytes_in_both_encodings(api: Api) -> None:
    """As base64 in JSON, as they are in msgpack; who is granted next finds them."""
    first = await granted(api, "n")
    path = f"/v1/locks/n/grants/{first['grant_id']}"
    noted = await api.put(f"{path}/note", {"note_base64": "AP8="})
    assert noted.status == 200
    view = await api.get("/v1/locks/n", Accept=MSGPACK["Accept"])
    shown = msgpack.unpackb(view.raw)
    await api.delete(path)
    second = await granted(api, "n")

    assert shown["holder"]["note"] == b"\x00\xff"
    assert second["previous"]["note_base64"] == "AP8="
    assert second["previous"]["how"] == "released"


async def test_the_whole_history_is_exported_line_by_line(api: Api) -> None:
    """More than a page: each grant once, in order; a limit bounds it; nothing is a blank line.

    A page has a thousand at most, whatever is asked for, and says where to go on.
    """
    session_id = await api.session_id()
    for _ in range(1_203):
        grant = await granted(api, "many", session_id=session_id)
        await api.delete(f"/v1/locks/many/grants/{grant['grant_id']}")

    whole = await api.call("GET", "/v1/grants?lock=many", headers=NDJSON)
    some = await api.call("GET", "/v1/grants?lock=many&limit=700", headers=NDJSON)
    page = (await api.get("/v1/grants?lock=many&limit=10000")).body
    rest = (await api.get(f"/v1/grants?lock=many&limit=10000&after={page['next']}")).body
    none = await api.call("GET", "/v1/grants?lock=nobody", headers=NDJSON)

    tokens = [json.loads(line)["fencing_token"] for line in whole.raw.splitlines()]
    assert (len(tokens), tokens) == (1_203, sorted(set(tokens)))
    assert len(some.raw.splitlines()) == 700
    paged = [each["fencing_token"] for each in page["grants"] + rest["grants"]]
    assert (len(page["grants"]), paged, rest["next"]) == (1_000, tokens, None)
    assert none.raw.strip() == b""


async def test_waits_holds_and_queues_are_counted_by_class(api: Api) -> None:
    """The class is the name up to the first colon or slash; a held lock is not one that waits."""
    session_id = await api.session_id()
    for name in ("order:1", "order%2F2", "plain"):
        grant = await granted(api, name, session_id=session_id)
        if name == "order:1":
            await api.delete(f"/v1/locks/{name}/grants/{grant['grant_id']}")
    waiting = asyncio.create_task(
        api.post("/v1/locks/plain", {"session_id": session_id, "timeout_ms": 300})
    )
    text = ""
    async with asyncio.timeout(5):
        while 'coordinator_lock_waiting{lock_class="plain"} 1.0' not in text:
            text = (await api.get("/metrics")).raw.decode()

    assert 'coordinator_lock_hold_seconds_count{lock_class="order"} 1.0' in text
    assert 'coordinator_lock_waiting{lock_class="order"} 0.0' in text
    wait = 'coordinator_grant_wait_seconds_count{lock_class="order",recipe="lock"} 2.0'
    assert wait in text
    await waiting


async def test_a_request_that_closes_a_cycle_is_told_the_cycle(api: Api) -> None:
    """Who waits for whom, by the names of the locks; nothing of the attempt is left."""
    session_id = await api.session_id()
    for name, owner in (("a", "one"), ("b", "two")):
        await granted(api, name, session_id=session_id, owner=owner)
    body = {"session_id": session_id, "timeout_ms": 5_000}
    waiting = asyncio.create_task(api.post("/v1/locks/b", {**body, "owner": "one"}))
    async with asyncio.timeout(5):
        while not (await api.get("/v1/locks/b")).body["queue"]:
            pass

    refused = await api.post("/v1/locks/a", {**body, "owner": "two"})
    converging = await api.post("/v1/locks/a", {**body, "owner": "three", "timeout_ms": 20})

    assert (refused.status, refused.code) == (409, "Deadlock")
    edges = [(each["owner"], each["holds"], each["waits_for"]) for each in refused.body["cycle"]]
    assert sorted(edges) == [("one", "a", "b"), ("two", "b", "a")]
    assert converging.code == "LockTimeout"
    assert (await api.get("/v1/locks/a")).body["queue"] == []
    waiting.cancel()


async def test_an_owner_that_asks_for_what_it_holds_is_told_so_at_once(api: Api) -> None:
    """Not reentrant; a try is just not granted; without an owner it waits as anybody does."""
    session_id = await api.session_id()
    await granted(api, "a", session_id=session_id, owner="one")
    again = {"session_id": session_id, "timeout_ms": 20}

    own = await api.post("/v1/locks/a", {**again, "owner": "one", "timeout_ms": 5_000})
    tried = await api.post("/v1/locks/a", {**again, "owner": "one", "timeout_ms": 0})
    unnamed = await api.post("/v1/locks/a", again)

    assert (own.code, tried.code, unnamed.code) == ("Deadlock", "LockTimeout", "LockTimeout")
    assert "reentrant" in own.body["detail"]
