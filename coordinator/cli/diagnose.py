"""``diagnose``: whether a lock is the bottleneck, its lease too short, or itself superfluous."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import click

from coordinator.cli.by_hand import advice_of, holds_of
from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.diagnosis import Diagnosis, diagnosed, figures_of
from coordinator.cli.output import document, one_line
from coordinator.client import AsyncClient, GrantRecord, LockView

_LOOKED_AT_MAX = 200
"""Locks whose queues are looked at, each with a request of its own."""


@click.command()
@click.argument("name", required=False, shell_complete=lock_names)
@verb
def diagnose(settings: Settings, name: str | None) -> None:
    """Find problems in the history of the lock NAME, or of every lock.

    It finds: waits dominate, so the lock is the bottleneck; waiters leave without the lock, or
    tries are refused; the lease is shorter than pauses, or holds, that were seen; holds were ended
    by force or by max_hold; the lock is never contended. Each finding has its figures and what
    helps. A lock that is held by hand, or closed after an unclean loss, says so first.

    \b
    Examples:
      coordinator diagnose
      coordinator diagnose daily-report --json
    """
    found, reserve = settings.run(lambda client: _all(client, name))
    if settings.is_json:
        click.echo(document({"locks": [each.to_body() for each in found], "reserve": reserve}))
        return
    if reserve:
        click.echo(f"The cluster is nearly full: {one_line(reserve)}.")
    if not found:
        click.echo("The history has no lock.")
    for each in found:
        for line in lines_of(each):
            click.echo(line)


async def _all(client: AsyncClient, name: str | None) -> tuple[list[Diagnosis], str]:
    reserve = (await client.status()).reserve
    return await diagnoses(client, name), reserve


async def diagnoses(client: AsyncClient, name: str | None) -> list[Diagnosis]:
    """Return the diagnosis of one lock, or of every lock of the history, by name."""
    by_lock: dict[str, list[GrantRecord]] = defaultdict(list)
    if name is not None:
        by_lock[name] = []
    else:
        async for lock in client.locks():
            by_lock[lock.lock] = []
    async for grant in client.grants(name):
        if not grant.is_election:
            by_lock[grant.lock].append(grant)
    queues = await _queues(client, by_lock)
    for held in await holds_of(client, name):
        queue = queues.setdefault(held.lock, {"by_hand": "it is held by hand"})
        queue["release_it"] = advice_of(held)
    return [
        diagnosed(figures_of(lock, grants, **queues.get(lock, {})))
        for lock, grants in sorted(by_lock.items())
    ]


async def _queues(
    client: AsyncClient, by_lock: Mapping[str, Sequence[object]]
) -> dict[str, dict[str, Any]]:
    """Return the queue of each of these locks, who was denied it, and what closes it; of very many,
    of those with the most grants."""
    names = sorted(by_lock, key=lambda name: (-len(by_lock[name]), name))[:_LOOKED_AT_MAX]
    return {name: _queue(await client.lock(name)) for name in names}


def _queue(view: LockView) -> dict[str, Any]:
    leases_ms = [each.lease_ms for each in (*view.holders, *view.queue)]
    denied = view.denied
    return {
        "queue_length": view.queue_length,
        "leases_ms": [each for each in leases_ms if each is not None],
        "tries": 0 if denied is None else denied.tries,
        "left": 0 if denied is None else denied.left,
        "by_hand": view.by_hand or "",
        "is_overdue": view.is_overdue,
        "lock_delay_ms": 0 if view.closed is None else view.closed.delay_ms,
    }


def lines_of(diagnosis: Diagnosis) -> list[str]:
    """Return a diagnosis in words, a line for each sentence."""
    lines = []
    for finding in diagnosis.findings:
        lines.append(f"{one_line(diagnosis.figures.lock)}: {finding.text}")
        lines.append(f"  {one_line(finding.why)}")
        lines += [f"  {each}" for each in finding.advice.splitlines()]
    return lines
