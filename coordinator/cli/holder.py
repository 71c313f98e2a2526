"""A command that runs only while its lock or its leadership is held, and what ends it.

1. A signal that comes while still waiting withdraws from the queue at once and ends the wait.
2. A signal that comes while the command runs is passed on to all its processes; what it means is
   theirs to decide. The command ends, then the lock is released, then we end.
3. The command never outlives the lease: see ``supervisor``.
4. Each round has a client and a session of its own, so nothing of a lost one is carried over.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from coordinator.cli.connection import Settings
from coordinator.cli.output import (
    EXIT_NOT_IN_TIME,
    EXIT_NOT_STARTED,
    EXIT_SIGNAL_BASE,
    note,
    show_error,
)
from coordinator.cli.probing import ProbeCommand, probed
from coordinator.cli.supervisor import Ended, Patience, Reason, Supervisor
from coordinator.client import AsyncClient
from coordinator.client.locks import Acquired, AcquireRequest, LockQueue
from coordinator.clock import SystemClock
from coordinator.errors import (
    CoordinatorError,
    LockTimeoutError,
    OutcomeUnknownError,
    SessionError,
    UnavailableError,
)
from coordinator.model.views import Candidate, Contender
from coordinator.recipes.locks.contender import Queueing
from coordinator.recipes.locks.requests import RequestListener, RevokeRequest
from coordinator.wording import in_short

_RELEASE_S = 3.0
_TELL_S = 1.0
"""A command that waits for longer says who holds the lock."""

# What ends a program that does not care; while waiting these withdraw us from the queue.
_ENDING_SIGNALS = (
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGALRM,
    signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGVTALRM, signal.SIGPROF,
)  # fmt: skip
# What only a running command has a use for.
_PASSED_SIGNALS = (signal.SIGWINCH, signal.SIGCONT, signal.SIGURG)
# What would suspend us and so cost the lock.
_SUSPENDING_SIGNALS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


@dataclass(frozen=True, slots=True)
class RunUnderLock:
    """What to run, under which lock or election, and how patiently."""

    room: Literal["locks", "elections"]
    name: str
    argv: Sequence[str]
    wait_ms: int | None
    lease_ms: int
    patience: Patience
    label: str
    value: bytes | None = None
    kind: str = "exclusive"
    size: int | None = None
    owner: str = ""
    lock_delay_ms: int = 0
    max_hold_ms: int = 0
    probe: ProbeCommand | None = None
    is_quiet: bool = False
    on_asked: str = ""
    """The signal that COMMAND gets when another client asks for the lock; "" does not listen."""

    def queue(self, client: AsyncClient) -> LockQueue:
        """Return the queue of the lock or the election."""
        return client.lock_queue(self.name, is_election=self.room == "elections")

    @property
    def title(self) -> str:
        """The lock or the election as messages name it."""
        return f"{'lock' if self.room == 'locks' else 'election'} {self.name}"


class Holder:
    """Contends, runs the command, gives back; and knows what a signal means at each moment."""

    def __init__(self, settings: Settings, job: RunUnderLock) -> None:
        self.settings = settings
        self.job = job
        self.supervisor: Supervisor | None = None
        self.signal_number: int | None = None
        self.ended: Ended | None = None
        """How the command of this round ended: no later signal changes that."""
        self._main: asyncio.Task[Any] | None = None
        self._mask: set[int] | None = None
        """The signals that were blocked before we did."""

    async def round(self) -> Ended:
        """Contend, run the command once, give back. Raises what kept the command from running."""
        job = self.job
        lease_s = job.lease_ms / 1000
        async with self.settings.connector(lease_s=lease_s, label=job.label) as client:
            queue, clock = job.queue(client), SystemClock()
            acquired = await self.contend(client, queue)
            environ = self.environ(acquired)
            supervisor = Supervisor(clock, job.patience)
            probe = None if job.probe is None else job.probe.probe(environ)
            listener = self._listener(client, acquired) if job.on_asked else None
            try:
                supervisor.start(environ)
                self.supervisor = supervisor
                async with probed(acquired, client, clock, job.patience, probe) as lease:
                    if listener is not None:
                        listener.start()
                    self.ended = explained(await supervisor.run(job.argv, lease), acquired)
                    return self.ended
            finally:
                if listener is not None:
                    listener.stop()
                self.supervisor = None
                await supervisor.stop()
                await give_back(queue, acquired)

    def listen_to_signals(self) -> None:
        """From now on take every signal that can be taken, but for those that were ignored."""
        self._main = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (*_ENDING_SIGNALS, *_PASSED_SIGNALS, *_SUSPENDING_SIGNALS, *_real_time()):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._on_signal, number)

    def keep_the_ending(self) -> None:
        """Let no signal that comes while the event loop ends change our end; ``finished`` drops
        what comes until then, and from then on."""
        if self.ended is not None and self._mask is None:
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)

    def hear_no_more(self) -> None:
        """Drop such signals. Programs that this process starts hear theirs, as ever."""
        if self._mask is not None:
            for number in _ENDING_SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, _drop)
            atexit.register(_ignore_the_dropped)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._mask = None

    @property
    def exit_code_by_signal(self) -> int | None:
        """The exit code of a shell for a program ended by the signal we got; None without one."""
        number = self.signal_number
        return None if number is None else EXIT_SIGNAL_BASE + number

    def _on_signal(self, number: int) -> None:
        if number in _SUSPENDING_SIGNALS:
            note("cannot be suspended: the lock would be lost")
        elif self.supervisor is not None:
            if number in _ENDING_SIGNALS:
                self.signal_number = number
            self.supervisor.forward(number)
        elif number not in _PASSED_SIGNALS and self._main is not None:
            self.signal_number = number
            self._main.cancel()

    async def contend(self, client: AsyncClient, queue: Queueing) -> Acquired:
        """Wait for the turn, and say for whom; raises what ``LockQueue.acquire`` does."""
        job = self.job
        request = AcquireRequest(
            label=job.label,
            host=socket.gethostname()[:200],
            pid=os.getpid(),
            value=job.value,
            kind=job.kind,
            owner=job.owner,
            size=job.size,
            lock_delay_ms=job.lock_delay_ms,
            max_hold_ms=job.max_hold_ms,
            when_unsure="stop" if job.room == "locks" else "",
        )
        telling = asyncio.create_task(self._tell_who_holds(client))
        try:
            return await queue.acquire(request, job.wait_ms, self._show_position)
        finally:
            telling.cancel()
            await asyncio.wait({telling})

    def _listener(self, client: AsyncClient, acquired: Acquired) -> RequestListener:
        """Return what passes a request for the lock on to the command, as a signal."""
        name = self.job.on_asked

        def on_asked(request: RevokeRequest) -> None:
            if self._is_talking:
                note(f"{self.job.title}: {request.by} asks for it: {request.reason}")
            request.agree(f"its command got SIG{name}")
            if self.supervisor is not None:
                self.supervisor.forward(signal.Signals[f"SIG{name}"])

        return RequestListener(client, acquired.grant.path, acquired.grant.fencing_token, on_asked)

    def _show_position(self, position: int) -> None:
        if position > 0 and sys.stderr.isatty() and self._is_talking:
            note(f"waiting for {self.job.title}, {position} before us")

    @property
    def _is_talking(self) -> bool:
        return not (self.settings.is_json or self.job.is_quiet)

    async def _tell_who_holds(self, client: AsyncClient) -> None:
        """Say once for whom we wait, when that takes longer than a moment."""
        if not self._is_talking:
            return
        await asyncio.sleep(_TELL_S)
        job = self.job
        holder: Contender | Candidate | None
        try:
            if job.room == "locks":
                view = await client.lock(job.name)
                if view.by_hand is not None:
                    note(f"waiting for {job.title}: {view.by_hand}")
                    return
                holder = view.holder
            else:
                holder = (await client.election(job.name)).elected
        except CoordinatorError as error:
            note(f"waiting for {job.title}: {error.message}")
            return
        if holder is not None:
            note(f"waiting for {job.title}, held by {in_short(holder)}")

    def environ(self, acquired: Acquired) -> Mapping[str, str]:
        """Return the environment of the command."""
        grant = acquired.grant
        return self.settings.environ(self.job.name, grant.grant_id, grant.fencing_token)


async def give_back(queue: Queueing, acquired: Acquired) -> None:
    """Release what is still ours."""
    if acquired.is_lost:
        acquired.stop_watching()
        return  # nothing is ours any more
    try:
        async with asyncio.timeout(_RELEASE_S):
            await queue.release(acquired.grant)
    except (CoordinatorError, TimeoutError):
        pass  # the session ends with its client, or by its timeout, and the grant with it


def explained(ending: Ended, acquired: Acquired) -> Ended:
    """Return ``ending``; that of a command whose lock was lost says why it was."""
    if ending.reason is not Reason.LOST:
        return ending
    reason = acquired.session.grant_watch.loss_reason(acquired.paths) or acquired.session.reason
    if not reason and acquired.is_bounded:
        reason = "its time (--max-hold) was over"
    return replace(ending, message=f"{ending.message}: {reason}") if reason else ending


def _drop(_number: int, _frame: object) -> None:
    pass


def _ignore_the_dropped() -> None:
    """Drop them to the very end: Python gives up its handlers before it has taken down its modules,
    and one that came then ended this process."""
    for number in _ENDING_SIGNALS:
        if signal.getsignal(number) is _drop:
            signal.signal(number, signal.SIG_IGN)


def _real_time() -> range:
    first, last = getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", -1)
    return range(first, last + 1)


def finished(settings: Settings, holder: Holder, run: Callable[[], Ended]) -> int:
    """Return the exit code of what ``run`` comes to."""
    try:
        try:
            ending = run()
        finally:
            holder.hear_no_more()
    except LockTimeoutError as error:
        show_error(error, settings.is_json)
        return EXIT_NOT_IN_TIME
    except (UnavailableError, OutcomeUnknownError, SessionError) as error:
        show_error(error, settings.is_json)
        return EXIT_NOT_STARTED
    except (asyncio.CancelledError, KeyboardInterrupt):
        if holder.ended is None:
            return holder.exit_code_by_signal or EXIT_SIGNAL_BASE + signal.SIGINT
        ending = holder.ended  # the signal came while the lock was being released
    if ending.message:
        note(ending.message)
    return ending.exit_code
