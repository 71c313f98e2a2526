"""Documents of an issuer, fetched by HTTPS in a thread: bounded in size and time, no redirects.

Plain HTTP is for an issuer on this machine only. The keys that come decide who is believed, so
they come from whom the configuration names, or not at all: no redirect is followed, no proxy of the
environment is asked, and no other address than the issuer's own discovery document says.

The member's own token (``jwks_token_file``) goes to the issuer's own origin, or to the address that
the configuration names, and never over plain HTTP: a discovery document names any other host.

The time of each answer has an end, whatever is sent meanwhile: a fetch that never ended would be
the last one.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import (
    HTTP_PORT,
    HTTPS_PORT,
    HTTPConnection,
    HTTPException,
    HTTPSConnection,
)
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from coordinator.errors import ConfigError
from coordinator.node.config import OidcConfig
from coordinator.node.config_rules import is_safe_url

DOCUMENT_BYTES_MAX = 256 * 1024
TOKEN_BYTES_MAX = 16 * 1024
DEADLINE_MS = 5_000
_DISCOVERY = "/.well-known/openid-configuration"
_WITHHELD = (
    " without the token of jwks_token_file, which goes by https to the issuer's own host or to"
    " [oidc] jwks_url alone; name that if the keys are at another host"
)
_PIECE_BYTES = 16 * 1024
_TOKEN = re.compile(rb"[!-~]+")


class FetchError(Exception):
    """The document could not be fetched, and why; nothing of it is used."""


def check_files(config: OidcConfig) -> None:
    """Raise ConfigError if a file that ``fetch_keys`` needs cannot be used."""
    try:
        _authorization(config)
    except (OSError, FetchError) as error:
        shown = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"oidc.jwks_token_file: cannot use {config.jwks_token_file}: {shown}"
        ) from None
    try:
        _context(config)
    except OSError as error:
        shown = "no certificates (PEM)" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"oidc.ca_file: expected the certificate of a CA (PEM) in {config.ca_file},"
            f" found: {shown}"
        ) from None


def fetch_keys(config: OidcConfig, *, deadline_ms: int = DEADLINE_MS) -> dict[str, Any]:
    """Return the issuer's key set, as it is sent. Blocks for a few seconds at most.

    Raises:
        FetchError: it was not sent, or is none.
    """
    url = config.jwks_url
    if url is None:
        assert config.issuer is not None, "asked for only with an issuer"
        document = _fetch(config.issuer.rstrip("/") + _DISCOVERY, config, deadline_ms)
        if document.get("issuer") != config.issuer:
            found = document.get("issuer")
            raise FetchError(
                f"discovery document: expected that of issuer {config.issuer}, found {found!a:.200}"
            )
        url = document.get("jwks_uri")
    if not isinstance(url, str) or not is_safe_url(url):
        raise FetchError(f"expected the keys at an https address, found {url!a:.200}")
    return _fetch(url, config, deadline_ms)


def _fetch(url: str, config: OidcConfig, deadline_ms: int) -> dict[str, Any]:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    shown = _authorization(config) if _may_see_token(url, config) else {}
    headers = {"Accept": "application/json", "Connection": "close", **shown}
    timeout_s, body = deadline_ms / 1_000, bytearray()
    connection = connection_to(url, config, timeout_s)
    is_over = threading.Event()
    try:
        connection.connect()
        with _ended(connection.sock, timeout_s, is_over):
            connection.request("GET", target, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                why = _WITHHELD if config.jwks_token_file is not None and not shown else ""
                raise FetchError(f"{url}: expected status 200, found {answer.status}{why}")
            while len(body) <= DOCUMENT_BYTES_MAX and (piece := answer.read1(_PIECE_BYTES)):
                body += piece
        if len(body) > DOCUMENT_BYTES_MAX:
            raise FetchError(f"{url}: expected at most {DOCUMENT_BYTES_MAX} bytes, found more")
        document = json.loads(bytes(body))
    except (FetchError, OSError, HTTPException, ValueError, RecursionError) as error:
        if is_over.is_set() or isinstance(error, TimeoutError):
            raise FetchError(f"{url}: expected it whole within {deadline_ms} ms") from None
        if isinstance(error, FetchError):
            raise
        raise FetchError(f"{url}: {type(error).__name__}: {error}") from None
    finally:
        connection.close()
    if not isinstance(document, dict):
        raise FetchError(f"{url}: expected a JSON object, found a {type(document).__name__}")
    return document


def _may_see_token(url: str, config: OidcConfig) -> bool:
    """Whether the member's own token may be sent there."""
    parts, of_issuer = urlsplit(url), urlsplit(config.issuer or "")
    is_named = url == config.jwks_url or parts[:2] == of_issuer[:2]
    return parts.scheme == "https" and is_named


def connection_to(url: str, config: OidcConfig, timeout_s: float) -> HTTPConnection:
    """Return what will connect to the server of ``url``; raises FetchError if it names none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port or HTTP_PORT, timeout=timeout_s)
        # With a port: without one the end of an IPv6 address is taken for it.
        port, context = parts.port or HTTPS_PORT, _context(config)
        return HTTPSConnection(host, port, timeout=timeout_s, context=context)
    except (HTTPException, ValueError) as error:
        raise FetchError(f"{url}: {type(error).__name__}: {error}") from None


@contextmanager
def _ended(connected: socket.socket, seconds: float, is_over: threading.Event) -> Iterator[None]:
    """End what is received in the block when its time is over: each wait alone has an end, but an
    answer whose head comes byte by byte has any number of them."""

    def end() -> None:
        is_over.set()
        with suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)  # of TLS, too: not its own way

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _authorization(config: OidcConfig) -> dict[str, str]:
    """Return the header with which this member asks. No error has a part of the token."""
    if config.jwks_token_file is None:
        return {}
    with Path(config.jwks_token_file).open("rb") as file:
        token = file.read(TOKEN_BYTES_MAX + 1).strip()
    if len(token) > TOKEN_BYTES_MAX or _TOKEN.fullmatch(token) is None:
        raise FetchError(
            f"jwks_token_file: expected a token of 1 to {TOKEN_BYTES_MAX} ASCII characters on one"
            f" line, found {len(token)} bytes"
        )
    return {"Authorization": f"Bearer {token.decode('ascii')}"}


def _context(config: OidcConfig) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=config.ca_file)
