"""The bytes that a cut connection holds, and delivers late once it is mended, as TCP does.

Of the stream these are bytes: nothing passes in either direction, nobody is notified, and the
client finds out as in production, by its deadlines and its PING. Of HTTP they are requests and
lines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from coordinator.client import HttpTransport, Request, Response
from coordinator.client.calling.endpoints import address_of
from coordinator.client.calling.securing import ClientTls, connect_secured
from coordinator.client.calling.transport import ResponseStream
from coordinator.errors import ConnectionLostError

LOOK_S = 0.005
"""How often who is held looks whether the way is mended: any thread may mend it."""

IsCut = Callable[[str], bool]


async def until_mended(is_cut: IsCut, endpoint: str) -> None:
    """Wait while the way to ``endpoint`` is cut."""
    while is_cut(endpoint):  # noqa: ASYNC110 - any thread ends it
        await asyncio.sleep(LOOK_S)


async def within(timeout_ms: int, endpoint: str, held: Any) -> None:
    """Await ``held`` for no longer than that; raises what a client without an answer sees."""
    try:
        async with asyncio.timeout(timeout_ms / 1000) as scope:
            await held
    except TimeoutError as error:
        if not scope.expired():
            raise
        raise ConnectionLostError(
            f"{endpoint}: no answer within {timeout_ms} ms (cut off by the test)", endpoint=endpoint
        ) from error


class HeldConnection(asyncio.Transport, asyncio.Protocol):
    """The transport of a stream connection, and the protocol of its socket."""

    def __init__(self, is_cut: IsCut, endpoint: str, client: asyncio.Protocol) -> None:
        super().__init__()
        self._is_cut = is_cut
        self._endpoint = endpoint
        self._client = client
        self._socket: asyncio.Transport | None = None
        self._held: deque[Callable[[], None]] = deque()
        self._looking: asyncio.TimerHandle | None = None

    # --- what the client does

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data`` now, or when the wire is mended."""
        assert self._socket is not None, "the client writes when it is connected"
        self._pass(partial(self._socket.write, bytes(data)))

    def abort(self) -> None:
        """Close it; what is held does not arrive any more."""
        self._held.clear()
        if self._looking is not None:
            self._looking.cancel()
        if self._socket is not None:
            self._socket.abort()

    def close(self) -> None:
        """Close it at once."""
        self.abort()

    def is_closing(self) -> bool:
        """Whether it is closed."""
        return self._socket is None or self._socket.is_closing()

    # --- what the socket brings

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the client."""
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._client.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Hand it over, or later."""
        self._pass(partial(self._client.data_received, data))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the client, or later: of a member that is cut off nobody hears that it died."""
        self._pass(partial(self._client.connection_lost, exc))

    def pause_writing(self) -> None:
        """Tell the client."""
        self._client.pause_writing()

    def resume_writing(self) -> None:
        """Tell the client."""
        self._client.resume_writing()

    # --- in between

    def _pass(self, deed: Callable[[], None]) -> None:
        if self._held or self._is_cut(self._endpoint):
            self._held.append(deed)
            if self._looking is None:
                self._look_soon()
        else:
            deed()

    def _look_soon(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        while self._held and not self._is_cut(self._endpoint):
            self._held.popleft()()
        if self._held:
            self._look_soon()


async def connect(
    is_cut: IsCut, tls: ClientTls, endpoint: str, make: Callable[[], asyncio.Protocol]
) -> asyncio.Protocol:
    """Connect to ``endpoint`` by a line that holds what passes while it is cut."""
    await until_mended(is_cut, endpoint)
    client, loop = make(), asyncio.get_running_loop()
    host, port = address_of(endpoint)

    def held() -> asyncio.Protocol:
        return HeldConnection(is_cut, endpoint, client)

    if endpoint.startswith("https:"):
        await connect_secured(held, host, port, tls.stream())
    else:
        await loop.create_connection(held, host, port)
    return client


class HeldHttp:
    """A Transport over HTTP."""

    def __init__(self, is_cut: IsCut, tls: ClientTls) -> None:
        self._is_cut = is_cut
        self._http = HttpTransport(tls=tls)

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request as soon as the way is open, and return the answer."""
        answers: list[Response] = []

        async def there_and_back() -> None:
            await until_mended(self._is_cut, endpoint)
            answers.append(await self._http.request(endpoint, request, timeout_ms))
            await until_mended(self._is_cut, endpoint)

        await within(timeout_ms, endpoint, there_and_back())
        return answers[0]

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _HeldStreaming:
        """Return a stream of lines."""
        streaming = self._http.stream(endpoint, request, timeout_ms)
        return _HeldStreaming(self._is_cut, endpoint, timeout_ms, streaming)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


class _HeldStreaming:
    """``async with`` it to stream."""

    def __init__(
        self,
        is_cut: IsCut,
        endpoint: str,
        timeout_ms: int,
        streaming: AbstractAsyncContextManager[ResponseStream],
    ) -> None:
        self._is_cut = is_cut
        self._endpoint = endpoint
        self._timeout_ms = timeout_ms
        self._streaming = streaming

    async def __aenter__(self) -> ResponseStream:
        held = until_mended(self._is_cut, self._endpoint)
        await within(self._timeout_ms, self._endpoint, held)
        return _HeldLines(self._is_cut, self._endpoint, await self._streaming.__aenter__())

    async def __aexit__(self, *exception: Any) -> None:
        await self._streaming.__aexit__(*exception)


class _HeldLines:
    """Lines; one that is under way when the wire is cut comes late."""

    watches_silence = False

    def __init__(self, is_cut: IsCut, endpoint: str, stream: ResponseStream) -> None:
        self._is_cut = is_cut
        self._endpoint = endpoint
        self._stream = stream
        self.status = stream.status
        self.headers = stream.headers

    def line_here(self) -> bytes | None:
        """Nothing before ``line`` says it."""
        return None

    async def line(self) -> bytes | None:
        """Return the next line."""
        line = await self._stream.line()
        await until_mended(self._is_cut, self._endpoint)
        return line

    async def read(self) -> bytes:
        """Return the whole rest."""
        return await self._stream.read()
