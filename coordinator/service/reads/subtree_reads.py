"""Whole subtrees as they are read, a page at a time: what a program needs to keep a copy.

Only what the caller may both read and watch is shown: what a watch with values would keep true. A
subtree that is not there is an empty page, since its zxid is what a copy begins with. A page says
whether the caller's rules cover all of it: that is known from the rules alone, and tells nothing of
what is there.
"""

from __future__ import annotations

from collections.abc import Iterator

from coordinator.errors import BadArgumentsError
from coordinator.model.access import NOBODY, Caller, Verb
from coordinator.model.znodes import Subtree, Znode
from coordinator.service.base.replica import MachineReplica
from coordinator.service.reads.reads import ReadMode, ReadReply, Reads, names_shown
from coordinator.state import paths
from coordinator.state.access.table import AccessTable
from coordinator.state.machine import StateMachine

PAGE_MAX = 1_000
PAGE_BYTES_MAX = 1024 * 1024
"""The size of the data in a page, which ends behind the znode with which it has more."""
_LOOKED_AT_MAX = 1_000
"""How many paths are looked at, there for something below them or not; each is a look at the
caller's rules."""
_NAMES_AT_ONCE = 256


class SubtreeReads:
    """The subtrees as one member sees them."""

    def __init__(self, reads: Reads, replica: MachineReplica) -> None:
        self._reads = reads
        self._replica = replica

    async def page(
        self,
        path: str,
        mode: ReadMode,
        deadline_ms: int,
        *,
        after: str | None = None,
        limit: int = PAGE_MAX,
        caller: Caller = NOBODY,
    ) -> ReadReply[Subtree]:
        """Return at most ``limit`` znodes at and below ``path`` behind the path ``after``, parents
        first and children by name. ``limit`` 0: none, and no ``next``, but the zxid."""
        machine = self._replica.machine
        paths.validate(path, machine.limits)
        if after is not None:
            paths.validate(after, machine.limits)
            if after != path and not after.startswith(paths.join(path, "")):
                raise BadArgumentsError(f"after: expected a path within {path}, found {after}")
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        if not machine.access.sees(caller, path):
            machine.access.check(caller, Verb.READ, path)
        znodes, last = subtree_page(machine, path, after, limit, caller) if limit else ((), None)
        is_partial = not _covers_all(machine.access, caller, path)
        return self._reads.reply(Subtree(path, znodes, machine.zxid, last, is_partial), age_ms)


def _covers_all(access: AccessTable, caller: Caller, path: str) -> bool:
    return all(
        access.allows(caller, verb, path) and access.ways(caller, path, (verb,)) == [("", True)]
        for verb in (Verb.READ, Verb.WATCH)
    )


def subtree_page(
    machine: StateMachine, path: str, after: str | None, limit: int, caller: Caller
) -> tuple[tuple[Znode, ...], str | None]:
    """Return a page of znodes, and where the next one begins; None at the end."""
    access = machine.access
    found: list[Znode] = []
    size = 0
    before = after
    for looked_at, each in enumerate(_paths(machine, path, after, caller)):
        if len(found) >= limit or size > PAGE_BYTES_MAX or looked_at >= _LOOKED_AT_MAX:
            return tuple(found), before
        before = each  # also if it only leads to something: lists show its name, too
        if access.allows(caller, Verb.READ, each) and access.allows(caller, Verb.WATCH, each):
            znode = machine.get(each)
            assert znode is not None, "what is walked over is there"
            found.append(Znode(each, *znode))
            size += len(znode[0])
    return tuple(found), None


def _paths(machine: StateMachine, path: str, after: str | None, caller: Caller) -> Iterator[str]:
    """Iterate over the paths behind ``after``, there or not, that lead to what may be read."""
    levels: list[Iterator[str]] = []
    if after is None:
        if machine.stat(path) is None:
            return
        yield path
    elif after != path:
        for name in after[len(paths.join(path, "")) :].split("/"):
            levels.append(_children(machine, path, name, caller))
            path = paths.join(path, name)
    levels.append(_children(machine, path, None, caller))
    while levels:
        found = next(levels[-1], None)
        if found is None:
            levels.pop()
        else:
            yield found
            levels.append(_children(machine, found, None, caller))


def _children(machine: StateMachine, path: str, name: str | None, caller: Caller) -> Iterator[str]:
    """Iterate over the paths of the children behind ``name`` that lead to what may be read."""
    while True:
        names = names_shown(
            machine, path, (Verb.READ,), caller=caller, after=name, limit=_NAMES_AT_ONCE
        )
        for name in names:
            yield paths.join(path, name)
        if len(names) < _NAMES_AT_ONCE:
            return
