"""One piece of work under a recipe, by a thread that takes its time, and who comes next.

``Stage`` notes in which order four things happen:

- *told*: the thread can see that it does not hold any more, or is asked to stop;
- *next*: another client is granted what the thread works under;
- *ended*: the work has really ended;
- *over*: the recipe's verb has returned or raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from coordinator.client import Client
from coordinator.clock import SystemClock
from tests.client.server_thread import ServedMember
from tests.patience import patient

LEASE_S = 12.0
"""Of the client whose thread works: no heartbeat is due within a row."""
_QUIET_S = 0.03
"""How long is looked for what must not happen; what is late is not found, and fails nothing."""


class WorkError(Exception):
    """What work raises that fails."""


class SkippingClock:
    """The machine's clock, which a test lets skip any time."""

    def __init__(self) -> None:
        self._machine = SystemClock()
        self._skipped_ms = 0

    def monotonic_ms(self) -> int:
        return self._machine.monotonic_ms() + self._skipped_ms

    def wall_ms(self) -> int:
        return self._machine.wall_ms()

    def skip(self, by_ms: int) -> None:
        self._skipped_ms += by_ms


class Stage:
    """The client whose thread works, another one, and what happened to both."""

    def __init__(
        self, clock: SkippingClock, member: ServedMember, holder: Client, other: Client, name: str
    ) -> None:
        self.clock = clock
        self.member = member
        self.holder = holder
        self.other = other
        self.name = name
        self.order: list[str] = []
        self.error: BaseException | None = None
        """What the verb raised."""
        self.has_begun = threading.Event()
        self.is_asked = threading.Event()
        """By a way of ending that reaches the thread."""
        self.ask: Callable[[], object] = self.is_asked.set
        """Asks the work to return, as a program does."""
        self.is_ending = threading.Event()
        self.may_end = threading.Event()
        self.fails = False
        self.was_told: list[bool] = []
        """Whether the thread was told, at each moment at which it had to be."""
        self._changed = threading.Condition()
        self._is_told: Callable[[], bool] = lambda: False

    def work(
        self,
        is_told: Callable[[], bool],
        on_told: Callable[[Callable[[], Any]], object] = lambda _: None,
    ) -> str:
        """Work until it is asked to end, and then for as long as the row wants.

        ``is_told``: whether it can see that it does not hold any more; ``on_told`` registers what
        is called then.
        """
        assert not self.has_begun.is_set(), "it works once"
        self._is_told = is_told
        on_told(lambda: self.note("told"))
        try:
            self.has_begun.set()
            assert self.is_asked.wait(patient(20)), "nobody asked the work to end"
            if self.fails:
                raise WorkError(self.name)
            return "result"
        finally:
            self.is_ending.set()
            assert self.may_end.wait(patient(20)), "the work was kept for ever"
            self.note("ended")

    def work_under(self, grant: Any) -> str:
        """Work while ``grant`` holds."""
        return self.work(lambda: grant.is_lost, grant.on_lost)

    def run(self, enter: Callable[[Stage], object]) -> None:
        """Run the verb with its work in this thread; what it raises is kept."""
        try:
            enter(self)
        except BaseException as error:  # also KeyboardInterrupt
            self.error = error
        self.note("over")

    def note(self, what: str) -> None:
        """Note that it happened, and before it what the thread can see by now."""
        with self._changed:
            self._look()
            self._add(what)
            self._changed.notify_all()

    def wait(self, *whats: str) -> None:
        """Wait until all of them have happened."""

        def have_happened() -> bool:
            return set(whats) <= set(self.order)

        with self._changed:
            assert self._changed.wait_for(have_happened, patient(20)), (whats, self.order)

    def look(self) -> None:
        """Note it if the thread can see by now that it does not hold any more."""
        with self._changed:
            self._look()

    def note_whether_told(self) -> None:
        """Note whether the thread can see it now, if it still works."""
        if self.has_begun.is_set() and "ended" not in self.order:
            self.was_told.append(self._is_told())

    def quiet(self) -> None:
        """Give what must not happen a moment to happen."""
        with self._changed:
            self._changed.wait(_QUIET_S)

    def _look(self) -> None:
        if self.has_begun.is_set() and "ended" not in self.order and self._is_told():
            self._add("told")

    def _add(self, what: str) -> None:
        if what not in self.order:
            self.order.append(what)

    def story(self) -> str:
        """Return the order, and what the verb raised; what follows the end of the work may race."""
        order = self.order
        at = order.index("ended") + 1
        told = ", ".join([*order[:at], *sorted(order[at:])])
        return told if self.error is None else f"{told}: {type(self.error).__name__}"


def done(future: Future[Any]) -> None:
    """Raise what the thread raised, if it did."""
    future.result(patient(20))
