"""``lock``: its options, and those that it shares with ``elect``; ``holder`` runs the command."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from typing import Any, Literal

import click

from coordinator.cli.connection import Settings, holder_options, lease_option, pass_settings
from coordinator.cli.holder import Holder, RunUnderLock, finished
from coordinator.cli.output import failing_well
from coordinator.cli.probing import probe_command, probe_options
from coordinator.cli.seconds import Seconds
from coordinator.cli.supervisor import Ended, Patience
from coordinator.recipes.locks.grant import MAX_HOLD_S_MAX
from coordinator.recipes.locks.options import LOCK_DELAY_S_MAX, OWNER_CHARACTERS_MAX

_WAIT_S = 10.0
_ASKED_SIGNALS = ("TERM", "INT", "HUP", "USR1", "USR2")


class WaitTime(click.ParamType[float | None]):
    """Seconds, or the word forever."""

    name = "SECONDS|forever"

    def convert(self, value: Any, param: Any, ctx: Any) -> float | None:
        """Return the seconds, None for as long as it takes."""
        if value == "forever" or value is None:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= 10**9:
            self.fail(f"expected seconds (0 tries once) or forever, found {value!r}", param, ctx)
        return seconds


def holding_options(function: Any) -> Any:
    """Add what ``lock`` and ``elect`` have in common: the command, and how it is run and ended."""
    options = (
        click.argument("name"),
        click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED),
        lease_option(
            "How long the lock stays held if this program dies. Heartbeats are sent three times as "
            "often."
        ),
        click.option(
            "--kill-grace",
            "grace_s",
            type=Seconds(),
            metavar="SECONDS",
            help="Time from SIGTERM to SIGKILL when the lock is about to be lost; at most half of "
            "--ttl.  [default: 0.3 of --ttl, at most 5]",
        ),
        click.option("--label", default="", help="Name of this holder in lists."),
        click.option(
            "--quiet", "-q", "is_quiet", is_flag=True, help="Do not say for whom it waits."
        ),
        click.option(
            "--shell", "is_shell", is_flag=True, help="Run COMMAND with /bin/sh -c, as one text."
        ),
    )
    function = probe_options(function)
    for option in reversed(options):
        function = option(function)
    return holder_options(pass_settings(failing_well(function)))


def _patience(lease_s: float, max_hold_s: float | None, grace_s: float | None) -> Patience:
    """Return what suits the lease, and a hold that is shorter than it."""
    shorter = "--ttl"
    if max_hold_s is not None and max_hold_s < lease_s:
        lease_s, shorter = max_hold_s, "--max-hold"
    if grace_s is not None and grace_s > lease_s / 2:
        raise click.BadParameter(
            f"expected at most half of {shorter} ({lease_s / 2:g} s), found {grace_s:g} s",
            param_hint="--kill-grace",
        )
    return Patience.for_lease(
        round(lease_s * 1000), None if grace_s is None else round(grace_s * 1000)
    )


def job_of(
    room: Literal["locks", "elections"], name: str, wait_s: float | None, options: dict[str, Any]
) -> RunUnderLock:
    """Return what the options of ``holding_options`` said."""
    command: tuple[str, ...] = options["command"]
    lease_s: float = options["lease_s"]
    return RunUnderLock(
        room=room,
        name=name,
        argv=("/bin/sh", "-c", " ".join(command)) if options["is_shell"] else command,
        wait_ms=None if wait_s is None else round(wait_s * 1000),
        lease_ms=round(lease_s * 1000),
        patience=_patience(lease_s, options.get("max_hold_s"), options["grace_s"]),
        label=(options["label"] or os.path.basename(command[0]))[:200],
        probe=probe_command(options),
        is_quiet=options["is_quiet"],
    )


@click.command(context_settings={"ignore_unknown_options": False})
@click.option(
    "--timeout",
    "wait_s",
    type=WaitTime(),
    default=_WAIT_S,
    show_default=True,
    help="How long to wait for the lock; 0 tries once.",
)
@click.option(
    "--shared", "is_shared", is_flag=True, help="Hold it together with others that use --shared."
)
@click.option(
    "--size",
    type=click.IntRange(min=1, max=10_000),
    help="Hold one of this many slots (a semaphore). An existing semaphore keeps its size.",
)
@click.option(
    "--max-hold",
    "max_hold_s",
    type=Seconds(min=0.5, max=MAX_HOLD_S_MAX),
    metavar="SECONDS",
    help="End COMMAND and release the lock after this time.",
)
@click.option(
    "--lock-delay",
    "lock_delay_s",
    type=Seconds(max=LOCK_DELAY_S_MAX),
    default=0.0,
    metavar="SECONDS",
    help="If this holder is lost without a release, keep the lock closed for this time; at most "
    "60.",
)
@click.option(
    "--on-asked",
    type=click.Choice(_ASKED_SIGNALS),
    help="When another client asks for the lock (`coordinator ask`), agree, and send COMMAND this "
    "signal.",
)
@click.option("--owner", default="", help="On whose behalf it is held; shown with the lock.")
@holding_options
def lock(
    settings: Settings,
    name: str,
    wait_s: float | None,
    is_shared: bool,
    size: int | None,
    max_hold_s: float | None,
    lock_delay_s: float,
    on_asked: str | None,
    owner: str,
    **options: Any,
) -> None:
    """Run COMMAND while holding the lock NAME, and only then.

    COMMAND gets its fencing token in COORDINATOR_FENCING_TOKEN. The token grows with each grant:
    pass it with every write, and let your store refuse a token lower than the highest it has seen.
    COORDINATOR_LOCK_NAME and COORDINATOR_GRANT_ID are set, too. COMMAND runs without a shell and
    without a controlling terminal. Signals are passed on to all its processes. When it ends,
    processes that it left running are ended, and then the lock is released.

    A lock means one at a time, not once: if the cron of three hosts starts this one after the
    other, COMMAND runs three times. To run it once a day, on the first host that comes:
    coordinator once report --every 1d -- ./report.sh

    If the lock is about to be lost (no member answers, or this program was paused or killed),
    COMMAND gets SIGTERM and then SIGKILL, so that it is dead before another client can hold the
    lock. With --probe the same happens when COMMAND is not well any more: COMMAND is ended, then
    the session, and after --lock-delay the next client may hold the lock.

    \b
    Exit codes:
      the command's own, or 128 + n if signal n ended it
      75   the lock was not acquired in time; the command was not started
      76   the lock was lost, and the command ended because of that
      77   no member could be reached, or none answered; the command was not started
      126  the command is not executable        127  the command was not found
      1    the request was refused              2    wrong usage
      128+n  signal n arrived while waiting; the queue was left

    \b
    Examples:
      coordinator lock search-index -- ./rebuild.sh
      coordinator lock search-index --timeout 0 -- ./rebuild.sh || echo "another host runs it"
      coordinator lock migrate --timeout forever --ttl 30 -- ./migrate --all
      coordinator lock counter --shell -- 'read n < counter; echo $((n + 1)) > counter'
      coordinator lock indexer --probe 'curl -fsS localhost:8080/health' -- ./indexer
      coordinator lock accounts --shared -- ./add-up.sh
      coordinator lock licences --size 3 --max-hold 600 -- ./render.sh
    """
    if is_shared and size is not None:
        raise click.UsageError("expected one of --shared and --size, found both")
    job = replace(
        job_of("locks", name, wait_s, {**options, "max_hold_s": max_hold_s}),
        kind="shared" if is_shared else "exclusive" if size is None else "slot",
        size=size,
        on_asked=on_asked or "",
        owner=owner[:OWNER_CHARACTERS_MAX],
        max_hold_ms=0 if max_hold_s is None else round(max_hold_s * 1000),
        lock_delay_ms=round(lock_delay_s * 1000),
    )
    holder = Holder(settings, job)

    async def work() -> Ended:
        holder.listen_to_signals()
        try:
            return await holder.round()
        finally:
            holder.keep_the_ending()

    sys.exit(finished(settings, holder, lambda: asyncio.run(work())))
