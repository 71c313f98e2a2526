"""Simulated time in which work takes time: each owner has a processor that does one thing at once.

What a callback costs is counted, not timed: the calls of functions that it makes, and the bytes
that it sends. So the same run costs the same on every machine, however busy. What becomes due while
its processor works waits in a line, as it does in the loop of a real process.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from heapq import heappop
from typing import Any, TypeVar

from coordinator.client.in_process import PipeEnd
from tests.simulation.loop import NOBODY, Happening, Owner, WorldLoop, _tear_down

Result = TypeVar("Result")

CALL_S = 0.15e-6
"""Of a function of Python or C: a stale read of 150 calls takes some 20 microseconds."""
BYTE_S = 1e-9


class Processor(Owner):
    """A process with a processor of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.free_s = 0.0
        self.worked_s = 0.0
        self.longest_s = 0.0
        """Of one callback."""
        self.line: deque[Happening] = deque()
        self.extra_s = 0.0
        """What the running callback costs beside its calls."""


class ProcessorLoop(WorldLoop):
    """Use it through ``run_with_processors``."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._processors: dict[Processor, None] = {}

    def count(self, _frame: object, event: str, _argument: object) -> None:
        """Of ``sys.setprofile``."""
        if event == "call" or event == "c_call":  # no tuple for each call
            self.calls += 1

    def _run_once(self) -> None:
        ready = self._ready
        self._next_timers()
        for _ in range(len(ready)):
            happening = ready.popleft()
            if happening._cancelled:
                continue
            owner = _processor_of(happening)
            if owner is None or self.is_tearing_down:
                self._call(happening)
            else:
                owner.line.append(happening)
                self._processors[owner] = None
                if len(owner.line) == 1:
                    self._begin_next(owner)

    def _next_timers(self) -> None:
        ready, timers = self._ready, self._timers
        if not ready and not self._stopping:
            self._advance()
        now_s = self.now_s + 1e-9
        while timers and timers[0][0] <= now_s:
            happening = heappop(timers)[2]
            if not happening._cancelled:
                ready.append(happening)

    def release_all(self) -> None:
        """Put back what waits for a processor, too: a task that has not begun has to end."""
        super().release_all()
        for owner in self._processors:
            self._ready.extend(owner.line)
            owner.line.clear()

    def _begin_next(self, owner: Processor) -> None:
        if owner.free_s > self.now_s:
            self.call_at(owner.free_s, self._work, owner, context=NOBODY)
        else:
            self._work(owner)

    def _work(self, owner: Processor) -> None:
        """Do what is first in the line of a processor; it is busy then for what that costs."""
        if not owner.line:
            return  # the end of the world has emptied it
        happening = owner.line.popleft()
        if not happening._cancelled:
            before, owner.extra_s = self.calls, 0.0
            self._call(happening)
            took_s = (self.calls - before) * CALL_S + owner.extra_s
            owner.free_s = self.now_s + took_s
            owner.worked_s += took_s
            owner.longest_s = max(owner.longest_s, took_s)
        if owner.line:
            self._begin_next(owner)

    def _call(self, happening: Happening) -> None:
        try:
            happening._context.run(happening._callback, *happening._args)
        except Exception as error:
            self.call_exception_handler({"message": "in a callback", "exception": error})


def _processor_of(happening: Happening) -> Processor | None:
    from tests.simulation.loop import _OWNER

    owner = happening._context.get(_OWNER)
    return owner if isinstance(owner, Processor) else None


class Wire(PipeEnd):
    """One end of a connection to a process; what comes takes ``delay_s`` and runs as ``owner``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        owner: Processor | None,
        sender: Processor | None,
        delay_s: float,
    ) -> None:
        super().__init__(loop)
        self._owner = owner
        self._sender = sender
        self._context = NOBODY if owner is None else owner.context
        self._delay_s = delay_s

    def _receive(self, data: bytes) -> None:
        if self._sender is not None:
            self._sender.extra_s += len(data) * BYTE_S
        super()._receive(data)

    def _schedule(self) -> None:
        if not self._is_flushing and not self._is_paused:
            self._is_flushing = True
            self._loop.call_later(self._delay_s, self._flush, context=self._context)


def connect(
    loop: asyncio.AbstractEventLoop,
    client: asyncio.Protocol,
    server: Callable[[], asyncio.Protocol],
    owner: Processor,
    *,
    delay_s: float = 1e-4,
) -> None:
    """Connect ``client``, which costs nothing, to what ``server`` makes in a process."""
    near, far = Wire(loop, None, owner, delay_s), Wire(loop, owner, None, delay_s)

    def accept() -> None:
        serving = server()
        far.join(serving, near)
        near.join(client, far)
        serving.connection_made(far)
        loop.call_soon(client.connection_made, near, context=NOBODY)

    owner.soon(accept)


def run_with_processors(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main``, which belongs to nobody, in time that is made of waiting and of work."""
    was_collecting, was_profiling = gc.isenabled(), sys.getprofile()
    gc.disable()
    loop = ProcessorLoop()
    try:
        events.set_event_loop(loop)
        sys.setprofile(loop.count)
        return contextvars.Context().run(loop.run_until_complete, main)
    finally:
        sys.setprofile(was_profiling)
        _tear_down(loop)
        events.set_event_loop(None)
        loop.close()
        if was_collecting:
            gc.enable()
