"""The time that each lock has been held, which are suspiciously long, and what is usual by class.

1. A hold is counted on the monotonic clock from when this member saw it granted, so it is never
   overstated; after a restart, or a snapshot from another member, it begins again.
2. Work is done for what changed: for each grant and each end, and once more for a hold that becomes
   long. Locks at rest cost nothing.
3. The leader says in its log, once for each, that a hold has become long; every member counts them
   in a gauge and lists them. The leader alone observes how long holds took.
4. After a snapshot the queues are looked at in slices; what happens in one that was not looked at
   is in what is found there then.
5. Elections are meant to be held long and are left out.

The *class* of a lock is its name up to the first colon or slash, so that ``order:17`` and
``order:18`` are one. There are at most ``_CLASSES_MAX``; further ones are called "other".
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from coordinator.model.events import EventType
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import QUEUES, Interest
from coordinator.service.base.timers import NOT_BEFORE_LONG_MS, NeedBy, never_mind
from coordinator.service.locks.contenders import LOCKS, grant_id_of, recipe_at
from coordinator.service.locks.denials import Denials
from coordinator.state.commands import Command
from coordinator.state.large_map import LargeMap
from coordinator.state.locks.contender import CONTENDER_DEPTH, DELAY_PREFIX, number_of
from coordinator.state.outcomes import Entered, Outcome
from coordinator.waiting import in_turns, let_go

logger = logging.getLogger(__name__)

LOOK_EVERY_MS: Final = 1_000
OTHER_CLASS: Final = "other"
_CLASSES_MAX: Final = 100
_OBSERVED_AT_ONCE: Final = 100
_DIRECTORIES_MAX: Final = 10_000
_SEEN_AT_ONCE: Final = 50
"""Queues, and holders of each."""
_LOOKED_AT_ONCE: Final = 1_000
_LEFT_BEHIND: Final = 1_000
_DROPPED_AT_ONCE: Final = 4
_SAID_AT_ONCE: Final = 20
"""How many long holds are logged in one look."""
_CLASS_END: Final = re.compile(r"[:/]")
_PREFIX: Final = LOCKS.root + "/"
_NUMBER_LENGTH: Final = 10


class _Hold:
    """One grant: its ``czxid``, since when it was seen to hold, whether from its beginning."""

    __slots__ = ("czxid", "is_long", "is_whole", "lock_class", "since_ms")

    def __init__(self, czxid: int, since_ms: int, lock_class: str, *, is_whole: bool) -> None:
        self.czxid = czxid
        self.since_ms = since_ms
        self.is_whole = is_whole
        self.lock_class = lock_class
        self.is_long = False


def _is_contender(path: str) -> bool:
    """Whether a path is that of a contender of a lock; a ``delay-`` znode waits for nothing."""
    digits = path[-_NUMBER_LENGTH:]
    return (
        digits.isdigit()
        and digits.isascii()
        and path.startswith(_PREFIX)
        and path.count("/") == CONTENDER_DEPTH
        and not path.startswith(DELAY_PREFIX, path.rindex("/") + 1)
    )


class LockClasses:
    """The classes of locks: the first hundred that this member has met."""

    def __init__(self) -> None:
        self._known: dict[str, None] = {}
        self._at: dict[str, str] = {}

    def of(self, name: str) -> str:
        """Return the class of the lock ``name``."""
        found = _CLASS_END.split(name, maxsplit=1)[0]
        if found not in self._known:
            if len(self._known) >= _CLASSES_MAX:
                return OTHER_CLASS
            self._known[found] = None
        return found

    def at(self, path: str) -> str:
        """Return the class of the lock or election in whose queue ``path`` is."""
        directory = path[: path.rindex("/")]
        found = self._at.get(directory)
        if found is None:
            if len(self._at) >= _DIRECTORIES_MAX:
                self._at.clear()
            found = self._at[directory] = self.of(recipe_at(directory).name_at(directory))
        return found


class HoldTimes:
    """The holds of all locks, as this member sees them."""

    interest: ClassVar[Interest] = QUEUES

    def __init__(self, context: MemberContext, classes: LockClasses, denials: Denials) -> None:
        self._clock = context.clock
        self._replica = context.replica
        self._leadership = context.leadership
        self._metrics = context.metrics
        self._hold_seconds = context.metrics.hold_seconds.labels
        self._classes = classes
        self._denials = denials
        self._long_hold_ms = context.config.limits.long_hold_ms
        self._holds = LargeMap[str, _Hold]()
        self._waiting: dict[str, int] = {}
        """How many wait for the locks of each class."""
        self._becoming_long: deque[tuple[int, str, int]] = deque()
        """When each hold becomes long: in the order in which they were seen."""
        self._still_held: deque[tuple[int, str, int]] = deque()
        """Those before them, as far as the last look for such as have ended came."""
        self._long_count = 0
        self._unseen: list[dict[str, Any]] = []
        """The queues of a snapshot that have not been looked at yet, as keys of a few dicts."""
        self._last_unseen: dict[str, tuple[int, str]] = {}
        """Of queues that have been, but not all who held: the place of the last of those."""
        self._ended: deque[tuple[str, float]] = deque()
        """The class and length of holds that are to be observed."""
        self.need_look_by: NeedBy = never_mind

    def held_ms(self, path: str) -> int:
        """Return for how long the contender ``path`` has been seen to hold, 0 when it does not."""
        hold = self._holds.get(path)
        return 0 if hold is None else self._clock.monotonic_ms() - hold.since_ms

    def waiting_by_class(self) -> Mapping[str, int]:
        """Return how many wait for the locks of each class."""
        return self._waiting

    def look(self, now_ms: int) -> int:
        """Look at the holds that have become long; return when the next one does."""
        logged = 0
        for _ in range(_LOOKED_AT_ONCE):
            first = self._still_held or self._becoming_long
            if not first or first[0][0] > now_ms:
                break
            _, path, czxid = first.popleft()
            hold = self._holds.get(path)
            if hold is not None and hold.czxid == czxid and not hold.is_long:
                hold.is_long = True
                self._long_count += 1
                logged += 1
                if logged <= _SAID_AT_ONCE:
                    self._say(path, hold, now_ms)
        if logged > _SAID_AT_ONCE and self._leadership.is_leader:
            logger.warning(
                "%d more have been held for as long (coordinator locks --held-longer-than)",
                logged - _SAID_AT_ONCE,
            )
        self._metrics.long_holds.set(self._long_count)
        if self._long_count:
            return now_ms  # until they end
        first = self._still_held or self._becoming_long
        return first[0][0] if first else now_ms + NOT_BEFORE_LONG_MS

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Note which holds began and which ended."""
        if outcome.is_repeat:
            return
        result = outcome.result
        if type(result) is Entered and result.is_granted and not self._unseen:
            now_ms = self._clock.monotonic_ms()
            for path in outcome.granted:  # it has made those who hold now, and nothing else
                if path.startswith(_PREFIX):
                    self._begin(path, outcome.zxid, now_ms, is_whole=True)
            return
        for event in outcome.events:
            path = event.path
            if path in self._holds or _is_contender(path):
                if self._unseen and self._is_unseen(path):
                    continue
                if event.type is EventType.CREATED:
                    self._wait(self._classes.at(path), 1)
                elif event.type is EventType.DELETED:
                    self._leave(path)
        if self._ended:
            self._observe_ended()
        if outcome.granted:
            now_ms = self._clock.monotonic_ms()
            for path in outcome.granted:
                if path.startswith(_PREFIX) and not (self._unseen and self._is_unseen(path)):
                    self._hold(path, now_ms, is_whole=True)

    def on_restore(self) -> None:
        """Everything may be different: nothing is known of how long it has been so."""
        for holds in self._holds.given_up():
            let_go(holds)
        self._waiting = {}
        self._last_unseen = {}
        for entries in (self._still_held, self._becoming_long):
            let_go(entries)
        self._still_held, self._becoming_long = deque(), deque()
        self._long_count = 0
        for part in self._unseen:
            let_go(part)
        directories = list(self._replica.machine.locks.directories())
        self._unseen = unseen = self._replica.machine.locks.directories_to_take()
        in_turns(directories, lambda each: self._see(each, unseen), _SEEN_AT_ONCE)

    def _see(self, directory: str, unseen: list[dict[str, Any]]) -> None:
        """Count the contenders of a queue; outcomes report what happens to them from now on."""
        if self._unseen is not unseen:
            return  # another snapshot came
        for part in unseen:
            if part.pop(directory, None) is not None:
                if not part:
                    unseen.remove(part)
                break
        if not directory.startswith(_PREFIX):
            return
        locks = self._replica.machine.locks
        if not locks.length(directory):
            return
        self._wait(self._classes.at(f"{directory}/"), locks.length(directory))
        for last in locks.contenders(directory, 1, locks.holder_count(directory) - 1):
            self._last_unseen[directory] = (last.number, last.path)
            self._see_holders(directory, (-1, ""), unseen)

    def _see_holders(
        self, directory: str, place: tuple[int, str], unseen: list[dict[str, Any]]
    ) -> None:
        """See some of those who held when the queue was seen, those behind ``place``."""
        if self._unseen is not unseen:
            return  # another snapshot came
        last, now_ms = self._last_unseen[directory], self._clock.monotonic_ms()
        locks = self._replica.machine.locks
        for each in locks.holders_behind(directory, place, _SEEN_AT_ONCE):
            place = (each.number, each.path)
            if place > last:
                break
            self._hold(each.path, now_ms, is_whole=False)
        rest = locks.holders_behind(directory, place, 1)
        if rest and (rest[0].number, rest[0].path) <= last:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._see_holders, directory, place, unseen)
        else:
            del self._last_unseen[directory]

    def _held_unseen(self, path: str) -> bool:
        """Whether a contender without a hold is one who held before this member saw it."""
        directory, _, name = path.rpartition("/")
        last = self._last_unseen.get(directory)
        return last is not None and (number_of(name) or 0, path) <= last

    def _is_unseen(self, path: str) -> bool:
        """Whether the queue of a contender waits to be looked at, after a snapshot."""
        directory = path[: path.rindex("/")]
        return any(directory in part for part in self._unseen)

    def _hold(self, path: str, now_ms: int, *, is_whole: bool) -> None:
        recorded = self._replica.machine.locks.record(path)
        if recorded is None or path in self._holds:
            return
        self._begin(path, recorded.czxid, now_ms, is_whole=is_whole)
        self._wait(self._classes.at(path), -1)

    def _begin(self, path: str, czxid: int, now_ms: int, *, is_whole: bool) -> None:
        """Note a hold that is seen from now on."""
        lock_class = self._classes.at(path)
        if lock_class not in self._waiting:
            self._waiting[lock_class] = 0
        self._holds.add(path, _Hold(czxid, now_ms, lock_class, is_whole=is_whole))
        long_at_ms = now_ms + self._long_hold_ms
        if not (self._still_held or self._becoming_long):  # else an earlier one is looked for
            self.need_look_by(long_at_ms)
        self._becoming_long.append((long_at_ms, path, czxid))
        if len(self._still_held) + len(self._becoming_long) > 2 * len(self._holds) + _LEFT_BEHIND:
            self._drop_ended()

    def _drop_ended(self) -> None:
        """Forget some of the holds that ended before they became long, which left their entry
        behind: more than began since they were looked at last."""
        for _ in range(min(len(self._becoming_long), _DROPPED_AT_ONCE)):
            entry = self._becoming_long.popleft()
            hold = self._holds.get(entry[1])
            if hold is not None and hold.czxid == entry[2]:
                self._still_held.append(entry)
        if not self._becoming_long:
            self._still_held, self._becoming_long = self._becoming_long, self._still_held

    def _wait(self, lock_class: str, step: int) -> None:
        self._waiting[lock_class] = self._waiting.get(lock_class, 0) + step

    def _leave(self, path: str) -> None:
        hold = self._holds.pop(path, None)
        if hold is None:
            self._wait(self._classes.at(path), -1)
            if not self._held_unseen(path):
                self._denials.note_left(path)
            return
        self._long_count -= hold.is_long
        if hold.is_whole and self._leadership.is_leader:
            held_ms = self._clock.monotonic_ms() - hold.since_ms
            self._ended.append((hold.lock_class, held_ms / 1000))

    def _observe_ended(self) -> None:
        """Put what has ended into the metric, which is dear: of thousands some at a time."""
        for _ in range(min(len(self._ended), _OBSERVED_AT_ONCE)):
            name, seconds = self._ended.popleft()
            self._hold_seconds(name).observe(seconds)
        if self._ended:
            asyncio.get_running_loop().call_soon(self._observe_ended)

    def _say(self, path: str, hold: _Hold, now_ms: int) -> None:
        if not self._leadership.is_leader:
            return
        recorded = self._replica.machine.locks.record(path)
        assert recorded is not None, "a hold that was not seen to end is recorded"
        logger.warning(
            "lock %r has been held for %d s by session %s (grant %s)",
            LOCKS.name_at(path),
            (now_ms - hold.since_ms) // 1000,
            recorded.session_id,
            grant_id_of(path, hold.czxid),
        )
