"""The reports of all members, gathered by one of them, for a look at the whole cluster.

1. Nothing is decided by it: it is for people, and each member's part is of its own moment.
2. A member that does not answer within ``ANSWER_S`` is shown as silent, with the reason.
3. A payload from another member is read strictly, and what it says of another id is not believed.
4. However many look, the others are asked at most once in ``SHARED_MS``: an answer is shared by all
   who ask within so long after its question, unless who leads has changed since.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from coordinator.errors import (
    CoordinatorError,
    LeaderChangedError,
    NoLeaderError,
    ProposalTimeoutError,
)
from coordinator.model.access import MEMBERS, Caller, Verb
from coordinator.model.members import (
    ELECTIONS_KEPT,
    HandoverReply,
    LeaderSeen,
    MemberFacts,
    MemberList,
    MemberReport,
)
from coordinator.model.status import Status
from coordinator.node.build import is_compiled
from coordinator.service.base.context import MemberContext
from coordinator.service.comparing.divergence import Divergence
from coordinator.service.reporting.cluster_health import of_cluster, of_member
from coordinator.service.reporting.status import members_of
from coordinator.state import levels

REQUEST_KIND = "facts"
HANDOVER_KIND = "hand over"
HANDOVER_S = 5.0
ANSWER_S = 1.0
SHARED_MS = 500
PAYLOAD_BYTES_MAX = 64 * 1024
"""The size of a member's report on itself; a longer one is ignored."""
_FACTS = msgspec.msgpack.Decoder(MemberFacts)


