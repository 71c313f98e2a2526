"""``watch``: what changes, as it changes."""

from __future__ import annotations

import sys

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, note, one_line
from coordinator.client import AsyncClient
from coordinator.client.async_client import WatchKind
from coordinator.model.events import Change
from coordinator.wire.codec import to_body


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option(
    "--kind",
    type=click.Choice(["znode", "children", "subtree"]),
    default="znode",
    show_default=True,
    help="The znode itself, its list of direct children, or everything at and below it.",
)
@click.option(
    "--from-zxid",
    type=click.IntRange(min=0),
    metavar="N",
    help="Begin with the changes after zxid N.",
)
@click.option("--once", is_flag=True, help="End after the first change.")
@verb
def watch(
    settings: Settings,
    paths: tuple[str, ...],
    kind: WatchKind,
    from_zxid: int | None,
    once: bool,
) -> None:
    """Print each change of the znodes at PATH, until Ctrl-C.

    Changes come in the order in which they happened, none missed and none twice, also over the
    loss of a member. --timeout is how long to look for a member after the last one was lost.

    \b
    Examples:
      coordinator watch /app/config
      coordinator watch /app --kind subtree --json      # one JSON object for each zxid
      coordinator watch /app --kind children --once && echo "something came or went"
    """

    async def work(client: AsyncClient) -> None:
        stream = client.watch(
            *paths,
            kind=kind,
            from_zxid=from_zxid,
            one_shot=once,
            contact_timeout=settings.timeout_s,
        )
        async with stream as changes:
            if sys.stderr.isatty():
                note(f"watching from zxid {changes.zxid}")
            async for change in changes:
                _show(change, settings.is_json)

    settings.run(work)


def _show(change: Change, is_json: bool) -> None:
    if is_json:
        body = to_body(change)
        click.echo(document({"zxid": body["zxid"], "events": body["events"]}))
        return
    for event in change.events:
        click.echo(one_line(f"{change.zxid} {event.type} {event.path}"))
