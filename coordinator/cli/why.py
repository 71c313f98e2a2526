"""``why`` and ``why-lost``: who holds a lock and why others wait; what became of a grant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from coordinator.cli.completing import lock_names
from coordinator.cli.connection import Settings, verb
from coordinator.cli.output import document, one_line
from coordinator.cli.wording import counted, lasting, moment, who
from coordinator.client import AsyncClient, Contender, GrantRecord, GrantStory, LockView
from coordinator.clock import SystemClock
from coordinator.errors import NoNodeError
from coordinator.model.access import MEMBER
from coordinator.wire.codec import to_body

_CHAIN_MAX = 10
_LOOKED_AT_MAX = 100
_SHOWN_MAX = 10


@dataclass(frozen=True, slots=True)
class WaitLink:
    """A holder waits itself: ``waiter`` is in the queue of ``lock``, which ``holder`` holds."""

    waiter: Contender
    lock: str
    holder: Contender | None


@dataclass(frozen=True, slots=True)
class Situation:
    """All that is known of why a lock is as it is; ``last`` is the grant that ended last."""

    view: LockView
    chain: tuple[WaitLink, ...]
    last: GrantRecord | None

    def to_body(self) -> dict[str, Any]:
        """Return the answer of ``--json``."""
        return {
            **to_body(self.view),
            "chain": [
                {
                    "waiter": to_body(link.waiter),
                    "lock": link.lock,
                    "holder": None if link.holder is None else to_body(link.holder),
                }
                for link in self.chain
            ],
            "last_grant": None if self.last is None else to_body(self.last),
        }


@click.command()
@click.argument("name", shell_complete=lock_names)
@verb
def why(settings: Settings, name: str) -> None:
    """Say who holds the lock NAME, how long it is safe, and why others wait.

    If its holder waits for another lock, the holder of that lock is named as well, and so on.

    \b
    Examples:
      coordinator why daily-report
      coordinator why daily-report --json
    """
    situation = settings.run(lambda client: look(client, name))
    if settings.is_json:
        click.echo(document(situation.to_body()))
        return
    for line in lines_of(situation, SystemClock().wall_ms()):
        click.echo(line)


async def look(client: AsyncClient, name: str) -> Situation:
    """Ask the cluster for all that explains the lock ``name``."""
    view = await client.lock(name)
    chain = [each async for each in _chain(client, view)]
    last = None
    async for grant in client.grants(name):
        if not grant.is_held:
            last = _later(last, grant)
    return Situation(view, tuple(chain), last)


def _later(one: GrantRecord | None, other: GrantRecord) -> GrantRecord:
    """Return which of two grants ended later: those that hold together end in any order."""
    return other if one is None or (other.ended_zxid or 0) >= (one.ended_zxid or 0) else one


async def _chain(client: AsyncClient, view: LockView) -> AsyncIterator[WaitLink]:
    """Follow a holder that waits itself to what it waits for, its holder to the next, and so on."""
    seen: set[str] = set()
    while view.holders and view.queue and view.lock not in seen and len(seen) < _CHAIN_MAX:
        seen.add(view.lock)
        found = await _what_one_waits_for(client, view.holders)
        if found is None:
            return
        waiter, view = found
        yield WaitLink(waiter, view.lock, view.holders[0] if view.holders else None)


async def _what_one_waits_for(
    client: AsyncClient, holders: Sequence[Contender]
) -> tuple[Contender, LockView] | None:
    """Return where the owner of one of ``holders`` waits, with that lock; None if nowhere.

    An anonymous holder waits for nothing that is known.
    """
    owners = {(each.session_id, each.owner) for each in holders if each.owner}
    if not owners:
        return None
    looked_at = 0
    async for summary in client.locks():
        if not summary.queue_length:
            continue
        looked_at += 1
        if looked_at > _LOOKED_AT_MAX:
            return None
        view = await client.lock(summary.lock)
        for each in view.queue:
            if (each.session_id, each.owner) in owners:
                return each, view
    return None


# --- in words


def lines_of(situation: Situation, now_ms: int) -> list[str]:
    """Return the situation in plain sentences, a line each; ``now_ms`` is a wall time."""
    view = situation.view
    lines = _held(view, now_ms)
    if view.by_hand is not None:
        lines = [one_line(f"{view.lock} is {view.by_hand.removeprefix('it is ')}.")]
        for each in view.holders[:_SHOWN_MAX]:
            lines.append(f"{who(each)} has its turn, and waits for the end of that.")
    for link in situation.chain:
        held = f"held by {who(link.holder)}" if link.holder else "which nobody holds at the moment"
        holder = "The holder" if len(view.holders) == 1 else f"Its holder {who(link.waiter)}"
        lines.append(
            f"{holder} itself waits for {one_line(link.lock)}, {held}; grant "
            f"{link.waiter.grant_id} waits there since {moment(link.waiter.since_ms)}."
        )
    lines += _waiting(view, now_ms)
    if not view.holders and situation.last is not None:
        last = situation.last
        lines.append(
            f"It was last held by {who(last)}, grant {last.grant_id}, until "
            f"{moment(last.ended_ms or 0)}: {HOW.get(last.how, last.how)}."
        )
    for what, spread in (("Waits", view.waits), ("Holds", view.holds)):
        if spread is not None:
            lines.append(
                f"{what} took {lasting(spread.p50_ms)} (p50), {lasting(spread.p95_ms)} (p95), "
                f"{lasting(spread.p99_ms)} (p99), of the last {spread.count}."
            )
    return lines


NEVER_ENDS = (
    "It is a persistent znode in the lock's queue, made by hand: no session ends it, so it holds "
    "until a client deletes it, or it is forced out with `coordinator revoke`."
)
HOW = {
    "released": "it was released",
    "closed": "its client closed the session",
    "expired": "its session expired, because no heartbeat arrived",
    "failed": "its client was not well and ended its session",
    "abandoned": "its client abandoned the attempt",
    "deleted": "its znode was deleted over the tree",
    "forced": "it was released by force",
    "max_hold": "its maximum hold (max_hold) was over",
}


def _held(view: LockView, now_ms: int) -> list[str]:
    name = one_line(view.lock)
    if view.closed is not None:
        left = view.closed.remaining_ms
        still = "for an unknown time" if left is None else f"for another {lasting(left)}"
        whom = "to later contenders " if view.holders else ""
        closed = (
            f"{name} is closed {whom}{still} (lock-delay of {lasting(view.closed.delay_ms)}): a "
            f"holder was lost without a release, and its writes may still arrive."
        )
        if not view.holders:
            return [closed]
    if not view.holders:
        if view.queue:
            return [
                f"Nobody holds {name}; the first in its queue also waits for other locks, or is "
                f"being granted at this moment."
            ]
        return [f"{name} is free: nobody holds it, and nobody waits."]
    lines = []
    if view.holder_count > 1 or view.size is not None:
        of = "" if view.size is None else f" of {view.size}"
        lines.append(f"{name} has {counted(view.holder_count, 'holder')}{of}.")
    for holder in view.holders[:_SHOWN_MAX]:
        lines += _one_holder(name, holder, now_ms)
    if view.holder_count > _SHOWN_MAX:
        lines.append(f"… and {counted(view.holder_count - _SHOWN_MAX, 'more holder')}.")
    return [*lines, closed] if view.closed is not None else lines


def _one_holder(name: str, holder: Contender, now_ms: int) -> list[str]:
    since_ms = holder.since_ms if holder.granted_ms is None else holder.granted_ms
    lines = [
        f"{name} is held by {who(holder)} since {moment(since_ms)}, for "
        f"{lasting(now_ms - since_ms)}.",
        f"  Grant {holder.grant_id}, {holder.kind}, fencing token {holder.fencing_token}.",
    ]
    if not holder.session_id:
        lines.append(f"  {NEVER_ENDS}")
    elif holder.safe_ms is None:
        lines.append("  How long it is safe is not known: the leader did not answer in time.")
    else:
        renewed = "that" if holder.lease_ms is None else f"its lease of {lasting(holder.lease_ms)}"
        lines.append(
            f"  It certainly holds for another {lasting(holder.safe_ms)}; heartbeats renew "
            f"{renewed}."
        )
    if holder.max_hold_ms:
        since = " after it was last extended" if holder.extensions else ""
        lines.append(f"  It may be held for {lasting(holder.max_hold_ms)} at most{since}.")
    if holder.lock_delay_ms:
        delay = lasting(holder.lock_delay_ms)
        lines.append(
            f"  If it is lost without a release, the lock stays closed for another {delay}."
        )
    if holder.purpose or holder.guard:
        purpose = f"for {holder.purpose}" if holder.purpose else "without a stated purpose"
        guard = one_line(holder.guard) or "no guard"
        lines.append(f"  It was acquired {purpose}, with {guard}.")
    if holder.when_unsure == "continue":
        lines.append("  Its holder continues when it is unsure whether it still holds.")
    if holder.note:
        lines.append(f"  Its last note: {holder.note!r}")
    return lines


def _waiting(view: LockView, now_ms: int) -> list[str]:
    if not view.queue:
        return ["Nobody waits."] if view.holders else []
    waiting = counted(view.queue_length, "contender waits", "contenders wait")
    lines = [f"{waiting}, in this order:"]
    for number, each in enumerate(view.queue[:_SHOWN_MAX], 1):
        lines.append(
            f"  {number}. {who(each)}, {each.kind}, since {lasting(now_ms - each.since_ms)}, "
            f"grant {each.grant_id}"
        )
    if view.queue_length > _SHOWN_MAX:
        lines.append(f"  … and {view.queue_length - _SHOWN_MAX} more")
    return lines


# --- what became of a grant


@click.command("why-lost")
@click.argument("name", shell_complete=lock_names)
@click.argument("grant", required=False)
@click.option("--election", "is_election", is_flag=True, help="NAME is an election.")
@verb
def why_lost(settings: Settings, name: str, grant: str | None, is_election: bool) -> None:
    """Say how and why a grant of the lock NAME ended.

    It says when its holder was last heard of, and which client was next.

    GRANT is its grant id (42-1337) or its fencing token (1337). Without one it is the last grant
    that did not end by its holder's release.

    \b
    Examples:
      coordinator why-lost daily-report
      coordinator why-lost daily-report 42-1337
      coordinator why-lost daily-report 1337 --json
      coordinator why-lost scheduler --election
    """
    story = settings.run(lambda client: story_of(client, name, grant, is_election=is_election))
    if settings.is_json:
        click.echo(document(to_body(story)))
        return
    for line in told_of(story):
        click.echo(line)


async def story_of(
    client: AsyncClient, name: str, grant: str | None, *, is_election: bool = False
) -> GrantStory:
    """Return the story of a grant: by its id, by its token, or of the last one that was lost.

    Raises:
        NoNodeError: the history knows no such grant.
    """
    if grant is not None and not grant.isdecimal():
        return await client.grant(name, grant, is_election=is_election)
    found: GrantRecord | None = None
    token = None if grant is None else int(grant)
    async for each in client.grants(name, fencing_token=token, is_election=is_election):
        if token is not None or each.how not in ("", "released"):
            found = _later(found, each)
    if found is None:
        what = "a grant that was lost" if token is None else f"a grant with token {token}"
        raise NoNodeError(f"{name}: expected {what}, found none in the history")
    return await client.grant(name, found.grant_id, is_election=is_election)


def told_of(story: GrantStory) -> list[str]:
    """Return the story in plain sentences, a line each."""
    grant = story.grant
    what = f"Grant {grant.grant_id} of {one_line(grant.lock)} (fencing token {grant.fencing_token})"
    lines = [f"{what} was given to {who(grant)} at {moment(grant.granted_ms)}."]
    if grant.is_held:
        return [*lines, "It is not lost: it is still held."]
    held_ms = (grant.ended_ms or 0) - grant.granted_ms
    lines.append(
        f"It ended at {moment(grant.ended_ms or 0)}, after {lasting(held_ms)}: {_how(grant)}."
    )
    if grant.how == "expired":
        heard_ms = (grant.ended_ms or 0) - grant.silent_ms
        lines.append(
            f"Its last heartbeat that arrived came at about {moment(heard_ms)}. From then on its "
            f"program was paused, cut off, or dead: look there"
            + (f" (host {one_line(grant.host)}, pid {grant.pid})." if grant.host else ".")
        )
    if grant.note:
        lines.append(f"Its last note: {grant.note!r}")
    if story.next is None:
        lines.append("No later grant of it is known.")
    else:
        gap_ms = story.next.granted_ms - (grant.ended_ms or 0)
        lines.append(
            f"The next grant was {story.next.grant_id} (token {story.next.fencing_token}), to "
            f"{who(story.next)}, {lasting(gap_ms)} later."
        )
    if grant.how in ("expired", "failed", "forced", "max_hold", "deleted"):
        lines.append(
            f"A store that checks tokens refuses its later writes, by token {grant.fencing_token}. "
            f"If its store checks none, look at what was written since."
        )
    return lines


def _how(grant: GrantRecord) -> str:
    if grant.how == "expired":
        return (
            f"the leader of term {grant.term} had heard nothing of its session for "
            f"{lasting(grant.silent_ms)} and expired it"
        )
    if grant.how == "failed" and grant.by == MEMBER.identity:
        return one_line(f"its session was ended: {grant.reason}")
    if grant.how == "failed":
        return one_line(f"its client was not well and ended its session: {grant.reason}")
    if grant.how == "forced":
        return one_line(f"{grant.by} released it by force, for this reason: {grant.reason}")
    return HOW.get(grant.how, one_line(grant.how))
