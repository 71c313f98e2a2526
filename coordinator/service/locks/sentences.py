"""Sentences about a lock: why it is as it is, and what became of a grant. Pure.

``coordinator why`` and ``why-lost``, the console and any caller of the routes show these sentences,
and add none of their own.
"""

from __future__ import annotations

from typing import Final

from coordinator.model.access import MEMBER
from coordinator.model.diagnosis import WaitLink
from coordinator.model.history import GrantRecord
from coordinator.model.views import Contender, LockView
from coordinator.wording import counted, lasting, moment, spread, who

_SAID_MAX: Final = 10
"""So many holders, and so many waiters, are said one by one."""
_HOW: Final = {
    "released": "it was released",
    "closed": "its client closed the session",
    "abandoned": "its client abandoned the attempt",
    "deleted": "its znode was deleted over the tree",
    "max_hold": "its maximum hold (max_hold) was over",
}


def why_of(
    view: LockView, chain: tuple[WaitLink, ...], last: GrantRecord | None, now_ms: int
) -> tuple[str, ...]:
    """Return why a lock is as it is; ``last`` is the grant that ended last, ``now_ms`` a wall
    time."""
    lines = _held(view, now_ms) if view.by_hand is None else _held_by_hand(view, view.by_hand)
    for link in chain:
        held = f"held by {who(link.holder)}" if link.holder else "which nobody holds at the moment"
        holder = "The holder" if view.holder_count == 1 else f"Its holder {who(link.waiter)}"
        lines.append(
            f"{holder} itself waits for {link.lock}, {held}; grant {link.waiter.grant_id} waits "
            f"there since {moment(link.waiter.since_ms)}."
        )
    lines += _waiting(view, now_ms)
    if not view.holders and last is not None:
        lines.append(
            f"It was last held by {who(last)}, grant {last.grant_id}, until "
            f"{moment(last.ended_ms or 0)}: {_how(last)}."
        )
    for what, lengths in (("Waits", view.waits), ("Holds", view.holds)):
        if lengths is not None:
            lines.append(f"{what} took {spread(lengths)}, of the last {lengths.count}.")
    return tuple(lines)


def _held_by_hand(view: LockView, by_hand: str) -> list[str]:
    lines = [f"{view.lock} is {by_hand.removeprefix('it is ')}."]
    for each in view.holders[:_SAID_MAX]:
        lines.append(f"{who(each)} has its turn, and waits for the end of that.")
    return lines


def _held(view: LockView, now_ms: int) -> list[str]:
    name, closed = view.lock, _closed(view)
    if not view.holders and closed:
        return closed
    if not view.holders and view.queue:
        return [
            f"Nobody holds {name}; the first in its queue also waits for other locks, or is being "
            "granted at this moment."
        ]
    if not view.holders:
        return [f"{name} is free: nobody holds it, and nobody waits."]
    lines = []
    if view.holder_count > 1 or view.size is not None:
        of = "" if view.size is None else f" of {view.size}"
        lines.append(f"{name} has {counted(view.holder_count, 'holder')}{of}.")
    for holder in view.holders[:_SAID_MAX]:
        lines += _one_holder(name, holder, now_ms)
    if view.holder_count > _SAID_MAX:
        lines.append(f"… and {counted(view.holder_count - _SAID_MAX, 'more holder')}.")
    return lines + closed


def _closed(view: LockView) -> list[str]:
    if view.closed is None:
        return []
    left_ms = view.closed.remaining_ms
    still = "for an unknown time" if left_ms is None else f"for another {lasting(left_ms)}"
    whom = "to later contenders " if view.holders else ""
    return [
        f"{view.lock} is closed {whom}{still} (lock-delay of {lasting(view.closed.delay_ms)}): a "
        "holder was lost without a release, and its writes may still arrive."
    ]


