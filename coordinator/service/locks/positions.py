"""The positions of waiting contenders in their queue, reported to those that asked, not too often.

A departure changes the position of every contender behind it; if each departure were reported, one
hand-over would cost as much as the queue is long. The next holder is woken at once (``queues``).

1. A queue that was quiet is looked at in the next pass of the loop; after that once in
   ``EVERY_MS``, or more seldom where very many wait: a member reports about a thousand positions
   a second at most.
2. Some contenders are notified at a time, with other work in between, and always of their position
   at that moment; a position that a contender has seen is not sent again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from coordinator.clock import Clock
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.timers import Timers

EVERY_MS: Final = 500
_NOTIFIED_AT_ONCE: Final = 50


class Observer:
    """One attempt whose client wants to see its position, the greatest of its queues."""

    __slots__ = ("is_gone", "on_position", "own_paths", "position")

    def __init__(
        self, own_paths: tuple[str, ...], position: int, on_position: Callable[[int], None]
    ) -> None:
        self.own_paths = own_paths
        self.position = position
        self.on_position = on_position
        self.is_gone = False

    def directories(self) -> list[str]:
        """Return the queues in which its contenders wait."""
        return [path[: path.rindex("/")] for path in self.own_paths]


class Positions:
    """The observers of every queue of one member."""

    def __init__(self, replica: MachineReplica, clock: Clock, timers: Timers) -> None:
        self._replica = replica
        self._clock = clock
        self._timers = timers
        self._observers: dict[str, dict[Observer, None]] = {}
        self._observer_count = 0
        self._quiet_until_ms: dict[str, int] = {}
        """Queues that were looked at not long ago, and when they may be again."""
        self._changed: dict[str, None] = {}
        """Queues to be looked at: in the next pass, or when their time has come."""
        self._to_notify: deque[Observer] = deque()
        self._is_awake = False

    def observe(
        self, own_paths: tuple[str, ...], position: int, on_position: Callable[[int], None]
    ) -> Observer:
        """Tell ``on_position`` the present position now and each new one later."""
        observer = Observer(own_paths, position, on_position)
        self._observer_count += 1
        for directory in observer.directories():
            self._observers.setdefault(directory, {})[observer] = None
        on_position(position)
        return observer

    def forget(self, observer: Observer) -> None:
        """Report no more positions to ``observer``."""
        observer.is_gone = True
        self._observer_count -= 1
        for directory in observer.directories():
            observers = self._observers.get(directory, {})
            observers.pop(observer, None)
            if not observers:
                self._observers.pop(directory, None)

    @property
    def are_observed(self) -> bool:
        """Whether there is an observer of any queue."""
        return len(self._observers) > 0

    def on_deleted(self, path: str) -> None:
        """A znode was deleted; if it was in an observed queue, look at that queue soon."""
        directory = path[: path.rindex("/")]
        if directory in self._observers and directory not in self._changed:
            self._look_soon(directory)

    def on_restore(self) -> None:
        """Look at every observed queue again: any may have changed."""
        for directory in self._observers:
            if directory not in self._changed:
                self._look_soon(directory)

    def _look_soon(self, directory: str) -> None:
        self._changed[directory] = None
        quiet_until_ms = self._quiet_until_ms.get(directory)
        if quiet_until_ms is None:
            asyncio.get_running_loop().call_soon(self._look, directory)
        # Else it is looked at when that time has come.

    def _look(self, directory: str) -> None:
        """Notify each observer of a queue whose position has changed."""
        self._changed.pop(directory, None)
        observers = self._observers.get(directory)
        if observers is None:
            self._quiet_until_ms.pop(directory, None)
            return
        now_ms = self._clock.monotonic_ms()
        self._quiet_until_ms[directory] = again_ms = now_ms + max(EVERY_MS, self._observer_count)
        self._timers.at(again_ms, lambda: self._look_again(directory))
        self._to_notify.extend(observers)
        if not self._is_awake:
            self._is_awake = True
            self._notify()

    def _look_again(self, directory: str) -> None:
        del self._quiet_until_ms[directory]
        if directory in self._changed:
            self._look(directory)

    def _notify(self) -> None:
        locks = self._replica.machine.locks
        for _ in range(min(_NOTIFIED_AT_ONCE, len(self._to_notify))):
            observer = self._to_notify.popleft()
            if observer.is_gone:
                continue
            standings = [locks.standing(path) for path in observer.own_paths]
            if not all(each.is_queued for each in standings):
                continue  # it has left; the attempt that waits for it notices
            position = max(each.position for each in standings)
            if position not in (observer.position, 0):
                observer.position = position
                observer.on_position(position)
        self._is_awake = bool(self._to_notify)
        if self._is_awake:
            asyncio.get_running_loop().call_soon(self._notify)
