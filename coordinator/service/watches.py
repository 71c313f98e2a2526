"""Watches: the live streams of one member and the changes that each gets, in zxid order.

1. A stream gets every change with zxid > its ``start_zxid`` that touches one of its selectors, each
   once, in order. All matching events of one zxid are delivered together, as one Change.
2. A change is visible to reads on this member before a stream can deliver it.
3. Never a silent gap: a zxid that is no longer kept is refused with CompactedError, and a stream
   that cannot be continued (slow reader, snapshot installed) ends with a Resync.
4. ``Bookmark(zxid)`` promises that everything up to that zxid has been delivered.
5. A change costs O(its events x their depth + the matching watchers), however many others there
   are; its events are matched once per selector, not once per watcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from coordinator.config import MemberLimits
from coordinator.errors import BadArgumentsError, QuotaExceededError, ThrottledError
from coordinator.model.events import Change, Event, EventType, WatchKind, WatchSelector
from coordinator.service.metrics import Metrics
from coordinator.service.replica import MachineReplica
from coordinator.service.wakes import Wakes
from coordinator.service.watch_history import History
from coordinator.service.watch_stream import WatchStream
from coordinator.state import paths
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome


class Selection:
    """The selectors of one stream, asked about one change at a time (for the replay)."""

    __slots__ = ("_by_kind",)

    def __init__(self, selectors: Sequence[tuple[WatchKind, str]]) -> None:
        self._by_kind: dict[WatchKind, set[str]] = {kind: set() for kind in WatchKind}
        for kind, path in selectors:
            self._by_kind[kind].add(path)

    def matches(self, event: Event) -> bool:
        """Say whether one of the selectors is about ``event``."""
        return any(path in self._by_kind[kind] for kind, path in _keys_of(event))


class WatchHub:
    """All watches of one member, and the history that lets them resume."""

    def __init__(self, replica: MachineReplica, limits: MemberLimits, metrics: Metrics) -> None:
        self._replica = replica
        self._limits = limits
        self._metrics = metrics
        self._history = History(limits.watch_history_changes, limits.watch_history_bytes)
        self._history.restart(replica.machine.zxid)
        self._streams: dict[WatchStream, tuple[tuple[WatchKind, str], ...]] = {}
        self._selector_count = 0
        self._wakes = Wakes()
        self._live: dict[tuple[WatchKind, str], dict[WatchStream, None]] = {}

    @property
    def stream_count(self) -> int:
        """How many streams are open."""
        return len(self._streams)

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
    ) -> WatchStream:
        """Return a stream of the changes with zxid > ``from_zxid`` (None: from now on).

        Raises:
            BadArgumentsError: no selectors, an unknown kind, a path that cannot be.
            QuotaExceededError: more selectors than one stream may have.
            ThrottledError: this member serves its maximum of streams, or of selectors in all.
            CompactedError: changes after ``from_zxid`` are no longer kept.
        """
        keys = self._checked(selectors)
        if len(self._streams) >= self._limits.watch_streams_max:
            raise ThrottledError(f"{len(self._streams)} watch streams are open on this member")
        if self._selector_count + len(keys) > self._limits.watch_selectors_max:
            raise ThrottledError(
                f"the {len(self._streams)} watch streams open on this member watch "
                f"{self._selector_count} things already, and {len(keys)} more would be too many"
            )
        start_zxid = self._replica.machine.zxid if from_zxid is None else from_zxid
        self._history.refuse_compacted(start_zxid)
        stream = WatchStream(
            start_zxid=start_zxid,
            is_one_shot=is_one_shot,
            buffer_events_max=self._limits.watch_buffer_changes,
            source=self,
            selection=Selection(keys).matches,
        )
        self._streams[stream] = keys
        self._selector_count += len(keys)
        self._metrics.watch_streams.set(len(self._streams))
        if start_zxid >= self._replica.machine.zxid:
            self.go_live(stream)
        return stream

    # --- what a stream asks of its source

    def replay(self, after_zxid: int, count_max: int) -> Iterator[Change] | None:
        """Return up to ``count_max`` kept changes after ``after_zxid``; None if some are gone."""
        if after_zxid < self._history.floor_zxid:
            return None
        return self._history.after(after_zxid, count_max)

    @property
    def zxid(self) -> int:
        """The zxid of the last change."""
        return self._replica.machine.zxid

    def wake(self, reader: asyncio.Future[None]) -> None:
        """Wake the reader of a stream, after the readers that came before."""
        self._wakes.wake(reader)

    def go_live(self, stream: WatchStream) -> None:
        """From the next change on, push to ``stream`` what matches."""
        stream.is_live = True
        for key in self._streams[stream]:
            self._live.setdefault(key, {})[stream] = None

    def forget(self, stream: WatchStream) -> None:
        """Remove a stream that has ended; idempotent."""
        keys = self._streams.pop(stream, ())
        self._selector_count -= len(keys)
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
        if not outcome.events or outcome.is_repeat:
            return
        change = Change(outcome.zxid, outcome.events)
        self._history.append(change)
        if self._live:
            for stream, part in self._selected(change).items():
                stream.push(part)

    def _selected(self, change: Change) -> dict[WatchStream, Change]:
        """Return what each live stream gets of ``change``; streams that get the same share it."""
        hits: dict[tuple[WatchKind, str], list[int]] = {}
        for number, event in enumerate(change.events):
            for key in _keys_of(event):
                if key in self._live:
                    hits.setdefault(key, []).append(number)
        keys_of: dict[WatchStream, list[tuple[WatchKind, str]]] = {}
        for key in hits:
            for stream in self._live[key]:
                keys_of.setdefault(stream, []).append(key)
        shared: dict[tuple[tuple[WatchKind, str], ...], Change] = {}
        selected: dict[WatchStream, Change] = {}
        for stream, keys in keys_of.items():
            part = shared.get(found := tuple(keys))
            if part is None:
                numbers = sorted({number for key in keys for number in hits[key]})
                is_whole = len(numbers) == len(change.events)
                chosen = (change.events[number] for number in numbers)
                part = change if is_whole else Change(change.zxid, tuple(chosen))
                shared[found] = part
            selected[stream] = part
        if selected:
            self._metrics.watch_changes.inc(len(selected))
        return selected

    def on_restore(self) -> None:
        """Tell every stream to read again: what happened between is not known."""
        self._history.restart(self._replica.machine.zxid)
        for stream in list(self._streams):
            stream.resync(self._replica.machine.zxid)

    def bookmark(self, _now_ms: int) -> None:
        """Send a bookmark to every idle live stream; called every ``bookmark_interval_ms``."""
        zxid = self._replica.machine.zxid
        for stream in list(self._streams):
            stream.maybe_bookmark(zxid)

    def close(self) -> None:
        """End every stream, when the member stops: the reader resumes elsewhere by zxid."""
        for stream in list(self._streams):
            stream.close()

    def _checked(self, selectors: Sequence[WatchSelector]) -> tuple[tuple[WatchKind, str], ...]:
        if not selectors:
            raise BadArgumentsError("expected at least one path to watch, found none")
        if len(selectors) > self._limits.watches_per_stream_max:
            raise QuotaExceededError(
                f"expected at most {self._limits.watches_per_stream_max} watches in one stream, "
                f"found {len(selectors)}"
            )
        keys: dict[tuple[WatchKind, str], None] = {}
        for selector in selectors:
            try:
                kind = WatchKind(selector.kind)
            except ValueError:
                raise BadArgumentsError(
                    f"expected a kind of znode, children or subtree, found {selector.kind!r}"
                ) from None
            paths.validate(selector.path, self._replica.machine.limits)
            keys[kind, selector.path] = None
        return tuple(keys)


def _keys_of(event: Event) -> Iterator[tuple[WatchKind, str]]:
    """Yield the (kind, path) of every selector that matches ``event``."""
    path = event.path
    yield WatchKind.ZNODE, path
    yield WatchKind.SUBTREE, path
    is_first_parent = event.type is not EventType.DATA_CHANGED
    while path != "/":
        path = path[: path.rindex("/")] or "/"
        if is_first_parent:
            yield WatchKind.CHILDREN, path
            is_first_parent = False
        yield WatchKind.SUBTREE, path
