"""Documents of an issuer, fetched by HTTPS: bounded, without redirects, in a thread.

Plain HTTP is for an issuer on this machine only. The keys that come decide who is believed, so
they come from whom the configuration names, or not at all: no redirect is followed, no proxy of the
environment is asked, and no other address than the issuer's own discovery document says.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from coordinator.clock import Clock
from coordinator.config import OidcConfig
from coordinator.config_rules import is_safe_url

DOCUMENT_BYTES_MAX = 256 * 1024
TOKEN_BYTES_MAX = 16 * 1024
DEADLINE_MS = 5_000
_DISCOVERY = "/.well-known/openid-configuration"
_PIECE_BYTES = 16 * 1024


class FetchError(Exception):
    """The document could not be fetched, and why; nothing of it is used."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def fetch_keys(config: OidcConfig, clock: Clock) -> dict[str, Any]:
    """Return the issuer's key set, as it is sent. Blocks for a few seconds at most.

    Raises:
        FetchError: it was not sent, or is none.
    """
    url = config.jwks_url
    if url is None:
        assert config.issuer is not None, "asked for only with an issuer"
        document = _fetch(config.issuer.rstrip("/") + _DISCOVERY, config, clock)
        if document.get("issuer") != config.issuer:
            found = document.get("issuer")
            raise FetchError(
                f"discovery document: expected that of issuer {config.issuer}, found {found!a:.200}"
            )
        url = document.get("jwks_uri")
    if not isinstance(url, str) or not is_safe_url(url):
        raise FetchError(f"expected the keys at an https address, found {url!a:.200}")
    return _fetch(url, config, clock)


def _fetch(url: str, config: OidcConfig, clock: Clock) -> dict[str, Any]:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310
    if config.jwks_token_file is not None:
        token = Path(config.jwks_token_file).read_bytes()[: TOKEN_BYTES_MAX + 1].strip()
        if not 0 < len(token) <= TOKEN_BYTES_MAX or not token.isascii():
            raise FetchError(
                f"jwks_token_file: expected a token of 1 to {TOKEN_BYTES_MAX} ASCII characters, "
                f"found {len(token)} bytes"
            )
        request.add_unredirected_header("Authorization", f"Bearer {token.decode('ascii')}")
    context = ssl.create_default_context(cafile=config.ca_file)
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=context),
        _NoRedirects(),
    )
    end_ms = clock.monotonic_ms() + DEADLINE_MS
    try:
        with opener.open(request, timeout=DEADLINE_MS / 1_000) as answer:
            body = bytearray()
            while piece := answer.read1(_PIECE_BYTES):
                body += piece
                if len(body) > DOCUMENT_BYTES_MAX:
                    raise FetchError(
                        f"{url}: expected at most {DOCUMENT_BYTES_MAX} bytes, found more"
                    )
                if clock.monotonic_ms() > end_ms:
                    raise FetchError(
                        f"{url}: expected it whole within {DEADLINE_MS} ms, found {len(body)} bytes"
                    )
        document = json.loads(bytes(body))
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        raise FetchError(f"{url}: {type(error).__name__}: {error}") from None
    if not isinstance(document, dict):
        raise FetchError(f"{url}: expected a JSON object, found a {type(document).__name__}")
    return document
