"""The renewal of the client's session beside a request that is sent anyway."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from coordinator.client.calling.transport import Headers, Request
from coordinator.wire.messages import SAFE_HEADER, SESSION_ID_HEADER

_SESSION_ID = SESSION_ID_HEADER.lower()
_SAFE = SAFE_HEADER.lower()


class Renewing(Protocol):
    """The session that requests may renew."""

    session_id: str

    def wants_renewal(self, now_ms: int) -> bool:
        """Whether the request that is sent now should renew it; then it does."""
        ...

    def on_renewed(self, sent_ms: int) -> None:
        """An answer says that the request sent at ``sent_ms`` has renewed it."""
        ...

    def on_ended(self, reason: str) -> None:
        """An answer says that it has ended."""
        ...


class Renewal(NamedTuple):
    """One request that renews a session, sent at ``sent_ms`` or later."""

    renewing: Renewing
    sent_ms: int

    def added_to(self, request: Request) -> Request:
        """Return the request, naming the session."""
        headers = Headers(request.headers)
        headers[_SESSION_ID] = self.renewing.session_id
        return request.with_headers(headers)

    def on_answer(self, headers: Mapping[str, str]) -> None:
        """Note that the session was renewed, if the headers of the answer say so."""
        if _SAFE in headers:
            self.renewing.on_renewed(self.sent_ms)
