"""The verb ``log-level``: what members log, changed while they run."""

from __future__ import annotations

import sys

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import EXIT_UNAVAILABLE, document, one_line
from coordinator.wire.codec import to_body


@click.command("log-level")
@click.argument("level", type=click.Choice(("debug", "info", "warning", "error")))
@click.option("--member", "member_id", metavar="ID", help="Only of this member.")
@verb
def log_level(settings: Settings, level: str, member_id: str | None) -> None:
    """Change the least that members log, until their next start.

    Needs admin on @members, and is recorded in the audit log. Exits with 3 if a member did not
    answer.

    \b
    Examples:
      coordinator log-level debug --member 2
      coordinator log-level info
    """
    found = settings.run(lambda client: client.set_log_level(level, member_id))
    if settings.is_json:
        click.echo(document(to_body(found)))
    else:
        if found.set:
            click.echo(f"{level} on {', '.join(found.set)}")
        for each, why in found.not_set.items():
            click.echo(one_line(f"not on {each}: {why}"))
    if found.not_set:
        sys.exit(EXIT_UNAVAILABLE)
