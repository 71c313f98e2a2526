"""The request to hold a lock, several at once, or an election."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import fields

from coordinator.model.contention import (
    NAMES_MAX,
    ON_DISCONNECT,
    OWNER_CHARACTERS_MAX,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    HolderInfo,
    Kind,
    LockDelay,
    MaxHold,
    Size,
)
from coordinator.model.fields import INTERNAL, Positive, ShortText, described, one_of, or_called

IF_HELD_MAX = 64


class AcquireRequest(HolderInfo, frozen=True, forbid_unknown_fields=True):
    """What a contender asks for; each field has the name, unit and range of docs/http-locks.md.

    Args:
        label, host, pid, trace_id: who contends, for people to see.
        when_unsure, purpose, guard: recorded with the grant, for people.
        kind: ``exclusive``, ``shared`` or ``slot``.
        owner: distinguishes the owners of one session for the deadlock detection; "" is an owner
            of its own.
        size: how many slots a semaphore has that does not exist yet.
        lock_delay_ms: how long nobody is granted the lock after this grant was lost; 0 to 60,000.
        max_hold_ms: when the grant ends by itself; 0 for never.
        value: what an election publishes when won; bytes. Of the rest an election has only the
            first four.
    """

    kind: Kind = "exclusive"
    owner: Annotated[
        str,
        Meta(max_length=OWNER_CHARACTERS_MAX),
        described("distinguishes owners within a session (deadlocks)"),
    ] = ""
    size: Annotated[Size, described("of a semaphore that does not exist yet")] | None = None
    lock_delay_ms: Annotated[LockDelay, described("closes it after an unclean loss")] = 0
    max_hold_ms: Annotated[MaxHold, described("ends the grant by itself; 0: never")] = 0
    value: Annotated[bytes | None, described("what the election publishes")] = None


def fields_of(request: AcquireRequest) -> dict[str, Any]:
    """Return the fields of ``request`` that a body has to say: those without their default."""
    return {
        name: value for name, default in _DEFAULTS if (value := getattr(request, name)) != default
    }


_DEFAULTS = tuple((each.name, each.default) for each in fields(AcquireRequest))


class Acquire(AcquireRequest, frozen=True, kw_only=True):
    """The body of POST /v1/locks/{name} and of POST /v1/elections/{name}.

    Either ``session_id``, or ``lease_ms``: open a session of its own for this grant. Both, in a
    numbered request: open the session with this id, which the client drew.
    """

    session_id: (
        Annotated[str, described("an open session; or, with lease_ms, the id of a new one")] | None
    ) = None
    lease_ms: (
        Annotated[Positive, described("open a session for this grant; or give session_id")] | None
    ) = None
    session_label: (
        Annotated[ShortText, described("of the session that lease_ms opens; else as label")] | None
    ) = None
    timeout_ms: Annotated[
        int, Meta(ge=0, le=WAIT_MS_MAX), described("how long to wait; 0 tries once")
    ] = WAIT_MS_DEFAULT
    on_disconnect: Annotated[str, one_of(*ON_DISCONNECT)] = "leave"


class AcquireSeveral(Acquire, frozen=True, kw_only=True):
    """The body of POST /v1/locks: all of these locks at once, or none."""

    names: Annotated[tuple[str, ...], Meta(min_length=1, max_length=NAMES_MAX)]


class IfHeld(Struct, frozen=True, forbid_unknown_fields=True):
    """The condition of a write: the grant with this token still holds this lock or election."""

    lock: Annotated[str, or_called("election", "is_election")]
    fencing_token: Positive
    is_election: Annotated[bool, INTERNAL] = False
