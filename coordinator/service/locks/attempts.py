"""One attempt to hold: what is asked, the contenders that it made, and what takes it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from coordinator.model.access import NOBODY, Caller
from coordinator.model.acquire import AcquireRequest
from coordinator.service.locks.contenders import QueuedContender, Recipe
from coordinator.service.locks.withdrawals import Leave
from coordinator.state.commands import Abandon, HeldCondition, OpenSession, Release, RequestId
from coordinator.state.outcomes import Created


class QueueAttempt(NamedTuple):
    """One request to hold: what (several names: all at once), for which session, until when.

    With ``opening`` the same command opens the session; of a repeated request, the first one did.
    """

    recipe: Recipe
    names: tuple[str, ...]
    session_id: str
    data: bytes
    request: RequestId | None
    wait_deadline_ms: int
    describe: Callable[[QueuedContender], Mapping[str, Any]]
    """Shows the present holder in a LockTimeoutError."""
    wanted: AcquireRequest = AcquireRequest()
    if_held: tuple[HeldCondition, ...] = ()
    caller: Caller = NOBODY
    is_try: bool = False
    leave_on_cancel: bool = True
    opening: OpenSession | None = None
    on_queued: Callable[[str, int], None] | None = None
    """Called once, with the session and the position, if it has to wait."""
    on_position: Callable[[int], None] | None = None
    own_request: RequestId | None = None
    """The number of an attempt that has none, drawn by the member, which can then withdraw it as
    well."""
    on_entered: Callable[[bool], None] | None = None
    """Called once it is certain whether a place was taken (and the session opened)."""

    def note_entered(self, is_entered: bool) -> None:
        """Tell who asks whether a place was taken."""
        if self.on_entered is not None:
            self.on_entered(is_entered)


class Mine(Struct, frozen=True):
    """One znode of an attempt."""

    path: str
    czxid: int
    session_id: str

    @classmethod
    def of(cls, created: Created) -> Mine:
        """Return the contender that an outcome says was created."""
        return cls(created.path, created.stat.czxid, created.stat.ephemeral_owner or "")


class QueuePosition(Struct, frozen=True):
    """Whether an attempt holds; ``position`` is the greatest of its queues."""

    is_holder: bool
    position: int


def abandoning(attempt: QueueAttempt, request: RequestId) -> Leave:
    """Return what withdraws an attempt whose contenders may not be known."""
    has_number = attempt.request is not None
    operation = Abandon(
        request.client_id, request.number, request.floor_index, spares_holder=has_number
    )
    return Leave(operation, attempt.session_id, attempt.recipe.word, has_number, attempt.caller)


def releasing(attempt: QueueAttempt, mine: Mine) -> Leave:
    """Return what takes back an attempt whose own request was seen in the log."""
    has_number = attempt.request is not None
    operation = Release(mine.path, mine.czxid, spares_repeated=has_number)
    return Leave(operation, attempt.session_id, attempt.recipe.word, has_number, attempt.caller)
