"""``elect``: a command that runs only while elected, for services of which one is to run."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any, Final, NoReturn

import click

from coordinator.cli.connection import Settings
from coordinator.cli.holder import finished
from coordinator.cli.locks import WaitTime, holding_options, job_of
from coordinator.cli.output import note, show_error
from coordinator.cli.ready_door import Address, ReadyDoor
from coordinator.cli.restarting import RestartPolicy
from coordinator.cli.seconds import Seconds
from coordinator.cli.standing import Candidacy, CandidacyPlan, removed_ready_file
from coordinator.cli.supervisor import Ended, Reason
from coordinator.errors import (
    LockTimeoutError,
    OutcomeUnknownError,
    SessionError,
    UnavailableError,
)
from coordinator.node.service_manager import ServiceManager
from coordinator.recipes.elections.resuming import LeadershipFile, checked_file
from coordinator.recipes.elections.weights import WEIGHT_MAX

_RETRY_S = 1.0
_AGAIN = frozenset({Reason.LOST, Reason.HANDED_OVER, Reason.GAVE_UP})


_SUPERVISING: Final = (
    click.option(
        "--restart",
        "restart_when",
        type=click.Choice(["never", "on-failure", "always"]),
        default="never",
        show_default=True,
        help="Start COMMAND again when it ends, under the same leadership.",
    ),
    click.option(
        "--backoff",
        "pause_s",
        type=Seconds(min_open=True),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="Pause before the first restart; each later one waits twice as long.",
    ),
    click.option(
        "--backoff-max",
        "pause_s_max",
        type=Seconds(min_open=True),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help="The longest pause. After a run of this length the pause is --backoff again.",
    ),
    click.option(
        "--restarts",
        "in_a_row",
        type=click.IntRange(min=0, max=10**6),
        default=5,
        show_default=True,
        help="After this many in a row, resign and let another host try.",
    ),
    click.option(
        "--weight",
        type=click.IntRange(min=0, max=WEIGHT_MAX),
        help="The waiting candidate with the highest weight is elected; 0: never.",
    ),
    click.option("--give-way", is_flag=True, help="Hand over to a higher weight."),
    click.option(
        "--resume",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="A local file, with which a restart of this program is elected again at once.",
    ),
    click.option(
        "--ready-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="A file that exists, with the epoch in it, while COMMAND runs.",
    ),
    click.option(
        "--http",
        "door",
        type=Address(),
        help="Answer GET /ready with 200 while it leads, else 503; and GET /live.",
    ),
)


def _supervising_options(function: Any) -> Any:
    for option in reversed(_SUPERVISING):
        function = option(function)
    return function


@click.command()
@click.option(
    "--timeout",
    "wait_s",
    type=WaitTime(),
    default="forever",
    show_default=True,
    help="How long to wait to be elected; 0 tries once.",
)
@click.option("--value", help="Published while this host is elected, such as its URL.")
@click.option("--keep", is_flag=True, help="Contend again when COMMAND ends by itself.")
@_supervising_options
@holding_options
def elect(
    settings: Settings,
    name: str,
    wait_s: float | None,
    value: str | None,
    keep: bool,
    **options: Any,
) -> None:
    """Run COMMAND while elected in the election NAME; contend again after a loss.

    Of all hosts that run this, one is elected at a time. COMMAND gets the epoch, which is the
    fencing token, in COORDINATOR_FENCING_TOKEN. If the leadership is about to be lost, COMMAND is
    ended before another host can be elected, and this one contends again. When COMMAND ends by
    itself, this program resigns and exits with its exit code (with --keep it contends again, with
    --restart it starts COMMAND again). See `coordinator lock --help` for how COMMAND is run, and
    for the exit codes.

    `coordinator hand-over NAME` moves the leadership to another host without waiting for a lease.
    Under systemd (Type=notify) this reports whether it waits or leads, and answers WatchdogSec=.

    \b
    Examples:
      coordinator elect scheduler -- ./scheduler
      coordinator elect scheduler --value "http://$(hostname):8080" --keep -- ./scheduler
      coordinator elect scheduler --restart always --http 0.0.0.0:8099 -- ./scheduler
      coordinator elect scheduler --resume /run/scheduler.leader -- ./scheduler
    """
    job = job_of("elections", name, wait_s, options)
    published = job.label if value is None else value
    job = replace(job, value=os.fsencode(published))
    restarts = RestartPolicy(
        options["restart_when"], options["pause_s"], options["pause_s_max"], options["in_a_row"]
    )
    resume, ready_file = options["resume"], options["ready_file"]
    try:
        ready_file = removed_ready_file(ready_file)
    except OSError as error:
        raise click.BadParameter(
            f"{ready_file}: expected a file that can be written, found: {error.strerror}",
            param_hint="--ready-file",
        ) from None
    plan = CandidacyPlan(
        weight=options["weight"],
        gives_way=options["give_way"],
        restarts=restarts,
        resume=None if resume is None else LeadershipFile(checked_file(resume)),
        ready_file=ready_file,
        keeps=keep,
    )
    manager = ServiceManager(os.environ)
    holder = Candidacy(settings, job, plan, manager)

    async def work() -> Ended:
        holder.listen_to_signals()
        alive = asyncio.create_task(manager.keep_alive())
        async with AsyncExitStack() as stack:
            stack.callback(holder.keep_the_ending)
            stack.callback(alive.cancel)
            if options["door"] is not None:
                await _opened(stack, holder, options["door"])
            if plan.weight == 0:
                await _stand_by(holder, wait_s)
            return await _until_over(settings, holder, plan, is_patient=wait_s is None)

    try:
        code = finished(settings, holder, lambda: asyncio.run(work()))
    finally:
        manager.say("stopped", "STOPPING=1")
    sys.exit(code)


async def _opened(stack: AsyncExitStack, holder: Candidacy, address: tuple[str, int]) -> None:
    try:
        port = await stack.enter_async_context(ReadyDoor(holder.state).at(address))
    except OSError as error:
        raise click.BadParameter(
            f"{address[0]}:{address[1]}: expected an address to listen on, found: {error}",
            param_hint="--http",
        ) from None
    note(f"{holder.job.title}: /ready and /live at http://{address[0]}:{port}")


async def _stand_by(holder: Candidacy, wait_s: float | None) -> NoReturn:
    """Answer at the door alone, until a signal cancels it, or its time is over."""
    holder.report("stands by; its weight is 0")
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await asyncio.get_running_loop().create_future()
    raise LockTimeoutError(
        f"{holder.job.title}: not elected: expected --weight 1 or more, found 0 (it stands by)"
    )


async def _until_over(
    settings: Settings, holder: Candidacy, plan: CandidacyPlan, *, is_patient: bool
) -> Ended:
    while True:
        ending = await _round(settings, holder, is_patient=is_patient)
        rest_s = _RETRY_S
        if ending is not None:
            is_over = ending.reason not in _AGAIN and not plan.keeps
            if is_over or holder.exit_code_by_signal is not None:
                return ending
            if ending.reason is Reason.GAVE_UP:
                rest_s = max(rest_s, plan.restarts.pause_s_max)
            if ending.message:
                when = f" in {rest_s:g} s" if rest_s > _RETRY_S else ""
                note(f"{holder.job.title}: {ending.message}; contending again{when}")
        holder.ended = None
        holder.report("resting before it contends again")
        await asyncio.sleep(rest_s)


async def _round(settings: Settings, holder: Candidacy, *, is_patient: bool) -> Ended | None:
    """Return how a round ended; None when the cluster could not be asked and we have time."""
    try:
        return await holder.round()
    except (UnavailableError, OutcomeUnknownError, SessionError) as error:
        if not is_patient:
            raise
        show_error(error, settings.is_json)
        return None
