"""The verbs ``sessions`` and ``locks``: who is connected, who holds and who waits."""

from __future__ import annotations

from functools import partial

import click

from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, one_line, show_table
from coordinator.cli.seconds import Seconds
from coordinator.cli.shown_again import show, watch_option
from coordinator.client import AsyncClient
from coordinator.client.ending_sessions import end_sessions
from coordinator.model.views import Contender, LockSummary, LockView
from coordinator.wire.addresses import network_of
from coordinator.wire.codec import to_body
from coordinator.wording import lasting, moment


@click.group(invoke_without_command=True)
@verb
def sessions(settings: Settings) -> None:
    """List the open sessions, or end some of them.

    \b
    Examples:
      coordinator sessions
      coordinator sessions close 5a0c33d1b2e44f10 --by ann --reason "left behind by a crash"
      coordinator sessions close --label worker-7 --by ann --reason "runs no more"
      coordinator sessions close --address 10.0.0.7 --by ann --reason "opens them in a loop"
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    found = settings.run(lambda client: client.sessions())
    if settings.is_json:
        click.echo(document({"sessions": [to_body(each) for each in found]}))
        return
    show_table(
        ("SESSION", "TIMEOUT MS", "EPHEMERALS", "OPENED", "ADDRESS", "LABEL"),
        (
            (
                each.session_id,
                each.timeout_ms,
                each.ephemeral_count,
                moment(each.opened_ms),
                each.address or None,
                each.label or None,
            )
            for each in found
        ),
    )


@sessions.command("close")
@click.argument("session_ids", nargs=-1, metavar="[SESSION]...")
@click.option("--label", help="End every session of this label.")
@click.option("--address", help="End every session opened from there; of IPv6 from its /64.")
@click.option("--client", "client_id", help="End every session opened under this client id.")
@click.option("--by", required=True, help="Who ends them; recorded.")
@click.option("--reason", required=True, help="Why; recorded with their grants.")
@verb
def close_sessions(
    settings: Settings,
    session_ids: tuple[str, ...],
    label: str | None,
    address: str | None,
    client_id: str | None,
    by: str,
    reason: str,
) -> None:
    """End sessions by force, and delete all they own.

    Of --label, --address and --client a session must fit all that are given.

    \b
    Examples:
      coordinator sessions close 5a0c33d1b2e44f10 --by ann --reason "left behind by a crash"
      coordinator sessions close --label worker-7 --by ann --reason "runs no more"
      coordinator sessions close --address 10.0.0.7 --by ann --reason "opens them in a loop"
    """
    wanted = _wanted(label, address, client_id)
    if not session_ids and not wanted:
        raise click.UsageError(
            "expected the ids of sessions, --label, --address or --client; found none"
        )

    async def close(client: AsyncClient) -> list[str]:
        found = list(session_ids)
        if wanted:
            found += [
                each.session_id
                for each in await client.sessions()
                if all(getattr(each, name) == value for name, value in wanted.items())
            ]
        return await end_sessions(client, found, by=by, reason=reason)

    ended = settings.run(close)
    if settings.is_json:
        click.echo(document({"ended": ended}))
    else:
        click.echo(f"ended {len(ended)}")


def _wanted(label: str | None, address: str | None, client_id: str | None) -> dict[str, str]:
    """Return what sessions must have, by name."""
    if address is not None:
        try:
            address = network_of(address)
        except ValueError:
            raise click.BadParameter(
                f"expected an address as `coordinator sessions` shows it, found {address!a}",
                param_hint="--address",
            ) from None
    given = {"label": label, "address": address, "client_id": client_id}
    return {name: value for name, value in given.items() if value is not None}


@click.command()
@click.argument("name", required=False, shell_complete=lock_names)
@click.option(
    "--held-longer-than",
    "held_s_min",
    type=Seconds(),
    default=0.0,
    metavar="SECONDS",
    help="List only the locks held for at least this time.",
)
@watch_option
@verb
def locks(settings: Settings, name: str | None, held_s_min: float, is_watching: bool) -> None:
    """List all locks that are not free, with their holders, or one lock with its queue.

    A lock that is held by hand, or closed after an unclean loss, says so under CLOSED.

    `coordinator why NAME` says the same of one lock in words, and more.

    \b
    Examples:
      coordinator locks
      coordinator locks daily-report
      coordinator locks --held-longer-than 60
      coordinator locks --watch
    """

    async def one(client: AsyncClient) -> LockView:
        return await client.lock(name or "")

    async def all_of_them(client: AsyncClient) -> list[LockSummary]:
        return [each async for each in client.locks(held_ms_min=int(held_s_min * 1000))]

    if name is not None:
        show(settings, one, partial(_show_lock, settings), is_watching=is_watching)
    else:
        show(settings, all_of_them, partial(_show_locks, settings), is_watching=is_watching)


def _show_lock(settings: Settings, view: LockView) -> None:
    if settings.is_json:
        click.echo(document(to_body(view)))
        return
    contenders = [("holds", each) for each in view.holders]
    contenders += [(f"waits {number}", each) for number, each in enumerate(view.queue, 1)]
    if (closed := closed_by(view)) is not None:
        click.echo(one_line(f"{view.lock} is {closed}"))
    elif not contenders:
        click.echo(f"{one_line(view.lock)} is free")
    if not contenders:
        return
    show_table(
        ("PLACE", "KIND", "GRANT", "TOKEN", "SESSION", "HOST", "PID", "LABEL"),
        ((place, each.kind, *_columns(each)) for place, each in contenders),
    )
    hidden = view.holder_count + view.queue_length - len(contenders)
    if hidden:
        click.echo(
            f"… and {hidden} more, of {view.holder_count} holders and {view.queue_length} that wait"
        )


def _show_locks(settings: Settings, summaries: list[LockSummary]) -> None:
    if settings.is_json:
        click.echo(document({"locks": [to_body(each) for each in summaries]}))
        return
    show_table(
        ("LOCK", "HELD S", "HOLD", "WAIT", "GRANT", "TOKEN", "SESSION", "HOST", "PID", "LABEL",
         "CLOSED"),
        (
            (
                each.lock,
                each.held_ms // 1000,
                each.holder_count,
                each.queue_length,
                *(_columns(each.holder) if each.holder else [None] * 6),
                closed_by(each),
            )
            for each in summaries
        ),
    )  # fmt: skip


def closed_by(view: LockView | LockSummary) -> str | None:
    """Return what keeps the lock from its queue, though no contender holds it; None if nothing."""
    if view.by_hand is not None:
        overdue = ", for longer than planned" if view.is_overdue else ""
        return view.by_hand.removeprefix("it is ") + overdue
    if view.closed is not None:
        return f"closed after an unclean loss (lock-delay of {lasting(view.closed.delay_ms)})"
    return None


def _columns(contender: Contender) -> tuple[object, ...]:
    return (
        contender.grant_id,
        contender.fencing_token,
        contender.session_id,
        contender.host or None,
        contender.pid,
        contender.label or None,
    )
