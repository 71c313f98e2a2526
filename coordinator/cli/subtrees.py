"""Subtrees that are copied: read whole, moved to another path, written in a few multis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TypeVar

from coordinator.client import AsyncClient
from coordinator.errors import NoAuthError
from coordinator.model.operations import Create, Delete, SetData
from coordinator.model.znodes import Subtree

Operation = TypeVar("Operation", bound=Create | SetData | Delete)


async def pages(client: AsyncClient, path: str) -> AsyncIterator[Subtree]:
    """Yield the pages of all znodes at and below ``path``, one at least; raises as ``page``."""
    found = await page(client, path)
    yield found
    while found.next is not None:
        found = await page(client, path, after=found.next)
        yield found


async def page(
    client: AsyncClient, path: str, *, after: str | None = None, limit: int = 1_000
) -> Subtree:
    """Return a page of all znodes at and below ``path``, at most ``limit`` (0 to 1000).

    Raises:
        NoAuthError: this client may not read and watch all of it, so that some may be missing.
        UnavailableError: no member answered in time.
    """
    found = await client.subtree(path, after=after, limit=limit)
    if found.is_partial:
        raise NoAuthError(
            f"a copy of {path} would lack what this client may not read or watch: it needs both"
            " rights for all of it",
            path=path,
        )
    return found


def moved(path: str, top: str, target: str) -> str:
    """Return where ``path``, at or below ``top``, is when ``top`` is at ``target``."""
    return (target.rstrip("/") + path[len(top.rstrip("/")) :]).rstrip("/") or "/"


def in_steps(
    operations: Iterable[Operation], at_once: int, at_once_bytes: int
) -> Iterator[list[Operation]]:
    """Yield them cut to what goes into one multi: so many, with so many bytes of data; one alone
    may have more."""
    step: list[Operation] = []
    size = 0
    for each in operations:
        length = 0 if isinstance(each, Delete) else len(each.data)
        if step and (len(step) == at_once or size + length > at_once_bytes):
            yield step
            step, size = [], 0
        step.append(each)
        size += length
    if step:
        yield step
