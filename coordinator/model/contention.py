"""A contender's description of itself, and the words of requests and replies about queues."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from coordinator.model.fields import ShortText, described, one_of

WAIT_MS_DEFAULT = 10_000
WAIT_MS_MAX = 3_600_000
LOCK_DELAY_MS_MAX = 60_000
MAX_HOLD_MS_MAX = 30 * 24 * 3_600_000
SIZE_MAX = 10_000
OWNER_CHARACTERS_MAX = 128
NAMES_MAX = 64
"""How many locks one multi-lock takes."""
PID_MAX = 2**32 - 1
ON_DISCONNECT = ("leave", "stay")
KINDS = ("exclusive", "shared", "slot")
WHEN_UNSURE = ("stop", "continue")
PURPOSES = ("efficiency", "correctness")

Kind = Annotated[str, one_of(*KINDS)]
Pid = Annotated[int, Meta(ge=0, le=PID_MAX)]
Size = Annotated[int, Meta(ge=1, le=SIZE_MAX)]
LockDelay = Annotated[int, Meta(ge=0, le=LOCK_DELAY_MS_MAX)]
MaxHold = Annotated[int, Meta(ge=0, le=MAX_HOLD_MS_MAX)]


class HolderInfo(Struct, frozen=True):
    """What a contender says of itself, for people; kept as JSON in its znode's data.

    Who it is, where it runs, and from ``when_unsure`` on what its lock has declared: recorded with
    the grant, and shown wherever the grant is; nothing here acts on it. A new option of that kind
    is one more line here.
    """

    label: ShortText = ""
    host: ShortText = ""
    pid: Pid | None = None
    trace_id: ShortText = ""
    when_unsure: Annotated[str, one_of(*WHEN_UNSURE), described("recorded only")] = ""
    purpose: Annotated[str, one_of(*PURPOSES), described("recorded only")] = ""
    guard: Annotated[ShortText, described("recorded only: what checks the token, or a waiver")] = ""
