"""``watch``: what changes, as it changes."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from coordinator.cli import completing
from coordinator.cli.connection import TIMEOUT_S, Settings, verb
from coordinator.cli.output import document, note, one_line
from coordinator.client import AsyncClient
from coordinator.client.async_client import EventWord, WatchKind
from coordinator.model.events import Change, Event
from coordinator.wire.codec import to_body

_EVENTS: dict[str, EventWord] = {
    "created": "NodeCreated",
    "deleted": "NodeDeleted",
    "changed": "NodeDataChanged",
}


class Words(click.ParamType[tuple[EventWord, ...]]):
    """Words of a list, separated by commas; each stands for a value."""

    name = "words"

    def __init__(self, words: Mapping[str, EventWord]) -> None:
        self._words = words

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[EventWord, ...]:
        """Return what the words stand for."""
        if isinstance(value, tuple):
            return value
        unknown = [each for each in value.split(",") if each not in self._words]
        if unknown:
            self.fail(
                f"expected some of {', '.join(self._words)}; found {unknown[0]!r}", param, ctx
            )
        return tuple([self._words[each] for each in value.split(",")])


@click.command()
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", shell_complete=completing.paths
)
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
@click.option("--values", is_flag=True, help="With the data before and after each change.")
@click.option(
    "--only",
    type=Words(_EVENTS),
    default=(),
    metavar="WHAT,...",
    help="Only created, deleted or changed znodes, or two of these.",
)
@click.option("--prefix", default="", metavar="PATH", help="Only paths that begin so.")
@verb
def watch(
    settings: Settings,
    paths: tuple[str, ...],
    kind: WatchKind,
    from_zxid: int | None,
    once: bool,
    values: bool,
    only: tuple[EventWord, ...],
    prefix: str,
) -> None:
    """Print each change of the znodes at PATH, until Ctrl-C.

    Changes come in the order in which they happened, none missed and none twice, also over the
    loss of a member. --timeout is how long to look for a member after the last one was lost.

    \b
    Examples:
      coordinator watch /app/config --values
      coordinator watch /app --kind subtree --json      # one JSON object for each zxid
      coordinator watch /app --kind children --once && echo "something came or went"
      coordinator watch /jobs --kind children --only created,deleted --prefix /jobs/night-
    """

    async def work(client: AsyncClient) -> None:
        stream = client.watch(
            *paths,
            kind=kind,
            from_zxid=from_zxid,
            one_shot=once,
            values=values,
            only=only,
            prefix=prefix,
            contact_timeout=TIMEOUT_S if settings.timeout_s is None else settings.timeout_s,
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
        click.echo(document({name: body[name] for name in body if name != "type"}))
        return
    for event in change.events:
        line = one_line(f"{change.zxid} {event.type} {event.path}")
        click.echo(f"{line}{_values(event)}")


def _values(event: Event) -> str:
    """Return the data before and after as texts in JSON, bytes that are none in base64."""
    if event.is_withheld:
        return " (not yours to read)"
    given = [each for each in (event.previous_data, event.data) if each is not None]
    return " " + " -> ".join(map(_shown, given)) if given else ""


def _shown(data: bytes) -> str:
    try:
        return json.dumps(data.decode(), ensure_ascii=True)
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(data).decode()}"
