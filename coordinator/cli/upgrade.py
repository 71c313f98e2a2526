"""The verbs of an upgrade: ``upgrade status`` and ``upgrade finish``."""

from __future__ import annotations

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.history import login_name
from coordinator.cli.output import document, one_line, show_table
from coordinator.client import AsyncClient
from coordinator.model.upgrade import UpgradeView
from coordinator.wire.codec import to_body


@click.group()
def upgrade() -> None:
    """Upgrade the members to a new release, one after the other, and finish that.

    The page docs/upgrading.md leads through it.

    \b
    Examples:
      coordinator upgrade status
      coordinator upgrade finish
    """


@upgrade.command()
@verb
def status(settings: Settings) -> None:
    """Show which member runs which release, and what to do next."""
    _show(settings, settings.run(lambda client: client.upgrade_status()))


@upgrade.command()
@click.option("--by", help="Who does this.  [default: your login name]")
@verb
def finish(settings: Settings, by: str | None) -> None:
    """Raise the level of the cluster to the newest that all members read.

    From then on everything of the new release can be used, and no member can be started with the
    former release any more. Refused unless every member answers and reads the new level.
    """
    who = by or login_name()

    async def work(client: AsyncClient) -> UpgradeView:
        view = await client.finish_upgrade(by=who)
        while view.can_finish:
            view = await client.finish_upgrade(by=who)
        return view

    _show(settings, settings.run(work))


def _show(settings: Settings, view: UpgradeView) -> None:
    if settings.is_json:
        click.echo(document(to_body(view)))
        return
    click.echo(one_line(view.text))
    show_table(
        ("MEMBER", "RELEASE", "READS LEVELS"),
        [
            (
                each.member_id,
                each.release or each.silence,
                f"{each.level_oldest} to {each.level_newest}" if each.level_newest else "?",
            )
            for each in view.members
        ],
    )
    if view.todo:
        click.echo(one_line(view.todo))
