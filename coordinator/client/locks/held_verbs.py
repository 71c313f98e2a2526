"""The requests about a grant that a client holds."""

from __future__ import annotations

from coordinator.client.calling.calls import Call, quoted
from coordinator.client.calling.delivery import CallDelivery
from coordinator.errors import BadArgumentsError
from coordinator.model.grants import (
    AcquireReply,
    ExtendReply,
    ExtendRequest,
    GrantReply,
    NoteReply,
    NoteRequest,
)
from coordinator.model.views import ElectionView, LockView
from coordinator.wire.codec import reader


class HeldVerbs:
    """The verbs of a ``LockQueue`` about one grant."""

    names: tuple[str, ...]
    is_election: bool
    _base = ""
    _title: str
    _room: str
    _timeout_ms: int
    _delivery: CallDelivery

    async def downgrade(self, grant: GrantReply) -> GrantReply:
        """Turn an exclusive grant into a shared one, at its place and with its token. Idempotent.

        Raises:
            NotOwnerError: it does not hold any more.
            BadArgumentsError: it is not a lock's, or not one that can be shared.
            UnavailableError, OutcomeUnknownError: as for ``release``.
        """
        self._refuse_election("be downgraded")
        call = Call(
            "POST", f"{self._base_of(grant.lock)}/grants/{quoted(grant.grant_id)}/downgrade"
        )
        reply = await self._delivery.write(call, reader(AcquireReply), self._timeout_ms)
        return reply.grant

    async def note(self, grant: GrantReply, note: bytes) -> None:
        """Leave ``note`` (up to 1 KiB) with the grant, for the next holder.

        Raises:
            NotOwnerError: it does not hold any more.
            BadArgumentsError: the note is too long, or the grant is not a lock's.
            UnavailableError, OutcomeUnknownError: as for ``release``.
        """
        self._refuse_election("leave a note")
        target = f"{self._base_of(grant.lock)}/grants/{quoted(grant.grant_id)}/note"
        call = Call("PUT", target, NoteRequest(note))
        await self._delivery.write(call, reader(NoteReply), self._timeout_ms)

    async def extend(self, grant: GrantReply, *, by_ms: int = 0, to_ms: int = 0) -> int:
        """Let a bounded hold end ``by_ms`` later, or not before ``to_ms`` from now.

        Returns after how many ms from now it ends at the latest, unless the leader changes.

        Raises:
            NotOwnerError: it does not hold any more.
            BadArgumentsError: it has no bound, or is not a lock's; the time is out of its range.
            UnavailableError, OutcomeUnknownError: as for ``release``.
        """
        self._refuse_election("be extended")
        target = f"{self._base_of(grant.lock)}/grants/{quoted(grant.grant_id)}/extend"
        call = Call("POST", target, ExtendRequest(by_ms, to_ms))
        reply = await self._delivery.write(call, reader(ExtendReply), self._timeout_ms)
        return reply.max_hold_ms

    async def is_current(self, grant: GrantReply) -> tuple[bool, int]:
        """Ask the cluster whether ``grant`` holds, and as of which zxid; the past when answered.

        Raises:
            UnavailableError: no member answered in time.
        """
        base = self._base_of(grant.lock)
        if self.is_election:
            view = await self._delivery.read(
                Call("GET", base), reader(ElectionView), self._timeout_ms
            )
            return view.elected is not None and view.elected.grant_id == grant.grant_id, view.zxid
        call = Call("GET", f"{base}?fencing_token={grant.fencing_token}")
        lock = await self._delivery.read(call, reader(LockView), self._timeout_ms)
        return lock.is_current is True, lock.zxid

    def _base_of(self, name: str) -> str:
        if name == self.names[0] and self._base:
            return self._base
        return f"/v1/{self._room}/{quoted(name)}"

    def _refuse_election(self, deed: str) -> None:
        if self.is_election:
            raise BadArgumentsError(
                f"{self._title}: expected the grant of a lock, found that of an election; it can "
                f"not {deed}"
            )
