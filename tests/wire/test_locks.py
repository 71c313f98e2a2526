"""/v1/locks and /v1/elections, over a socket."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from coordinator.model.contention import HolderInfo
from tests.wire.serving import Api


async def queue_of(api: Api, name: str) -> list[str]:
    """Return the sessions in the queue, the holder first."""
    view = (await api.get(f"/v1/locks/{name}")).body
    contenders = [view["holder"], *view["queue"]] if view["holder"] else []
    return [each["session_id"] for each in contenders]


async def until_queued(api: Api, name: str, count: int) -> None:
    """Return once ``count`` contend; each look is a request, so others get their turn."""
    async with asyncio.timeout(10):
        while len(await queue_of(api, name)) != count:
            pass


async def test_a_lock_is_granted_seen_and_released(api: Api) -> None:
    """One request each way; the token is asked about and stays true."""
    session_id = await api.session_id()
    body = {"session_id": session_id, "label": "me", "host": "h", "pid": 7, "trace_id": "t"}

    grant = (await api.post("/v1/locks/daily", body)).body["grant"]
    token = grant["fencing_token"]
    view = (await api.get(f"/v1/locks/daily?fencing_token={token}")).body
    released = await api.delete(f"/v1/locks/daily/grants/{grant['grant_id']}")
    again = await api.delete(f"/v1/locks/daily/grants/{grant['grant_id']}")

    assert grant["path"] == "/locks/daily/lock-0000000000"
    assert (grant["lock"], grant["session_id"]) == ("daily", session_id)
    holder = view["holder"]
    assert [holder[name] for name in ("label", "host", "pid", "trace_id")] == ["me", "h", 7, "t"]
    assert (view["is_current"], holder["grant_id"]) == (True, grant["grant_id"])
    assert released.body == again.body == {"grant_id": grant["grant_id"], "released": True}
    after = (await api.get(f"/v1/locks/daily?fencing_token={token}")).body
    assert (after["holder"], after["is_current"]) == (None, False)


async def test_what_a_holder_says_of_itself_is_shown_wherever_its_grant_is(api: Api) -> None:
    """Each field of the model, with nothing about any of them between: no list to add it to."""
    fields = {"pid": 7, "when_unsure": "continue", "purpose": "correctness"}
    fields = {name: fields.get(name, f"its {name}") for name in HolderInfo.__struct_fields__}

    lease = {"session_id": await api.session_id()}
    grant = (await api.post("/v1/locks/daily", {**lease, **fields})).body["grant"]
    views = (
        (await api.get("/v1/locks/daily")).body["holder"],
        (await api.get("/v1/locks")).body["locks"][0]["holder"],
        (await api.get("/v1/grants?lock=daily")).body["grants"][0],
        (await api.get(f"/v1/grants/daily/{grant['grant_id']}")).body["grant"],
        (await api.post("/v1/locks/daily", {**lease, "timeout_ms": 0})).body["holder"],
    )

    assert [{name: view[name] for name in fields} for view in views] == [fields] * len(views)


@pytest.mark.parametrize(
    "data",
    ["[" * 1_500 + "]" * 1_500, '{"pid": 1%s}' % ("0" * 30), '{"label": "\\ud800", "host": "h"}'],
)
@pytest.mark.parametrize("accept", ["application/json", "application/msgpack"])
async def test_a_holder_cannot_hide_the_locks(api: Api, data: str, accept: str) -> None:
    """Its znode's data is its own to write, in any form: nothing else becomes unreadable by it."""
    lease = {"session_id": await api.session_id()}
    assert (await api.post("/v1/locks/other", lease)).status == 200
    grant = (await api.post("/v1/locks/daily", lease)).body["grant"]
    assert (await api.put(f"/v1/tree{grant['path']}", {"data": data})).status == 200

    shown = ("/v1/locks/daily", "/v1/locks", "/v1/grants", f"/v1/grants/daily/{grant['grant_id']}")
    found = [await api.get(path, Accept=accept) for path in shown]
    tried = await api.post("/v1/locks/daily", {**lease, "timeout_ms": 0})

    assert [each.status for each in found] == [200] * len(shown)
    assert (tried.status, tried.code) == (409, "LockTimeout")


