"""Operations on znodes, alone or several at once, and their results.

The state machine runs these very values; in a body each has an ``op``.
``expected_version``: ``ANY_VERSION`` (-1) accepts any version, as in ZooKeeper
(Programmer's Guide, "ZooKeeper Data Model").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Struct, field

from coordinator.model.fields import (
    ANY_VERSION,
    LEFT_OUT,
    OR_NULL,
    Count,
    ExpectedVersion,
    Positive,
    ShortText,
    described,
    one_of,
)
from coordinator.model.fields import ZnodePath as Path
from coordinator.model.znodes import CreateMode, Data, Stat

PARENT_MODES = (CreateMode.PERSISTENT, CreateMode.CONTAINER)


class Create(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="create"):
    """Create a znode. Sequential modes append the parent's next number, ten digits or more.

    ``session_id`` is required for ephemeral modes, ``ttl_ms`` (1..) for ttl modes; both must be
    absent otherwise. ``parents`` says what to create missing ancestors as (PERSISTENT or
    CONTAINER); None means that a missing parent is refused with NoNode. Only ephemerals may be
    created in the queue of a lock or an election.
    """

    path: Path
    data: Data = b""
    mode: CreateMode = CreateMode.PERSISTENT
    session_id: Annotated[str | None, described("required by ephemeral modes")] = None
    ttl_ms: Annotated[Positive, described("required by ttl modes")] | None = None
    parents: Annotated[
        CreateMode | None, one_of(*PARENT_MODES), described("create missing ancestors as this")
    ] = None

    if TYPE_CHECKING:  # a program may write a mode as its word

        def __init__(
            self,
            path: str,
            data: bytes = b"",
            mode: CreateMode | str = CreateMode.PERSISTENT,
            session_id: str | None = None,
            ttl_ms: int | None = None,
            parents: CreateMode | str | None = None,
        ) -> None: ...


class SetData(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="set"):
    """Replace the data of a znode, if its version is the expected one."""

    path: Path
    data: Data
    expected_version: ExpectedVersion = ANY_VERSION


class Delete(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="delete"):
    """Delete a znode; ``is_recursive`` takes the whole subtree, children before parents.

    ``expected_czxid`` binds the request to one incarnation of the znode (None: any). With a place
    of a multi-lock its other places go, too, and of several multi-locks all places count towards
    what one recursive delete may take.
    """

    path: Path
    expected_version: ExpectedVersion = ANY_VERSION
    expected_czxid: Count | None = None
    is_recursive: bool = field(name="recursive", default=False)


class Check(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="check"):
    """A condition on one znode; every field that is not None (or -1) must hold.

    ``exists=False`` asks for absence; then the other fields must be left alone.
    ``has_children`` is False for a missing znode. A check that asks for nothing asks that the
    znode exists, as ZooKeeper's does.
    """

    path: Path
    exists: bool | None = None
    expected_version: ExpectedVersion = ANY_VERSION
    expected_czxid: Count | None = None
    has_children: bool | None = None
    expected_owner: str | None = None


class Read(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="read"):
    """Read a znode inside a multi or a guarded write; its Stat may be absent (no such znode)."""

    path: Path


Operation = Create | SetData | Delete | Check | Read


class Multi(Struct, frozen=True, forbid_unknown_fields=True):
    """All of these, in order, or none (the first that is refused refuses all).

    ``by`` and ``reason`` are recorded with the grants and leaderships that its deletions end.
    """

    operations: tuple[Operation, ...]
    by: ShortText = ""
    reason: ShortText = ""


class Guarded(Struct, frozen=True, forbid_unknown_fields=True):
    """If all conditions hold then ``then`` else ``otherwise``; the branch is all or nothing."""

    conditions: tuple[Check, ...]
    then: tuple[Operation, ...] = ()
    otherwise: tuple[Operation, ...] = ()


# --- results


class Created(Struct, frozen=True, gc=False, tag_field="op", tag="create"):
    path: str
    stat: Stat


class DataSet(Struct, frozen=True, gc=False, tag_field="op", tag="set"):
    path: str
    stat: Stat


class Deleted(Struct, frozen=True, gc=False, tag_field="op", tag="delete"):
    path: str
    deleted_count: Positive = 1


class Checked(Struct, frozen=True, gc=False, tag_field="op", tag="check"):
    path: str


class ReadDone(Struct, frozen=True, gc=False, tag_field="op", tag="read"):
    """``stat`` is None when there is no such znode; ``data`` is then empty."""

    path: str
    data: Data
    stat: Stat | None


ZnodeResult = Created | DataSet | Deleted | Checked | ReadDone


class Result(Struct, frozen=True):
    """What one operation of a multi came to, as a client reads it: ``op`` says what it has."""

    op: Annotated[str, one_of("create", "set", "delete", "check", "read")]
    path: str
    stat: Annotated[Stat | None, OR_NULL] = None
    data: Data = b""
    deleted_count: Annotated[Positive, LEFT_OUT] = 0


class MultiReply(Struct, frozen=True):
    """``branch`` is None for a plain multi, else "then" or "otherwise"."""

    results: tuple[Result, ...]
    zxid: Count
    branch: Annotated[str | None, LEFT_OUT, one_of("then", "otherwise")] = None
