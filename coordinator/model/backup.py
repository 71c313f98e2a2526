"""A backup as it travels: in pieces, each asked for by itself."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from coordinator.model.fields import Count, described


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
