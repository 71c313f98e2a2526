"""One version of a configuration: its named values, as one document of JSON in one znode."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coordinator.client import (
    AsyncClient,
    Check,
    Conditions,
    Create,
    Delete,
    Operation,
    SetData,
    Stat,
)
from coordinator.errors import BadArgumentsError, DataTooLargeError, NoNodeError
from coordinator.recipes.base.maybe_there import as_it_is, names_below, read
from coordinator.recipes.base.names import checked_count

BYTES_MAX = 256 * 1024
"""The size of a whole version: a change sends it twice, so it stays far below a member's limits."""
VALUES_MAX = 1_000
NAME_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 200
_DELETED_AT_ONCE_MAX = 50


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All values as they were at one moment; version 0 is before the first change."""

    version: int
    values: Mapping[str, Any]
    note: str = ""
    by: str = ""
    at_ms: int = 0
    """When it was committed, by the clock of a member of the cluster."""
    zxid: int = field(default=0, repr=False)

    def names_changed(self, other: Snapshot) -> list[str]:
        """Return the names whose values differ between the two, in order."""
        names = sorted({*self.values, *other.values})
        return [each for each in names if _one(self.values, each) != _one(other.values, each)]


def snapshot_of(path: str, data: bytes, zxid: int, at_ms: int) -> Snapshot:
    """Return the version that a znode has.

    Raises:
        BadArgumentsError: it is no configuration.
    """
    try:
        document = json.loads(data)
        version, values, note, by = (document[each] for each in ("version", "values", "note", "by"))
        if not (isinstance(version, int) and isinstance(note, str) and isinstance(by, str)):
            raise TypeError("version, note, by")
        if not isinstance(values, dict):
            raise TypeError("values")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BadArgumentsError(f"{path}: expected a Configuration, found {data[:60]!r}") from None
    return Snapshot(version, values, note, by, at_ms, zxid)


def current(path: str, data: bytes, stat: Stat) -> Snapshot:
    """Return the version that the znode of a configuration has now; see ``read``."""
    return snapshot_of(path, data, stat.mzxid, stat.mtime_ms)


def written(version: int, values: Mapping[str, Any], note: str, by: str) -> bytes:
    """Return a version as the data of its znode.

    Raises:
        BadArgumentsError: a name or value is not valid, or there are too many.
        DataTooLargeError: all together are too large.
    """
    if len(values) > VALUES_MAX:
        raise BadArgumentsError(f"values: expected at most {VALUES_MAX}, found {len(values)}")
    for name in values:
        if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"values: expected names of 1 to {NAME_CHARACTERS_MAX} characters, "
                f"found {name!r:.60}"
            )
    for what, text in (("note", note), ("by", by)):
        if not isinstance(text, str) or len(text) > TEXT_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"{what}: expected at most {TEXT_CHARACTERS_MAX} characters, found {text!r:.60}"
            )
    document = {"version": version, "note": note, "by": by, "values": values}
    try:
        data = _json(document).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise BadArgumentsError(f"values: expected what JSON can carry, found {error}") from None
    if len(data) > BYTES_MAX:
        raise DataTooLargeError(
            f"values: expected at most {BYTES_MAX} bytes of JSON together, found {len(data)}; "
            "share them among several configurations"
        )
    return data


def is_same(values: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether they are the same JSON: 1, 1.0 and true are three values."""
    return _json(values) == _json(others)


def _json(value: object) -> str:
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
    )


def _one(values: Mapping[str, Any], name: str) -> str | None:
    return _json(values[name]) if name in values else None


class KeptVersions:
    """The versions at ``path``, of which the last ``count`` are kept."""

    def __init__(self, core: AsyncClient, path: str, count: int) -> None:
        self.path = path
        self._core = core
        self._count = count

    async def now(self) -> tuple[Snapshot, Check]:
        """Return what is there, and the condition that it still is."""
        znode = await read(self._core, self.path)
        now = Snapshot(0, {}) if znode is None else current(self.path, znode.data, znode.stat)
        return now, as_it_is(self.path, znode)

    async def version(self, number: int) -> Snapshot:
        """Return one version.

        Raises:
            NoNodeError: there is no such version, or it is not kept any more.
        """
        path = self._path_of(checked_count("version", number, least=0))
        znode = await read(self._core, path)
        if znode is None:
            kept = ", ".join(str(int(each)) for each in await self.names())
            raise NoNodeError(
                f"{self.path}: expected a version that is kept ({kept or 'none is'}), "
                f"found {number}"
            )
        return snapshot_of(path, znode.data, znode.stat.czxid, znode.stat.ctime_ms)

    async def names(self) -> list[str]:
        """Return the names of the znodes of all versions that are kept, the oldest first."""
        names = await names_below(self._core, f"{self.path}/versions")
        return [each for each in names if len(each) == 10 and each.isdecimal()]

    async def write(
        self, after: int, data: bytes, is_unchanged: Check, if_held: Conditions
    ) -> Snapshot | None:
        """Make ``data`` the version after ``after``; None: something else was changed first."""
        keep = Create(self._path_of(after + 1), data, parents="persistent")
        then: list[Operation] = [Create(self.path, data, parents="persistent"), keep]
        if after:
            then = [SetData(self.path, data), keep, *await self._too_old()]
        try:
            reply = await self._core.guarded([is_unchanged], then=then, if_held=if_held)
        except NoNodeError:
            return None  # an old version was deleted
        if reply.branch != "then":
            return None
        stat = next(each.stat for each in reply.results if each.path == self.path)
        assert stat is not None, "a written znode has a Stat"
        return current(self.path, data, stat)

    async def _too_old(self) -> list[Delete]:
        names = await self.names()
        many = min(len(names) + 1 - self._count, _DELETED_AT_ONCE_MAX)
        return [Delete(f"{self.path}/versions/{name}") for name in names[: max(0, many)]]

    def _path_of(self, version: int) -> str:
        return f"{self.path}/versions/{version:010d}"
