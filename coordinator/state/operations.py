"""The operations on znodes: what each requires, refuses and changes, by ZooKeeper's rules.

Each function works on a ``Tree`` inside a transaction and raises the refusal as its error. The
caller then rolls back the whole command.

1. Arguments are checked before the state: a malformed request is BadArguments whatever is there.
2. Names of sequential znodes come from the parent's counter, which only grows. A name that already
   exists is skipped (ZooKeeper refuses with NodeExists for ever). In the queue of a lock or
   election the new number is above all others, so the new contender is last.
3. Ephemeral znodes have no children (ZooKeeper Programmer's Guide, "Ephemeral Nodes").
4. A subtree is deleted in reversed pre-order: children before parents, the last sibling first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from coordinator.errors import (
    BadArgumentsError,
    BadVersionError,
    DataTooLargeError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotOwnerError,
    SessionExpiredError,
)
from coordinator.model.limits import MachineLimits
from coordinator.state import paths
from coordinator.state.access.quotas import Quotas
from coordinator.state.commands import (
    ANY_VERSION,
    Check,
    Create,
    CreateMode,
    Delete,
    Put,
    Read,
    SetData,
    ZnodeOperation,
)
from coordinator.state.locks.contender import CONTENDER_DEPTH, QUEUE_ROOTS
from coordinator.state.locks.newcomers import check_newcomer
from coordinator.state.locks.queues import LockTable
from coordinator.state.outcomes import (
    Checked,
    Created,
    DataSet,
    Deleted,
    GuardedDone,
    ReadDone,
    Stat,
    ZnodeResult,
)
from coordinator.state.paths import ROOT
from coordinator.state.room import Room
from coordinator.state.sessions import SessionTable
from coordinator.state.tree import EPHEMERAL, SEQUENTIAL, Tree, state_bytes_of
from coordinator.state.znode import Tenure, ZnodeRecord
from coordinator.state.znode_changes import TTL, stat_of, tenure_of
from coordinator.state.znode_refusals import (
    absent,
    beyond_limit,
    no_place,
    not_empty,
)

_ABOVE_QUEUES: Final = tuple([root[:-1] for root in QUEUE_ROOTS])
_CONTENDER_MODE: Final = CreateMode.EPHEMERAL_SEQUENTIAL
_PARENT_MODES: Final = frozenset({CreateMode.PERSISTENT, CreateMode.CONTAINER})


class ZnodeOperations:
    """Runs operations on one tree, for open sessions, within the limits."""

    def __init__(
        self,
        tree: Tree,
        sessions: SessionTable,
        locks: LockTable,
        quotas: Quotas,
        limits: MachineLimits,
    ) -> None:
        self._tree = tree
        self._sessions = sessions
        self._locks = locks
        self._room = Room(tree, quotas, limits)
        self._limits = limits
        self._last: ZnodeRecord | None = None
        self._stat: Stat | None = None
        """The znode created last, and its Stat."""
        self._tenure: Tenure | None = None
        """That of the znode created last that had one."""

    def run(self, operation: ZnodeOperation) -> ZnodeResult:
        """Run one operation; raises its refusal."""
        return _RUNNERS[type(operation)](self, operation)

    # --- create

    def create(self, operation: Create) -> Created:
        """Create one znode; raises its refusal."""
        self._check_create(operation)
        return self._create(
            operation.path,
            operation.mode,
            operation.parents,
            self.new_znode(operation.mode, operation.data, operation.session_id, operation.ttl_ms),
        )

    def create_contender(
        self, path: str, data: bytes, session_id: str, parents: CreateMode
    ) -> Created:
        """Create a contender whose name begins like ``path``, for a session that is open, or that
        this command opens."""
        paths.validate_sequential(path, self._limits)
        self._check_data(path, data, "create")
        self._check_share(path, session_id)
        mode = _CONTENDER_MODE
        child = self.new_znode(mode, data, session_id)
        return self._create(path, mode, parents, child, is_ordinary=False)

    def _create(
        self,
        path: str,
        mode: CreateMode,
        parents: CreateMode | None,
        child: ZnodeRecord,
        *,
        is_ordinary: bool = True,
    ) -> Created:
        """Create it. If it is not ordinary, it and its parents may use the reserve."""
        tree = self._tree
        is_sequential = mode in SEQUENTIAL
        if not is_sequential and tree.find(path) is not None:
            raise NodeExistsError(f"create {path}: it exists already", path=path)
        parent_path, prefix = paths.split(path)
        parent = tree.find(parent_path)
        if parent is None:
            parent = self._create_parents(path, parent_path, parents, is_ordinary=is_ordinary)
        self._check_parent(path, parent_path, parent)
        next_sequence = parent.next_sequence
        if parent_path.startswith(QUEUE_ROOTS):
            lowest = check_newcomer(path, parent_path, self._locks, is_sequential=is_sequential)
            next_sequence = max(next_sequence, lowest)
        if is_sequential:
            next_sequence = max(next_sequence, tree.least_sequence)
            base = paths.join(parent_path, prefix)
            path = base + paths.sequence_suffix(next_sequence)
            while tree.find(path) is not None:
                next_sequence += 1
                path = base + paths.sequence_suffix(next_sequence)
            next_sequence += 1
        self._room.check_create(path, state_bytes_of(path, child.data), is_ordinary=is_ordinary)
        tree.add(path, parent, child, next_sequence)
        return Created(path, self._stat_of_new(child))

    def _stat_of_new(self, child: ZnodeRecord) -> Stat:
        """Return the Stat of a new znode: that of the one before it, if the same request made both
        and they differ in their paths and data only."""
        last, stat = self._last, self._stat
        if (
            stat is None
            or last is None
            or child.czxid != last.czxid
            or child.ctime_ms != last.ctime_ms
            or child.tenure is not last.tenure
            or len(child.data) != len(last.data)
        ):
            stat = stat_of(child)
        self._last, self._stat = child, stat
        return stat

    def _check_create(self, operation: Create) -> None:
        path, mode, owner, limits = (
            operation.path, operation.mode, operation.session_id, self._limits,
        )  # fmt: skip
        if mode in SEQUENTIAL:
            paths.validate_sequential(path, limits)
        else:
            paths.validate(path, limits)
        if (operation.ttl_ms is not None) != (mode in TTL):
            raise BadArgumentsError(
                f"create {path}: expected a ttl for ttl modes and for no other, "
                f"found {operation.ttl_ms} with {mode.value}",
                path=path,
            )
        if operation.ttl_ms is not None and operation.ttl_ms < 1:
            raise BadArgumentsError(
                f"create {path}: expected a ttl of at least 1 ms, found {operation.ttl_ms}",
                path=path,
            )
        if operation.parents is not None and operation.parents not in _PARENT_MODES:
            raise BadArgumentsError(
                f"create {path}: expected parents to be persistent or container, "
                f"found {operation.parents.value}",
                path=path,
            )
        self._check_data(path, operation.data, "create")
        if (owner is not None) != (mode in EPHEMERAL):
            raise BadArgumentsError(
                f"create {path}: expected a session for ephemeral modes and for no other, "
                f"found {owner} with {mode.value}",
                path=path,
            )
        if owner is not None:
            self._check_owner(path, owner)
        if path.startswith(QUEUE_ROOTS):
            self._check_place(operation)

    def _check_place(self, operation: Create) -> None:
        """Refuse what would stay in a queue for ever: only ephemerals end with their client."""
        path, mode = operation.path, operation.mode
        parts = path.split("/", CONTENDER_DEPTH + 1)
        if len(parts) <= CONTENDER_DEPTH:
            return
        place = "/".join(parts[: CONTENDER_DEPTH + 1])
        if len(parts) == CONTENDER_DEPTH + 1:
            if mode not in EPHEMERAL:
                raise no_place(path, place, mode)
        elif operation.parents is not None and self._tree.find(place) is None:
            raise no_place(path, place, operation.parents)

    def _check_owner(self, path: str, session_id: str) -> None:
        if session_id not in self._sessions:
            raise SessionExpiredError(
                f"create {path}: session {session_id[:80]!a} is not open",
                path=path,
                session_id=session_id,
            )
        self._check_share(path, session_id)

    def _check_share(self, path: str, session_id: str) -> None:
        if self._tree.ephemeral_count(session_id) >= self._limits.ephemerals_per_session_max:
            raise beyond_limit(path, "ephemerals_per_session_max", self._limits)

    def _check_parent(self, path: str, parent_path: str, parent: ZnodeRecord) -> None:
        tenure, family = parent.tenure, parent.family
        if tenure is not None and tenure.ephemeral_owner is not None:
            raise NoChildrenForEphemeralsError(
                f"create {path}: its parent {parent_path} is ephemeral",
                path=path,
                parent=parent_path,
            )
        if family is not None and family.num_children >= self._limits.children_max:
            raise beyond_limit(path, "children_max", self._limits)

    def _check_data(self, path: str, data: bytes, verb: str) -> None:
        if len(data) > self._limits.data_bytes_max:
            raise DataTooLargeError(
                f"{verb} {path}: expected at most {self._limits.data_bytes_max} bytes of data, "
                f"found {len(data)}",
                path=path,
                data_bytes_max=self._limits.data_bytes_max,
                data_length=len(data),
            )

    def _create_parents(
        self, path: str, parent_path: str, mode: CreateMode | None, *, is_ordinary: bool
    ) -> ZnodeRecord:
        """Create the missing ancestors of ``path``, outermost first; return the innermost."""
        if mode is None:
            raise NoNodeError(f"create {path}: its parent {parent_path} does not exist", path=path)
        tree = self._tree
        missing: list[str] = []
        ancestor_path = parent_path
        while (ancestor := tree.find(ancestor_path)) is None:
            missing.append(ancestor_path)
            ancestor_path = paths.parent_of(ancestor_path)
        for child_path in reversed(missing):
            self._check_parent(child_path, ancestor_path, ancestor)
            child = self.new_znode(mode)
            size = state_bytes_of(child_path, b"")
            self._room.check_create(child_path, size, is_ordinary=is_ordinary)
            tree.add(child_path, ancestor, child, ancestor.next_sequence)
            ancestor_path, ancestor = child_path, child
        return ancestor

    def new_znode(
        self,
        mode: CreateMode,
        data: bytes = b"",
        owner: str | None = None,
        ttl_ms: int | None = None,
    ) -> ZnodeRecord:
        """Return the znode that this command creates, not yet in the tree."""
        tree = self._tree
        tenure = tenure_of(mode, owner, ttl_ms, tree.identity)
        if tenure is not None:
            if tenure == self._tenure:
                tenure = self._tenure
            self._tenure = tenure
        return ZnodeRecord(data, tree.zxid, tree.wall_ms, tree.sequence_floor, None, None, tenure)

    # --- set, delete, release

    def set_data(self, operation: SetData) -> DataSet:
        """Replace the data of a znode."""
        path, data = operation.path, operation.data
        self._check_path(path)
        self._check_data(path, data, "set")
        znode = self._existing(path, "set")
        _check_version(path, znode, operation.expected_version, None, "set")
        grown = len(data) - len(znode.data)
        if grown > 0:
            self._room.check_growth(path, znode.identity, grown)
        return DataSet(path, stat_of(self._tree.replace_data(path, znode, data)))

    def put(self, operation: Put) -> GuardedDone:
        """Create a znode, or replace its data where there is one."""
        path, data = operation.path, operation.data
        if self._tree.find(path) is None:
            return GuardedDone(True, (self.create(Create(path, data)),))
        return GuardedDone(False, (self.set_data(SetData(path, data)),))

    def delete(self, operation: Delete) -> Deleted:
        """Delete a znode, with all below it if the operation says so."""
        path = operation.path
        self._check_path(path)
        if path == ROOT:
            raise BadArgumentsError("delete /: the root cannot be deleted", path=ROOT)
        znode = self._existing(path, "delete")
        _check_version(path, znode, operation.expected_version, operation.expected_czxid, "delete")
        if znode.num_children == 0:
            self._check_groups(operation, (path,))
            self._tree.remove(path, znode)
            return Deleted(path)
        if not operation.is_recursive:
            raise not_empty(path, znode, "delete")
        return self._delete_subtree(operation)

    def _delete_subtree(self, operation: Delete) -> Deleted:
        tree, path = self._tree, operation.path
        doomed = tree.subtree(path, self._limits.recursive_delete_max)
        if doomed is None:
            raise beyond_limit(path, "recursive_delete_max", self._limits, verb="delete")
        self._check_groups(operation, doomed)
        tree.remove_subtree(doomed)
        return Deleted(path, len(doomed))

    def _check_groups(self, operation: Delete, doomed: Sequence[str]) -> None:
        """Refuse too many places of multi-locks: each takes its whole multi-lock with it."""
        locks, alone = self._locks, 0
        if not operation.path.startswith(_ABOVE_QUEUES):
            return
        for path in doomed:
            contender = locks.contenders.get(path)
            if contender is None or not contender.group:
                alone += 1
            elif contender.group[0] not in locks.groups_going:
                locks.groups_going[contender.group[0]] = len(contender.group)
                locks.places_going += len(contender.group)
        most = self._limits.recursive_delete_max
        if len(locks.groups_going) > 1 and alone + locks.places_going > most:
            raise beyond_limit(operation.path, "recursive_delete_max", self._limits, verb="delete")

    # --- check, read

    def check(self, operation: Check) -> Checked:
        """Raise unless every condition holds; an empty condition requires that the znode exists."""
        path, czxid, owner = operation.path, operation.expected_czxid, operation.expected_owner
        self._check_path(path)
        needs_znode = (
            operation.expected_version != ANY_VERSION or czxid is not None or owner is not None
        )
        znode = self._tree.find(path)
        if operation.exists is False:
            if needs_znode or operation.has_children is not None:
                raise BadArgumentsError(
                    f"check {path}: expected no other condition with exists=false", path=path
                )
            if znode is not None:
                raise NodeExistsError(
                    f"check {path}: expected it not to exist", path=path, czxid=znode.czxid
                )
            return Checked(path)
        if znode is None:
            if operation.has_children is False and not needs_znode and operation.exists is None:
                return Checked(path)
            raise NoNodeError(f"check {path}: {absent(path, czxid)}", path=path)
        _check_version(path, znode, operation.expected_version, czxid, "check")
        if owner is not None and znode.ephemeral_owner != owner:
            raise NotOwnerError(
                f"check {path}: expected owner {owner[:80]!a}, found {znode.ephemeral_owner}",
                path=path,
                expected_owner=owner,
                current_owner=znode.ephemeral_owner,
            )
        if operation.has_children is False and znode.num_children > 0:
            raise not_empty(path, znode, "check")
        if operation.has_children is True and znode.num_children == 0:
            raise NoNodeError(f"check {path}: expected children, found none", path=path)
        return Checked(path)

    def read(self, operation: Read) -> ReadDone:
        """Return the data and the Stat of a znode; without a Stat if there is none."""
        self._check_path(operation.path)
        znode = self._tree.find(operation.path)
        if znode is None:
            return ReadDone(operation.path, b"", None)
        return ReadDone(operation.path, znode.data, stat_of(znode))

    def _check_path(self, path: str) -> None:
        """Check the path unless its znode exists: it may be older than a lowered limit."""
        if self._tree.find(path) is None:
            paths.validate(path, self._limits)

    def _existing(self, path: str, verb: str) -> ZnodeRecord:
        znode = self._tree.find(path)
        if znode is None:
            raise NoNodeError(f"{verb} {path}: it does not exist", path=path)
        return znode


def _check_version(
    path: str, znode: ZnodeRecord, expected_version: int, expected_czxid: int | None, verb: str
) -> None:
    if expected_version != ANY_VERSION and expected_version != znode.version:
        raise BadVersionError(
            f"{verb} {path}: expected version {expected_version}, found {znode.version}",
            path=path,
            expected_version=expected_version,
            current_version=znode.version,
            current_zxid=znode.mzxid,
        )
    if expected_czxid is not None and expected_czxid != znode.czxid:
        raise BadVersionError(
            f"{verb} {path}: expected the znode created at zxid {expected_czxid}, "
            f"found one created at {znode.czxid}",
            path=path,
            expected_version=expected_version,
            current_version=znode.version,
            current_zxid=znode.mzxid,
            expected_czxid=expected_czxid,
            current_czxid=znode.czxid,
        )


# Not bound to the object: a cycle would keep the whole state after a snapshot has replaced it.
_RUNNERS: Final[dict[type, Callable[[ZnodeOperations, Any], ZnodeResult]]] = {
    Create: ZnodeOperations.create,
    SetData: ZnodeOperations.set_data,
    Delete: ZnodeOperations.delete,
    Check: ZnodeOperations.check,
    Read: ZnodeOperations.read,
}
