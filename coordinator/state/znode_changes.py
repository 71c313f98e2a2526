"""The changes of a znode, by itself and by its children; and its fields one by one.

Numbers are taken over as they are (``znode`` says why), so here they are Any.
"""

from __future__ import annotations

from typing import Any, Final

from coordinator.state.commands import CreateMode
from coordinator.state.outcomes import Stat
from coordinator.state.znode import ChildChanges, DataChanges, Tenure, ZnodeRecord

_PERSISTENT: Final = CreateMode.PERSISTENT
_CONTAINER: Final = CreateMode.CONTAINER
_PERSISTENT_WORD: Final[str] = CreateMode.PERSISTENT.value
TTL: Final = frozenset(mode for mode in CreateMode if mode.is_ttl)
MAY_IDLE: Final = TTL | {_CONTAINER}


def tenure_of(
    mode: CreateMode, owner: str | None, ttl_ms: int | None, identity: str
) -> Tenure | None:
    """Return the tenure of a znode, None of a persistent one of nobody."""
    if mode is _PERSISTENT and owner is None and ttl_ms is None and not identity:
        return None
    return Tenure(mode, owner, ttl_ms, identity)


def with_data(old: ZnodeRecord, data: bytes, zxid: Any, wall_ms: Any) -> ZnodeRecord:
    """Return the znode with other data."""
    was: Any = old
    before = old.writes
    writes = DataChanges(zxid, wall_ms, 1 if before is None else before.version + 1)
    return ZnodeRecord(
        data, was.czxid, was.ctime_ms, was.next_sequence, writes, old.family, old.tenure
    )


def with_child(old: ZnodeRecord, step: int, zxid: Any, next_sequence: Any) -> ZnodeRecord:
    """Return the znode with one child more, or less."""
    was: Any = old
    family = old.family
    if family is None:
        family = ChildChanges(zxid, 1, step)
    else:
        family = ChildChanges(zxid, family.cversion + 1, family.num_children + step)
    return ZnodeRecord(
        old.data, was.czxid, was.ctime_ms, next_sequence, old.writes, family, old.tenure
    )


def with_tenure(old: ZnodeRecord, tenure: Tenure | None) -> ZnodeRecord:
    """Return the znode with another tenure."""
    was: Any = old
    return ZnodeRecord(
        old.data, was.czxid, was.ctime_ms, was.next_sequence, old.writes, old.family, tenure
    )


def is_idle(znode: ZnodeRecord) -> bool:
    """Whether it is a container whose children have all been deleted, or a ttl znode without
    children."""
    tenure, family = znode.tenure, znode.family
    if tenure is None:
        return False
    if family is None:
        return tenure.mode in TTL
    if family.num_children:
        return False
    return tenure.mode in TTL or (tenure.mode is _CONTAINER and family.cversion > 0)


def stat_of(znode: ZnodeRecord) -> Stat:
    """Return the Stat that a client sees; access rules do not change yet (aversion 0)."""
    at: Any = znode
    writes, family, tenure = at.writes, at.family, at.tenure
    czxid, ctime_ms = at.czxid, at.ctime_ms
    mzxid, mtime_ms, version, pzxid, cversion, num_children = czxid, ctime_ms, 0, czxid, 0, 0
    if writes is not None:
        mzxid, mtime_ms, version = writes.mzxid, writes.mtime_ms, writes.version
    if family is not None:
        pzxid, cversion, num_children = family.pzxid, family.cversion, family.num_children
    mode, owner, ttl_ms = _PERSISTENT_WORD, None, None
    if tenure is not None:
        mode, owner, ttl_ms = tenure.mode._value_, tenure.ephemeral_owner, tenure.ttl_ms
    return tuple.__new__(Stat, (
        czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, cversion, 0, owner, len(at.data),
        num_children, mode, ttl_ms,
    ))  # fmt: skip


def fields_of(znode: ZnodeRecord) -> tuple[Any, ...]:
    """Return all fields, in the order in which they are digested and written down."""
    at: Any = znode
    writes, family, tenure = at.writes, at.family, at.tenure
    czxid, ctime_ms = at.czxid, at.ctime_ms
    if writes is None:
        mzxid, mtime_ms, version = czxid, ctime_ms, 0
    else:
        mzxid, mtime_ms, version = writes.mzxid, writes.mtime_ms, writes.version
    if family is None:
        pzxid, cversion, num_children = czxid, 0, 0
    else:
        pzxid, cversion, num_children = family.pzxid, family.cversion, family.num_children
    if tenure is None:
        return (
            at.data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, cversion, num_children,
            at.next_sequence, _PERSISTENT, None, None, "",
        )  # fmt: skip
    return (
        at.data, czxid, mzxid, pzxid, ctime_ms, mtime_ms, version, cversion, num_children,
        at.next_sequence, tenure.mode, tenure.ephemeral_owner, tenure.ttl_ms,
        tenure.identity,
    )  # fmt: skip
