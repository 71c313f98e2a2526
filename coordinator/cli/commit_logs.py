"""``commit-log``: the transactions of a log, and what to do about a site that is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import show_list

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.recipes import Transaction


@click.command(name="commit-log")
@click.argument("name")
@click.option("--recover", is_flag=True, help="Decide what a coordinator that died left open.")
@click.option(
    "--write-off", "site", metavar="SITE", help="Wait for SITE no more: it is gone for good."
)
@verb
def commit_log(settings: Settings, name: str, recover: bool, site: str | None) -> None:
    """Show the transactions of the commit log NAME, oldest first.

    It shows what each site has done.

    `--write-off` prints what the site has left, as far as the log knows: apply it, or make good for
    it, by hand. `--recover` prints what it decided.

    \b
    Examples:
      coordinator commit-log payments
      coordinator commit-log payments --write-off paris
    """
    from coordinator.recipes import CommitLog, CommitSite

    if recover and site is not None:
        raise click.UsageError("expected --recover or --write-off, found both")

    async def work(client: AsyncClient) -> list[Transaction]:
        if site is not None:
            return await CommitSite(client, name, site).write_off()
        log = CommitLog(client, name)
        return await (log.recover() if recover else log.transactions())

    show(settings, settings.run(work))


def show(settings: Settings, found: list[Transaction]) -> None:
    """Write the transactions, one a line."""
    rows = [
        (
            each.key,
            each.state,
            each.fencing_token,
            ", ".join(f"{site} {state}" for site, state in each.sites.items()),
            each.reason,
        )
        for each in found
    ]
    heads = ("KEY", "STATE", "TOKEN", "SITES", "REASON")
    show_list(settings.is_json, map(_body, found), heads, rows, "there is no such transaction")


def _body(transaction: Transaction) -> dict[str, Any]:
    return {
        "key": transaction.key,
        "state": transaction.state,
        "fencing_token": transaction.fencing_token,
        "sites": dict(transaction.sites),
        "value": transaction.value,
        "reason": transaction.reason,
    }