class MemberReports:
    """The reports as one member gathers them."""

    def __init__(
        self, context: MemberContext, status: Callable[[], Status], divergence: Divergence
    ) -> None:
        self._engine = context.engine
        self._clock = context.clock
        self._replica = context.replica
        self._metrics = context.metrics
        self._addresses = context.config.cluster.members
        self._started_ms = context.clock.wall_ms()
        self._elections: deque[LeaderSeen] = deque(maxlen=ELECTIONS_KEPT)
        self._status = status
        self._divergence = divergence
        self._is_compiled = is_compiled()
        self._reports: asyncio.Future[MemberList] | None = None
        self._reports_ms = 0
        self._leader_changed = asyncio.Event()
        """Set at the next change; then there is another one."""
        context.engine.on_request(REQUEST_KIND, self._on_request)
        context.engine.on_request(HANDOVER_KIND, self._on_handover)
        context.engine.on_leader_change(self._on_leader_change)

    async def all(self) -> MemberList:
        """Return what every configured member says, or has said within ``SHARED_MS``."""
        now_ms = self._clock.monotonic_ms()
        reports = self._reports
        if reports is None or now_ms - self._reports_ms >= SHARED_MS:
            reports = self._reports = asyncio.ensure_future(self._ask_all())
            self._reports_ms = now_ms
        return await asyncio.shield(reports)  # who goes away does not end it for the others

    async def fresh(self) -> MemberList:
        """Return what every configured member says now."""
        return await self._ask_all()

    async def _ask_all(self) -> MemberList:
        infos = members_of(self._addresses, self._engine.status())
        others = [each.member_id for each in infos if not each.is_self]
        answers = await asyncio.gather(*(self._ask(member_id) for member_id in others))
        answer_of = dict(zip(others, answers, strict=True))
        different = self._divergence.different
        reports = []
        for each in infos:
            facts = self.own() if each.is_self else answer_of[each.member_id]
            silence = ""
            if isinstance(facts, MemberFacts):
                different.pop(each.member_id, None)
            else:
                silence = different.get(each.member_id) or each.refusal or facts
            reports.append(
                MemberReport(
                    each.member_id,
                    each.client_url,
                    each.is_self,
                    facts if isinstance(facts, MemberFacts) else None,
                    silence,
                )
            )
        health = of_cluster(reports, self._clock.wall_ms(), self._divergence.sentence)
        return MemberList(tuple(reports), health)

    async def hand_over(self, caller: Caller) -> HandoverReply:
        """Have another member lead, whichever leads now; return who does.

        Raises:
            NoAuthError: the caller does not administer the members.
            NoLeaderError: no leader is known.
            UnavailableError: no other member took the leadership.
            ProposalTimeoutError: who leads was not known in time; it may have been handed over.
        """
        self._replica.machine.access.check(caller, Verb.ADMIN, MEMBERS)
        before = self._engine.leader_id
        if before is None:
            raise NoLeaderError("no leader is known that could hand over; see coordinator status")
        try:
            async with asyncio.timeout(HANDOVER_S):
                if before == self._engine.member_id:
                    await self._engine.hand_over()
                else:
                    with suppress(LeaderChangedError):  # which is what was asked for
                        await self._engine.request(before, HANDOVER_KIND, b"")
                while (now := self._engine.status()).leader_id in (None, before):
                    await self._leader_changed.wait()
        except TimeoutError:
            raise ProposalTimeoutError(
                f"member {before} was asked to hand over, and nobody is known to lead since; see"
                " coordinator status"
            ) from None
        assert now.leader_id is not None
        return HandoverReply(now.leader_id, now.term)

    def own(self) -> MemberFacts:
        """Return what this member says of itself."""
        status = self._status()
        engine, figures = self._engine.status(), self._engine.metrics()
        free = figures.get("disk_free_bytes")
        facts = MemberFacts(
            member_id=engine.member_id,
            role=engine.role.value,
            leader_id=engine.leader_id,
            term=engine.term,
            commit_index=engine.commit_index,
            applied_index=engine.applied_index,
            last_index=engine.last_index,
            snapshot_index=max(0, engine.snapshot_index),
            log_entries=int(figures.get("log_entries", 0)),
            zxid=status.zxid,
            is_ready=status.is_ready,
            summary=status.summary,
            version=status.version,
            started_ms=self._started_ms,
            sees=tuple(name for name, is_there in engine.is_reachable.items() if is_there),
            disk_free_bytes=None if free is None else max(0, int(free)),
            is_disk_full=bool(figures.get("is_disk_full", 0)),
            is_disk_slow=bool(figures.get("is_disk_slow", 0)),
            snapshots_made=int(figures.get("snapshots_made_total", 0)),
            elections=tuple(self._elections),
            is_compiled=self._is_compiled,
            backups=status.backups,
            level=self._replica.machine.level,
            level_oldest=levels.OLDEST,
            level_newest=levels.NEWEST,
        )
        return replace(facts, findings=of_member(facts, status, engine))

    async def _ask(self, member_id: str) -> MemberFacts | str:
        """Return what another member says of itself, or why nothing is known of it."""
        try:
            async with asyncio.timeout(ANSWER_S):
                payload = await self._engine.request(member_id, REQUEST_KIND, b"")
            if len(payload) > PAYLOAD_BYTES_MAX:
                return f"member {member_id} says too much of itself"
            facts = _FACTS.decode(payload)
        except TimeoutError:
            return f"member {member_id} does not answer"
        except CoordinatorError as error:
            return error.message
        except (ValueError, RecursionError):
            return f"member {member_id} says nothing that this release understands"
        if facts.member_id != member_id:
            return f"member {member_id} speaks of another member"
        return facts

    async def _on_request(self, _sender: str, _payload: bytes) -> bytes:
        return msgspec.msgpack.encode(self.own())

    async def _on_handover(self, _sender: str, _payload: bytes) -> bytes:
        await self._engine.hand_over()
        return b""

    def _on_leader_change(self, leader_id: str | None, term: int) -> None:
        cause = ""
        if leader_id is None:
            cause = self._engine.status().lost_by
            if cause:
                self._metrics.leader_losses.labels(cause).inc()
        self._elections.append(LeaderSeen(self._clock.wall_ms(), leader_id, term, cause))
        self._reports = None
        self._leader_changed.set()
        self._leader_changed = asyncio.Event()
