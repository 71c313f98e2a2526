"""``diagnose``: whether a lock is the bottleneck, its lease too short, or itself superfluous."""

from __future__ import annotations

import click

from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, one_line
from coordinator.cli.status import lines_of_health
from coordinator.client import LockDiagnosis
from coordinator.wire.codec import to_body


@click.command()
@click.argument("name", required=False, shell_complete=lock_names)
@verb
def diagnose(settings: Settings, name: str | None) -> None:
    """Find problems in the history of the lock NAME, or of every lock.

    It finds: waits dominate, so the lock is the bottleneck; waiters leave without the lock, or
    tries are refused; the lease is shorter than pauses, or holds, that were seen; holds were ended
    by force or by max_hold; the lock is never contended. Each finding has its figures and what
    helps. A lock that is held by hand, or closed after an unclean loss, says so first. If the
    cluster is not well, that is said before.

    \b
    Examples:
      coordinator diagnose
      coordinator diagnose daily-report --json
    """
    found = settings.run(lambda client: client.diagnosis(name))
    if settings.is_json:
        click.echo(document(to_body(found)))
        return
    if found.cluster.level in ("warn", "bad"):
        for line in lines_of_health(found.cluster):
            click.echo(one_line(line))
    if not found.locks:
        click.echo("No lock is held, and the history has none.")
    for each in found.locks:
        for line in lines_of(each):
            click.echo(line)


def lines_of(diagnosis: LockDiagnosis) -> list[str]:
    """Return what is found of a lock, a line for each sentence."""
    lines = []
    for finding in diagnosis.findings:
        lines.append(one_line(f"{diagnosis.lock}: {finding.text}"))
        # Not splitlines: a name may have what counts as a line end there.
        said = [finding.why, *finding.advice.split("\n")]
        lines += [f"  {one_line(each)}" for each in said if each]
    return lines
