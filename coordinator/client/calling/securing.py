"""TLS of a client: whom it trusts, what it shows, and the connection of its event loop.

The files are read when the first connection is made, and again when they have changed; what cannot
be read then is logged, and the former stays in use.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from coordinator.errors import ConfigError, UnavailableError
from coordinator.tls.files import HTTP, STREAM, Reloaded, TlsFiles, client_context
from coordinator.tls.handshakes import Handshakes
from coordinator.tls.transport import TlsTransport
from coordinator.tls.wording import TO_CLIENTS, why_no_tls

_NO_ADDRESS = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))


class ClientTls:
    """The TLS settings of one client for ``https://`` endpoints; safe for several threads."""

    def __init__(self, files: TlsFiles | None = None) -> None:
        self._files = files or TlsFiles(None, None)
        self._contexts: dict[str, Reloaded[ssl.SSLContext]] = {}

    def check(self) -> None:
        """Read the files. Raises ConfigError."""
        self._read(STREAM)

    def stream(self) -> ssl.SSLContext:
        """Return what a connection of the stream is made with. Raises UnavailableError."""
        return self._current(STREAM)

    def http(self) -> ssl.SSLContext:
        """Return what a connection of HTTP is made with. Raises UnavailableError."""
        return self._current(HTTP)

    def _current(self, spoken: str) -> ssl.SSLContext:
        try:
            reloaded = self._contexts.get(spoken) or self._read(spoken)
        except ConfigError as error:
            raise UnavailableError(f"no connection was made: {error.message}") from None
        reloaded.maybe_reload()
        return reloaded.current

    def _read(self, spoken: str) -> Reloaded[ssl.SSLContext]:
        def load() -> ssl.SSLContext:
            context = client_context(self._files)
            context.set_alpn_protocols([spoken])
            return context

        reloaded = self._contexts[spoken] = Reloaded(load, self._files.all())
        return reloaded


class _Securing:
    """Waits for the handshake of one connection, and hands it to the protocol that made it."""

    def __init__(self, protocol: asyncio.Protocol, is_done: asyncio.Future[None]) -> None:
        self._protocol = protocol
        self._is_done = is_done

    def on_secured(self, transport: TlsTransport) -> None:
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)
        if not self._is_done.done():
            self._is_done.set_result(None)

    def on_tls_failed(self, error: Exception) -> None:
        if not self._is_done.done():
            self._is_done.set_exception(error)

    def data_received(self, data: bytes) -> None:
        """Nothing comes before the handshake is done."""

    def eof_received(self) -> bool | None:
        """End."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_tls_failed(exc or ConnectionError("the connection was lost"))


async def connect_secured(
    make: Callable[[], asyncio.Protocol], host: str, port: int, context: ssl.SSLContext
) -> None:
    """Connect the protocol that ``make`` returns by TLS. Raises OSError, as of plain connections.

    The caller bounds how long it takes."""
    loop = asyncio.get_running_loop()
    plain, _ = await loop.create_connection(asyncio.Protocol, host, port)
    is_done: asyncio.Future[None] = loop.create_future()
    securing = _Securing(make(), is_done)
    secured = TlsTransport(securing, context, Handshakes(1), is_server=False, host=host)
    secured.begin(cast(Any, plain))
    try:
        await is_done
    except BaseException:
        secured.abort()
        raise


def reason_of(error: BaseException) -> str:
    """Return why there is no connection to a member, or why it has ended."""
    if isinstance(error, ssl.SSLError):
        return why_no_tls(error, TO_CLIENTS)
    return str(error) or type(error).__name__


def cannot_connect(endpoint: str, why: str, error: BaseException | None = None) -> UnavailableError:
    """Return the error of an endpoint to which there is no connection; nothing was sent.

    It says ``is_nobody_there`` if ``error``, which the system raised, says so.
    """
    fields = {"is_nobody_there": True} if is_nobody_there(error) else {}
    return UnavailableError(f"{endpoint}: cannot connect: {why}", endpoint=endpoint, **fields)


def is_nobody_there(error: BaseException | None) -> bool:
    """Whether nothing listens at an address, or its host has none."""
    if isinstance(error, ConnectionRefusedError):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno in _NO_ADDRESS
    if isinstance(error, OSError) and error.errno is None:
        # asyncio joins the errors of several addresses (localhost has two) into one text.
        message = str(error)
        return 0 < message.count("[Errno ") == message.count(f"[Errno {errno.ECONNREFUSED}]")
    return False
