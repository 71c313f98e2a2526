"""The history of grants, for people who ask what happened: who held, how it ended, who was next.

The state machine keeps it, bounded, on every member alike; here it is read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from heapq import nsmallest

from msgspec.structs import replace as with_fields

from coordinator.errors import NoNodeError
from coordinator.model.access import NOBODY, Caller
from coordinator.model.history import GrantPage, GrantRecord, GrantStory
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.slices import in_slices
from coordinator.service.locks.contenders import Recipe, find, grant_id_of, recipe_at
from coordinator.service.locks.holder_info import said_in
from coordinator.service.locks.sentences import story_of
from coordinator.service.locks.sight import Sight
from coordinator.service.reads.reads import ReadMode, ReadReply, Reads
from coordinator.state.locks.contender import ContenderRecord, Ending
from coordinator.state.locks.grant_history import GrantAndEnd, GrantQuery, KeptGrant
from coordinator.state.locks.reads import LockReads
from coordinator.state.machine import StateMachine

_LOOKED_AT_ONCE = 2_000
"""Queues, and those who hold them; or grants that ended."""
_READ_AT_ONCE = 200


class GrantReads:
    """The history as one member serves it."""

    def __init__(self, reads: Reads, replica: MachineReplica) -> None:
        self._reads = reads
        self._replica = replica

    async def page(
        self, query: GrantsWanted, mode: ReadMode, deadline_ms: int, *, caller: Caller = NOBODY
    ) -> ReadReply[GrantPage]:
        """Return the grants that ``query`` asks for, at most its ``limit``, of the queues that the
        caller may read or lock."""
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        machine = self._replica.machine
        if machine.access.is_on:
            machine.access.rights_of(caller)
        sight = Sight(machine, caller)
        if query.directory is not None:
            sight.check(query.directory)
        wanted = _Wanted(query.to_query(), sight)
        grants = await self._first(wanted)
        last = grants[-1][0].grant_number if grants and len(grants) == query.limit else None
        found = await self._as_they_are(wanted, grants)
        labels = self._reads.reply(None, age_ms)
        records = await in_slices(found, lambda each: sight.record(record_of(each)))
        if query.session_id is not None:  # who asks so knows it
            records = [with_fields(each, session_id=query.session_id) for each in records]
        return labels.with_value(GrantPage(tuple(records), last))

    async def _first(self, query: _Wanted) -> list[GrantAndEnd]:
        """Return the first grants that are asked for and are there now, at most as many as wanted.

        Collected in slices. A grant that ends in between is found as held, or as ended, or both;
        those granted in between are left out, so that no page leads past one of them.
        """
        newest = self._replica.machine.locks.grant_count
        held = await self._held(query)
        grants: dict[int, GrantAndEnd] = {each.grant_number: (each, None) for each in held}
        grants |= await self._ended(query, newest)
        now = [each for number, each in grants.items() if number <= newest]
        return nsmallest(query.limit, now, key=lambda each: each[0].grant_number)

    async def _ended(self, query: _Wanted, newest: int) -> dict[int, GrantAndEnd]:
        """Return the first that ended and are asked for, by number; looks at no more than that."""
        found: dict[int, GrantAndEnd] = {}
        after, count = query.after, _LOOKED_AT_ONCE
        while count == _LOOKED_AT_ONCE and len(found) < query.limit and after < newest:
            some = self._replica.machine.locks.ended_behind(query.directory, after, count)
            count = len(some)
            if some:
                after = some[-1].contender.grant_number
            asked = query.among([(each.contender, each) for each in some])
            found.update([(contender.grant_number, (contender, end)) for contender, end in asked])
            await asyncio.sleep(0)
        return found

    async def _as_they_are(self, query: _Wanted, grants: list[GrantAndEnd]) -> list[KeptGrant]:
        """Return the grants as they are now: one that ended since it was collected as ended."""
        found: list[KeptGrant] = []
        for start in range(0, len(grants), _READ_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            locks = self._replica.machine.locks
            for grant in grants[start : start + _READ_AT_ONCE]:
                found += [locks.kept(*each) for each in query.among(_now(locks, grant))]
        return found

    async def _held(self, query: _Wanted) -> list[ContenderRecord]:
        """Return the first of those who hold and are asked for, of one queue or of all."""
        locks, one = self._replica.machine.locks, query.directory
        directories = tuple(locks.directories()) if one is None else (one,)
        first: list[ContenderRecord] = []
        held: list[ContenderRecord] = []
        looked_at = 0
        for directory in directories:
            place, count = (-1, ""), _LOOKED_AT_ONCE
            while count == _LOOKED_AT_ONCE:
                if looked_at >= _LOOKED_AT_ONCE:
                    first = _first(query, first, held)
                    held, looked_at = [], 0
                    await asyncio.sleep(0)
                some = locks.holders_behind(directory, place, _LOOKED_AT_ONCE)
                held += some
                count = len(some)
                looked_at += count + 1
                if some:
                    place = (some[-1].number, some[-1].path)
        return _first(query, first, held)

    async def story(
        self,
        recipe: Recipe,
        name: str,
        grant_id: str,
        mode: ReadMode,
        deadline_ms: int,
        *,
        caller: Caller = NOBODY,
    ) -> ReadReply[GrantStory]:
        """Return what became of a grant.

        Raises:
            NoNodeError: it never held, or is forgotten.
        """
        path, czxid = recipe.contender_path(name, grant_id)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        machine = self._replica.machine
        sight = Sight(machine, caller)
        sight.check(recipe.directory(name))
        grant = _found(machine, path, czxid)
        if grant is None:
            waits = find(machine, path)
            is_waiting = waits is not None and waits.czxid == czxid
            raise NoNodeError(
                f"{recipe.word} {name!r}, grant {grant_id}: "
                + (
                    "it waits, and has not held" if is_waiting else "it never held, or is forgotten"
                ),
                zxid=machine.zxid,
            )
        following = None
        if grant.next_token is not None:
            directory = recipe.directory(name)
            later = machine.locks.history(GrantQuery(directory, token=grant.next_token))
            following = sight.record(record_of(later[0])) if later else None
        record = sight.record(record_of(grant))
        story = GrantStory(record, following, story_of(record, following))
        return self._reads.reply(story, age_ms)


def _first(
    query: _Wanted, first: list[ContenderRecord], more: list[ContenderRecord]
) -> list[ContenderRecord]:
    """Return the first of these who are asked for, at least as many as ``query`` asks for."""
    first = first + [each for each, _ in query.among([(each, None) for each in more])]
    if len(first) > 2 * query.limit:
        return nsmallest(query.limit, first, key=lambda each: each.grant_number)
    return first


class _Wanted:
    """The grants that a query asks for, of the queues that its caller sees."""

    __slots__ = ("_query", "_sight", "after", "directory", "limit")

    def __init__(self, query: GrantQuery, sight: Sight) -> None:
        self._query = query
        self._sight = sight
        self.after = query.after
        self.directory = query.directory
        self.limit = query.limit

    def among(self, grants: list[GrantAndEnd]) -> list[GrantAndEnd]:
        """Return those of ``grants`` that are asked for and shown."""
        found = self._query.among(grants)
        sight = self._sight
        return [each for each in found if sight.shows(each[0].directory)] if sight.is_on else found


def _now(locks: LockReads, grant: GrantAndEnd) -> list[GrantAndEnd]:
    """Return a grant as it is now: none when it has ended and is forgotten."""
    contender, end = grant
    if end is None:
        held = locks.record(contender.path)
        if held is not None and held.grant_number == contender.grant_number:
            return [(held, None)]
        number = contender.grant_number
        ended = locks.ended_behind(contender.directory, number - 1, 1)
        return [(each.contender, each) for each in ended if each.contender.grant_number == number]
    return [grant]


@dataclass(frozen=True, slots=True)
class GrantsWanted:
    """Which grants are asked for; None asks for all."""

    directory: str | None = None
    session_id: str | None = None
    fencing_token: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    how: str | None = None
    after: int = 0
    limit: int = 1_000

    def to_query(self) -> GrantQuery:
        """Return the query of the state that finds these grants."""
        return GrantQuery(
            directory=self.directory,
            session_id=self.session_id,
            token=self.fencing_token,
            since_ms=self.since_ms,
            until_ms=self.until_ms,
            how=None if self.how is None else Ending(self.how),
            after=self.after,
            limit=self.limit,
        )


def ended_record(machine: StateMachine, path: str, czxid: int) -> GrantRecord | None:
    """Return the record of a grant, None when it never held or is forgotten."""
    grant = _found(machine, path, czxid)
    return None if grant is None else record_of(grant)


def record_of(grant: KeptGrant) -> GrantRecord:
    """Return a grant as clients see it."""
    recipe = recipe_at(grant.path)
    return GrantRecord(
        **said_in(grant.data),
        lock=recipe.name_at(grant.path),
        grant_id=grant_id_of(grant.path, grant.czxid),
        path=grant.path,
        fencing_token=grant.czxid,
        kind=grant.kind.value,
        session_id=grant.session_id,
        owner=grant.owner,
        note=grant.note,
        group=grant.group,
        entered_zxid=grant.czxid,
        entered_ms=grant.entered_ms,
        granted_zxid=grant.granted_zxid,
        granted_ms=grant.granted_ms,
        ended_zxid=grant.ended_zxid,
        ended_ms=grant.ended_ms,
        how=grant.how.value,
        by=grant.by,
        reason=grant.reason,
        silent_ms=grant.silent_ms,
        term=grant.term,
        next_token=grant.next_token,
        is_election=recipe.word == "election",
    )


def _found(machine: StateMachine, path: str, czxid: int) -> KeptGrant | None:
    directory, grant_id = path.rpartition("/")[0], grant_id_of(path, czxid)
    for grant in machine.locks.history(GrantQuery(directory, token=czxid)):
        if grant.path == path or grant_id_of(grant.path, czxid) == grant_id:
            return grant  # a znode made by hand may have any name before its number
    return None
