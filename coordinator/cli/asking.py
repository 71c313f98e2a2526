"""``ask``: asking the holder of a lock to give it up, which it may refuse."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import EXIT_NOT_IN_TIME, document, note
from coordinator.cli.seconds import Seconds

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.recipes.revoker import RevokeAnswer

_IN_WORDS = {
    "agreed": "its holder agreed, and has not released it in time",
    "refused": "its holder keeps it",
    "silent": "its holder has not answered, and keeps it",
}


@click.command()
@click.argument("name", shell_complete=lock_names)
@click.option("--reason", required=True, metavar="TEXT", help="Why another client needs it.")
@click.option("--by", default="", help="Who asks.")
@click.option(
    "--within",
    "within_s",
    type=Seconds(min=0.01, max=24 * 3600),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the answer, or the release.",
)
@click.option("--token", type=int, help="Which holder, where several hold together.")
@verb
def ask(
    settings: Settings, name: str, reason: str, by: str, within_s: float, token: int | None
) -> None:
    """Ask the holder of the lock NAME to give it up. Nothing is taken away.

    A program listens with grant.on_asked; `coordinator lock NAME --on-asked TERM -- COMMAND` agrees
    and ends its command. What is given up goes to the next in the queue. To end a grant by force:
    coordinator revoke.

    \b
    Exit codes:
      0    the grant has ended
      75   it is still held: the holder refused, did not answer, or did not release in time

    \b
    Examples:
      coordinator ask gpu --reason "the report is due" --within 60
      coordinator ask gpu --reason "the report is due" && coordinator lock gpu -- ./report.sh
    """

    async def work(client: AsyncClient) -> RevokeAnswer:
        from coordinator.recipes.revoker import Revoker

        return await Revoker(client, name).ask(reason, by=by, within=within_s, fencing_token=token)

    answer = settings.run(work)
    if settings.is_json:
        click.echo(document(asdict(answer)))
    else:
        click.echo(answer.outcome)
        if answer.outcome in _IN_WORDS:
            because = f": {answer.reason}" if answer.reason else ""
            note(f"lock {name!r}: {_IN_WORDS[answer.outcome]}{because}")
    if answer.outcome != "ended":
        sys.exit(EXIT_NOT_IN_TIME)
