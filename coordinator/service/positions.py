"""Tells waiting contenders where they stand in the queue, as often as that changes.

Apart from the waking of the next holder, because this concerns everybody in the queue: whoever
asked is looked at once per pass of the event loop in which somebody left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.service.replica import MachineReplica


class Observer:
    """One attempt whose client wants to see its position, the greatest of its queues."""

    __slots__ = ("on_position", "own_paths", "position")

    def __init__(
        self, own_paths: tuple[str, ...], position: int, on_position: Callable[[int], None]
    ) -> None:
        self.own_paths = own_paths
        self.position = position
        self.on_position = on_position

    def directories(self) -> list[str]:
        return [path[: path.rindex("/")] for path in self.own_paths]


class Positions:
    """The observers of every queue of one member."""

    def __init__(self, replica: MachineReplica) -> None:
        self._replica = replica
        self._observers: dict[str, dict[Observer, None]] = {}
        self._changed: dict[str, None] = {}

    def observe(
        self, own_paths: tuple[str, ...], position: int, on_position: Callable[[int], None]
    ) -> Observer:
        """Tell ``on_position`` the present position now and each new one later."""
        observer = Observer(own_paths, position, on_position)
        for directory in observer.directories():
            self._observers.setdefault(directory, {})[observer] = None
        on_position(position)
        return observer

    def forget(self, observer: Observer) -> None:
        for directory in observer.directories():
            observers = self._observers.get(directory, {})
            observers.pop(observer, None)
            if not observers:
                self._observers.pop(directory, None)

    def on_deleted(self, path: str) -> None:
        """A znode has gone; if it stood in an observed queue, look at that soon."""
        directory = path[: path.rindex("/")]
        if directory in self._observers:
            if not self._changed:
                asyncio.get_running_loop().call_soon(self._look)
            self._changed[directory] = None

    def on_restore(self) -> None:
        if self._observers and not self._changed:
            asyncio.get_running_loop().call_soon(self._look)
        self._changed.update(dict.fromkeys(self._observers))

    def _look(self) -> None:
        changed, self._changed = self._changed, {}
        locks = self._replica.machine.locks
        for directory in changed:
            for observer in tuple(self._observers.get(directory, ())):
                standings = [locks.standing(path) for path in observer.own_paths]
                if not all(each.is_queued for each in standings):
                    continue  # it has gone, and is told so by who waits
                position = max(each.position for each in standings)
                if position not in (observer.position, 0):
                    observer.position = position
                    observer.on_position(position)
