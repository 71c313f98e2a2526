"""Locks: run by the members over the znodes of ``/locks``, fair, with fencing tokens.

A clean acquire is one proposal and a release another. The queue is ``queues``; here is what makes
it a lock: who holds it, with what information, under which grant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from coordinator.errors import BadArgumentsError, NotOwnerError
from coordinator.service.contenders import LOCKS, Contender, contenders_of, lowest_of
from coordinator.service.long_holds import LongHolds
from coordinator.service.proposals import Proposals
from coordinator.service.queues import Attempt, Queues
from coordinator.service.reads import ReadMode, ReadReply, Reads
from coordinator.service.replica import MachineReplica
from coordinator.state.commands import Abandon, Release, RequestId
from coordinator.state.outcomes import Abandoned, Released
from coordinator.state.repeats import check_answers
from recipes.contention import sorted_contenders

_HOLDER_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class HolderInfo:
    """What a contender says of itself, for people; kept as JSON in its znode's data."""

    label: str = ""
    host: str = ""
    pid: int | None = None
    trace_id: str = ""

    def to_bytes(self) -> bytes:
        """Return the JSON of what is set."""
        said = {name: value for name, value in asdict(self).items() if value not in ("", None)}
        try:
            data = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode()
        except UnicodeEncodeError:
            raise BadArgumentsError("holder: expected text without lone surrogates") from None
        if len(data) > _HOLDER_BYTES_MAX:
            raise BadArgumentsError(
                f"holder: expected at most {_HOLDER_BYTES_MAX} bytes, found {len(data)}"
            )
        return data

    @classmethod
    def of(cls, data: bytes) -> HolderInfo:
        """Read a znode's data; what another program wrote in another form is left out."""
        try:
            said = json.loads(data)
        except ValueError:
            return cls()
        if not isinstance(said, dict):
            return cls()
        texts = {
            each.name: said[each.name]
            for each in fields(cls)
            if each.name != "pid" and isinstance(said.get(each.name), str)
        }
        pid = said.get("pid")
        return cls(**texts, pid=pid if type(pid) is int else None)


@dataclass(frozen=True, slots=True)
class Grant:
    """One acquisition. ``fencing_token`` grows with every grant of the lock."""

    grant_id: str
    lock: str
    fencing_token: int
    session_id: str
    zxid: int
    path: str
    position: int = 0

    @classmethod
    def of(cls, name: str, contender: Contender) -> Grant:
        return cls(
            grant_id=contender.grant_id,
            lock=name,
            fencing_token=contender.czxid,
            session_id=contender.session_id,
            zxid=contender.zxid,
            path=contender.path,
        )


@dataclass(frozen=True, slots=True)
class ContenderView:
    """One place in a queue, for people and programs that look."""

    grant_id: str
    fencing_token: int
    session_id: str
    position: int
    path: str
    label: str
    host: str
    pid: int | None
    trace_id: str
    since_ms: int
    """Wall time at which it entered the queue."""

    @classmethod
    def of(cls, contender: Contender, position: int) -> ContenderView:
        info = HolderInfo.of(contender.data)
        return cls(
            grant_id=contender.grant_id,
            fencing_token=contender.czxid,
            session_id=contender.session_id,
            position=position,
            path=contender.path,
            label=info.label,
            host=info.host,
            pid=info.pid,
            trace_id=info.trace_id,
            since_ms=contender.ctime_ms,
        )


@dataclass(frozen=True, slots=True)
class LockView:
    """Who holds, and who waits, in order."""

    lock: str
    holder: ContenderView | None
    queue: tuple[ContenderView, ...]
    zxid: int


@dataclass(frozen=True, slots=True)
class LockSummary:
    """``queue_length`` counts those who wait; the holder is not one of them.

    ``held_ms``: how long this member has seen the holder hold, never overstated.
    """

    lock: str
    holder: ContenderView | None
    queue_length: int
    held_ms: int


@dataclass(frozen=True, slots=True)
class LockPage:
    """Locks that somebody holds. ``next`` goes on after this page; None at the end."""

    locks: tuple[LockSummary, ...]
    next: str | None


