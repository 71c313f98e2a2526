"""The verb ``status``: how the cluster is, as the member that is asked has gathered it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import EXIT_UNAVAILABLE, coloured, document, one_line, show_table
from coordinator.cli.shown_again import show, watch_option
from coordinator.client import AsyncClient
from coordinator.model.members import ClusterHealth, MemberFacts, MemberList, MemberReport
from coordinator.model.sizes import in_bytes
from coordinator.model.status import Status
from coordinator.wire.codec import to_body
from coordinator.wording import counted, moment

COLOURS = {"good": "green", "note": "green", "warn": "yellow", "bad": "red"}


@click.command()
@watch_option
@verb
def status(settings: Settings, is_watching: bool) -> None:
    """Say how the cluster is, what to do about it, and how each member is.

    Any member may be asked: it asks the others. Exits with 0 if all is well, or only a protection
    is off that the configuration turns off; with 3 if anything wants an operator, or no member can
    be reached.

    \b
    Examples:
      coordinator status
      coordinator status --watch
      coordinator status --endpoints http://127.0.0.1:7072 --json
    """

    async def work(client: AsyncClient) -> tuple[Status, MemberList]:
        return await client.status(), await client.members()

    def write(both: tuple[Status, MemberList]) -> None:
        own, found = both
        if settings.is_json:
            more = {"health": to_body(found.health), "reports": to_body(found)["members"]}
            click.echo(document({**to_body(own), **more}))
        else:
            show_status(own, found)

    _, found = show(settings, work, write, is_watching=is_watching)
    if found.health.level in ("warn", "bad"):
        sys.exit(EXIT_UNAVAILABLE)


def show_status(own: Status, found: MemberList) -> None:
    """Write it for people: a sentence and what to do, the numbers, the members."""
    sentence, *findings = map(one_line, lines_of_health(found.health))
    click.echo(coloured(sentence, COLOURS[found.health.level]))
    for line in findings:
        click.echo(line)
    click.echo(
        f"cluster {own.cluster}, term {own.term}, zxid {own.zxid}, "
        f"{counted(own.sessions, 'session')}, {counted(own.znodes, 'znode')}, "
        f"access rights {own.access}"
    )
    if (newest := newest_backup(found)) is not None:
        click.echo(newest)
    applied_max = max(each.facts.applied_index for each in found.members if each.facts)
    show_table(
        ("MEMBER", "URL", "ROLE", "LAG", "DISK FREE", "TERM", "VERSION", "COMPILED"),
        (
            (each.member_id + (" (answers)" if each.is_self else ""), each.client_url, *cells)
            for each in found.members
            for cells in [_cells(each, applied_max)]
        ),
    )


def newest_backup(found: MemberList) -> str | None:
    """Say when the newest backup was made that members make by themselves; None if they do not."""
    facts = [each.facts for each in found.members if each.facts is not None]
    making = [(each, each.backups) for each in facts if each.backups is not None]
    made = [(state.succeeded_ms, each.member_id) for each, state in making if state.succeeded_ms]
    if not made:
        return "newest backup: none yet" if making else None
    at_ms, member_id = max(made)
    return f"newest backup {moment(at_ms)}, by member {member_id}"


def lines_of_health(health: ClusterHealth) -> Iterator[str]:
    """Return how the cluster is, then what was found and what to do."""
    yield health.text
    for each in health.findings:
        is_said = len(health.findings) == 1 and health.text == each.text
        line = each.todo if is_said else f"{each.text} {each.todo}".rstrip()
        if line:
            yield f"  {line}"


def _cells(report: MemberReport, applied_max: int) -> tuple[object, ...]:
    facts = report.facts
    if facts is None:
        return ("silent", *[None] * 5)
    return (
        facts.role + ("" if facts.is_ready else ", not ready"),
        applied_max - facts.applied_index,
        _disk(facts),
        facts.term,
        facts.version,
        "yes" if facts.is_compiled else "no",
    )


def _disk(facts: MemberFacts) -> str:
    free = facts.disk_free_bytes
    shown = "in memory" if free is None else in_bytes(free)
    state = "full" if facts.is_disk_full else "slow" if facts.is_disk_slow else ""
    return f"{state}: {shown}" if state else shown
