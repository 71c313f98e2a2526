"""One release of a hold, of which other callers wait for the result."""

from __future__ import annotations

from concurrent.futures import Future


class ReleaseUnderWay:
    """A release under way, by the task or thread that asked for it; used under its hold's guard."""

    __slots__ = ("_result", "failure", "is_done", "was_held")

    def __init__(self) -> None:
        self.is_done = False
        self.was_held: bool | None = None
        """What came of it; None if its caller was cancelled."""
        self.failure: Exception | None = None
        self._result: Future[bool | None] | None = None

    def result(self) -> Future[bool | None]:
        """Return what is done when it is: whether it was held; None if its caller was cancelled.

        Made only if another caller waits for it."""
        if self._result is None:
            self._result = Future()
            self._result.set_running_or_notify_cancel()
        return self._result

    def end(self) -> None:
        """Say what came of it to who waits for it."""
        self.is_done = True
        failure, self.failure = self.failure, None  # its frames hold this
        if self._result is None:
            return
        if failure is None:
            self._result.set_result(self.was_held)
        else:
            self._result.set_exception(failure)
