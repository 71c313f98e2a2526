"""Tells waiting contenders where they stand in the queue, as often as that changes.

Apart from the waking of the next holder, because this concerns everybody in the queue: one look at
the queue serves all who asked, once per pass of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.service.replica import MachineReplica
from recipes.contention import sorted_contenders


class Observer:
    """One contender whose client wants to see its position."""

    __slots__ = ("directory", "name", "on_position", "position")

    def __init__(self, path: str, position: int, on_position: Callable[[int], None]) -> None:
        self.directory, _, self.name = path.rpartition("/")
        self.position = position
        self.on_position = on_position


class Positions:
    """The observers of every queue of one member."""

    def __init__(self, replica: MachineReplica) -> None:
        self._replica = replica
        self._observers: dict[str, dict[Observer, None]] = {}
        self._changed: dict[str, None] = {}

    def observe(self, path: str, position: int, on_position: Callable[[int], None]) -> Observer:
        """Tell ``on_position`` the present position now and each new one later."""
        observer = Observer(path, position, on_position)
        self._observers.setdefault(observer.directory, {})[observer] = None
        on_position(position)
        return observer

    def forget(self, observer: Observer) -> None:
        observers = self._observers.get(observer.directory, {})
        observers.pop(observer, None)
        if not observers:
            self._observers.pop(observer.directory, None)

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
        for directory in changed:
            observers = tuple(self._observers.get(directory, ()))
            if not observers:
                continue
            names = sorted_contenders(self._replica.machine.children(directory) or ())
            position_of = {name: position for position, name in enumerate(names)}
            for observer in observers:
                position = position_of.get(observer.name, observer.position)
                if position not in (observer.position, 0):
                    observer.position = position
                    observer.on_position(position)
