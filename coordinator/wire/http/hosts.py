"""By which names a member may be called, and what a page of another site may not make a browser do.

While access rights are off, a client on this machine may do anything, and a browser does so in the
name of every page that it shows. Requests without a credential may be allowed something also while
they are on. So:

1. A page can make its own name point to the member's address (DNS rebinding); to the browser it
   then talks to its own site, and only the Host header shows it. A door answers to addresses,
   to ``localhost``, to the hosts of ``client_url`` and of ``bind_host``, to the names in
   ``http.allowed_hosts``, and to no others, wherever it listens; ``*`` is any.
2. A name is compared as a whole, label by label: ``evilcoordinator.example`` is not
   ``coordinator.example``. ``*.coordinator.example`` is every name below it, at any depth.
3. A write with an ``Origin`` that is not the host it was sent to comes from a page of another site.
4. A POST that a page may send elsewhere without asking first (a "simple" one: Fetch standard,
   CORS-safelisted content types) is refused on every route. PUT and DELETE are always asked for
   first, and the question is refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from coordinator.errors import BadArgumentsError, NoAuthError
from coordinator.node.config import HttpConfig
from coordinator.wire.request import IncomingRequest
from coordinator.wire.routes.door import media_type
from coordinator.wire.strict_json import shortened

if TYPE_CHECKING:
    from aiohttp import web

ANY = "*"
_BELOW = "*."
_WITH_HOST = (1, 1)
"""From this version of HTTP on a request says its host."""
_OWN_HEADERS = "coordinator-"
_SIMPLE_TYPES = frozenset(
    {"", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"}
)
_SAFE_SITES = frozenset({"same-origin", "none"})


@dataclass(frozen=True, slots=True)
class Names:
    """What a member is called: ``own`` names, and those that the operator ``allowed``."""

    own: frozenset[str]
    allowed: frozenset[str]

    def __contains__(self, name: str) -> bool:
        return name in self.own or self.is_allowed(name)

    def is_allowed(self, name: str) -> bool:
        """Say whether ``name`` is one of ``http.allowed_hosts``, or below one of them."""
        labels = name.split(".")
        above = (_BELOW + ".".join(labels[at:]) for at in range(1, len(labels)))
        return name in self.allowed or any(each in self.allowed for each in above)


def is_loopback(host: str) -> bool:
    """Say whether ``host`` can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may resolve to anything


def known_names(config: HttpConfig, client_urls: Iterable[str]) -> Names | None:
    """Return the names a door answers to, beside addresses; None: to every name."""
    allowed = {name.strip().lower() for name in (config.allowed_hosts or "").split(",")} - {""}
    if ANY in allowed:
        return None
    urls = {(urlsplit(url).hostname or "").lower() for url in client_urls}
    own = {"localhost", config.bind_host.lower(), *urls} - {""}
    return Names(frozenset(own), frozenset(allowed))


def refuse_foreign_host(request: web.BaseRequest, names: Names) -> None:
    """Refuse a request for another host.

    Raises:
        BadArgumentsError: HTTP/1.1 without a host.
        NoAuthError: a name that is none of ours.
    """
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 and (hosts or request.version >= _WITH_HOST):
        raise BadArgumentsError(f"Host: expected one, found {len(hosts)}")
    if not hosts:
        return
    if is_known(hosts[0], names):
        return
    raise NoAuthError(
        f"Host: expected an address, localhost, the host of a client_url or a name in "
        f"http.allowed_hosts; found {shortened(ascii(hosts[0]))}. If this is a name of this "
        f"member, put it into http.allowed_hosts"
    )


def is_known(host: str, names: Names) -> bool:
    """Say whether a Host header is an address, or one of ``names``."""
    name = _without_port(host.strip().lower()).removesuffix(".")
    return _is_address(name) or name in names


def refuse_other_sites(request: web.BaseRequest, names: Names | None) -> None:
    """Refuse a write that a page of another site makes a browser send.

    Raises:
        NoAuthError: the browser says so (W3C Fetch Metadata; or an Origin that is not ours).
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site not in _SAFE_SITES:
        raise NoAuthError(
            f"Sec-Fetch-Site: expected same-origin or none, found {shortened(ascii(site))}"
        )
    for origin in request.headers.getall("Origin", []):
        if not _is_own_origin(origin, request.headers.get("Host", ""), names):
            raise NoAuthError(
                f"Origin: expected none, or the host that the request was sent to, or a name in "
                f"http.allowed_hosts; found {shortened(ascii(origin))}"
            )


def refuse_simple_post(request: IncomingRequest) -> None:
    """Refuse a POST that any page may send without asking.

    Raises:
        BadArgumentsError: neither its content type nor a header of ours tells it from one.
    """
    content_type = media_type(request)
    if content_type not in _SIMPLE_TYPES:
        return
    if any(name.lower().startswith(_OWN_HEADERS) for name in request.headers):
        return
    raise BadArgumentsError(
        f"Content-Type: expected application/json or application/msgpack (application/octet-stream "
        f"with raw), also with an empty body, or a Coordinator- header; found "
        f"{shortened(ascii(content_type)) if content_type else 'none'}, as a page of any site can "
        f"send it"
    )


def _is_own_origin(origin: str, host: str, names: Names | None) -> bool:
    try:
        parts = urlsplit(origin.strip().lower())
        name = parts.hostname or ""
    except ValueError:
        return False
    if not name:
        return False  # "null": a page that has no site
    return parts.netloc == host.strip().lower() or (names is not None and names.is_allowed(name))


def _without_port(host: str) -> str:
    if host.startswith("["):
        address, end, port = host[1:].partition("]")
        return address if end and (not port or port.startswith(":")) else ""
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