async def test_a_held_lock_is_refused_with_who_holds_it(api: Api) -> None:
    """Trying once leaves nothing; waiting too long leaves nothing; both say who holds."""
    first = (await api.post("/v1/locks/daily", {"session_id": await api.session_id()})).body
    other = await api.session_id()

    tried = await api.post("/v1/locks/daily", {"session_id": other, "timeout_ms": 0})
    waited = await api.post("/v1/locks/daily", {"session_id": other, "timeout_ms": 30})

    for reply in (tried, waited):
        assert (reply.status, reply.code, reply.body["definite"]) == (409, "LockTimeout", True)
        assert reply.body["holder"]["grant_id"] == first["grant"]["grant_id"]
        assert reply.body["zxid"] >= first["grant"]["zxid"]
    assert waited.body["position"] == 1
    assert len(await queue_of(api, "daily")) == 1


async def test_a_late_release_frees_nobody_else(api: Api) -> None:
    """Whoever lost the lock is told so, and by whom it is held."""
    first_session = await api.session_id()
    first = (await api.post("/v1/locks/daily", {"session_id": first_session})).body["grant"]
    await api.delete(f"/v1/sessions/{first_session}")
    second_session = await api.session_id()
    second = (await api.post("/v1/locks/daily", {"session_id": second_session})).body["grant"]

    late = await api.delete(f"/v1/locks/daily/grants/{first['grant_id']}")

    assert (late.status, late.code) == (409, "NotOwner")
    assert late.body["holder"]["grant_id"] == second["grant_id"]
    assert second["fencing_token"] > first["fencing_token"]
    assert await queue_of(api, "daily") == [second_session]


async def test_the_wait_is_one_request(api: Api) -> None:
    """The answer comes when the predecessor goes."""
    first = (await api.post("/v1/locks/daily", {"session_id": await api.session_id()})).body
    waiting = asyncio.create_task(
        api.post("/v1/locks/daily", {"session_id": await api.session_id()})
    )
    await until_queued(api, "daily", 2)

    await api.delete(f"/v1/locks/daily/grants/{first['grant']['grant_id']}")

    assert (await waiting).status == 200


async def test_the_wait_can_be_watched_line_by_line(api: Api) -> None:
    """Each change of place is a line, then the grant."""
    grants = [(await api.post("/v1/locks/daily", {"session_id": await api.session_id()})).body]
    second = asyncio.create_task(
        api.post("/v1/locks/daily", {"session_id": await api.session_id()})
    )
    await until_queued(api, "daily", 2)
    body = {"session_id": await api.session_id()}
    async with api.stream("POST", "/v1/locks/daily", body) as lines:
        first_line = await lines.next()
        await api.delete(f"/v1/locks/daily/grants/{grants[0]['grant']['grant_id']}")
        second_line = await lines.next()
        second_grant = (await second).body["grant"]
        await api.delete(f"/v1/locks/daily/grants/{second_grant['grant_id']}")
        last = await lines.next()
        end = await lines.next()

    assert lines.response.headers["Content-Type"] == "application/x-ndjson"
    fields = {"type": "queued", "session_id": body["session_id"]}
    assert (first_line, second_line) == ({**fields, "position": 2}, {**fields, "position": 1})
    assert last["type"] == "granted"
    assert last["grant"]["fencing_token"] > second_grant["fencing_token"]
    assert end is None


