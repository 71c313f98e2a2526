"""The pacing of commit notices: sent at once, or left to the next message. No I/O."""

from __future__ import annotations

from collections.abc import Callable

SOON_MS = 3
"""An append that comes within this time after a commit follows it."""
FOLLOWED_MIN = 32
"""So many commits in a row must have been followed before a notice waits for the next append."""
NOTICE_DELAY_MS = 10
"""The longest time that it waits. A timer for that is set in almost every round, so it is longer
than most rounds are: it goes off for few of them."""


class NoticePacing:
    """Whether a commit index is worth a message of its own, or the next append comes soon.

    A client that writes again as soon as it has its answer makes both follow each other; each
    follower is then woken once for each write instead of twice. One miss ends this for a while.

    A commit behind which entries are under way already is told with theirs, in a round or so.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._followed_count = 0
        self._notified_ms: int | None = None
        """When a notice was sent; None once an append has followed it."""
        self._owed_since_ms: int | None = None

    @property
    def due_ms(self) -> int | None:
        """When the notices that are owed must leave, by the monotonic clock; None without any."""
        return None if self._owed_since_ms is None else self._owed_since_ms + NOTICE_DELAY_MS

    def may_wait(self, *, is_followed: bool = False) -> bool:
        """Return whether followers that lack the commit index may wait for another message.

        ``is_followed``: entries behind it are under way, so another commit comes soon."""
        now_ms = self._now_ms()
        if self._followed_count < FOLLOWED_MIN and not is_followed:
            self._notified_ms, self._owed_since_ms = now_ms, None
            return False
        if self._owed_since_ms is None:
            self._owed_since_ms = now_ms
        if now_ms - self._owed_since_ms < NOTICE_DELAY_MS:
            return True
        self._followed_count = 0
        self._owed_since_ms = None
        return False

    def note_append(self) -> None:
        """Entries have left for a follower, with the commit index."""
        since_ms, self._owed_since_ms = self._owed_since_ms, None
        if since_ms is not None and self._now_ms() - since_ms >= SOON_MS:
            self._followed_count = 0
        if self._notified_ms is not None:
            is_soon = self._now_ms() - self._notified_ms < SOON_MS
            self._followed_count = self._followed_count + 1 if is_soon else 0
            self._notified_ms = None

    def note_nothing_owed(self) -> None:
        """Each follower that holds what is committed has been sent the commit index."""
        self._owed_since_ms = None
