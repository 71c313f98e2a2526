"""One attempt to hold: what is asked, the contenders that it made, and what takes it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from coordinator.model.access import NOBODY
from coordinator.model.acquire import AcquireRequest
from coordinator.service.locks.acquire_options import AcquireOptions
from coordinator.service.locks.contenders import QueuedContender, Recipe
from coordinator.service.locks.withdrawals import Leave
from coordinator.state.commands import Abandon, Release, RequestId
from coordinator.state.outcomes import Created


class QueueAttempt:
    """One request to hold: what (several names: all at once), for which session, until when.

    ``describe`` shows the present holder in a LockTimeoutError; the rest is said by ``how``.
    """

    def __init__(
        self,
        recipe: Recipe,
        names: tuple[str, ...],
        data: bytes,
        wanted: AcquireRequest,
        describe: Callable[[QueuedContender], Mapping[str, Any]],
        how: AcquireOptions,
    ) -> None:
        self.recipe = recipe
        self.names = names
        self.data = data
        self.wanted = wanted
        self.describe = describe
        self.session_id = how["session_id"]
        self.request = how["request"]
        self.wait_deadline_ms = how["wait_deadline_ms"]
        self.is_try = how.get("is_try", False)
        self.caller = how.get("caller", NOBODY)
        self.if_held = how.get("if_held", ())
        self.opening = how.get("opening")
        self.own_request = how.get("own_request")
        self.on_entered = how.get("on_entered")
        self.on_queued = how.get("on_queued")
        self.on_position = how.get("on_position")
        self.leave_on_cancel = how.get("leave_on_cancel", True)

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
