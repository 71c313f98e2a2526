"""The grant that a holder has: its fencing token, and how far it may be relied upon.

1. ``fencing_token`` grows with each grant of a lock. Pass it with every write to the store that the
   lock protects and let the store refuse a lower one: nothing else closes the gap between
   looking at a lock and writing, because a process may be paused there for any time.
2. ``check``, ``is_lost`` and ``remaining_safe_ms`` read the clock at each call. Their answer is the
   past as soon as it is given; so is what ``verify`` asks the cluster.
3. Once lost, a grant is never held again. In a child that is forked from its holder it is lost:
   the session is the parent's, who may release at any time.
4. Safe to ask from any thread. A callback runs where nothing waits for it: with a sync client in a
   thread of its own, with an AsyncClient in the loop, where it may be a coroutine function.
5. A forced release (``client.revoke``) ends the grant in the cluster at once. Its holder learns it
   with the next heartbeat; until then only ``verify``, ``if_held=`` and the guards know.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic

from coordinator.client import Client, ClientT, both, expect_client
from coordinator.errors import (
    BadArgumentsError,
    NotOwnerError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes.grant_state import GrantState
from coordinator.recipes.interrupting import Interrupting
from coordinator.recipes.request_listener import OnAsked, RequestListener
from coordinator.recipes.waits import is_seconds

MAX_HOLD_S_MIN = 0.5
MAX_HOLD_S_MAX = 30 * 24 * 3_600.0


@dataclass(frozen=True, slots=True)
class Held:
    """Whether a grant held at ``zxid``, and for how many ms it is certainly safe from now on.

    Never a bare yes: it describes the past when it is read.
    """

    is_held: bool
    zxid: int
    safe_ms: int


class Grant(GrantState[ClientT], Generic[ClientT]):
    """One acquisition of ``lock``; made by the recipes. Its fields are those of ``GrantState``."""

    def on_asked(self, callback: OnAsked) -> Callable[[], None]:
        """Call ``callback(request)`` for each client that asks for the lock; returns how to stop.

        It agrees or refuses (``RevokeRequest``), and releases if it agreed; see ``Revoker``. It is
        called as ``on_lost`` is, for one request after the other. Nobody is called once the grant
        has ended.

        Raises:
            BadArgumentsError: it is a leadership, which has ``Election.asked``; or no function that
                this client can call.
            ClientClosedError: in a forked child, where nobody is asked.
        """
        self.client.core.home.process.check()
        if self.is_election:
            raise BadArgumentsError("on_asked: expected a lock, found an election; see its asked()")
        listener = RequestListener(self.client.core, self.path, self.fencing_token, callback)
        listener.start()
        self.hold.on_end(listener.stop)
        return listener.stop

    def interrupting(self, signal_number: int | None = None) -> Interrupting:
        """Raise LockLostError in the main thread, in a ``with`` of this, when the grant is lost.

        For bodies that wait (``with``), wherever they are, in a sleep or a read; a task in an
        ``async with`` is cancelled by itself. ``signal_number`` is what wakes it: SIGURG.

        Raises:
            BadArgumentsError: not the main thread, or the client of an event loop.
        """
        expect_client(self.client, Client, "grant.interrupting()")
        return Interrupting(self, signal_number)

    @both
    async def verify(self) -> int:
        """Ask the cluster whether this grant still holds; return the safe time left in ms.

        Linearizable, and the past when you read it: for writes elsewhere use the token.

        Raises:
            LockLostError: it does not hold, or its session cannot be relied upon.
            UnavailableError: no member answered in time.
        """
        self.check()
        await self._ask()
        self.check()
        return self.remaining_safe_ms()

    @both
    async def is_held(self) -> Held:
        """Ask the cluster as ``verify`` does, and return the answer instead of raising it.

        Raises:
            UnavailableError: no member answered in time.
        """
        is_current, zxid = await self._ask()
        safe_ms = self.remaining_safe_ms()
        return Held(is_current and safe_ms > 0, zxid, safe_ms)

    @both
    async def extend(self) -> int:
        """Renew the lease to its full length from now on; return the safe time left in ms.

        Heartbeats do this by themselves for as long as the grant is held; call it only to know,
        before a long step, that the cluster has just agreed. All grants of the session gain by it.
        The end of a hold with ``max_hold`` stays: ``extend_by`` and ``renew_to`` move it.

        Raises:
            LockLostError: the grant is not held any more; nobody else's lease was touched.
            UnavailableError: no member answered in time; the grant is as safe as it was.
        """
        self.check()
        await self._renew()
        self.check()
        return self.remaining_safe_ms()

    async def _renew(self) -> None:
        try:
            await self.hold.renew(self.client.core.time_left_ms())
        except SessionExpiredError as error:
            raise self.loss() from error

    @both
    async def extend_by(self, seconds: float) -> int:
        """Let a hold with ``max_hold`` end so many seconds later; return the safe time left in ms.

        Each call adds. To keep a hold in steps for longer than its ``max_hold``, say ``renew_to``.
        What was answered is not undone: an end that is proposed at the same moment is void.

        Raises:
            LockLostError: the grant is not held any more; nothing was extended for it.
            BadArgumentsError: it has no ``max_hold``; the time is not over 0, or too long in all.
            UnavailableError, OutcomeUnknownError: it was not extended; it may have been.
        """
        return await self._extend(by_ms=_extension_ms("extend_by", seconds))

    @both
    async def renew_to(self, seconds: float) -> int:
        """Let a hold with ``max_hold`` end not before so many seconds from now on.

        An end that is later already stays. Returns the safe time left in ms.

        Raises:
            LockLostError: the grant is not held any more; nothing was extended for it.
            BadArgumentsError: it has no ``max_hold``; the time is not over 0, or too long in all.
            UnavailableError, OutcomeUnknownError: it was not extended; it may have been.
        """
        return await self._extend(to_ms=_extension_ms("renew_to", seconds))

    async def _extend(self, *, by_ms: int = 0, to_ms: int = 0) -> int:
        self.check()
        try:
            self.max_hold_ms = await self._queue.extend(self._reply, by_ms=by_ms, to_ms=to_ms)
        except NotOwnerError as error:
            self.hold.lose("the cluster says that it does not hold any more")
            raise self.loss() from error
        with suppress(UnavailableError):  # the next heartbeat says how much is left
            await self._renew()
        self.check()
        return self.remaining_safe_ms()

    @both
    async def note(self, note: bytes) -> None:
        """Leave a checkpoint (up to 1 KiB) for the next holder, which reads it in ``previous``.

        It replaces the note before, stays with the grant in the history, and survives this process.

        Raises:
            NotOwnerError: the grant does not hold any more; the note was not left.
            BadArgumentsError: it is too long, or this grant can have none.
            UnavailableError, OutcomeUnknownError: it was not left; it may have been.
        """
        await self._queue.note(self._reply, note)

    @both
    async def downgrade(self) -> None:
        """Turn this exclusive grant of a read/write lock into a shared one.

        Readers next in the queue are let in at once; no writer comes in between. Place and token
        stay. Idempotent; there is no way back but to release and to queue again as a writer.

        Raises:
            NotOwnerError, LockLostError: the grant does not hold any more.
            BadArgumentsError: it is not one that can be shared, or its owner counts on it.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        if self.hold.is_counted:
            raise BadArgumentsError(
                f"{self.lock}: expected the grant of an RWLock to downgrade, found that of a "
                f"ReentrantLock: other bodies of its owner rely on holding it alone"
            )
        await self._queue.downgrade(self._reply)
        self.kind = "shared"

    async def _release(self) -> bool:
        """Give the grant back; False when it was lost or released before. Idempotent.

        Raises:
            OutcomeUnknownError, UnavailableError: not known, or not possible now; it still counts
                as held here, and may be tried again.
        """
        return await self.give_back()

    release = both(_release, has_own_time=True)

    async def give_back(self) -> bool:
        """Release, inside a recipe's coroutine; goes on even if the caller is cancelled.

        The grant counts as held until the cluster has said that it is not (redis-py 3847).

        Raises:
            OutcomeUnknownError, UnavailableError: as ``release``.
        """
        return await self.hold.give_back()

    def keep_releasing(self) -> None:
        """Go on releasing in the background until it is known, or the session has ended.

        From any thread."""
        self.client.core.home.at_once(self.hold.keep_releasing)

    async def _ask(self) -> tuple[bool, int]:
        is_current, zxid = await self._queue.is_current(self._reply)
        if not is_current:
            self.hold.lose("the cluster says that it does not hold any more")
        return is_current, zxid


def _extension_ms(verb: str, seconds: float) -> int:
    if not is_seconds(seconds) or not 0 < seconds <= MAX_HOLD_S_MAX:
        raise BadArgumentsError(
            f"{verb}: expected seconds over 0 and up to {MAX_HOLD_S_MAX:g}; found {seconds!r}"
        )
    return max(1, round(float(seconds) * 1000))


Leadership = Grant
"""What an election gives to the elected: a grant, whose fencing token is the epoch."""
