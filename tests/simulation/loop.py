"""One event loop for many processes: simulated time, and owners that pause or die whole.

Every callback belongs to the owner in whose context it was scheduled (a member's life, a client's
life, or nobody: the world itself). Therefore:

1. *Pause* is SIGSTOP: no callback of the owner runs, its timers included, while its clock goes on.
   What comes meanwhile runs afterwards, in order.
2. *Death* is SIGKILL: no callback of the owner ever runs again; nothing is cleaned up.
3. Time jumps to the next timer. The same seed runs the same callbacks in the same order: timers
   that are due at one instant run in the order in which they were set.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
from asyncio import events
from asyncio.base_events import BaseEventLoop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from heapq import heappop, heappush
from typing import Any, TypeVar

from mypy_extensions import mypyc_attr

Result = TypeVar("Result")

BEGINNING_S = 1_000.0
CALLBACKS_AT_ONCE_MAX = 200_000
"""More than this at one instant is a loop without a pause; usual worlds stay below a hundredth."""

_OWNER: contextvars.ContextVar[Owner | None] = contextvars.ContextVar("owner", default=None)

NOBODY = contextvars.Context()
"""The context of what belongs to the world itself."""


class NothingWillHappenError(Exception):
    """Everything waits, and no timer is set."""


class TimeStandsStillError(Exception):
    """So much happened at one instant that nothing else ever will."""


class Owner:
    """One life of one simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.pause_count = 0
        self.resumed_s = 0.0
        """When it last went on after a pause."""
        self.is_dead = False
        self.is_still = False
        """Paused or dead: nothing runs."""
        self.context = copy_context()
        self.context.run(_OWNER.set, self)
        self._parked: deque[Happening] = deque()

    def spawn(self, work: Coroutine[Any, Any, Result], name: str = "") -> asyncio.Task[Result]:
        """Run ``work`` as a task of this process."""
        loop = asyncio.get_running_loop()
        return loop.create_task(work, name=name or self.name, context=self.context)

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        asyncio.get_running_loop().call_soon(callback, *args, context=self.context)

    def at(self, when_s: float, callback: Callable[..., object], *args: Any) -> None:
        asyncio.get_running_loop().call_at(when_s, callback, *args, context=self.context)

    def pause(self) -> None:
        self.is_paused = self.is_still = True
        self.pause_count += 1

    def resume(self) -> None:
        """Let everything run that came while it was paused."""
        if self.is_dead:
            return
        self.is_paused = self.is_still = False
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        self.resumed_s = loop.now_s
        loop._ready.extend(self._parked)
        self._parked.clear()

    def kill(self) -> None:
        self.is_dead = self.is_still = True

    def hold(self, happening: Happening) -> None:
        """Keep what may not run: for later, or so that nothing is finalised at odd moments."""
        self._parked.append(happening)


def _nothing() -> None:
    """What was to happen, and was cancelled."""


class Happening:
    """A callback that runs soon, or at ``when_s``: what the loop gives out for it.

    It has what asyncio asks of a handle, without what only debugging and real loops need; there
    are hundreds of thousands in a world.
    """

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "when_s")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context,
        when_s: float = 0.0,
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self.when_s = when_s

    def when(self) -> float:
        return self.when_s

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """It is skipped when its time comes; what it would have used is let go of now."""
        self._cancelled = True
        self._callback = _nothing
        self._args = ()