class LockService:
    """The locks as one member serves them."""

    def __init__(
        self,
        proposals: Proposals,
        reads: Reads,
        replica: MachineReplica,
        queues: Queues,
        long_holds: LongHolds,
    ) -> None:
        self._long_holds = long_holds
        self._proposals = proposals
        self._reads = reads
        self._replica = replica
        self._queues = queues

    async def acquire(
        self,
        name: str,
        *,
        session_id: str,
        request: RequestId | None,
        holder: HolderInfo,
        wait_deadline_ms: int,
        is_try: bool = False,
        identity: str = "",
        on_position: Callable[[int], None] | None = None,
        leave_on_cancel: bool = True,
    ) -> Grant:
        """Wait in the queue of ``name`` until the lock is granted; ``queues`` says what is raised.

        Args:
            wait_deadline_ms: bounds everything, however many predecessors leave one by one.
            is_try: decide at once, in one command that leaves nothing behind; the deadline
                then bounds the proposal (and is taken as a second when less).
            on_position: told the place in the queue, first and whenever it changes; not for 0.
            leave_on_cancel: whether a cancelled call takes its contender out of the queue.
        """
        attempt = Attempt(
            recipe=LOCKS,
            name=name,
            session_id=session_id,
            data=holder.to_bytes(),
            request=request,
            wait_deadline_ms=wait_deadline_ms,
            describe=_described,
            identity=identity,
            is_try=is_try,
            leave_on_cancel=leave_on_cancel,
            on_position=on_position,
        )
        return Grant.of(name, await self._queues.acquire(attempt))

    async def release(
        self,
        name: str,
        grant_id: str,
        request: RequestId | None,
        deadline_ms: int,
        *,
        identity: str = "",
    ) -> Released:
        """Release one grant, or leave the queue with it; again if need be.

        Raises:
            NotOwnerError: it is not, or no longer, in the queue; ``holder`` says who holds.
        """
        path, czxid = LOCKS.contender_path(name, grant_id)
        release = Release(path, czxid)
        try:
            committed = await self._proposals.submit(
                release, request=request, identity=identity, deadline_ms=deadline_ms
            )
        except NotOwnerError as error:
            holder = lowest_of(self._replica.machine, LOCKS.directory(name))
            error.fields["holder"] = None if holder is None else _described(holder)
            raise
        check_answers(release, committed.outcome)
        result = committed.outcome.unwrap()
        assert isinstance(result, Released), "a release comes to a Released"
        return result

    async def abandon(
        self,
        name: str,
        client_id: str,
        number: int,
        floor_index: int,
        deadline_ms: int,
        *,
        identity: str = "",
    ) -> Abandoned:
        """Undo the acquire with this request number, or make sure that it never runs."""
        LOCKS.directory(name)  # the name must be one, although the request alone says it all
        operation = Abandon(client_id, number, floor_index)
        committed = await self._proposals.submit(
            operation, request=None, identity=identity, deadline_ms=deadline_ms
        )
        result = committed.outcome.unwrap()
        assert isinstance(result, Abandoned), "an abandon comes to an Abandoned"
        return result

    async def query(self, name: str, mode: ReadMode, deadline_ms: int) -> ReadReply[LockView]:
        """Return who holds ``name`` and who waits; a lock nobody knows has neither."""
        directory = LOCKS.directory(name)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        machine = self._replica.machine
        views = tuple(
            ContenderView.of(each, position)
            for position, each in enumerate(contenders_of(machine, directory))
        )
        view = LockView(name, views[0] if views else None, views[1:], machine.zxid)
        return self._reads.reply(view, age_ms)

    async def list_locks(
        self,
        mode: ReadMode,
        deadline_ms: int,
        *,
        after: str | None = None,
        limit: int = 1_000,
        held_ms_min: int = 0,
    ) -> ReadReply[LockPage]:
        """Return the locks that somebody has held for ``held_ms_min``, by their znodes' names.

        ``limit`` bounds the locks that are looked at, so a page may be short, or empty, and still
        have a ``next``.
        """
        age_ms = await self._reads.fresh(mode, deadline_ms)
        behind = None if after is None else LOCKS.segment(after)
        machine = self._replica.machine
        locks: list[LockSummary] = []
        segments = machine.children(LOCKS.root, after=behind, limit=limit + 1) or []
        for segment in segments[:limit]:
            directory = f"{LOCKS.root}/{segment}"
            holder = lowest_of(machine, directory)
            if holder is None:
                continue  # an idle container: nobody holds it
            held_ms = self._long_holds.held_ms(directory)
            if held_ms < held_ms_min:
                continue
            names = sorted_contenders(machine.children(directory) or ())
            view = ContenderView.of(holder, 0)
            locks.append(LockSummary(LOCKS.name_of(segment), view, len(names) - 1, held_ms))
        last = LOCKS.name_of(segments[limit - 1]) if len(segments) > limit else None
        return self._reads.reply(LockPage(tuple(locks), last), age_ms)


def _described(holder: Contender) -> Mapping[str, Any]:
    return asdict(ContenderView.of(holder, 0))
