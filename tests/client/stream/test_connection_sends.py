"""When the requests of one connection leave: at once, or how many together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from coordinator.client.stream.connection import READS_AT_ONCE, REQUESTS_AT_ONCE, Connection
from coordinator.wire.stream import frames
from tests.client.stream.nested import run_inside
from tests.client.stream.scripted import A, get
from tests.client.virtual_time import run


class Recording(asyncio.BaseTransport):
    """A transport that notes the ids of the requests in each send.

    It is no ``asyncio.Transport``, as that of uvloop is none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reader = frames.from_client(1 << 20)
        self.sends: list[list[int]] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._reader.feed(bytes(data).removeprefix(frames.PREFACE))
        taken = self._reader.take()
        self.sends.append([each.id for each in taken if isinstance(each, frames.RequestFrame)])

    def taken(self) -> list[int]:
        """Return how many requests each send had since the last call."""
        sends, self.sends = self.sends, []
        return [len(each) for each in sends]

    def abort(self) -> None:
        """Nothing is open."""


class Talk:
    """A connection that was welcomed, and callers that ask again as soon as they are answered."""

    def __init__(self) -> None:
        self.transport = Recording()
        self.connection = Connection(A, "", lambda *_: None, lambda _: None)
        self.connection.connection_made(self.transport)
        self.say(frames.Welcome(frames.VERSION, frames.WelcomeSettings("n1")))
        self.transport.sends.clear()
        self._asking: set[asyncio.Task[Any]] = set()

    def say(self, *said: frames.FromServer) -> None:
        self.connection.data_received(b"".join(map(frames.encoded, said)))

    async def answer(self, ids: Sequence[int]) -> None:
        """Answer these requests, all in one read in a callback of the loop; let it go on."""
        answers = [frames.AnswerFrame(each, status=200, headers={}, body=b"") for each in ids]
        asyncio.get_running_loop().call_soon(self.say, *answers)
        await passes()

    async def ask(self, count: int, times: int = 1, method: str = "GET") -> None:
        """Let so many callers ask, each so many times; return at the end of that pass."""
        request = msgspec.structs.replace(get("/"), method=method)

        async def caller() -> None:
            for _ in range(times):
                await self.connection.ask(request, 1_000)

        self._asking |= {asyncio.create_task(caller()) for _ in range(count)}
        await passes()

    async def end(self) -> None:
        self.connection.close("over")
        await asyncio.gather(*self._asking, return_exceptions=True)


async def passes() -> None:
    """Let the loop go on until nothing is left to do at once."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("method", "at_once"), [("GET", READS_AT_ONCE), ("PUT", REQUESTS_AT_ONCE)])
def test_a_lone_request_leaves_at_once_and_many_in_parts(method: str, at_once: int) -> None:
    async def scenario() -> None:
        talk = Talk()
        await talk.ask(1, method=method)
        assert talk.transport.taken() == [1]
        await talk.answer([1])

        await talk.ask(2 * at_once + 4, method=method)

        assert talk.transport.taken() == [1, at_once, at_once, 3]
        await talk.end()

    run(scenario())


@pytest.mark.parametrize(
    ("answered", "reads", "writes"),
    [
        (2, [1, 1], [2]),
        (3, [2, 1], [3]),
        (9, [5, 4], [9]),
        (20, [10, 10], [20]),
        (40, [16, 16, 8], [32, 8]),
    ],
)
def test_callers_that_were_answered_together_ask_again_in_parts(
    answered: int, reads: list[int], writes: list[int]
) -> None:
    """Reads in two halves, the server works on the first while the second is made; writes in one:
    a half would cost a round of its own. The first leaves with others, not alone."""

    async def scenario(method: str, sends: list[int]) -> None:
        talk = Talk()
        await talk.ask(answered, 2, method)
        ids = [number for sent in talk.transport.sends for number in sent]
        talk.transport.sends.clear()

        await talk.answer(ids)

        assert talk.transport.taken() == sends
        await talk.end()

    run(scenario("GET", reads))
    run(scenario("PUT", writes))


def test_what_is_asked_later_is_not_cut_into_halves() -> None:
    """Three answers at once say nothing of the many requests that follow."""

    async def scenario() -> None:
        talk = Talk()
        await talk.ask(3)
        await talk.answer([1, 2, 3])
        talk.transport.sends.clear()

        await talk.ask(12)

        assert talk.transport.taken() == [1, 11]
        await talk.end()

    run(scenario())


def test_a_lone_request_leaves_at_once_after_answers_that_nobody_asked_more_for() -> None:
    """It does not wait for a second one, nor for the next pass."""

    async def scenario() -> None:
        talk = Talk()
        await talk.ask(3)
        await talk.answer([1, 2, 3])
        talk.transport.sends.clear()

        asking = talk.connection.ask(get("/"), 1_000)

        assert talk.transport.taken() == [1]
        asking.cancel()
        await talk.end()

    run(scenario())


@pytest.mark.parametrize("answered", [1, 2])
def test_what_a_step_asks_leaves_while_it_runs_the_loop_inside_itself(answered: int) -> None:
    """As a cell of a notebook does: its loop has passes before the step is over."""

    async def scenario() -> None:
        talk = Talk()
        sent: list[list[int]] = []

        async def caller() -> None:
            await talk.connection.ask(get("/"), 1_000)
            talk.transport.sends.clear()
            talk.connection.ask(get("/"), 1_000)
            run_inside(passes=1)
            sent.append(talk.transport.taken())

        asking = asyncio.create_task(caller())
        await talk.ask(answered - 1)
        await passes()
        await talk.answer(range(1, answered + 1))
        await asking

        assert sent == [[1]]
        await talk.end()

    run(scenario())
