"""Contenders of a session that nobody waits for or holds by, found by looking at their queue.

The way back of an attempt whose number the members have forgotten: they can not say what it came
to, and refuse every copy of it that is still under way, so what stands there now is all there is.
"""

from __future__ import annotations

from coordinator.client.calls import Call
from coordinator.client.delivery import Delivery
from coordinator.client.session import Session
from coordinator.wire.messages.elections import ElectionView
from coordinator.wire.messages.locks import Contender, LockView


async def unclaimed(
    delivery: Delivery, base: str, session: Session, owner: str, timeout_ms: int
) -> tuple[str, ...]:
    """Return the grant ids of what ``owner`` has standing at ``base`` and does not hold by.

    They are nobody's if ``owner`` has no attempt under way there either, which the caller knows.
    """
    found = await _standing(delivery, base, timeout_ms)
    return tuple(
        each.grant_id
        for each in found
        if each.session_id == session.session_id
        and each.owner == owner
        and not session.grant_watch.is_watched(each.path)
    )


async def _standing(delivery: Delivery, base: str, timeout_ms: int) -> tuple[Contender, ...]:
    call = Call("GET", base)
    if base.startswith("/v1/elections/"):
        election = await delivery.read(call, ElectionView.from_body, timeout_ms)
        elected = () if election.elected is None else (election.elected,)
        return elected + election.candidates
    lock = await delivery.read(call, LockView.from_body, timeout_ms)
    return lock.holders + lock.queue
