"""The members of a group: read once, or kept true by one watch.

A stream reads all once; then the watch brings each change with its values, which costs no request.
If the history of changes does not reach back to what was missed, all are read again; so the last
listing of a stream is always true.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from coordinator.client import AsyncClient, Change, ChangeStream, Event, Znode
from coordinator.errors import (
    ClientClosedError,
    CompactedError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes.base.maybe_there import names_below, read

MemberState = Literal["up", "draining", "down"]
_AT_ONCE = 50
_BOOKMARK_MS = 1_000
_LOST = (CompactedError, UnavailableError, OutcomeUnknownError)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One program, as it was when it was read."""

    name: str
    state: MemberState
    reason: str
    metadata: Mapping[str, Any]
    fencing_token: int
    """The token of this registration: larger than that of any earlier one of the group."""
    session_id: str
    since_ms: int
    """When it was registered, by the clock of a member of the cluster."""

    @classmethod
    def of(cls, znode: Znode) -> GroupMember | None:
        """Return the member that a znode is, None if it is not one."""
        stat = znode.stat
        return cls.read(znode.path, znode.data, stat.ephemeral_owner, stat.czxid, stat.ctime_ms)

    @classmethod
    def read(
        cls, path: str, data: bytes, owner: str | None, czxid: int, ctime_ms: int
    ) -> GroupMember | None:
        """Return the member that a znode with these facts is, None if it is not one."""
        try:
            document = json.loads(data)
            state, reason, metadata = document["state"], document["reason"], document["metadata"]
        except (ValueError, KeyError, TypeError):
            return None
        if owner is None or state not in ("up", "draining", "down"):
            return None
        if not isinstance(reason, str) or not isinstance(metadata, dict):
            return None
        name = unquote(path.rpartition("/")[2])
        return cls(name, state, reason, metadata, czxid, owner, ctime_ms)


async def read_members(core: AsyncClient, path: str) -> dict[str, GroupMember]:
    """Return all members by the names of their znodes.

    Raises:
        UnavailableError: no member of the cluster answered in time.
    """
    names = await names_below(core, path)
    found: dict[str, GroupMember] = {}
    for begin in range(0, len(names), _AT_ONCE):
        some = names[begin : begin + _AT_ONCE]
        read = await asyncio.gather(*(read_member(core, f"{path}/{name}") for name in some))
        found.update({name: each for name, each in zip(some, read, strict=True) if each})
    return found


async def read_member(core: AsyncClient, path: str) -> GroupMember | None:
    """Return one member, None when it has gone or is none."""
    znode = await read(core, path)
    return None if znode is None else GroupMember.of(znode)


class GroupStream:
    """``async for members in stream``: the members now, then after each change, by name."""

    def __init__(self, core: AsyncClient, path: str) -> None:
        self._core = core
        self._path = path
        self._changes: ChangeStream | None = None
        self._members: dict[str, GroupMember] = {}
        self._shown: tuple[GroupMember, ...] | None = None
        self._is_behind = False
        """A change was taken from the watch, and who took it was cancelled: all must be read."""

    @property
    def zxid(self) -> int | None:
        """The zxid of the last change in the listing."""
        return None if self._changes is None else self._changes.zxid

    async def open(self) -> GroupStream:
        """Return once a member of the cluster watches for us, and all were read. Idempotent."""
        failures = 0
        while self._changes is None:
            try:
                await self._begin()
            except ClientClosedError:
                raise
            except _LOST:
                failures += 1
                await self._core.wait(self._core.retry_delay_ms(failures))
        return self

    async def close(self) -> None:
        """Stop watching."""
        if self._changes is not None:
            await self._changes.close()

    def __aiter__(self) -> GroupStream:
        return self

    async def __anext__(self) -> tuple[GroupMember, ...]:
        while True:
            if self._is_behind:
                await self.close()
                self._changes, self._is_behind = None, False
            if self._changes is None:
                await self.open()
            elif self._shown is not None:
                try:
                    change = await anext(self._changes)
                    self._is_behind = True
                    await self._apply(change)
                    self._is_behind = False
                except ClientClosedError:
                    raise
                except _LOST:
                    self._is_behind = True
                    continue
            members = tuple(self._members[name] for name in sorted(self._members))
            if members != self._shown:
                self._shown = members
                return members

    async def __aenter__(self) -> GroupStream:
        return await self.open()

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _begin(self) -> None:
        """Read all, and watch from there; changes between two pages are applied to both."""
        page = await self._core.subtree(self._path)
        pages, begin = [page], page.zxid
        while page.next is not None:
            page = await self._core.subtree(self._path, after=page.next)
            pages.append(page)
        found = {
            each.path.rpartition("/")[2]: GroupMember.of(each)
            for some in pages
            for each in some.znodes
            if each.path.rpartition("/")[0] == self._path
        }
        self._members = {name: each for name, each in found.items() if each is not None}
        bookmark_ms = _BOOKMARK_MS if len(pages) > 1 else None
        changes = self._core.watch(
            self._path, kind="subtree", values=True, from_zxid=begin, bookmark_ms=bookmark_ms
        )
        try:
            await changes.open()
            while (changes.zxid or 0) < page.zxid:
                await self._apply(await anext(changes))
        except BaseException:
            await changes.close()
            raise
        self._changes = changes

    async def _apply(self, change: Change) -> None:
        for event in change.events:
            parent, _, name = event.path.rpartition("/")
            if parent != self._path:
                continue
            member = await self._member(event, change, self._members.get(name))
            if member is None:
                self._members.pop(name, None)
            else:
                self._members[name] = member

    async def _member(
        self, event: Event, change: Change, before: GroupMember | None
    ) -> GroupMember | None:
        """Return who is there after an event; read only if that does not say it all."""
        is_new = event.czxid == change.zxid
        is_same = before is not None and before.fencing_token == event.czxid
        if not event.is_withheld:
            if event.data is None:
                return None
            if is_new or is_same:
                since_ms = change.wall_ms if is_new or before is None else before.since_ms
                facts = (event.data, event.ephemeral_owner, event.czxid, since_ms)
                return GroupMember.read(event.path, *facts)
        return await read_member(self._core, event.path)
