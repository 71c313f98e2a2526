"""The verb that shows and sets the limits of the cluster: ``limits``."""

from __future__ import annotations

from typing import Any

import click

from coordinator.cli.connection import Settings, shared_options, verb
from coordinator.cli.history import login_name
from coordinator.cli.output import document, one_line, show_table
from coordinator.client import AsyncClient
from coordinator.model.fields import ANY_VERSION
from coordinator.model.limits import LimitsView
from coordinator.wire.codec import to_body
from coordinator.wording import moment


class Limit(click.ParamType[tuple[str, int]]):
    """A limit and its value: NAME=VALUE."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, int]:
        """Return NAME=NUMBER as a pair."""
        if isinstance(value, tuple):
            return value
        name, mark, number = value.partition("=")
        try:
            if mark and name:
                return name.strip(), int(number.replace("_", ""))
        except ValueError:
            pass
        self.fail(f"expected NAME=VALUE with a whole number, found {value!r}", param, ctx)


@click.group(invoke_without_command=True)
@shared_options
@click.pass_context
def limits(context: click.Context) -> None:
    """Show the limits of the cluster; `coordinator limits set` changes them.

    They hold for all members alike. A configuration file sets only the first ones of a new
    cluster. A lower limit deletes nothing: only growth is refused.

    \b
    Examples:
      coordinator limits
      coordinator limits set znodes_max=2000000
    """
    if context.invoked_subcommand is None:
        context.invoke(show)


@limits.command(name="show")
@verb
def show(settings: Settings) -> None:
    """Show the limits, how often they were set, and by whom last."""
    _show(settings, settings.run(lambda client: client.limits()))


@limits.command(name="set")
@click.argument("values", type=Limit(), nargs=-1, required=True, metavar="NAME=VALUE...")
@click.option("--by", help="Who does this.  [default: your login name]")
@click.option(
    "--expected-version",
    type=click.IntRange(min=0),
    default=None,
    metavar="N",
    help="Only if the limits are of version N; otherwise refuse with BadVersion.",
)
@verb
def set_limits(
    settings: Settings,
    values: tuple[tuple[str, int], ...],
    by: str | None,
    expected_version: int | None,
) -> None:
    """Set limits of the whole cluster; those that are not named stay.

    \b
    Examples:
      coordinator limits set znodes_max=2000000
      coordinator limits set data_bytes_max=65536 sessions_max=1000 --by ops
    """
    who = by or login_name()
    version = ANY_VERSION if expected_version is None else expected_version

    async def work(client: AsyncClient) -> LimitsView:
        return await client.set_limits(dict(values), by=who, expected_version=version)

    _show(settings, settings.run(work))


def _show(settings: Settings, view: LimitsView) -> None:
    if settings.is_json:
        click.echo(document(to_body(view)))
        return
    by = f" by {one_line(view.by)}" if view.by else ""
    set_ = f", set {moment(view.changed_ms)}{by}" if view.version else ": none was set yet"
    click.echo(f"The limits of the cluster, version {view.version}{set_}:")
    show_table(("LIMIT", "VALUE"), view.limits.items())
