"""Reads of the queues: who is where, who holds, what closes them, what was held.

Reads only, for the rooms above; what they return are values of this moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from coordinator.state.commands import Kind
from coordinator.state.locks.contender import Closing, ContenderRecord, EndedGrant
from coordinator.state.locks.grant_history import GrantAndEnd, GrantQuery, KeptGrant
from coordinator.state.locks.lookups import first_granted, with_token
from coordinator.state.locks.queues import LockTable


@dataclass(frozen=True, slots=True)
class Standing:
    """The place of a contender: ``position`` counts those before it, and is 0 for a holder.

    ``is_queued`` is False when it is not (or no longer) there; then ``position`` is -1.
    """

    is_queued: bool
    is_holder: bool
    position: int


_ABSENT: Final = Standing(is_queued=False, is_holder=False, position=-1)


class LockReads:
    """The queues of one machine, to be read."""

    def __init__(self, table: LockTable) -> None:
        self._table = table

    @property
    def has_ungranted(self) -> bool:
        """Whether a contender may hold, and is granted by a command that follows."""
        return bool(self._table.ungranted)

    def standing(self, path: str) -> Standing:
        """Return the place of the contender, in O(log n)."""
        contender = self._table.contenders.get(path)
        if contender is None:
            return _ABSENT
        return Standing(
            is_queued=True, is_holder=contender.is_holder, position=self._table.position(path)
        )

    def record(self, path: str) -> ContenderRecord | None:
        """Return the contender of this path, None when there is none."""
        found: ContenderRecord | None = self._table.contenders.get(path)
        return found

    def holders(self, directory: str) -> tuple[ContenderRecord, ...]:
        """Return who holds, in queue order."""
        return tuple(self._table.holders(directory))

    def contenders(
        self, directory: str, limit: int | None = None, start: int = 0
    ) -> tuple[ContenderRecord, ...]:
        """Return the contenders in the queue, holders first; at most ``limit``, from the position
        ``start`` on."""
        queue = self._table.queues.get(directory)
        if queue is None:
            return ()
        end = None if limit is None else start + limit
        return tuple([self._table.contenders[path] for _, path in queue.contenders[start:end]])

    def holders_behind(
        self, directory: str, place: tuple[int, str], limit: int
    ) -> tuple[ContenderRecord, ...]:
        """Return at most ``limit`` of those who hold behind a place (number and path) of the
        queue, whether anybody still has that place or not."""
        queue = self._table.queues.get(directory)
        if queue is None:
            return ()
        start = bisect_right(queue.contenders, place)
        return self.contenders(directory, max(0, min(limit, queue.held - start)), start)

    def waiters_behind(
        self, directory: str, place: tuple[int, str], limit: int
    ) -> tuple[ContenderRecord, ...]:
        """Return at most ``limit`` of those who wait behind a place of the queue, as above."""
        queue = self._table.queues.get(directory)
        if queue is None:
            return ()
        return self.contenders(
            directory, limit, max(queue.held, bisect_right(queue.contenders, place))
        )

    def of_owner(self, session_id: str, owner: str) -> Iterator[ContenderRecord]:
        """Iterate over the contenders of an owner, in all queues."""
        for path in self._table.owners.get((session_id, owner), ()):
            yield self._table.contenders[path]

    def has_lost_right(self, contender: ContenderRecord) -> bool:
        """Whether nothing may be granted to this contender any more."""
        rights = self._table.rights
        return rights is not None and rights.are_lost(contender)

    def with_token(self, directory: str, token: int) -> ContenderRecord | None:
        """Return the contender with this fencing token, None when there is none, in O(log n)."""
        return with_token(self._table, directory, token)

    def length(self, directory: str) -> int:
        """Return how many are in the queue, holders included."""
        queue = self._table.queues.get(directory)
        return 0 if queue is None else len(queue.contenders)

    def holder_count(self, directory: str) -> int:
        """Return how many hold."""
        queue = self._table.queues.get(directory)
        return 0 if queue is None else queue.held

    def would_hold(self, directory: str, kind: Kind, size: int | None) -> bool:
        """Whether a newcomer would hold at once; ``size`` is that of a semaphore that is new."""
        known: int | None = self._table.sizes.get(directory, size)
        return self._table.would_hold(directory, kind, known or 0)

    def first_holder(self, directory: str) -> ContenderRecord | None:
        """Return the first of those who hold, None when nobody does."""
        return next(self._table.holders(directory), None)

    def directories(self) -> Iterator[str]:
        """Iterate over the queues that have a contender, or are closed; in no order."""
        return iter(self._table.queues)

    def directories_to_take(self) -> list[dict[str, Any]]:
        """Return the queues of now as the keys of a few dicts, for who takes them out in turns.

        A dict is copied in a quarter of the time that a set of its keys is made in."""
        return [part.copy() for part in self._table.queues.parts if part]

    def size(self, directory: str) -> int | None:
        """Return the size of a semaphore, None for what is none."""
        found: int | None = self._table.sizes.get(directory)
        return found

    def closed(self, directory: str) -> tuple[Closing, ...]:
        """Return what closes the queue by lock-delay, in the order of the places."""
        queue = self._table.queues.get(directory)
        if queue is None:
            return ()
        places = sorted([(number, path) for path, number in queue.closings.items()])
        found = [self._table.closings.get(path) for _, path in places]
        return tuple([each for each in found if each is not None])

    def closings(self) -> tuple[Closing, ...]:
        """Return all that closes a queue by lock-delay, for the leader's timers."""
        return tuple(self._table.closings.values())

    def closing(self, path: str) -> Closing | None:
        """Return what closes its queue as the znode ``path``, None when that is nothing."""
        found: Closing | None = self._table.closings.get(path)
        return found

    def contender_paths(self) -> tuple[str, ...]:
        """Return the paths of all contenders, for the leader's timers."""
        return tuple(self._table.contenders)

    def history(self, query: GrantQuery) -> tuple[KeptGrant, ...]:
        """Return the grants asked for, ended and held, in the order in which they were granted.

        That of one queue with a token is looked up; else all of the queue, or of all queues, are
        looked at, in one step: a service that has more to do reads slices (``ended_behind``).
        """
        table, directory, token = self._table, query.directory, query.token
        grants: list[GrantAndEnd]
        if directory is not None and token is not None:
            found = with_token(table, directory, token)
            grants = [] if found is None or not found.is_holder else [(found, None)]
            last = table.history.with_token(directory, token)
            grants += [] if last is None else [(last.contender, last)]
        else:
            directories = table.queues if directory is None else (directory,)
            grants = [(each, None) for one in directories for each in table.holders(one)]
            ended = table.history.behind(directory, query.after, len(table.history))
            grants += [(each.contender, each) for each in ended]
        wanted = sorted(query.among(grants), key=_number_of)[: max(query.limit, 0)]
        return tuple([self.kept(contender, end) for contender, end in wanted])

    def kept(self, contender: ContenderRecord, ended: EndedGrant | None) -> KeptGrant:
        """Return a grant that is held, or has ended so; in O(log n)."""
        if ended is None:
            return KeptGrant.of(contender, None, None)
        directory, zxid = contender.directory, ended.ended_zxid
        later = [
            each
            for each in (
                first_granted(self._table, directory, zxid),
                self._table.history.granted_since(directory, zxid),
            )
            if each is not None
        ]
        following = min(later, key=_grant_number_of, default=None)
        return KeptGrant.of(contender, ended, None if following is None else following.czxid)

    @property
    def grant_count(self) -> int:
        """The number of the latest grant."""
        return self._table.grant_count

    def ended_behind(self, directory: str | None, number: int, count: int) -> list[EndedGrant]:
        """Return the first ``count`` ended grants behind a number, in the order of the grants."""
        return self._table.history.behind(directory, number, count)

    def ended(self) -> tuple[KeptGrant, ...]:
        """Return the grants that have ended and are kept, in the order of their ends."""
        return tuple(self._table.history)

    def ends(self) -> tuple[EndedGrant, ...]:
        """Return how those grants ended, as they are kept: cheap, to be read in turns."""
        return tuple(self._table.history.latest_first())

    def ended_directories(self) -> tuple[str, ...]:
        """Return the queues of which a grant has ended and is kept, in no order."""
        return self._table.history.directories()

    def ended_at(self, zxid: int) -> tuple[EndedGrant, ...]:
        """Return the grants that the latest command ended, if that was ``zxid``; the last first.
        All of them, however few the history keeps: their holders must be notified."""
        ended = self._table.ended_now
        return tuple(reversed(ended)) if ended and ended[0].ended_zxid == zxid else ()

    def last_ended(self, directory: str) -> EndedGrant | None:
        """Return how the grant of a queue ended that ended last, None when none is known."""
        return self._table.history.last_of(directory)

    def latest_ended(self, directory: str, count_max: int) -> list[EndedGrant]:
        """Return how the latest grants of a queue ended, the last first."""
        return self._table.history.latest(directory, count_max)


def _grant_number_of(contender: ContenderRecord) -> int:
    return contender.grant_number


def _number_of(grant: GrantAndEnd) -> int:
    return grant[0].grant_number
