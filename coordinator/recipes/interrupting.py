"""The interruption of the main thread when a grant is lost, for sync bodies.

::

    with Lock(client, "search-index") as grant, grant.interrupting():
        rebuild()                        # raises LockLostError wherever it is, when it is lost

1. The client's own thread notices the loss and sends a signal to the main thread; its handler
   raises there. So a wait for a socket, a lock or ``time.sleep`` ends as well.
2. The signal is SIGURG unless another is named: a program without a handler ignores it, so one that
   comes late does no harm.
3. Like KeyboardInterrupt it may come in any line, also in a ``finally``. It comes once.
4. Only the main thread receives signals. In any other one ask ``grant.check()`` between steps, or
   let ``grant.on_lost(stop.set)`` set a ``threading.Event``.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Literal, Protocol

from coordinator.errors import BadArgumentsError, LockLostError


class TellsLoss(Protocol):
    """A hold, as far as its loss is concerned."""

    def on_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` once when it is lost; returns how to stop that."""
        ...


class Losable(Protocol):
    """A grant, as far as its loss is concerned."""

    @property
    def hold(self) -> TellsLoss:
        """What keeps it, and calls back in the client's loop."""
        ...

    @property
    def is_unsure(self) -> bool:
        """Whether it is lost and was not released."""
        ...

    def loss(self) -> LockLostError:
        """Return the error that says why."""
        ...


class Interrupting:
    """``with`` it around what is to be interrupted; made by ``Grant.interrupting``."""

    def __init__(self, grant: Losable, signal_number: int | None) -> None:
        if not hasattr(signal, "pthread_kill"):
            raise BadArgumentsError(
                "interrupting: expected a system with signals for threads, found none; "
                "`grant.on_lost(stop.set)` reports the loss there"
            )
        self._grant = grant
        self._number = signal.SIGURG if signal_number is None else signal_number
        self._guard = threading.Lock()
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
        with self._guard:
            main = threading.main_thread().ident
            if not self._is_over and main is not None:
                signal.pthread_kill(main, self._number)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if not self._is_over and self._grant.is_unsure:
            self._is_over = True
            raise self._grant.loss()
        if callable(self._previous):  # another grant's, around this one, or the program's own
            self._previous(number, frame)
