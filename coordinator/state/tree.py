"""The tree of znodes and its indexes, changed inside a transaction that can be rolled back.

The rules are in ``operations``; this is the storage.

1. A znode is an immutable value in one map by path. Capturing it costs nothing (``large_map``).
2. Everything else here (paths of children, ephemerals of a session, idle znodes, byte counts) is
   derived from that dict. It changes in one function, ``_replace``, forwards and backwards. There
   are two exceptions: ``of`` rebuilds a tree and sorts the paths once at the end;
   ``remove_subtree`` drops all of a subtree at once.
3. ``rollback`` undoes every write since ``begin``, newest first.
4. The dict is in the order in which znodes entered it: the same on every member with the same
   history, also across snapshots. Digests do not depend on it.
5. Paths of children are kept sorted by code point, which is the order of their names; the texts are
   the keys of the dict. Inserting and deleting is one memory move; a new highest one (a sequential
   one) is appended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from typing import Any, Final, NamedTuple

from coordinator.model.events import Event, EventType
from coordinator.state.capture_hold import CaptureHold
from coordinator.state.commands import CreateMode
from coordinator.state.emptying import emptied
from coordinator.state.large_map import LargeMap, Parts
from coordinator.state.paths import ROOT, join, parent_of, utf8_length
from coordinator.state.thread_breaks import with_breaks
from coordinator.state.tree_walk import runs_behind
from coordinator.state.znode import ZnodeRecord
from coordinator.state.znode_changes import (
    MAY_IDLE,
    is_idle,
    tenure_of,
    with_child,
    with_data,
    with_tenure,
)

_CREATED: Final = EventType.CREATED
_DELETED: Final = EventType.DELETED
_DATA_CHANGED: Final = EventType.DATA_CHANGED

Values = tuple[bytes | None, ...]
"""For each event the data of its znode after it, and before it; None: there was none."""
ZNODE_OVERHEAD_BYTES: Final = 512
"""What a znode counts against ``state_bytes_max`` besides its data and its path."""

SEQUENTIAL: Final = frozenset(mode for mode in CreateMode if mode.is_sequential)
EPHEMERAL: Final = frozenset(mode for mode in CreateMode if mode.is_ephemeral)
_SORTED_AT_ONCE: Final = 20_000
"""Some 3 ms for names in no order."""


class IdleZnode(NamedTuple):
    """A znode the leader may reap: a container at once, a ttl znode ``ttl_ms`` after its change."""

    path: str
    mzxid: int
    pzxid: int
    ttl_ms: int | None


def _sorted(paths: list[str]) -> list[str]:
    """Sort paths; of very many a part at a time, so that another thread may go on between."""
    if len(paths) <= _SORTED_AT_ONCE:
        paths.sort()
        return paths
    starts = range(0, len(paths), _SORTED_AT_ONCE)
    return list(merge(*[sorted(paths[at : at + _SORTED_AT_ONCE]) for at in starts]))


class Tree:
    """All znodes, and what is derived from them."""

    def __init__(self) -> None:
        self._znodes = LargeMap[str, ZnodeRecord]()
        self._children = LargeMap[str, list[str]]()
        """The sorted paths of children, by the path of the parent."""
        self._ephemerals: dict[str, dict[str, None]] = {}
        self._idle = LargeMap[str, None]()
        self.data_bytes = 0
        self.state_bytes = 0
        self.sequence_floor = 0
        """The first sequence number of a new znode: deleted parents may have used those below."""
        self.least_sequence = 0
        """No new number of any parent is below: a cluster that began again lost some it gave."""
        self.zxid: Any = 0
        self.wall_ms: Any = 0
        """These two as they are: see ``znode``."""
        self.identity = ""
        """Whose the znodes are that the command under way creates."""
        self._used: dict[str, tuple[int, int]] = {}
        """How many znodes, and bytes, there are by the identity that created them."""
        self.events: list[Event] = []
        self.values: Values = ()
        """The values of the events of the command before."""
        self._values: list[bytes | None] = []
        self._undo: list[tuple[str, ZnodeRecord | None]] = []
        self._floor_before = 0
        self._replace(ROOT, None, ZnodeRecord(b"", 0, 0, 0))

    @classmethod
    def of(cls, znodes: LargeMap[str, ZnodeRecord], sequence_floor: int) -> Tree:
        """Return the tree of these znodes, which are its own from now on; raises ValueError when
        they do not form one."""
        tree = cls()
        tree._forget(ROOT, tree._znodes.pop(ROOT))
        tree._znodes = znodes
        children = tree._children
        for path, znode in with_breaks(znodes.items()):
            tree._count_in(path, znode)
            if path != ROOT:
                parent = path[: path.rfind("/")] or ROOT
                siblings = children.get(parent)
                if siblings is None:
                    children.add(parent, [path])
                else:
                    siblings.append(path)
        tree.sequence_floor = sequence_floor
        tree._check()
        for parent, paths in with_breaks(children.items()):
            children.change(parent, _sorted(paths))
        return tree

    def _check(self) -> None:
        if ROOT not in self._znodes:
            raise ValueError("there is no root")
        for parent, paths in with_breaks(self._children.items()):
            above = self._znodes.get(parent)
            if above is None:
                raise ValueError(f"{parent} has children and is not there")
            if above.num_children != len(paths):
                raise ValueError(f"{parent} does not have its {above.num_children} children")
        for path, znode in with_breaks(self._znodes.items()):
            # Most have never had a child: they are not looked for.
            if znode.family is not None and znode.num_children and path not in self._children:
                raise ValueError(f"{path} does not have its {znode.num_children} children")

    # --- reads

    def __len__(self) -> int:
        return len(self._znodes)

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def find(self, path: str) -> ZnodeRecord | None:
        """Return the znode at ``path``, None when there is none."""
        found: ZnodeRecord | None = self._znodes.get(path)
        return found

    def capture_znodes(self) -> tuple[Parts[str, ZnodeRecord], CaptureHold]:
        """Return all znodes by path as they are now, and the hold that keeps the capture."""
        return self._znodes.capture()

    def merge_some(self) -> bool:
        """As ``LargeMap.merge_some``, for the znodes."""
        return self._znodes.merge_some()

    def emptied(self) -> Iterator[None]:
        """Empty a tree that is no longer used, by one value at each step."""
        yield from emptied(self._children, self._ephemerals, self._idle, self._used)
        while self._znodes.is_captured:
            yield None
        yield from emptied(self._znodes)

    def names(self, path: str, after: str | None = None, limit: int | None = None) -> list[str]:
        """Return the sorted names of children: at most ``limit`` of those behind ``after``."""
        children = self._children.get(path)
        if children is None:
            return []
        start = 0 if after is None else bisect_right(children, join(path, after))
        end = len(children) if limit is None else start + max(limit, 0)
        at = len(join(path, ""))
        return [child[at:] for child in children[start:end]]

    def subtree(self, path: str, count_max: int) -> list[str] | None:
        """Return ``path`` and all below it, parents first; None when they are too many."""
        found: list[str] = []
        waiting = [path]
        while waiting:
            path = waiting.pop()
            found.append(path)
            children = self._children.get(path)
            if children is not None:
                if len(found) + len(waiting) + len(children) > count_max:
                    return None
                waiting.extend(reversed(children))
        return found if len(found) <= count_max else None

    def runs_behind(self, path: str) -> Iterator[list[str]]:
        """Iterate over the paths behind ``path``, as ``tree_walk`` says."""
        return runs_behind(self._children, path)

    def find_all(self, run: list[str]) -> list[ZnodeRecord | None]:
        """Return the znode at each path, None where there is none."""
        return self._znodes.get_all(run)

    def marks_of(
        self, run: list[str], znodes: list[ZnodeRecord], *, has_tenures: bool
    ) -> list[int]:
        """Return the ``index_marks`` of each znode; ``has_tenures``: some of them have one."""
        if not has_tenures and not self._idle.has_any(run):
            return [0] * len(run)
        return [self.index_marks(path, znode) for path, znode in zip(run, znodes, strict=True)]

    def index_marks(self, path: str, znode: ZnodeRecord) -> int:
        """Return in which indexes a znode is: 1 idle znodes, 2 ephemerals of its owner."""
        mark = int(path in self._idle)
        owner = znode.ephemeral_owner
        return mark + 2 if owner is not None and path in self._ephemerals.get(owner, ()) else mark

    def counts(self) -> tuple[int, ...]:
        """Return the counters, and the size of each index."""
        return (
            self.data_bytes, self.state_bytes, self.sequence_floor, self.least_sequence,
            len(self._znodes), len(self._children), len(self._ephemerals), len(self._idle),
            len(self._used),
        )  # fmt: skip

    def highest_sequence(self) -> int:
        """Return the highest number that any parent may give next; looks at every znode."""
        known = max([each.next_sequence for each in self._znodes.values()])
        return max(known, self.sequence_floor, self.least_sequence)

    def some_ephemerals(self, session_id: str) -> Iterator[str]:
        """Iterate over a session's ephemerals as they entered the tree: the same everywhere.

        One whose deletion is undone enters again."""
        return iter(self._ephemerals.get(session_id, ()))

    def ephemeral_count(self, session_id: str) -> int:
        """Return how many ephemeral znodes a session has."""
        return len(self._ephemerals.get(session_id, ()))

    def used_by(self, identity: str) -> tuple[int, int]:
        """Return how many znodes an identity has created that are there, and their bytes."""
        return self._used.get(identity, (0, 0))

    def uses(self) -> Iterable[tuple[str, tuple[int, int]]]:
        """Return the identities that have created znodes, each with their number and bytes."""
        return self._used.items()

    def owners(self) -> Iterator[str]:
        """Iterate over the ids of sessions that own ephemeral znodes."""
        return iter(self._ephemerals)

    def idle_paths(self) -> list[str]:
        """Return the paths of what the leader may reap."""
        return list(self._idle)

    def idle(self, path: str) -> IdleZnode | None:
        """Return the znode if the leader may reap it, None if not, or if there is none."""
        if path not in self._idle:
            return None
        found: Any = self._znodes[path]
        writes, family, tenure = found.writes, found.family, found.tenure
        mzxid = found.czxid if writes is None else writes.mzxid
        pzxid = found.czxid if family is None else family.pzxid
        return tuple.__new__(IdleZnode, (path, mzxid, pzxid, tenure.ttl_ms))

    # --- the transaction

    def begin(self, zxid: int, wall_ms: int, identity: str = "") -> None:
        """Start the changes of one command; ``zxid`` is theirs if there are any.

        ``identity`` is whose the znodes are that it creates."""
        assert not self._undo, "the transaction before was neither committed nor rolled back"
        self.zxid = zxid
        self.wall_ms = wall_ms
        self.values = ()
        self.identity = identity
        self._floor_before = self.sequence_floor

    @property
    def is_changed(self) -> bool:
        """Whether the command under way has changed the tree."""
        return bool(self._undo)

    def commit(self) -> tuple[Event, ...]:
        """Keep the changes; return their events in order, whose values are ``values`` then."""
        self._undo = []  # made again: to empty a list takes compiled code longer
        if not self.events:
            return ()
        events, self.values = tuple(self.events), tuple(self._values)
        self.events = []
        self._values = []
        return events

    def rollback(self) -> None:
        """Undo the changes since ``begin``."""
        for path, old in reversed(self._undo):
            self._replace(path, self._znodes.get(path), old)
        self._undo.clear()
        self.events.clear()
        self._values.clear()
        self.sequence_floor = self._floor_before

    # --- changes, each leaving its event

    def add(self, path: str, parent: ZnodeRecord, child: ZnodeRecord, next_sequence: int) -> None:
        """Add ``child`` under ``parent``, whose counter becomes ``next_sequence``."""
        parent_path = parent_of(path)
        self._write(path, None, child)
        self._write_parent(parent_path, parent, 1, next_sequence)
        self._note_event(_CREATED, path, child, child.data, None)

    def replace_data(self, path: str, old: ZnodeRecord, data: bytes) -> ZnodeRecord:
        """Give the znode new data; return it as it is now."""
        new = with_data(old, data, self.zxid, self.wall_ms)
        self._write(path, old, new)
        self._note_event(_DATA_CHANGED, path, new, data, old.data)
        return new

    def make_persistent(self, path: str, old: ZnodeRecord) -> None:
        """Keep a container when it is empty. Its Stat shows it; there is no event."""
        tenure = tenure_of(CreateMode.PERSISTENT, None, None, old.identity)
        self._write(path, old, with_tenure(old, tenure))

    def remove(self, path: str, znode: ZnodeRecord) -> None:
        """Delete a znode without children and update its parent."""
        parent_path = parent_of(path)
        self._write(path, znode, None)
        self._note_deleted(path, znode)
        parent = self._znodes.get(parent_path)
        self._write_parent(parent_path, parent, -1, parent.next_sequence)

    def remove_subtree(self, doomed: list[str]) -> None:
        """Delete a whole subtree; ``doomed`` are all its paths, parents first."""
        znodes, children = self._znodes, self._children
        for path in reversed(doomed[1:]):
            znode = znodes.pop(path)
            self._undo.append((path, znode))
            children.pop(path, None)
            self._forget(path, znode)
            self._note_deleted(path, znode)
        top = doomed[0]
        children.pop(top, None)  # all at once; a rollback adds each again
        self.remove(top, znodes[top])

    def _note_deleted(self, path: str, znode: ZnodeRecord) -> None:
        if znode.next_sequence > self.sequence_floor:
            self.sequence_floor = znode.next_sequence
        self._note_event(_DELETED, path, znode, None, znode.data)

    def _note_event(
        self, kind: EventType, path: str, znode: ZnodeRecord, after: bytes | None,
        before: bytes | None,
    ) -> None:  # fmt: skip
        at: Any = znode
        writes, tenure = at.writes, at.tenure
        event = Event(
            kind, path, 0 if writes is None else writes.version, at.czxid,
            None if tenure is None else tenure.ephemeral_owner,
        )  # fmt: skip
        self.events.append(event)
        self._values.append(after)
        self._values.append(before)

    def _write_parent(self, path: str, old: ZnodeRecord, step: int, next_sequence: int) -> None:
        self._write(path, old, with_child(old, step, self.zxid, next_sequence))

    def _write(self, path: str, old: ZnodeRecord | None, new: ZnodeRecord | None) -> None:
        self._undo.append((path, old))
        self._replace(path, old, new)

    def _replace(self, path: str, old: ZnodeRecord | None, new: ZnodeRecord | None) -> None:
        """Change the tree and all its indexes at ``path``: the only place that does."""
        if new is None:
            assert old is not None, "something is deleted"
            self._znodes.pop(path)
            self._drop_child(path)
            self._forget(path, old)
            return
        if old is None:
            self._enter(path, new)
            self._add_child(path)
            return
        self._znodes.change(path, new)
        if new.data is not old.data:
            grown = len(new.data) - len(old.data)
            self.data_bytes += grown
            self.state_bytes += grown
            if grown and new.tenure is not None and new.tenure.identity:
                self._count(new.tenure.identity, 0, grown)
        if new.tenure is not None and new.tenure.mode in MAY_IDLE:
            self._note_idle(path, new)
        elif old.tenure is not None and old.tenure.mode in MAY_IDLE:
            self._idle.pop(path, None)

    def _enter(self, path: str, znode: ZnodeRecord) -> None:
        """Add a new znode; the caller adds it to the parent's."""
        self._znodes.add(path, znode)
        self._count_in(path, znode)

    def _count_in(self, path: str, znode: ZnodeRecord) -> None:
        """Add a znode that is in the map to the counts and indexes."""
        self.data_bytes += len(znode.data)
        size = state_bytes_of(path, znode.data)
        self.state_bytes += size
        tenure = znode.tenure
        if tenure is None:
            return
        if tenure.identity:
            self._count(tenure.identity, 1, size)
        if tenure.ephemeral_owner is not None:
            self._ephemerals.setdefault(tenure.ephemeral_owner, {})[path] = None
        if tenure.mode in MAY_IDLE:
            self._note_idle(path, znode)

    def _forget(self, path: str, znode: ZnodeRecord) -> None:
        """Remove a znode; the caller removes it from the parent's."""
        self.data_bytes -= len(znode.data)
        size = state_bytes_of(path, znode.data)
        self.state_bytes -= size
        tenure = znode.tenure
        if tenure is None:
            return
        if tenure.identity:
            self._count(tenure.identity, -1, -size)
        if tenure.ephemeral_owner is not None:
            self._disown(path, tenure.ephemeral_owner)
        if tenure.mode in MAY_IDLE:
            self._idle.pop(path, None)

    def _count(self, identity: str, znodes: int, size: int) -> None:
        count, total = self._used.get(identity, (0, 0))
        if count + znodes:
            self._used[identity] = (count + znodes, total + size)
        else:
            del self._used[identity]

    def _note_idle(self, path: str, znode: ZnodeRecord) -> None:
        if is_idle(znode):
            self._idle[path] = None
        else:
            self._idle.pop(path, None)

    def _add_child(self, path: str) -> None:
        if path == ROOT:
            return
        parent = parent_of(path)
        children = self._children.get(parent)
        if children is None:
            self._children.add(parent, [path])
        elif path > children[-1]:
            children.append(path)
        else:
            insort(children, path)

    def _drop_child(self, path: str) -> None:
        if path == ROOT:
            return
        parent = parent_of(path)
        children = self._children.get(parent)
        if len(children) == 1:
            self._children.pop(parent)
        elif children[-1] == path:
            children.pop()
        else:
            del children[bisect_left(children, path)]

    def _disown(self, path: str, session_id: str) -> None:
        owned = self._ephemerals[session_id]
        del owned[path]
        if not owned:
            del self._ephemerals[session_id]


def state_bytes_of(path: str, data: bytes) -> int:
    """Return what a znode counts against ``state_bytes_max``."""
    return len(data) + utf8_length(path) + ZNODE_OVERHEAD_BYTES