def _one_holder(name: str, holder: Contender, now_ms: int) -> list[str]:
    since_ms = holder.since_ms if holder.granted_ms is None else holder.granted_ms
    lines = [
        f"{name} is held by {who(holder)} since {moment(since_ms)}, for "
        f"{lasting(now_ms - since_ms)}.",
        f"It has grant {holder.grant_id}, {holder.kind}, fencing token {holder.fencing_token}.",
    ]
    if holder.safe_ms is None:
        lines.append("How long it is safe is not known: the leader did not answer in time.")
    else:
        renewed = "that" if holder.lease_ms is None else f"its lease of {lasting(holder.lease_ms)}"
        lines.append(
            f"It certainly holds for another {lasting(holder.safe_ms)}; heartbeats renew {renewed}."
        )
    if holder.max_hold_ms:
        since = " after it was last extended" if holder.extensions else ""
        lines.append(f"It may be held for {lasting(holder.max_hold_ms)} at most{since}.")
    if holder.lock_delay_ms:
        delay = lasting(holder.lock_delay_ms)
        lines.append(f"If it is lost without a release, the lock stays closed for another {delay}.")
    if holder.purpose or holder.guard:
        purpose = f"for {holder.purpose}" if holder.purpose else "without a stated purpose"
        lines.append(f"It was acquired {purpose}, with {holder.guard or 'no guard'}.")
    if holder.when_unsure == "continue":
        lines.append("Its holder continues when it is unsure whether it still holds.")
    if holder.note:
        lines.append(f"Its last note: {holder.note!r}")
    return lines


def _waiting(view: LockView, now_ms: int) -> list[str]:
    if not view.queue:
        return ["Nobody waits."] if view.holders else []
    waiting = counted(view.queue_length, "contender waits", "contenders wait")
    lines = [f"{waiting}, in this order:"]
    for number, each in enumerate(view.queue[:_SAID_MAX], 1):
        lines.append(
            f"{number}. {who(each)}, {each.kind}, since {lasting(now_ms - each.since_ms)}, "
            f"grant {each.grant_id}"
        )
    if view.queue_length > _SAID_MAX:
        lines.append(f"… and {view.queue_length - _SAID_MAX} more")
    return lines


# --- what became of a grant


def story_of(grant: GrantRecord, following: GrantRecord | None) -> tuple[str, ...]:
    """Return what became of a grant, and who was granted next."""
    what = f"Grant {grant.grant_id} of {grant.lock} (fencing token {grant.fencing_token})"
    lines = [f"{what} was given to {who(grant)} at {moment(grant.granted_ms)}."]
    if grant.is_held:
        return (*lines, "It is not lost: it is still held.")
    ended_ms = grant.ended_ms or 0
    lines.append(
        f"It ended at {moment(ended_ms)}, after {lasting(ended_ms - grant.granted_ms)}: "
        f"{_how(grant)}."
    )
    if grant.how == "expired":
        where = f" (host {grant.host}, pid {grant.pid})" if grant.host else ""
        lines.append(
            f"Its last heartbeat that arrived came at about {moment(ended_ms - grant.silent_ms)}. "
            f"From then on its program was paused, cut off, or dead: look there{where}."
        )
    if grant.note:
        lines.append(f"Its last note: {grant.note!r}")
    if following is None:
        lines.append("No later grant of it is known.")
    else:
        lines.append(
            f"The next grant was {following.grant_id} (token {following.fencing_token}), to "
            f"{who(following)}, {lasting(following.granted_ms - ended_ms)} later."
        )
    if grant.how in ("expired", "failed", "forced", "max_hold", "deleted"):
        lines.append(
            f"A store that checks tokens refuses its later writes, by token {grant.fencing_token}. "
            "If its store checks none, look at what was written since."
        )
    return tuple(lines)


def _how(grant: GrantRecord) -> str:
    if grant.how == "expired":
        return (
            f"the leader of term {grant.term} had heard nothing of its session for "
            f"{lasting(grant.silent_ms)} and expired it"
        )
    if grant.how == "failed" and grant.by == MEMBER.identity:
        return f"its session was ended: {grant.reason}"
    if grant.how == "failed":
        return f"its client was not well and ended its session: {grant.reason}"
    if grant.how == "forced":
        return f"{grant.by} released it by force, for this reason: {grant.reason}"
    return _HOW.get(grant.how, grant.how)