async def test_a_stream_that_fails_says_so_in_its_last_line(api: Api) -> None:
    """Before the first line the status says it; afterwards a line does."""
    await api.post("/v1/locks/daily", {"session_id": await api.session_id()})
    body = {"session_id": await api.session_id(), "timeout_ms": 50}
    async with api.stream("POST", "/v1/locks/daily", body) as lines:
        assert (await lines.next())["type"] == "queued"
        last = await lines.next()
    gone = {"session_id": "00000000000000aa"}
    async with api.stream("POST", "/v1/locks/daily", gone) as refused:
        problem = await refused.response.json(content_type=None)

    assert (last["type"], last["problem"]["code"]) == ("error", "LockTimeout")
    assert (refused.response.status, problem["code"]) == (410, "SessionExpired")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_client_that_goes_away_leaves_the_queue(api: Api, is_stream: bool) -> None:
    """Closing the connection while waiting is enough (on_disconnect: leave)."""
    await api.post("/v1/locks/daily", {"session_id": await api.session_id()})
    headers = {"Accept": "application/x-ndjson"} if is_stream else {}
    body = {"session_id": await api.session_id()}
    async with aiohttp.ClientSession() as client:
        waiting = asyncio.create_task(
            client.post(f"{api.server.url}/v1/locks/daily", json=body, headers=headers)
        )
        await until_queued(api, "daily", 2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    await until_queued(api, "daily", 1)


async def test_a_client_may_keep_its_place_while_it_is_away(api: Api) -> None:
    """on_disconnect: stay; the same request number finds the place again."""
    first = (await api.post("/v1/locks/daily", {"session_id": await api.session_id()})).body
    headers = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
    body = {"session_id": await api.session_id(), "on_disconnect": "stay"}
    async with aiohttp.ClientSession() as client:
        waiting = asyncio.create_task(
            client.post(f"{api.server.url}/v1/locks/daily", json=body, headers=headers)
        )
        await until_queued(api, "daily", 2)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await api.delete(f"/v1/locks/daily/grants/{first['grant']['grant_id']}")

    grant = (await api.post("/v1/locks/daily", body, **headers)).body["grant"]

    assert grant["path"] == "/locks/daily/lock-0000000001"
    assert await queue_of(api, "daily") == [body["session_id"]]


async def test_a_closing_door_gives_up_the_wait_without_a_verdict(api: Api) -> None:
    """A member that stops does not say "not granted": nobody knows yet."""
    await api.post("/v1/locks/daily", {"session_id": await api.session_id()})
    body = {"session_id": await api.session_id(), "on_disconnect": "stay"}
    waiting = asyncio.create_task(api.post("/v1/locks/daily", body))
    await until_queued(api, "daily", 2)

    await api.server.stop()

    reply = await waiting
    assert (reply.status, reply.code, reply.body["definite"]) == (504, "ConnectionLost", False)


async def test_an_attempt_is_abandoned_by_its_number(api: Api) -> None:
    """What was created goes; what was never seen will never be created."""
    headers = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
    body = {"session_id": await api.session_id()}
    grant = (await api.post("/v1/locks/daily", body, **headers)).body["grant"]

    gone = await api.delete("/v1/locks/daily/attempts/c1/1")
    never = await api.delete("/v1/locks/daily/attempts/c1/2?floor_index=0")
    late = await api.post("/v1/locks/daily", body, **{**headers, "Coordinator-Request-Number": "2"})

    assert gone.body == {"deleted_path": grant["path"]}
    assert never.body == {"deleted_path": None}
    assert late.status >= 400
    assert await queue_of(api, "daily") == []


async def test_a_lease_of_its_own_ends_with_a_failed_attempt(api: Api) -> None:
    """lease_ms opens a session for this grant, and does not leave one behind without it."""
    held = (await api.post("/v1/locks/daily", {"lease_ms": 30_000, "label": "curl"})).body["grant"]
    refused = await api.post("/v1/locks/daily", {"lease_ms": 30_000, "timeout_ms": 0})

    assert refused.code == "LockTimeout"
    async with asyncio.timeout(10):
        while len((await api.get("/v1/sessions")).body["sessions"]) != 1:
            pass
    session = (await api.get(f"/v1/sessions/{held['session_id']}")).body
    assert (session["label"], session["ephemerals"]) == ("curl", [held["path"]])


async def test_a_numbered_attempt_opens_its_session_once(api: Api) -> None:
    """In the same entry; a repetition finds it, a failed try opens none, and none is ended."""
    numbered = {"Coordinator-Client-Id": "c", "Coordinator-Request-Number": "1"}
    body = {"lease_ms": 30_000, "label": "mine"}
    first = (await api.post("/v1/locks/daily", body, **numbered)).body["grant"]
    again = (await api.post("/v1/locks/daily", body, **numbered)).body["grant"]
    numbered["Coordinator-Request-Number"] = "2"
    tried = await api.post("/v1/locks/daily", {**body, "timeout_ms": 0}, **numbered)
    numbered["Coordinator-Request-Number"] = "3"
    waited = await api.post("/v1/locks/daily", {**body, "timeout_ms": 20}, **numbered)
    numbered["Coordinator-Request-Number"] = "4"
    refused = await api.post("/v1/locks/other", {**body, "lease_ms": 1}, **numbered)

    sessions = (await api.get("/v1/sessions")).body["sessions"]
    assert first == again
    assert (tried.code, waited.code, refused.code) == ("LockTimeout", "LockTimeout", "BadArguments")
    assert "session_id" not in tried.body
    assert "lease_ms" in refused.body["detail"]
    opened = [first["session_id"], waited.body["session_id"]]
    assert [each["session_id"] for each in sessions] == opened
    assert {each["label"] for each in sessions} == {"mine"}


EITHER = {"Accept": "application/json, application/x-ndjson"}


async def test_who_takes_either_gets_one_answer_without_a_wait(api: Api) -> None:
    """As without lines: a status, and the whole body; also what an attempt is refused with."""
    body = {"session_id": await api.session_id()}
    granted = await api.call("POST", "/v1/locks/daily", body, headers=EITHER)
    tried = await api.call("POST", "/v1/locks/daily", {**body, "timeout_ms": 0}, headers=EITHER)

    assert granted.headers["Content-Type"].startswith("application/json")
    assert granted.body["grant"]["lock"] == "daily"
    assert (tried.status, tried.code) == (409, "LockTimeout")


async def test_who_takes_either_is_told_once_where_it_waits(api: Api) -> None:
    """Those who leave before it are not told; the first line names its session."""
    held = (await api.post("/v1/locks/daily", {"session_id": await api.session_id()})).body["grant"]
    between = asyncio.create_task(
        api.post("/v1/locks/daily", {"session_id": await api.session_id()})
    )
    await until_queued(api, "daily", 2)
    body = {"session_id": await api.session_id()}
    async with api.stream("POST", "/v1/locks/daily", body, **EITHER) as lines:
        first = await lines.next()
        for grant in (held, None):
            grant = grant or (await between).body["grant"]
            await api.delete(f"/v1/locks/daily/grants/{grant['grant_id']}")
            await asyncio.sleep(0.6)  # longer than positions are told apart
        last = await lines.next()

    assert first == {"type": "queued", "position": 2, "session_id": body["session_id"]}
    assert last["type"] == "granted"


@pytest.mark.parametrize("breaks_at", ["the line of the grant", "the end"])
async def test_a_grant_that_was_told_stands(
    api: Api, breaks_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may read the last line and hang up: its session does not end, nor is the grant
    given back; it was told that it holds."""
    first = (await api.post("/v1/locks/daily", {"session_id": await api.session_id()})).body
    body = {"lease_ms": 60_000}
    async with api.stream("POST", "/v1/locks/daily", body) as lines:
        assert (await lines.next())["type"] == "queued"

        async def broken(*_: object) -> None:
            raise ConnectionResetError("the client has hung up")

        name = "drain" if breaks_at == "the line of the grant" else "write_eof"
        monkeypatch.setattr(f"aiohttp.http_writer.StreamWriter.{name}", broken)
        await api.member.locks.release("daily", first["grant"]["grant_id"], None, 2**50)
        granted = await lines.next()
        monkeypatch.undo()
    await api.server.stop()  # what tidies up is done then

    assert granted["type"] == "granted"
    assert api.member._replica.machine.session(granted["grant"]["session_id"]) is not None
    contender = api.member._replica.machine.locks.record(granted["grant"]["path"])
    assert contender is not None
    assert contender.is_holder


async def test_locks_are_listed_in_pages(api: Api) -> None:
    """Who holds what, and how many wait; any name is one segment."""
    session_id = await api.session_id()
    for name in ("a", "b%2Fc", "gr%C3%BCn"):
        reply = await api.post(f"/v1/locks/{name}", {"session_id": session_id})
        assert reply.status == 200, reply

    first = (await api.get("/v1/locks?limit=2")).body
    rest = (await api.get(f"/v1/locks?after={first['next'].replace('/', '%2F')}")).body

    names = [each["lock"] for each in (*first["locks"], *rest["locks"])]
    assert names == ["a", "b/c", "grün"]
    assert first["locks"][0]["queue_length"] == 0
    assert rest["next"] is None
    assert (await api.get("/v1/locks/b%2Fc")).body["lock"] == "b/c"


async def test_an_attempt_at_something_else_is_not_abandoned(api: Api) -> None:
    """The path names the lock; who mistakes it is told, and takes nobody's lock away."""
    headers = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
    body = {"session_id": await api.session_id()}
    grant = (await api.post("/v1/locks/daily", body, **headers)).body["grant"]

    other = await api.delete("/v1/locks/nightly/attempts/c1/1")
    election = await api.delete("/v1/elections/daily/attempts/c1/1")

    for reply in (other, election):
        assert (reply.status, reply.code, reply.body["definite"]) == (409, "NotOwner", True)
        assert "/locks/daily" in reply.body["detail"]
    assert await queue_of(api, "daily") == [grant["session_id"]]


@pytest.mark.parametrize("form", ["0{}", "00-{1}", "{0}-0{1}", "+{}", "lock-{}"])
async def test_a_grant_has_one_name(api: Api, form: str) -> None:
    """Zeros before its numbers make another name, which is nobody's."""
    body = {"session_id": await api.session_id()}
    grant_id = (await api.post("/v1/locks/daily", body)).body["grant"]["grant_id"]
    other = form.format(*grant_id.split("-")) if "{1}" in form else form.format(grant_id)

    for method, path in (
        ("DELETE", f"/v1/locks/daily/grants/{other}"),
        ("DELETE", f"/v1/elections/daily/grants/{other}"),
        ("GET", f"/v1/grants/daily/{other}"),
    ):
        reply = await api.call(method, path)
        assert (reply.status, reply.code) == (400, "BadArguments")
    assert await queue_of(api, "daily") == [body["session_id"]]


BAD: list[tuple[str, str, Any]] = [
    ("POST", "/v1/locks/daily", {}),
    ("POST", "/v1/locks/daily", {"lease_ms": 0}),
    ("POST", "/v1/locks/daily", {"lease_ms": 1}),
    ("POST", "/v1/locks/" + "x" * 201, {"lease_ms": 5_000}),
    ("POST", "/v1/locks/%0A", {"lease_ms": 5_000}),
    ("POST", "/v1/locks/%2E%2E", {"lease_ms": 5_000}),
    ("DELETE", "/v1/locks/daily/grants/x", None),
    ("DELETE", "/v1/locks/daily/grants/1-99999999999999999999", None),
    ("DELETE", "/v1/locks/daily/attempts/c/0", None),
    ("DELETE", "/v1/locks/daily/attempts/c/x", None),
    ("DELETE", "/v1/locks/daily/attempts/%20/1", None),
    ("GET", "/v1/locks/daily?fencing_token=x", None),
    ("GET", "/v1/locks?limit=0", None),
    ("PUT", "/v1/elections/e/grants/x", {"value": "v"}),
    ("GET", "/v1/elections/e?observe", None),
]


@pytest.mark.parametrize(("method", "path", "body"), BAD, ids=range(len(BAD)))
async def test_what_cannot_be_meant_is_refused(api: Api, method: str, path: str, body: Any) -> None:
    """Each is a 400, and nothing is left behind, no session either."""
    reply = await api.call(method, path, body)

    assert (reply.status, reply.code) == (400, "BadArguments")
    async with asyncio.timeout(10):
        while (await api.get("/v1/sessions")).body["sessions"]:
            pass


@pytest.mark.parametrize("name", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
async def test_a_precondition_that_nobody_would_judge_is_refused(api: Api, name: str) -> None:
    """Outside the tree no change has a version: saying nothing would be a lie."""
    session_id = await api.session_id()
    wish = {"session_id": session_id}
    grant_id = (await api.post("/v1/locks/daily", wish)).body["grant"]["grant_id"]
    changes: list[tuple[str, str, Any]] = [
        ("POST", "/v1/sessions", {}),
        ("DELETE", f"/v1/sessions/{session_id}", None),
        ("POST", f"/v1/sessions/{session_id}/heartbeat", None),
        ("POST", "/v1/locks/other", wish),
        ("POST", "/v1/locks", {**wish, "names": ["a", "b"]}),
        ("DELETE", f"/v1/locks/daily/grants/{grant_id}", None),
        ("POST", "/v1/locks/daily/revoke", {"by": "me", "reason": "why"}),
        ("POST", "/v1/elections/boss", wish),
        ("POST", "/v1/multi", {"operations": [{"op": "create", "path": "/m"}]}),
    ]

    for method, path, body in changes:
        reply = await api.call(method, path, body, headers={name: "*"})
        assert (reply.status, reply.code) == (400, "BadArguments"), path
        assert "/v1/tree" in reply.body["detail"]

    assert await queue_of(api, "daily") == [session_id]
    assert (await api.get("/v1/tree/m")).status == 404
    reads = [
        await api.call("GET", "/v1/locks/daily", headers={name: "*"}),
        await api.call("GET", "/v1/sessions", headers={name: "*"}),
    ]
    assert [each.status for each in reads] == [200, 200]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/locks/"), ("POST", "/v1/locks/"), ("POST", "/v1/elections/"),
        ("DELETE", "/v1/locks//grants/0-1"), ("DELETE", "/v1/locks/a/grants/"),
        ("GET", "/v1/sessions/"), ("POST", "/v1/sessions//heartbeat"), ("GET", "/v1/locks/?stale"),
    ],
)  # fmt: skip
async def test_an_empty_name_is_called_so(api: Api, method: str, path: str) -> None:
    """It is no route that does not exist; what is none still is none."""
    refused = await api.call(method, path, {"lease_ms": 60_000} if method == "POST" else None)
    unknown = await api.call(method, "/v1/keys/")

    assert (refused.status, refused.code) == (400, "BadArguments")
    assert "expected a name, found an empty one" in refused.body["detail"]
    assert (unknown.status, unknown.code) == (404, "NoRoute")


async def test_a_mistyped_field_is_named_with_the_one_that_was_meant(api: Api) -> None:
    """In bodies and in queries."""
    body = await api.post("/v1/multi", {"operatons": []})
    query = await api.delete("/v1/tree/a?exepcted_version=3")

    assert "unknown field 'operatons'; did you mean 'operations'?" in body.body["detail"]
    assert (
        "unknown parameter 'exepcted_version'; did you mean 'expected_version'?"
        in query.body["detail"]
    )
