"""Short words for hand-made histories of one znode: ``set_(3, 5, "b", version=1)``.

First the call and the return time (None: unknown outcome), then what was asked, then what was told.
``told`` is what a read saw; ``no`` makes the answer an error.
"""

from __future__ import annotations

from typing import Any

from tests.history.operations import Operation

KEY = "/a"


def _operation(
    called_at: int, returned_at: int | None, kind: str, asked: dict[str, Any], told: dict[str, Any]
) -> Operation:
    no = told.pop("no", None)
    if no is not None:
        told["error"] = no
    output = None if returned_at is None else told
    return Operation(told.pop("by", "c"), KEY, kind, asked, output, called_at, returned_at)


def create(called_at: int, returned_at: int | None, value: str, **told: Any) -> Operation:
    return _operation(called_at, returned_at, "create", {"value": value}, told)


def read(
    called_at: int, returned_at: int | None, value: str | None = None, **told: Any
) -> Operation:
    """A read that saw ``value``; None: no znode (or the Stat alone, if there are facts of one)."""
    return _read("read", called_at, returned_at, value, told)


def stale_read(
    called_at: int, returned_at: int | None, value: str | None = None, **told: Any
) -> Operation:
    return _read("stale_read", called_at, returned_at, value, told)


def _read(
    kind: str, called_at: int, returned_at: int | None, value: str | None, told: dict[str, Any]
) -> Operation:
    if value is not None:
        told["value"] = value
    elif not told.keys() & {"version", "czxid", "mzxid"}:
        told["no"] = "NoNode"
    return _operation(called_at, returned_at, kind, {}, told)


def set_(
    called_at: int, returned_at: int | None, value: str, expected: int | None = None, **told: Any
) -> Operation:
    asked: dict[str, Any] = {"value": value}
    if expected is not None:
        asked["expected_version"] = expected
    return _operation(called_at, returned_at, "set", asked, told)


def delete(
    called_at: int,
    returned_at: int | None,
    expected: int | None = None,
    czxid: int | None = None,
    **told: Any,
) -> Operation:
    asked: dict[str, Any] = {}
    if expected is not None:
        asked["expected_version"] = expected
    if czxid is not None:
        asked["expected_czxid"] = czxid
    return _operation(called_at, returned_at, "delete", asked, told)
