"""The answers to an acquire and a campaign, and the requests about a grant that is held."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from coordinator.model.contention import Kind, MaxHold, Size
from coordinator.model.events import StreamError
from coordinator.model.fields import (
    INTERNAL,
    LEFT_OUT,
    Count,
    Positive,
    ShortText,
    also_called,
    described,
    or_called,
    unless,
)
from coordinator.model.history import GrantRecord, Note, Previous

NOTE_BYTES_MAX = 1_024

Said = Annotated[ShortText, Meta(min_length=1)]
"""A text that says something."""


class GrantReply(Struct, frozen=True):
    """One acquisition: its name, its number, and the znode that stands for it.

    ``lock`` is the lock's name; for an election it is the election's, and the fencing token is
    called ``epoch`` as well. ``previous`` is the grant of this lock that ended last, as far as the
    history reaches. A multi-lock has one token; ``grants`` are those of its locks, the first one
    of which is this; releasing any of them releases all. ``lease_ms`` is the lease of the session,
    and ``safe_ms`` for how long it is safe after the answer left, if it is not renewed, given back
    or forced to end. Both are None when the request was numbered, or no leader promised it in time.
    """

    grant_id: str
    lock: Annotated[str, or_called("election", "is_election")]
    fencing_token: Annotated[Positive, also_called("epoch", "is_election")]
    session_id: str
    path: str
    zxid: Positive
    kind: Annotated[Kind, unless("is_election")] = "exclusive"
    max_hold_ms: Annotated[MaxHold, unless("is_election")] = 0
    previous: Annotated[Previous | None, unless("is_election")] = None
    grants: Annotated[tuple[GrantReply, ...], LEFT_OUT, unless("is_election")] = ()
    lease_ms: (
        Annotated[Positive, described("of a lease of its own; null with session_id")] | None
    ) = None
    safe_ms: Annotated[Count, described("how long it is safe, counted from the answer")] | None = (
        None
    )
    is_election: Annotated[bool, INTERNAL] = False


class AcquireReply(Struct, frozen=True):
    """The reply of an acquire, a campaign or a downgrade."""

    grant: GrantReply


class Granted(AcquireReply, frozen=True, tag_field="type", tag="granted"):
    """The last line of a streamed acquire that was granted."""


class Queued(Struct, frozen=True, tag_field="type", tag="queued"):
    """A line of a streamed acquire: how many are before this contender, and whose it is."""

    position: Count
    session_id: str


AcquireLine = Queued | Granted | StreamError


class ReleaseReply(Struct, frozen=True):
    """The reply of a release or a resignation."""

    grant_id: str
    released: bool = True


class AbandonReply(Struct, frozen=True):
    """The reply of abandoning an attempt; ``deleted_path`` is None when it had left nothing."""

    deleted_path: str | None


class ProclaimRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /v1/elections/{name}/grants/{grant_id}."""

    value: Annotated[bytes, described("what the election publishes")] = b""


class Proclaimed(Struct, frozen=True):
    """The reply of a proclamation; ``zxid`` is its own, or a later one."""

    grant_id: str
    epoch: Positive
    zxid: Positive


class DowngradeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/locks/{name}/grants/{grant_id}/downgrade: only conditions."""


class NoteRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /v1/locks/{name}/grants/{grant_id}/note."""

    note: Annotated[Note, Meta(max_length=NOTE_BYTES_MAX)]


class NoteReply(Struct, frozen=True):
    """The note of a grant was replaced, at ``zxid`` or before."""

    grant_id: str
    zxid: Count


class ExtendRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/locks/{name}/grants/{grant_id}/extend: one of the two, not 0."""

    by_ms: Annotated[Count, described("how much later the hold ends than it would")] = 0
    to_ms: Annotated[Count, described("the hold ends not before so long from now")] = 0


class ExtendReply(Struct, frozen=True):
    """A bounded hold was extended, at ``zxid`` or before, ``extensions`` times in all."""

    grant_id: str
    max_hold_ms: Annotated[MaxHold, described("the hold ends at most so long after this")]
    extensions: Positive
    zxid: Count


class SizeRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /v1/locks/{name}/size; nobody's slot is taken by a smaller one."""

    size: Size


class SizeReply(Struct, frozen=True):
    """The size of a semaphore, as of ``zxid``."""

    lock: str
    size: Size
    zxid: Count


class RevokeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/locks/{name}/revoke: end a grant against its holder's will.

    ``grant_id`` may be left out when exactly one grant holds. ``by`` and ``reason`` go into the
    history and the log: a forced release without them is refused.
    """

    by: Said
    reason: Said
    grant_id: str | None = None


class RevokeReply(Struct, frozen=True):
    """What was ended. Raise every guard to ``fencing_token_min``: the former holder may not know
    of its loss before its next heartbeat, and only the guards keep it out until then."""

    grant: GrantRecord
    fencing_token_min: Positive
