"""Turns and rates of clients at the doors: each is known by the address it comes from."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

from coordinator.node.config import HttpConfig, MemberLimits
from coordinator.service.base.turns import LINE_MAX, MODEST_MAX
from coordinator.wire.client_turns import URGENT_FREE, URGENT_PER_SESSION, ClientTurns
from coordinator.wire.stream import frames
from coordinator.wire.stream.connection import StreamConnection
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import Speaker

MODEST, RAGING = "127.0.0.2", "127.0.0.3"


async def speaker_from(address: str, port: int) -> Speaker:
    opened = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    speaker = Speaker(*opened)
    speaker.send(frames.Hello(frames.VERSION, frames.HelloSettings()), before=frames.PREFACE)
    speaker.welcome = await speaker.expect(frames.Welcome)
    return speaker


def of(api: Api, address: str) -> list[StreamConnection]:
    """Return the connections of a client."""
    assert api.server._streams is not None
    found = [each for each in api.server._streams._connections if each.place.address == address]  # type: ignore[attr-defined]
    return found  # type: ignore[return-value]


def several_ask(api: Api) -> None:
    """Have the member believe that others ask, for as long as the test takes."""
    api.member.turns._shared_until_s = math.inf
    api.member.turns._elsewhere_until_s = math.inf


async def test_who_asks_little_does_not_wait_for_who_asks_by_the_thousand(api: Api) -> None:
    raging = [await speaker_from(RAGING, api.server.port) for _ in range(3)]
    modest = await speaker_from(MODEST, api.server.port)
    several_ask(api)
    for each in raging:
        each.send(*[each.request("PUT", "/v1/tree/a?create", {"data": b""}) for _ in range(100)])
    while not api.member.turns.waits_total:  # noqa: ASYNC110
        await asyncio.sleep(0)
    answers = [await modest.call("GET", "/health/ready"), await modest.call("GET", "/v1/tree/")]

    waiting = [len(each._running) + each._reader.has_rest for each in of(api, RAGING)]
    assert [each.status for each in answers] == [200, 200]
    assert sum(waiting) > LINE_MAX, "the others' line is long, and nobody waited for it"
    for each in raging:
        for _ in range(100):
            assert (await each.expect(frames.AnswerFrame)).status in (200, 201), "all in the end"
        each.writer.close()
    modest.writer.close()


async def test_what_waits_for_a_lock_holds_no_turn(api: Api) -> None:
    speaker = await speaker_from(MODEST, api.server.port)
    several_ask(api)
    opened = (await speaker.call("POST", "/v1/sessions", {"timeout_ms": 60_000})).body
    body = {"session_id": opened["session_id"], "timeout_ms": 60_000}
    other = {**body, "session_id": await api.session_id()}
    assert (await speaker.call("POST", "/v1/locks/a", other)).status == 200
    waiting = [speaker.request("POST", "/v1/locks/a", body) for _ in range(MODEST_MAX // 2)]
    watching = speaker.request("GET", "/v1/watch?path=/a", accept="application/x-ndjson")
    speaker.send(*waiting, watching)
    assert isinstance(await speaker.next(), frames.Head)
    while any(each.mark for each in of(api, MODEST)[0]._running.values()):  # noqa: ASYNC110
        await asyncio.sleep(0)

    (client,) = [each for key, each in api.member.turns._clients.items() if key == MODEST]
    assert client.under_way == 0
    assert client.heavy_until_s == 0.0
    assert len(of(api, MODEST)[0]._running) == 1 + MODEST_MAX // 2, "they wait, and watch"
    speaker.writer.close()


async def test_what_is_cancelled_in_its_line_is_not_begun(api: Api) -> None:
    speaker = await speaker_from(RAGING, api.server.port)
    several_ask(api)
    writes = [speaker.request("POST", f"/v1/tree/c{n}", {"data": b""}) for n in range(40)]
    speaker.send(*writes, *[frames.Cancel(each.id) for each in writes[MODEST_MAX:]])
    for _ in range(MODEST_MAX):
        assert (await speaker.expect(frames.AnswerFrame)).status == 201
    answer = await speaker.call("GET", "/v1/tree/?children")

    assert len(answer.body["children"]) == MODEST_MAX
    speaker.writer.close()


async def test_a_rate_refuses_what_is_beyond_it_at_every_door() -> None:
    """But not what keeps a session, gives something back, or asks for the health."""
    limits = replace(MemberLimits(), requests_per_second_max=20)
    async with serving(limits=limits) as api:
        speaker = await speaker_from(MODEST, api.server.port)
        opened = (await speaker.call("POST", "/v1/sessions", {"timeout_ms": 60_000})).body
        one = f"/v1/sessions/{opened['session_id']}"
        speaker.send(*[speaker.request("GET", "/v1/tree/") for _ in range(60)])
        answers = [await speaker.expect(frames.AnswerFrame) for _ in range(60)]
        refused = [each for each in answers if each.status == 429]
        beat, health = (
            await speaker.call("POST", f"{one}/heartbeat"),
            await speaker.call("GET", "/health/live"),
        )
        released = await speaker.call("DELETE", one)

        by_http = []
        for accept in ("application/json", "application/x-ndjson, application/json"):
            read, write = await asyncio.open_connection(
                "127.0.0.1", api.server.port, local_addr=(MODEST, 0)
            )
            head = f"GET /v1/tree/?stale HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"
            for _ in range(30):
                write.write(head.encode())
                answer = await read.readuntil(b"\r\n\r\n")
                length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await read.readexactly(length)
                if b" 429 " in answer.split(b"\r\n")[0]:
                    by_http.append(answer)
                    break
            write.close()

    assert 20 <= len(refused) <= 45, "twenty at once, and twenty a second"
    assert refused[0].headers["retry-after"] == "1"
    assert b"requests_per_second_max" in refused[0].body
    assert [beat.status, health.status, released.status] == [200, 200, 200]
    assert len(by_http) == 2
    assert all(b"\r\nRetry-After: 1\r\n" in each for each in by_http)


def came(speaker: Speaker) -> bool:
    """Whether something has come that was not read."""
    return bool(speaker.reader._buffer)  # type: ignore[attr-defined]


async def test_bodies_in_part_of_one_client_leave_room_for_those_of_another() -> None:
    """By the stream and by HTTP: the raging client is refused, the modest one is answered."""
    config = HttpConfig(body_bytes_max=256 * 1024, bodies_bytes_max=2 * 1024 * 1024)
    async with serving(http=config) as api:
        held, raging, refused = api.server._streams.body_bytes, [], 0  # type: ignore[union-attr]
        for _ in range(12):
            speaker = await speaker_from(RAGING, api.server.port)
            sent = frames.encoded(speaker.request("PUT", "/v1/tree/a", b"x" * 240_000))
            before = held.total
            speaker.writer.write(sent[:-1])
            raging.append(speaker)
            while held.total < before + 200_000 and not came(speaker):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            refused += came(speaker)
        read, write = await asyncio.open_connection(
            "127.0.0.1", api.server.port, local_addr=(MODEST, 0)
        )
        head = "POST /v1/tree/b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 120012\r\n"
        write.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + b'{"data": "')
        await write.drain()
        while not (held.held_by(RAGING) and held.held_by(MODEST)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        write.write(b"x" * 120_000 + b'"}')
        by_http = await read.readuntil(b"\r\n")
        modest = await speaker_from(MODEST, api.server.port)
        by_stream = await modest.call("PUT", "/v1/tree/b", {"data": b"x" * 100_000})
        write.close()
        for each in (*raging, modest):
            each.writer.close()

    assert 4 <= refused < 12, "half of all is for one, at most"
    assert b" 201 " in by_http
    assert by_stream.status == 200


async def test_urgent_requests_beyond_what_sessions_need_are_counted_as_asking(api: Api) -> None:
    """A flood of ends of sessions that are not there waits for its turns as anything else does."""
    raging = await speaker_from(RAGING, api.server.port)
    modest = await speaker_from(MODEST, api.server.port)
    turns = api.member.turns
    raging.send(*[raging.request("DELETE", f"/v1/sessions/{n:032x}") for n in range(200)])
    raged = [await raging.expect(frames.AnswerFrame) for _ in range(200)]
    for _ in range(40):
        await modest.call("DELETE", "/v1/sessions/" + "0" * 32)

    assert {each.status for each in raged} == {200}
    assert turns._clients[RAGING].noted > 0
    assert turns._clients[MODEST].noted == 0
    for each in (raging, modest):
        each.writer.close()


async def test_a_client_with_many_sessions_may_keep_them_all(api: Api) -> None:
    """What each of them needs counts as nothing."""
    speaker = await speaker_from(MODEST, api.server.port)
    key, turns = "127.0.0.2", ClientTurns(api.member, 1_000, lambda: 0)
    opened = [await speaker.call("POST", "/v1/sessions", {}) for _ in range(10)]

    free = 0
    while turns._is_needed(key):
        free += 1

    assert {each.status for each in opened} == {201}
    assert free == URGENT_FREE + 10 * URGENT_PER_SESSION
    speaker.writer.close()


async def test_who_begins_watches_by_the_thousand_waits_for_its_turns(api: Api) -> None:
    """A stream holds no turn; its begin is work all the same, and so is a refusal."""
    turns, until_s = api.member.turns, asyncio.get_running_loop().time() + 10
    raging = await speaker_from(RAGING, api.server.port)
    modest = await speaker_from(MODEST, api.server.port)
    while not turns.waits_total and asyncio.get_running_loop().time() < until_s:
        await modest.call("GET", "/v1/tree/")
        raging.send(*[raging.request("GET", "/v1/watch?path=/a") for _ in range(40)])

    assert turns.waits_total > 0
    for each in (raging, modest):
        each.writer.close()


async def test_a_client_that_is_not_read_from_is_not_late_with_its_frames() -> None:
    """However long its line stays full: the rest of a frame waits in its connection meanwhile."""
    config = HttpConfig(body_deadline_ms=50)
    async with serving(http=config) as api:
        raging = await speaker_from(RAGING, api.server.port)
        await raging.call("PUT", "/v1/tree/a?create", {"data": b""})
        several_ask(api)
        client, loop = api.member.turns._clients[RAGING], asyncio.get_running_loop()
        client.heavy_until_s = client.rest_until_s = math.inf
        raging.send(*[raging.request("GET", "/v1/tree/a") for _ in range(5 * LINE_MAX)])
        (connection,) = of(api, RAGING)
        while not connection._turns._is_held:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        connection._frame_timer = loop.call_soon(connection._late)  # the time of a frame in part
        await asyncio.sleep(0)
        client.heavy_until_s = client.rest_until_s = 0.0
        api.member.turns._look()

        for _ in range(5 * LINE_MAX):
            assert (await raging.expect(frames.AnswerFrame)).status == 200
        raging.writer.close()
