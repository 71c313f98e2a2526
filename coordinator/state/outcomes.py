"""The outcome of a command: a result or a refusal, the zxid after it, and its events.

An outcome is part of the replicated history: the same command after the same history has the same
outcome on every member. Results have tags, by which ``remembered`` tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta, Struct, field

from coordinator.errors import CoordinatorError, from_code
from coordinator.model.events import Event
from coordinator.model.limits import BOUNDS
from coordinator.model.operations import Checked as Checked
from coordinator.model.operations import Created as Created
from coordinator.model.operations import DataSet as DataSet
from coordinator.model.operations import Deleted as Deleted
from coordinator.model.operations import ReadDone as ReadDone
from coordinator.model.operations import ZnodeResult as ZnodeResult
from coordinator.model.znodes import Stat as Stat
from coordinator.state.commands import (
    Abandon,
    Check,
    CloseSession,
    Delete,
    Downgrade,
    ExtendHold,
    Note,
    Read,
    Release,
    RenewCredential,
    Resize,
    Revoke,
    SetData,
    SetLevel,
)


class MultiDone(Struct, frozen=True, gc=False, tag_field="op", tag="multi"):
    results: tuple[ZnodeResult, ...]


class GuardedDone(Struct, frozen=True, gc=False, tag_field="op", tag="guarded"):
    """``is_then`` says which branch ran."""

    is_then: bool
    results: tuple[ZnodeResult, ...]


class SessionOpened(Struct, frozen=True, gc=False, tag_field="op", tag="open_session"):
    session_id: str
    timeout_ms: int


class SessionEnded(Struct, frozen=True, gc=False, tag_field="op", tag="end_session"):
    """``was_open`` is False if this ended nothing: the session had ended before, or never existed.

    ``is_void`` marks an expiry proposed in an older term: it was ignored, and the session may be
    open.
    """

    session_id: str
    was_open: bool
    is_void: bool = False


class SessionFinished(Struct, frozen=True, gc=False, tag_field="op", tag="finish_session"):
    """``left`` counts the ephemerals of an ended session that are still to be deleted."""

    session_id: str
    left: int


class Released(Struct, frozen=True, gc=False, tag_field="op", tag="release"):
    path: str
    czxid: int


class Abandoned(Struct, frozen=True, gc=False, tag_field="op", tag="abandon"):
    """``deleted_path`` is the contender that was removed, None when there was none."""

    deleted_path: str | None


class Reaped(Struct, frozen=True, gc=False, tag_field="op", tag="reap"):
    was_deleted: bool


class Entered(Struct, frozen=True, gc=False, tag_field="op", tag="enter"):
    """The result of entering: the contenders, in the order of the directories.

    ``position`` is the greatest number of contenders before one of them, 0 when ``is_granted``.
    ``is_entered`` is False, and nothing changed, for a try that was not granted at once. The owner
    of the contenders is the session, also if this attempt opened it.
    """

    contenders: tuple[Created, ...]
    is_granted: bool
    position: int
    is_entered: bool = True


class Downgraded(Struct, frozen=True, gc=False, tag_field="op", tag="downgrade"):
    path: str
    czxid: int


class Resized(Struct, frozen=True, gc=False, tag_field="op", tag="resize"):
    """``size_before`` is None if the semaphore was new."""

    directory: str
    size: int
    size_before: int | None


class Noted(Struct, frozen=True, gc=False, tag_field="op", tag="note"):
    path: str
    czxid: int


class HoldExtended(Struct, frozen=True, gc=False, tag_field="op", tag="extend_hold"):
    """The hold ends at most ``max_hold_ms`` after this, its extension number ``extensions``."""

    path: str
    czxid: int
    max_hold_ms: int
    extensions: int


class Revoked(Struct, frozen=True, gc=False, tag_field="op", tag="revoke"):
    """``paths`` are all contenders that were removed: those of one multi-lock go together."""

    path: str
    czxid: int
    paths: tuple[str, ...]
    was_holder: bool


class HoldEnded(Struct, frozen=True, gc=False, tag_field="op", tag="end_hold"):
    """``was_held`` is False when the command was void."""

    path: str
    czxid: int
    was_held: bool


class Reopened(Struct, frozen=True, gc=False, tag_field="op", tag="reopen"):
    """``was_closed`` is False when the command was void."""

    path: str
    czxid: int
    was_closed: bool


class GrantsFinished(Struct, frozen=True, gc=False, tag_field="op", tag="finish_grants"):
    """``left`` counts the queues in which contenders are still to be granted."""

    left: int


class LimitsSet(Struct, frozen=True, gc=False, tag_field="op", tag="set_limits"):
    """``version`` counts the changes; ``changes`` are (name, before, now), in a defined order."""

    version: int
    changes: tuple[tuple[str, int, int], ...]


class LevelSet(Struct, frozen=True, gc=False, tag_field="op", tag="set_level"):
    """``level`` is that of the state now; ``was_changed`` is False if it was so already."""

    level: int
    was_changed: bool


class CredentialRenewed(Struct, frozen=True, gc=False, tag_field="op", tag="renew_credential"):
    session_id: str


class AccessChanged(Struct, frozen=True, gc=False, tag_field="op", tag="change_access"):
    """``revision`` counts the changes of access rights; ``what`` names the command and its object.

    ``was_changed`` is False if all was so already.
    """

    what: str
    revision: int
    was_changed: bool


Result = (
    Created
    | DataSet
    | Deleted
    | Checked
    | MultiDone
    | GuardedDone
    | SessionOpened
    | SessionEnded
    | SessionFinished
    | Released
    | Abandoned
    | Reaped
    | Entered
    | Downgraded
    | Resized
    | Noted
    | HoldExtended
    | Revoked
    | HoldEnded
    | Reopened
    | GrantsFinished
    | LimitsSet
    | LevelSet
    | CredentialRenewed
    | AccessChanged
)


RESULTS: Final[dict[type, type]] = {
    SetData: DataSet, Delete: Deleted, Check: Checked, Read: ReadDone, CloseSession: SessionEnded,
    RenewCredential: CredentialRenewed, Release: Released, Abandon: Abandoned,
    Downgrade: Downgraded, Resize: Resized, Note: Noted, ExtendHold: HoldExtended, Revoke: Revoked,
    SetLevel: LevelSet,
}  # fmt: skip
"""What these operations result in. A field that both have says the same, so a result shows which
operation it is of (``repeats``)."""


_Each = TypeVar("_Each")
Several = Annotated[tuple[_Each, ...], Meta(max_length=BOUNDS["operations_per_multi_max"][1])]
"""As many as one command may come to; more are refused before they are read."""

StatKept = tuple[
    int, int, int, int, int, int, int, int, str | None, int, int, str, int | None
]  # fmt: skip
"""The fields of a ``Stat``, in order, without its bounds: those are of what clients send and read.
A command may have any number in it, and what it came to must be recalled."""


class CreatedKept(Struct, frozen=True, gc=False, tag_field="op", tag="create"):
    """What is kept of a ``Created``; it and those below are written as what they are kept of."""

    path: str
    stat: StatKept


class DataSetKept(Struct, frozen=True, gc=False, tag_field="op", tag="set"):
    path: str
    stat: StatKept


class DeletedKept(Struct, frozen=True, gc=False, tag_field="op", tag="delete"):
    path: str
    deleted_count: int


class ReadDoneKept(Struct, frozen=True, gc=False, tag_field="op", tag="read"):
    path: str
    data: bytes
    stat: StatKept | None


class EnteredKept(Struct, frozen=True, gc=False, tag_field="op", tag="enter"):
    contenders: Several[CreatedKept]
    is_granted: bool
    position: int
    is_entered: bool


ZnodeKept = CreatedKept | DataSetKept | DeletedKept | Checked | ReadDoneKept


class ManyKept(Struct, frozen=True, gc=False, tag_field="op", tag="multi"):
    """What is kept of a ``MultiDone``. A path alone was created with the Stat before it."""

    results: Several[str | ZnodeKept]


class BranchKept(Struct, frozen=True, gc=False, tag_field="op", tag="guarded"):
    """What is kept of a ``GuardedDone``, in the same way."""

    is_then: bool
    results: Several[str | ZnodeKept]


Kept = (
    CreatedKept | DataSetKept | DeletedKept | Checked | ManyKept | BranchKept | SessionOpened
    | SessionEnded | SessionFinished | Released | Abandoned | Reaped | EnteredKept | Downgraded
    | Resized | Noted | HoldExtended | Revoked | HoldEnded | Reopened | GrantsFinished | LimitsSet
    | LevelSet | CredentialRenewed | AccessChanged
)  # fmt: skip
"""As ``Result``, but for what has bounds or holds many results."""


class Refusal(Struct, frozen=True):
    """A refusal as values: the error's code, its message and its facts."""

    code: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def to_error(self) -> CoordinatorError:
        """Return the error that the client gets."""
        return from_code(self.code, self.message, self.fields)


class Outcome(Struct, frozen=True, gc=False, array_like=True):
    """``zxid`` is the machine's after the command; ``events`` is empty when nothing changed.

    ``granted`` are the paths of the contenders that hold from this command on, in queue order.
    ``is_repeat`` marks the first outcome given again to a repeated request; its events and grants
    were delivered the first time and are not repeated.
    """

    zxid: int
    result: Result | None = None
    refusal: Refusal | None = None
    events: tuple[Event, ...] = ()
    is_repeat: bool = False
    granted: tuple[str, ...] = ()

    def unwrap(self) -> Result:
        """Return the result, or raise the refusal as its error."""
        if self.refusal is not None:
            raise self.refusal.to_error()
        assert self.result is not None, "an outcome has a result or a refusal"
        return self.result


Plain = str | int | bool | None
Fact = Plain | Several[Plain | dict[str, Plain]]


class RefusalKept(Struct, frozen=True, gc=False):
    """What is kept of a ``Refusal``."""

    code: str
    message: str
    fields: dict[str, Fact]


class Remembered(Struct, frozen=True, gc=False, array_like=True):
    """What is kept of an outcome for a repeated request; see ``remembered``."""

    zxid: int
    result: Kept | None
    refusal: RefusalKept | None
