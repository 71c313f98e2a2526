"""A hold by hand as clients see it, and how it is begun: in one command, or not at all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from coordinator.client import AsyncClient, Check, Create, Delete, ManualHold, MultiReply
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    LockTimeoutError,
    OutcomeUnknownError,
    RequestError,
)
from coordinator.recipes.base.names import WHO_CHARACTERS_MAX, WHY_CHARACTERS_MAX, checked_text
from coordinator.recipes.grant import Grant
from coordinator.recipes.waits import is_seconds

ALARM_S_MAX = 366 * 24 * 3_600
TEXTS = {"by": WHO_CHARACTERS_MAX, "note": WHY_CHARACTERS_MAX}
_LOOK_MS = 100
_KNOWN_S_MAX = 3_600.0
"""Until then its grant has ended, or the outcome is known."""


@dataclass(frozen=True, slots=True)
class HeldByHand:
    """A hold, as it was when it was read. ``since_ms``: wall clock of the cluster."""

    lock: str
    hold: ManualHold
    since_ms: int
    path: str
    czxid: int
    version: int

    @property
    def fencing_token(self) -> int:
        """Higher than that of each holder before, lower than that of each one after."""
        return self.hold.fencing_token

    def condition(self) -> Check:
        """Return the condition "this is still held", for a ``guarded`` write."""
        return Check(self.path, expected_czxid=self.czxid)

    def is_of(self, token: int | str) -> bool:
        """Whether it has this fencing token, or this grant id."""
        return token in (self.hold.fencing_token, self.hold.grant_id)


async def begin(
    core: AsyncClient, lock: str, path: str, hold: ManualHold, grant: Grant[Any]
) -> HeldByHand:
    """Hold ``path`` if ``grant`` holds and nobody does; cancelled, it leaves nothing.

    Raises:
        LockTimeoutError: it is held.
        LockLostError: the grant ended before; nothing is held.
        OutcomeUnknownError: no answer in time; if it is held, it is released once that is known.
    """
    free, make = Check(path, exists=False), Create(path, hold.to_bytes(), parents="persistent")
    # A task of its own, asked for until it is known: once the grant has ended it is refused.
    creating = core.chores.start(
        core.guarded([free], then=[make], if_held=grant, timeout=_KNOWN_S_MAX), f"hold {path}"
    )
    try:
        async with asyncio.timeout(core.time_left_ms() / 1000) as scope:
            reply = await asyncio.shield(creating)
    except (TimeoutError, OutcomeUnknownError) as error:
        core.chores.start(_end(core, path, creating, grant), f"release {path}")
        if isinstance(error, TimeoutError) and not scope.expired():
            raise
        raise OutcomeUnknownError(
            f"{path}: no member answered in time; if it is held, it is released in the background"
        ) from None
    except asyncio.CancelledError:
        core.chores.start(_end(core, path, creating, grant), f"release {path}")
        raise
    if reply.branch != "then":
        raise LockTimeoutError(f"lock {lock!r}: it is held by hand", lock=lock)
    stat = reply.results[-1].stat
    assert stat is not None, "a created znode has a Stat"
    return HeldByHand(lock, hold, stat.ctime_ms, path, stat.czxid, stat.version)


async def _end(
    core: AsyncClient, path: str, creating: asyncio.Task[MultiReply], grant: Grant[Any]
) -> None:
    czxid, failures = None, 0
    try:
        reply = await creating
        stat = reply.results[-1].stat if reply.results else None
        if reply.branch != "then" or stat is None:
            return  # not held
        czxid = stat.czxid
    except OutcomeUnknownError:  # nobody asks any more: it is seen by looking
        while not grant.is_lost:  # until then it may still come true
            await core.wait(_LOOK_MS)
    except CoordinatorError:
        return  # not held
    while True:
        try:
            if czxid is None:
                znode = await core.get(path)
                hold = ManualHold.of(znode.data)
                if hold is None or hold.grant_id != grant.grant_id:
                    return  # another's
                czxid = znode.stat.czxid
            await core.multi([Delete(path, expected_czxid=czxid)])
        except (ClientClosedError, RequestError):
            return
        except CoordinatorError:
            failures += 1
            await core.wait(core.retry_delay_ms(failures))
        else:
            return


def checked(what: str, text: str) -> str:
    """Return ``text``, ``by`` or ``note``; raises as ``checked_text``."""
    return checked_text(what, text, TEXTS[what])


def alarm_ms_of(seconds: float) -> int:
    """Return ``seconds`` in ms; 0 is no alarm.

    Raises:
        BadArgumentsError: out of range.
    """
    if not is_seconds(seconds) or seconds > ALARM_S_MAX:
        raise BadArgumentsError(f"seconds: expected 0 to {ALARM_S_MAX}, found {seconds!r}")
    return round(seconds * 1000)
