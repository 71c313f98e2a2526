"""The ``with`` of a helper that runs a function under a lock: once the function has returned, its
result is not lost to a release that fails. The release goes on in the background, and an error
that says "nothing was done" would be wrong: the function has run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coordinator.client import AnyClientT, entered
from coordinator.errors import ClientClosedError, CoordinatorError, LockLostError
from coordinator.recipes.grant import Grant
from coordinator.recipes.lock import Lock


@asynccontextmanager
async def finishing(
    lock: Lock[AnyClientT], *, is_recorded: bool = False
) -> AsyncIterator[Grant[AnyClientT]]:
    """Hold ``lock`` for a body, in ``run_either``; what fails after its end is not raised.

    But a loss is, unless ``is_recorded``: what the body did was written under its grant.
    """
    has_ended, loss = False, None
    try:
        async with entered(lock.client, lock) as grant:
            yield grant
            has_ended = True
            if grant.is_unsure and lock._options.when_unsure == "stop" and not is_recorded:
                loss = grant.loss()  # which a client that is closed by now cannot say
    except CoordinatorError as error:
        if loss is not None and isinstance(error, ClientClosedError):
            raise loss from None
        if not has_ended or (isinstance(error, LockLostError) and not is_recorded):
            raise
