"""Very many watches of one client, whose connection breaks: resumed over one, and without haste."""

from __future__ import annotations

import asyncio
from collections import deque

from coordinator import connect
from coordinator.client import AsyncClient, ChangeStream
from coordinator.client.calling.leader import KnownLeader
from coordinator.client.stream.transport import StreamTransport
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.first_member import beginning_at
from tests.client.stream.scripted import A, B, Network, Peer, welcome
from tests.client.virtual_time import LoopClock, run

COUNT = 1_200


class Watched:
    """A member that needs ``step_s`` for each watch that begins, one after the other."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.asked = 0
        self.watching: list[tuple[Peer, int]] = []
        self._due: deque[tuple[Peer, int]] = deque()

    def respond(self, peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.Hello():
                welcome(peer, requests_max=4_096)
            case frames.PingFrame(number):
                peer.send(frames.Pong(number))
            case frames.RequestFrame(number, "POST"):
                self.asked += 1
                self._due.append((peer, number))
                if len(self._due) == 1:
                    asyncio.get_running_loop().call_later(self.step_s, self._begin)
            case frames.RequestFrame(number):
                peer.send(frames.AnswerFrame(number, status=200, headers={}, body=b"\x80"))
            case frames.Cancel(number):
                self.watching = [each for each in self.watching if each != (peer, number)]

    def _begin(self) -> None:
        peer, number = self._due.popleft()
        line = encode({"type": "watching", "zxid": 7}, Encoding.MSGPACK)
        peer.send(frames.Head(number, status=200, headers={}), frames.Line(number, line))
        self.watching.append((peer, number))
        if self._due:
            asyncio.get_running_loop().call_later(self.step_s, self._begin)

    def change(self) -> None:
        event = {"type": "NodeDataChanged", "path": "/", "version": 1, "czxid": 1}
        line = encode({"type": "change", "zxid": 8, "events": [event]}, Encoding.MSGPACK)
        for peer, number in self.watching:
            peer.send(frames.Line(number, line))


async def _watch(client: AsyncClient, number: int, begun: list[ChangeStream]) -> int:
    async with client.watch(f"/{number}") as changes:
        begun.append(changes)
        return (await anext(changes)).zxid


def test_many_watches_go_on_over_one_connection_after_a_reset() -> None:
    """A slow member gets each of them once, a part at a time: as many as it begins in time."""

    async def scenario() -> None:
        network, first, second = Network(), Watched(0), Watched(0.025)
        network.add(A, first.respond)
        network.add(B, second.respond)
        transport, loop = StreamTransport(KnownLeader(), connect=network.connect), LoopClock
        policy = beginning_at(A, [A, B])
        clock = loop(asyncio.get_running_loop())
        client = await connect([A, B], transport=transport, retry=policy, clock=clock)
        begun: list[ChangeStream] = []
        watching = [asyncio.create_task(_watch(client, each, begun)) for each in range(COUNT)]
        await asyncio.sleep(1)
        assert len(begun) == COUNT

        network.peer(A).transport.abort()
        first.step_s = second.step_s  # nor is the other one quick
        await asyncio.sleep(COUNT * second.step_s + 5)

        assert {url: len(peers) for url, peers in network.peers.items()} == {A: 1, B: 1}
        assert (first.asked, second.asked) == (COUNT, COUNT)
        second.change()
        assert await asyncio.gather(*watching) == [8] * COUNT
        await client.close()

    run(scenario())
