"""The verification of an issuer's tokens: whose a token is, until when.

1. A token counts if the configured issuer signed it with one of its keys, for this service
   (``audience``), and its time has come and is not over, by this member's wall clock give or take
   ``clock_skew_ms``. One that lives longer than ``lifetime_ms_max`` does not: it cannot be revoked
   but by its identity.
2. The algorithm is one that fits the key that the token names; what the token says of itself
   chooses nothing else. Addresses and keys inside a token are not looked at.
3. What was verified is kept until it ends, so a token is verified once, not with each request. The
   token itself is kept nowhere; no error and no log has a part of it.
4. A subject is ``oidc:``, the issuer, ``#`` and the token's ``sub``: that is what identities name.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, NamedTuple

import jwt

from coordinator.clock import Clock
from coordinator.config import OidcConfig
from coordinator.oidc.keys import IssuerKeys, Key

PREFIX = "oidc:"
TOKEN_CHARACTERS_MAX = 8_192
_SUBJECT_CHARACTERS_MAX = 512
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_SUBJECT = re.compile(r"[!-~]+")
_KEPT_MAX = 10_000
_OPTIONS: Any = {
    "require": ["exp", "iss", "aud", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}
"""Times are compared with the member's clock, below."""


class Verified(NamedTuple):
    """Whose a token is, and from when to when."""

    subject: str
    begins_ms: int
    ends_ms: int


class Tokens:
    """The tokens of one issuer, as one member verifies them.

    Args:
        keys: of the issuer; a test passes its own.
    """

    def __init__(self, config: OidcConfig, clock: Clock, keys: IssuerKeys | None = None) -> None:
        assert config.issuer is not None, "made only where one is configured"
        self._config = config
        self._clock = clock
        self._issuer = config.issuer
        self._keys = keys or IssuerKeys(config, clock)
        self._kept: dict[bytes, tuple[int, Verified]] = {}

    def subject_of(self, token: str) -> str | None:
        """Return whose ``token`` is, by the keys that are here; None if it proves nothing."""
        if len(token) > TOKEN_CHARACTERS_MAX or _FORM.fullmatch(token) is None:
            return None
        digest = sha256(token.encode("ascii")).digest()
        version, found = self._kept.get(digest, (-1, None))
        if found is None or version != self._keys.version:
            found = self._verified(token)
            if found is None:
                return None
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[digest] = self._keys.version, found
        self._keys.renew()
        if not self._keys.is_believed:
            return None
        now_ms = self._clock.wall_ms()
        return found.subject if found.begins_ms <= now_ms < found.ends_ms else None

    async def prepare(self, token: str) -> None:
        """Fetch the keys if ``token`` may need others than are here; bounded in time and rate."""
        if len(token) <= TOKEN_CHARACTERS_MAX and _FORM.fullmatch(token) is not None:
            key_id, _ = _head(token)
            if key_id and self._keys.is_due(key_id):
                await self._keys.refresh()

    def close(self) -> None:
        """Wait for nothing any more."""
        self._keys.close()

    def _verified(self, token: str) -> Verified | None:
        key_id, algorithm = _head(token)
        for key in self._keys.find(key_id, algorithm):
            claims = self._claims(token, key, algorithm)
            if claims is not None:
                return self._judged(claims)
        return None

    def _claims(self, token: str, key: Key, algorithm: str) -> dict[str, Any] | None:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=[algorithm],
                audience=self._config.audience,
                issuer=self._issuer,
                options=_OPTIONS,
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None
        return claims

    def _judged(self, claims: dict[str, Any]) -> Verified | None:
        """Return what was verified, None if its times or its subject cannot be."""
        ends_ms = _milliseconds(claims["exp"])
        begins = [
            _milliseconds(claims[name]) for name in ("nbf", "iat") if claims.get(name) is not None
        ]
        subject = claims["sub"]
        if ends_ms is None or not begins or not isinstance(subject, str):
            return None
        known = [each for each in begins if each is not None]
        skew_ms = self._config.clock_skew_ms
        named = f"{PREFIX}{self._issuer}#{subject}"
        is_short = len(named) <= _SUBJECT_CHARACTERS_MAX and _SUBJECT.fullmatch(subject) is not None
        if len(known) < len(begins) or not is_short:
            return None
        if ends_ms - min(known) > self._config.lifetime_ms_max:
            return None
        return Verified(named, max(known) - skew_ms, ends_ms + skew_ms)


def _head(token: str) -> tuple[str, str]:
    """Return the key id and the algorithm that a token names; empty where it names none."""
    try:
        head = jwt.get_unverified_header(token)
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
        return "", ""
    key_id, algorithm = head.get("kid"), head.get("alg")
    if not isinstance(key_id, str) or not isinstance(algorithm, str):
        return "", ""
    return key_id, algorithm


def _milliseconds(seconds: object) -> int | None:
    """Return a NumericDate (RFC 7519) as milliseconds; None if it is none of this age."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    return int(seconds * 1_000) if 0 <= seconds < 2**40 else None
