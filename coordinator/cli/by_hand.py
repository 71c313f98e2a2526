"""``hold``, ``unlock`` and ``extend``: locks that outlive the shell that took them."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click

from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import (
    EXIT_NOT_IN_TIME,
    EXIT_REFUSED,
    document,
    note,
    one_line,
    show_list,
)
from coordinator.cli.seconds import Seconds
from coordinator.clock import SystemClock
from coordinator.errors import LockTimeoutError
from coordinator.wording import lasting, moment

if TYPE_CHECKING:
    from coordinator.client import AsyncClient, EndedManualHold
    from coordinator.client.locks import GrantReply
    from coordinator.recipes.manual_lock import HeldByHand

_LISTED_MAX = 1_000
_AT_ONCE = 50
_DIGITS_MAX = 19
"""The digits of a fencing token."""


@click.command()
@click.argument("name", required=False, shell_complete=lock_names)
@click.option("--note", "text", metavar="TEXT", help="What it is held for.")
@click.option("--by", default="", help="Who holds it.")
@click.option(
    "--wait",
    "wait_s",
    type=Seconds(),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait in the queue; 0 tries once.",
)
@click.option(
    "--alarm-after",
    "alarm_s",
    type=Seconds(max=366 * 24 * 3600),
    default=0.0,
    metavar="SECONDS",
    help="Report longer holds in log, metrics, `status` and `diagnose`; 0: never.",
)
@click.option("--history", is_flag=True, help="Show the last holds of NAME that were released.")
@verb
def hold(
    settings: Settings,
    name: str | None,
    text: str | None,
    by: str,
    wait_s: float,
    alarm_s: float,
    history: bool,
) -> None:
    """Hold the lock NAME by hand until `unlock`, or list such holds.

    It prints the fencing token. Without --note it lists what is held by hand.

    No process keeps it, and no lost session ends it. It waits for its turn in the queue of the lock
    NAME. While it is held, everybody who asks for the lock NAME waits.

    \b
    Exit codes: 75  it was not acquired in time; it is not held

    \b
    Examples:
      coordinator hold deploys --note "the database moves" --by ann --alarm-after 14400
      coordinator hold
      coordinator hold deploys --history
    """
    if text is None:
        if history and name is None:
            raise click.UsageError("expected the NAME of a lock with --history, found none")
        if history:
            assert name is not None, "checked"
            _show_history(settings, name)
        else:
            show_holds(settings, settings.run(lambda client: holds_of(client, name)))
        return
    if name is None or history:
        raise click.UsageError("expected the NAME of a lock with --note, and no --history")
    chosen, note_text = name, text

    async def work(client: AsyncClient) -> HeldByHand:
        from coordinator.recipes.manual_lock import ManualLock

        lock = ManualLock(client, chosen)
        return await lock.acquire(note_text, by=by, timeout=wait_s, alarm_after=alarm_s)

    try:
        held = settings.run(work)
    except LockTimeoutError as error:
        note(error.message)
        sys.exit(EXIT_NOT_IN_TIME)
    click.echo(document(body_of(held)) if settings.is_json else str(held.fencing_token))


@click.command()
@click.argument("name", shell_complete=lock_names)
@click.argument("token")
@click.option("--note", "text", default="", metavar="TEXT", help="Why it is released.")
@click.option("--by", default="", help="Who releases it.")
@verb
def unlock(settings: Settings, name: str, token: str, text: str, by: str) -> None:
    """Release the lock NAME that is held by hand under this TOKEN.

    TOKEN is the fencing token or the grant id.

    Exit code 1 says that it is not held with that token any more: nothing was released.

    \b
    Examples:
      coordinator unlock deploys 4711 --note "moved" --by bob
    """

    async def work(client: AsyncClient) -> bool:
        from coordinator.recipes.manual_lock import ManualLock

        return await ManualLock(client, name).release(_token(token), by=by, note=text)

    was_held = settings.run(work)
    if settings.is_json:
        click.echo(document({"released": was_held}))
    if not was_held:
        note(f"lock {name!r} is not held by hand with {token!r}")
        sys.exit(EXIT_REFUSED)


@click.command()
@click.argument("name", shell_complete=lock_names)
@click.argument("token")
@click.option("--by", "by_s", type=Seconds(), metavar="SECONDS", help="Later by this.")
@click.option("--to", "to_s", type=Seconds(), metavar="SECONDS", help="This long from now.")
@verb
def extend(
    settings: Settings, name: str, token: str, by_s: float | None, to_s: float | None
) -> None:
    """Move the end of the hold of the lock NAME with this TOKEN.

    TOKEN is the fencing token or the grant id.

    Of a lock that is held by hand, that is its alarm. Of one that is held with --max-hold, it is
    the time at which it ends; the command under `coordinator lock` finds its token in
    COORDINATOR_FENCING_TOKEN.

    \b
    Exit code 1 says that it is not held with that token any more: nothing was moved.

    \b
    Examples:
      coordinator extend deploys 4711 --by 3600
      coordinator extend deploys 4711 --to 7200
      coordinator lock copy --max-hold 60 -- sh -c \
        'step1 && coordinator extend copy $COORDINATOR_FENCING_TOKEN --to 60 && step2'
    """
    if (by_s is None) == (to_s is None):
        raise click.UsageError(
            f"expected one of --by and --to, found {'none' if by_s is None else 'both'}"
        )

    async def work(client: AsyncClient) -> HeldByHand | int:
        from coordinator.recipes.manual_lock import ManualLock

        which = _token(token)
        holder = await _holder_for_a_time(client, name, which)
        if holder is not None:
            by_ms, to_ms = int((by_s or 0) * 1000), int((to_s or 0) * 1000)
            return await client.core.lock_queue(name).extend(holder, by_ms=by_ms, to_ms=to_ms)
        lock = ManualLock(client, name)
        if by_s is not None:
            return await lock.extend_by(which, by_s)
        assert to_s is not None, "checked"
        return await lock.renew_to(which, to_s)

    moved = settings.run(work)
    if not isinstance(moved, int):
        show_holds(settings, [moved])
    elif settings.is_json:
        click.echo(document({"lock": name, "max_hold_ms": moved}))
    else:
        click.echo(f"{one_line(name)}: ends after {lasting(moved)} from now at the latest")


async def _holder_for_a_time(client: AsyncClient, name: str, which: int | str) -> GrantReply | None:
    """Return the grant of the one who holds with a longest time, and is meant."""
    from coordinator.client.locks import GrantReply

    for each in (await client.lock(name)).holders:
        if which in (each.fencing_token, each.grant_id) and each.max_hold_ms:
            return GrantReply(
                each.grant_id, name, each.fencing_token, each.session_id, each.path, 1
            )
    return None


def _token(text: str) -> int | str:
    is_token = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_token else text


async def holds_of(client: AsyncClient, name: str | None = None) -> list[HeldByHand]:
    """Return the locks that are held by hand, up to a thousand; or that of ``name``."""
    from coordinator.recipes.base.maybe_there import names_below
    from coordinator.recipes.manual_lock import ROOT, ManualLock

    if name is not None:
        names = [name]
    else:
        names = [unquote(each) for each in await names_below(client, ROOT)][:_LISTED_MAX]
    found: list[HeldByHand] = []
    for begin in range(0, len(names), _AT_ONCE):
        some = names[begin : begin + _AT_ONCE]
        held = await asyncio.gather(*(ManualLock(client, each).holder() for each in some))
        found += [each for each in held if each is not None]
    return found


def body_of(held: HeldByHand) -> dict[str, Any]:
    """Return a hold under the names that ``--json`` gives it."""
    hold = held.hold
    return {
        "lock": held.lock,
        "fencing_token": hold.fencing_token,
        "grant_id": hold.grant_id,
        "by": hold.by,
        "note": hold.note,
        "since_ms": held.since_ms,
        "alarm_after_ms": hold.alarm_after_ms,
        "is_overdue": hold.is_overdue(_held_ms(held)),
    }


def show_holds(settings: Settings, holds: list[HeldByHand]) -> None:
    """Write what is held by hand."""
    rows = [
        (
            each.lock,
            each.fencing_token,
            moment(each.since_ms),
            lasting(_held_ms(each)),
            lasting(each.hold.alarm_after_ms) if each.hold.alarm_after_ms else None,
            each.hold.by,
            each.hold.note,
        )
        for each in holds
    ]
    heads = ("LOCK", "TOKEN", "SINCE", "HELD", "ALARM AFTER", "BY", "NOTE")
    nothing = "no lock is held by hand; `coordinator hold NAME --note WHY` holds one"
    show_list(settings.is_json, map(body_of, holds), heads, rows, nothing)


def _show_history(settings: Settings, name: str) -> None:
    async def work(client: AsyncClient) -> tuple[EndedManualHold, ...]:
        from coordinator.recipes.manual_lock import ManualLock

        return await ManualLock(client, name).history()

    ended = settings.run(work)
    fields = (
        *("fencing_token", "grant_id", "by", "note", "since_ms", "ended_ms"),
        *("released_by", "release_note"),
    )
    bodies = [{field: getattr(each, field) for field in fields} for each in ended]
    rows = [
        (
            each.fencing_token,
            moment(each.since_ms),
            moment(each.ended_ms),
            each.by,
            each.note,
            each.released_by,
            each.release_note,
        )
        for each in ended
    ]
    heads = ("TOKEN", "SINCE", "UNTIL", "BY", "NOTE", "RELEASED BY", "WHY")
    nothing = f"lock {name!r}: no hold by hand has ended that is still remembered"
    show_list(settings.is_json, bodies, heads, rows, nothing)


def _held_ms(held: HeldByHand) -> int:
    return SystemClock().wall_ms() - held.since_ms
