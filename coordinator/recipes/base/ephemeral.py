"""A znode of this client's session: created once, and deleted whatever happens to the caller.

1. Its name is unique: the session's id and a number. So it can be found and deleted although the
   answer to its creation was lost.
2. Its creation is a task of its own, which runs until its outcome is known or the session has
   ended. A caller that is cancelled leaves a task behind that waits for it and deletes.
3. If no member can be reached, only the end of the session deletes it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.client import AsyncClient, Check, Delete, Operation, Session
from coordinator.errors import (
    ClientClosedError,
    CoordinatorError,
    OutcomeUnknownError,
    RequestError,
    SessionError,
    UnavailableError,
)

_KNOWN_S_MAX = 3_600.0
"""Until then its session has ended, or the outcome is known."""


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """A znode that was made; its czxid is a fencing token."""

    path: str
    czxid: int
    session: Session

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition("/")[2]


def unique_name(core: AsyncClient, session: Session) -> str:
    """Return a name for a znode of ``session`` that no other znode has."""
    return f"{session.session_id}-{next(core.shared(itertools.count))}"


async def make(
    core: AsyncClient,
    session: Session,
    path: str,
    conditions: Sequence[Check],
    operations: Sequence[Operation],
    undo: Sequence[Operation] = (),
) -> Ephemeral | None:
    """Do ``operations``, one of which creates ``path``, if all conditions hold; None: they do not.

    Cancelled, it leaves nothing of them but what is not ``path``, and is not undone by ``undo``.

    Raises:
        SessionExpiredError: the session has ended, and what was made with it.
        UnavailableError: no member could be reached in time; nothing is left.
        RequestError: an operation was refused; nothing was done.
    """
    creating = core.background.start(
        session.while_alive(_create(core, session, path, conditions, operations)),
        f"make {path}",
    )
    try:
        async with asyncio.timeout(core.time_left_ms() / 1000) as scope:
            return await asyncio.shield(creating)
    except TimeoutError:
        core.background.start(_remove_late(core, creating, undo), f"take {path} away")
        if not scope.expired():
            raise
        raise UnavailableError(
            f"{path}: no member answered in time; if it was made it is taken away again"
        ) from None
    except asyncio.CancelledError:
        core.background.start(_remove_late(core, creating, undo), f"take {path} away")
        raise


async def remove(core: AsyncClient, made: Ephemeral, also: Sequence[Operation] = ()) -> bool:
    """Delete it, trying until that is known; False when it was gone, or goes with its session.

    ``also`` is done in the same command.
    """
    failures = 0
    while not made.session.is_lost:
        try:
            await core.multi([Delete(made.path, expected_czxid=made.czxid), *also])
        except (ClientClosedError, RequestError, SessionError):
            return False
        except (UnavailableError, OutcomeUnknownError):
            failures += 1
            await core.wait(core.retry_delay_ms(failures))
        else:
            return True
    return False


async def _create(
    core: AsyncClient,
    session: Session,
    path: str,
    conditions: Sequence[Check],
    operations: Sequence[Operation],
) -> Ephemeral | None:
    reply = await core.guarded(conditions, then=operations, timeout=_KNOWN_S_MAX)
    if reply.branch != "then":
        return None
    created = next(each for each in reply.results if each.op == "create" and each.path == path)
    assert created.stat is not None, "a created znode has a Stat"
    return Ephemeral(path, created.stat.czxid, session)


async def _remove_late(
    core: AsyncClient, creating: asyncio.Task[Ephemeral | None], undo: Sequence[Operation]
) -> None:
    try:
        made = await creating
    except CoordinatorError:
        return  # not made, or gone with its session
    if made is not None:
        await remove(core, made, undo)
