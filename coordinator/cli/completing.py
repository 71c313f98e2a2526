"""The completion of arguments: names of locks and paths of znodes, asked from the cluster.

A shell waits for it at each Tab, so it is quick or says nothing: where no member answers in time,
and where the caller may not look, there is nothing to complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import click

from coordinator.cli.connection import Settings
from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError

_WITHIN_S = 1.0
_SHOWN_MAX = 100


def lock_names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of locks that are not free and begin so."""

    async def work(client: AsyncClient) -> list[str]:
        found: list[str] = []
        async for each in client.locks():
            if each.lock.startswith(incomplete):
                found.append(each.lock)
            if len(found) == _SHOWN_MAX:
                break
        return found

    return _asked(context, work)


def paths(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the paths of the znodes that continue this one, one name further."""
    above, begun = incomplete.rpartition("/")[::2]

    async def work(client: AsyncClient) -> list[str]:
        names = (await client.children(above or "/")).names
        return [f"{above}/{each}" for each in names if each.startswith(begun)][:_SHOWN_MAX]

    return _asked(context, work)


def _asked(
    context: click.Context, work: Callable[[AsyncClient], Awaitable[list[str]]]
) -> list[str]:
    settings = context.ensure_object(Settings)
    settings.timeout_s = _WITHIN_S

    async def within() -> list[str]:
        async with asyncio.timeout(_WITHIN_S), settings.connector() as client:
            return await work(client)

    try:
        return asyncio.run(within())
    except (CoordinatorError, click.ClickException, OSError, TimeoutError):
        return []
