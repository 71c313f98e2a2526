"""The record of the work of one key; see ``coordinator.recipes.once``."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from coordinator.client import AsyncClient, Create, Operation, SetData
from coordinator.errors import BadArgumentsError, NoNodeError
from coordinator.recipes.grant import Grant
from coordinator.recipes.maybe_there import read


class NotDone(Exception):
    """Raised by the work to say that this attempt certainly did nothing; ``run`` raises it on.

    The attempt is forgotten. What became of an earlier one stays unknown: its record is restored.
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of the work. ``number`` above 1: an earlier run began and did not come to its end."""

    key: str
    number: int
    fencing_token: int
    """The token of the key's lock: pass it to a guard, so that an earlier run that wakes late is
    refused."""
    grant: Grant[Any] = field(repr=False, compare=False)
    """The grant of the key's lock: for ``if_held=``, and to learn that it was lost."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the work. ``result`` is a JSON value; ``is_first`` if this very call worked."""

    key: str
    result: Any
    attempts: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class OnceRecord:
    state: Literal["started", "done"]
    attempt: int
    fencing_token: int
    result: Any = None

    def to_bytes(self) -> bytes:
        """Return the data of its znode."""
        document = {
            "state": self.state,
            "attempt": self.attempt,
            "fencing_token": self.fencing_token,
            "result": self.result,
        }
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()

    @classmethod
    def of(cls, path: str, data: bytes) -> OnceRecord:
        """Return the record that a znode's data is; raises BadArgumentsError if it is none."""
        try:
            document = json.loads(data)
            token, result = document["fencing_token"], document["result"]
            record = cls(document["state"], document["attempt"], token, result)
        except (ValueError, KeyError, TypeError):
            record = None
        if record is None or record.state not in ("started", "done"):
            raise BadArgumentsError(f"{path}: expected a record of Once, found {data[:60]!r}")
        return record

    def end_of(self, key: str) -> Done:
        """Return what a later caller gets."""
        return Done(key, self.result, self.attempt, is_first=False)


async def read_record(core: AsyncClient, path: str) -> OnceRecord | None:
    """Return the record at ``path``, None if there is none."""
    znode = await read(core, path)
    return None if znode is None else OnceRecord.of(path, znode.data)


def created_or_set(path: str, is_there: bool, keep_ms: int | None, data: bytes) -> Operation:
    """Return what writes a record; it is forgotten after ``keep_ms``, None keeps it."""
    if is_there:
        return SetData(path, data)
    mode: Literal["persistent", "ttl"] = "persistent" if keep_ms is None else "ttl"
    return Create(path, data, mode=mode, ttl_ms=keep_ms, parents="container")


async def write_record(
    core: AsyncClient, path: str, keep_ms: int | None, data: bytes, grant: Grant[Any] | None
) -> None:
    """Write it if the grant holds; it is forgotten after ``keep_ms``, None keeps it."""
    try:
        await core.set(path, data, if_held=grant)
    except NoNodeError:
        mode: Literal["persistent", "ttl"] = "persistent" if keep_ms is None else "ttl"
        await core.create(path, data, mode=mode, ttl_ms=keep_ms, parents="container", if_held=grant)
