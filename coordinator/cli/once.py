"""``once``: a command that runs once in each interval, or once at all, on the first host to come.

It is ``Job.run``, or ``Once.run`` without a schedule, with a command as its work, under the same
watchdog as ``lock``: the command does not outlive the lease of the lock. That it fails is what its
exit code says.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from coordinator.cli.connection import Settings, holder_options, lease_option, pass_settings
from coordinator.cli.locks import WaitTime
from coordinator.cli.output import (
    EXIT_LOST,
    EXIT_NOT_STARTED,
    EXIT_REFUSED,
    EXIT_SIGNAL_BASE,
    document,
    failing_well,
    note,
    show_error,
)
from coordinator.cli.seconds import Seconds
from coordinator.cli.supervisor import Ended, Patience, Supervisor
from coordinator.clock import SystemClock
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    LockTimeoutError,
    OutcomeUnknownError,
    SessionError,
    UnavailableError,
)
from coordinator.wording import moment

if TYPE_CHECKING:
    from coordinator.client import AsyncClient
    from coordinator.recipes.job import Job
    from coordinator.recipes.jobs.ledger import JobReply, Run
    from coordinator.recipes.locks.grant import Grant
    from coordinator.recipes.once import Attempt, Done

_SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
)  # fmt: skip
_AGAIN_S_MAX = 60.0


class CommandError(Exception):
    """The command did not end with 0."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.message or f"exit code {ended.exit_code}")
        self.ended = ended


class Runner:
    """Runs the command for each interval that is due, and passes signals on to it."""

    def __init__(self, settings: Settings, argv: tuple[str, ...], patience: Patience) -> None:
        self._settings = settings
        self._argv = argv
        self._patience = patience
        self._supervisor: Supervisor | None = None
        self._main: asyncio.Task[Any] | None = None
        self.signal_number: int | None = None

    async def once(self, lease_s: float, name: str, options: dict[str, Any]) -> JobReply:
        """Run what is due now."""
        from coordinator.recipes.job import Job

        self._listen()
        async with self._settings.connector(lease_s=lease_s, label=options["label"]) as client:
            job: Job[AsyncClient] = Job(client, name, **options)
            return await job.run(self._work)

    async def for_key(self, lease_s: float, key: str, options: dict[str, Any]) -> Done:
        """Run it if it was not run to its end for this key before."""
        from coordinator.recipes.once import Once

        self._listen()
        async with self._settings.connector(lease_s=lease_s, label=options.pop("label")) as client:
            once: Once[AsyncClient] = Once(client, **options)
            return await once.run(key, self._work_for_key)

    async def keep(self, lease_s: float, name: str, options: dict[str, Any]) -> None:
        """Run each interval when it begins, until a signal comes."""
        from coordinator.recipes.job import Job

        self._listen()
        failures = 0
        while self.signal_number is None:
            try:
                connector = self._settings.connector(lease_s=lease_s, label=options["label"])
                async with connector as client:
                    job: Job[AsyncClient] = Job(client, name, **options)
                    while self.signal_number is None:
                        await job.wait(3_600)
                        reply = await job.run(self._work)
                        failures = 0
                        _show(self._settings, name, reply, is_quiet=True)
            except CommandError as error:
                note(f"{name}: {error}")
            except (UnavailableError, OutcomeUnknownError, SessionError) as error:
                show_error(error, self._settings.is_json)
            failures += 1
            if self.signal_number is None:
                await asyncio.sleep(min(_AGAIN_S_MAX, 2.0 ** min(failures, 10) / 2))

    async def _work(self, run: Run[AsyncClient]) -> dict[str, int]:
        return await self._run(
            run.grant,
            COORDINATOR_JOB=run.job,
            COORDINATOR_JOB_KEY=run.key,
            COORDINATOR_INTERVAL=run.interval,
            COORDINATOR_ATTEMPT=str(run.attempt),
        )

    async def _work_for_key(self, attempt: Attempt) -> dict[str, int]:
        return await self._run(
            attempt.grant,
            COORDINATOR_JOB_KEY=attempt.key,
            COORDINATOR_ATTEMPT=str(attempt.number),
        )

    async def borrow(
        self, lease_s: float, name: str, resources: list[str], wait: Any, label: str | None
    ) -> None:
        """Run it while one of the resources is borrowed."""
        from coordinator.recipes.pool import Pool

        self._listen()
        async with self._settings.connector(lease_s=lease_s, label=label or "") as client:
            pool: Pool[AsyncClient] = Pool(client, name, resources)
            async with await pool.borrow(timeout=wait) as borrowed:
                grant = borrowed.grant
                assert grant is not None, "it is not given back yet"
                await self._run(
                    grant, borrowed.fencing_token, COORDINATOR_RESOURCE=borrowed.resource
                )

    async def _run(
        self, grant: Grant[Any], token: int | None = None, **variables: str
    ) -> dict[str, int]:
        token = token or grant.fencing_token
        environ = {**self._settings.environ(grant.lock, grant.grant_id, token), **variables}
        supervisor = Supervisor(SystemClock(), self._patience)
        try:
            supervisor.start(environ)
            self._supervisor = supervisor
            ended = await supervisor.run(self._argv, grant)
        finally:
            self._supervisor = None
            await supervisor.stop()
        if ended.exit_code != 0:
            raise CommandError(ended)
        return {"exit_code": 0}

    def _listen(self) -> None:
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        self.signal_number = number
        if self._supervisor is not None:
            self._supervisor.forward(number)
        elif self._main is not None:
            self._main.cancel()


