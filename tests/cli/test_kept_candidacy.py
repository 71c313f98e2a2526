"""What a signal means to ``coordinator elect --keep`` while it resigns after its command."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.cli.holder import finished
from coordinator.cli.locks import job_of
from coordinator.cli.standing import Candidacy, CandidacyPlan
from coordinator.cli.supervisor import Ended, Reason
from coordinator.node.service_manager import ServiceManager


class Resigning(Candidacy):
    """It was elected, its command has ended with 7, and its release takes its time."""

    def __init__(self, *, keeps: bool, signal_number: int | None) -> None:
        options = {"command": ("x",), "lease_s": 10.0, "grace_s": 2.0, "label": "a",
                   "is_shell": False, "is_quiet": True, "probe": None}  # fmt: skip
        settings: Any = SimpleNamespace(connector=_connected, is_json=False)
        job = job_of("elections", "report", None, options)
        super().__init__(settings, job, CandidacyPlan(keeps=keeps), ServiceManager({}))
        self.releasing = asyncio.Event()
        self._forwarded = signal_number

    async def contend(self, client: Any, queue: Any) -> Any:
        async def release(_grant: object) -> None:
            self.releasing.set()
            await asyncio.Event().wait()

        queue.release = release
        return SimpleNamespace(grant=SimpleNamespace(fencing_token=7), is_lost=False)

    async def _request_to_take(self, client: Any) -> Any:
        await asyncio.Event().wait()

    async def _lead(self, client: Any, queue: Any, acquired: Any) -> Ended:
        self.signal_number = self._forwarded  # the command got it, and ended in its own way
        return Ended(Reason.EXITED, 7)


@asynccontextmanager
async def _connected(**_options: object) -> Any:
    yield SimpleNamespace(lock_queue=lambda *_, **__: SimpleNamespace())


@pytest.mark.parametrize(
    ("keeps", "forwarded", "code"),
    [
        (False, None, 7),  # its command has ended, and that is all
        (True, None, 128 + signal.SIGTERM),  # it would contend again
        (True, signal.SIGTERM, 7),  # the command's answer to the first of two signals
    ],
)
def test_a_signal_while_it_resigns(keeps: bool, forwarded: int | None, code: int) -> None:
    """What is reported is what ended the program: with --keep that is the signal."""

    holder = Resigning(keeps=keeps, signal_number=forwarded)

    async def main() -> Ended:
        holder._main = asyncio.create_task(holder.round())
        await holder.releasing.wait()
        holder._on_signal(signal.SIGTERM)
        return await holder._main

    assert finished(holder.settings, holder, lambda: asyncio.run(main())) == code
