"""Tokens of the cluster as callers show them: found by their ids, compared in constant time."""

from __future__ import annotations

import hmac

from coordinator.errors import AuthFailedError
from coordinator.model.tokens import digest_of, token_id_in
from coordinator.state.access.table import AccessTable, Token

_SCHEME = "bearer"


def bearer(authorization: str | None) -> str | None:
    """Return the token in a header, None if there is none."""
    scheme, _, text = (authorization or "").partition(" ")
    return text.strip() if scheme.lower() == _SCHEME else None


def shown_token(table: AccessTable, text: str) -> Token | None:
    """Return the token that ``text`` proves, which may have expired; None if it proves none."""
    token_id = token_id_in(text)
    token = None if token_id is None else table.token(token_id)
    if token is None or not hmac.compare_digest(token.digest, digest_of(text)):
        return None
    return token


def has_expired(token: Token, wall_ms: int) -> bool:
    """Whether a token has, by this wall clock."""
    return bool(token.expires_ms) and wall_ms >= token.expires_ms


def refuse_expired(table: AccessTable, authorization: str | None, wall_ms: int) -> None:
    """Raise AuthFailedError that names the token, if one is shown that has expired: who shows it
    had it, so this tells nobody what he did not know; and it is no guess of a stranger."""
    token = shown_token(table, bearer(authorization) or "")
    if token is not None and has_expired(token, wall_ms):
        raise AuthFailedError(
            f"the token {token.token_id} of {token.caller.identity} has expired: show the next one",
            reason="expired",
            identity=token.caller.identity,
        )
