"""``grants`` and ``revoke``: the history of grants, and ending one against its holder's will."""

from __future__ import annotations

import getpass
import re
from collections import deque
from datetime import UTC, datetime
from typing import Any

import click

from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, show_table
from coordinator.client import AsyncClient, GrantRecord
from coordinator.clock import SystemClock
from coordinator.model.history import ENDS
from coordinator.wire.codec import to_body
from coordinator.wording import lasting, moment, who

_AGO = re.compile(r"(\d+(?:\.\d+)?)(ms|s|min|h|d)", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Moment(click.ParamType[int]):
    """A wall time in ms: ``2026-01-31T10:00:00Z``, or how long ago: ``15min``."""

    name = "TIME"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the moment as milliseconds since 1970."""
        ago = _AGO.fullmatch(value)
        if ago is not None:
            return SystemClock().wall_ms() - round(float(ago[1]) * _UNITS_MS[ago[2]])
        try:
            given = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"expected a time such as 2026-01-31T10:00:00Z, or how long ago (90s, 15min, 2h, "
                f"1d); found {value!r}",
                param,
                ctx,
            )
        if given.tzinfo is None:
            given = given.replace(tzinfo=UTC)
        return max(0, round(given.timestamp() * 1000))


@click.command()
@click.argument("name", required=False, shell_complete=lock_names)
@click.option("--session", "session_id", metavar="ID", help="Only those of this session.")
@click.option("--token", type=click.IntRange(min=1), help="Only the one with this fencing token.")
@click.option("--since", type=Moment(), help="Only those held then or later; a time, or 15min.")
@click.option("--until", type=Moment(), help="Only those held then or earlier.")
@click.option(
    "--how",
    type=click.Choice(("held", *ENDS)),
    help="Only those that ended so; held: those that have not ended.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="How many to show, the latest ones.",
)
@click.option("--election", "is_election", is_flag=True, help="NAME is an election.")
@verb
def grants(
    settings: Settings,
    name: str | None,
    session_id: str | None,
    token: int | None,
    since: int | None,
    until: int | None,
    how: str | None,
    limit: int,
    is_election: bool,
) -> None:
    """List who held which lock, and how each grant ended.

    It shows the grants of all locks, or of NAME, the oldest first.

    With --json each grant is a document on a line of its own. The cluster keeps a bounded history:
    the oldest grants are forgotten first.

    \b
    Examples:
      coordinator grants daily-report
      coordinator grants --since 2h --how expired
      coordinator grants --json --limit 100000 > grants.ndjson
    """

    async def work(client: AsyncClient) -> deque[GrantRecord]:
        found = client.grants(
            name,
            session_id=session_id,
            fencing_token=token,
            since_ms=since,
            until_ms=until,
            how="" if how == "held" else how,
            is_election=is_election,
        )
        latest: deque[GrantRecord] = deque(maxlen=limit)
        async for each in found:
            latest.append(each)
        return latest

    found = settings.run(work)
    if settings.is_json:
        for each in found:
            click.echo(document(to_body(each)))
        return
    now_ms = SystemClock().wall_ms()
    show_table(
        ("GRANTED", "LOCK", "GRANT", "KIND", "WAITED", "HELD", "ENDED", "HOLDER"),
        (_row(each, now_ms) for each in found),
    )


def _row(grant: GrantRecord, now_ms: int) -> tuple[object, ...]:
    ended_ms = now_ms if grant.ended_ms is None else grant.ended_ms
    return (
        moment(grant.granted_ms),
        f"election {grant.lock}" if grant.is_election else grant.lock,
        grant.grant_id,
        grant.kind,
        lasting(grant.granted_ms - grant.entered_ms),
        lasting(ended_ms - grant.granted_ms),
        (f"{grant.how} by {grant.by}" if grant.by else grant.how) or None,
        who(grant),
    )


@click.command()
@click.argument("name", shell_complete=lock_names)
@click.option("--grant", "grant_id", metavar="GRANT_ID", help="Which one, if several hold.")
@click.option("--by", help="Who does this.  [default: your login name]")
@click.option("--reason", required=True, help="Why; kept in the history and in the log.")
@verb
def revoke(
    settings: Settings, name: str, grant_id: str | None, by: str | None, reason: str
) -> None:
    """End a grant of the lock NAME by force, or remove the contender named by --grant.

    It ends exactly the named grant, or the only one, never a later one. It does not stop the
    holder's program, which learns of it with its next heartbeat, if it can. First make sure that
    the program has ended, or that every guard refuses its fencing token.

    \b
    Examples:
      coordinator revoke daily-report --reason "its host is off"
      coordinator revoke daily-report --grant 42-1337 --by ops --reason "stuck since noon"
    """
    name_of_who = by or login_name()
    done = settings.run(
        lambda client: client.revoke(name, by=name_of_who, reason=reason, grant_id=grant_id)
    )
    if settings.is_json:
        click.echo(document(to_body(done)))
        return
    click.echo(f"Grant {done.grant.grant_id} of {name}, of {who(done.grant)}, has been ended.")
    click.echo(
        f"Its program may still run. Raise every guard to token {done.fencing_token_min}, so that "
        f"its later writes are refused."
    )


def login_name() -> str:
    """Return who runs this, as the system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise click.UsageError(
            "expected --by WHO, because your login name is not known here; found none"
        ) from None
