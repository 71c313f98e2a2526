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

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Generic, Literal

from coordinator.client import Callback, Check, Client, ClientT, OfOneProcess, both, expect_client
from coordinator.client.locks import GrantReply
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    NotOwnerError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes.locks.hold import Hold, QueueClient
from coordinator.recipes.locks.requests import OnAsked, RequestListener
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


class Grant(OfOneProcess, Generic[ClientT]):
    """One acquisition of ``lock``; made by the recipes.

    ``kind`` is ``exclusive``, ``shared`` or ``slot``. ``max_hold_ms`` is how long it may be held at
    most, 0 without a bound. ``previous`` is the grant of this lock that ended last, with how it
    ended and the note its holder left; None when the history knows none. ``is_election`` when it
    is a leadership. ``hold`` is what keeps it, for the recipes.
    """

    _is_counted = False
    """Whether its owner may have more of the same hold."""

    def __init__(self, client: ClientT, hold: Hold, queue: QueueClient, reply: GrantReply) -> None:
        self.client = client
        self.lock = reply.lock
        self.grant_id = reply.grant_id
        self.fencing_token = reply.fencing_token
        self.path = reply.path
        self.session_id = reply.session_id
        self.kind = reply.kind
        self.max_hold_ms = reply.max_hold_ms
        self.previous = reply.previous
        self.is_election = queue.is_election
        self.hold = hold
        self._queue = queue
        self._reply = reply

    def __repr__(self) -> str:
        state = "released" if self.is_released else "lost" if self.is_lost else "held"
        return f"<Grant {self.grant_id} of {self.lock!r}, token {self.fencing_token}, {state}>"

    @property
    def epoch(self) -> int:
        """What an election calls its fencing token."""
        return self.fencing_token

    @property
    def is_released(self) -> bool:
        """Whether the cluster confirmed that this grant was given back."""
        return self.hold.is_released

    @property
    def _reason(self) -> str:
        """Why this grant is not held any more; empty while it is."""
        return self.hold.reason

    @property
    def is_lost(self) -> bool:
        """Whether this grant may not be relied upon, as of now."""
        return self.remaining_safe_ms() == 0

    @property
    def is_unsure(self) -> bool:
        """Whether another client may hold by now although this grant was not released.

        For bodies that continue then (``when_unsure="continue"``): what they do may be done twice.
        """
        return self.is_lost and not self.is_released

    def remaining_safe_ms(self) -> int:
        """Return for how many ms no other client can be granted the lock, 0 when unknown.

        The least of what is left of the lease and of ``max_hold``.
        """
        return self.hold.remaining_safe_ms()

    def check(self) -> None:
        """Ask the clock alone whether the grant is certainly held now.

        Raises:
            LockLostError: it is not.
        """
        if self.is_lost:
            raise self.loss()

    def loss(self) -> LockLostError:
        """Return the error that says why this grant is not held."""
        return LockLostError(
            f"{self.lock}: grant {self.grant_id} is not held: {self._reason}",
            lock=self.lock,
            grant_id=self.grant_id,
            fencing_token=self.fencing_token,
        )

    def on_lost(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call ``callback()`` once when the grant is lost, or is already; returns how to stop that.

        With a sync client it runs in a thread of its own, in which it may block and use the client;
        once that is closed it is called before this returns. With an AsyncClient it runs in the
        loop, and may be a coroutine function.

        Raises:
            BadArgumentsError: it is no function that this client can call.
        """
        called = Callback(self.client.core.own_loop, f"on_lost of {self.lock!r}", callback)
        stop = self.hold.on_lost(called)

        def stop_all() -> None:
            stop()
            called.stop()

        return stop_all

    def next_write_number(self) -> int:
        """Return a number for one more write under this token, higher than those before.

        With it a guard refuses a write of this very holder that comes late, or a second time. To
        repeat a write whose answer was lost, use its number again.

        Raises:
            ClientClosedError: in a forked child, whose parent gives the same numbers.
        """
        return self.hold.next_write_number()

    def condition(self) -> Check:
        """Return the condition "this grant holds" as one of several of a ``guarded`` write.

        For a write that depends on nothing else say ``if_held=grant``: it is decided in the same
        command as well, and refused with LockLostError, which names who holds instead. This
        one is a look at the contender's znode, so in ``multi`` it is refused with NoNodeError.
        """
        return Check(self.path, expected_czxid=self.fencing_token)

    def on_asked(self, callback: OnAsked) -> Callable[[], None]:
        """Call ``callback(request)`` for each client that asks for the lock; returns how to stop.

        It agrees or refuses (``RevokeRequest``), and releases if it agreed; see ``Revoker``. It is
        called as ``on_lost`` is, for one request after the other, until the grant has ended.

        Raises:
            BadArgumentsError: it is a leadership, which has ``Election.asked``; or no function that
                this client can call.
            ClientClosedError: in a forked child, which is not asked.
        """
        self.client.core.own_loop.process.check()
        if self.is_election:
            raise BadArgumentsError("on_asked: expected a lock, found an election; see its asked()")
        listener = RequestListener(self.client.core, self.path, self.fencing_token, callback)
        listener.start()
        self.hold.on_end(listener.stop)
        return listener.stop

    def interrupting(self, signal_number: int | None = None) -> Interrupting:
        """Raise LockLostError in the main thread, in a ``with`` of this, when the grant is lost.

        For bodies that wait (``with``), wherever they are, in a sleep or a read; a task in an
        ``async with`` is cancelled anyway. ``signal_number`` is what wakes it: SIGURG.

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

        Heartbeats do this for as long as the grant is held; call it only to know, before a long
        step, that the cluster has just agreed. All grants of the session gain by it.
        The end of a hold with ``max_hold`` stays: ``extend_by`` and ``renew_to`` move it.

        Raises:
            LockLostError: the grant is not held any more; no other lease was touched.
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
        if self._is_counted:
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

        The grant counts as held until the cluster has said that it is not.

        Raises:
            OutcomeUnknownError, UnavailableError: as ``release``.
        """
        return await self.hold.give_back()

    def keep_releasing(self) -> None:
        """Go on releasing in the background until it is known, or the session has ended.

        From any thread."""
        self.client.core.own_loop.at_once(self.hold.keep_releasing)

    async def _ask(self) -> tuple[bool, int]:
        is_current, zxid = await self._queue.is_current(self._reply)
        if not is_current:
            self.hold.lose("the cluster says that it does not hold any more")
        return is_current, zxid


class Interrupting:
    """The interruption of the main thread when a grant is lost; made by ``Grant.interrupting``.

    ::

        with Lock(client, "search-index") as grant, grant.interrupting():
            rebuild()                        # raises LockLostError wherever it is, when it is lost

    1. The client's own thread notices the loss and sends a signal to the main thread; its handler
       raises there. So a wait for a socket, a lock or ``time.sleep`` ends as well.
    2. The signal is SIGURG unless another is named: a program without a handler ignores it, so one
       that comes late does no harm.
    3. Like KeyboardInterrupt it may come in any line, also in a ``finally``. It comes once.
    4. Only the main thread receives signals. In any other one ask ``grant.check()`` between steps,
       or let ``grant.on_lost(stop.set)`` set a ``threading.Event``.
    """

    def __init__(self, grant: Grant[Any], signal_number: int | None) -> None:
        if not hasattr(signal, "pthread_kill"):
            raise BadArgumentsError(
                "interrupting: expected a system with signals for threads, found none; "
                "`grant.on_lost(stop.set)` reports the loss there"
            )
        self._grant = grant
        self._number = signal.SIGURG if signal_number is None else signal_number
        self._guard = threading.Lock()
        """Held while a signal is sent, and while the handler of before is put back: that may end
        the program at a signal that comes late. The loop never waits for it: the main thread may
        be in a signal handler that waits for the loop."""
        self._is_over = True
        self._previous: Any = None
        self._stop: Callable[[], None] = lambda: None

    def __enter__(self) -> Interrupting:
        if threading.current_thread() is not threading.main_thread():
            raise BadArgumentsError(
                "interrupting: expected the main thread, which alone receives signals, found "
                f"{threading.current_thread().name!r}; `grant.check()` between steps, or "
                "`grant.on_lost(stop.set)`, reports the loss in any thread"
            )
        self._is_over = False
        self._previous = signal.signal(self._number, self._raise)
        self._stop = self._grant.hold.on_lost(self._send)
        return self

    def __exit__(self, *_exception: object) -> Literal[None]:
        self._is_over = True  # from here on the handler raises nothing
        self._stop()
        with self._guard:  # a signal under way has been sent
            signal.signal(self._number, self._previous or signal.SIG_DFL)

    def _send(self) -> None:
        if not self._guard.acquire(blocking=False):
            return  # it is over, or a signal is being sent
        try:
            main = threading.main_thread().ident
            if not self._is_over and main is not None:
                signal.pthread_kill(main, self._number)
        finally:
            self._guard.release()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if not self._is_over and self._grant.is_unsure:
            self._is_over = True
            raise self._grant.loss()
        if callable(self._previous):  # another grant's, around this one, or the program's own
            self._previous(number, frame)


def _extension_ms(verb: str, seconds: float) -> int:
    if not is_seconds(seconds) or not 0 < seconds <= MAX_HOLD_S_MAX:
        raise BadArgumentsError(
            f"{verb}: expected seconds over 0 and up to {MAX_HOLD_S_MAX:g}; found {seconds!r}"
        )
    return max(1, round(float(seconds) * 1000))


Leadership = Grant
"""What an election gives to the elected: a grant, whose fencing token is the epoch."""