@contextmanager
def exiting_when_stopped(settings: Settings, runner: Runner) -> Iterator[None]:
    """End the process with the exit code of what kept the command from running to its end."""
    try:
        yield
    except LockLostError as error:
        show_error(error, settings.is_json)
        sys.exit(EXIT_LOST)
    except BadArgumentsError as error:
        raise click.UsageError(error.message) from None
    except (UnavailableError, OutcomeUnknownError, SessionError) as error:
        show_error(error, settings.is_json)
        is_begun_before = "attempt" in error.fields  # of a key that runs at most once
        if is_begun_before:
            key = ("-- " if error.key.startswith("-") else "") + shlex.quote(error.key)
            note(
                f"find out whether it was done: then `coordinator once --settle {key}`, "
                f"or `coordinator once --forget {key}` to run it again"
            )
        sys.exit(EXIT_REFUSED if is_begun_before else EXIT_NOT_STARTED)
    except (asyncio.CancelledError, KeyboardInterrupt):
        sys.exit(EXIT_SIGNAL_BASE + (runner.signal_number or signal.SIGINT))


@click.command()
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--every",
    metavar="LENGTH",
    help="The interval: 90s, 15m, 6h; 1d, 1w or 1mo. Without it and --cron: once at all.",
)
@click.option("--at", metavar="TIME", help="Of 1d '02:00', of 1w 'mon 02:00', of 1mo '1 02:00'.")
@click.option("--tz", metavar="ZONE", help="Zone of --at and --cron.  [default: UTC]")
@click.option("--cron", metavar="EXPRESSION", help="Instead of --every: '0 2 * * MON-FRI'.")
@click.option(
    "--catch-up",
    type=click.Choice(["last", "all", "skip"]),
    default="last",
    show_default=True,
    help="Which missed intervals to run: the latest, all, or none.",
)
@click.option(
    "--grace",
    type=Seconds(),
    default=3_600.0,
    show_default=True,
    metavar="SECONDS",
    help="With --catch-up skip: an interval is missed after this time.",
)
@click.option("--at-most-once", is_flag=True, help="Never repeat a run that crashed or failed.")
@click.option(
    "--attempts",
    "attempts_max",
    type=click.IntRange(min=1, max=1_000_000),
    default=3,
    show_default=True,
    help="How often one interval is tried.",
)
@click.option(
    "--history",
    type=click.IntRange(1, 500),
    default=30,
    show_default=True,
    help="How many runs are remembered.",
)
@click.option(
    "--timeout",
    "wait_s",
    type=WaitTime(),
    default=0.0,
    show_default=True,
    help="How long to wait while another host runs it; if that host dies, take over.",
)
@click.option("--keep", is_flag=True, help="Stay, and run each interval when it begins.")
@click.option(
    "--settle",
    "decision",
    flag_value="settle",
    help="Of the key NAME: it was done, as you found out; run nothing.",
)
@click.option(
    "--forget",
    "decision",
    flag_value="forget",
    help="Of the key NAME: the next call runs it again; run nothing.",
)
@lease_option("How long another host waits before it takes over from one that died.")
@click.option("--label", help="Who runs it, in lists.  [default: host and process]")
@click.option("--quiet", "-q", "is_quiet", is_flag=True, help="Do not say why nothing was run.")
@holder_options
@pass_settings
@failing_well
def once(
    settings: Settings,
    /,
    name: str,
    command: tuple[str, ...],
    at_most_once: bool,
    wait_s: float | None,
    keep: bool,
    lease_s: float,
    is_quiet: bool,
    decision: str | None,
    **options: Any,
) -> None:
    """Run COMMAND once in each interval of the job NAME, on one host; or once at all.

    The first host that calls this in an interval runs it. Without --every and --cron, NAME is a
    key, and the first host that calls this at all runs it: after it has ended with 0, no call for
    this key runs anything. With --at-most-once a key whose command failed or crashed is refused
    until a person decides, by --settle or --forget, what became of it.

    Start it on each host, by the cron of each. The interval is decided by the leader's time, not
    by this host's clock. A run that crashed or failed is repeated by the next call, with a higher
    token; with --at-most-once it is not. COMMAND gets COORDINATOR_INTERVAL, COORDINATOR_ATTEMPT,
    COORDINATOR_FENCING_TOKEN and COORDINATOR_JOB_KEY, which is the same in each attempt.
    `coordinator jobs` shows what came of it.

    \b
    Exit codes:
      0    it was run and ended with 0; or nothing was to be done; or another host is at it
      76   the lock was lost, and the command ended because of that
      77   no member could be reached, or none answered
      126  the command is not executable        127  the command was not found
      1    the request was refused              2    wrong usage, or a wrong schedule
      else the command's own, or 128 + n if signal n ended it: this attempt has failed

    \b
    Examples:
      coordinator once daily-report --every 1d --at 02:00 --tz Europe/Berlin -- ./report.sh
      coordinator once clean-up --every 1h --at-most-once -- ./clean-up
      coordinator once backup --cron '30 1 * * MON-FRI' --keep -- ./backup
      coordinator once migrate-v42 -- ./migrate           # once at all
      coordinator once migrate-v42 --settle               # it was done by hand
    """
    from coordinator.recipes.waits import FOREVER

    if decision is not None:
        _decide(settings, name, decision, command)
        return
    if not command:
        raise click.UsageError("expected COMMAND, or --settle or --forget; found none")
    if options["label"] is None:
        options["label"] = f"{os.uname().nodename}:{os.getpid()}"
    options["timeout"] = FOREVER if wait_s is None or keep else wait_s
    runner = Runner(settings, command, Patience.for_lease(round(lease_s * 1000)))
    is_key = options["every"] is None and options["cron"] is None
    if is_key:
        options = _options_of_key(options, at_most_once=at_most_once)
    else:
        options["guarantee"] = "at_most_once" if at_most_once else "at_least_once"
    with exiting_when_stopped(settings, runner):
        try:
            if is_key:
                done = asyncio.run(runner.for_key(lease_s, name, options))
                _show_key(settings, done, is_quiet=is_quiet)
            elif keep:
                asyncio.run(runner.keep(lease_s, name, options))
            else:
                reply = asyncio.run(runner.once(lease_s, name, options))
                _show(settings, name, reply, is_quiet=is_quiet or reply.state == "ran")
        except CommandError as error:
            note(f"{name}: this attempt has failed: {error}")
            sys.exit(error.ended.exit_code)
        except LockTimeoutError:
            _show_busy(settings, name, is_quiet=is_quiet)
    if runner.signal_number is not None and keep:
        sys.exit(EXIT_SIGNAL_BASE + runner.signal_number)


