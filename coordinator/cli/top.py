"""The verb ``top``: what the cluster does now: entries a second, locks that are waited for, clients
with the most sessions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import coloured, document, one_line, show_table
from coordinator.cli.shown_again import show
from coordinator.cli.status import COLOURS
from coordinator.client import AsyncClient
from coordinator.clock import loop_seconds
from coordinator.model.members import MemberList
from coordinator.model.status import Status
from coordinator.model.views import LockSummary
from coordinator.wire.codec import to_body
from coordinator.wording import counted

_ROWS = 10


@dataclass(frozen=True, slots=True)
class TopLook:
    """What was seen at ``at_s``; ``took_ms`` is a round trip from here, with a read."""

    at_s: float
    took_ms: float
    status: Status
    found: MemberList
    locks: tuple[LockSummary, ...]
    clients: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """How much was done in a second between two looks; None at the first one."""

    entries: float | None = None
    changes: float | None = None


def rates_of(before: TopLook | None, now: TopLook) -> Rates:
    """Return what was done between two looks: entries of the log, and changes of the state."""
    if before is None or now.at_s <= before.at_s:
        return Rates()
    span_s = now.at_s - before.at_s
    entries = _committed(now.found) - _committed(before.found)
    changes = now.status.zxid - before.status.zxid
    return Rates(max(0.0, entries / span_s), max(0.0, changes / span_s))


def _committed(found: MemberList) -> int:
    return max((each.facts.commit_index for each in found.members if each.facts), default=0)


@click.command()
@click.option("--once", "is_once", is_flag=True, help="Show it once, without rates, and end.")
@verb
def top(settings: Settings, is_once: bool) -> None:
    """Show what the cluster does, again every two seconds, until Ctrl-C.

    The state in one sentence; who leads; entries of the log and changes of the state a second, and
    a round trip from here; the locks with the longest queues; the clients with the most sessions.

    \b
    Examples:
      coordinator top
      coordinator top --once --json
    """
    before: TopLook | None = None

    async def look(client: AsyncClient) -> TopLook:
        began_s = loop_seconds()
        status = await client.status()
        took_ms = (loop_seconds() - began_s) * 1_000
        found = await client.members()
        locks = [each async for each in client.locks()]
        locks.sort(key=lambda each: (-each.queue_length, -each.held_ms, each.lock))
        sessions = await client.sessions()
        clients = Counter(each.label or each.address or "unnamed" for each in sessions)
        return TopLook(
            at_s=loop_seconds(), took_ms=took_ms, status=status, found=found,
            locks=tuple(locks[:_ROWS]), clients=tuple(clients.most_common(_ROWS)),
        )  # fmt: skip

    def write(now: TopLook) -> None:
        nonlocal before
        rates, before = rates_of(before, now), now
        if settings.is_json:
            click.echo(document(_body(now, rates)))
        else:
            _write(now, rates)

    show(settings, look, write, is_watching=not is_once)


def _body(now: TopLook, rates: Rates) -> dict[str, object]:
    return {
        "health": to_body(now.found.health),
        "leader_id": now.status.leader_id,
        "sessions": now.status.sessions,
        "znodes": now.status.znodes,
        "round_trip_ms": round(now.took_ms, 2),
        "entries_per_s": rates.entries,
        "changes_per_s": rates.changes,
        "locks": [to_body(each) for each in now.locks],
        "clients": [{"client": name, "sessions": count} for name, count in now.clients],
    }


def _write(now: TopLook, rates: Rates) -> None:
    health = now.found.health
    click.echo(coloured(one_line(health.text), COLOURS[health.level]))
    click.echo(
        f"leader {now.status.leader_id or 'none'}, {_a_second(rates.entries)} entries/s,"
        f" {_a_second(rates.changes)} changes/s, round trip {now.took_ms:.1f} ms,"
        f" {counted(now.status.sessions, 'session')}, {counted(now.status.znodes, 'znode')}"
    )
    show_table(
        ("LOCK", "HELD S", "HOLD", "WAIT", "HOST", "LABEL"),
        (
            (
                each.lock,
                each.held_ms // 1000,
                each.holder_count,
                each.queue_length,
                (each.holder.host or None) if each.holder else None,
                (each.holder.label or None) if each.holder else None,
            )
            for each in now.locks
        ),
    )
    show_table(("CLIENT", "SESSIONS"), now.clients)


def _a_second(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.0f}"
