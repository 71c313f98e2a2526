"""The way in: ``connect`` says which cluster; the use of its result says which client."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

from yarl import URL

from coordinator.client.async_client import AsyncClient
from coordinator.client.calling.credentials import Credentials, credentials_of
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.calling.endpoints import USUAL_MS
from coordinator.client.calling.leader import KnownLeader
from coordinator.client.calling.retry import RetryPolicy
from coordinator.client.calling.securing import ClientTls
from coordinator.client.calling.transport import LateTransport, Transport
from coordinator.client.sessions.lease import MARGIN_RATIO
from coordinator.client.sessions.probing import HealthProbe
from coordinator.client.sessions.settings import ClientSettings
from coordinator.client.stream.transport import StreamTransport
from coordinator.client.sync import Client
from coordinator.client.verbs.hints import answering
from coordinator.clock import Clock, SystemClock
from coordinator.errors import BadArgumentsError, ConfigError
from coordinator.tls.files import TlsFiles
from coordinator.wire.addresses import is_local
from coordinator.wire.encoding import Encoding

ENDPOINTS_VARIABLE = "COORDINATOR_ENDPOINTS"
TRANSPORT_VARIABLE = "COORDINATOR_TRANSPORT"
FILE_VARIABLES = {
    "ca_file": "COORDINATOR_CA_FILE",
    "cert_file": "COORDINATOR_CERT_FILE",
    "key_file": "COORDINATOR_KEY_FILE",
}
DEFAULT_ENDPOINT = "http://127.0.0.1:7071"
DEFAULT_TRANSPORT = "auto"
_HOST_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s/:?#@\[\]]+):[0-9]{1,5}/?")

log = logging.getLogger("coordinator.client")

TransportName: TypeAlias = Literal["auto", "stream", "http"]
_NAMES: tuple[TransportName, ...] = ("auto", "stream", "http")


@answering
def connect(
    endpoints: str | Sequence[str] | None = None,
    *,
    timeout: float | None = None,
    session_timeout: float = 10.0,
    label: str | None = None,
    retry: RetryPolicy | None = None,
    lease_margin_ratio: float = MARGIN_RATIO,
    transport: Transport | TransportName | None = None,
    clock: Clock | None = None,
    probe: HealthProbe | Callable[[], object] | None = None,
    operator: str = "",
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
) -> Connector:
    """Say which cluster to use; nothing is sent before the first verb. See docs/client.md.

    The result is a Client, which may be used as it is or by ``with``; ``await`` or ``async with``
    makes an AsyncClient of it.

    Args:
        endpoints: URLs of members, ``host:port`` is one of plain HTTP; None:
            ``COORDINATOR_ENDPOINTS``, or ``http://127.0.0.1:7071``.
        timeout: seconds for one verb in all; None: 10, or 1.5 if no member is there at first.
        session_timeout: seconds of silence after which the cluster ends the session.
        label, operator: who this client is, for people, in the lists of sessions, and of locks,
            elections and jobs where these have no label; who mends the cluster with it.
        retry, transport: how to try again; ``auto``, ``stream``, ``http`` or an object.
        lease_margin_ratio: how much earlier than the cluster the client gives its session up.
        clock, probe: for tests; asked from time to time whether this program is well.
        ca_file, cert_file, key_file: of ``https://`` endpoints (docs/tls.md).
        token, token_file: the proof of who this client is (docs/access.md). A file that is not
            given is that of the environment; one that is "" is none.

    Raises:
        BadArgumentsError: an argument is out of its range, or an endpoint or a file is none.
    """
    is_patient, timeout = timeout is not None, USUAL_MS / 1000 if timeout is None else timeout
    if transport is None or isinstance(transport, str):
        transport = transport_name(transport)
    urls = _urls(endpoints, transport)
    settings = ClientSettings.of(timeout, session_timeout, label, lease_margin_ratio, probe)
    tls = client_tls(urls, ca_file, cert_file, key_file)
    settings = replace(settings, operator=operator, tls=tls)
    credentials = credentials_of(token, token_file)
    if host := token_in_clear(urls, credentials):
        _warn_once(host)
    clock, retry = clock or SystemClock(), retry or RetryPolicy()
    delivery = partial(CallDelivery, clock=clock, retry=retry, is_patient=is_patient)
    return Connector(partial(_open_client, transport, urls, settings, credentials, delivery), urls)


async def _open_client(
    transport: Transport | TransportName,
    urls: Sequence[str],
    settings: ClientSettings,
    credentials: Credentials,
    delivery: partial[CallDelivery],
) -> AsyncClient:
    over = _opened(transport, settings) if isinstance(transport, str) else transport
    leader: KnownLeader | None = getattr(over, "leader", None)  # who has one is a stream
    encoding = Encoding.JSON if leader is None else Encoding.MSGPACK
    made = delivery(over, urls, leader=leader, encoding=encoding, credentials=credentials)
    return AsyncClient(made, settings)


class Connector(Client):
    """What ``connect`` returns: a Client as it is, an AsyncClient by ``async with`` or await.

    ::

        client = connect(url)                       # a Client; closed by close() or at exit
        with connect(url) as client: ...            # the same, closed at the end of the block
        client = await connect(url)                 # an AsyncClient, to be closed by its close()
        async with connect(url) as client: ...      # the same, closed at the end of the block
    """

    def __init__(
        self, open_client: Callable[[], Coroutine[Any, Any, AsyncClient]], urls: Sequence[str]
    ) -> None:
        super().__init__(open_client, urls)
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


def _opened(name: TransportName, settings: ClientSettings) -> Transport:
    tls = settings.tls

    def over_http() -> Transport:
        from coordinator.client.http import HttpTransport

        return HttpTransport(tls=tls)

    if name == "http":
        return over_http()
    http = LateTransport(over_http) if name == "auto" else None
    return StreamTransport(label=settings.label, http=http, tls=tls)


def client_tls(
    urls: Sequence[str],
    ca_file: str | os.PathLike[str] | None = None,
    cert_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
) -> ClientTls | None:
    """Return what to connect with to ``https://`` endpoints; None if there are none."""
    given = {"ca_file": ca_file, "cert_file": cert_file, "key_file": key_file}
    if not any(url.startswith("https:") for url in urls):
        for name, path in given.items():
            if path:
                raise BadArgumentsError(
                    f"connect: expected https:// endpoints beside {name}, found {', '.join(urls)}"
                )
        return None
    paths: dict[str, str | None] = {
        name: (os.environ.get(FILE_VARIABLES[name]) if path is None else os.fspath(path)) or None
        for name, path in given.items()
    }
    tls = ClientTls(TlsFiles(paths["cert_file"], paths["key_file"], paths["ca_file"]))
    if any(paths.values()):
        try:
            tls.check()
        except ConfigError as error:
            raise BadArgumentsError(f"connect: {error.message}") from None
    return tls


