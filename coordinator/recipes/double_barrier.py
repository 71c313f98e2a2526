"""A barrier for so many: all begin together, and all end together, round after round.

::

    step = DoubleBarrier(client, "training", 4)
    if step.enter(timeout=60):             # False: the four were not there in time
        compute()
        step.leave(timeout=600)            # True once all four have left

1. Exactly ``size`` members make a round, the first that came. One command ends its beginning, and
   only if each of them is still there; later members wait for the next round.
2. Each member is an ephemeral znode. One that dies while others wait to begin does not count; one
   that dies later counts as having left.
3. ``enter`` returns False only if this member was taken out before the round began, in one command.
   After an error, or cancelled, it may have begun without this member, as if that died at once.
4. If the barrier's znode is deleted while members wait, and made again, they come again.
5. No member is elected here, and none is kept from writing: one that was paused may wake after its
   session's end, when the others have gone on; ``is_in`` says so.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Generic

from coordinator.client import (
    Check,
    ClientT,
    Create,
    Delete,
    Read,
    Session,
    SetData,
    Znode,
    both,
)
from coordinator.errors import BadArgumentsError, NotOwnerError
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.ephemeral import Ephemeral, make, remove, unique_name
from coordinator.recipes.base.maybe_there import as_it_is, listed, names_below, read
from coordinator.recipes.base.names import checked_count, name_of, path_of
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, wait_ms_of

ROOT = "/double-barriers"
SIZE_MAX = 200


class DoubleBarrier(Generic[ClientT]):
    """One member of the barrier ``name``; all name the same ``size``, 1 to 200."""

    def __init__(self, client: ClientT, name: str | int, size: int) -> None:
        self.client = client
        self.name = name_of(name)
        self.size = checked_count("size", size, SIZE_MAX)
        self._path = path_of(ROOT, name)
        self._mine: Ephemeral | None = None
        self._is_entering = False
        self._round: tuple[str, frozenset[str]] = (self._path, frozenset())
        """The znode of the last round that began with us, and who else was in it."""

    @property
    def is_in(self) -> bool:
        """Whether this member is in a round, and its session certainly alive: asks the clock."""
        return self._mine is not None and not self._mine.session.is_lost

    async def _enter(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bool:
        """Wait until ``size`` members are here; False: they were not in time, and this one left.

        Raises:
            NotOwnerError: this member is in a round already, or enters one in another task or
                thread; leave first.
            SessionExpiredError: this client's session ended while waiting.
            UnavailableError, OutcomeUnknownError: no member answered; this one is not in a round,
                though the others may have counted it.
        """
        if self._mine is not None or self._is_entering:
            raise NotOwnerError(
                f"{self._path}: expected to have left before entering again; one object is one "
                f"member"
            )
        self._is_entering = True
        try:
            return await self._enter_within(wait_ms_of(timeout))
        finally:
            self._is_entering = False

    async def _undo_enter(self, is_in: bool) -> None:
        if is_in and self._mine is not None:
            mine, self._mine = self._mine, None
            await remove(self.client.core, mine)

    enter = both(_enter, undo=_undo_enter)

    @both
    async def leave(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bool:
        """Leave, and wait until all of the round have left; False: not in time.

        This member has left in any case; it may be called again to wait longer.

        Raises:
            UnavailableError, OutcomeUnknownError: no member answered at the end of the time.
        """
        core = self.client.core
        if self._mine is not None:
            mine, self._mine = self._mine, None
            core.background.start(remove(core, mine), f"leave {mine.path}")
        directory, others = self._round

        async def look() -> bool | None:
            here = await names_below(core, directory)
            return True if others.isdisjoint(here) else None

        return await until(core, directory, "children", look, wait_ms_of(timeout)) is True

    # --- inside

    async def _enter_within(self, wait_ms: int | None) -> bool:
        core = self.client.core
        ends_ms = None if wait_ms is None else core.clock.monotonic_ms() + wait_ms
        while True:
            session = await core.session(core.time_left_ms() / 1000)
            if (coming := await self._come(session)) is None:
                continue  # a round has begun since
            made = coming.made
            left_ms = None if ends_ms is None else max(0, ends_ms - core.clock.monotonic_ms())
            try:
                is_in = await session.while_alive(self._begin(coming, left_ms))
                session.check()  # the answer may be older than the pause of a whole process
            except BaseException:
                core.background.start(remove(core, made), f"leave {made.path}")
                raise
            if is_in:
                self._mine = made
                return True
            # Not in time; or one too many, for the next round.
            await asyncio.shield(core.background.start(remove(core, made), f"leave {made.path}"))
            if is_in is None:
                return False

    async def _come(self, session: Session) -> _Coming | None:
        """Create this member's znode in the next round; None if that has begun."""
        core = self.client.core
        znode = await read(core, self._path)
        number, now = 0 if znode is None else _number_of(znode), as_it_is(self._path, znode)
        path = f"{self._path}/round-{number:010d}/{unique_name(core, session)}"
        create = Create(path, b"", "ephemeral", session.session_id, parents="container")
        made = await make(core, session, path, [now], [create])
        if made is None:
            return None
        if now.exists is False:  # it was made with this member
            now = Check(self._path, expected_version=0, expected_czxid=made.czxid)
        return _Coming(made, number, now)

    async def _begin(self, coming: _Coming, wait_ms: int | None) -> bool | None:
        """Wait until the round begins: with us, or (False) without; None: not in time."""
        core, made = self.client.core, coming.made
        directory = made.path.rpartition("/")[0]
        found = await until(core, self._path, "subtree", lambda: self._look(coming), wait_ms)
        if found is None:
            reply = await core.guarded(
                [coming.now],
                then=[Delete(made.path, expected_czxid=made.czxid)],
                otherwise=[Read(directory)],
            )
            if reply.branch == "then":
                return None
            found = reply.results[0].data
        members = frozenset(json.loads(found or b"[]"))
        if made.name not in members:
            return None if wait_ms == 0 else False
        self._round = (directory, members - {made.name})
        return True

    async def _look(self, coming: _Coming) -> bytes | None:
        """Return who is in the round if it has begun; begin it if all are here.

        None is, if the barrier was deleted."""
        core, directory = self.client.core, coming.made.path.rpartition("/")[0]
        if as_it_is(self._path, await read(core, self._path)) == coming.now:
            here = [(stat, child) for child, stat in await listed(core, directory)]
            first = sorted(here)[: self.size]
            if len(first) < self.size:
                return None
            are_here = [
                Check(f"{directory}/{name}", expected_czxid=stat.czxid) for stat, name in first
            ]
            members = json.dumps([name for _, name in first]).encode()
            begin = [SetData(self._path, str(coming.number + 1).encode())]
            begin.append(SetData(directory, members))
            reply = await core.guarded([coming.now, *are_here], then=begin)
            return members if reply.branch == "then" else None
        round_znode = await read(core, directory)
        return b"" if round_znode is None else round_znode.data


@dataclass(frozen=True, slots=True)
class _Coming:
    """A member that waits for a round to begin; ``now``: it has not begun."""

    made: Ephemeral
    number: int
    now: Check


def _number_of(znode: Znode) -> int:
    try:
        return int(znode.data or b"0")
    except ValueError:
        raise BadArgumentsError(
            f"{znode.path}: expected a DoubleBarrier, found {znode.data[:60]!r}"
        ) from None
