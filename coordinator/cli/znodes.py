"""The verbs of the tree: ``create``, ``get``, ``set``, ``delete``, ``ls``, ``stat``."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, BinaryIO, get_args

import click

from coordinator.cli.completing import paths
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, for_terminal, one_line, show_table
from coordinator.client import AsyncClient, IfHeld, Session
from coordinator.client.async_client import Mode
from coordinator.errors import BadArgumentsError, NoNodeError
from coordinator.model.fields import ANY_VERSION
from coordinator.model.operations import Check, Create, SetData
from coordinator.model.znodes import Stat
from coordinator.wire.codec import to_body
from coordinator.wire.encoding import Encoding, data_fields
from coordinator.wire.if_held import if_held_in
from coordinator.wording import moment

_PAGE = 1_000

file_option = click.option(
    "--file",
    "file",
    type=click.File("rb"),
    metavar="FILE",
    help="Take the data from a file, from standard input if it is -.",
)
expected_version_option = click.option(
    "--expected-version",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="Only if the version is N; otherwise refuse with BadVersion.",
)


class IfHeldParam(click.ParamType[IfHeld]):
    """A lock and a fencing token: NAME:TOKEN."""

    name = "NAME:TOKEN"

    def convert(self, value: Any, param: Any, ctx: Any) -> IfHeld:
        """Return NAME:TOKEN as a condition."""
        try:
            return if_held_in("if_held", value)
        except BadArgumentsError:
            self.fail(f"expected NAME:TOKEN, found {value!r}", param, ctx)


if_held_option = click.option(
    "--if-held",
    type=IfHeldParam(),
    multiple=True,
    help="Only while the grant with this fencing token holds this lock; may be repeated.",
)
stale_option = click.option(
    "--stale", is_flag=True, help="Answer at once from one member, which may be behind."
)


@click.command()
@click.argument("path", shell_complete=paths)
@click.argument("data", required=False)
@file_option
@click.option(
    "--mode",
    type=click.Choice(get_args(Mode)),
    default="persistent",
    show_default=True,
    help="How long it lives, and whether a number is appended to its name.",
)
@click.option("--ttl-ms", type=click.IntRange(min=1), help="For ttl modes: idle time to live.")
@click.option("--parents", is_flag=True, help="Create missing ancestors.")
@if_held_option
@verb
def create(
    settings: Settings,
    path: str,
    data: str | None,
    file: BinaryIO | None,
    mode: Mode,
    ttl_ms: int | None,
    parents: bool,
    if_held: tuple[IfHeld, ...],
) -> None:
    """Create a znode and print its path.

    An ephemeral znode lives while its creator does: the command then stays until Ctrl-C or
    SIGTERM, and the znode goes with it.

    \b
    Examples:
      coordinator create /app/config '{"workers": 4}' --parents
      coordinator create /jobs/job- --mode persistent_sequential     # prints /jobs/job-0000000000
      coordinator create /app/logo --file logo.png
      coordinator create /online/host-7 --mode ephemeral             # until Ctrl-C
    """

    async def work(client: AsyncClient) -> None:
        try:
            written = await client.create(
                path,
                _data(data, file) or b"",
                mode=mode,
                ttl_ms=ttl_ms,
                parents="persistent" if parents else None,
                if_held=if_held,
            )
        except NoNodeError as error:
            raise NoNodeError(f"{error.message} (--parents creates it)", **error.fields) from None
        _show_written(settings, written.path, written.stat, written.path)
        if mode.startswith("ephemeral"):
            sys.stdout.flush()
            await _stay(await client.session())

    settings.run(work)


@click.command()
@click.argument("path", shell_complete=paths)
@stale_option
@click.option("--at-least-zxid", type=click.IntRange(min=0), help="See everything up to this zxid.")
@verb
def get(settings: Settings, path: str, stale: bool, at_least_zxid: int | None) -> None:
    """Print the data of a znode, byte for byte.

    On a terminal, control characters are escaped.

    \b
    Examples:
      coordinator get /app/config
      coordinator get /app/config --json        # {"path": ..., "data": ..., "stat": {...}}
      coordinator get /app/logo > logo.png
    """
    znode = settings.run(lambda client: client.get(path, stale=stale, at_least_zxid=at_least_zxid))
    if settings.is_json:
        body: dict[str, Any] = {"path": znode.path, **data_fields(znode.data, Encoding.JSON)}
        click.echo(document({**body, "stat": to_body(znode.stat)}))
        return
    if not sys.stdout.isatty():
        click.echo(znode.data, nl=False)
        return
    # A person wants the prompt on a line of its own, and no escape sequence of another user.
    click.echo(for_terminal(znode.data), nl=not znode.data.endswith(b"\n"))


@click.command(name="set")
@click.argument("path", shell_complete=paths)
@click.argument("data", required=False)
@file_option
@expected_version_option
@click.option("--create", "is_upsert", is_flag=True, help="Create it if it does not exist.")
@if_held_option
@verb
def set_(
    settings: Settings,
    path: str,
    data: str | None,
    file: BinaryIO | None,
    expected_version: int | None,
    is_upsert: bool,
    if_held: tuple[IfHeld, ...],
) -> None:
    """Replace the data of a znode and print its new version.

    \b
    Examples:
      coordinator set /app/config '{"workers": 8}'
      coordinator set /app/config '{"workers": 8}' --expected-version 3
      date | coordinator set /app/heartbeat --file - --create
      coordinator set /progress 1000 --if-held "$COORDINATOR_LOCK_NAME:$COORDINATOR_FENCING_TOKEN"
    """
    if is_upsert and expected_version is not None:
        raise click.UsageError("expected one of --create and --expected-version, found both")
    content = _data(data, file)
    if content is None:
        raise click.UsageError("expected DATA or --file, found neither")

    async def work(client: AsyncClient) -> None:
        if not is_upsert:
            version = ANY_VERSION if expected_version is None else expected_version
            written = await client.set(path, content, expected_version=version, if_held=if_held)
            stat = written.stat
        else:
            reply = await client.guarded(
                [Check(path, exists=False)],
                then=[Create(path, content)],
                otherwise=[SetData(path, content)],
                if_held=if_held,
            )
            found = reply.results[0].stat
            assert found is not None, "a create or a set answers with a Stat"
            stat = found
        _show_written(settings, path, stat, f"version {stat.version}")

    settings.run(work)


@click.command()
@click.argument("path", shell_complete=paths)
@click.option("--recursive", "-r", is_flag=True, help="Delete everything below it as well.")
@expected_version_option
@if_held_option
@verb
def delete(
    settings: Settings,
    path: str,
    recursive: bool,
    expected_version: int | None,
    if_held: tuple[IfHeld, ...],
) -> None:
    """Delete a znode.

    \b
    Examples:
      coordinator delete /app/config
      coordinator delete /app --recursive
      coordinator delete /app/config --expected-version 3
    """
    version = ANY_VERSION if expected_version is None else expected_version
    deleted = settings.run(
        lambda client: client.delete(
            path, expected_version=version, recursive=recursive, if_held=if_held
        )
    )
    if settings.is_json:
        body = {"path": deleted.path, "deleted_count": deleted.deleted_count}
        click.echo(document(body))
    elif recursive:
        click.echo(f"deleted {deleted.deleted_count}")


@click.command()
@click.argument("path", default="/", shell_complete=paths)
@click.option("--long", "-l", "is_long", is_flag=True, help="Show the Stat of each child.")
@stale_option
@verb
def ls(settings: Settings, path: str, is_long: bool, stale: bool) -> None:
    """List the children of a znode, the root if none is named.

    \b
    Examples:
      coordinator ls /
      coordinator ls /locks/daily-report --long
      coordinator ls /app --json              # {"path": ..., "children": [...]}
    """

    async def work(client: AsyncClient) -> tuple[list[str], list[Stat]]:
        names: list[str] = []
        stats: list[Stat] = []
        after: str | None = None
        while True:
            page = await client.children(
                path, after=after, limit=_PAGE, with_stat=is_long, stale=stale
            )
            names += page.names
            stats += page.stats
            after = page.next
            if after is None:
                return names, stats

    names, stats = settings.run(work)
    if settings.is_json:
        children: list[Any] = list(names)
        if is_long:
            children = [
                {"name": name, "stat": to_body(stat)}
                for name, stat in zip(names, stats, strict=True)
            ]
        click.echo(document({"path": path, "children": children}))
    elif is_long:
        show_table(
            ("NAME", "MODE", "VERSION", "BYTES", "CHILDREN", "CZXID", "OWNER", "MODIFIED"),
            (_long_row(name, stat) for name, stat in zip(names, stats, strict=True)),
        )
    else:
        is_shown = sys.stdout.isatty()
        for name in names:
            click.echo(one_line(name) if is_shown else name)


@click.command()
@click.argument("path", shell_complete=paths)
@verb
def stat(settings: Settings, path: str) -> None:
    """Show the Stat of a znode: all but its data.

    \b
    Example:
      coordinator stat /app/config
    """
    znode = settings.run(lambda client: client.get(path))
    body = to_body(znode.stat)
    if settings.is_json:
        click.echo(document({"path": path, "stat": body}))
        return
    for name, value in body.items():
        shown = "-" if value is None else value
        when = f"  ({moment(value)})" if name in {"ctime_ms", "mtime_ms"} else ""
        click.echo(f"{name:<16} {shown}{when}")


async def _stay(session: Session) -> None:
    """Keep the session open until this program is ended; raise if the session ends first."""
    has_changed = asyncio.Event()
    session.on_state(lambda _: has_changed.set())
    while True:
        session.check()
        await has_changed.wait()
        has_changed.clear()


def _data(text: str | None, file: BinaryIO | None) -> bytes | None:
    if text is not None and file is not None:
        raise BadArgumentsError("expected DATA or --file, found both")
    if file is not None:
        return file.read()
    # The bytes as they were typed, whatever the locale made of them.
    return None if text is None else os.fsencode(text)


def _show_written(settings: Settings, path: str, stat: Stat, text: str) -> None:
    click.echo(document({"path": path, "stat": to_body(stat)}) if settings.is_json else text)


def _long_row(name: str, stat: Stat) -> tuple[object, ...]:
    return (
        name,
        stat.mode,
        stat.version,
        stat.data_length,
        stat.num_children,
        stat.czxid,
        stat.ephemeral_owner,
        moment(stat.mtime_ms),
    )
