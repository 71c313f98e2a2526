"""The source of the grant behind a hold, and where it is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

from coordinator.client.locks import GrantReply


class QueueClient(Protocol):
    """Where a grant comes from and is given back: a ``LockQueue``, or a recipe's own."""

    is_election: bool

    async def release(self, grant: GrantReply) -> bool:
        """Give the grant back; False when it was not held any more."""
        ...

    async def is_current(self, grant: GrantReply) -> tuple[bool, int]:
        """Return whether the cluster still says that this grant holds, and as of which zxid."""
        ...

    async def note(self, grant: GrantReply, note: bytes) -> None:
        """Leave a note with the grant."""
        ...

    async def downgrade(self, grant: GrantReply) -> Any:
        """Turn the exclusive grant into a shared one."""
        ...

    async def extend(self, grant: GrantReply, *, by_ms: int = 0, to_ms: int = 0) -> int:
        """Move the end of a bounded hold; return how many ms from now it is at the latest."""
        ...

    def clean_up(self, work: Coroutine[Any, Any, Any], name: str, owner: str) -> asyncio.Task[Any]:
        """Run ``work`` in the background; ``owner`` acquires again only when it has ended."""
        ...

    def begin_release(self, owner: str) -> None:
        """Let ``owner`` acquire again only after ``end_release``."""
        ...

    def end_release(self, owner: str) -> None:
        """Such a release has ended, whatever it came to."""
        ...
