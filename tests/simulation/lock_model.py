"""What the log says of the queues, read a second time: who holds, who waits, and what is wrong.

Made from the commands and the events of the log alone, by the rules as ``docs`` words them, and not
from the product's own table of the queues. ``apply`` takes the entries in their order and returns
each promise that one of them breaks; all kinds of locks are judged by the same few rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from coordinator.model.events import Event, EventType
from coordinator.model.limits import UNSET
from coordinator.state.commands import (
    Abandon,
    CloseSession,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishGrants,
    Guarded,
    Kind,
    Multi,
    Note,
    Release,
    Reopen,
    Resize,
    Revoke,
    SetLimits,
)
from coordinator.state.outcomes import Entered
from tests.simulation.log import CLOCK_RATE_LEAST, Entry, is_of_rights
from tests.simulation.waiting import Owner, Place, stuck_owners

Found = Iterator[tuple[str, str]]

_ROOTS = ("/locks/", "/elections/")
_DELAY = "delay-"
_KINDS = {"read-": Kind.SHARED, "slot-": Kind.SLOT}
_HOW: dict[type[object], str] = {
    Release: "released",
    CloseSession: "closed",
    ExpireSession: "expired",
    Abandon: "abandoned",
    Revoke: "forced",
    EndHold: "max_hold",
}
BY_OTHERS = ("forced", "deleted")
"""What ends a grant at once, and is told to its holder afterwards: by force, or over the tree."""
UNCLEAN = ("expired", "failed")
"""Ends after which what the holder had sent may still be under way."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A grant that is over: the place as it was, and how it went."""

    place: Place
    how: str
    zxid: int

    @property
    def told(self) -> tuple[int, str, bytes, int]:
        """What the next holder of the queue is told of it."""
        return self.place.czxid, self.how, self.place.note, self.zxid


@dataclass(frozen=True, slots=True)
class State:
    """A queue from a zxid on: who holds, by path, and the grant that ended last."""

    zxid: int
    holders: dict[str, Place]
    last: Ended | None


