"""``hand-over``: the elected is asked to let another candidate follow."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import EXIT_NOT_IN_TIME, document, note, one_line

if TYPE_CHECKING:
    from coordinator.client import AsyncClient, Candidate

_PATIENCE_S = 30.0


@click.command("hand-over")
@click.argument("name")
@click.option("--to", default="", metavar="CANDIDATE", help="Its label, session id or grant id.")
@click.option("--by", default="", metavar="WHO", help="Your name; recorded.")
@click.option("--reason", default="", help="Why; recorded with the leadership that ends.")
@verb
def hand_over(settings: Settings, name: str, to: str, by: str, reason: str) -> None:
    """Move the leadership of the election NAME to another candidate.

    It asks the elected program, and waits until another candidate is elected.

    The elected program ends its work first. Then one command of the log ends its leadership and
    begins that of the candidate, so there are never two. Without --to, that is the waiting
    candidate with the highest weight, and of several the one that has waited longest. Programs
    under `coordinator elect`, and those that use `Election.asked()`, hand over; others do not
    answer. `coordinator grants NAME --election` and the audit log say by whom, and why.

    \b
    Exit codes, beside the usual ones:
      75  it was asked, and is still elected after 30 s

    \b
    Examples:
      coordinator hand-over scheduler
      coordinator hand-over scheduler --to host-b --by ann --reason "host-a gets a new disk"
    """

    async def work(client: AsyncClient) -> Candidate | None:
        from coordinator.recipes.election import Election
        from coordinator.recipes.elections.succession import first, named

        election = Election(client, name)
        choose = named(to) if to else first
        choose((await election.who()).candidates)  # a wrong name is said before anything is asked
        epoch = await election.ask(to, by=by, reason=reason)
        try:
            async with asyncio.timeout(_PATIENCE_S), election.observe() as seen:
                async for each in seen:
                    if each.elected is not None and each.elected.epoch != epoch:
                        return each.elected
        except TimeoutError:
            pass
        return None

    elected = settings.run(work)
    if elected is None:
        note(f"election {name}: asked, but nobody else is elected after {_PATIENCE_S:g} s")
        sys.exit(EXIT_NOT_IN_TIME)
    if settings.is_json:
        click.echo(document({"label": elected.label, "epoch": elected.epoch,
                             "grant_id": elected.grant_id}))  # fmt: skip
    else:
        click.echo(one_line(f"elected: {elected.label or elected.grant_id}, epoch {elected.epoch}"))
