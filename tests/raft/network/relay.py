"""A relay on the path between two members: it has no secret, and does what it likes with frames."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.raft.network.frames import PayloadReader, frame

TO_ACCEPTOR, TO_DIALER = "to the acceptor", "to the dialer"
HANDSHAKE_FRAMES = 2
"""In each direction; what follows is sealed."""


@dataclass
class Passage:
    """One connection through the relay, as its deed sees it."""

    heard: dict[str, list[bytes]] = field(default_factory=lambda: {TO_ACCEPTOR: [], TO_DIALER: []})
    """Every frame so far, by direction, with its length in front."""
    writers: dict[str, asyncio.StreamWriter] = field(default_factory=dict)

    def cut(self) -> None:
        """Break both its ends."""
        for writer in self.writers.values():
            writer.transport.abort()

    def is_sealed(self, direction: str) -> bool:
        """Whether the frame that came last follows the handshake."""
        return len(self.heard[direction]) > HANDSHAKE_FRAMES


Deed = Callable[[Passage, str, bytes], list[bytes]]
"""(connection, direction, frame) -> what is written instead of it; the frame is noted already."""


def pass_on(_passage: Passage, _direction: str, whole: bytes) -> list[bytes]:
    return [whole]


class Relay:
    """Listens in a member's place and passes on to the member, as ``deed`` says."""

    def __init__(self, target_port: int, target_host: str = "127.0.0.1") -> None:
        self.target_port = target_port
        self._target_host = target_host
        self.deed: Deed = pass_on
        self.passages: list[Passage] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection."""
        for passage in self.passages:
            passage.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner, outer = await asyncio.open_connection(self._target_host, self.target_port)
        except OSError:
            writer.transport.abort()
            return
        passage = Passage(writers={TO_ACCEPTOR: outer, TO_DIALER: writer})
        self.passages.append(passage)
        for direction, source in ((TO_ACCEPTOR, reader), (TO_DIALER, inner)):
            task = asyncio.create_task(self._pump(passage, direction, source))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, passage: Passage, direction: str, source: asyncio.StreamReader) -> None:
        frames = PayloadReader(2**24)
        writer = passage.writers[direction]
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                frames.feed(data)
                while (payload := frames.next()) is not None:
                    whole = frame(payload)
                    passage.heard[direction].append(whole)
                    for said in self.deed(passage, direction, whole):
                        writer.write(said)
        for each in passage.writers.values():
            each.close()
