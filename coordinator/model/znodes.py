"""Znodes as clients see them: the Stat, what is read, written, deleted and listed."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

from msgspec import Struct

from coordinator.model.fields import Count, Positive, described, one_of


class CreateMode(StrEnum):
    """How long a znode lives and how it is named (ZooKeeper's create modes)."""

    PERSISTENT = "persistent"
    PERSISTENT_SEQUENTIAL = "persistent_sequential"
    EPHEMERAL = "ephemeral"
    EPHEMERAL_SEQUENTIAL = "ephemeral_sequential"
    CONTAINER = "container"
    TTL = "ttl"
    TTL_SEQUENTIAL = "ttl_sequential"

    @property
    def is_sequential(self) -> bool:
        """Whether the name gets a number at its end."""
        return self.value.endswith("sequential")

    @property
    def is_ephemeral(self) -> bool:
        """Whether the znode ends with its session."""
        return self.value.startswith("ephemeral")

    @property
    def is_ttl(self) -> bool:
        """Whether the znode ends when nothing changed for its time to live."""
        return self.value.startswith("ttl")


class Stat(NamedTuple):
    """What is known of a znode besides its data (ZooKeeper's Stat, units in the names).

    ``version`` counts changes of the data, ``cversion`` of the children, ``aversion`` of the access
    rules; ``pzxid`` is the zxid of the last change of the children. ``ephemeral_owner`` is the
    session id of an ephemeral znode, None otherwise. ``mode`` is the create mode as it was asked.
    A named tuple: the state keeps it as a row of its fields.
    """

    czxid: Count
    mzxid: Count
    pzxid: Count
    ctime_ms: Count
    mtime_ms: Count
    version: Count
    cversion: Count
    aversion: Count
    ephemeral_owner: str | None
    data_length: Count
    num_children: Count
    mode: Annotated[str, one_of(*CreateMode)] = "persistent"
    ttl_ms: Positive | None = None


Data = Annotated[bytes, described("the data")]


class Znode(Struct, frozen=True):
    """The reply of a read: a path with its data and Stat."""

    path: str
    data: Data
    stat: Stat

    if not TYPE_CHECKING:  # other libraries' ``get`` returns two values

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "'Znode' object is not iterable: `znode = client.get(path)`, then `znode.data` and "
                "`znode.stat`"
            )


class Written(Struct, frozen=True):
    """The reply of a create or a set: the full path (with its number) and the new Stat."""

    path: str
    stat: Stat


class Child(Struct, frozen=True):
    """One child in a listing with Stats."""

    name: str
    stat: Stat


class Children(Struct, frozen=True):
    """The reply of a listing: names, or (if Stats were asked for) names with their Stats.

    ``stat`` is the parent's; ``next`` is what to pass as ``after`` for the rest, or None.
    """

    path: str
    children: tuple[str | Child, ...]
    stat: Stat
    next: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the children, in order."""
        return tuple([each.name if isinstance(each, Child) else each for each in self.children])

    @property
    def stats(self) -> tuple[Stat, ...]:
        """Return the Stats of the children, aligned with ``names``; empty if not asked for."""
        return tuple([each.stat for each in self.children if isinstance(each, Child)])

    if not TYPE_CHECKING:  # other libraries' listing is a list, which has no next page

        def __iter__(self) -> NoReturn:
            raise TypeError(
                "'Children' object is not iterable: `client.children(path).names`; if `.next` is "
                "not None there are more, `client.children(path, after=...)`"
            )


class Subtree(Struct, frozen=True):
    """A page of a subtree as it was at ``zxid``: parents first, children by name.

    ``is_partial``: the caller may not read and watch everything there, so some may be left out.
    ``next`` is what to pass as ``after`` for the rest, or None. Pages may be of different zxids: a
    watch with values from that of the first one says what changed between.
    """

    path: str
    znodes: tuple[Znode, ...]
    zxid: Count
    next: str | None = None
    is_partial: bool = False
