"""The HTTP headers of a fencing token and of a write's number: one decimal integer each.

To send them, as ``HttpGuard`` and your requests do, only the standard library is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import re
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    NoAuthError,
    UnavailableError,
    from_problem,
)
from coordinator.guards.tokens import checked_resource, checked_token, checked_write_number

TOKEN_HEADER: Final = "Fencing-Token"  # noqa: S105 (a name, and no secret)
WRITE_HEADER: Final = "Fencing-Write"
PROOF_HEADER: Final = "Fencing-Proof"
FENCE_PATH: Final = "/.fence"
"""Where the proxy itself is spoken to."""

SECRET_BYTES_MIN = 32
_DECIMAL = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)
_TIMEOUT_S = 60.0


def token_of(values: Sequence[str]) -> int:
    """Return the token that a request carries in its values of the header.

    Raises:
        BadArgumentsError: there is none, more than one, or one that is no token.
    """
    if len(values) != 1 or not _DECIMAL.fullmatch(values[0]):
        raise BadArgumentsError(
            f"expected one header {TOKEN_HEADER} with the integer that the grant carries, found "
            f"{list(values)!r}"
        )
    return checked_token(int(values[0]))


def write_number_of(values: Sequence[str]) -> int | None:
    """Return the write number that a request carries, None if it has none.

    Raises:
        BadArgumentsError: there is more than one, or one that is no number.
    """
    if not values:
        return None
    if len(values) != 1 or not _DECIMAL.fullmatch(values[0]):
        raise BadArgumentsError(
            f"expected one header {WRITE_HEADER} with a decimal integer, or none, found "
            f"{list(values)!r}"
        )
    return checked_write_number(int(values[0]))


def checked_secret(secret: bytes) -> bytes:
    """Return ``secret`` if it is long enough not to be guessed; raises BadArgumentsError."""
    if len(secret) < SECRET_BYTES_MIN:
        raise BadArgumentsError(
            f"secret: expected at least {SECRET_BYTES_MIN} bytes, such as 64 random hex digits, "
            f"found {len(secret)}"
        )
    return secret


def proof_of(secret: bytes, resource: str, token: int, number: int | None) -> str:
    """Return what shows that its sender knows ``secret``, for this resource, token and number."""
    signed = f"fence\n{len(resource)}\n{resource}\n{token}\n{'' if number is None else number}"
    return hmac.new(secret, signed.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def refuse_unproven(
    secret: bytes, resource: str, token: int, number: int | None, proofs: Sequence[str]
) -> None:
    """Refuse a token whose proof is none of ``secret``; raises NoAuthError."""
    expected = proof_of(secret, resource, token, number)
    if len(proofs) != 1 or not hmac.compare_digest(expected.encode(), proofs[0].encode()):
        raise NoAuthError(
            f"{resource}: expected one header {PROOF_HEADER} made with the proxy's secret for this "
            f"token, found {'another' if proofs else 'none'}"
        )


class HttpGuard:
    """A resource behind a fencing proxy: raises it for a lock, and makes the headers of a write.

    ``secret``: that of the proxy, if it has one.
    """

    def __init__(
        self,
        proxy: str,
        resource: str,
        *,
        timeout_s: float = _TIMEOUT_S,
        secret: bytes | None = None,
    ) -> None:
        parts = urlsplit(proxy)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadArgumentsError(f"proxy: expected http://host:port, found {proxy!r}")
        self.resource = checked_resource(resource)
        self._parts = parts
        self._timeout_s = timeout_s
        self._secret = None if secret is None else checked_secret(secret)

    def headers(self, token: int, *, write_number: int | None = None) -> dict[str, str]:
        """Return the headers to send with a write under ``token``."""
        headers = {TOKEN_HEADER: str(checked_token(token))}
        if write_number is not None:
            headers[WRITE_HEADER] = str(checked_write_number(write_number))
        if self._secret is not None:
            proof = proof_of(self._secret, self.resource, token, write_number)
            headers[PROOF_HEADER] = proof
        return headers

    def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``."""
        self._ask("PUT", self.headers(token))

    def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        highest: int | None = self._ask("GET", {})["highest_token"]
        return highest

    def _ask(self, method: str, headers: dict[str, str]) -> Any:
        is_secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if is_secure else http.client.HTTPConnection
        host = self._parts.hostname
        assert host is not None, "looked at when it was made"
        connection = kind(host, self._parts.port, timeout=self._timeout_s)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise UnavailableError(
                    f"{host}: the proxy accepts no connection: {error}"
                ) from error
            target = f"{FENCE_PATH}?resource={quote(self.resource, safe='')}"
            connection.request(method, self._parts.path.rstrip("/") + target, headers=headers)
            answer = connection.getresponse()
            facts = json.loads(answer.read())
        except UnavailableError:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ConnectionLostError(f"{host}: the proxy's answer was lost: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise from_problem(facts)
        return facts
