"""A backup as it travels: in pieces, each asked for by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Struct
from msgspec.structs import replace

from coordinator.model.fields import Count, described

AHEAD_MS_MAX: Final = 5 * 60_000
"""A backup that was made so long after now, or later, is of a clock that is wrong: not counted."""


class ScheduledBackups(Struct, frozen=True):
    """What a member that makes backups by itself says of them; times are wall times."""

    every_ms: Annotated[Count, described("how often one is to be made, by any member")]
    succeeded_ms: Annotated[Count | None, described("when it made its newest; null: never")] = None
    failed_ms: Annotated[Count | None, described("when one of its failed last; null: never")] = None
    failure: Annotated[str, described("why that one failed")] = ""

    def with_success(self, at_ms: int | None) -> ScheduledBackups:
        """Return this with its newest backup made then."""
        return replace(self, succeeded_ms=at_ms)

    def with_failure(self, at_ms: int, failure: str) -> ScheduledBackups:
        """Return this with a backup that failed then."""
        return replace(self, failed_ms=at_ms, failure=failure)

    def is_ahead(self, now_ms: int) -> bool:
        """Whether its newest backup was made by a clock that was ahead of this wall time."""
        return (self.succeeded_ms or 0) > now_ms + AHEAD_MS_MAX


def newest_ms(found: Iterable[ScheduledBackups], now_ms: int) -> int:
    """Return when the newest backup was made, 0: never. One of a clock that was ahead is not
    counted: it would be the newest until that time has come."""
    return max((each.succeeded_ms or 0 for each in found if not each.is_ahead(now_ms)), default=0)


class BackupPiece(Struct, frozen=True):
    """Some of the bytes of a backup; the last piece ends at ``size_bytes``."""

    backup_id: Annotated[str, described("names the backup; the next piece is asked for by it")]
    offset: Annotated[Count, described("where in the backup the data begin")]
    size_bytes: Annotated[Count, described("how long the whole backup is")]
    data: Annotated[bytes, described("the bytes")]

    @property
    def next_offset(self) -> int:
        """Where the next piece begins."""
        return self.offset + len(self.data)

    @property
    def is_last(self) -> bool:
        """Whether the backup ends here."""
        return self.next_offset >= self.size_bytes
