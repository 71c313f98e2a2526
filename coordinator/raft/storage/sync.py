"""The syncs of the log, and the messages that may leave only after one.

1. The kernel syncs, or a thread (``kernel_sync``). The loop waits for a sync that is likely to be
   short, which is fastest under little load. It never waits long, and not at all while the disk is
   slow; what is written and held meanwhile waits for the next sync. A leader waits only when it
   must know: when followers have answered, or when the next sync is to begin.
2. A failed sync is never tried again (row 1; Rebello et al., ATC 2020).
3. Without room on the disk nothing is lost and nothing acknowledged; it is tried again a few times
   a second.
4. A message that finds everything durable is sent at once, and asks for no pass of the loop.
5. A message that depends only on the term and the vote, or on entries that are durable already,
   does not wait for a slow sync or for room: a member with a bad disk still votes and replies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.raft.blocking import RunBlocking, Started
from coordinator.raft.network.messages import Appended, Message, ProbeReply, SnapshotReply
from coordinator.raft.storage.journal import Journal, SyncToken
from coordinator.raft.storage.reserve import Reservation

AVERAGE_WEIGHT = 0.2
"""The weight of the newest sync in the running average of their durations."""
PATIENCE_S = 0.01
"""The longest time that the loop waits for a sync."""
LOOK_S = 0.002
"""How often a busy loop looks whether a sync is still under way."""
TRY_AGAIN_S = 0.25
"""The time between two tries to write to a full disk."""
SLOW_FORGOTTEN_S = 30.0
"""How long the disk counts as slow after a slow sync."""
HELD_MAX = 10_000
"""Messages that wait for a disk that does not answer; any message may be lost."""

Send = Callable[[str, Message], bool]
StartSync = Callable[[SyncToken], Started]


class _Watch:
    """Until when a sync was under way for certain, though a busy loop learns late of its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, began: float) -> None:
        self._loop = loop
        self.until = began
        self._due = began
        self._waiting: asyncio.Handle | None = None
        self._wait()

    def _wait(self) -> None:
        self._due = self._loop.time() + LOOK_S
        self._waiting = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        # The loop has asked since (a ms ago at most) what has ended; who awaits that is first.
        self._waiting = self._loop.call_soon(self._note)

    def _note(self) -> None:
        self.until = self._due
        self._wait()

    def end(self) -> None:
        """Look no more."""
        if self._waiting is not None:
            self._waiting.cancel()


