"""The members as one client asks them: one after the other.

Where all endpoints refuse the connection most probably the URL is wrong: a client that has never
met a member says so after ``FIRST_CONTACT_MS``, which a member that restarts mostly needs less
than. A wait longer than ``USUAL_MS`` has been asked for, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from coordinator.client.calling.failures import CallFailures
from coordinator.client.running.process import Process
from coordinator.errors import BadArgumentsError

FIRST_CONTACT_MS = 1_500
USUAL_MS = 10_000
"""How long a call may take whose caller has set no deadline."""
_PORTS = {"http": 80, "https": 443}


class Endpoints:
    """The members' URLs: one is current and kept while it serves."""

    def __init__(
        self,
        urls: Sequence[str],
        shuffle: Callable[[list[str]], None],
        *,
        is_patient: bool = True,
    ) -> None:
        if not urls:
            raise BadArgumentsError("endpoints: expected the URL of one member or more, found none")
        self._urls = [url.rstrip("/") for url in urls]
        shuffle(self._urls)
        self._at = 0
        self._is_patient = is_patient
        self._process = Process()
        self.were_met = False
        """Whether a member has ever answered this client."""

    def contact_deadline_ms(self, failures: CallFailures, now_ms: int, deadline_ms: int) -> int:
        """Return ``deadline_ms``, or when a call gives up since certainly no member is there.

        In a forked child, for which no member is there, at once."""
        if not self._process.is_ours:
            return now_ms
        if self._is_patient or self.were_met:
            return deadline_ms
        if failures.began_ms is None:
            failures.began_ms = now_ms
        were_all_refused = failures.is_nobody_there and failures.count >= len(self)
        if not were_all_refused or deadline_ms - failures.began_ms > USUAL_MS:
            return deadline_ms
        return min(deadline_ms, failures.began_ms + FIRST_CONTACT_MS)

    @property
    def urls(self) -> Sequence[str]:
        """The URLs of all members."""
        return self._urls

    @property
    def current(self) -> str:
        """The URL of the member that is asked now."""
        return self._urls[self._at]

    def for_call(self, leader: str | None) -> str:
        """Return the URL that a call goes to: of ``leader``, or else of the current member.

        Raises:
            ClientClosedError: in a forked child, which would speak on its parent's connections.
        """
        self._process.check()
        return self.current if leader is None else leader

    def avoid(self, url: str) -> None:
        """Go on with the next one, if ``url`` is still the current one."""
        if self.current == url:
            self._at = (self._at + 1) % len(self._urls)

    def __len__(self) -> int:
        return len(self._urls)


def address_of(endpoint: str) -> tuple[str, int]:
    """Return host and port of the URL of a member."""
    parts = urlsplit(endpoint)
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)
