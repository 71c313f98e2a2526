"""The closing of a door: whether it has begun, and what ends when it begins."""

from __future__ import annotations

from collections.abc import Callable


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

    def ends(self, end: Callable[[], None]) -> EndsWithDoor:
        """``with`` it: call ``end`` when the door closes while the block runs (or at once)."""
        return EndsWithDoor(self, end)

    def add_listener(self, end: Callable[[], None]) -> None:
        """Call ``end`` when the door closes, or at once, until ``remove_listener``."""
        self._listeners.add(end)
        if self.has_begun:
            end()

    def remove_listener(self, end: Callable[[], None]) -> None:
        """Forget ``end``."""
        self._listeners.discard(end)


class EndsWithDoor:
    """What ends with the door while a block runs."""

    __slots__ = ("_closing", "_end")

    def __init__(self, closing: DoorClosing, end: Callable[[], None]) -> None:
        self._closing = closing
        self._end = end

    def __enter__(self) -> None:
        self._closing.add_listener(self._end)

    def __exit__(self, *_exception: object) -> None:
        self._closing.remove_listener(self._end)
