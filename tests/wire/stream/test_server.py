"""The server's side of the stream, on the port of HTTP, seen from a client moved by hand."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from coordinator.node.config import HttpConfig
from coordinator.wire import client_turns
from coordinator.wire.stream import connection as stream_connection
from coordinator.wire.stream import frames, outbox
from tests.patience import patient
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import Speaker, speaking

LINES = "application/x-ndjson"
QUICK = HttpConfig(header_deadline_ms=100, body_deadline_ms=100, idle_deadline_ms=300)


async def until(is_so: object) -> None:
    """Return once ``is_so()``, looking again at each turn of the loop."""
    assert callable(is_so)
    async with asyncio.timeout(patient(10)):
        while not is_so():  # noqa: ASYNC110 (a counter, not an event)
            await asyncio.sleep(0)


async def test_requests_follow_the_preface_in_one_packet(api: Api) -> None:
    """No round trip comes before the first request."""
    async with speaking(api.server.port, hello=False) as speaker:
        hello = frames.Hello(frames.VERSION, frames.HelloSettings(label="test"))
        create = speaker.request("POST", "/v1/tree/a", {"data": b"x"})
        speaker.send(hello, create, before=frames.PREFACE)

        welcome = await speaker.expect(frames.Welcome)
        answer = await speaker.expect(frames.AnswerFrame)

    assert welcome.settings.member_id == "1"
    assert (answer.id, answer.status) == (create.id, 201)
    assert answer.headers["location"] == "/v1/tree/a"
    assert "coordinator-member" not in answer.headers
    assert "content-type" not in answer.headers


async def test_a_connection_in_drips_is_one(api: Api) -> None:
    """However the bytes are split on the way."""
    async with speaking(api.server.port, hello=False) as speaker:
        hello = frames.Hello(frames.VERSION, frames.HelloSettings())
        sent = frames.PREFACE + frames.encoded(hello)
        sent += frames.encoded(speaker.request("GET", "/health/live"))
        for each in sent:
            speaker.writer.write(bytes([each]))
            await asyncio.sleep(0)

        await speaker.expect(frames.Welcome)
        assert (await speaker.expect(frames.AnswerFrame)).status == 200


async def test_answers_do_not_wait_for_each_other(api: Api) -> None:
    """A wait is answered after what was asked later; each says which request it is of."""
    async with speaking(api.server.port) as speaker:
        session = (await speaker.call("POST", "/v1/sessions", {"timeout_ms": 60_000})).body
        body = {"session_id": session["session_id"], "timeout_ms": 60_000}
        first = (await speaker.call("POST", "/v1/locks/a", body)).body
        waiting = speaker.request("POST", "/v1/locks/a", body)
        quick = speaker.request("GET", "/health/live")
        release = speaker.request("DELETE", f"/v1/locks/a/grants/{first['grant']['grant_id']}")
        speaker.send(waiting, quick)
        assert (await speaker.expect(frames.AnswerFrame)).id == quick.id

        speaker.send(release)
        answers = [await speaker.expect(frames.AnswerFrame) for _ in range(2)]

    assert {each.id for each in answers} == {release.id, waiting.id}
    assert {each.status for each in answers} == {200}


async def test_a_cancelled_request_ends_as_its_client_had_gone(api: Api) -> None:
    """With ``on_disconnect: leave`` it leaves the queue, and nothing is said of it any more."""
    async with speaking(api.server.port) as speaker:
        session = (await speaker.call("POST", "/v1/sessions", {"timeout_ms": 60_000})).body
        body = {"session_id": session["session_id"], "timeout_ms": 60_000}
        await speaker.call("POST", "/v1/locks/a", body)
        waiting = speaker.request("POST", "/v1/locks/a", {**body, "on_disconnect": "leave"})
        speaker.send(waiting)
        await until(lambda: api.member.metrics.contenders_waiting.value == 1)
        looked = (await speaker.call("GET", "/v1/locks/a")).body

        speaker.send(frames.Cancel(waiting.id))
        await until(lambda: api.member.metrics.contenders_waiting.value == 0)
        async with asyncio.timeout(patient(10)):
            while (await speaker.call("GET", "/v1/locks/a")).body["queue"]:
                pass

        assert len(looked["queue"]) == 1


async def test_a_condition_that_nobody_would_look_at_is_refused(api: Api) -> None:
    """HTTP finds a header however it is spelt; here a name is what it is, in lower case."""
    assert (await api.post("/v1/tree/a", {"data": "kept"})).status == 201
    async with speaking(api.server.port) as speaker:
        for name in ("If-Match", "If_Match", "COORDINATOR-REQUEST-NUMBER"):
            refused = await speaker.call("PUT", "/v1/tree/a", {"data": b"lost"}, **{name: '"7"'})
            assert (refused.status, refused.body["code"]) == (400, "BadArguments")
            assert name.replace("_", "-") in refused.body["detail"]
        unchanged = await speaker.call("GET", "/v1/tree/a", accept="application/msgpack")

    assert unchanged.body["data"] == b"kept"


async def test_a_watch_goes_on_beside_other_requests(api: Api) -> None:
    """A HEAD, a LINE for each change, and an END when it was one shot."""
    async with speaking(api.server.port) as speaker:
        watch = speaker.request("GET", "/v1/watch?path=/a&one_shot", accept=LINES)
        speaker.send(watch)
        head = await speaker.expect(frames.Head)
        first = await speaker.expect(frames.Line)
        create = speaker.request("POST", "/v1/tree/a", {"data": b"\xff"})
        speaker.send(create)
        found = [await speaker.next() for _ in range(3)]

    assert (head.id, head.status, first.id) == (watch.id, 200, watch.id)
    kinds = [type(each) for each in found]
    assert sorted(kinds, key=str) == sorted([frames.AnswerFrame, frames.Line, frames.End], key=str)
    assert kinds.index(frames.Line) < kinds.index(frames.End)


@pytest.mark.parametrize("sent", [b"", b"\0coord", frames.PREFACE, frames.PREFACE + b"\0\0"])
async def test_half_a_greeting_is_not_waited_for(sent: bytes) -> None:
    """Preface and HELLO come in the time of a header, or the connection is closed."""
    async with (
        serving(http=QUICK) as api,
        speaking(api.server.port, hello=False) as speaker,
    ):
        began = asyncio.get_running_loop().time()
        speaker.writer.write(sent)

        assert await speaker.rest() == []
        elapsed_ms = (asyncio.get_running_loop().time() - began) * 1_000
        assert 80 <= elapsed_ms < patient(2_000)
        await until(lambda: api.server.connection_count == 0)


async def test_half_a_frame_is_not_waited_for() -> None:
    """A frame that has begun comes in the time of a body."""
    config = replace(QUICK, idle_deadline_ms=60_000)
    async with serving(http=config) as api, speaking(api.server.port) as speaker:
        speaker.writer.write(frames.encoded(speaker.request("GET", "/health/live"))[:-1])

        assert await speaker.rest() == []


async def test_long_frames_in_part_are_bounded_and_short_ones_are_not_refused() -> None:
    """Who sends large bodies bit by bit takes no room from those who send little."""
    config = HttpConfig(body_bytes_max=64 * 1024, bodies_bytes_max=64 * 1024)
    async with (
        serving(http=config) as api,
        speaking(api.server.port) as long,
        speaking(api.server.port) as another,
        speaking(api.server.port) as short,
    ):
        put = long.request("POST", "/v1/tree/a", b"x" * 74_000)
        long.writer.write(frames.encoded(put)[:65_530])
        await until(lambda: api.server._streams.body_bytes.total > 40_000)
        asked = frames.encoded(short.request("GET", "/health/live"))
        short.writer.write(asked[:9])
        await short.writer.drain()
        another.writer.write(frames.encoded(another.request("GET", "/", b"x" * 74_000))[:65_530])
        away = await another.expect(frames.GoAway)
        short.writer.write(asked[9:])

        assert away.problem["code"] == "Throttled"
        assert (await short.expect(frames.AnswerFrame)).status == 200


async def test_the_body_of_a_read_does_not_wait_with_it() -> None:
    """A thousand of them on one connection would be a thousand bodies."""
    async with serving() as api, speaking(api.server.port) as speaker:
        (connection,) = api.server._streams._connections
        assert isinstance(connection, stream_connection.StreamConnection)
        connection._turns._is_long_served = True  # as by an export that waits for credit
        for _ in range(3):
            speaker.send(speaker.request("GET", "/v1/locks", b"x" * 500_000))
        await until(lambda: len(connection._turns._long) == 3)

        assert [len(each._body or b"") for each in connection._turns._long] == [1, 1, 1]


async def test_a_silent_client_is_let_go() -> None:
    """One that pings is not."""
    async with (
        serving(http=QUICK) as api,
        speaking(api.server.port) as silent,
        speaking(api.server.port) as alive,
    ):
        numbers = count()
        async with asyncio.timeout(patient(10)):
            while api.server.connection_count == 2:
                number = next(numbers)
                alive.send(frames.PingFrame(number))
                assert await alive.expect(frames.Pong) == frames.Pong(number)

        assert await silent.rest() == []
        assert (await alive.call("GET", "/health/live")).status == 200


async def test_too_many_requests_are_refused_one_by_one() -> None:
    """What is under way goes on; the refusal is definite."""
    async with serving() as api, speaking(api.server.port) as speaker:
        assert speaker.welcome is not None
        count = speaker.welcome.settings.requests_max
        observe = [
            speaker.request("GET", "/v1/elections/a?observe", accept=LINES) for _ in range(count)
        ]
        speaker.send(*observe)
        heads = {(await speaker.expect(frames.Head)).id for _ in range(count * 0 + 1)}
        one_more = speaker.request("GET", "/health/live")
        speaker.send(one_more)
        while not isinstance(frame := await speaker.next(), frames.AnswerFrame):
            assert frame is not None

        assert heads
        assert (frame.id, frame.status) == (one_more.id, 429)
        speaker.send(frames.Cancel(observe[0].id))
        again = speaker.request("GET", "/health/live")
        speaker.send(again)
        while not isinstance(frame := await speaker.next(), frames.AnswerFrame):
            assert frame is not None
        assert (frame.id, frame.status) == (again.id, 200)


async def test_a_stopping_member_says_so_and_answers_what_is_short() -> None:
    """GOAWAY first; a wait ends as over HTTP, a stream ends, and then the connection."""
    async with serving() as api, speaking(api.server.port) as speaker:
        session = (await speaker.call("POST", "/v1/sessions", {"timeout_ms": 60_000})).body
        body = {"session_id": session["session_id"], "timeout_ms": 60_000}
        await speaker.call("POST", "/v1/locks/a", body)
        waiting = speaker.request("POST", "/v1/locks/a", body)
        watch = speaker.request("GET", "/v1/watch?path=/a", accept=LINES)
        speaker.send(waiting, watch)
        await speaker.expect(frames.Head)
        await speaker.expect(frames.Line)

        await api.server.stop()
        answer = await speaker.rest()

    goaway = answer[0]
    assert isinstance(goaway, frames.GoAway)
    assert goaway.problem["code"] == "ShuttingDown"
    answers = [each for each in answer if isinstance(each, frames.AnswerFrame)]
    assert [(each.id, each.status) for each in answers] == [(waiting.id, 504)]
    assert frames.End(watch.id) in answer


async def test_a_full_member_answers_a_spare_stream_once() -> None:
    """As it answers a spare connection of HTTP: for its health, and nothing else."""
    full = HttpConfig(connections_max=1, header_deadline_ms=30_000)
    async with serving(http=full) as api, speaking(api.server.port):
        async with speaking(api.server.port) as well:
            assert (await well.call("GET", "/health/live")).status == 200
            assert [type(each) for each in await well.rest()] == [frames.GoAway]
        async with speaking(api.server.port) as other:
            refused = await other.call("GET", "/v1/tree")
            assert refused.status == 503
            assert "at most 1 connections" in refused.body["detail"]
            assert [type(each) for each in await other.rest()] == [frames.GoAway]
        async with speaking(api.server.port) as silent:
            assert [type(each) for each in await silent.rest()] == [frames.GoAway]


async def test_requests_are_counted_with_their_door(api: Api) -> None:
    """One figure for both doors."""
    async with speaking(api.server.port) as speaker:
        await speaker.call("GET", "/health/live")
        await api.get("/health/live")

        text = (await speaker.call("GET", "/metrics")).raw.decode()

    for door in ("http", "stream"):
        labels = f'{{door="{door}",route="health_live",status="200"}}'
        assert f"coordinator_requests_total{labels} 1.0" in text, text


async def test_lines_wait_for_credit(api: Api) -> None:
    """What was not taken is not sent; the answers behind it are."""
    async with speaking(api.server.port, window_bytes=10) as speaker:
        watch = speaker.request("GET", "/v1/watch?path=/a", accept=LINES)
        speaker.send(watch)
        await speaker.expect(frames.Head)
        first = await speaker.expect(frames.Line)
        assert (await speaker.call("POST", "/v1/tree/a", {"data": b""})).status == 201
        assert (await speaker.call("GET", "/health/live")).status == 200

        speaker.send(frames.Credit(watch.id, len(first.body)))
        change = await speaker.expect(frames.Line)

        assert change.id == watch.id
        speaker.send(frames.Cancel(watch.id))
        assert (await speaker.call("GET", "/health/live")).status == 200


async def test_a_member_tells_who_leads() -> None:
    """In WELCOME, and after each change."""
    async with serving() as api:
        url = "http://leader:1"
        api.member.leader_address.url = lambda: url  # type: ignore[method-assign]
        speaker = await Speaker.to(api.server.port)
        assert speaker.welcome is not None
        assert speaker.welcome.settings.leader_url == "http://leader:1"
        assert api.server._streams is not None
        api.server._streams._on_leader_change()
        url = "http://other:1"
        api.server._streams._on_leader_change()

        assert await speaker.expect(frames.Leader) == frames.Leader("http://other:1")
        speaker.close()


async def _flooded(api: Api, speaker: Speaker, data_bytes: int, count: int) -> None:
    """Ask for as much as one may ask for, and read nothing of it."""
    created = await speaker.call("POST", "/v1/tree/a", {"data": b"x" * data_bytes})
    assert created.status == 201
    speaker.writer.transport.pause_reading()  # type: ignore[attr-defined]
    asked = [speaker.request("GET", "/v1/tree/a") for _ in range(count)]
    speaker.send(*asked)


async def _stuck(api: Api) -> None:
    """Return once the member has answered all that it begins for a client that reads nothing."""
    assert api.server._streams is not None
    (connection,) = api.server._streams._connections
    assert isinstance(connection, stream_connection.StreamConnection)
    await until(lambda: connection.out.is_paused and not connection._running)


async def test_large_answers_that_are_not_read_are_refused(api: Api) -> None:
    """A member keeps a few of them; the others may be asked for again. Small ones are kept."""
    async with speaking(api.server.port) as speaker:
        await _flooded(api, speaker, 1_000_000, 60)
        await _stuck(api)
        speaker.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answers = [await speaker.expect(frames.AnswerFrame) for _ in range(60)]

        statuses = [each.status for each in answers]
        assert set(statuses) == {200, 429}
        assert (await speaker.call("GET", "/v1/tree/a")).status == 200


async def test_a_client_that_does_not_read_is_cut_off(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it costs more memory than a connection may."""
    monkeypatch.setattr(outbox, "UNSENT_BYTES_MAX", 256 * 1024)
    async with speaking(api.server.port) as speaker:
        await _flooded(api, speaker, 60_000, 1_000)

        await until(lambda: api.server.connection_count == 0)


