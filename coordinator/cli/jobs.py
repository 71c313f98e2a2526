"""``jobs``: what runs once in each interval: the last run, the next, what is late or fails."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import EXIT_REFUSED, document, note, one_line, show_list, show_table
from coordinator.wording import lasting, moment

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.recipes.jobs.ledger import JobRun
    from coordinator.recipes.jobs.listing import JobView


@click.command()
@click.argument("name", required=False)
@click.option("--forget", is_flag=True, help="Remove the ledger of NAME: it begins again.")
@verb
def jobs(settings: Settings, name: str | None, forget: bool) -> None:
    """List the jobs that run once in each interval, or the runs of NAME.

    LATE is how long ago an interval began that no host runs. STATE: ok, running, failing (the last
    attempt failed), crashed (the last attempt did not end), lost (the same, and it is not
    repeated), behind (the leader's clock is behind the time of an earlier decision). If a ledger
    cannot be read, it is named on standard error, the others are listed, and the exit code is 1.

    \b
    Examples:
      coordinator jobs
      coordinator jobs daily-report --json
      coordinator jobs daily-report --forget
    """
    from coordinator.recipes.jobs.listing import Jobs

    if forget and name is None:
        raise click.UsageError("expected the NAME of a job with --forget, found none")

    unreadable: list[str] = []

    async def work(client: AsyncClient) -> Any:
        if name is None:
            return await Jobs(client).list(lambda each, error: unreadable.append(
                f"{each}: {error.message}"))  # fmt: skip
        return await (Jobs(client).forget(name) if forget else Jobs(client).look(name))

    found = settings.run(work)
    if name is None:
        _show_all(settings, found)
        for problem in unreadable:
            note(problem)
        if unreadable:
            sys.exit(EXIT_REFUSED)
    elif not found:
        raise click.UsageError(f"expected the name of a job that ran, found {name!r}")
    elif not forget:
        _show_one(settings, found)


def _show_all(settings: Settings, views: tuple[JobView, ...]) -> None:
    rows = [
        (
            view.name,
            view.ledger.schedule.text,
            None if view.last is None else moment(view.last.start_ms),
            None if view.next_ms is None else moment(view.next_ms),
            lasting(view.late_ms) if view.late_ms else None,
            state_of(view),
            view.trouble or None,
        )
        for view in views
    ]
    heads = ("NAME", "SCHEDULE", "LAST", "NEXT", "LATE", "STATE", "TROUBLE")
    nothing = "no job has run yet; `coordinator once NAME --every 1h -- COMMAND` runs one"
    show_list(settings.is_json, map(_as_json, views), heads, rows, nothing)


def _show_one(settings: Settings, view: JobView) -> None:
    if settings.is_json:
        click.echo(document(_as_json(view)))
        return
    ledger = view.ledger
    facts = {
        "schedule": ledger.schedule.text,
        "guarantee": f"{ledger.guarantee.replace('_', ' ')}; of missed ones: {ledger.catch_up}",
        "state": state_of(view),
        "next": None if view.next_ms is None else moment(view.next_ms),
        "late": lasting(view.late_ms) if view.late_ms else None,
        "skipped": ledger.skipped or None,
        "failures": ledger.failures or None,
        "behind": lasting(view.behind_ms) if view.behind_ms else None,
        "jumps": _jumps(view) if ledger.jumps else None,
    }
    for label, value in facts.items():
        if value is not None:
            click.echo(one_line(f"{label:<16} {value}"))
    rows = [_row(each) for each in view.runs]
    if rows:
        show_table(("INTERVAL", "STATE", "ATTEMPT", "TOKEN", "BY", "TOOK", "RESULT"), rows)


def _jumps(view: JobView) -> str:
    ledger = view.ledger
    way = "forward" if ledger.jump_by_ms > 0 else "back"
    length = lasting(abs(ledger.jump_by_ms))
    at = moment(ledger.jump_at_ms)
    return f"{ledger.jumps} of the leader's clock, the last at {at} {way} by {length}"


def _row(run: JobRun) -> tuple[object, ...]:
    took = lasting(max(0, run.ended_ms - run.started_ms)) if run.ended_ms else None
    result = run.reason or (None if run.result is None else document(run.result)[:60])
    return (moment(run.start_ms), run.state, run.attempt, run.fencing_token, run.by, took, result)


def state_of(view: JobView) -> str:
    """Return one word for how a job is."""
    last = view.last
    if view.running is not None:
        return "running"
    if view.crashed is not None:
        return "crashed"
    if last is not None and last.state in ("failed", "lost"):
        return "failing" if last.state == "failed" else "lost"
    return "behind" if view.behind_ms else "ok"


def _as_json(view: JobView) -> dict[str, Any]:
    ledger = {name: value for name, value in asdict(view.ledger).items() if name != "schedule"}
    return {
        "name": view.name,
        "schedule": view.ledger.schedule.text,
        "state": state_of(view),
        "due_ms": view.due_ms,
        "next_ms": view.next_ms,
        "late_ms": view.late_ms,
        "behind_ms": view.behind_ms,
        "trouble": view.trouble,
        **ledger,
        "runs": [asdict(each) for each in view.runs],
    }
