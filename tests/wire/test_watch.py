"""/v1/watch, over a socket."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from coordinator.node.config import HttpConfig, MemberLimits
from tests.wire.serving import Api, serving


async def test_a_watch_tells_what_changes_in_order(api: Api) -> None:
    """The stream begins with where it stands; each line is one zxid, whole."""
    await api.post("/v1/tree/a", {"data": "1"})
    async with api.stream("GET", "/v1/watch?path=/a&kind=subtree") as lines:
        begin = await lines.next()
        await api.put("/v1/tree/a", {"data": "2"})
        await api.post("/v1/tree/b", {})
        await api.post(
            "/v1/multi",
            {"operations": [{"op": "create", "path": "/a/x"}, {"op": "delete", "path": "/a/x"}]},
        )
        changed, multi = await lines.next(), await lines.next()

    assert begin == {"type": "watching", "zxid": 1}
    assert (changed["type"], changed["zxid"]) == ("change", 2)
    assert changed["events"] == [
        {
            "type": "NodeDataChanged",
            "path": "/a",
            "version": 1,
            "czxid": 1,
            "ephemeral_owner": None,
        }
    ]
    assert multi["zxid"] == 4
    assert [each["type"] for each in multi["events"]] == ["NodeCreated", "NodeDeleted"]


async def test_a_watch_of_children_tells_who_comes_and_goes(api: Api) -> None:
    """Direct children only; the same question as a body, for many paths and kinds."""
    asked = {"watches": [{"path": "/p", "kind": "children"}, {"path": "/q"}]}
    await api.post("/v1/tree/p", {})
    async with api.stream("POST", "/v1/watch", asked) as lines:
        await lines.next()
        await api.post("/v1/tree/p/a/b", {"parents": "persistent"})
        await api.put("/v1/tree/p/a", {"data": "x"})
        await api.post("/v1/tree/q", {})
        created, other = await lines.next(), await lines.next()

    assert [event["path"] for event in created["events"]] == ["/p/a"]
    assert [event["path"] for event in other["events"]] == ["/q"]


async def test_a_watch_resumes_where_it_was(api: Api) -> None:
    """from_zxid and Last-Event-ID miss nothing and repeat nothing; one_shot ends after one."""
    for number in range(3):
        await api.post(f"/v1/tree/{number}", {})
    async with api.stream("GET", "/v1/watch?path=/&kind=subtree&from_zxid=1&one_shot") as lines:
        changes = [await lines.next() for _ in range(3)]
    headers = {"Last-Event-ID": "2"}
    async with api.stream("GET", "/v1/watch?path=/&kind=subtree", **headers) as lines:
        resumed = [await lines.next() for _ in range(2)]

    assert [line and line["zxid"] for line in changes] == [1, 2, None]
    assert [line["zxid"] for line in resumed] == [2, 3]


async def test_a_watch_from_the_future_is_refused(api: Api) -> None:
    """It would stand, and say nothing of all that happens until then."""
    await api.post("/v1/tree/a", {})

    query = await api.get("/v1/watch?path=/a&from_zxid=2")
    event_id = await api.get("/v1/watch?path=/a", **{"Last-Event-ID": "999999"})
    body = await api.post("/v1/watch", {"watches": [{"path": "/a"}], "from_zxid": 2})

    for reply in (query, event_id, body):
        assert (reply.status, reply.code, reply.body["newest_zxid"]) == (400, "BadArguments", 1)
    assert query.body["detail"] == "zxid 2 has not happened yet; the newest is 1"
    async with api.stream("GET", "/v1/watch?path=/a&from_zxid=1") as lines:
        assert (await lines.next())["zxid"] == 1


async def test_events_are_server_sent_by_default(api: Api) -> None:
    """The form that browsers and curl -N understand."""
    async with api.stream("GET", "/v1/watch?path=/a", Accept="*/*") as lines:
        begin = await lines.response.content.readuntil(b"\n\n")
        await api.post("/v1/tree/a", {})
        event = await lines.response.content.readuntil(b"\n\n")

    assert lines.response.headers["Content-Type"] == "text/event-stream"
    assert begin == b'event: watching\nid: 0\ndata: {"type":"watching","zxid":0}\n\n'
    kind, identifier, data, _, _ = event.split(b"\n")
    assert (kind, identifier) == (b"event: change", b"id: 1")
    assert json.loads(data.removeprefix(b"data: "))["zxid"] == 1


async def test_silence_is_broken_by_bookmarks() -> None:
    """An idle stream shows that it lives, and moves its place of resumption."""
    async with (
        serving(limits=MemberLimits(bookmark_interval_ms=20)) as api,
        api.stream("GET", "/v1/watch?path=/a") as lines,
    ):
        await lines.next()
        await api.post("/v1/tree/b", {})
        async with asyncio.timeout(10):
            while (line := await lines.next())["zxid"] == 0:
                pass

        assert line == {"type": "bookmark", "zxid": 1}


async def test_what_is_not_kept_any_more_is_refused() -> None:
    """Never a silent gap: 410, and the reader reads anew."""
    async with serving(limits=MemberLimits(watch_history_changes=2)) as api:
        for number in range(5):
            await api.post(f"/v1/tree/{number}", {})

        reply = await api.get("/v1/watch?path=/&kind=subtree&from_zxid=1")

        assert (reply.status, reply.code) == (410, "Compacted")


async def test_a_slow_reader_is_told_to_resync() -> None:
    """What cannot be kept for it is dropped openly, and the stream ends."""
    limits = MemberLimits(watch_buffer_changes=1_000)
    http = HttpConfig(idle_deadline_ms=20_000)
    padding = "x" * 700
    async with serving(limits=limits, http=http) as api, aiohttp.ClientSession() as client:
        async with client.get(
            f"{api.server.url}/v1/watch?path=/&kind=subtree",
            headers={"Accept": "application/x-ndjson"},
            read_bufsize=1_024,
        ) as response:
            operations = [{"op": "create", "path": f"/{number}-{padding}"} for number in range(900)]
            for _ in range(40):
                assert (await api.post("/v1/multi", {"operations": operations})).status == 200
                operations = [
                    {"op": "delete" if each["op"] == "create" else "create", "path": each["path"]}
                    for each in operations
                ]
            lines = [json.loads(line) for line in (await response.read()).split(b"\n") if line]

        assert lines[-1]["type"] == "resync"
        zxids = [line["zxid"] for line in lines[1:-1]]
        assert zxids == list(range(1, len(zxids) + 1))


async def test_watches_end_when_the_door_closes(api: Api) -> None:
    """A stopping member ends its streams in order; the reader goes on elsewhere."""
    async with api.stream("GET", "/v1/watch?path=/a") as lines:
        await lines.next()
        await api.server.stop()

        assert await lines.next() is None


async def test_a_reader_that_leaves_is_forgotten(api: Api) -> None:
    """Nothing is kept for a connection that is gone."""
    async with api.stream("GET", "/v1/watch?path=/a") as lines:
        await lines.next()
        assert b"coordinator_watch_streams 1.0" in (await api.get("/metrics")).raw
    async with asyncio.timeout(10):
        while b"coordinator_watch_streams 0.0" not in (await api.get("/metrics")).raw:
            pass


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?kind=znode",
        "?path=a",
        "?path=/a&kind=everything",
        "?path=/a&from_zxid=-1",
        "?path=/a/../b",
        "?path=/a&unknown",
        "?path=/a&one_shot=maybe",
    ],
)
async def test_a_watch_of_nothing_is_refused(api: Api, query: str) -> None:
    """A question that cannot be answered is a 400, not a silent stream."""
    assert (await api.get(f"/v1/watch{query}")).code == "BadArguments"


@pytest.mark.parametrize(
    "path", ["/v1/watch?path=/a", "/v1/elections/boss?observe=true", "/v1/grants"]
)
async def test_a_stream_that_is_asked_for_with_a_body_is_refused(api: Api, path: str) -> None:
    """Nobody would read it, and it would wait for as long as the stream goes on."""
    reply = await api.call("GET", path, headers={"Accept": "application/x-ndjson"}, data=b"x" * 900)

    assert (reply.status, reply.code) == (400, "BadArguments")
