"""One attempt to hold: what is asked, the contenders that it made, and what takes it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Required, TypedDict

from msgspec import Struct

from coordinator.model.access import NOBODY, Caller
from coordinator.model.acquire import AcquireRequest
from coordinator.service.locks.contenders import QueuedContender, Recipe
from coordinator.service.locks.withdrawals import Leave
from coordinator.state.commands import Abandon, HeldCondition, OpenSession, Release, RequestId
from coordinator.state.outcomes import Created


class AcquireOptions(TypedDict, total=False):
    """How to wait, for whom and until when; the first three are always given.

    ``wait_deadline_ms`` bounds everything, however many predecessors leave one by one. A try
    decides at once, in one command that leaves nothing behind; the deadline then bounds the
    proposal (and is taken as a second when less). With ``opening`` the same command opens the
    session; of a repeated request, the first one did. ``on_entered`` is called once it is certain
    whether a place was taken (and the session opened). ``own_request`` is the number of an attempt
    that has none, drawn by the member, which can then withdraw it as well. ``on_queued`` is called
    once, if it has to wait, with the session and the place in the queue; ``on_position`` with the
    place, first and whenever it changes, not for 0, which costs the member work.
    ``leave_on_cancel``: whether a cancelled call takes its contender out of the queue.
    """

    session_id: Required[str]
    request: Required[RequestId | None]
    wait_deadline_ms: Required[int]
    is_try: bool
    caller: Caller
    if_held: tuple[HeldCondition, ...]
    opening: OpenSession | None
    own_request: RequestId | None
    on_entered: Callable[[bool], None] | None
    on_queued: Callable[[str, int], None] | None
    on_position: Callable[[int], None] | None
    leave_on_cancel: bool


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
