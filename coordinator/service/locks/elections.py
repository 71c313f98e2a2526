"""Elections: the queue of a lock, where the holder is elected and proclaims a value.

The epoch of the elected is its fencing token, the ``czxid`` of ``/elections/<name>/candidate-N``;
the data of that znode is the value it proclaims.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar, Unpack

from msgspec.structs import asdict

from coordinator.errors import BadVersionError, LockLostError, NoNodeError, NotOwnerError
from coordinator.model.access import NOBODY, Caller
from coordinator.model.acquire import AcquireRequest
from coordinator.model.events import Bookmark
from coordinator.model.grants import GrantReply, Proclaimed
from coordinator.model.views import Candidate, ElectionView
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.slices import in_slices
from coordinator.service.locks.attempts import AcquireOptions
from coordinator.service.locks.contenders import (
    ELECTIONS,
    Captured,
    QueuedContender,
    Recipe,
    captured,
    first_holder,
    queued,
)
from coordinator.service.locks.observing import observed
from coordinator.service.locks.queues import Queues
from coordinator.service.locks.service import QueueService
from coordinator.service.locks.sight import Sight
from coordinator.service.reads.reads import ReadMode, ReadReply, Reads
from coordinator.service.watches.hub import WatchHub
from coordinator.service.writes.proposals import Proposer, RequestContext
from coordinator.state.commands import (
    Check,
    HeldCondition,
    Multi,
    RequestId,
    SetData,
)

_CANDIDATE = AcquireRequest()
"""A candidate holds alone, on no terms."""


class ElectionService(QueueService):
    """The elections as one member serves them: a lock's verbs, and those of a proclaimed value."""

    _recipe: ClassVar[Recipe] = ELECTIONS

    def __init__(
        self,
        proposer: Proposer,
        reads: Reads,
        replica: MachineReplica,
        queues: Queues,
        hub: WatchHub,
    ) -> None:
        super().__init__(proposer, replica, queues)
        self._reads = reads
        self._hub = hub

    async def campaign(
        self, name: str, *, value: bytes, **how: Unpack[AcquireOptions]
    ) -> GrantReply:
        """Wait until elected; ``how``, and what is raised, are those of a lock."""
        (won,) = await self._acquire((name,), value, _CANDIDATE, how)
        return won

    async def proclaim(
        self,
        name: str,
        grant_id: str,
        value: bytes,
        request: RequestId | None,
        deadline_ms: int,
        *,
        caller: Caller = NOBODY,
        if_held: tuple[HeldCondition, ...] = (),
    ) -> Proclaimed:
        """Replace the value of the elected: one command, done only if this grant is elected then.

        Raises:
            NotOwnerError: this grant is not elected (yet, or any more); nothing was changed.
        """
        path, czxid = ELECTIONS.contender_path(name, grant_id)
        own = HeldCondition(ELECTIONS.directory(name), czxid)
        operation = Multi((Check(path, expected_czxid=czxid), SetData(path, value)))
        try:
            committed = await self._proposer.submit(
                operation,
                RequestContext(request, deadline_ms, caller=caller, if_held=(own, *if_held)),
            )
        except LockLostError as error:
            if (error.fields.get("directory"), error.fields.get("fencing_token")) != (
                own.directory,
                czxid,
            ):
                raise  # another condition of the caller
            raise NotOwnerError(
                f"expected an elected candidate, found that {path} of zxid {czxid} is not elected "
                "(yet, or any more)",
                path=path,
            ) from None
        except (NoNodeError, BadVersionError):
            raise NotOwnerError(
                f"expected an elected candidate, found that {path} of zxid {czxid} is gone: "
                "campaign again",
                path=path,
            ) from None
        return Proclaimed(grant_id, czxid, committed.outcome.zxid)

    async def who(
        self,
        name: str,
        mode: ReadMode,
        deadline_ms: int,
        *,
        session_id: str | None = None,
        caller: Caller = NOBODY,
    ) -> ReadReply[ElectionView]:
        """Return who is elected, and the candidates behind; or those of one session."""
        directory = ELECTIONS.directory(name)
        age_ms = await self._reads.fresh(mode, deadline_ms)
        sight = Sight(self._replica.machine, caller)
        sight.check(directory)
        labels = self._reads.reply(None, age_ms)
        return labels.with_value(await self._view(name, session_id, sight))

    def observe(
        self, name: str, caller: Caller = NOBODY
    ) -> AsyncGenerator[ElectionView | Bookmark, None]:
        """Yield who is elected now, then again whenever the elected or its value changes.

        Each view is the latest one; what changed and changed back between two looks is not shown.
        Bookmarks come through, for a caller that must show that the stream lives. It ends when the
        member stops, or the caller may not look any more.
        """
        directory = ELECTIONS.directory(name)
        return observed(self._hub, directory, lambda: self._seen(name, caller))

    async def _view(self, name: str, session_id: str | None, sight: Sight) -> ElectionView:
        """Return the candidates of one moment, though the list is made piece by piece."""
        machine = self._replica.machine
        queue = captured(machine, ELECTIONS.directory(name), session_id)
        zxid = queue.zxid
        elected = [_of_captured(each, zxid) for each in queue.holders[:1]]
        elected = [sight.candidate(each) for each in elected]
        candidates = await in_slices(
            queue.waiting, lambda each: sight.candidate(_of_captured(each, zxid))
        )
        return ElectionView(
            name, elected[0] if elected else None, tuple(candidates), zxid, queue.waiting_count
        )

    def _seen(self, name: str, caller: Caller) -> ElectionView:
        """Return what an observer sees: the elected alone."""
        machine = self._replica.machine
        directory = ELECTIONS.directory(name)
        self._hub.check(caller, ())
        sight = Sight(machine, caller)
        sight.check(directory)
        holder = first_holder(machine, directory)
        elected = None
        if holder is not None:
            elected = sight.candidate(_candidate((holder, 0, self._label(holder))))
        return ElectionView(name, elected, (), machine.zxid)

    def _label(self, contender: QueuedContender) -> str:
        session = self._replica.machine.session(contender.session_id)
        return "" if session is None else session.label

    def _described(self, holder: QueuedContender) -> Mapping[str, Any]:
        shown = asdict(_candidate((holder, 0, self._label(holder))))
        del shown["epoch"]
        shown["value"] = shown["value"].decode("utf-8", "replace")
        return shown


def _of_captured(place: Captured, zxid: int) -> Candidate:
    contender, position = queued(place, zxid)
    session = place[3]
    return _candidate((contender, position, "" if session is None else session.label))


def _candidate(place: tuple[QueuedContender, int, str]) -> Candidate:
    """Return the view of a contender, at its position, with the label of its session."""
    contender, position, label = place
    return Candidate(
        grant_id=contender.grant_id,
        fencing_token=contender.czxid,
        epoch=contender.czxid,
        session_id=contender.session_id,
        position=position,
        path=contender.path,
        value=contender.data,
        label=label,
        since_ms=contender.recorded.entered_ms,
    )
