"""Listening: one socket, its doors, and an end that lets what is under way finish.

Beyond loopback with a certificate only, unless configured otherwise.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterable

from coordinator.errors import ConfigError
from coordinator.node.config import HttpConfig
from coordinator.node.config_rules import exposure_problem
from coordinator.tls.files import Reloaded, ServerTls
from coordinator.wire.admission import Admission
from coordinator.wire.arrival import Doorway
from coordinator.wire.http.full_door import FullDoor
from coordinator.wire.http.hosts import ANY, known_names
from coordinator.wire.http.served import Served, checks_of
from coordinator.wire.http.slim import SlimConnection, SlimDoor
from coordinator.wire.routes.answering import Answering
from coordinator.wire.stream.connection import StreamConnection
from coordinator.wire.stream.door import StreamDoor

logger = logging.getLogger("coordinator.http")

_BACKLOG = 1_024
_ACCEPTED_AT_ONCE_MAX = 16
"""In one pass of the loop, before those beyond the limits are closed: each takes a descriptor."""


class HttpServer:
    """Serves one member on one address.

    Args:
        what: from ``served``.
        http_config: where to listen (port 0: any free one), and the limits of connections.
        client_urls: of all members; their hosts are names this one may be called by.
        tls: what it shows clients; plain connections without.
    """

    def __init__(
        self,
        what: Served,
        http_config: HttpConfig,
        *,
        client_urls: Iterable[str] = (),
        tls: Reloaded[ServerTls] | None = None,
    ) -> None:
        self._what = what
        self._door = what.door
        self._config = http_config
        self._admission = Admission(http_config)
        names = known_names(http_config, client_urls)
        answering = Answering(what.door, what.routes, "http", checks_of)
        self._full = FullDoor(answering, self._admission, names)
        self._slim = SlimDoor(answering, self._admission, self._full, names)
        self._streams = StreamDoor(what.door, what.routes, self._admission, http_config)
        self._tls = tls
        self._listener: asyncio.Server | None = None
        self._doorway: Doorway | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    @property
    def url(self) -> str:
        """Where a client on this machine reaches it."""
        host = self._config.bind_host
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104
        scheme = "http" if self._tls is None else "https"
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{self._port}"

    @property
    def connection_count(self) -> int:
        """How many clients are connected now."""
        return self._admission.total

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address is taken, is not this machine's, or is not loopback.
        """
        _refuse_open_door(self._config)
        try:
            self._listener = await self._listen()
        except OSError as error:
            raise ConfigError(_cannot_listen(self._config, error)) from None
        self._port = self._listener.sockets[0].getsockname()[1]
        _say_what_is_open(self._config)

    async def stop(self, *, break_after_s: float | None = None) -> None:
        """Stop accepting, end the streams, let requests finish within the grace, break the rest.

        ``break_after_s``: another grace than that of the configuration."""
        if self._listener is None:
            return
        self._listener.close()
        self._listener = None
        assert self._doorway is not None
        self._door.close()
        self._doorway.close()
        self._streams.close()
        self._slim.close()
        if break_after_s is None:
            break_after_s = self._config.shutdown_grace_ms / 1_000
        loop = asyncio.get_running_loop()
        # aiohttp's own time-out is for the handler, and once more for a body that does not come.
        breaking = loop.call_later(break_after_s, self._break_connections)
        await self._doorway.closed()
        await self._full.close()
        await self._streams.closed()
        await self._slim.closed()
        breaking.cancel()
        await self._door.finish()

    def abort(self) -> None:
        """Break every connection and accept none any more; ``stop`` still has to follow."""
        if self._listener is None:
            return
        self._listener.close()
        self._break_connections()

    def _maybe_part(self, former: ServerTls, current: ServerTls) -> None:
        """Part with clients that were let in by a trust that has changed: streams are asked to
        connect again, and within the grace every connection ends."""
        if former.trusted == current.trusted or self._doorway is None:
            return
        self._streams.part_with_certified()
        self._doorway.break_certified(self._config.shutdown_grace_ms / 1_000)

    def _break_connections(self) -> None:
        if self._doorway is not None:
            self._doorway.abort()
        self._streams.abort()
        self._slim.abort()
        self._full.abort()

    async def _listen(self) -> asyncio.Server:
        slim, streams = self._slim, self._streams
        if self._tls is not None:
            self._tls.on_reload(self._maybe_part)
        self._doorway = Doorway(
            self._admission,
            http=lambda place, at: SlimConnection(slim, place, at),
            stream=lambda place, at: StreamConnection(streams, place, at),
            tls=self._tls,
        )
        listener = await asyncio.get_running_loop().create_server(
            self._doorway,
            self._config.bind_host,
            self._config.bind_port,
            backlog=_ACCEPTED_AT_ONCE_MAX,
            reuse_address=True,
        )
        for each in listener.sockets:
            with each.dup() as listening:
                listening.listen(_BACKLOG)  # asyncio has one number for both
        return listener


def _say_what_is_open(config: HttpConfig) -> None:
    if ANY in (name.strip() for name in (config.allowed_hosts or "").split(",")):
        logger.warning(
            "http.allowed_hosts is *: a page in a browser that reaches this member may read and "
            "change everything, under a name that it makes point here"
        )


def _refuse_open_door(config: HttpConfig) -> None:
    if problem := exposure_problem(config):
        raise ConfigError(f"http.bind_host: expected {problem}, found {config.bind_host!r}")


def _cannot_listen(config: HttpConfig, error: OSError) -> str:
    where = f"{config.bind_host}:{config.bind_port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"http.bind_port: {where} is taken; another member (or program) listens there. "
            f"Stop it, or choose another http.bind_port"
        )
    if error.errno == errno.EACCES:
        return f"http.bind_port: {where} needs a privilege this process has not"
    reason = error.strerror or str(error)
    return f"http.bind_host: cannot listen on {where}: {reason}"