def token_in_clear(urls: Sequence[str], credentials: Credentials) -> str:
    """Return a host to which the token goes so that others can read it on its way; "" if none."""
    hosts = (URL(url).host or "" for url in urls if not _is_hidden(url))
    return "" if credentials.authorization() is None else next(hosts, "")


@lru_cache(maxsize=64)
def _warn_once(host: str) -> None:
    log.warning(
        "the token of this client goes to %s in clear text, and anyone who can listen has it: give "
        "the members certificates (coordinator certs), and the client https:// endpoints",
        host,
    )


def _is_hidden(url: str) -> bool:
    """Whether no one on the way can read what goes there."""
    host = URL(url).host or ""
    return url.startswith("https:") or host.lower() == "localhost" or is_local(host)


def transport_name(name: str | None = None) -> TransportName:
    """Return the name of a transport; None is that of the environment, then the default.

    Raises:
        BadArgumentsError: there is no such transport.
    """
    if name is None:
        name = os.environ.get(TRANSPORT_VARIABLE) or DEFAULT_TRANSPORT
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
    urls = [_with_scheme(part.strip()) for part in parts if part.strip()]
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


def _with_scheme(endpoint: str) -> str:
    """Return ``host:port`` as the URL of a member that speaks plain HTTP."""
    return f"http://{endpoint}" if _HOST_AND_PORT.fullmatch(endpoint) else endpoint


def _beyond_host(url: str) -> str:
    """Return what follows host and port, a single slash not counted."""
    _, _, rest = url.partition("://")
    return next((rest[at:] for at, letter in enumerate(rest) if letter in "/?#"), "").strip("/")


def _has_host(url: str) -> bool:
    try:
        return bool(URL(url).host)  # reads the port as well, and refuses one that cannot be
    except ValueError:
        return False
