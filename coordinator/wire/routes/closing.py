"""The closing of a door: whether it has begun, and what ends when it begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DoorClosing:
    """The closing of one door: streams end and waits are given up; short requests go on."""

    def __init__(self) -> None:
        self.has_begun = False
        self._listeners: set[Callable[[], None]] = set()

    def begin(self) -> None:
        """Call every listener. Idempotent."""
        self.has_begun = True
        for end in list(self._listeners):
            end()

    @contextmanager
    def ends(self, end: Callable[[], None]) -> Iterator[None]:
        """Call ``end`` when the door closes while the block runs (or at once)."""
        self.add_listener(end)
        try:
            yield
        finally:
            self.remove_listener(end)

    def add_listener(self, end: Callable[[], None]) -> None:
        """Call ``end`` when the door closes, or at once, until ``remove_listener``."""
        self._listeners.add(end)
        if self.has_begun:
            end()

    def remove_listener(self, end: Callable[[], None]) -> None:
        """Forget ``end``."""
        self._listeners.discard(end)
