"""The raising of guards to a new grant's token, before the caller gets the grant.

1. A guard that has not seen a successor's token would still accept writes of the former holder. So
   the guards are raised after the grant and before the body: from then on every earlier holder is
   refused.
2. If a guard cannot be raised, the grant is released and the guard's error raised. The same happens
   at the client's overall deadline: a guard that hangs must not keep the lock. If the
   grant was lost by then, LockLostError is raised.
3. Readers hold together, and their raises arrive in any order. So a guard that has seen a higher
   token already costs a reader nothing; it writes nothing that could be refused.
4. A guard with plain methods runs in a thread, so that its store does not stop the heartbeats. One
   whose ``raise_to`` is a coroutine is awaited in the client's event loop, which is the caller's
   only on asyncio.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, runtime_checkable

from coordinator.client import AsyncClient, Client, contained, expect_result, kind_of, settled
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    OutcomeUnknownError,
    StaleTokenError,
)
from coordinator.recipes.locks.grant import Grant


@runtime_checkable
class Guard(Protocol):
    """What a lock needs of a guard; all of ``coordinator.guards``, and yours."""

    def raise_to(self, token: int, /) -> Awaitable[None] | None:
        """Refuse from now on every token lower than ``token``; StaleTokenError if it is lower."""
        ...


def checked_guards(client: AsyncClient | Client, guards: Sequence[Guard]) -> tuple[Guard, ...]:
    """Return the guards if a lock of this client can raise them."""
    for guard in guards:
        if not isinstance(guard, Guard):
            raise BadArgumentsError(
                f"guards: expected objects with raise_to(token), found {guard!r}"
            )
        kind = kind_of(guard.raise_to)
        if kind == "generator function":
            raise BadArgumentsError(
                f"guards: expected a raise_to that raises when it is called, found that of "
                f"{guard!r}, a {kind}, of which a call runs nothing"
            )
        if isinstance(client, Client) and kind == "coroutine function":
            raise BadArgumentsError(
                f"guards: expected guards without await for a Client, found {guard!r}: its "
                f"connections belong to an event loop that this client does not run"
            )
    return tuple(guards)


async def raise_guards(grant: Grant[Any], guards: Sequence[Guard]) -> None:
    """Raise each of ``guards`` to the grant's token; give the grant back if that fails.

    Raises:
        StaleTokenError: a higher token has been seen; the grant is not the latest any more.
        OutcomeUnknownError: a guard has not answered in time.
        LockLostError: raising them took longer than the grant was certainly held.
        Anything else: what the guard's store raised.
    """
    if not guards:
        return
    deadline_s = grant.client.core.settings.timeout_ms / 1000
    try:
        for guard in guards:
            try:
                async with asyncio.timeout(deadline_s) as limit:
                    await _raise(guard, grant.fencing_token)
            except StaleTokenError:
                if grant.kind != "shared":
                    raise
            except TimeoutError as error:
                if not limit.expired():
                    raise  # the store's own
                raise OutcomeUnknownError(
                    f"{grant.lock}: {guard!r} was not raised to token {grant.fencing_token} within "
                    f"{deadline_s} s; the grant was released"
                ) from error
        grant.check()
    except BaseException as error:
        await _give_back(grant, error)
        raise


async def _raise(guard: Guard, token: int) -> None:
    if kind_of(guard.raise_to) == "coroutine function":
        await settled(guard.raise_to(token))
        return
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.done():
            return  # no longer waited for
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(contained(error))

    def run() -> None:
        failure: BaseException | None = None
        try:
            expect_result(guard.raise_to, guard.raise_to(token))
        except BaseException as error:
            failure = error
        try:
            loop.call_soon_threadsafe(settle, failure)
        except RuntimeError:
            pass  # the client was closed while its guard hung

    # A daemon of its own, not the loop's executor: that is waited for when the interpreter exits.
    threading.Thread(target=run, name="coordinator guard", daemon=True).start()
    await done


async def _give_back(grant: Grant[Any], error: BaseException) -> None:
    try:
        await grant.give_back()
    except CoordinatorError as failure:
        grant.keep_releasing()
        error.add_note(f"and the grant could not be released yet: {failure}")
