"""A relay in front of one member of a development cluster, by which its links can be cut.

All members are reached at addresses where relays listen, and listen elsewhere themselves. The first
frame of a link says in clear who dials (the hello of the handshake), so a relay knows both ends of
each link. A cut drops what comes, silently, as a network does that loses every packet; healing
closes the links that lost bytes, for a real network would have sent those again.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass

import msgpack  # type: ignore[import-untyped]

_CHUNK_BYTES = 65_536
_HELLO_BYTES_MAX = 1_024
_HELLO_S = 5.0
_CALLER = 4
"""Which field of the hello is the id of the member that dials."""


@dataclass(eq=False)
class _Link:
    caller: str
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter
    has_lost: bool = False


class MemberRelay:
    """Forwards ``host:port`` to ``target_host:port``, for the links of member ``member_id``."""

    def __init__(self, member_id: str, host: str, target_host: str, port: int) -> None:
        self.member_id = member_id
        self.cut_off: frozenset[str] = frozenset()
        """The members whose every link drops what comes."""
        self._host, self._target_host, self._port = host, target_host, port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: set[_Link] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, self._host, self._port)

    async def stop(self) -> None:
        """Close every link."""
        assert self._server is not None, "started before it is stopped"
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def heal(self) -> None:
        """Cut nothing any more, and close what has lost bytes."""
        self.cut_off = frozenset()
        for link in self._links:
            if link.has_lost:
                link.near.close()
                link.far.close()

    def _is_cut(self, link: _Link) -> bool:
        return not self.cut_off.isdisjoint((self.member_id, link.caller))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server runs each connection in a task"
        self._tasks.add(task)
        far: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(_HELLO_S):
                caller, hello = await _read_hello(reader)
                far_reader, far = await asyncio.open_connection(self._target_host, self._port)
            link = _Link(caller, writer, far)
            self._links.add(link)
            try:
                if self._is_cut(link):
                    link.has_lost = True
                else:
                    far.write(hello)
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._pump(reader, far, link))
                    group.create_task(self._pump(far_reader, writer, link))
            finally:
                self._links.discard(link)
        except (OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            pass  # a member that is down, or a caller that is none: the link is tried again
        except asyncio.CancelledError:
            pass  # only ``stop`` does it; a stream's task that ends so is reported as an error
        finally:
            writer.close()
            if far is not None:
                far.close()
            self._tasks.discard(task)

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, link: _Link
    ) -> None:
        try:
            while data := await source.read(_CHUNK_BYTES):
                if self._is_cut(link):
                    link.has_lost = True
                    continue
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            if not self._is_cut(link):
                sink.close()


async def _read_hello(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Return who dials, and the bytes that were read; ValueError if it is no hello."""
    head = await reader.readexactly(4)
    (length,) = struct.unpack(">I", head)
    if length > _HELLO_BYTES_MAX:
        raise ValueError(f"expected a hello of at most {_HELLO_BYTES_MAX} bytes, found {length}")
    body = await reader.readexactly(length)
    fields = msgpack.unpackb(body)
    if not isinstance(fields, list) or len(fields) <= _CALLER or fields[0] != "greeting":
        raise ValueError("expected a hello, found something else")
    return str(fields[_CALLER]), head + body
