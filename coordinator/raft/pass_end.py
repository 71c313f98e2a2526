"""Work that is done once for all that asked for it in one pass of the event loop.

A member hands much from one step to the next: messages ask for a pass of Raft, which makes messages
to write. What is left to the end of a pass runs after everything that was ready in it. It is the
first of the next pass, before which sockets are read: what is left again and again keeps nothing
else waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class AtPassEnd:
    """One call at the end of the present pass, however often it was asked for there."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left: asyncio.Handle | None = None

    @property
    def is_left(self) -> bool:
        """Whether the call is to come."""
        return self._left is not None

    def leave(self) -> None:
        """Run the call at the end of this pass."""
        if self._left is None:
            if self._loop is None:  # asyncio asks the system for the process each time
                self._loop = asyncio.get_running_loop()
            self._left = self._loop.call_soon(self._run)

    def take_back(self) -> None:
        """Do not run it, if it was left: what it is for is done."""
        if self._left is not None:
            self._left.cancel()
            self._left = None

    def _run(self) -> None:
        self._left = None
        self._call()
