"""One queue: its contenders in their order, how many of them hold, and what closes it."""

from __future__ import annotations

from bisect import bisect_left


class Queue:
    """Contenders by number; the first ``held`` of them hold."""

    __slots__ = ("closings", "contenders", "held")

    def __init__(self) -> None:
        self.contenders: list[tuple[int, str]] = []
        self.held = 0
        self.closings: dict[str, int] = {}
        """The numbers of ``delay-`` znodes by path."""

    @property
    def last_number(self) -> int:
        """Return the highest number in the queue, -1 if it is empty."""
        last = self.contenders[-1][0] if self.contenders else -1
        return max(last, *self.closings.values()) if self.closings else last

    def index(self, number: int, path: str) -> int:
        """Return the place of a contender among those in the queue."""
        return bisect_left(self.contenders, (number, path))

    def has(self, number: int, path: str) -> bool:
        """Whether the contender is in its place."""
        at = self.index(number, path)
        return at < len(self.contenders) and self.contenders[at] == (number, path)

    def is_closed_to(self, number: int) -> bool:
        """Say whether a contender has to wait for the end of a delay."""
        return bool(self.closings) and min(self.closings.values()) < number
