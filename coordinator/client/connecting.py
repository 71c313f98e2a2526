"""The way in: ``connect`` says which cluster; the use of its result says which client."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from typing import Any, Literal, TypeAlias

from yarl import URL

from coordinator.client.async_client import AsyncClient
from coordinator.client.delivery import Delivery
from coordinator.client.hints import answering
from coordinator.client.lease import MARGIN_RATIO
from coordinator.client.probing import Probe
from coordinator.client.retry import RetryPolicy
from coordinator.client.settings import ClientSettings
from coordinator.client.stream.leader import KnownLeader
from coordinator.client.stream.transport import StreamTransport
from coordinator.client.sync_client import Client
from coordinator.client.transport import HttpTransport, Transport
from coordinator.clock import Clock, SystemClock
from coordinator.errors import BadArgumentsError
from coordinator.wire.encoding import Encoding

ENDPOINTS_VARIABLE = "COORDINATOR_ENDPOINTS"
TRANSPORT_VARIABLE = "COORDINATOR_TRANSPORT"
DEFAULT_ENDPOINT = "http://127.0.0.1:7071"
DEFAULT_TRANSPORT = "http"
TIMEOUT_S_MAX = 1e9

TransportName: TypeAlias = Literal["auto", "stream", "http"]
_NAMES: tuple[TransportName, ...] = ("auto", "stream", "http")


@answering
def connect(
    endpoints: str | Sequence[str] | None = None,
    *,
    timeout: float = 10.0,
    session_timeout: float = 10.0,
    label: str | None = None,
    retry: RetryPolicy | None = None,
    lease_margin_ratio: float = MARGIN_RATIO,
    transport: Transport | TransportName | None = None,
    clock: Clock | None = None,
    probe: Probe | Callable[[], object] | None = None,
    operator: str = "",
) -> Connector:
    """Say which cluster to use; nothing is sent before the first verb.

    The result is a Client, which may be used as it is or by ``with``; ``await`` or ``async with``
    makes an AsyncClient of it.

    Args:
        endpoints: URLs of members, separated by commas or as a sequence. None takes
            those of an InProcessTransport, then ``COORDINATOR_ENDPOINTS`` from the environment,
            then ``http://127.0.0.1:7071``.
        timeout: seconds that one verb may take in all, over all members and tries.
        session_timeout: seconds of silence after which the cluster ends the session.
        label: what people see of this client in the lists of sessions.
        retry: how to try again; see RetryPolicy.
        lease_margin_ratio: share of the session timeout by which the client gives up earlier
            than the cluster (0.025 covers clocks that run 1 % apart; at least 50 ms are taken).
        transport: how requests travel. ``auto`` is the stream (docs/stream.md), and HTTP at members
            that do not know it; ``stream`` and ``http`` are one of them alone. None takes that of
            ``COORDINATOR_TRANSPORT`` from the environment, then ``http``. Another one may be passed
            as an object; it belongs to the client that opens it.
        clock: for tests; the machine's own otherwise.
        probe: asked from time to time whether this program is well. Once it fails too often its
            session is ended as a loss, and it gets another one only when it is well; see Probe.

    Raises:
        BadArgumentsError: an argument is out of its range, or an endpoint is no URL of a member.
        operator: who is at work here, if it is a person who mends the cluster: on record, and the
            only one who gets a session when all but the reserve of them are open.
    """
    # Said this way round, NaN is refused as well.
    if not (0 < timeout <= TIMEOUT_S_MAX and 0 < session_timeout <= TIMEOUT_S_MAX):
        raise BadArgumentsError(
            f"connect: expected timeouts above 0 s, up to {TIMEOUT_S_MAX:g} s, found {timeout} and"
            f" {session_timeout}"
        )
    if not 0.0 <= lease_margin_ratio < 0.5:
        raise BadArgumentsError(
            f"connect: expected lease_margin_ratio from 0 to 0.5, found {lease_margin_ratio}"
        )
    settings = ClientSettings(
        timeout_ms=max(1, round(timeout * 1000)),
        session_timeout_ms=max(1, round(session_timeout * 1000)),
        label=label if label is not None else f"pid {os.getpid()}",
        lease_margin_ratio=lease_margin_ratio,
        probe=probe if probe is None or isinstance(probe, Probe) else Probe(probe),
        operator=operator,
    )
    transport = _transport(transport)
    urls, retry, clock = _urls(endpoints, transport), retry or RetryPolicy(), clock or SystemClock()

    async def open_client() -> AsyncClient:
        if isinstance(transport, str) and transport != "http":
            http = HttpTransport() if transport == "auto" else None
            leader: KnownLeader | None = KnownLeader()
            stream = StreamTransport(leader, label=settings.label, http=http)
            packed = Encoding.MSGPACK
            delivery = Delivery(stream, urls, clock, retry, leader, encoding=packed)
        else:
            sent_over = HttpTransport() if isinstance(transport, str) else transport
            leader = getattr(sent_over, "leader", None)
            encoding = Encoding.JSON if leader is None else Encoding.MSGPACK
            delivery = Delivery(sent_over, urls, clock, retry, leader, encoding=encoding)
        return AsyncClient(delivery, settings)

    return Connector(open_client)


class Connector(Client):
    """What ``connect`` returns: a Client as it is, an AsyncClient by ``async with`` or await.

    ::

        client = connect(url)                       # a Client; closed by close() or at exit
        with connect(url) as client: ...            # the same, closed at the end of the block
        client = await connect(url)                 # an AsyncClient, to be closed by its close()
        async with connect(url) as client: ...      # the same, closed at the end of the block
    """

    def __init__(self, open_client: Callable[[], Coroutine[Any, Any, AsyncClient]]) -> None:
        super().__init__(open_client)
        self._open_client = open_client
        self._async_client: AsyncClient | None = None

    async def open_async(self) -> AsyncClient:
        """Return an asyncio client, for the running loop, that the caller closes.

        What was not closed is closed when it is forgotten, or its loop ends in good order (as
        ``asyncio.run`` ends it).
        """
        client = await self._open_client()
        client.last = _with_the_loop(client)
        await anext(client.last)
        return client

    def __await__(self) -> Generator[Any, Any, AsyncClient]:
        return self.open_async().__await__()

    async def __aenter__(self) -> AsyncClient:
        assert self._async_client is None, "a connector opens one asyncio client at a time"
        self._async_client = await self._open_client()
        return self._async_client

    async def __aexit__(self, *_exception: object) -> None:
        client, self._async_client = self._async_client, None
        assert client is not None, "left what was not entered"
        await client.close()


async def _with_the_loop(client: AsyncClient) -> AsyncGenerator[None, None]:
    """Close ``client`` when the loop ends its generators, or forgets this one."""
    try:
        yield
    finally:
        await client.close()


def _transport(transport: Transport | TransportName | None) -> Transport | TransportName:
    if transport is None:
        name = os.environ.get(TRANSPORT_VARIABLE) or DEFAULT_TRANSPORT
    elif isinstance(transport, str):
        name = transport
    else:
        return transport
    for each in _NAMES:
        if name == each:
            return each
    raise BadArgumentsError(
        f"connect: expected transport (or {TRANSPORT_VARIABLE}) to be one of {', '.join(_NAMES)}, "
        f"found {name!r}"
    )


def _urls(endpoints: str | Sequence[str] | None, transport: Transport | TransportName) -> list[str]:
    if endpoints is None:  # an InProcessTransport knows them
        endpoints = getattr(transport, "endpoints", None)
    if endpoints is None:
        endpoints = os.environ.get(ENDPOINTS_VARIABLE) or DEFAULT_ENDPOINT
    parts = endpoints.split(",") if isinstance(endpoints, str) else list(endpoints)
    urls = [part.strip() for part in parts if part.strip()]
    if not urls:
        raise BadArgumentsError("endpoints: expected the URL of one member or more, found none")
    for url in urls:
        if not url.startswith(("http://", "https://")) or not _has_host(url):
            raise BadArgumentsError(
                f"endpoints: expected URLs such as {DEFAULT_ENDPOINT}, found {url!r}"
            )
        if rest := _beyond_host(url):
            raise BadArgumentsError(
                f"endpoints: expected URLs that end with the host or the port, such as "
                f"{DEFAULT_ENDPOINT} (a member answers under /v1 only), found {rest!r} in {url!r}"
            )
    return urls


def _beyond_host(url: str) -> str:
    """Return what follows host and port, a slash by itself not counted."""
    _, _, rest = url.partition("://")
    return next((rest[at:] for at, letter in enumerate(rest) if letter in "/?#"), "").strip("/")


def _has_host(url: str) -> bool:
    try:
        return bool(URL(url).host)  # reads the port as well, and refuses one that cannot be
    except ValueError:
        return False
