"""A conversation of the stream, cut at every byte: nothing of it stays behind at the member.

No task, no place among the connections, no place in a queue, no watch, no bytes of a part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from coordinator.wire.stream import frames
from tests.patience import patient
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import Speaker

LINES = "application/x-ndjson"
_AT_ONCE = 40
"""Connections of one member, each cut at another byte."""


def conversation(session_id: str, number: int) -> bytes:
    """Return what a client sends: something of each kind, waits and streams among it."""
    asked = _Asked(session_id, number)
    sent = [
        frames.Hello(frames.VERSION, frames.HelloSettings(window_bytes=5)),
        asked("PUT", f"/v1/tree/n{number}?create", {"data": b"x" * 30}),
        asked("GET", "/v1/tree/a"),
        asked("GET", f"/v1/watch?path=/n{number}", accept=LINES),
        asked("POST", "/v1/locks/held", asked.wish()),
        asked("POST", "/v1/locks/held", asked.wish(), accept=LINES),
        asked("POST", "/v1/locks/other", {"lease_ms": 60_000, "timeout_ms": 60_000}),
        asked("GET", "/v1/elections/e?observe", accept=LINES),
        frames.PingFrame(7),
        frames.Credit(3, 100),
        frames.Cancel(4),
    ]
    return frames.PREFACE + b"".join(map(frames.encoded, sent))


class _Asked:
    """Makes requests with growing ids."""

    def __init__(self, session_id: str, number: int) -> None:
        self._session_id = session_id
        self._number = number
        self._id = 0

    def wish(self) -> dict[str, object]:
        return {
            "session_id": self._session_id,
            "timeout_ms": 60_000,
            "on_disconnect": "leave",
        }

    def __call__(
        self, method: str, target: str, body: object = None, **headers: str
    ) -> frames.RequestFrame:
        self._id += 1
        raw = None if body is None else msgspec.msgpack.encode(body)
        return frames.RequestFrame(
            self._id, method=method, target=target, headers=headers, body=raw
        )


@pytest.fixture
async def held() -> AsyncIterator[tuple[Api, str]]:
    """Run a member where the locks are held, so that everybody waits."""
    async with serving() as api:
        session_id = await api.session_id()
        for name in ("held", "other"):
            body = {"session_id": session_id, "timeout_ms": 0}
            assert (await api.post(f"/v1/locks/{name}", body)).status == 200
        yield api, session_id


async def _is_as_before(api: Api, tasks: int) -> bool:
    metrics = api.member.metrics
    if api.server.connection_count > 1 or metrics.contenders_waiting.value:
        return False  # the one is that of HTTP
    streams = api.server._streams
    assert streams is not None
    if streams.connection_count or streams._ending or streams.body_bytes.total:
        return False
    if metrics.watch_streams.value or len(asyncio.all_tasks()) > tasks:
        return False
    queued = [len((await api.get(f"/v1/locks/{name}")).body["queue"]) for name in ("held", "other")]
    return queued == [0, 0]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.check)])
async def test_a_conversation_cut_at_each_byte_leaves_nothing(
    held: tuple[Api, str], step: int
) -> None:
    """However far it came; closed or broken, and before or after it was begun to be answered."""
    api, session_id = held
    await api.get("/v1/locks/held")
    tasks = len(asyncio.all_tasks())
    whole = conversation(session_id, 1)
    cuts = range(1, len(whole) + 1, step)
    for start in range(0, len(cuts), _AT_ONCE):
        speakers = []
        for cut in cuts[start : start + _AT_ONCE]:
            speaker = await Speaker.to(api.server.port, hello=False)
            speaker.writer.write(whole[:cut])
            speakers.append(speaker)
        await asyncio.sleep(0.01 * (start % 2))
        for number, speaker in enumerate(speakers):
            if number % 2:
                speaker.close()
            else:
                speaker.break_off()
    async with asyncio.timeout(patient(10)):
        while not await _is_as_before(api, tasks):  # noqa: ASYNC110 (a member's state, no event)
            await asyncio.sleep(0.01)


async def test_a_whole_conversation_is_answered(held: tuple[Api, str]) -> None:
    """What is cut elsewhere is a conversation: each request of it is answered or waits."""
    api, session_id = held
    speaker = await Speaker.to(api.server.port, hello=False)
    speaker.writer.write(conversation(session_id, 1))

    kinds = [type(await speaker.next()).__name__ for _ in range(9)]
    speaker.break_off()

    assert kinds[0] == "Welcome"
    expected = ["AnswerFrame", "AnswerFrame", "Head", "Head", "Head", "Line", "Line", "Pong"]
    assert sorted(kinds[1:]) == expected
