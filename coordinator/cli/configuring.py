"""``config``: get, set, diff, history and rollback of shared configurations."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import unquote

import click

from coordinator.cli.connection import Settings, shared_options, verb
from coordinator.cli.output import document, for_terminal, note, one_line, show_table
from coordinator.errors import NoNodeError
from coordinator.wording import moment

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.recipes.sharing.configuration_snapshot import Snapshot

_EXPECTED = click.option(
    "--expected-version",
    type=click.IntRange(min=0),
    metavar="N",
    help="Refuse if the present version is another; 0: if there is any.",
)
_NOTE = click.option("--note", "text", default="", metavar="TEXT", help="Why; kept in the history.")
_BY = click.option("--by", metavar="NAME", help="Who; kept in the history.")


@click.group(invoke_without_command=True)
@shared_options
@click.pass_context
def config(context: click.Context) -> None:
    """Read and change configurations: values that change together.

    Without a verb of its own it lists the configurations.

    \b
    Examples:
      coordinator config set web db.host=db-2 db.pool:=20 --note "the new database"
      coordinator config get web db.host
      coordinator config diff web
      coordinator config rollback web 1
    """
    if context.invoked_subcommand is None:
        context.invoke(_list)


@verb
def _list(settings: Settings) -> None:
    from coordinator.recipes.base.maybe_there import names_below
    from coordinator.recipes.configuration import ROOT

    for name in settings.run(lambda client: names_below(client, ROOT)):
        shown = unquote(name)
        click.echo(document({"name": shown}) if settings.is_json else one_line(shown))


@config.command()
@click.argument("name")
@click.argument("key", required=False)
@click.option("--version", type=click.IntRange(min=1), metavar="N", help="Not the current version.")
@verb
def get(settings: Settings, name: str, key: str | None, version: int | None) -> None:
    """Show the values of the configuration NAME, or one of them.

    One value that is text is shown as it is, any other as JSON. Exit code 1 says that it is not
    there.
    """
    from coordinator.recipes.configuration import Configuration

    async def work(client: AsyncClient) -> Snapshot:
        found = await Configuration(client, name).get(version)
        if found.version == 0 or (key is not None and key not in found.values):
            what = "a configuration" if key is None else f"the value {key}"
            raise NoNodeError(f"{name}: expected {what}, found none")
        return found

    found = settings.run(work)
    if key is not None:
        value = found.values[key]
        if isinstance(value, str) and not settings.is_json:
            data = value.encode()
            click.echo(for_terminal(data) if sys.stdout.isatty() else data)
        else:
            click.echo(document(value))
        return
    _show(settings, found)


@config.command(name="set")
@click.argument("name")
@click.argument("pairs", nargs=-1, metavar="[KEY=TEXT|KEY:=JSON]...")
@click.option("--remove", multiple=True, metavar="KEY", help="Remove a value. May be repeated.")
@click.option("--file", type=click.File("rb"), help="Values as one object of JSON; - is stdin.")
@click.option("--replace", is_flag=True, help="Remove all other values.")
@_EXPECTED
@_NOTE
@_BY
@verb
def set_(
    settings: Settings,
    name: str,
    pairs: tuple[str, ...],
    remove: tuple[str, ...],
    file: BinaryIO | None,
    replace: bool,
    expected_version: int | None,
    text: str,
    by: str | None,
) -> None:
    """Change values of the configuration NAME, all at once.

    It shows the new version.

    \b
    Examples:
      coordinator config set web db.host=db-2 db.pool:=20 --remove db.old
      coordinator config set web --file web.json --replace --expected-version 7
    """
    from coordinator.recipes.configuration import Configuration

    if not pairs and not remove and file is None:
        raise click.UsageError("expected KEY=TEXT, KEY:=JSON, --remove or --file, found none")
    if replace and remove:
        raise click.UsageError("expected one of --replace and --remove, found both")
    values = {} if file is None else _object(file.read())
    values.update(map(_pair, pairs))

    async def work(client: AsyncClient) -> Snapshot:
        shared = Configuration(client, name, by=by)
        if replace:
            return await shared.replace(values, expected_version=expected_version, note=text)
        return await shared.change(
            values, remove=remove, expected_version=expected_version, note=text
        )

    _show_version(settings, settings.run(work))


@config.command()
@click.argument("name")
@click.argument("before", type=click.IntRange(min=0), required=False)
@click.argument("after", type=click.IntRange(min=1), required=False)
@verb
def diff(settings: Settings, name: str, before: int | None, after: int | None) -> None:
    """Show what changed between two versions.

    By default from the version before the current one to the current one.
    """
    from coordinator.recipes.configuration import Configuration
    from coordinator.recipes.sharing.configuration_snapshot import Snapshot

    async def work(client: AsyncClient) -> tuple[Snapshot, Snapshot]:
        shared = Configuration(client, name)
        new = await shared.get(after)
        old = max(0, new.version - 1) if before is None else before
        return (Snapshot(0, {}) if old == 0 else await shared.get(old)), new

    old, new = settings.run(work)
    for key in old.names_changed(new):
        if settings.is_json:
            sides = (("before", old), ("after", new))
            found = {side: each.values[key] for side, each in sides if key in each.values}
            click.echo(document({"name": key, **found}))
            continue
        for sign, each in (("-", old), ("+", new)):
            if key in each.values:
                click.echo(one_line(f"{sign} {key} = {document(each.values[key])}"))


@config.command()
@click.argument("name")
@verb
def history(settings: Settings, name: str) -> None:
    """List the versions of the configuration NAME that are kept, the newest first."""
    from coordinator.recipes.configuration import Configuration

    async def work(client: AsyncClient) -> tuple[Snapshot, ...]:
        return await Configuration(client, name).history()

    versions = settings.run(work)
    if settings.is_json:
        for each in versions:
            _show(settings, each)
    elif versions:
        rows = [(each.version, moment(each.at_ms), each.by, each.note) for each in versions]
        show_table(("VERSION", "AT", "BY", "NOTE"), rows)


@config.command()
@click.argument("name")
@click.argument("version", type=click.IntRange(min=1))
@_EXPECTED
@_NOTE
@_BY
@verb
def rollback(
    settings: Settings,
    name: str,
    version: int,
    expected_version: int | None,
    text: str,
    by: str | None,
) -> None:
    """Commit the values of VERSION again, as a new version."""
    from coordinator.recipes.configuration import Configuration

    async def work(client: AsyncClient) -> Snapshot:
        shared = Configuration(client, name, by=by)
        return await shared.rollback(version, expected_version=expected_version, note=text)

    _show_version(settings, settings.run(work))


def _show(settings: Settings, found: Snapshot) -> None:
    if settings.is_json:
        body: dict[str, Any] = {"version": found.version, "values": found.values}
        click.echo(document({**body, "note": found.note, "by": found.by, "at_ms": found.at_ms}))
        return
    note(f"version {found.version}")
    for name in sorted(found.values):
        click.echo(one_line(f"{name} = {document(found.values[name])}"))


def _show_version(settings: Settings, made: Snapshot) -> None:
    click.echo(document({"version": made.version}) if settings.is_json else made.version)


def _pair(argument: str) -> tuple[str, Any]:
    key, mark, text = argument.partition("=")
    if not mark:
        raise click.UsageError(f"expected KEY=TEXT or KEY:=JSON, found {argument!r}")
    if not key.endswith(":"):
        return key, text
    try:
        return key[:-1], json.loads(text)
    except (ValueError, RecursionError):
        raise click.UsageError(f"{key}=: expected JSON, found {text!r:.60}") from None


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise click.UsageError(f"--file: expected an object of JSON, found {data[:60]!r}")
    return found
