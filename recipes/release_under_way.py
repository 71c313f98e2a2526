"""One release of a hold, of which other callers wait for the result."""

from __future__ import annotations

from concurrent.futures import Future


class ReleaseUnderWay:
    """A release under way, by the task or thread that asked for it; used under its hold's guard."""

    __slots__ = ("_result", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._result: Future[bool | None] | None = None

    def result(self) -> Future[bool | None]:
        """Return what is done when it is: whether it was held; None if its caller was cancelled.

        Made only if another caller waits for it."""
        if self._result is None:
            self._result = Future()
            self._result.set_running_or_notify_cancel()
        return self._result

    def end(self, was_held: bool | None, failure: Exception | None) -> None:
        """Note what came of it."""
        self.is_done = True
        if self._result is None:
            return
        if failure is None:
            self._result.set_result(was_held)
        else:
            self._result.set_exception(failure)
