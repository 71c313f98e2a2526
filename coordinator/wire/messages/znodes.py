"""What is said about one znode: its Stat, its data, what was written, its children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from coordinator.errors import BadArgumentsError
from coordinator.wire.fields import Fields
from coordinator.wire.strict_json import found


class StatFields(Protocol):
    """Anything with the fields of a Stat: ours, or the state machine's."""

    @property
    def czxid(self) -> int: ...
    @property
    def mzxid(self) -> int: ...
    @property
    def pzxid(self) -> int: ...
    @property
    def ctime_ms(self) -> int: ...
    @property
    def mtime_ms(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def cversion(self) -> int: ...
    @property
    def aversion(self) -> int: ...
    @property
    def ephemeral_owner(self) -> str | None: ...
    @property
    def data_length(self) -> int: ...
    @property
    def num_children(self) -> int: ...
    @property
    def mode(self) -> str: ...
    @property
    def ttl_ms(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Stat:
    """What is known of a znode besides its data; the names are ZooKeeper's with their units."""

    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: str | None
    data_length: int
    num_children: int
    mode: str = "persistent"
    ttl_ms: int | None = None

    @classmethod
    def from_body(cls, body: Any, where: str = "stat") -> Stat:
        fields = Fields(body, where)
        return cls(
            czxid=fields.integer("czxid"),
            mzxid=fields.integer("mzxid"),
            pzxid=fields.integer("pzxid"),
            ctime_ms=fields.integer("ctime_ms"),
            mtime_ms=fields.integer("mtime_ms"),
            version=fields.integer("version"),
            cversion=fields.integer("cversion"),
            aversion=fields.integer("aversion"),
            ephemeral_owner=fields.text("ephemeral_owner", None),
            data_length=fields.integer("data_length"),
            num_children=fields.integer("num_children"),
            mode=fields.text("mode"),
            ttl_ms=fields.integer("ttl_ms", None),
        )


def stat_body(stat: StatFields) -> dict[str, Any]:
    """Return ``stat`` as a body."""
    return {
        "czxid": stat.czxid,
        "mzxid": stat.mzxid,
        "pzxid": stat.pzxid,
        "ctime_ms": stat.ctime_ms,
        "mtime_ms": stat.mtime_ms,
        "version": stat.version,
        "cversion": stat.cversion,
        "aversion": stat.aversion,
        "ephemeral_owner": stat.ephemeral_owner,
        "data_length": stat.data_length,
        "num_children": stat.num_children,
        "mode": str(stat.mode),
        "ttl_ms": stat.ttl_ms,
    }


@dataclass(frozen=True, slots=True)
class Znode:
    """The reply of a read: a path with its data and Stat."""

    path: str
    data: bytes
    stat: Stat

    if not TYPE_CHECKING:  # other libraries' ``get`` returns two values

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "'Znode' object is not iterable: `znode = client.get(path)`, then `znode.data` and "
                "`znode.stat`"
            )

    @classmethod
    def from_body(cls, body: Any) -> Znode:
        fields = Fields(body, "body")
        return cls(fields.text("path"), fields.data(), Stat.from_body(fields.inner("stat")))


@dataclass(frozen=True, slots=True)
class Written:
    """The reply of a create or a set: the full path (with its number) and the new Stat."""

    path: str
    stat: Stat

    @classmethod
    def from_body(cls, body: Any) -> Written:
        fields = Fields(body, "body")
        return cls(fields.text("path"), Stat.from_body(fields.inner("stat")))


@dataclass(frozen=True, slots=True)
class Deleted:
    """The reply of a delete."""

    path: str
    deleted_count: int

    @classmethod
    def from_body(cls, body: Any) -> Deleted:
        fields = Fields(body, "body")
        return cls(fields.text("path"), fields.integer("deleted_count"))


@dataclass(frozen=True, slots=True)
class Children:
    """The reply of a listing; ``next`` is what to pass as ``after`` for the rest, or None.

    ``stats`` is aligned with ``names`` when Stats were asked for, else empty. ``stat`` is the
    parent's.
    """

    path: str
    names: tuple[str, ...]
    stat: Stat | None
    next: str | None
    stats: tuple[Stat, ...] = ()

    if not TYPE_CHECKING:  # other libraries' listing is a list, which has no next page

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "'Children' object is not iterable: `client.children(path).names`; if `.next` is "
                "not None there are more, `client.children(path, after=...)`"
            )

    @classmethod
    def from_body(cls, body: Any) -> Children:
        fields = Fields(body, "body")
        children: Sequence[Any] = fields.items("children", lambda item, where: item)
        stat = fields.inner("stat")
        is_detailed = bool(children) and isinstance(children[0], Mapping)
        return cls(
            path=fields.text("path"),
            names=tuple(_child_name(each) for each in children),
            stat=None if stat is None else Stat.from_body(stat),
            next=fields.text("next", None),
            stats=tuple(Stat.from_body(each["stat"]) for each in children) if is_detailed else (),
        )


def _child_name(child: Any) -> str:
    name = child["name"] if isinstance(child, Mapping) else child
    if not isinstance(name, str):
        raise BadArgumentsError(f"body.children: expected names, found {found(name)}")
    return name
