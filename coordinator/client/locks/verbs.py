"""The verbs about locks and elections as such: who holds, the history, force."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from coordinator.client.calling.calls import PACKED, Call, packed, target_of
from coordinator.client.verbs.conditions import Conditions, conditions_of
from coordinator.client.verbs.hints import LockQuestion, answering
from coordinator.client.verbs.verb_group import VerbGroup
from coordinator.model.diagnosis import Diagnosis, LockWhy
from coordinator.model.grants import (
    ProclaimRequest,
    RevokeBody,
    RevokeReply,
    SizeReply,
    SizeRequest,
)
from coordinator.model.history import GrantPage, GrantRecord, GrantStory
from coordinator.model.views import ElectionView, LockList, LockSummary, LockView
from coordinator.wire.codec import reader, to_body
from coordinator.wire.if_held import if_held_body


class LockVerbs(VerbGroup):
    """What a client may ask of locks and elections without being a contender."""

    @answering
    def lock(self, name: str | int, *, fencing_token: int | None = None) -> LockQuestion:
        """Return who holds a lock and who waits; with a token also whether it is current.

        Raises:
            UnavailableError: no member answered in time.
        """
        query = "" if fencing_token is None else f"?fencing_token={fencing_token}"
        call = Call("GET", target_of("locks", name) + query)
        return LockQuestion(self._read(call, reader(LockView)))

    async def why(self, name: str | int) -> LockWhy:
        """Return who holds a lock, for how long that is safe, and why others wait: in sentences.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._read(Call("GET", target_of("locks", name, "why")), reader(LockWhy))

    async def diagnosis(self, lock: str | int | None = None) -> Diagnosis:
        """Return how the cluster is, and what is wrong with a lock, or with every lock that is not
        free or in the history.

        Raises:
            UnavailableError: no member answered in time.
        """
        query = [] if lock is None else [("lock", str(lock))]
        pages = self._pages("/v1/diagnosis", query, reader(Diagnosis))
        found = [page async for page in pages]
        return Diagnosis(found[0].cluster, tuple([each for page in found for each in page.locks]))

    async def locks(self, *, held_ms_min: int = 0) -> AsyncGenerator[LockSummary, None]:
        """Iterate over the locks that are not free, page by page.

        Those are held by a client, or by hand, for ``held_ms_min`` or longer; if that is 0, also
        those that are closed after an unclean loss.

        Raises:
            UnavailableError: no member answered in time.
        """
        query = [("held_ms_min", str(held_ms_min))]
        async for page in self._pages("/v1/locks", query, reader(LockList)):
            for each in page.locks:
                yield each

    async def grants(
        self,
        lock: str | int | None = None,
        *,
        session_id: str | None = None,
        fencing_token: int | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
        how: str | None = None,
        is_election: bool = False,
    ) -> AsyncGenerator[GrantRecord, None]:
        """Iterate over the grants that the history still knows, the oldest first, page by page.

        Args:
            lock, session_id, fencing_token: only those of this lock, this holder, this token.
            since_ms, until_ms: only those that held at some time in between (wall time, in ms
                since 1970).
            how: only those that ended so: one of ``released``, ``closed``, ``expired``,
                ``abandoned``, ``deleted``, ``forced``, ``max_hold``; "" for those held now.
            is_election: ``lock`` is the name of an election. Without a name both are listed.

        Raises:
            BadArgumentsError: one of them is out of its range.
            UnavailableError: no member answered in time.
        """
        wanted = {
            "election" if is_election else "lock": lock,
            "session_id": session_id,
            "fencing_token": fencing_token,
            "since_ms": since_ms,
            "until_ms": until_ms,
            "how": how,
        }
        query = [(name, str(value)) for name, value in wanted.items() if value is not None]
        async for page in self._pages("/v1/grants", query, reader(GrantPage)):
            for each in page.grants:
                yield each

    async def grant(
        self, lock: str | int, grant_id: str, *, is_election: bool = False
    ) -> GrantStory:
        """Return what became of a grant, and who was granted next.

        Raises:
            NoNodeError: the history knows no such grant (any more).
            UnavailableError: no member answered in time.
        """
        query = "?election" if is_election else ""
        call = Call("GET", target_of("grants", lock, grant_id) + query)
        return await self._read(call, reader(GrantStory))

    async def revoke(
        self, lock: str | int, *, by: str, reason: str, grant_id: str | None = None
    ) -> RevokeReply:
        """End a grant against its holder's will; ``by`` and ``reason`` go into the history.

        The holder is not stopped by this, and may not know: raise every guard to the
        ``fencing_token_min`` of the reply, so that what it still writes is refused.

        Args:
            grant_id: which grant; may be left out when exactly one holds.

        Raises:
            NotOwnerError: this grant does not hold (any more); nothing was ended.
            UnavailableError, OutcomeUnknownError: nothing was ended; it may have been.
        """
        body = RevokeBody(by, reason, grant_id)
        call = Call("POST", target_of("locks", lock, "revoke"), body)
        return await self._write(call, reader(RevokeReply))

    async def resize(self, semaphore: str | int, size: int) -> SizeReply:
        """Let ``size`` contenders (1 to 10,000) hold a semaphore at once.

        More are granted at once; with fewer no slot is taken away, the next ones wait longer.

        Raises:
            NoNodeError: there is no such semaphore.
            BadArgumentsError: ``size`` is out of its range.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        call = Call("PUT", target_of("locks", semaphore, "size"), SizeRequest(size))
        return await self._write(call, reader(SizeReply))

    async def election(self, name: str | int) -> ElectionView:
        """Return who is elected, with which value and epoch, and who waits to be.

        Raises:
            UnavailableError: no member answered in time.
        """
        call = Call("GET", target_of("elections", name))
        return await self._read(call, reader(ElectionView))

    async def proclaim(
        self, name: str | int, grant_id: str, value: bytes, *, if_held: Conditions = None
    ) -> None:
        """Publish the value of the elected.

        Raises:
            NotOwnerError: this grant is not elected.
            LockLostError: a grant of ``if_held`` does not hold; nothing was published.
            UnavailableError, OutcomeUnknownError: nothing was published; it may have been.
        """
        held = if_held_body(conditions_of(if_held))
        target = target_of("elections", name, "grants", grant_id)
        body = {**to_body(ProclaimRequest(value), PACKED), **held}
        call = packed("PUT", target, body)
        await self._write(call, lambda body: None)
