"""Lines of the stream: credit, silence, and what comes instead of lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import (
    ConnectionLostError,
)
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.scripted import A, Network, Peer, echo, ended, get, linked
from tests.client.virtual_time import run


def test_lines_with_credit() -> None:
    """Lines come one after the other, empty ones aside; what was taken is credited."""

    def lines(peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.RequestFrame(number):
                peer.send(frames.Head(number, status=200, headers={"coordinator-zxid": "7"}))
                peer.send(frames.Line(number, b""))
                for _ in range(3):
                    peer.send(frames.Line(number, bytes(100_000)))
                peer.send(frames.End(number))
            case _:
                echo(peer, frame)

    async def scenario() -> None:
        _, transport = linked(lines)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            assert stream.status == 200
            assert stream.headers["coordinator-zxid"] == "7"
            assert stream.watches_silence
            found = []
            while (line := await stream.line()) is not None:
                found.append(len(line))
        assert found == [100_000] * 3
        await transport.close()

    run(scenario())


def test_who_reads_the_lines_as_they_are_closed_is_woken() -> None:
    """A reader that was interrupted closes them when the next one reads them already."""

    def silent(peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.RequestFrame(number):
                peer.send(frames.Head(number, status=200, headers={}))
            case _:
                echo(peer, frame)

    async def scenario() -> None:
        _, transport = linked(silent)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            reading = asyncio.ensure_future(stream.line())
            await asyncio.sleep(0.1)
        assert await asyncio.wait_for(reading, 1) is None
        await transport.close()

    run(scenario())


def test_lines_that_go_on_are_credited_and_given_up() -> None:
    """Half of the window is given back when it was taken; leaving the block is a CANCEL."""

    def endless(peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.RequestFrame(number):
                peer.send(frames.Head(number, status=200, headers={}))
                peer.send(frames.Line(number, bytes(200_000)))
            case frames.Credit(number, amount):
                peer.send(frames.Line(number, amount.to_bytes(4, "big")))
            case _:
                echo(peer, frame)

    async def scenario() -> None:
        network, transport = linked(endless)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            assert len(await stream.line() or b"") == 200_000
            async with asyncio.timeout(10):
                assert await stream.line() == (200_000).to_bytes(4, "big")
        await asyncio.sleep(0.1)
        assert frames.Cancel(1) in network.peer(A).received
        await transport.close()

    run(scenario())


def test_a_stream_whose_member_falls_silent_breaks() -> None:
    """PING is sent while lines are waited for; without an answer the connection has failed."""

    async def scenario() -> None:
        is_dead = False

        def dies(peer: Peer, frame: FromClient) -> None:
            if is_dead:
                return
            if isinstance(frame, frames.RequestFrame):
                peer.send(frames.Head(frame.id, status=200, headers={}))
            else:
                echo(peer, frame)

        network, loop = Network(), asyncio.get_running_loop()
        network.add(A, dies)
        transport = StreamTransport(connect=network.connect)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            waiting = asyncio.create_task(ended(stream.line()))
            await asyncio.sleep(60)
            assert not waiting.done()
            is_dead, died_s = True, loop.time()
            found = await waiting
            assert isinstance(found, ConnectionLostError)
            assert 5 < loop.time() - died_s < 12
        await transport.close()

    run(scenario())


def test_a_problem_instead_of_lines_is_read_whole() -> None:
    """A stream that is refused is one answer."""

    def refuses(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame):
            peer.send(frames.AnswerFrame(frame.id, status=410, headers={}, body=b"problem"))
        else:
            echo(peer, frame)

    async def scenario() -> None:
        _, transport = linked(refuses)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            assert (stream.status, await stream.read()) == (410, b"problem")
        await transport.close()

    run(scenario())


@pytest.mark.parametrize("said", [frames.End, lambda number: frames.Line(number, b"line")])
def test_a_stream_without_status_is_no_answer(said: Callable[[int], frames.FromServer]) -> None:
    """A server that says lines or the end first has said nothing of the request."""

    def lies(peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.RequestFrame(number):
                peer.send(said(number))
            case _:
                echo(peer, frame)

    async def scenario() -> None:
        _, transport = linked(lies)
        with pytest.raises(ConnectionLostError, match="expected status and headers"):
            async with transport.stream(A, get("/watch"), 1_000):
                raise AssertionError("there is no stream")
        await transport.close()

    run(scenario())