_OF_SCHEDULES = ("at", "tz", "keep", "catch_up", "grace", "attempts_max", "history")


def _options_of_key(options: dict[str, Any], *, at_most_once: bool) -> dict[str, Any]:
    """Return the options of ``Once``; raises UsageError for those of a schedule."""
    context = click.get_current_context()
    for each in _OF_SCHEDULES:
        if context.get_parameter_source(each) is ParameterSource.COMMANDLINE:
            option = "--attempts" if each == "attempts_max" else f"--{each.replace('_', '-')}"
            raise click.UsageError(f"{option} goes with --every or --cron, which say when it runs")
    when_interrupted = "raise" if at_most_once else "repeat"
    return {
        "label": options["label"],
        "timeout": options["timeout"],
        "keep": None,
        "when_interrupted": when_interrupted,
    }


def _decide(settings: Settings, key: str, decision: str, command: tuple[str, ...]) -> None:
    """Record that the work of a key was done, or forget that it began."""
    context = click.get_current_context()
    if command or context.params["every"] is not None or context.params["cron"] is not None:
        raise click.UsageError(
            f"--{decision} is of a key, and runs nothing: expected neither COMMAND nor --every "
            f"nor --cron; `coordinator jobs NAME --forget` forgets a job"
        )

    async def work(client: AsyncClient) -> int:
        from coordinator.recipes.once import Once

        once = Once(client, keep=None)
        if decision == "settle":
            return (await once.settle(key)).attempts
        return int(await once.forget(key))

    number = settings.run(work)
    if decision == "forget" and not number:
        raise click.UsageError(f"expected a key that was run, found {key!r}")
    if settings.is_json:
        state = "done" if decision == "settle" else "forgotten"
        click.echo(document({"key": key, "state": state}))


def _show_key(settings: Settings, done: Done, *, is_quiet: bool) -> None:
    if settings.is_json:
        state = "ran" if done.is_first else "done"
        click.echo(document({"key": done.key, "state": state, "attempts": done.attempts}))
    elif not (done.is_first or is_quiet):
        note(f"{done.key}: it was done before; nothing was run")


def _show_busy(settings: Settings, key: str, *, is_quiet: bool) -> None:
    if settings.is_json:
        click.echo(document({"key": key, "state": "busy", "attempts": 0}))
    elif not is_quiet:
        note(f"{key}: another host is at it")


def _show(settings: Settings, name: str, reply: JobReply, *, is_quiet: bool) -> None:
    if settings.is_json:
        starts = [each.interval for each in reply.runs]
        click.echo(document({"job": name, "state": reply.state, "ran": starts}))
    elif not is_quiet:
        following = "" if reply.next_ms is None else f"; the next one is {moment(reply.next_ms)}"
        reason = "another host is at it" if reply.state == "busy" else "nothing is due"
        note(f"{name}: {reason}{following}")
