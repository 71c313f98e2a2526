"""The process that a client belongs to: a child that is forked from it has no part in it.

Everything that a client knows is copied into the child: a grant, its lease, a cached value. But
nothing keeps them true there, and the session is the parent's alone. So each answer that is given
without a request asks ``is_ours`` first, and each request is refused by ``check``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import NoReturn

from coordinator.errors import ClientClosedError

_forks = 0
"""How often this process, or one that it was forked from, was forked off."""


def _note_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


class OfOneProcess:
    """Base of what belongs to a client, and so to one process: it cannot be sent to another one."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Raise TypeError, which says what to do instead; called by ``pickle`` and ``copy``."""
        raise TypeError(
            f"cannot pickle or copy a {type(self).__name__}: it belongs to a client of this "
            f"process. Send names, and in the other process connect() and make it there; a grant "
            f"stays here, and its fencing_token may be sent"
        )


class Process:
    """The process in which this was made."""

    __slots__ = ("_forks", "_pid")

    def __init__(self) -> None:
        self._forks = _forks
        self._pid = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether it is this process, and not one that this was forked from."""
        return self._forks == _forks

    @property
    def reason(self) -> str:
        """Why a forked child cannot use what was made there, for people."""
        return (
            f"this client belongs to process {self._pid}, found process {os.getpid()}; after a "
            f"fork the child must connect again"
        )

    def check(self) -> None:
        """Raise ClientClosedError in a forked child."""
        if not self.is_ours:
            raise ClientClosedError(self.reason)


class OwnLoop:
    """Where a client lives; made in its event loop."""

    __slots__ = ("loop", "process")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.process = Process()

    def at_once(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` now in the loop; from another thread ``soon``, before its next call."""
        try:
            is_here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_here = False
        if is_here:
            callback()
        else:
            self.soon(callback)

    def soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` in the loop, from any thread; not at all once that is closed.

        Nor in a forked child, whose copy of the loop does not run."""
        if not self.process.is_ours:
            return
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # nothing waits there any more
