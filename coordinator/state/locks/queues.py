"""The queues of locks and elections: who is in them, who holds, who is next.

A queue is a directory ``/locks/<segment>`` or ``/elections/<segment>``; a contender is a child
whose name ends in its number. This is the record of them beside the tree, kept from the tree's
events when a command is done, so that commands over the plain tree count as well.

1. Contenders are queued in the order of their numbers; newcomers come last, one with each command
   (``newcomers``), so numbers and fencing tokens (czxids) grow together.
2. The holders are the first ``held`` of a queue, granted in its order. EXCLUSIVE holds alone;
   SHARED with SHARED only; SLOT with SLOT only, up to the size. A holder goes on until its
   znode is deleted (or it is downgraded): neither a newcomer nor a smaller size takes a grant away.
3. A ``delay-`` znode closes the queue: nobody numbered above it is granted.
4. The contenders of one group (a multi-lock) are granted in one command, when all of them can be,
   and go in one command. Of others ``grants_per_command_max`` are granted at most; who may hold as
   well waits in its place, in a queue that is in ``ungranted``, for the commands that follow.
5. Kind: as it entered, or else by the name: ``read-`` SHARED, ``slot-`` SLOT, others EXCLUSIVE.
6. A contender that has lost the right is not granted (``rights``): it is taken out when the leader
   says so, at the latest when it would be granted. A holder goes on holding.

``model.queue_order`` takes the same decision from names alone; a test compares the two.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from typing import Final

from coordinator.model.events import Event, EventType
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import EXCLUSIVE, SHARED, Kind
from coordinator.state.large_map import LargeMap
from coordinator.state.locks.contender import (
    CONTENDER_DEPTH,
    DELAY_PREFIX,
    QUEUE_DEPTH,
    QUEUE_ROOTS,
    Closing,
    ContenderRecord,
    Departure,
    EndedGrant,
    LocksCapture,
    made_by_hand,
    number_of,
)
from coordinator.state.locks.grant_history import KeptGrants
from coordinator.state.locks.queue import Queue
from coordinator.state.locks.rights import LockRights
from coordinator.state.locks.waiting import Waiting
from coordinator.state.outcomes import Created
from coordinator.state.paths import parent_of, split
from coordinator.state.tree import Tree

_CREATED: Final = EventType.CREATED
_DATA_CHANGED: Final = EventType.DATA_CHANGED
LOOKED_AT_ONCE = 100
"""Queues in which grants are gone on with; places that are taken out of theirs."""


class LockTable:
    """All contenders and queues, and the history of their grants."""

    def __init__(self, limits: MachineLimits, ended: tuple[EndedGrant, ...] = ()) -> None:
        self.contenders = LargeMap[str, ContenderRecord]()
        self.queues = LargeMap[str, Queue]()
        self.owners = LargeMap[tuple[str, str], dict[str, None]]()
        """The contenders of each owner that has a name, by session and owner."""
        self.waiting = Waiting()
        self.sizes = LargeMap[str, int]()
        self.closings = LargeMap[str, Closing]()
        self.history = KeptGrants(limits, ended)
        self.grant_count = 0
        self.limits = limits
        self.ungranted: dict[str, None] = {}
        """Queues in which the next may hold: there were too many for one command."""
        self.leaving: Container[str] = ()
        """Sessions that have ended, some of whose contenders still stand here."""
        self.rights: LockRights | None = None
        """Who may still be granted what; None: everybody."""
        self.is_changed = False
        """Whether this command changed something here that has no event."""
        self.entered: dict[str, None] = {}
        """Queues that this command has made a contender in."""
        self.ended_now: list[EndedGrant] = []
        """The grants that this command has ended, also those that the history does not keep."""
        self.groups_going: dict[str, int] = {}
        """The multi-locks that this command deletes, by their first place; how many places."""
        self.places_going = 0
        self._pending: dict[str, ContenderRecord] = {}
        self.pending_delays: dict[str, int] = {}
        """For how long to close a queue when the contender at this path goes."""
        self._touched: dict[str, None] = {}
        self._left_out = 0
        """How many this command has not granted to, because they have lost the right to it."""

    def use(self, limits: MachineLimits) -> None:
        """Keep as much of the history of grants as ``limits`` say from now on."""
        self.history.use(limits)
        self.limits = limits

    # --- what a command says before it is settled

    def expect(self, contender: ContenderRecord) -> None:
        """Take this for the contender of its path when its creation is settled.

        One that says already that it holds is certain to; it has the ``next_grant_number``.
        """
        self._pending[contender.path] = contender

    def next_grant_number(self) -> int:
        """Return the number of the next grant: one more than the last."""
        self.grant_count += 1
        return self.grant_count

    def expect_closing(self, path: str, delay_ms: int) -> None:
        """Close the queue for ``delay_ms`` when the contender at ``path`` goes."""
        self.pending_delays[path] = delay_ms

    def replace(self, contender: ContenderRecord) -> None:
        """Change a contender in place; its queue is looked at when the command is settled."""
        self.contenders.change(contender.path, contender)
        self._touched[parent_of(contender.path)] = None
        self.is_changed = True

    def note_repeated(self, entered: Iterable[Created]) -> None:
        """The request that made these came again. It changes nothing that anybody can see."""
        for created in entered:
            contender = self.contenders.get(created.path)
            if contender is not None and contender.czxid == created.stat.czxid:
                self.contenders[created.path] = contender.but(is_repeated=True)

    def resize(self, directory: str, size: int) -> None:
        """Set the size of a semaphore, and look at its queue at the end of the command."""
        self.sizes[directory] = size
        self._touched[directory] = None
        self.is_changed = True

    def go_on_granting(self) -> None:
        """Look at the queues with a contender that is still to be granted."""
        for directory in islice(self.ungranted, LOOKED_AT_ONCE):
            self._touched[directory] = None
            self.is_changed = True

    def take_out(self, tree: Tree, paths: tuple[str, ...]) -> None:
        """Delete those who wait there and have lost the right to be granted, up to a bound."""
        places = 0
        for path in paths:
            contender, znode = self.contenders.get(path), tree.find(path)
            if contender is None or znode is None or contender.is_holder:
                continue
            if places >= LOOKED_AT_ONCE:
                break
            if self.rights is not None and self.rights.are_lost(contender):
                tree.remove(path, znode)
                places += contender.places

    def discard(self) -> None:
        """Forget what a refused command expected."""
        self._pending.clear()
        assert not self.is_changed, "what has no event changes last, when nothing is refused"
        assert not self.pending_delays, "a session is ended when nothing can be refused any more"

    def begin(self) -> None:
        """Forget what the command before has changed."""
        self.is_changed = False
        if self.entered:
            self.entered.clear()
        if self.ended_now:
            self.ended_now.clear()
        if self.groups_going:
            self.groups_going.clear()
            self.places_going = 0

    # --- settling a command

    def settle(self, tree: Tree, departure: Callable[[], Departure]) -> tuple[str, ...]:
        """Follow the events of a command; return who holds from now on, in queue order.

        ``departure`` says why those go that go. Deletes the other contenders of a group of which
        one has gone: further events.
        """
        granted: list[str] = []
        settled, self._left_out = 0, 0
        while settled < len(tree.events) or self._touched:
            while settled < len(tree.events):  # it grows while groups go
                event = tree.events[settled]
                settled += 1
                path = event.path
                if not path.startswith(QUEUE_ROOTS) or event.type is _DATA_CHANGED:
                    continue
                if event.type is _CREATED:
                    self._arrive(tree, event, granted)
                elif path in self.contenders:
                    self._depart(tree, path, departure)
                elif path.count("/") == QUEUE_DEPTH:
                    self.sizes.pop(path, None)
                else:
                    self._reopen(path)
            if not self._touched:
                break
            touched = tuple(self._touched)
            self._touched.clear()
            for directory in touched:
                queue = self.queues.get(directory)
                if queue is not None and self.grant(
                    tree, directory, queue, granted, self.limits.grants_per_command_max
                ):
                    self.ungranted[directory] = None
                elif self.ungranted:
                    self.ungranted.pop(directory, None)
        return tuple(granted)

    def _arrive(self, tree: Tree, event: Event, granted: list[str]) -> None:
        path = event.path
        contender = self._pending.pop(path, None)
        if contender is None:
            contender = self.hand_made(tree, event)
            if contender is None:
                return
        directory = parent_of(path)
        queue = self.queues.get(directory)
        if queue is None:
            queue = Queue()
            self.queues.add(directory, queue)
        if contender.granted_zxid is None:
            self._touched[directory] = None
        else:
            assert queue.held == len(queue.contenders), "who holds at once is behind holders"
            queue.held += 1
            granted.append(path)
        self.place(queue, contender)

    def place(self, queue: Queue, contender: ContenderRecord) -> None:
        """Put a contender into its place in ``queue``."""
        path = contender.path
        self.contenders.add(path, contender)
        self.waiting.arrive(contender)
        place = (contender.number, path)
        if not queue.contenders or place > queue.contenders[-1]:
            queue.contenders.append(place)
        else:
            insort(queue.contenders, place)
        if contender.owner:
            self.owners.setdefault((contender.session_id, contender.owner), {})[path] = None

    def hand_made(self, tree: Tree, event: Event) -> ContenderRecord | None:
        """Return the contender that a plain znode is: anonymous, its kind said by its name.

        None for other znodes below the roots; one that closes its queue is noted here.
        """
        path, session_id = event.path, event.ephemeral_owner
        number = number_of(path)
        if number is None or path.count("/") != CONTENDER_DEPTH:
            return None
        directory, name = split(path)
        if name.startswith(DELAY_PREFIX):
            self._close(directory, path, number, event.czxid)
            return None
        if session_id is None:
            return None
        return made_by_hand(path, number, session_id, event, tree.find(path))

    def _close(self, directory: str, path: str, number: int, czxid: int) -> None:
        self.queues.setdefault(directory, Queue()).closings[path] = number
        delay_ms = self.pending_delays.pop(path, None)
        if delay_ms is not None:
            self.closings[path] = Closing(path, czxid, delay_ms)

    def _reopen(self, path: str) -> None:
        directory = parent_of(path)
        queue = self.queues.get(directory)
        if queue is not None and queue.closings.pop(path, None) is not None:
            self.closings.pop(path, None)
            self._look_at(directory, queue)

    def _depart(self, tree: Tree, path: str, departure: Callable[[], Departure]) -> None:
        contender = self.contenders.pop(path)
        directory = parent_of(path)
        queue: Queue = self.queues.get(directory)
        if queue.contenders[-1][1] == path:
            queue.contenders.pop()  # as a whole queue goes
        else:
            del queue.contenders[queue.index(contender.number, path)]
        if contender.owner:
            self._disown(contender)
        self.waiting.leave(contender)
        if contender.granted_zxid is not None:
            queue.held -= 1
            ended = EndedGrant(contender, tree.zxid, tree.wall_ms, departure())
            self.ended_now.append(ended)
            self.history.add(ended, directory)
        if contender.group:
            for other in contender.group:
                znode = tree.find(other)
                if znode is not None and znode.czxid == contender.czxid:
                    tree.remove(other, znode)
        self._look_at(directory, queue)

    def _look_at(self, directory: str, queue: Queue) -> None:
        """Grant in this queue when all have come and gone; forget it if nobody is left."""
        if queue.contenders or queue.closings:
            self._touched[directory] = None
        else:
            self.queues.pop(directory)
            self.ungranted.pop(directory, None)

    def _disown(self, contender: ContenderRecord) -> None:
        key = (contender.session_id, contender.owner)
        owned: dict[str, None] = self.owners.get(key)
        del owned[contender.path]
        if not owned:
            self.owners.pop(key)

    # --- granting

    def grant(
        self, tree: Tree, directory: str, queue: Queue, granted: list[str], granted_max: int
    ) -> bool:
        """Grant to the contenders behind the holders, in order, as far as possible.

        Return whether one more may hold, but ``granted_max`` have been granted.
        """
        while queue.held < len(queue.contenders):
            number, path = queue.contenders[queue.held]
            contender: ContenderRecord = self.contenders.get(path)
            if (queue.held or queue.closings) and not self._may_hold(
                queue, contender.kind, number, self.sizes.get(directory, 1)
            ):
                return False
            if contender.group and not self._may_group_hold(contender.group):
                return False
            if len(granted) + self._left_out >= granted_max:
                return True
            if self.rights is not None and self.rights.are_lost(contender):
                self._leave_out(tree, directory, contender)
                return False
            for each in contender.group or (path,):
                mine: ContenderRecord = self.contenders.get(each)
                self.queues.get(parent_of(each)).held += 1
                grant_number = self.next_grant_number()
                self.contenders.change(each, mine.as_granted(tree.zxid, tree.wall_ms, grant_number))
                self.waiting.leave(mine)
                granted.append(each)
                if self.ungranted and mine.kind is EXCLUSIVE:
                    self.ungranted.pop(parent_of(each), None)  # nobody else may hold there now
        return False

    def _leave_out(self, tree: Tree, directory: str, contender: ContenderRecord) -> None:
        """Take a contender out instead of granting to it; its queue is looked at once more."""
        znode = tree.find(contender.path)
        assert znode is not None, "a contender has its znode"
        tree.remove(contender.path, znode)
        self._left_out += 1
        self._touched[directory] = None

    def _may_hold(self, queue: Queue, kind: Kind, number: int, size: int) -> bool:
        """Whether the contender next behind the holders holds as well."""
        if queue.is_closed_to(number):
            return False
        if queue.held == 0:
            return True
        if kind is EXCLUSIVE:
            return False
        first = self.contenders[queue.contenders[0][1]]
        return first.kind is kind and (kind is SHARED or queue.held < size)

    def _may_group_hold(self, group: tuple[str, ...]) -> bool:
        for path in group:
            queue: Queue = self.queues.get(parent_of(path))
            number, first = queue.contenders[0]
            if first != path or queue.is_closed_to(number):
                return False
        return True

    # --- questions

    def would_hold(self, directory: str, kind: Kind, size: int) -> bool:
        """Whether a newcomer of this kind would hold at once."""
        queue = self.queues.get(directory)
        if queue is None:
            return True
        if queue.held < len(queue.contenders):
            return False
        return self._may_hold(queue, kind, queue.last_number + 1, size)

    def position(self, path: str) -> int:
        """Return how many are before a contender; 0 only for a holder."""
        contender: ContenderRecord = self.contenders.get(path)
        if contender.granted_zxid is not None:
            return 0
        return max(self.queues[parent_of(path)].index(contender.number, path), 1)

    def holders(self, directory: str) -> Iterator[ContenderRecord]:
        """Iterate over who holds, in queue order."""
        queue = self.queues.get(directory)
        if queue is not None:
            for _, path in islice(queue.contenders, queue.held):
                yield self.contenders[path]

    def counts(self) -> tuple[int, ...]:
        """Return the counter of grants, and how much is in each table."""
        return (
            self.grant_count, len(self.contenders), len(self.queues), len(self.owners),
            len(self.sizes), len(self.closings), len(self.ungranted), len(self.waiting),
        )  # fmt: skip

    def capture(self) -> LocksCapture:
        """Return the table as it is now, for a snapshot written later."""
        tables = (self.contenders.capture(), self.sizes.capture(), self.closings.capture())
        (contenders, _), (sizes, _), (closings, _) = tables
        return LocksCapture(
            contenders.values(), sizes.items(), closings.values(), self.history.capture(),
            self.grant_count, tuple(self.ungranted), tuple([hold for _, hold in tables]),
        )  # fmt: skip
