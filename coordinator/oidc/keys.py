"""The keys of an issuer: kept, fetched again from time to time, and when a token names a new one.

1. A client that sends tokens with unknown key ids causes no more than one fetch in
   ``FETCH_EVERY_MS``.
2. If the issuer cannot be reached the keys that are there go on for ``jwks_keep_ms``; then no token
   of it is believed, because a key that was withdrawn would be believed for ever.
3. Only keys that sign are kept, each for the one algorithm that fits it. A shared secret (``oct``)
   never is, so no token can be signed with a public key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jwt

from coordinator.clock import Clock
from coordinator.node.config import OidcConfig
from coordinator.oidc.fetching import FetchError, fetch_keys

logger = logging.getLogger("coordinator.service")

FETCH_EVERY_MS = 10_000
KEYS_MAX = 50
KEY_ID_CHARACTERS_MAX = 256
_RSA_BITS_MIN = 2_048
_RSA_BITS_MAX = 8_192
_RSA = ("RS256", "RS384", "RS512")
_OF_CURVES = {"P-256": "ES256", "P-384": "ES384", "Ed25519": "EdDSA"}


class Key(NamedTuple):
    """A public key, and the algorithms that it may be used with."""

    public: Any
    algorithms: tuple[str, ...]


class IssuerKeys:
    """The keys of one issuer, as one member knows them."""

    def __init__(
        self,
        config: OidcConfig,
        clock: Clock,
        fetch: Callable[[OidcConfig], dict[str, Any]] = fetch_keys,
    ) -> None:
        self._config = config
        self._clock = clock
        self._fetch = fetch
        self._keys: dict[str, tuple[Key, ...]] = {}
        self._fetched_ms: int | None = None
        self._tried_ms: int | None = None
        self._fetching: asyncio.Task[None] | None = None
        self.version = 0
        """Grows when other keys came."""

    @property
    def is_believed(self) -> bool:
        """Whether there are keys, not too old."""
        return self._fetched_ms is not None and self._age_ms() <= self._config.jwks_keep_ms

    def find(self, key_id: str, algorithm: str) -> tuple[Key, ...]:
        """Return the keys that a token may be signed with; none if they are not known, or too old
        to be believed. Keys of different kinds may have one id (RFC 7517, section 4.5)."""
        if not self.is_believed:
            return ()
        return tuple(key for key in self._keys.get(key_id, ()) if algorithm in key.algorithms)

    def renew(self) -> None:
        """Begin to fetch the keys, if those that are here are old; a withdrawn one goes then."""
        if self._fetching is None and self.is_due("") and self._is_old:
            self._begin()

    @property
    def _is_old(self) -> bool:
        return self._fetched_ms is None or self._age_ms() > self._config.jwks_refresh_ms

    def is_due(self, key_id: str) -> bool:
        """Whether the keys are to be fetched for a token that names ``key_id``."""
        now_ms = self._clock.monotonic_ms()
        if self._tried_ms is not None and now_ms - self._tried_ms < FETCH_EVERY_MS:
            return self._fetching is not None
        return self._is_old or key_id not in self._keys

    async def refresh(self) -> None:
        """Fetch the keys once for all who wait; return when that has ended."""
        await asyncio.wait({self._fetching or self._begin()})

    def _begin(self) -> asyncio.Task[None]:
        self._tried_ms = self._clock.monotonic_ms()
        self._fetching = asyncio.create_task(self._refresh(), name="fetch an issuer's keys")
        return self._fetching

    def close(self) -> None:
        """Wait for nothing any more."""
        if self._fetching is not None:
            self._fetching.cancel()

    def _age_ms(self) -> int:
        assert self._fetched_ms is not None, "asked for once there are keys"
        return self._clock.monotonic_ms() - self._fetched_ms

    async def _refresh(self) -> None:
        try:
            keys = keys_in(await asyncio.to_thread(self._fetch, self._config))
        except (FetchError, OSError) as error:
            logger.warning("the keys of the issuer could not be fetched: %r", str(error))
            return
        finally:
            self._fetching = None
        self._fetched_ms = self._clock.monotonic_ms()
        self._keys = keys
        self.version += 1


def keys_in(document: Mapping[str, Any]) -> dict[str, tuple[Key, ...]]:
    """Return the keys of a key set that can be used, by their ids.

    Raises:
        FetchError: it is no key set, or has too many.
    """
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        found_keys = len(listed) if isinstance(listed, list) else "none"
        raise FetchError(
            f"expected a key set with at most {KEYS_MAX} keys (RFC 7517), found {found_keys}"
        )
    found: dict[str, tuple[Key, ...]] = {}
    for each in listed:
        key = _key(each) if isinstance(each, dict) else None
        if key is not None:
            found[each["kid"]] = *found.get(each["kid"], ()), key
    return found


def _key(document: dict[str, Any]) -> Key | None:
    """Return a key that signs, None for every other one."""
    key_id = document.get("kid")
    if not isinstance(key_id, str) or not 0 < len(key_id) <= KEY_ID_CHARACTERS_MAX:
        return None
    if document.get("use", "sig") != "sig" or document.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    of_curve = _OF_CURVES.get(str(document.get("crv")))
    fitting = _RSA if document["kty"] == "RSA" else (of_curve,) if of_curve else ()
    named = document.get("alg")
    algorithms = tuple([each for each in fitting if named in (None, each)])
    if not algorithms:
        return None
    public_parts: dict[str, Any] = {
        name: document[name] for name in ("kty", "n", "e", "crv", "x", "y") if name in document
    }
    try:
        public = jwt.PyJWK.from_dict(public_parts, algorithm=algorithms[0]).key
        size = getattr(public, "key_size", _RSA_BITS_MIN)
    except (jwt.PyJWTError, ValueError, TypeError, OverflowError):
        return None
    if document["kty"] == "RSA" and not _RSA_BITS_MIN <= size <= _RSA_BITS_MAX:
        return None
    return Key(public, algorithms)
