"""Which member leads, as far as a client knows: where writes and linearizable reads go first."""

from __future__ import annotations

from collections.abc import Callable


class KnownLeader:
    """``url`` is None while no leader is known, or none that can be reached at once.

    A transport that hears of the leader sets it; who is answered badly there says so with
    ``leave``, and goes on with any other member.
    """

    def __init__(self) -> None:
        self.url: str | None = None
        self.on_left: Callable[[str], None] | None = None

    def leave(self, url: str) -> None:
        """Prefer it no more, if ``url`` is the one that was preferred."""
        if self.url == url:
            self.url = None
            if self.on_left is not None:
                self.on_left(url)
