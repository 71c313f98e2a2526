"""The znodes of a configuration: the current version in one, the last ones in its ``versions``."""

from __future__ import annotations

from coordinator.client import (
    AsyncClient,
    Check,
    Conditions,
    Create,
    Delete,
    Operation,
    SetData,
)
from coordinator.errors import NoNodeError
from coordinator.recipes.base.names import checked_count
from coordinator.recipes.configuration_snapshot import Snapshot, current, snapshot_of
from coordinator.recipes.maybe_there import as_it_is, names_below, read

_DELETED_AT_ONCE_MAX = 50


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
            return None  # an old version was deleted meanwhile
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
