"""Watches: the live streams of one member and the changes that each gets, in zxid order.

1. A stream gets every change with zxid > its ``start_zxid`` that touches one of its selectors, each
   once, in order. All matching events of one zxid are delivered together, as one Change.
2. A change is visible to reads on this member before a stream can deliver it.
3. Never a silent gap: a zxid that is no longer kept is refused with CompactedError, and a stream
   that cannot be continued (slow reader, snapshot installed) ends with a Resync.
4. ``Bookmark(zxid)`` promises that everything up to that zxid has been delivered.
5. A change is handed out in pieces when many watch it: other work goes on between them, and the
   next change waits for the last piece.
6. What is delivered is what the caller may watch then, also of changes of before. When the rights
   have changed each stream is looked at again, and ended if it may show nothing any more. A watch
   with values is ended if what its caller may read or watch is not what it was: CompactedError.
7. A change costs O(its events x their depth + the matching watchers), however many others there
   are; its events are matched once per selector, not once per watcher.
8. A watch with values shows each change with the data after and before it, or ends: what is
   forgotten (``watch_history``) is CompactedError.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ClassVar, Final

from coordinator.errors import (
    CompactedError,
    CoordinatorError,
)
from coordinator.model.access import NOBODY, Caller, Verb
from coordinator.model.events import Change, Event, WatchKind, WatchSelector
from coordinator.node.config import MemberLimits
from coordinator.service.access import expired
from coordinator.service.base.context import MemberContext
from coordinator.service.base.places import SharedPlaces, takes_the_last
from coordinator.service.base.replica import ALL_OUTCOMES, Interest
from coordinator.service.base.turns import KEY
from coordinator.service.base.wakes import Wakes
from coordinator.service.watches.kept_change import KeptChange
from coordinator.service.watches.watch_history import History, ValuesHistory, kept_events
from coordinator.service.watches.watch_stream import (
    EVENTS_A_TURN,
    EVERYTHING,
    Key,
    Selection,
    Wanted,
    WatchStream,
    checked_keys,
    keys_of,
)
from coordinator.state.access.table import AccessTable
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome
from coordinator.waiting import in_turns, let_go

HANDED_AT_ONCE = 2_000
"""Steps of handing out changes in one pass of the loop."""
_HANDED_STEPS: Final = 3
"""What it takes to write a change for a reader that waits."""
RECHECKED_AT_ONCE: Final = 2_000
"""Selectors looked at in one pass when access rights have changed. Until its turn a stream looks by
itself before it delivers anything."""
_SELECTORS_A_STREAM: Final = 20
"""What a stream costs beside its selectors."""
_BOOKMARKS_PER_S_MAX: Final = 1_000
"""The bookmarks that streams ask for, in all: beyond it each waits longer between two."""
_SHARED_MAX: Final = 8
"""Changes with values that are kept for the next stream to be handed the same."""
_CACHED: Final = (Verb.READ, Verb.WATCH)


class WatchRoom:
    """Counts the open streams and their selectors."""

    def __init__(self, limits: MemberLimits) -> None:
        self._streams = SharedPlaces(
            limits.watch_streams_max, "watch streams on one member", "limits.watch_streams_max"
        )
        self._selectors = SharedPlaces(
            limits.watch_selectors_max,
            "selectors of all watch streams on one member",
            "limits.watch_selectors_max",
        )

    def refuse_too_many(self, table: AccessTable, caller: Caller, key: str, count: int) -> None:
        """Raise ThrottledError unless there is room for a stream with ``count`` selectors."""
        is_last = takes_the_last(table, caller)
        self._streams.check(key, takes_the_last=is_last)
        self._selectors.check(key, count, takes_the_last=is_last)

    def take(self, key: str, count: int) -> None:
        """Count a stream that begins, for which there was room."""
        self._streams.count(key)
        self._selectors.count(key, count)

    def leave(self, key: str, count: int) -> None:
        """Count a stream no longer."""
        self._streams.give_back(key)
        self._selectors.give_back(key, count)


class WatchHub:
    """All watches of one member, and the history that lets them resume."""

    interest: ClassVar[Interest] = ALL_OUTCOMES

    def __init__(self, context: MemberContext) -> None:
        self._leadership = context.leadership
        self._replica = replica = context.replica
        self._timers = context.timers
        self._limits = limits = context.config.limits
        self._metrics = context.metrics
        self._history = History(limits.watch_history_changes, limits.watch_history_bytes)
        self._history.restart(replica.machine.zxid)
        self._values = ValuesHistory(limits.watch_values_bytes)
        self._values.restart(replica.machine.zxid)
        self._shared: dict[tuple[int, Caller], tuple[Change, Change]] = {}
        self._streams: dict[WatchStream, tuple[Key, ...]] = {}
        self._room = WatchRoom(limits)
        self._bookmarked = 0
        """Streams that asked for more bookmarks."""
        self._wakes = Wakes()
        self._live: dict[Key, dict[WatchStream, None]] = {}
        self._due: deque[Change] = deque()
        """The changes that are not handed out whole yet, in their order."""
        self._pushing: Iterator[int] | None = None
        """The hand-out of the first of them."""
        self._left = HANDED_AT_ONCE
        self._is_counting = False
        self._revision = self.revision
        """The revision of the access rights by which all streams were looked at, or are being."""

    @property
    def floor_zxid(self) -> int:
        """The lowest zxid from which a watch can resume here."""
        return self._history.floor_zxid

    def watch(
        self,
        selectors: Sequence[WatchSelector],
        *,
        from_zxid: int | None = None,
        is_one_shot: bool = False,
        wanted: Wanted = EVERYTHING,
        bookmark_ms: int | None = None,
        caller: Caller = NOBODY,
    ) -> WatchStream:
        """Return a stream of the changes with zxid > ``from_zxid`` (None: from now on).

        ``bookmark_ms``: how often it has a bookmark if nothing else; None: as every stream has.

        Raises:
            NoAuthError: ``caller`` may watch nothing of what a selector is about.
            BadArgumentsError: no selectors, an unknown kind, a path that cannot be.
            QuotaExceededError: more selectors than one stream may have.
            ThrottledError: this member serves its maximum of streams, or of selectors in all.
            ShuttingDownError: this member is stopping.
            CompactedError: changes after ``from_zxid`` are no longer kept, or their values; or
                access rights have changed since, and values are wanted.
        """
        self._leadership.refuse_when_stopping()
        keys = checked_keys(
            selectors, wanted, self._replica.machine.limits, self._limits.watches_per_stream_max
        )
        self.check(caller, keys)
        table, key = self._replica.machine.access, KEY.get()
        self._room.refuse_too_many(table, caller, key, len(keys))
        start_zxid = self._start(from_zxid, wanted)
        stream = WatchStream(
            start_zxid=start_zxid,
            is_one_shot=is_one_shot,
            buffer_events_max=self._limits.watch_buffer_changes,
            source=self,
            selection=Selection(keys, wanted).matches,
            wanted=wanted,
            bookmark_ms=bookmark_ms,
            caller=caller,
            expires_ms=table.expires_ms(caller),
        )
        stream.scope = table.scope(caller, _CACHED) if wanted.has_values else ()
        stream.client_key = key
        self._room.take(key, len(keys))
        self._streams[stream] = keys
        self._leadership.stay(stream)
        self._metrics.watch_streams.set(len(self._streams))
        if start_zxid >= self._replica.machine.zxid:
            self.go_live(stream)
        return stream

    def _start(self, from_zxid: int | None, wanted: Wanted) -> int:
        """Return the zxid behind which a stream begins, of which all that is wanted is kept."""
        machine = self._replica.machine
        start_zxid = machine.zxid if from_zxid is None else from_zxid
        self._history.refuse_compacted(start_zxid)
        if wanted.has_values:
            self._values.refuse_compacted(start_zxid)
            if start_zxid < machine.access.zxid:
                raise _other_rights(machine.access.zxid)
        return start_zxid

    # --- what a stream asks of its source

    def replay(self, after_zxid: int, count_max: int) -> Iterator[Change] | None:
        """Return up to ``count_max`` kept changes after ``after_zxid``; None if some are gone."""
        # (Values that are gone are found out when a change is handed out.)
        if after_zxid < self._history.floor_zxid:
            return None
        return self._history.after(after_zxid, count_max)

    @property
    def zxid(self) -> int:
        """The zxid of the last change."""
        return self._replica.machine.zxid

    @property
    def revision(self) -> int:
        """The revision of the access rights."""
        return self._replica.machine.access.revision

    def check(self, caller: Caller, keys: Iterable[Key]) -> None:
        """Check that ``caller`` may watch something of each of these.

        Raises:
            NoAuthError, AuthFailedError: it may not, or not any more.
            ConnectionLostError: its token has expired; a client goes on with the next.
        """
        table = self._replica.machine.access
        table.rights_of(caller)  # also while rights are off: what was revoked ends
        if not table.is_on:
            return
        if self.is_over(table.expires_ms(caller)):
            raise expired()
        for kind, path in keys:
            if kind is WatchKind.ZNODE or not table.sees(caller, path, Verb.WATCH):
                table.check(caller, Verb.WATCH, path)

    def unled_error(self) -> CoordinatorError:
        """Return what ends a stream of a member that has known no leader for long."""
        return self._leadership.unled_error("go on from the last zxid at another member")

    def is_over(self, expires_ms: int) -> bool:
        """Whether this time, by the wall clock, has come; 0 never does."""
        return expires_ms > 0 and self._timers.clock.wall_ms() >= expires_ms

    def check_stream(self, stream: WatchStream, seen: int) -> None:
        """Check the same of a stream that is open, last looked at in the revision ``seen``."""
        self.check(stream.caller, self._streams.get(stream, ()))
        if not stream.has_values:
            return
        table = self._replica.machine.access
        # Between two changes its rights may have been others, by which something was left out.
        if table.revision > seen + 1 or stream.scope != table.scope(stream.caller, _CACHED):
            raise _other_rights(table.zxid)

    def shown(self, caller: Caller, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return those of ``events`` that ``caller`` may watch now."""
        allows = self._replica.machine.access.allows
        return tuple([each for each in events if allows(caller, Verb.WATCH, each.path)])

    def with_values(self, caller: Caller, change: Change) -> Change:
        """Return ``change`` with those values that ``caller`` may read now.

        Streams that are handed the same change share what this returns, and its line.

        Raises:
            CompactedError: they are forgotten.
        """
        table = self._replica.machine.access
        shared = self._shared.get(key := (id(change), caller if table.is_on else NOBODY))
        if shared is None:
            found = self._values.put_into(
                change, lambda path: table.allows(caller, Verb.READ, path)
            )
            if len(self._shared) >= _SHARED_MAX:
                self._shared.clear()
            shared = self._shared[key] = change, found
        return shared[1]

    def turn(self, act: Callable[[], None]) -> None:
        """Call ``act`` of a stream that has something to read, after those before it."""
        self._wakes.turn(act)

    def spend(self, turns: int) -> None:
        """Count what a stream does in its turn as that of so many more."""
        self._wakes.spend(turns)

    def later(self, act: Callable[[], None]) -> None:
        """Let a stream go on when all that wait for a turn have had it."""
        self._wakes.later(act)

    def go_live(self, stream: WatchStream) -> None:
        """From the next change on, push to ``stream`` what matches."""
        stream.is_live = True
        for key in self._streams[stream]:
            self._live.setdefault(key, {})[stream] = None
        if stream.bookmark_ms is not None and stream.bookmark_timer is None:
            self._bookmarked += 1
            self._bookmark_later(stream, stream.bookmark_ms)

    def _bookmark_later(self, stream: WatchStream, wait_ms: int) -> None:
        def bookmark() -> None:
            if stream.is_live and stream in self._streams:
                self._maybe_bookmark(stream)
                self._bookmark_later(stream, wait_ms)

        least_ms = self._bookmarked * 1_000 // _BOOKMARKS_PER_S_MAX
        at_ms = self._timers.clock.monotonic_ms() + max(wait_ms, least_ms)
        stream.bookmark_timer = self._timers.at(at_ms, bookmark)

    def forget(self, stream: WatchStream) -> None:
        """Remove a stream that has ended; idempotent."""
        keys = self._streams.pop(stream, ())
        self._leadership.leave(stream)
        if keys and stream.bookmark_timer is not None:
            stream.bookmark_timer.cancel()
            self._bookmarked -= 1
        if keys:
            self._room.leave(stream.client_key, len(keys))
        for key in keys:
            watching = self._live.get(key)
            if watching is not None:
                watching.pop(stream, None)
                if not watching:
                    del self._live[key]
        self._metrics.watch_streams.set(len(self._streams))

    # --- called by the replica and the member

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Remember the change, and push it to the streams that watch it."""
        if self._revision != self.revision:
            self._revision = self.revision
            self._shared.clear()
            self._recheck(iter(list(self._streams)))
        events, zxid = outcome.events, outcome.zxid
        if not events or outcome.is_repeat:
            return
        values = self._replica.machine.values
        kept = KeptChange(zxid, kept_events(zxid, events), command.wall_ms, values)
        self._history.append(kept)
        self._values.append(kept)
        if self._live:
            self._due.append(Change(zxid, events))
            self._hand_on()

    def _recheck(self, rest: Iterator[WatchStream]) -> None:
        """Look at some streams under other access rights, and at the rest in later passes."""
        left = RECHECKED_AT_ONCE
        for stream in rest:
            left -= _SELECTORS_A_STREAM + len(self._streams.get(stream, ()))
            stream.recheck()
            if left <= 0:
                asyncio.get_running_loop().call_soon(self._recheck, rest)
                return

    def _hand_on(self) -> None:
        """Hand out some of what is due; what this pass has no time for, the next ones do.

        A stream that goes live before that has read the changes that are still due (``push``)."""
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_pass)
        while self._due and self._left > 0:
            if self._pushing is None:
                self._pushing = self._pushed(self._due[0])
            for steps in self._pushing:
                self._left -= steps
                if self._left <= 0:
                    break
            else:
                self._pushing = None
                self._due.popleft()

    def _next_pass(self) -> None:
        self._left = HANDED_AT_ONCE
        self._is_counting = False
        if self._due:
            self._hand_on()

    def _pushed(self, change: Change) -> Iterator[int]:
        """Push to each live stream what it watches; yield the steps that this took.

        Streams that get the same share it. A step for each event, for each of several selectors
        that match, for each stream, and for each event of each part that is made: callers with
        rights of their own each have one."""
        hits: dict[Key, list[int]] = {}
        for number, event in enumerate(change.events):
            for key in keys_of(event):
                if key in self._live:
                    hits.setdefault(key, []).append(number)
            yield 1
        matched: dict[WatchStream, tuple[Key, ...]] = {}
        for key in hits:
            watching = self._live.get(key, {})
            if not matched:
                matched = dict.fromkeys(watching, (key,))
                continue
            for stream in list(watching):
                matched[stream] = (*matched.get(stream, ()), key)
                yield 1
        shared: dict[tuple[object, ...], Change] = {}
        access = self._replica.machine.access
        for stream, keys in matched.items():
            part = None
            while part is None:  # again, if rights have changed by the time that it is made
                is_on = access.is_on
                whose = stream.caller if is_on else NOBODY
                wanted, revision = stream.wanted, access.revision
                found = (whose, keys, wanted.only, wanted.prefix, revision)
                part = shared.get(found)
                if part is None:
                    chosen: list[Event] = []
                    for number in sorted({number for key in keys for number in hits[key]}):
                        event = change.events[number]
                        if wanted.passes(event) and (
                            not is_on or access.allows(whose, Verb.WATCH, event.path)
                        ):
                            chosen.append(event)
                        yield 1
                    if revision == access.revision:
                        is_whole = len(chosen) == len(change.events)
                        part = change if is_whole else Change(change.zxid, tuple(chosen))
                        shared[found] = part
            if part.events and stream.push(part):
                yield _HANDED_STEPS + len(part.events) // EVENTS_A_TURN
            else:
                yield 1
        if matched:
            self._metrics.watch_changes.inc(len(matched))

    def on_restore(self) -> None:
        """Tell every stream to read again, in turns: what happened between is not known."""
        self._values.restart(self._replica.machine.zxid)
        self._shared.clear()
        zxid = self._replica.machine.zxid
        self._history.restart(zxid)
        self._due.clear()
        self._pushing = None
        live, self._live = self._live, {}
        let_go(live)
        streams = list(self._streams)
        for stream in streams:
            stream.is_live = False  # until its turn it gets no later change and no bookmark
        in_turns(streams, lambda each: each.resync(zxid))

    def bookmark(self, _now_ms: int) -> None:
        """Send a bookmark to every idle live stream; called every ``bookmark_interval_ms``."""
        in_turns(list(self._streams), self._maybe_bookmark)

    def _maybe_bookmark(self, stream: WatchStream) -> None:
        if not self._due:
            stream.maybe_bookmark(self._replica.machine.zxid)

    def close(self) -> None:
        """End every stream, when the member stops: the reader resumes elsewhere by zxid."""
        for stream in list(self._streams):
            stream.close()


def _other_rights(zxid: int) -> CompactedError:
    return CompactedError(
        f"access rights have changed at zxid {zxid}, and with them what a watch with values shows: "
        "read the state again and watch from its zxid",
        floor_zxid=zxid,
    )