@mypyc_attr(native_class=False)  # asyncio's own class is its base
class WorldLoop(BaseEventLoop):
    """Use it through ``run``."""

    _ready: deque[Happening]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self.now_s = BEGINNING_S
        self.is_tearing_down = False
        self.callback_total = self._callbacks_before = 0
        self.problems: list[str] = []
        self._timers: list[tuple[float, int, Happening]] = []
        self._timer_number = 0
        self._holding: dict[Owner, None] = {}
        self.set_exception_handler(self._note)

    def time(self) -> float:
        return self.now_s

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Happening:
        happening = Happening(callback, args, copy_context() if context is None else context)
        self._ready.append(happening)
        return happening

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Happening:
        """There is no other thread; asyncio would put a handle of its own among ours."""
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Happening:
        happening = Happening(callback, args, copy_context() if context is None else context, when)
        self._timer_number = number = self._timer_number + 1
        heappush(self._timers, (when, number, happening))
        return happening

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Happening:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def _run_once(self) -> None:
        """Run until stopped; asyncio would call this once for each pass, which adds up."""
        ready, timers = self._ready, self._timers
        take = ready.popleft
        while True:
            if not ready and not self._stopping:
                self._advance()
            if self.callback_total - self._callbacks_before > CALLBACKS_AT_ONCE_MAX:
                self._callbacks_before = self.callback_total
                raise TimeStandsStillError(f"callbacks without end at {self.now_s:.4f} s")
            # Floats: a timer that is due within a nanosecond is due.
            now_s = self.now_s + 1e-9
            while timers and timers[0][0] <= now_s:
                happening = heappop(timers)[2]
                if not happening._cancelled:
                    ready.append(happening)
            for _ in range(len(ready)):
                happening = take()
                if happening._cancelled:
                    continue
                context = happening._context
                owner = context.get(_OWNER)
                if owner is not None and owner.is_still and not self.is_tearing_down:
                    self._holding[owner] = None
                    owner.hold(happening)
                    continue
                self.callback_total += 1
                try:
                    context.run(happening._callback, *happening._args)
                except Exception as error:
                    self.call_exception_handler(
                        {"message": f"Exception in callback {happening}", "exception": error}
                    )
            if self._stopping:
                return

    def _advance(self) -> None:
        """Jump to the next timer."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not timers:
            raise NothingWillHappenError
        self.now_s = max(self.now_s, timers[0][0])
        self._callbacks_before = self.callback_total

    def _process_events(self, event_list: object) -> None:
        """There is no input or output."""

    def _write_to_self(self) -> None:
        """There is no other thread."""

    def release_all(self) -> None:
        """Put back what paused and dead owners hold, for the end of the world.

        Of the dead only steps of tasks, which are to end: nothing else is done any more."""
        self.is_tearing_down = True
        for owner in self._holding:
            parked = owner._parked
            self._ready.extend(each for each in parked if not owner.is_dead or is_of_task(each))
            parked.clear()

    def _note(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.is_tearing_down:
            error = context.get("exception")
            self.problems.append(f"{context.get('message')}: {error!r}")


def is_of_task(happening: Happening) -> bool:
    """Whether this is a step of a task, or wakes one."""
    return isinstance(getattr(happening._callback, "__self__", None), asyncio.Task)


class OwnClock:
    """The clock of one process: ``rate`` times as fast as the truth; its wall clock may jump."""

    def __init__(self, loop: WorldLoop, rate: float, offset_ms: int) -> None:
        self._loop = loop
        self._rate = rate
        self._offset_ms = offset_ms
        self.wall_offset_ms = 1_700_000_000_000

    def monotonic_ms(self) -> int:
        # Timers end a hair early in floats; a clock must not seem to stand still then.
        return int(self._loop.now_s * 1000 * self._rate + 1e-6) + self._offset_ms

    def wall_ms(self) -> int:
        return self.wall_offset_ms + self.monotonic_ms()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` in simulated time; whoever still runs then is ended."""
    was_collecting = gc.isenabled()
    gc.disable()  # finalisers would run at moments that depend on the memory of this process
    loop = WorldLoop()
    try:
        events.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        _tear_down(loop)
        events.set_event_loop(None)
        loop.close()
        if was_collecting:
            gc.enable()


def _tear_down(loop: WorldLoop) -> None:
    loop.release_all()

    async def end_all() -> None:
        mine = asyncio.current_task()
        for _ in range(20):
            rest = [task for task in asyncio.all_tasks() if task is not mine]
            if not rest:
                return
            for task in rest:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                task.cancel()
            for _ in range(20):
                await asyncio.sleep(0)

    loop.run_until_complete(end_all())
