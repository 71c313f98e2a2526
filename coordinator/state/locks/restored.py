"""The lock table that a snapshot holds, built from the tree and checked against it."""

from __future__ import annotations

from collections.abc import Collection

from coordinator.model.events import Event, EventType
from coordinator.model.limits import MachineLimits
from coordinator.state.large_map import LargeMap
from coordinator.state.locks.contender import QUEUE_ROOTS, ContenderRecord, LocksCapture
from coordinator.state.locks.queue import Queue
from coordinator.state.locks.queues import LockTable
from coordinator.state.thread_breaks import with_breaks
from coordinator.state.tree import Tree


def restored_locks(tree: Tree, limits: MachineLimits, capture: LocksCapture) -> LockTable:
    """Rebuild the table of a tree; raises ValueError when the two do not fit."""
    table = LockTable(limits, capture.ended)
    table.grant_count = capture.grant_count
    table.sizes.update(capture.sizes)
    table.pending_delays = {each.path: each.delay_ms for each in capture.closings}
    recorded = _by_path(capture.contenders)
    _place_all(table, tree, recorded)
    if recorded or table.pending_delays:
        raise ValueError("a contender or lock-delay is recorded that is not there")
    found, closed = table.contenders, table.closings  # in the order in which they came, as before
    table.contenders = _by_path([found[each.path] for each in with_breaks(capture.contenders)])
    table.closings = LargeMap([(each.path, closed[each.path]) for each in capture.closings])
    for directory, queue in with_breaks(table.queues.items()):
        _find_held(table, directory, queue)
    for directory in capture.ungranted:
        if directory not in table.queues or directory in table.ungranted:
            raise ValueError(f"{directory} is still to be granted, twice, or is not there")
        table.ungranted[directory] = None
    for directory in table.sizes:
        if tree.find(directory) is None:
            raise ValueError(f"{directory} has a size and is not there")
    return table


def _by_path(contenders: Collection[ContenderRecord]) -> LargeMap[str, ContenderRecord]:
    return LargeMap([(each.path, each) for each in with_breaks(contenders)])


def _place_all(table: LockTable, tree: Tree, recorded: LargeMap[str, ContenderRecord]) -> None:
    for root in QUEUE_ROOTS:
        for segment in with_breaks(tree.names(root[:-1])):
            for name in with_breaks(tree.names(root + segment)):
                _arrive_again(table, tree, f"{root}{segment}/{name}", recorded)


def _arrive_again(
    table: LockTable, tree: Tree, path: str, recorded: LargeMap[str, ContenderRecord]
) -> None:
    znode = tree.find(path)
    assert znode is not None, "a listed child is there"
    owner = znode.ephemeral_owner
    event = Event(EventType.CREATED, path, znode.version, znode.czxid, owner)
    contender = table.hand_made(tree, event)
    if contender is None:
        return
    expected = recorded.pop(path, None)
    if (
        expected is None
        or expected.number != contender.number
        or expected.czxid != contender.czxid
        or expected.session_id != owner
        or expected.identity != contender.identity
    ):
        raise ValueError(f"{path} is recorded as another than the one that is there")
    table.place(table.queues.setdefault(expected.directory, Queue()), expected)


def _find_held(table: LockTable, directory: str, queue: Queue) -> None:
    standing = [table.contenders[path] for _, path in with_breaks(queue.contenders)]
    for each in with_breaks(standing):
        for other in each.group:
            if other not in table.contenders or table.contenders[other].group != each.group:
                raise ValueError(f"{each.path} is one of a group that is not whole")
    is_held = [each.is_holder for each in standing]
    queue.held = is_held.count(True)
    if not all(is_held[: queue.held]):
        raise ValueError(f"{directory}: a contender holds behind one that waits")
