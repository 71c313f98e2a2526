"""The verification of an issuer's tokens: whose a token is, until when.

1. A token counts if the configured issuer signed it with one of its keys, for this service
   (``audience``), and its time has come and is not over, by this member's wall clock give or take
   ``clock_skew_ms``. One that lives longer than ``lifetime_ms_max`` does not: it cannot be revoked
   but by its identity.
2. The algorithm is one that fits the key that the token names; what the token says of itself
   chooses nothing else. Addresses and keys inside a token are not looked at.
3. A token is verified once, not with each request: what came of it is kept, also that it proves
   nothing. It is done in a thread, one token after the other, and after one that proves nothing
   there is a pause of nine times as long: who sends forged ones takes a tenth of a core at most.
   The token itself is kept nowhere; no error and no log has a part of it.
4. A subject is ``oidc:``, the issuer, ``#`` and the token's ``sub``: that is what identities name.
"""

from __future__ import annotations

import asyncio
import re
from hashlib import sha256
from typing import Any, NamedTuple

import jwt

from coordinator.clock import Clock
from coordinator.node.config import OidcConfig
from coordinator.oidc.keys import IssuerKeys, Key

PREFIX = "oidc:"
TOKEN_CHARACTERS_MAX = 8_192
_SUBJECT_CHARACTERS_MAX = 512
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_SUBJECT = re.compile(r"[!-~]+")
_KEPT_MAX = 10_000
_REFUSED_MAX = 1_024
_REST = 9
"""A pause after a token that proves nothing, in times that its verification took."""
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
        self._refused: dict[bytes, int] = {}
        """By digests: under which keys they prove nothing."""
        self._verifying = asyncio.Lock()

    def subject_of(self, token: str) -> str | None:
        """Return whose ``token`` is, if that was verified; None if not, or if it proves nothing."""
        if not _is_one(token):
            return None
        version, found = self._kept.get(_digest(token), (-1, None))
        if found is None or version != self._keys.version:
            return None
        self._keys.renew()
        if not self._keys.is_believed:
            return None
        now_ms = self._clock.wall_ms()
        return found.subject if found.begins_ms <= now_ms < found.ends_ms else None

    async def prepare(self, token: str) -> None:
        """Verify ``token``, with keys that are fetched if it may need others than are here; the
        fetches are bounded in time and rate, the verifications in rate."""
        if not _is_one(token):
            return
        key_id, algorithm = _head(token)
        if key_id and self._keys.is_due(key_id):
            await self._keys.refresh()
        if self._keys.find(key_id, algorithm) and not self._is_judged(token):
            async with self._verifying:
                if not self._is_judged(token):
                    await self._judge(token)

    def _is_judged(self, token: str) -> bool:
        digest, version = _digest(token), self._keys.version
        return version in (self._kept.get(digest, (-1,))[0], self._refused.get(digest, -1))

    async def _judge(self, token: str) -> None:
        digest, version, began_ms = _digest(token), self._keys.version, self._clock.monotonic_ms()
        found = await asyncio.to_thread(self._verified, token)
        if found is not None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            self._kept[digest] = version, found
            return
        if len(self._refused) >= _REFUSED_MAX:
            self._refused.clear()
        self._refused[digest] = version
        took_ms = max(1, self._clock.monotonic_ms() - began_ms)
        await asyncio.sleep(_REST * took_ms / 1_000)

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


def _is_one(token: str) -> bool:
    return len(token) <= TOKEN_CHARACTERS_MAX and _FORM.fullmatch(token) is not None


def _digest(token: str) -> bytes:
    return sha256(token.encode("ascii")).digest()


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
