"""A candidate with a command: whenever it is elected, it runs the command.

1. A command that ends is started again as the restart policy says, under the same leadership and
   with the same epoch. When it has ended too often in a row, others get their turn.
2. If another candidate is to be elected (``hand-over``, or a heavier one with ``--give-way``), the
   command is ended first, whole; then the one command of the log moves the leadership. If that
   candidate has gone meanwhile, the command is started again: nobody else was elected.
3. The ready file and ``/ready`` say that it leads only while the command runs, its lease is certain
   and the command is not being ended for want of one. The watchdog removes the file, so it goes
   also when this process is killed.
4. With ``--resume`` the watchdog, too, keeps the kernel's lock on the file: a successor takes over
   when the last process of the command has ended, and not before.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from coordinator.cli.connection import Settings
from coordinator.cli.holder import Holder, RunUnderLock, explained, give_back
from coordinator.cli.output import note
from coordinator.cli.probing import probed
from coordinator.cli.restarting import RestartPolicy, Restarts
from coordinator.cli.supervisor import Ended, Reason, SafeTime, Supervisor
from coordinator.cli.watchdog import ready_draft
from coordinator.client import AsyncClient
from coordinator.client.locks import Acquired
from coordinator.clock import SystemClock
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.node.service_manager import ServiceManager
from coordinator.recipes.elections.candidates import CandidateQueue
from coordinator.recipes.elections.handing_over import next_request
from coordinator.recipes.elections.resuming import LeadershipFile
from coordinator.recipes.elections.succession import SuccessionRequest, named
from coordinator.recipes.elections.weights import WEIGHT, heaviest, weights_of

_REFUSED_MAX = 100


@dataclass(frozen=True, slots=True)
class CandidacyPlan:
    """How one stands, beside what is run."""

    weight: int | None = None
    gives_way: bool = False
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    resume: LeadershipFile | None = None
    ready_file: str | None = None
    keeps: bool = False
    """It contends again when the command has ended by itself."""


class Candidacy(Holder):
    """One candidate; ``round`` is one leadership."""

    def __init__(
        self, settings: Settings, job: RunUnderLock, plan: CandidacyPlan, manager: ServiceManager
    ) -> None:
        super().__init__(settings, job)
        self._plan = plan
        self._manager = manager
        self._clock = SystemClock()
        self._lease: SafeTime | None = None
        """While the command runs and is not being ended."""
        self._epoch = 0
        self._status = "starting"
        self._refused: list[tuple[SuccessionRequest, int]] = []
        self._asking: asyncio.Task[SuccessionRequest]
        """Done when another one should be elected; of this round."""

    def state(self) -> Mapping[str, Any]:
        """Return what a load balancer asks for: the truth of this moment."""
        lease, patience = self._lease, self.job.patience
        # With less than this left the watchdog is ending the command.
        ending_ms = patience.grace_ms + patience.margin_ms
        is_leading = lease is not None and lease.remaining_safe_ms() > ending_ms
        return {
            "is_leading": is_leading,
            "election": self.job.name,
            "label": self.job.label,
            "epoch": self._epoch if is_leading else 0,
            "status": self._status,
        }

    def report(self, status: str) -> None:
        """Report its status to the service manager and at the door."""
        self._status = status
        self._manager.say(status, "READY=1")

    async def round(self) -> Ended:
        """Contend, run the command while elected, give back; raises as that of ``Holder``."""
        job, plan = self.job, self._plan
        async with self.settings.connector(lease_s=job.lease_ms / 1000, label=job.label) as client:
            queue = CandidateQueue(client, job.name, plan.weight, plan.resume)
            self.report("waiting to be elected")
            acquired = await self.contend(client, queue)
            self._epoch = acquired.grant.fencing_token
            if queue.resumed:
                note(f"{job.title}: took over from the process before; epoch {self._epoch}")
            self._asking = asyncio.create_task(self._request_to_take(client))
            try:
                ending = await self._lead(client, queue, acquired)
                # With --keep only a signal ends us: one that the command got, or one still to come.
                is_end = not plan.keeps or self.signal_number is not None
                self.ended = ending if ending.reason is Reason.EXITED and is_end else None
                return ending
            finally:
                self._asking.cancel()
                await asyncio.wait({self._asking})
                self._epoch = 0
                await give_back(queue, acquired)

    async def _lead(self, client: AsyncClient, queue: CandidateQueue, acquired: Acquired) -> Ended:
        restarts = Restarts(self._plan.restarts)
        while True:
            began_ms = self._clock.monotonic_ms()
            ending = await self._run_once(client, acquired)
            ran_s = (self._clock.monotonic_ms() - began_ms) / 1000
            if self.signal_number is not None or ending.reason is Reason.LOST:
                return ending
            if self._asking.done():
                if await self._has_handed_over(client, queue, acquired, self._asking.result()):
                    return Ended(Reason.HANDED_OVER, 0)
                self._asking = asyncio.create_task(self._request_to_take(client))
                continue
            if not self._plan.restarts.wants(ending.exit_code):
                return ending
            if (pause_s := restarts.pause_s(ran_s)) is None:
                message = f"the command ended {restarts.count + 1} times in a row; others may try"
                return Ended(Reason.GAVE_UP, ending.exit_code, message)
            how = ending.message or f"exit status {ending.exit_code}"
            note(f"{self.job.title}: the command ended ({how}); again in {pause_s:g} s")
            self.report(f"elected, epoch {self._epoch}; restarts its command in {pause_s:g} s")
            await asyncio.wait({self._asking}, timeout=pause_s)
            if acquired.is_lost:
                reason = acquired.loss_reason or "the leadership was lost"
                return Ended(Reason.LOST, ending.exit_code, reason)

    async def _run_once(self, client: AsyncClient, acquired: Acquired) -> Ended:
        """Run the command until it ends, or is to be ended because another one was asked for."""
        job, plan, clock = self.job, self._plan, self._clock
        environ = self.environ(acquired)
        supervisor = Supervisor(clock, job.patience)
        probe = None if job.probe is None else job.probe.probe(environ)
        number = None if plan.resume is None else plan.resume.fileno()
        ready = None if plan.ready_file is None else (plan.ready_file, f"{self._epoch}\n")
        try:
            supervisor.start(environ, [] if number is None else [number])
            self.supervisor = supervisor
            async with probed(acquired, client, clock, job.patience, probe) as lease:
                running = asyncio.create_task(supervisor.run(job.argv, lease, ready))
                self._lease = lease
                self.report(f"elected, epoch {self._epoch}")
                try:
                    await asyncio.wait({running, self._asking}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    self._lease = None
                    running.cancel()  # which ends the command before it returns
                    await asyncio.wait({running})
                if running.cancelled():
                    return Ended(Reason.EXITED, 0, "ended to hand over")
                return explained(running.result(), acquired)
        finally:
            self.supervisor = self._lease = None
            await supervisor.stop()

    async def _request_to_take(self, client: AsyncClient) -> SuccessionRequest:
        """Return when another candidate should be elected that has not been refused before."""
        plan, name = self._plan, self.job.name
        above = None
        if plan.gives_way:
            above = WEIGHT if plan.weight is None else plan.weight
        request: SuccessionRequest | None = None
        while True:
            try:
                request = await next_request(client, name, self._epoch, above)
                if request is not None and (request, request.zxid) not in self._refused:
                    choose = named(request.to) if request.to else heaviest({})
                    choose((await client.election(name)).candidates)  # before anything is stopped
                    return request
            except BadArgumentsError as error:
                assert request is not None, "only a candidate that does not wait is refused"
                self._refuse(request, error)
            except (UnavailableError, OutcomeUnknownError):
                pass  # for now
            except CoordinatorError as error:
                note(f"{self.job.title}: no hand-over can be asked of it: {error.message}")
                await asyncio.get_running_loop().create_future()  # it leads as well as before
            await client.wait(client.retry_delay_ms(5))

    async def _has_handed_over(
        self,
        client: AsyncClient,
        queue: CandidateQueue,
        acquired: Acquired,
        request: SuccessionRequest,
    ) -> bool:
        """Whether another one is elected, or may be; False: this one still is, certainly."""
        self.report(f"handing over, epoch {self._epoch}")
        try:
            weights = {} if request.to else await weights_of(client, self.job.name)
            queue.choice = named(request.to) if request.to else heaviest(weights)
            queue.asked = request
            was_elected = await queue.release(acquired.grant)
        except BadArgumentsError as error:
            self._refuse(request, error)
            return False
        except OutcomeUnknownError as error:
            note(f"{self.job.title}: given up, maybe handed over: {error.message}")
            return True
        except CoordinatorError as error:
            note(f"{self.job.title}: given up, not handed over: {error.message}")
            return True
        finally:
            queue.choice = None
        if not was_elected:
            note(f"{self.job.title}: not handed over: it was not elected any more")
            return True
        asked = f" ({request.by}: {request.reason})" if request.by else ""
        note(f"{self.job.title}: handed over to {request.to or 'the next'}{asked}")
        return True

    def _refuse(self, request: SuccessionRequest, error: CoordinatorError) -> None:
        note(f"{self.job.title}: stays elected: {error.message}")
        self._refused = [*self._refused, (request, request.zxid)][-_REFUSED_MAX:]


def removed_ready_file(path: str | None) -> str | None:
    """Return ``path`` made absolute; what an earlier process left there is gone.

    Raises:
        OSError: nothing can be written there.
    """
    if path is None:
        return None
    path = os.path.abspath(path)
    os.unlink(ready_draft(path))
    with suppress(FileNotFoundError):
        os.unlink(path)
    return path
