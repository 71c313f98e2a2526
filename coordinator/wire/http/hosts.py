"""By which names a member on loopback may be called.

A page of another site can make its name point to 127.0.0.1 (DNS rebinding); to the browser it then
talks to its own site, and nothing but the Host header tells. So a door that only this machine
reaches answers to addresses, to ``localhost`` and to names it was told, and to no others. A door
that listens beyond loopback is called by whatever name the network gives it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from aiohttp import HttpVersion11, web

from coordinator.config import HttpConfig
from coordinator.errors import BadArgumentsError, NoAuthError
from coordinator.wire.strict_json import shortened

_ANY = "*"


def is_loopback(host: str) -> bool:
    """Say whether ``host`` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name may resolve to anything


def known_names(config: HttpConfig, client_urls: Iterable[str]) -> frozenset[str] | None:
    """Return the names a door answers to, beside addresses; None: to every name."""
    told = {name.strip().lower() for name in (config.allowed_hosts or "").split(",")} - {""}
    if _ANY in told or not is_loopback(config.bind_host):
        return None
    urls = {(urlsplit(url).hostname or "").lower() for url in client_urls}
    return frozenset({"localhost"} | told | urls)


def refuse_foreign_host(request: web.BaseRequest, names: frozenset[str]) -> None:
    """Refuse a request for somebody else.

    Raises:
        BadArgumentsError: HTTP/1.1 without a host.
        NoAuthError: a name that is none of ours.
    """
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 and (hosts or request.version >= HttpVersion11):
        raise BadArgumentsError(f"Host: expected one, found {len(hosts)}")
    if not hosts:
        return
    name = _without_port(hosts[0].strip().lower()).removesuffix(".")
    if name in names or _is_address(name):
        return
    raise NoAuthError(
        f"Host: expected an address, localhost or a name in http.allowed_hosts, since this member "
        f"listens on loopback only; found {shortened(ascii(hosts[0]))}"
    )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
