"""The part of a grant that the clock alone decides; see ``grant`` for the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self

from coordinator.client import Callback, Check, ClientT, OfOneProcess
from coordinator.client.locks import GrantReply
from coordinator.errors import LockLostError
from coordinator.recipes.hold import Hold
from coordinator.recipes.queue_client import QueueClient
from coordinator.recipes.shares import Share


class GrantState(OfOneProcess, Generic[ClientT]):
    """What is known here of one acquisition of ``lock``.

    ``kind`` is ``exclusive``, ``shared`` or ``slot``. ``max_hold_ms`` is how long it may be held at
    most, 0 without a bound. ``previous`` is the grant of this lock that ended last, with how it
    ended and the note its holder left; None when the history knows none. ``is_election`` when it
    is a leadership. ``hold`` is what keeps it, for the recipes.
    """

    def __init__(
        self, client: ClientT, hold: Hold | Share, queue: QueueClient, reply: GrantReply
    ) -> None:
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

    def with_hold(self, hold: Hold | Share) -> Self:
        """Return another grant of the same place in the queue, kept by ``hold``."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"hold": hold}
        return other

    def check(self) -> None:
        """Ask the clock, and nobody else, whether the grant is certainly held now.

        Raises:
            LockLostError: it is not.
        """
        if self.is_lost:
            raise self.loss()

    def loss(self) -> LockLostError:
        """Return the error that says why this grant is not held."""
        return LockLostError(
            f"{self.lock}: grant {self.grant_id} is not held: {self.hold.reason}",
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
        called = Callback(self.client.core.home, f"on_lost of {self.lock!r}", callback)
        stop = self.hold.on_lost(called)

        def stop_all() -> None:
            stop()
            called.stop()

        return stop_all

    def next_write_number(self) -> int:
        """Return a number for one more write under this token, above all that it gave before.

        With it a guard refuses a write of this very holder that comes late, or a second time. To
        repeat a write whose answer was lost, use the number that it had.

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
