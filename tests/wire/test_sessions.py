"""/v1/sessions, over a socket."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest

from coordinator.client.calling.transport import Request
from coordinator.client.in_process import InProcessTransport
from coordinator.clock import Clock
from coordinator.model.sessions import margin_ms
from coordinator.node.config import Config
from coordinator.wire.http.app import create_app
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.wire.serving import Api


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("application/json", b"", 200), ("application/json", b"{}", 200),
        ("application/json", b"{ }", 200), ("application/msgpack", b"\x80", 200),
        ("application/json", b'{"a": 1}', 400), ("application/json", b"[]", 400),
        ("application/msgpack", b"\x81\xa1a\x01", 400), ("application/msgpack", b"{}", 400),
    ],
)  # fmt: skip
async def test_a_heartbeat_may_say_nothing_in_each_encoding(
    api: Api, content_type: str, body: bytes, status: int
) -> None:
    """An empty object is no body; anything else is more than it takes."""
    session_id = await api.session_id()
    beat = await api.call(
        "POST",
        f"/v1/sessions/{session_id}/heartbeat",
        data=body,
        headers={"Content-Type": content_type},
        without_type=True,
    )

    assert beat.status == status, beat


async def test_a_session_lives_and_ends(api: Api) -> None:
    """Opened, seen, kept alive, closed; its ephemerals go with it."""
    opened = await api.post("/v1/sessions", {"timeout_ms": 5_000, "label": "me"})
    session_id = opened.body["session_id"]
    await api.post("/v1/tree/e", {"mode": "ephemeral", "session_id": session_id})

    one = await api.get(f"/v1/sessions/{session_id}")
    every = await api.get("/v1/sessions")
    beat = await api.post(f"/v1/sessions/{session_id}/heartbeat")
    closed = await api.delete(f"/v1/sessions/{session_id}")
    again = await api.delete(f"/v1/sessions/{session_id}")

    assert (opened.status, opened.body["timeout_ms"]) == (201, 5_000)
    assert opened.headers["Location"] == f"/v1/sessions/{session_id}"
    assert len(session_id) == 16
    assert one.body["ephemerals"] == ["/e"]
    assert (one.body["label"], one.body["ephemeral_count"]) == ("me", 1)
    assert "ephemerals" not in every.body["sessions"][0]
    answer = beat.body
    assert 0 < answer.pop("safe_ms") <= 5_000 - 125
    assert (beat.status, answer) == (200, {"session_id": session_id, "timeout_ms": 5_000})
    assert closed.body == {"session_id": session_id, "was_open": True}
    assert again.body["was_open"] is False
    assert (await api.get("/v1/tree/e")).status == 404
    assert (await api.get("/v1/sessions")).body == {"sessions": [], "next": None}


async def test_a_session_may_end_as_a_loss(api: Api) -> None:
    """What its client says of itself is in the history, and the lock stays closed."""
    session_id = (await api.post("/v1/sessions", {})).body["session_id"]
    acquire = {"session_id": session_id, "timeout_ms": 0, "lock_delay_ms": 60_000}
    grant_id = (await api.post("/v1/locks/a", acquire)).body["grant"]["grant_id"]

    closed = await api.delete(f"/v1/sessions/{session_id}?failure=disk%20full%20%E2%9C%97")
    again = await api.delete(f"/v1/sessions/{session_id}?failure=other")

    assert (closed.body["was_open"], again.body["was_open"]) == (True, False)
    story = (await api.get(f"/v1/grants/a/{grant_id}")).body
    assert (story["grant"]["how"], story["grant"]["reason"]) == ("failed", "disk full ✗")
    assert "disk full" in " ".join(story["sentences"])
    assert (await api.get("/v1/locks/a")).body["closed"]["delay_ms"] == 60_000
    listed = (await api.get("/v1/grants?how=failed")).body["grants"]
    assert [each["grant_id"] for each in listed] == [grant_id]
    assert "sessions_failed_total 1.0" in (await api.get("/metrics")).raw.decode()


@pytest.mark.parametrize("failure", ["", "x" * 513, "%ff"])
async def test_a_failure_is_said_in_a_few_words(api: Api, failure: str) -> None:
    """An empty one would be a clean end by mistake."""
    session_id = (await api.post("/v1/sessions", {})).body["session_id"]

    reply = await api.delete(f"/v1/sessions/{session_id}?failure={failure}")

    assert (reply.status, reply.code) == (400, "BadArguments")
    assert (await api.get(f"/v1/sessions/{session_id}")).status == 200


async def test_an_ended_session_is_gone(api: Api) -> None:
    """Heartbeats and reads of it are 410: nothing brings it back."""
    for method, path in (("GET", ""), ("POST", "/heartbeat")):
        reply = await api.call(method, f"/v1/sessions/00000000000000aa{path}")
        assert (reply.status, reply.code, reply.body["definite"]) == (410, "SessionExpired", True)


@pytest.mark.parametrize("timeout_ms", [0, -1, 999, 3_600_001, 1e308, "5000", 2**62])
async def test_a_timeout_has_limits(api: Api, timeout_ms: object) -> None:
    """A lease that cannot be kept is not promised."""
    reply = await api.post("/v1/sessions", {"timeout_ms": timeout_ms})

    assert reply.code == "BadArguments"
    assert (await api.get("/v1/sessions")).body == {"sessions": [], "next": None}


async def test_the_server_chooses_a_timeout_when_asked_to(api: Api) -> None:
    """An empty body is enough."""
    assert (await api.post("/v1/sessions")).body["timeout_ms"] == 10_000


async def test_a_repeated_open_is_one_session(api: Api) -> None:
    """A lost reply does not leave a second session behind."""
    headers = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
    first = await api.post("/v1/sessions", {}, **headers)
    again = await api.post("/v1/sessions", {}, **headers)

    assert first.body == again.body
    assert len((await api.get("/v1/sessions")).body["sessions"]) == 1


async def test_the_list_of_sessions_comes_in_pages(api: Api) -> None:
    """In the order of their opening, each once; ``next`` is null at the end."""
    opened = [await api.session_id() for _ in range(5)]
    found: list[str] = []
    sizes: list[int] = []
    after = "0"

    while True:
        page = (await api.get(f"/v1/sessions?limit=2&after={after}")).body
        sizes.append(len(page["sessions"]))
        found += [each["session_id"] for each in page["sessions"]]
        if page["next"] is None:
            break
        after = page["next"]

    assert found == opened
    assert sizes == [2, 2, 1]


async def test_a_request_that_names_its_session_renews_it(api: Api) -> None:
    """Whatever it asks for, and whatever that comes to; the answer says for how long it is safe."""
    session_id = (await api.post("/v1/sessions", {"timeout_ms": 5_000})).body["session_id"]
    named = {"Coordinator-Session-Id": session_id}

    for reply in (
        await api.post("/v1/tree/a", {}, **named),
        await api.post("/v1/tree/a", {}, **named),
        await api.get("/v1/tree/a", **named),
        await api.get("/v1/tree/a?stale", **named),
        await api.post("/v1/locks/a", {"session_id": session_id}, **named),
    ):
        assert 0 < int(reply.headers["Coordinator-Safe-Ms"]) <= 5_000 - 125
        assert reply.headers["Cache-Control"] == "no-store"  # it is true of this request alone

    assert "Coordinator-Safe-Ms" not in (await api.get("/v1/tree/a")).headers
    await api.delete(f"/v1/sessions/{session_id}")
    late = await api.get("/v1/tree/a", **named)
    assert late.status == 200
    assert "Coordinator-Safe-Ms" not in late.headers


class LateClock:
    """Each look at it is a tenth of a second after the one before, as if all took so long."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._late_ms = 0

    def monotonic_ms(self) -> int:
        self._late_ms += 100
        return self._clock.monotonic_ms() + self._late_ms

    def wall_ms(self) -> int:
        return self._clock.wall_ms()


@in_memory
async def test_what_is_safe_is_less_by_what_the_answer_took(world: MemoryCluster) -> None:
    """Of one heartbeat and of several alike: it is counted from when the answer leaves."""
    app = create_app(world.member, Config().http, LateClock(world.clock))
    transport = InProcessTransport({"http://late:1": app})

    async def asked(target: str, body: Any) -> Any:
        headers = {"content-type": "application/msgpack"}
        request = Request("POST", target=target, headers=headers, body=body and msgpack.packb(body))
        return msgpack.unpackb((await transport.request("http://late:1", request, 60_000)).body)

    opened = await asked("/v1/sessions", {"timeout_ms": 10_000})
    session_id = opened["session_id"]
    beat = await asked(f"/v1/sessions/{session_id}/heartbeat", None)
    beats = await asked("/v1/sessions/heartbeats", {"session_ids": [session_id]})

    for said in (opened, beat, *beats["sessions"]):
        assert said["safe_ms"] <= 10_000 - margin_ms(10_000) - 100
    await transport.close()
