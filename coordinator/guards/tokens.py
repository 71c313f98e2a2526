"""The checks of tokens and write numbers that all guards share. Pure.

1. A token is an integer that the cluster issued: 1 to 2**63 - 1. A UUID, a string of digits, a
   float or a bool is a TypeError; nothing is compared.
2. Only a lower token is refused. An equal one is the same holder's next write.
3. A refusal names both tokens, so that the log shows which holder was late.
4. A write may carry a number of its own, counted by the holder for each grant. Then one whose
   number is not above the highest seen under this token is refused too: it came late, or twice. A
   write without a number is judged by its token alone; a higher token starts new numbers.
"""

from __future__ import annotations

import re

from coordinator.errors import BadArgumentsError, StaleTokenError, StaleWriteError

TOKEN_MAX = 2**63 - 1
RESOURCE_BYTES_MAX = 500
"""Short enough for a primary key of every store."""

DEFAULT_TABLE = "fencing_tokens"
_TABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?", re.ASCII)


def checked_token(token: object) -> int:
    """Return ``token`` if it is one.

    Raises:
        TypeError: it is not an integer.
        BadArgumentsError: it is out of range.
    """
    if not isinstance(token, int) or isinstance(token, bool):
        raise TypeError(
            f"fencing token: expected the integer that the grant carries, found {token!r} of type "
            f"{type(token).__name__}; only integers issued by the cluster have an order"
        )
    if not 1 <= token <= TOKEN_MAX:
        raise BadArgumentsError(f"fencing token: expected 1 to {TOKEN_MAX}, found {token}")
    return int(token)


def checked_write_number(number: object) -> int | None:
    """Return ``number`` if it can number a write; None is none.

    Raises:
        TypeError: it is not an integer.
        BadArgumentsError: it is out of range.
    """
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(
            f"write number: expected an integer that grows with each write of the grant, found "
            f"{number!r} of type {type(number).__name__}"
        )
    if not 1 <= number <= TOKEN_MAX:
        raise BadArgumentsError(f"write number: expected 1 to {TOKEN_MAX}, found {number}")
    return int(number)


def checked_resource(resource: str) -> str:
    """Return ``resource`` if it can name what is guarded in every store."""
    if not isinstance(resource, str):
        raise TypeError(f"resource: expected a string, found {type(resource).__name__}")
    try:
        size = len(resource.encode())
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= RESOURCE_BYTES_MAX or "\0" in resource:
        raise BadArgumentsError(
            f"resource: expected 1 to {RESOURCE_BYTES_MAX} bytes of UTF-8 without NUL, "
            f"found {resource!r}"
        )
    return resource


def checked_table(table: str) -> str:
    """Return ``table`` if it is a plain name, with or without its schema: it becomes SQL."""
    if not _TABLE_NAME.fullmatch(table):
        raise BadArgumentsError(f"table: expected a plain name, found {table!r}")
    return table


def refuse_lower(resource: str, token: int, highest_token: int) -> None:
    """Raise StaleTokenError if ``token`` is lower than the highest that the store has seen."""
    if token < highest_token:
        raise stale(resource, token, highest_token)


def stale(resource: str, token: int, highest_token: int) -> StaleTokenError:
    """Return the refusal of ``token`` where ``highest_token`` was seen."""
    return StaleTokenError(
        f"{resource}: token {token} is stale, {highest_token} has been seen; its holder has been "
        f"replaced and nothing was written",
        resource=resource,
        token=token,
        highest_token=highest_token,
    )


def stale_write(resource: str, token: int, number: int, highest_number: int) -> StaleWriteError:
    """Return the refusal of the write ``number`` where ``highest_number`` was seen."""
    return StaleWriteError(
        f"{resource}: write {number} under token {token} is late or repeated, {highest_number} has "
        f"been seen under this token; nothing was written now",
        resource=resource,
        token=token,
        write_number=number,
        highest_write_number=highest_number,
    )
