"""A TCP proxy of the tests' own: between a client and a member, to cut and to delay."""

from __future__ import annotations

import asyncio

_CHUNK_BYTES = 65_536


class Proxy:
    """Forwards connections to one loopback port; ``cut`` silently drops what comes until ``heal``.

    A cut keeps the connections open, as a network that loses all packets does. ``heal`` closes
    those that lost bytes, for a real network would have resent what this one threw away.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lossy: set[asyncio.StreamWriter] = set()
        self._is_cut = False

    @property
    def url(self) -> str:
        assert self._server is not None, "started before it is used"
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._is_cut = True

    def heal(self) -> None:
        self._is_cut = False
        for writer in self._lossy:
            writer.close()
        self._lossy.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, (writer, far_writer)))
                group.create_task(self._pump(far_reader, writer, (writer, far_writer)))
        except asyncio.CancelledError:
            pass  # only ``stop`` does it; a stream's task that ends so is told as an error
        finally:
            writer.close()
            far_writer.close()
            self._lossy -= {writer, far_writer}
            self._tasks.discard(task)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        both: tuple[asyncio.StreamWriter, ...],
    ) -> None:
        try:
            while data := await source.read(_CHUNK_BYTES):
                if self._is_cut:
                    self._lossy.update(both)
                    continue
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            if not self._is_cut:
                sink.close()
