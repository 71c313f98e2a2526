"""Znodes as the tree keeps them: small immutable values, for there may be a million of them.

What most znodes do not have is in parts of their own: a plain znode whose data never changed, and
that never had a child, has none of them. Of several that are equal one may be shared.

Not compiled: msgspec makes these classes, in memory that the garbage collector need not look at.
Compiled code that takes over a number from one of them reads it as Any: as an integer it would make
another object of it. ``znode_changes`` does so.
"""

from __future__ import annotations

from msgspec import Struct

from coordinator.model.znodes import CreateMode


class DataChanges(Struct, frozen=True, gc=False, array_like=True):
    """The last change of the data after the creation, and how many there were."""

    mzxid: int
    mtime_ms: int
    version: int


class ChildChanges(Struct, frozen=True, gc=False, array_like=True):
    """The last change of the children, how many there were, and how many children there are."""

    pzxid: int
    cversion: int
    num_children: int


class Tenure(Struct, frozen=True, gc=False, array_like=True):
    """How the znode lives, and whose it is: of all but persistent ones of nobody."""

    mode: CreateMode = CreateMode.PERSISTENT
    ephemeral_owner: str | None = None
    ttl_ms: int | None = None
    identity: str = ""
    """Who created it, against whose quota it counts; "" if nobody's."""


class ZnodeRecord(Struct, frozen=True, gc=False, array_like=True):
    """One entry of the tree."""

    data: bytes
    czxid: int
    ctime_ms: int
    next_sequence: int
    """The number of its next sequential child; it only grows."""
    writes: DataChanges | None = None
    family: ChildChanges | None = None
    tenure: Tenure | None = None

    @property
    def version(self) -> int:
        """How often its data changed."""
        return 0 if self.writes is None else self.writes.version

    @property
    def mzxid(self) -> int:
        """The zxid of the last change of its data."""
        return self.czxid if self.writes is None else self.writes.mzxid

    @property
    def num_children(self) -> int:
        """How many children it has."""
        return 0 if self.family is None else self.family.num_children

    @property
    def ephemeral_owner(self) -> str | None:
        """The session with which it ends, None if it is not ephemeral."""
        return None if self.tenure is None else self.tenure.ephemeral_owner

    @property
    def identity(self) -> str:
        """Who created it; "" if nobody's."""
        return "" if self.tenure is None else self.tenure.identity
