"""Contenders of a session that nothing waits for or holds by, found by looking at their queue.

This is how an attempt is withdrawn whose number the members have forgotten. They cannot say what
became of it, and they refuse every copy that is still under way, so what is queued now is all.
"""

from __future__ import annotations

from coordinator.client.calling.calls import Call
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.sessions.session import Session
from coordinator.model.views import Candidate, Contender, ElectionView, LockView
from coordinator.wire.codec import reader


async def unclaimed(
    delivery: CallDelivery, base: str, session: Session, owner: str, timeout_ms: int
) -> tuple[str, ...]:
    """Return the grant ids of contenders that ``owner`` has at ``base`` and does not hold by.

    They are left over if ``owner`` has no attempt under way there either, which the caller knows.
    """
    found = await _queued(delivery, f"{base}?session_id={session.session_id}", timeout_ms)
    return tuple(
        each.grant_id
        for each in found
        if each.session_id == session.session_id
        and _owner_of(each) == owner
        and not session.grant_watch.is_watched(each.path)
    )


async def _queued(
    delivery: CallDelivery, path: str, timeout_ms: int
) -> tuple[Contender | Candidate, ...]:
    call = Call("GET", path)
    if path.startswith("/v1/elections/"):
        election = await delivery.read(call, reader(ElectionView), timeout_ms)
        elected: tuple[Candidate, ...] = () if election.elected is None else (election.elected,)
        return elected + election.candidates
    lock = await delivery.read(call, reader(LockView), timeout_ms)
    return lock.holders + lock.queue


def _owner_of(each: Contender | Candidate) -> str:
    return each.owner if isinstance(each, Contender) else ""
