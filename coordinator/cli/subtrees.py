"""Whole subtrees, of which nothing is missing: what a copy of one begins with."""

from __future__ import annotations

from collections.abc import AsyncIterator

from coordinator.client import AsyncClient
from coordinator.errors import NoAuthError
from coordinator.model.znodes import Subtree


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
