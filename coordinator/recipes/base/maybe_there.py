"""Znodes that may be there or not: read, listed, written and removed."""

from __future__ import annotations

from coordinator.client import AsyncClient, Check, Conditions, Stat, Written, Znode
from coordinator.errors import NodeExistsError, NoNodeError


async def read(core: AsyncClient, path: str) -> Znode | None:
    """Return a znode; None if it is not there."""
    try:
        return await core.get(path)
    except NoNodeError:
        return None


def as_it_is(path: str, znode: Znode | None) -> Check:
    """Return the condition that nothing has changed since ``path`` was read."""
    if znode is None:
        return Check(path, exists=False)
    stat = znode.stat
    return Check(path, expected_version=stat.version, expected_czxid=stat.czxid)


async def listed(core: AsyncClient, path: str) -> list[tuple[str, Stat]]:
    """Return the names of all children with their Stats; none of a znode that is not there."""
    found: list[tuple[str, Stat]] = []
    after: str | None = None
    while True:
        try:
            page = await core.children(path, after=after, with_stat=True)
        except NoNodeError:
            return found
        found += zip(page.names, page.stats, strict=True)
        if (after := page.next) is None:
            return found


async def names_below(core: AsyncClient, path: str) -> list[str]:
    """Return the names of all children, in order; none of a znode that is not there."""
    names: list[str] = []
    after: str | None = None
    while True:
        try:
            page = await core.children(path, after=after)
        except NoNodeError:
            return names
        names += page.names
        if (after := page.next) is None:
            return names


async def put(
    core: AsyncClient,
    path: str,
    data: bytes,
    *,
    ttl_ms: int | None = None,
    if_held: Conditions = None,
) -> Written:
    """Write a znode, whether it is there or not."""
    while True:
        try:
            return await core.set(path, data, if_held=if_held)
        except NoNodeError:
            pass
        try:
            return await core.create(
                path,
                data,
                mode="persistent" if ttl_ms is None else "ttl",
                parents="persistent",
                ttl_ms=ttl_ms,
                if_held=if_held,
            )
        except NodeExistsError:
            continue  # another was first: this one is the later


async def drop(
    core: AsyncClient, path: str, *, recursive: bool = False, if_held: Conditions = None
) -> bool:
    """Delete a znode; False if it was not there."""
    try:
        await core.delete(path, recursive=recursive, if_held=if_held)
    except NoNodeError:
        return False
    return True
