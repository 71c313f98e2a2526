"""``diagnose``: whether a lock is the bottleneck, its lease too short, or itself superfluous."""

from __future__ import annotations

from collections import defaultdict

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.diagnosis import Diagnosis, diagnosed, figures_of
from coordinator.cli.output import document, one_line
from coordinator.client import AsyncClient, GrantRecord


@click.command()
@click.argument("name", required=False)
@verb
def diagnose(settings: Settings, name: str | None) -> None:
    """Say what the history of the lock NAME, or of every lock, tells about its use.

    It knows these: wait dominates, so the lock is the bottleneck; the lease is shorter than the
    pauses, or the holds, that were seen; holders were put out by people or by their bound; the lock
    is never contended. Each with the figures it is drawn from, and what helps.

    \b
    Examples:
      coordinator diagnose
      coordinator diagnose daily-report --json
    """
    found = settings.run(lambda client: diagnoses(client, name))
    if settings.is_json:
        click.echo(document({"locks": [each.to_body() for each in found]}))
        return
    if not found:
        click.echo("The history knows no lock.")
    for each in found:
        for line in told(each):
            click.echo(line)


async def diagnoses(client: AsyncClient, name: str | None) -> list[Diagnosis]:
    """Return the diagnosis of one lock, or of every lock of the history, by name."""
    by_lock: dict[str, list[GrantRecord]] = defaultdict(list)
    if name is not None:
        by_lock[name] = []
    async for grant in client.grants(name):
        if not grant.is_election:
            by_lock[grant.lock].append(grant)
    leases_ms = {each.session_id: each.timeout_ms for each in await client.sessions()}
    queues = await _queues(client, name)
    found = []
    for lock, grants in sorted(by_lock.items()):
        queue_length, sessions = queues.get(lock, (0, []))
        known_ms = [leases_ms[each] for each in sessions if each in leases_ms]
        found.append(
            diagnosed(figures_of(lock, grants, queue_length=queue_length, leases_ms=known_ms))
        )
    return found


async def _queues(client: AsyncClient, name: str | None) -> dict[str, tuple[int, list[str]]]:
    """Return how many wait for each lock, and the sessions that stand there now."""
    if name is not None:
        view = await client.lock(name)
        return {name: (len(view.queue), [each.session_id for each in (*view.holders, *view.queue)])}
    return {
        each.lock: (each.queue_length, [] if each.holder is None else [each.holder.session_id])
        async for each in client.locks()
    }


def told(diagnosis: Diagnosis) -> list[str]:
    """Return a diagnosis in words, a line for each sentence."""
    lines = []
    for finding in diagnosis.findings:
        lines.append(f"{one_line(diagnosis.figures.lock)}: {finding.text}")
        lines.append(f"  {finding.why}")
        if finding.advice:
            lines.append(f"  {finding.advice}")
    return lines
