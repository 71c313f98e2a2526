"""One attempt to hold: what is asked, the contenders that it made, and what takes it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Required, TypedDict

from msgspec import Struct

from coordinator.errors import LockTimeoutError, ThrottledError
from coordinator.model.access import NOBODY, Caller
from coordinator.model.acquire import AcquireRequest
from coordinator.service.base.context import MemberContext
from coordinator.service.base.places import SharedPlaces, takes_the_last
from coordinator.service.base.turns import KEY
from coordinator.service.locks.contenders import QueuedContender, Recipe, first_holder
from coordinator.service.locks.holder_info import named
from coordinator.service.locks.manual_holds import in_words, is_held_by_hand
from coordinator.service.locks.withdrawals import Leave
from coordinator.service.reads.reads import LINEARIZABLE, Reads
from coordinator.state.commands import Abandon, HeldCondition, Kind, OpenSession, Release, RequestId
from coordinator.state.machine import StateMachine
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


def not_in_time(
    machine: StateMachine, attempt: QueueAttempt, position: int | None, *, is_seen: bool
) -> LockTimeoutError:
    """Return the error of an attempt that was not granted in time; it names the holder if
    ``is_seen``: this state is no former one."""
    recipe = attempt.recipe
    directories = recipe.directories(attempt.names)
    holders = [first_holder(machine, each) for each in directories]
    closings = [machine.locks.closed(each) for each in directories]
    by_hand = [in_words(machine, each, attempt.caller) for each in directories]
    taken = [any(each) for each in zip(holders, closings, strict=True)]
    at = next((at for at, each in enumerate(by_hand) if each), None)
    if at is None:
        at = next((at for at, each in enumerate(taken) if each), 0)
    holder, name, why = holders[at], recipe.name_at(directories[at]), ""
    if by_hand[at]:
        holder, why = None, f"; {by_hand[at]}"
    elif closings[at]:
        why = "; it is closed for a while, after a holder was lost"
    described = attempt.describe(holder) if holder is not None and is_seen else None
    held_by = "" if described is None else f"; held by {named(described)}"
    return LockTimeoutError(
        f"{recipe.word} {name!r} was not granted in time{why}{held_by}",
        lock=name,
        holder=described,
        position=position,
        zxid=machine.zxid,
    )


class WaitingRoom:
    """The room for attempts that wait on one member: in all, and for one client.

    1. An attempt takes a place before it is queued. A try needs none.
    2. Where there is no room, a free lock can be acquired all the same: an attempt that would hold,
       as this member sees it, goes on as a try, which is queued only if it holds.
    3. An attempt that would wait is refused after a look at a fresh state, with nothing proposed.
    """

    def __init__(self, context: MemberContext, reads: Reads) -> None:
        self._replica = context.replica
        self._reads = reads
        self._metrics = context.metrics
        self._places = SharedPlaces(
            context.config.limits.lock_waiters_max,
            "attempts that wait to hold at one member",
            "limits.lock_waiters_max",
        )

    async def enter(self, attempt: QueueAttempt) -> str | None:
        """Take a place; return the client whose it is, None if the attempt needs none.

        Raises:
            ThrottledError: there is none for this client, and it would have to wait.
            NoLeaderError, ShuttingDownError: whether it would have to is not known.
        """
        if attempt.is_try:
            return None
        client = KEY.get()
        is_last = takes_the_last(self._replica.machine.access, attempt.caller)
        refusal: ThrottledError | None = None
        try:
            self._places.take(client, takes_the_last=is_last)
        except ThrottledError as error:
            refusal = error
        if refusal is None:
            self._metrics.contenders_waiting.set(self._places.total)
            return client
        try:
            if not self._would_hold(attempt):
                await self._reads.fresh(LINEARIZABLE, attempt.wait_deadline_ms)
                if not self._would_hold(attempt):
                    raise refusal
        finally:
            del refusal  # its frames hold it: no cycle is left for the collector
        attempt.is_try = True
        return None

    def leave(self, client: str | None) -> None:
        """Give back what ``enter`` took."""
        if client is not None:
            self._places.give_back(client)
            self._metrics.contenders_waiting.set(self._places.total)

    def _would_hold(self, attempt: QueueAttempt) -> bool:
        machine, wanted = self._replica.machine, attempt.wanted
        kind = Kind(wanted.kind)
        return all(
            machine.locks.would_hold(each, kind, wanted.size) and not is_held_by_hand(machine, each)
            for each in attempt.recipe.directories(attempt.names)
        )