async def test_what_has_come_is_not_begun_before_answers_are_taken(api: Api) -> None:
    """So many middling answers at once cost a client that reads them no connection."""
    async with speaking(api.server.port) as speaker:
        await _flooded(api, speaker, 60_000, 1_000)
        await _stuck(api)
        speaker.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answers = [await speaker.expect(frames.AnswerFrame) for _ in range(1_000)]

    assert [each.id for each in answers] == list(range(2, 1_002))
    assert sum(each.status == 200 for each in answers) >= 100


async def test_what_a_write_came_to_is_never_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much waits for its client: a refusal would say that nothing had happened."""
    monkeypatch.setattr(stream_connection, "_UNSENT_BYTES_LARGE", -1)
    async with speaking(api.server.port) as speaker:
        await speaker.call("POST", "/v1/tree/a", {"data": b"x" * 1_000_000})
        names = [f"/{number:04}{'y' * 900}" for number in range(100)]
        creates = [{"op": "create", "path": name, "data": b""} for name in names]
        multi = speaker.request("POST", "/v1/multi", {"operations": creates})
        reads = [speaker.request("GET", "/v1/tree/a") for _ in range(3)]
        speaker.send(multi, *reads)
        answers = [await speaker.expect(frames.AnswerFrame) for _ in range(4)]

    statuses = {each.id: each.status for each in answers}
    assert statuses.pop(multi.id) == 200
    assert set(statuses.values()) == {429}


async def test_what_is_given_up_before_its_turn_is_forgotten(api: Api) -> None:
    """A client cannot pile up requests behind one of its own that takes long."""
    async with speaking(api.server.port) as speaker:
        (connection,) = api.server._streams._connections
        assert isinstance(connection, stream_connection.StreamConnection)
        connection._turns._is_long_served = True  # as by an export that waits for credit
        for _ in range(50):
            given_up = speaker.request("GET", "/v1/locks", b"x" * 1_000)
            speaker.send(given_up, frames.Cancel(given_up.id))
        await speaker.call("GET", "/v1/tree/a")

        assert not connection._running
        assert not connection._turns._long


@pytest.mark.parametrize(
    ("target", "is_long"),
    [
        ("/v1/tree/a", False),
        ("/v1/tree/%C3%A9?stat", False),
        ("/v1/tree/a?children", True),
        ("/v1/tree/a?%63hildren", True),
        ("/v1/locks", True),
        ("/v1/watch?path=/a", False),
    ],
)
def test_lists_are_long_however_they_are_spelt(target: str, is_long: bool) -> None:
    assert client_turns.is_long("GET", target) is is_long


async def test_a_client_that_takes_nothing_for_long_is_cut_off() -> None:
    """However little waits for it."""
    async with (
        serving(http=replace(QUICK, header_deadline_ms=5_000)) as api,
        speaking(api.server.port) as speaker,
    ):
        await _flooded(api, speaker, 60_000, 80)

        await until(lambda: api.server.connection_count == 0)


async def test_long_answers_take_turns_and_short_ones_do_not_wait(api: Api) -> None:
    """A list is made after the other; those that were given up are passed over."""
    async with speaking(api.server.port) as speaker:
        lists = [speaker.request("GET", "/v1/locks") for _ in range(5)]
        watching = speaker.request("GET", "/v1/elections/e?observe", accept=LINES)
        after = speaker.request("GET", "/v1/sessions")
        short = speaker.request("PUT", "/v1/tree/a?create", {"data": b""})
        speaker.send(*lists, watching, after, short, frames.Cancel(lists[1].id))
        found = [await speaker.next() for _ in range(8)]

    answers = [each.id for each in found if isinstance(each, frames.AnswerFrame)]
    assert sorted(answers) == sorted([*(each.id for each in lists), after.id, short.id])[:1] + [
        each.id for each in (*lists[2:], after, short)
    ]
    assert answers.index(short.id) < answers.index(after.id)
