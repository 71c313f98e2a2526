"""A lock that is held by hand: what its znode says, written by clients and read by members.

The znode is there while the lock is held, at ``ROOT/<name>``; its ctime is when that began. Clients
write it, so a member takes what it cannot read for a hold without a word.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

T = TypeVar("T")

ROOT = "/manual-locks"
BY_CHARACTERS_MAX = 100
NOTE_CHARACTERS_MAX = 500
ALARM_MS_MAX = 366 * 24 * 3_600_000

By = Annotated[str, Meta(max_length=BY_CHARACTERS_MAX)]
NoteText = Annotated[str, Meta(max_length=NOTE_CHARACTERS_MAX)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class ManualHold(Struct, frozen=True):
    """One hold: by whom, what for, and after which time it is an alarm (0: never)."""

    grant_id: Annotated[str, Meta(max_length=100)] = ""
    fencing_token: Number = 0
    by: By = ""
    note: NoteText = ""
    alarm_after_ms: Annotated[int, Meta(ge=0, le=ALARM_MS_MAX)] = 0

    @staticmethod
    def of(data: bytes) -> ManualHold | None:
        """Return the hold that a znode's ``data`` says, None if it says none."""
        return _decoded(data, ManualHold)

    def to_bytes(self) -> bytes:
        """Return what its znode holds."""
        return msgspec.json.encode(self)

    def with_alarm(self, after_ms: int) -> ManualHold:
        """Return it with another time of its alarm."""
        return msgspec.structs.replace(self, alarm_after_ms=after_ms)

    def is_overdue(self, held_ms: int) -> bool:
        """Whether a hold that has lasted so long is an alarm."""
        return 0 < self.alarm_after_ms < held_ms


class EndedManualHold(Struct, frozen=True):
    """A hold that was released, and by whom. Times are of the clients' wall clocks."""

    grant_id: str
    fencing_token: Number
    by: By
    note: NoteText
    since_ms: int
    ended_ms: int
    released_by: By
    release_note: NoteText

    @staticmethod
    def all_of(data: bytes) -> tuple[EndedManualHold, ...]:
        """Return those that a znode's ``data`` says, the newest first; none if it says none."""
        return _decoded(data, tuple[EndedManualHold, ...]) or ()

    @staticmethod
    def all_to_bytes(holds: tuple[EndedManualHold, ...]) -> bytes:
        """Return what the znode of these holds."""
        return msgspec.json.encode(holds)


def _decoded(data: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
