"""Sessions as clients see them, from open to closed, and how long a lease is safe."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from coordinator.model.fields import LEFT_OUT, Count, Positive, ShortText, described, one_of

MARGIN_RATIO = 0.025
MARGIN_MS_MIN = 50
"""How much earlier than the server a holder gives up; ``client/lease`` says why it is so much."""

FAILURE_CHARACTERS_MAX = 512
HEARTBEATS_MAX = 1_000
"""In one request."""
LOST_MAX = 100
"""How many lost grants a heartbeat reports; before them there may have been more."""


def margin_ms(timeout_ms: int, ratio: float = MARGIN_RATIO) -> int:
    """Return how much earlier than the server the client gives up."""
    return max(MARGIN_MS_MIN, round(timeout_ms * ratio))


def safe_ms(timeout_ms: int, remaining_ms: int) -> int:
    """Return how long a holder is safe of whose lease so much remains."""
    return max(0, remaining_ms - margin_ms(timeout_ms))


class SessionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/sessions; ``timeout_ms`` None leaves it to the server."""

    timeout_ms: Positive | None = None
    label: ShortText = ""
    by: Annotated[
        ShortText, described("the operator who opens it, on record; may use the reserve")
    ] = ""


class LostGrant(Struct, frozen=True):
    """A grant of an open session that was taken from it; ``by`` and ``reason`` of a forced end."""

    path: str
    fencing_token: Positive
    how: Annotated[str, one_of("forced", "max_hold", "deleted")]
    by: str = ""
    reason: str = ""


class SessionLease(Struct, frozen=True):
    """The reply of opening a session, and of each heartbeat: it lives for ``timeout_ms``.

    ``holds`` has for each bounded hold (``max_hold_ms``) of the session, by the path of its
    contender, how many ms of it are left; like the lease it is counted from when the heartbeat
    was sent. A bounded hold that is missing there has ended. ``lost`` are the latest ``LOST_MAX``
    grants that were taken; each heartbeat reports them again. ``safe_ms`` is None when the opening
    was numbered, because it may have been an earlier one.
    """

    session_id: str
    timeout_ms: Positive
    holds: Annotated[
        dict[str, Count],
        LEFT_OUT,
        described("ms left of each hold with max_hold_ms, by the contender's path"),
    ] = field(default_factory=dict)
    lost: Annotated[
        tuple[LostGrant, ...],
        LEFT_OUT,
        described("grants that were taken from the session while it lives"),
    ] = ()
    safe_ms: Annotated[Count, described("safe for so long after the answer left")] | None = None


class HeartbeatsRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/sessions/heartbeats: the sessions that live."""

    session_ids: Annotated[tuple[str, ...], Meta(min_length=1, max_length=HEARTBEATS_MAX)]


class SessionLeases(Struct, frozen=True):
    """The reply of several heartbeats. Of a session in neither list nothing is known: ask again."""

    sessions: tuple[SessionLease, ...]
    ended: Annotated[tuple[str, ...], described("these have ended, or never were")]


class SessionClosed(Struct, frozen=True):
    """The reply of DELETE /v1/sessions/{id}; ``was_open`` is False when it had ended before."""

    session_id: str
    was_open: bool


class SessionInfo(Struct, frozen=True):
    """An open session; ``ephemerals`` (their paths) only when one session was asked for."""

    session_id: str
    timeout_ms: Positive
    label: str
    opened_ms: Count
    ephemeral_count: Count
    ephemerals: Annotated[tuple[str, ...] | None, LEFT_OUT] = None
    address: Annotated[str, described("where its client is; of IPv6 a /64")] = ""
    client_id: Annotated[str, described("the client id under which it was opened")] = ""
    by: Annotated[str, described("the operator who opened it")] = ""


class SessionList(Struct, frozen=True):
    """A page of the open sessions, in the order of their opening; ``next``: ask for the rest with
    this as ``after``."""

    sessions: tuple[SessionInfo, ...]
    next: Positive | None
