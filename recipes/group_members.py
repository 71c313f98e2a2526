"""Who is registered in a group: read once, or kept true by one watch.

After a change only the members that it is about are read again. If the history of changes does not
reach back to what was missed, all are read again; so the last listing of a stream is always true.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from coordinator.client import AsyncClient, Change, ChangeStream, Znode
from coordinator.errors import (
    ClientClosedError,
    CompactedError,
    NoNodeError,
    OutcomeUnknownError,
    UnavailableError,
)

MemberState = Literal["up", "draining", "down"]
_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One program, as it was when it was read."""

    name: str
    state: MemberState
    reason: str
    metadata: Mapping[str, Any]
    fencing_token: int
    """Of this registration: larger than that of any earlier one of the group."""
    session_id: str
    since_ms: int
    """When it was registered, by the clock of a member of the cluster."""

    @classmethod
    def of(cls, znode: Znode) -> GroupMember | None:
        """Return the member that a znode is, None if it is not one."""
        owner = znode.stat.ephemeral_owner
        try:
            said = json.loads(znode.data)
            state, reason, metadata = said["state"], said["reason"], said["metadata"]
        except (ValueError, KeyError, TypeError):
            return None
        if owner is None or state not in ("up", "draining", "down"):
            return None
        if not isinstance(reason, str) or not isinstance(metadata, dict):
            return None
        name, stat = unquote(znode.path.rpartition("/")[2]), znode.stat
        return cls(name, state, reason, metadata, stat.czxid, owner, stat.ctime_ms)


async def read_members(core: AsyncClient, path: str) -> dict[str, GroupMember]:
    """Return all members by the names of their znodes.

    Raises:
        UnavailableError: no member of the cluster answered in time.
    """
    names: list[str] = []
    after: str | None = None
    while True:
        try:
            page = await core.children(path, after=after)
        except NoNodeError:
            break
        names += page.names
        if (after := page.next) is None:
            break
    found: dict[str, GroupMember] = {}
    for begin in range(0, len(names), _AT_ONCE):
        some = names[begin : begin + _AT_ONCE]
        read = await asyncio.gather(*(read_member(core, f"{path}/{name}") for name in some))
        found.update({name: each for name, each in zip(some, read, strict=True) if each})
    return found


async def read_member(core: AsyncClient, path: str) -> GroupMember | None:
    """Return one member, None when it has gone or is none."""
    try:
        return GroupMember.of(await core.get(path))
    except NoNodeError:
        return None


class GroupStream:
    """``async for members in stream``: the members now, then after each change, by name."""

    def __init__(self, core: AsyncClient, path: str) -> None:
        self._core = core
        self._path = path
        self._changes: ChangeStream | None = None
        self._members: dict[str, GroupMember] = {}
        self._told: tuple[GroupMember, ...] | None = None

    @property
    def zxid(self) -> int | None:
        """That of the last change that is in the listing."""
        return None if self._changes is None else self._changes.zxid

    async def open(self) -> GroupStream:
        """Return once a member of the cluster watches for us. Idempotent."""
        if self._changes is None:
            changes = self._core.watch(self._path, kind="subtree")
            try:
                self._changes = await changes.open()
            except BaseException:
                await changes.close()
                raise
        return self

    async def close(self) -> None:
        """Stop watching."""
        if self._changes is not None:
            await self._changes.close()

    def __aiter__(self) -> GroupStream:
        return self

    async def __anext__(self) -> tuple[GroupMember, ...]:
        failures = 0
        while True:
            try:
                if self._told is None or self._changes is None:
                    await self.open()
                    self._members = await read_members(self._core, self._path)
                else:
                    await self._apply(await anext(self._changes))
            except ClientClosedError:
                raise
            except (CompactedError, UnavailableError, OutcomeUnknownError):
                await self.close()
                self._changes = None
                failures += 1
                await self._core.wait(self._core.retry_delay_ms(failures))
                continue
            told = tuple(self._members[name] for name in sorted(self._members))
            if told != self._told:
                self._told = told
                return told

    async def __aenter__(self) -> GroupStream:
        return await self.open()

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _apply(self, change: Change) -> None:
        for path in dict.fromkeys(event.path for event in change.events):
            parent, _, name = path.rpartition("/")
            if parent != self._path:
                continue
            member = await read_member(self._core, path)
            if member is None:
                self._members.pop(name, None)
            else:
                self._members[name] = member