class LockModel:
    """All queues at the end of the log that it has been told."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.queues: dict[str, list[str]] = {}
        self.sizes: dict[str, int] = {}
        self.grants_max = UNSET.grants_per_command_max
        self.closings: dict[str, dict[str, int]] = {}
        self.delays: dict[str, tuple[float, int, int]] = {}
        """What closes a queue after a loss: since when, for how long, and the entry's index."""
        self.ended: list[Ended] = []
        """The grants that the latest entry ended."""
        self.ended_s: dict[str, float] = {}
        """When each contender that has gone went."""
        self.forced: set[str] = set()
        """Contenders that were put out against their will: their holders may not know yet."""
        self.tally: dict[str, int] = {}
        self._delayed_until_s: dict[str, float] = {}
        self._tokens: dict[str, int] = {}
        self._last: dict[str, Ended] = {}
        self._states: dict[str, list[State]] = {}
        self._where = ""

    # --- questions

    def holders(self, directory: str) -> list[Place]:
        return [place for place in self._line(directory) if place.is_holder]

    def at(self, directory: str, zxid: int) -> State:
        """Return the queue as it was at ``zxid``."""
        found = State(0, {}, None)
        for state in self._states.get(directory, ()):
            if state.zxid > zxid:
                break
            found = state
        return found

    def bounded(self) -> Iterator[Place]:
        """Iterate over those who hold for a bounded time, one of each group."""
        for path, place in self.places.items():
            if place.is_holder and place.max_hold_ms and path == (place.group or (path,))[0]:
                yield place

    # --- the log

    def apply(self, entry: Entry) -> Found:
        """Follow one entry; yield (promise, what) for everything that is wrong with it."""
        self.ended = []
        outcome, operation = entry.outcome, entry.command.operation
        if outcome.is_repeat:
            return
        self._where = f"{type(operation).__name__} at {entry.index}.{entry.part}"
        yield from self._check_condition(entry)
        if outcome.refusal is not None:
            if outcome.refusal.code == "Deadlock":
                yield from self._check_deadlock(operation)
            return
        touched = dict.fromkeys(self._change(entry))
        for event in outcome.events:
            directory, _, name = event.path.rpartition("/")
            if not event.path.startswith(_ROOTS) or event.type is EventType.DATA_CHANGED:
                continue
            if event.path.count("/") == 2 and event.type is EventType.DELETED:
                self.sizes.pop(event.path, None)
            if event.path.count("/") != 3 or not name[-10:].isdecimal():
                continue
            touched[directory] = None
            if name.startswith(_DELAY):
                yield from self._close_or_reopen(entry, event)
            elif event.type is EventType.CREATED:
                self._arrive(entry, event)
            elif event.path in self.places:
                yield from self._depart(entry, event.path)
        yield from self._check_whole()
        yield from self._grant(entry, touched)
        for directory in touched:
            yield from self._check_nobody_waits_in_vain(directory, len(outcome.granted))
            self._states.setdefault(directory, []).append(
                State(
                    outcome.zxid,
                    {each.path: each for each in self.holders(directory)},
                    self._last.get(directory),
                )
            )
        yield from self._check_circles(operation)

    def _change(self, entry: Entry) -> Iterator[str]:
        """Follow what has no event of its own; return the queues that it is about."""
        operation = entry.command.operation
        if isinstance(operation, SetLimits):
            self.grants_max = dict(operation.values).get("grants_per_command_max", self.grants_max)
        elif isinstance(operation, Downgrade):
            self._replace(operation.path, kind=Kind.SHARED)
            self._count("downgrades")
            yield operation.path.rpartition("/")[0]
        elif isinstance(operation, Note):
            place = self.places.get(operation.path)
            for path in () if place is None else place.group or (operation.path,):
                self._replace(path, note=operation.note)
                yield path.rpartition("/")[0]
            self._count("notes")
        elif isinstance(operation, ExtendHold):
            yield from self._extend(entry, operation)
        elif isinstance(operation, Resize):
            self.sizes[operation.directory] = operation.size
            self._count("resizes")
            yield operation.directory

    def _extend(self, entry: Entry, operation: ExtendHold) -> Iterator[str]:
        place = self.places.get(operation.path)
        for path in () if place is None else place.group or (operation.path,):
            each = self.places[path]
            from_now_s = entry.at_s + CLOCK_RATE_LEAST * operation.to_ms / 1000
            added_s = CLOCK_RATE_LEAST * operation.by_ms / 1000
            self._replace(
                path,
                max_hold_ms=max(each.max_hold_ms + operation.by_ms, operation.to_ms),
                counted_index=entry.index,
                extensions=each.extensions + 1,
                ends_s=max(each.ends_s + added_s, from_now_s),
            )
            yield path.rpartition("/")[0]
        self._count("extensions")

    def _arrive(self, entry: Entry, event: Event) -> None:
        operation, result = entry.command.operation, entry.outcome.result
        path = event.path
        directory, _, name = path.rpartition("/")
        place = Place(
            path, directory, int(name[-10:]), event.czxid, _KINDS.get(name[:5], Kind.EXCLUSIVE),
            event.ephemeral_owner, entry.index,
        )  # fmt: skip
        if isinstance(operation, Enter) and isinstance(result, Entered):
            paths = tuple(each.path for each in result.contenders)
            place = replace(
                place,
                kind=operation.kind,
                owner=operation.owner,
                lock_delay_ms=operation.lock_delay_ms,
                max_hold_ms=operation.max_hold_ms,
                group=paths if len(paths) > 1 else (),
            )
            if operation.size is not None:
                self.sizes.setdefault(directory, operation.size)
        self.places[path] = place
        queue = self.queues.setdefault(directory, [])
        queue.append(path)
        queue.sort(key=lambda each: self.places[each].number)

    # --- leaving

    def _depart(self, entry: Entry, path: str) -> Found:
        operation = entry.command.operation
        place = self.places.pop(path)
        self.ended_s[path] = entry.at_s
        self.queues[place.directory].remove(path)
        if not _may_take(operation, place) and not is_of_rights(path):
            yield "one's own grant", f"{path} went by {operation}"
        how = _HOW.get(type(operation), "deleted")
        if how in BY_OTHERS:
            self.forced.add(path)
        if not place.is_holder:
            return
        if isinstance(operation, CloseSession) and operation.failure:
            how = "failed"
        ended = self._last[place.directory] = Ended(place, how, entry.outcome.zxid)
        self.ended.append(ended)
        self._count(how)
        if how == "max_hold" and entry.at_s < place.ends_s:
            held_s = entry.at_s - place.granted_s
            yield "bounded holds", (
                f"{path} was ended after {held_s:.4f} s of its {place.max_hold_ms} ms, and "
                f"{place.extensions} extensions"
            )
        if how in UNCLEAN and place.lock_delay_ms:
            until_s = entry.at_s + CLOCK_RATE_LEAST * place.lock_delay_ms / 1000
            known_s = self._delayed_until_s.get(place.directory, 0.0)
            self._delayed_until_s[place.directory] = max(until_s, known_s)

    def _check_whole(self) -> Found:
        """What was had together goes together."""
        for ended in self.ended:
            left = [path for path in ended.place.group if path in self.places]
            if left:
                yield "several locks as one", f"{ended.place.path} went, and {left} stay"

    # --- lock-delay

    def _close_or_reopen(self, entry: Entry, event: Event) -> Found:
        path, operation = event.path, entry.command.operation
        directory, _, name = path.rpartition("/")
        if event.type is EventType.CREATED:
            lost = [
                each.place.lock_delay_ms
                for each in self.ended
                if each.place.directory == directory and each.how in UNCLEAN
            ]
            if not any(lost) and not is_of_rights(path):
                yield "lock-delay", f"{path} closes a queue in which nobody was lost: {self._where}"
            self.closings.setdefault(directory, {})[path] = int(name[-10:])
            self.delays[path] = (entry.at_s, max(lost, default=0), entry.index)
            self._count("delays")
            return
        self.closings.get(directory, {}).pop(path, None)
        since_s, delay_ms, _ = self.delays.pop(path, (0.0, 0, 0))
        passed_s = entry.at_s - since_s
        if isinstance(operation, Reopen) and passed_s < CLOCK_RATE_LEAST * delay_ms / 1000:
            yield "lock-delay", f"{path} of {delay_ms} ms was over after {passed_s:.4f} s"

    # --- granting

    def _grant(self, entry: Entry, touched: dict[str, None]) -> Found:
        granted = entry.outcome.granted
        if granted and isinstance(entry.command.operation, FinishGrants):
            self._count("granted later")
        for path in granted:
            place = self.places.get(path)
            if place is None or place.is_holder:
                yield "one holder", f"{path} is granted, and was {place}: {self._where}"
                continue
            touched[place.directory] = None
            yield from self._check_grant(entry, place)
            self._tokens[place.directory] = place.czxid
            ends_s = entry.at_s + CLOCK_RATE_LEAST * place.max_hold_ms / 1000
            self._replace(
                path,
                granted_s=entry.at_s,
                granted_index=entry.index,
                counted_index=entry.index,
                ends_s=ends_s,
            )
            self._count("several" if place.group else place.kind.value)
        for path in granted:
            place = self.places.get(path)
            without = [] if place is None else [each for each in place.group if each not in granted]
            if without:
                yield "several locks as one", f"{path} is granted without {without}: {self._where}"

    def _check_grant(self, entry: Entry, place: Place) -> Found:
        path, directory = place.path, place.directory
        line, holders = self._line(directory), self.holders(directory)
        before = [each.path for each in line if each.number < place.number and not each.is_holder]
        if before:
            yield "fair order", f"{path} is granted before {before}: {self._where}"
        if not _go_together(place, holders):
            shown = [f"{each.path} ({each.kind.value})" for each in holders]
            yield "one holder", f"{path} ({place.kind.value}) is granted beside {shown}"
        if place.kind is Kind.SLOT and len(holders) >= self.sizes.get(directory, 1):
            size = self.sizes.get(directory)
            yield "size of a semaphore", f"{path} is granted beside {len(holders)} of {size}"
        if self._is_closed_to(place):
            yield "lock-delay", f"{path} is granted while {self.closings[directory]} close it"
        elif entry.at_s < self._delayed_until_s.get(directory, 0.0):
            yield "lock-delay", (
                f"{path} is granted at {entry.at_s:.4f}, before the lock-delay has passed at "
                f"{self._delayed_until_s[directory]:.4f}"
            )
        if place.czxid <= self._tokens.get(directory, 0):
            yield "tokens grow", f"{path}: {place.czxid} after token {self._tokens[directory]}"

    def _check_nobody_waits_in_vain(self, directory: str, granted: int) -> Found:
        """Whoever may hold holds, from the very command on that makes way, or granted its most."""
        waiting = next((each for each in self._line(directory) if not each.is_holder), None)
        if waiting is not None and all(map(self._may_hold, self._group(waiting))):
            if granted >= self.grants_max:
                self._count("left for later")
                return
            yield "nobody waits in vain", f"{waiting.path} may hold and does not: {self._where}"

    def _may_hold(self, place: Place) -> bool:
        if place.is_holder:
            return True  # the rest of its group may lack something
        line, holders = self._line(place.directory), self.holders(place.directory)
        if self._is_closed_to(place) or line[len(holders)] is not place:
            return False
        size = self.sizes.get(place.directory, 1)
        return _go_together(place, holders) and (place.kind is not Kind.SLOT or len(holders) < size)

    def _is_closed_to(self, place: Place) -> bool:
        numbers = self.closings.get(place.directory, {}).values()
        return any(number < place.number for number in numbers)

    # --- conditions and circles

    def _check_condition(self, entry: Entry) -> Found:
        """A write under a grant is done if the grant holds at that very entry, else never."""
        conditions, refusal = entry.command.if_held, entry.outcome.refusal
        if not conditions:
            return
        lost = [
            each
            for each in conditions
            if each.fencing_token not in [place.czxid for place in self.holders(each.directory)]
        ]
        is_refused = refusal is not None and refusal.code == "LockLost"
        self._count("fenced out" if is_refused else "fenced writes")
        if lost and refusal is None:
            yield "writes under a grant", f"{self._where} was done though {lost} does not hold"
        if is_refused and not lost:
            yield "writes under a grant", f"{self._where} was refused though {conditions} hold"

    def _check_deadlock(self, operation: object) -> Found:
        """Refused: there must have been a circle."""
        self._count("deadlocks")
        if isinstance(operation, Enter):
            mine: Owner = (operation.session_id, operation.owner)
            lines = self._lines()
            for directory in operation.directories:
                lines.setdefault(directory, []).append((mine, operation.kind, False))
            is_right = mine in stuck_owners(lines, self.sizes)
        else:
            assert isinstance(operation, Resize), "nothing else is refused so"
            sizes = {**self.sizes, operation.directory: operation.size}
            is_right = bool(stuck_owners(self._lines(), sizes))
        if not is_right:
            yield "no needless Deadlock", f"{operation} was refused, and could have gone on"

    def _check_circles(self, operation: object) -> Found:
        """Taken: nobody may wait for ever."""
        if isinstance(operation, Resize) or (isinstance(operation, Enter) and operation.owner):
            stuck = stuck_owners(self._lines(), self.sizes)
            if stuck:
                yield "no deadlock", f"{self._where} makes {sorted(stuck)} wait for ever"

    # --- inside

    def _line(self, directory: str) -> list[Place]:
        return [self.places[path] for path in self.queues.get(directory, ())]

    def _lines(self) -> dict[str, list[tuple[Owner, Kind, bool]]]:
        lines = {directory: self._line(directory) for directory in self.queues}
        return {
            directory: [(each.waits_as, each.kind, each.is_holder) for each in line]
            for directory, line in lines.items()
        }

    def _group(self, place: Place) -> list[Place]:
        return [self.places[path] for path in place.group or (place.path,) if path in self.places]

    def _replace(self, path: str, **changes: Any) -> None:
        place = self.places.get(path)
        if place is not None:
            self.places[path] = replace(place, **changes)

    def _count(self, what: str) -> None:
        self.tally[what] = self.tally.get(what, 0) + 1


def _go_together(place: Place, holders: list[Place]) -> bool:
    """Whether a newcomer may hold beside these, sizes aside."""
    is_alone = place.kind is Kind.EXCLUSIVE
    return not holders or (not is_alone and all(each.kind is place.kind for each in holders))


def _may_take(operation: object, place: Place) -> bool:
    """Whether this command may put this contender out of its queue."""
    match operation:
        case Release(path, czxid) | Revoke(path, czxid):
            return place.czxid == czxid and path in (place.group or (place.path,))
        case EndHold(path, czxid, _, extensions):
            is_named = place.czxid == czxid and path in (place.group or (place.path,))
            is_bounded = place.is_holder and place.max_hold_ms > 0
            return is_named and is_bounded and place.extensions == extensions
        case CloseSession() | ExpireSession():
            return place.session_id == operation.session_id
    return isinstance(operation, Abandon | Delete | Multi | Guarded)