class LogSync:
    """One member's syncs, one at a time.

    Args:
        start_blocking: where a sync is run that the loop waits for.
        run_blocking: where the others are; None: there, too.
        run_reserving: where zeros are written behind the log; nothing waits for them.
        in_place_seconds_max: syncs that take longer, on average, are not waited for.
        slow_seconds: a sync that takes longer makes this a slow disk, for a while.
        on_durable: called after a sync that did not end in the pass it began in.
        on_failure: called when such a sync failed; one that was waited for raises.
    """

    def __init__(
        self,
        log: Journal,
        *,
        send: Send,
        start_blocking: StartSync,
        run_blocking: RunBlocking | None,
        run_reserving: RunBlocking,
        in_place_seconds_max: float,
        slow_seconds: float,
        on_durable: Callable[[], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()  # asked for its time several times in each pass
        self._log = log
        self._send = send
        self._start_blocking = start_blocking
        self._run_blocking = run_blocking
        self._run_reserving = run_reserving
        self._reserving: asyncio.Task[None] | None = None
        self._in_place_seconds_max = in_place_seconds_max
        self._slow_seconds = slow_seconds
        self._slow_until = 0.0
        self._on_durable = on_durable
        self._on_failure = on_failure
        self._held: list[tuple[str, Message]] = []
        self._kept = 0
        """So many of the first of these were looked at, and are not true yet."""
        self.average_seconds = 0.0
        self._began = 0.0
        self._full_since: float | None = None
        self._try_again_at = 0.0
        self._syncing: asyncio.Task[None] | None = None
        self.left: tuple[SyncToken, Started] | None = None
        """The sync under way that nobody waits for yet; nothing is held for it."""
        self.was_slow = False
        """Whether one was, at any time."""
        self._is_dropped = False
        self.sync_count = 0
        self.sync_seconds_total = 0.0

    def hold(self, member_id: str, message: Message) -> None:
        """Send ``message`` when everything written by now is durable: now, if it is."""
        if not self._held and not self._is_dropped and not self._log.is_dirty:
            self._send(member_id, message)
        elif len(self._held) < HELD_MAX:
            self._held.append((member_id, message))

    @property
    def is_settled(self) -> bool:
        """Whether all that was written is durable, and no message waits."""
        return not self._held and self.left is None and not self._log.is_dirty

    @property
    def waiting_seconds(self) -> float:
        """How long the sync under way, or what finds no room, has waited by now."""
        if self._syncing is not None or self.left is not None:
            return self._loop.time() - self._began
        return 0.0 if self._full_since is None else self._loop.time() - self._full_since

    @property
    def is_slow(self) -> bool:
        """Whether a sync takes too long for a leader, or did a moment ago."""
        is_under_way = self._syncing is not None or self.left is not None
        is_waiting = is_under_way and self.waiting_seconds >= self._slow_seconds
        return is_waiting or self._loop.time() < self._slow_until

    def settle(self, *, is_needed: bool = True, may_wait: bool = True) -> None:
        """Wait for the sync that was left, if there is one: not long, if it ``is_needed`` now.

        ``may_wait``: the loop has little else to do; else it goes on until it is told."""
        if self.left is None:
            return
        waited = self._loop.time() - self._began
        if not is_needed and waited < PATIENCE_S:
            return
        (token, started), self.left = self.left, None
        average, quick = self.average_seconds, self._in_place_seconds_max
        if started.wait(0):
            self._end(token, [], self._believed(waited, 0.0))
        elif is_needed and may_wait and average < quick and started.wait(PATIENCE_S):
            self._end(token, [])
        else:
            watch = None if may_wait else _Watch(self._loop, self._loop.time())
            self._wait_elsewhere(token, started.done(), [], watch)
            return
        self._note_room()

    def sync(self, *, may_leave: bool = False, may_wait: bool = True) -> None:
        """Make everything durable and send what waits for it, now or when that is done.

        ``may_leave``: ``settle`` is called before anything but messages held here depends on it.
        ``may_wait``: as of ``settle``."""
        if self.left is not None:
            if may_leave and not self._held and not self._log.is_unwritten:
                return
            self.settle(may_wait=may_wait)
        if self._syncing is not None:
            self._release_what_is_true()
            return
        if not self._held and not self._log.is_dirty:
            return
        log, may_try = self._log, not self._is_too_early()
        while log.is_dirty and may_try:
            token = log.begin_sync()
            if token is not None and not self._sync(token, may_leave and not self._held):
                self._release_what_is_true()
                return
            self._note_room()
            may_try = not log.is_full
        if not log.is_dirty:
            self._release(self._take())
        else:
            self._release_what_is_true()

    def drop(self) -> None:
        """Drop all held messages; none of them may leave any more."""
        self._is_dropped = True
        self._held.clear()

    async def stop(self) -> None:
        """Hold nothing any more, and wait for the sync under way: its file must stay open."""
        self._held.clear()
        if self.left is not None:
            (token, started), self.left = self.left, None
            self._wait_elsewhere(token, started.done(), [])
        if self._syncing is not None:
            await asyncio.wait((self._syncing,))
        if self._reserving is not None:
            await asyncio.wait((self._reserving,))

    def _is_too_early(self) -> bool:
        # A term is tried at once: a vote may wait for it, and it is small.
        is_tried = self._log.is_full and self._log.is_term_stable
        return is_tried and self._loop.time() < self._try_again_at

    def _note_room(self) -> None:
        if not self._log.is_full:
            self._full_since = None
            return
        now = self._loop.time()
        self._try_again_at = now + TRY_AGAIN_S
        if self._full_since is None:
            self._full_since = now

    def _sync(self, token: SyncToken, may_leave: bool) -> bool:
        """Sync; return whether that is done already."""
        self._began = self._loop.time()
        held = self._take() if token.is_whole else []
        is_slow = self.average_seconds >= self._in_place_seconds_max
        if is_slow and self._run_blocking is not None:
            self._wait_elsewhere(token, self._run_blocking(token), held)
            return False
        started = self._start_blocking(token)
        may_leave = may_leave and token.is_plain
        if started.wait(0.0 if is_slow or may_leave else PATIENCE_S):
            self._end(token, held)
            return True
        if may_leave:
            self.left = token, started
        else:
            self._wait_elsewhere(token, started.done(), held)
        return False

    def _believed(self, waited: float, least: float) -> float:
        """Return how long a sync took whose end was noticed after ``waited``, perhaps late.

        Only what was soon noticed tells of the disk; ``least`` is how long it took for certain."""
        if waited < self._in_place_seconds_max:
            return waited
        return max(least, min(waited, self.average_seconds))

    def _wait_elsewhere(
        self,
        token: SyncToken,
        under_way: Awaitable[None],
        held: list[tuple[str, Message]],
        watch: _Watch | None = None,
    ) -> None:
        going_on = self._sync_elsewhere(token, under_way, held, watch)
        self._syncing = self._loop.create_task(going_on)

    async def _sync_elsewhere(
        self,
        token: SyncToken,
        under_way: Awaitable[None],
        held: list[tuple[str, Message]],
        watch: _Watch | None,
    ) -> None:
        """``watch``: the loop has other work, and may notice the end late."""
        took = None
        try:
            await under_way
            if self._is_dropped:
                return
            if watch is not None:
                waited = self._loop.time() - self._began
                took = self._believed(waited, watch.until - self._began)
            self._end(token, held, took)
            self._note_room()
        except Exception as error:
            self._on_failure(error)
            return
        finally:
            self._syncing = None
            if watch is not None:
                watch.end()
        if not token.is_full:  # or nothing is durable that was not, and the next pass tries again
            self._on_durable()

    def _end(
        self, token: SyncToken, held: list[tuple[str, Message]], took: float | None = None
    ) -> None:
        self._log.end_sync(token)
        self._note_time(self._loop.time() - self._began if took is None else took)
        self._release(held)
        if (reservation := self._log.begin_reserving()) is not None:
            self._reserving = self._loop.create_task(self._write_ahead(reservation))

    async def _write_ahead(self, reservation: Reservation) -> None:
        try:
            await self._run_reserving(reservation)
            self._log.end_reserving()
        except Exception as error:
            self._on_failure(error)
        finally:
            self._reserving = None

    def _take(self) -> list[tuple[str, Message]]:
        held, self._held = self._held, []
        self._kept = 0
        return held

    def _release(self, held: list[tuple[str, Message]]) -> None:
        for member_id, message in held:
            self._send(member_id, message)

    def _release_what_is_true(self) -> None:
        """Send the messages that do not depend on the entries that are not durable yet."""
        if not self._log.is_term_stable:
            return
        kept = self._kept
        for position, (member_id, message) in enumerate(self._take()):
            if self._is_true(message):
                self._send(member_id, message)
                continue
            self._held.append((member_id, message))
            if position >= kept and isinstance(message, Appended):
                # The leader must hear that it is followed, before the entries are durable.
                self._send(member_id, ProbeReply(message.term, 0))
        self._kept = len(self._held)

    def _is_true(self, message: Message) -> bool:
        if isinstance(message, Appended) and message.is_success:
            return message.next_index - 1 <= self._log.durable_index
        return not (isinstance(message, SnapshotReply) and message.is_installed)

    def _note_time(self, took: float) -> None:
        self.average_seconds += AVERAGE_WEIGHT * (took - self.average_seconds)
        self.sync_count += 1
        self.sync_seconds_total += took
        if took >= self._slow_seconds:
            self.was_slow = True
            self._slow_until = self._loop.time() + SLOW_FORGOTTEN_S
