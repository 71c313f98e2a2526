"""``queue``: what is in a queue of work, and putting into it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, show_list
from coordinator.cli.seconds import Seconds

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.recipes.work_queue import DeadLetter, QueueStats


@click.command()
@click.argument("name")
@click.option("--put", "body", metavar="DATA", help="Put an item, and show its name.")
@click.option(
    "--priority",
    type=click.IntRange(0, 9),
    default=5,
    show_default=True,
    help="With --put: 0 is delivered first.",
)
@click.option(
    "--delay", "delay_s", type=Seconds(), default=0.0, metavar="SECONDS", help="With --put."
)
@click.option("--dead", is_flag=True, help="List the items that are not delivered any more.")
@click.option("--revive", metavar="ITEM", help="Deliver a dead item again.")
@verb
def queue(
    settings: Settings,
    name: str,
    body: str | None,
    priority: int,
    delay_s: float,
    dead: bool,
    revive: str | None,
) -> None:
    """Show the queue of work NAME, put an item, or list the dead ones.

    \b
    Examples:
      coordinator queue mails
      coordinator queue mails --put "to ann" --delay 60
      coordinator queue mails --dead --json
    """
    from coordinator.recipes.work_queue import WorkQueue

    if (body is not None) + dead + (revive is not None) > 1:
        raise click.UsageError("expected one of --put, --dead and --revive, found several")

    async def work(client: AsyncClient) -> Any:
        shared = WorkQueue(client, name)
        if body is not None:
            return await shared.put(body.encode(), priority=priority, delay=delay_s)
        if revive is not None:
            return await shared.revive(revive)
        return await (shared.dead() if dead else shared.stats())

    found = settings.run(work)
    if body is not None:
        click.echo(document({"name": found[0]}) if settings.is_json else found[0])
    elif revive is not None:
        if not found:
            raise click.UsageError(f"expected the name of a dead item, found {revive!r}")
    elif dead:
        _show_dead(settings, found)
    else:
        _show(settings, found)


def _show(settings: Settings, stats: QueueStats) -> None:
    if settings.is_json:
        click.echo(document(asdict(stats)))
        return
    for label, value in asdict(stats).items():
        click.echo(f"{label:<16} {value}")


def _show_dead(settings: Settings, letters: tuple[DeadLetter, ...]) -> None:
    bodies = [
        {**asdict(each), "body": each.body.decode("utf-8", errors="replace")} for each in letters
    ]
    rows = [(each.name, each.attempts, each.reason, repr(each.body[:60])) for each in letters]
    heads = ("ITEM", "ATTEMPTS", "REASON", "BODY")
    show_list(settings.is_json, bodies, heads, rows, "no item is dead")
