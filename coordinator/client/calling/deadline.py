"""The deadline of the verb under way: no call that it makes waits beyond it.

A verb may make several calls, each of which could wait for as long as the client's timeout. The
caller was promised one time for all of them. What goes on in the background when the verb has
ended (``background``) has its own time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context

from coordinator.clock import Clock

MARGIN_MS = 500
"""How much later than its timeout a verb may end: who promises a timeout keeps it up to this."""
TRY_MS = 1_000
"""What the members have for a verb whose timeout is 0, which tries once."""
LAST_MS = 350
"""What a verb may use of the margin to learn what its time has come to."""


class _Deadline:
    __slots__ = ("ends_ms", "is_over")

    def __init__(self, ends_ms: int) -> None:
        self.ends_ms = ends_ms
        self.is_over = False


_under_way: ContextVar[_Deadline | None] = ContextVar("coordinator_deadline", default=None)


def limited(now_ms: int, timeout_ms: int) -> int:
    """Return how long a call may take that would take ``timeout_ms``: 0 if the verb has no time."""
    deadline = _under_way.get()
    if deadline is None or deadline.is_over:
        return timeout_ms
    return min(timeout_ms, max(0, deadline.ends_ms - now_ms))


@contextmanager
def within(clock: Clock, limit_ms: int | None) -> Iterator[None]:
    """Let all calls made inside end within ``limit_ms`` from now; None sets no other limit."""
    if limit_ms is None:
        yield
        return
    now_ms = clock.monotonic_ms()
    deadline = _Deadline(now_ms + limited(now_ms, limit_ms))
    token = _under_way.set(deadline)
    try:
        yield
    finally:
        deadline.is_over = True  # for tasks that were begun inside, and go on
        _under_way.reset(token)


def limit_ms_of(timeout: object) -> int | None:
    """Return for how long the calls of a verb with this timeout, in seconds, may wait in all.

    None: it waits without end, or ``timeout`` is no number, which the verb says itself."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout < 1e9:
        return None
    return TRY_MS if timeout == 0 else int(timeout * 1000) + LAST_MS


def without_deadline() -> Context:
    """Return a copy of this context, for what goes on when the verb has ended."""
    context = copy_context()
    context.run(_under_way.set, None)
    return context
