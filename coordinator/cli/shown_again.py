"""``--watch``: what a verb shows, shown again every two seconds until Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from coordinator.cli.connection import Settings
from coordinator.cli.output import show_error
from coordinator.client import AsyncClient
from coordinator.errors import OutcomeUnknownError, UnavailableError

EVERY_MS = 2_000

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def watch_option(function: F) -> F:
    """Add ``--watch`` to a verb."""
    return click.option(
        "--watch",
        "is_watching",
        is_flag=True,
        help=f"Show it again every {EVERY_MS // 1000} seconds, until Ctrl-C.",
    )(function)


def show(
    settings: Settings,
    look: Callable[[AsyncClient], Awaitable[T]],
    write: Callable[[T], None],
    *,
    is_watching: bool,
) -> T:
    """Write what is seen, once and return it; or again and again, also while nobody answers."""

    async def work(client: AsyncClient) -> T:
        while is_watching:
            try:
                found = await look(client)
            except (UnavailableError, OutcomeUnknownError) as error:
                show_error(error, settings.is_json)
            else:
                if sys.stdout.isatty() and not settings.is_json:
                    click.clear()
                write(found)
                sys.stdout.flush()
            await client.wait(EVERY_MS)
        return await look(client)

    found = settings.run(work)
    write(found)
    return found
