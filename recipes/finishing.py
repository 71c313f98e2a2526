"""The ``with`` of a helper that runs a function under a lock: once the function has returned, its
result is not lost to a release that fails. The release goes on in the background, and an error
that says "nothing was done" would be wrong: the function has run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from coordinator.client import AsyncClient, Client
from coordinator.errors import CoordinatorError, LockLostError
from recipes.grant import Grant
from recipes.lock import Lock


@contextmanager
def finishing(lock: Lock[Client], *, is_recorded: bool = False) -> Iterator[Grant[Client]]:
    """Hold ``lock`` for a body; what fails after its end is not raised.

    But a loss is, unless ``is_recorded``: what the body did was written under its grant.
    """
    has_ended = False
    try:
        with lock as grant:
            yield grant
            has_ended = True
    except CoordinatorError as error:
        if not has_ended or (isinstance(error, LockLostError) and not is_recorded):
            raise


@asynccontextmanager
async def finishing_async(
    lock: Lock[AsyncClient], *, is_recorded: bool = False
) -> AsyncIterator[Grant[AsyncClient]]:
    """Finish as ``finishing`` does, for an AsyncClient."""
    has_ended = False
    try:
        async with lock as grant:
            yield grant
            has_ended = True
    except CoordinatorError as error:
        if not has_ended or (isinstance(error, LockLostError) and not is_recorded):
            raise
