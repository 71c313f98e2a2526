"""A lock that is held until a person releases it, also when the process that took it has died.

::

    deploys = ManualLock(client, "deploys")
    hold = deploys.acquire("the database moves", by="ann", alarm_after=4 * 3600)
    ...                                     # days later, from anywhere:
    deploys.release(hold.fencing_token, by="bob", note="moved")

1. It is acquired in the queue of the ``Lock`` of its name, in its turn, with a fencing token that
   is higher than all before; the hold is a persistent znode, written in one command on the
   condition that the grant of that token holds. So there are never two, and tokens grow.
2. No session keeps it and none can lose it. It ends only by ``release``, by one who knows its token
   and may write below ``/manual-locks``. Who released it, and why, is kept: the last 20.
3. Every other lock of its name, of whatever kind, waits for it: the members grant nothing there
   while it is held, and while one of those is held no manual hold can begin.
4. Held for longer than ``alarm_after``, it is in the leader's log, in the metrics, in
   ``coordinator status`` and ``diagnose``. ``extend_by`` and ``renew_to`` move that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic

from coordinator.client import (
    AsyncClient,
    Check,
    ClientT,
    Create,
    Delete,
    EndedManualHold,
    ManualHold,
    MultiReply,
    Operation,
    SetData,
    both,
)
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    LockTimeoutError,
    NotOwnerError,
    OutcomeUnknownError,
    RequestError,
    TooManyRetriesError,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.maybe_there import as_it_is, read
from coordinator.recipes.base.names import (
    WHO_CHARACTERS_MAX,
    WHY_CHARACTERS_MAX,
    checked_text,
    name_of,
    path_of,
)
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, is_seconds, wait_ms_of

ALARM_S_MAX = 366 * 24 * 3_600
TEXTS = {"by": WHO_CHARACTERS_MAX, "note": WHY_CHARACTERS_MAX}
_LOOK_MS = 100
_KNOWN_S_MAX = 3_600.0
"""Until then its grant has ended, or the outcome is known."""
ROOT = "/manual-locks"
ENDED_ROOT = "/manual-locks-ended"
ENDED_KEPT = 20
_CONFLICTS_MAX = 20


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
    """Hold ``path`` if ``grant`` holds and it is free; cancelled, it leaves nothing.

    Raises:
        LockTimeoutError: it is held.
        LockLostError: the grant ended before; nothing is held.
        OutcomeUnknownError: no answer in time; if it is held, it is released once that is known.
    """
    free, make = Check(path, exists=False), Create(path, hold.to_bytes(), parents="persistent")
    # A task of its own, asked for until it is known: once the grant has ended it is refused.
    creating = core.background.start(
        core.guarded([free], then=[make], if_held=grant, timeout=_KNOWN_S_MAX), f"hold {path}"
    )
    try:
        async with asyncio.timeout(core.time_left_ms() / 1000) as scope:
            reply = await asyncio.shield(creating)
    except (TimeoutError, OutcomeUnknownError) as error:
        core.background.start(_end(core, path, creating, grant), f"release {path}")
        if isinstance(error, TimeoutError) and not scope.expired():
            raise
        raise OutcomeUnknownError(
            f"{path}: no member answered in time; if it is held, it is released in the background"
        ) from None
    except asyncio.CancelledError:
        core.background.start(_end(core, path, creating, grant), f"release {path}")
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
    except OutcomeUnknownError:  # the command is not sent again: look
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


class ManualLock(Generic[ClientT]):
    """The lock ``name``, held by hand."""

    def __init__(self, client: ClientT, name: str | int) -> None:
        self.client = client
        self.name = name_of(name)
        self._path = path_of(ROOT, name)
        self._ended = path_of(ENDED_ROOT, name)

    async def _undo_acquire(self, held: HeldByHand) -> None:
        await self._release(held.fencing_token, note="the caller was interrupted")

    async def _acquire(
        self,
        note: str,
        *,
        by: str = "",
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        alarm_after: float = 0,
    ) -> HeldByHand:
        """Wait for the turn and hold it by hand; ``alarm_after`` in seconds, 0: no alarm.

        ``by`` is the client's label if it is not given.

        Raises:
            LockTimeoutError: another holds it, by hand or not; nothing is left behind.
            LockLostError, SessionExpiredError, UnavailableError: it is not held.
            OutcomeUnknownError: if it is held, it is released as soon as that is known.
            BadArgumentsError: an argument is out of its range, or the note is empty.
        """
        core, wait_ms = self.client.core, wait_ms_of(timeout)
        if not checked("note", note).strip():
            raise BadArgumentsError("note: expected what the lock is held for, found nothing")
        who, alarm_ms = checked("by", by or core.settings.label[:100]), alarm_ms_of(alarm_after)
        ends_ms = None if wait_ms is None else core.clock.monotonic_ms() + wait_ms
        turn = Lock(self.client, self.name, owner="", timeout=timeout, label="to hold by hand")
        grant = await turn._acquire()
        try:
            left_ms = None if ends_ms is None else max(0, ends_ms - core.clock.monotonic_ms())
            if not await self._wait(left_ms):
                raise LockTimeoutError(
                    f"lock {self.name!r}: it is held by hand; holder() says by whom", lock=self.name
                )
            grant.check()
            hold = ManualHold(grant.grant_id, grant.fencing_token, who, note, alarm_ms)
            return await begin(core, self.name, self._path, hold, grant)
        finally:
            core.background.start(turn._release_until_known(), f"release {self._path}")

    acquire = both(_acquire, undo=_undo_acquire)

    @both
    async def holder(self) -> HeldByHand | None:
        """Return who holds it by hand, None if it is free: the past when it is read.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._holder()

    @both
    async def wait_released(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bool:
        """Wait until it is not held by hand; False if it was held for all of ``timeout``.

        Raises:
            UnavailableError: no member answered at the end of the time.
        """
        return await self._wait(wait_ms_of(timeout))

    async def _release(self, token: int | str, *, by: str = "", note: str = "") -> bool:
        """Release the hold of this fencing token, or grant id; False if it does not hold any more.

        Raises:
            UnavailableError, OutcomeUnknownError: it was not released; it may have been. Again is
                safe: no other hold is released.
            BadArgumentsError: a text is too long.
        """
        core = self.client.core
        who, why = checked("by", by or core.settings.label[:100]), checked("note", note)
        for _ in range(_CONFLICTS_MAX):
            held = await self._holder()
            if held is None or not held.is_of(token):
                return False
            hold, now_ms = held.hold, core.clock.wall_ms()
            ended = EndedManualHold(
                hold.grant_id, hold.fencing_token, hold.by, hold.note,
                held.since_ms, now_ms, who, why,
            )  # fmt: skip
            before, condition = await self._history()
            data = EndedManualHold.all_to_bytes((ended, *before)[:ENDED_KEPT])
            keep: Operation = SetData(self._ended, data)
            if condition.exists is False:
                keep = Create(self._ended, data, parents="persistent")
            conditions, gone = [held.condition(), condition], Delete(self._path)
            if (await core.guarded(conditions, then=[gone, keep])).branch == "then":
                return True
        raise self._too_many("released")

    release = both(_release)

    @both
    async def extend_by(self, token: int | str, seconds: float) -> HeldByHand:
        """Move the alarm so much further away than it was.

        Raises:
            NotOwnerError: the hold of this token or grant id has ended; nothing was changed.
            BadArgumentsError: it has no alarm, or it would be more than 366 days after the begin.
            UnavailableError, OutcomeUnknownError: it was not moved; it may have been.
        """
        more_ms = alarm_ms_of(seconds)

        def later(held: HeldByHand, _now_ms: int) -> int:
            if not held.hold.alarm_after_ms:
                raise BadArgumentsError(f"{self._path}: expected an alarm to move, found none")
            return held.hold.alarm_after_ms + more_ms

        return await self._plan(token, later)

    @both
    async def renew_to(self, token: int | str, seconds: float) -> HeldByHand:
        """Set the alarm to so long from now, by this client's wall clock, wherever it was.

        Raises:
            NotOwnerError: the hold of this token or grant id has ended; nothing was changed.
            BadArgumentsError: it would be more than 366 days after the begin.
            UnavailableError, OutcomeUnknownError: it was not moved; it may have been.
        """
        from_now_ms = alarm_ms_of(seconds)
        return await self._plan(
            token, lambda held, now_ms: max(1, now_ms - held.since_ms + from_now_ms)
        )

    @both
    async def history(self) -> tuple[EndedManualHold, ...]:
        """Return the last 20 holds that were released, the newest first.

        Raises:
            UnavailableError: no member answered in time.
        """
        return (await self._history())[0]

    # --- inside

    async def _holder(self) -> HeldByHand | None:
        if (znode := await read(self.client.core, self._path)) is None:
            return None
        stat, hold = znode.stat, ManualHold.of(znode.data) or ManualHold()
        return HeldByHand(self.name, hold, stat.ctime_ms, self._path, stat.czxid, stat.version)

    async def _wait(self, wait_ms: int | None) -> bool:
        async def look() -> bool | None:
            return True if await self._holder() is None else None

        return await until(self.client.core, self._path, "znode", look, wait_ms) is True

    async def _history(self) -> tuple[tuple[EndedManualHold, ...], Check]:
        znode = await read(self.client.core, self._ended)
        ended = () if znode is None else EndedManualHold.all_of(znode.data)
        return ended, as_it_is(self._ended, znode)

    async def _plan(
        self, token: int | str, alarm_of: Callable[[HeldByHand, int], int]
    ) -> HeldByHand:
        core = self.client.core
        for _ in range(_CONFLICTS_MAX):
            held = await self._holder()
            if held is None or not held.is_of(token):
                raise NotOwnerError(f"{self._path}: expected a hold of {token!r}, found none")
            alarm_ms = alarm_of(held, core.clock.wall_ms())
            if alarm_ms > ALARM_S_MAX * 1000:
                raise BadArgumentsError(
                    f"{self._path}: expected an alarm up to {ALARM_S_MAX} s after the begin, found "
                    f"{alarm_ms // 1000}"
                )
            hold = held.hold.with_alarm(alarm_ms)
            same = Check(self._path, expected_czxid=held.czxid, expected_version=held.version)
            write = SetData(self._path, hold.to_bytes())
            if (await core.guarded([same], then=[write])).branch == "then":
                return replace(held, hold=hold, version=held.version + 1)
        raise self._too_many("planned")

    def _too_many(self, what: str) -> TooManyRetriesError:
        return TooManyRetriesError(
            f"{self._path}: expected no other writer, found one in {_CONFLICTS_MAX} tries; nothing "
            f"was {what}",
            path=self._path,
            tries=_CONFLICTS_MAX,
        )
