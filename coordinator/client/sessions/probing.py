"""A health probe: the program itself says whether it is well; while it is not, it has no session.

1. A probe has failed when it raises, returns False, or does not answer in time. Several failures in
   a row end the session. Any other result means well.
2. A function runs in a thread of its own, so that it delays neither the event loop nor the
   heartbeats. A coroutine function runs in the loop of an asyncio client; for a sync client, too,
   in a thread of its own, where it has a loop for this run.
3. At most one run is under way: one that hangs counts as a failure each time it is looked at, and
   no second one is started beside it.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from coordinator.client.running.callables import expect_function, expect_result, kind_of
from coordinator.client.running.callbacks import calls_in_threads
from coordinator.errors import BadArgumentsError

SECONDS_MAX = 3_600.0
FAILURES_MAX = 1_000
_TEXT_CHARACTERS_MAX = 300


@dataclass(frozen=True, slots=True)
class HealthProbe:
    """What to ask the program, how often, and for how long it may be unwell.

    Args:
        check: a function or a coroutine function without arguments; see above for its answers.
        every: seconds from the answer of one run to the next run.
        failures: after so many failures in a row the session is ended.
        timeout: seconds after which a run without an answer has failed.
    """

    check: Callable[[], object]
    every: float = 2.0
    failures: int = 3
    timeout: float = 2.0

    def __post_init__(self) -> None:
        expect_function("probe", self.check, may_wait=True)
        for name, seconds in (("every", self.every), ("timeout", self.timeout)):
            if not 0 < seconds <= SECONDS_MAX:
                raise BadArgumentsError(
                    f"probe: expected {name} above 0 s, up to {SECONDS_MAX:g} s, found {seconds}"
                )
        if not 1 <= self.failures <= FAILURES_MAX:
            raise BadArgumentsError(
                f"probe: expected 1 to {FAILURES_MAX} failures, found {self.failures}"
            )


class Prober:
    """Runs one probe, for one client."""

    def __init__(self, probe: HealthProbe) -> None:
        self._probe = probe
        self._run: asyncio.Task[str] | None = None
        self._has_returned: threading.Event | None = None
        """Set when the function that runs in a thread has returned; None before the first."""

    async def look(self) -> str:
        """Run the probe once; return what is wrong, empty when nothing is."""
        if self._is_running():
            return self._late
        run = self._run = asyncio.get_running_loop().create_task(
            self._answer(), name="health probe"
        )
        try:
            await asyncio.wait({run}, timeout=self._probe.timeout)
        except asyncio.CancelledError:
            run.cancel()
            raise
        if not run.done():
            return self._late
        # Nobody here did it, so the probe itself has ended so: its worker was cancelled, maybe.
        return "it was cancelled" if run.cancelled() else run.result()

    @property
    def _late(self) -> str:
        return f"no answer within {self._probe.timeout:g} s"

    async def failed(self) -> str:
        """Look again and again; return why, once it has failed as often as it may not."""
        failures = 0
        try:
            while True:
                await asyncio.sleep(self._probe.every)
                trouble = await self.look()
                failures = failures + 1 if trouble else 0
                if failures >= self._probe.failures:
                    times = f" {failures} times in a row" if failures > 1 else ""
                    return f"health probe failed{times}: {trouble}"
        finally:
            if self._run is not None:
                self._run.cancel()

    def _is_running(self) -> bool:
        # Not whether the thread is alive: it is so for a moment after it has answered.
        is_in_thread = self._has_returned is not None and not self._has_returned.is_set()
        return is_in_thread or (self._run is not None and not self._run.done())

    async def _answer(self) -> str:
        check = self._probe.check
        limit: asyncio.Timeout | None = None
        try:
            # Not that of asyncio alone: a thread of its pool would be waited for at the exit.
            answer = check() if self._is_for_loop() else await self._in_thread()
            if inspect.isawaitable(answer):
                async with asyncio.timeout(self._probe.timeout) as limit:
                    answer = await answer
            expect_result(check, answer)
        except Exception as error:  # whatever it raises is its answer
            is_late = limit is not None and limit.expired()
            return self._late if is_late else _text_of(error)
        return "it returned False" if answer is False else ""

    def _is_for_loop(self) -> bool:
        """Whether the loop is the program's, and the probe made for it."""
        is_coroutine = kind_of(self._probe.check) == "coroutine function"
        return is_coroutine and not calls_in_threads(asyncio.get_running_loop())

    async def _within(self, answer: Any) -> object:
        """Return what a coroutine answers in a loop of its thread, which ends with it."""
        async with asyncio.timeout(self._probe.timeout):
            return await answer

    def _in_thread(self) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Any] = loop.create_future()
        returned = self._has_returned = threading.Event()
        is_coroutine = kind_of(self._probe.check) == "coroutine function"

        def settle(answer: object, error: Exception | None) -> None:
            if answered.done():
                return  # it was cancelled
            if error is None:
                answered.set_result(answer)
            else:
                answered.set_exception(error)

        def work() -> None:
            answer: object = None
            failure: Exception | None = None
            try:
                answer = self._probe.check()
                if is_coroutine:
                    answer = asyncio.run(self._within(answer))
            except Exception as error:
                failure = error
            except BaseException as error:  # such as SystemExit, which ends nothing but this run
                failure = RuntimeError(repr(error))
            returned.set()
            with suppress(RuntimeError):  # the loop is closed: nothing waits
                loop.call_soon_threadsafe(settle, answer, failure)

        threading.Thread(target=work, name="health probe", daemon=True).start()
        return answered


def _text_of(error: Exception) -> str:
    """Return the error's text as one line of a bounded length, fit to be sent."""
    line = " ".join(str(error).split())[:_TEXT_CHARACTERS_MAX]
    return line.encode("utf-8", "replace").decode() or type(error).__name__
