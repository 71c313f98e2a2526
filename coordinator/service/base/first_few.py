"""The first few of a client in each second: what is let pass before it is looked at closely."""

from __future__ import annotations

from collections.abc import Callable


class FirstFew:
    """Counts what comes, by client; a client is known by its key (``turns``)."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._second = 0
        self._counts: dict[str, int] = {}
        """Of this second: so only clients that ask now are kept."""

    def count(self, client: str) -> int:
        """Count one more of a client; return how many it is in this second, from 1 on."""
        second = self._now_ms() // 1_000
        if second != self._second:
            self._second, self._counts = second, {}
        count = self._counts[client] = self._counts.get(client, 0) + 1
        return count
