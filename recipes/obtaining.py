"""From terms to grants: one place in one queue or in several, entered as one, held as one."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.client.locks.acquired import Award
from coordinator.client.locks.lock_queue import Contest
from coordinator.client.sync_and_async import FaceT
from coordinator.errors import DeadlockError
from recipes.grant import Grant
from recipes.guards.raising import raise_guards
from recipes.hold import Hold
from recipes.options import Terms


async def obtain(
    client: FaceT,
    contest: Contest,
    terms: Terms,
    wait_ms: int | None,
    on_position: Callable[[int], None] | None = None,
) -> tuple[Grant[FaceT], ...]:
    """Wait for the turn in all queues of ``contest``; return a grant for each of its names.

    The grants share one hold: given back or lost, they are so together. The guards of ``terms``
    have been raised to their token.

    Raises:
        DeadlockError: the wait would never end; ``cycle`` tells who would wait for whom.
    """
    owner = terms.owner_now()
    try:
        award = await contest.contend(terms.wish_of(owner), wait_ms, on_position)
    except DeadlockError as error:
        raise _advised(error) from error
    grants = grants_of(client, contest, award, owner)
    if terms.raise_on_acquire:
        await raise_guards(grants[0], terms.guards)
    return grants


def grants_of(
    client: FaceT, contest: Contest, award: Award, owner: str = ""
) -> tuple[Grant[FaceT], ...]:
    """Return a grant for each name of ``contest``, in its order, over the one hold of ``award``."""
    if len(contest.names) == 1:
        queues = {award.grant.lock: contest}
    else:  # a grant id names a place in the queue of its own lock
        queues = {name: client.core.contest("locks", name) for name in contest.names}
    hold = Hold(
        client.core,
        grant_id=award.grant.grant_id,
        fencing_token=award.grant.fencing_token,
        paths=award.paths,
        session=award.session,
        queue=queues[award.grant.lock],
        locks=contest.names,
        owner=owner,
        is_bounded=award.is_bounded,
    )
    each_of = {each.lock: each for each in award.grant.grants or (award.grant,)}
    grants = []
    for name in contest.names:
        said = each_of[name]
        grants.append(
            Grant(
                client,
                hold,
                queues[name],
                lock=name,
                grant_id=said.grant_id,
                fencing_token=said.fencing_token,
                path=said.path,
                session=award.session,
                kind=said.kind,
                max_hold_ms=said.max_hold_ms,
                previous=said.previous,
                is_election=contest.is_election,
            )
        )
    return tuple(grants)


def _advised(error: DeadlockError) -> DeadlockError:
    """Return ``error`` with what a caller can do about it here."""
    if len(error.fields.get("cycle", ())) > 1:
        advice = "take all of them at once (MultiLock), or always in one order"
    else:
        advice = (
            "use ReentrantLock to nest, or owner='' for a grant that another task or thread "
            "gives back"
        )
    return DeadlockError(f"{error.message}; {advice}", **error.fields)
