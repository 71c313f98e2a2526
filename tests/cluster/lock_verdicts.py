"""Was what holders of all kinds of locks saw what ``docs/guarantees.md`` promises?

The history of grants that the cluster keeps says in the order of its zxids who held what; the
holders (``lock_worker``) say what they knew, by the clock of this machine. Each function returns
sentences about what was wrong, none when all was well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from coordinator.client import GrantRecord
from tests.history.queues import LockEvent, grants_do_not_overlap

TOLERANCE_MS = 60
"""Between reading a clock and the command that carries the time; nobody's promise."""
_SHOWN_MAX = 5
_SILENCE = ("expired", "max_hold")

Held = Mapping[str, Any]


class Story:
    """What is known: all grants, what holders said of them, the sizes of semaphores by zxid."""

    def __init__(
        self,
        grants: Iterable[GrantRecord],
        held: Iterable[Held],
        sizes: Mapping[str, Sequence[tuple[int, int]]],
        perhaps_sizes: Sequence[int] = (),
    ) -> None:
        self.grants = [each for each in grants if each.granted_zxid]
        self.held = list(held)
        self.sizes = sizes
        self.size_min = max(perhaps_sizes, default=0)
        self.by_path = {each.path: each for each in self.grants}
        self.of_queue: dict[str, list[GrantRecord]] = defaultdict(list)
        for grant in self.grants:
            self.of_queue[queue_of(grant.path)].append(grant)
        for grants_of_one in self.of_queue.values():
            grants_of_one.sort(key=lambda each: (each.granted_zxid, each.fencing_token))
        self.said = {path: each for each in self.held for path in each["paths"]}


def judge(story: Story) -> list[str]:
    """Return everything that is wrong."""
    found: list[str] = []
    for rule in (
        told_of_real_grants, compatible, exclusive_by_checker, in_order, all_or_nothing,
        learned_first, writes_were_held, bounds_kept, delays_kept, downgrades_kept,
    ):  # fmt: skip
        found += rule(story)[:_SHOWN_MAX]
    return found


def told_of_real_grants(story: Story) -> list[str]:
    """Each hold that a client was told of is in the history, with its token."""
    found = []
    for held in story.held:
        for path in held["paths"]:
            grant = story.by_path.get(path)
            if grant is None or grant.fencing_token != held["token"]:
                found.append(f"told of a grant that the history does not know: {held}, {grant}")
    return found


def compatible(story: Story) -> list[str]:
    """In server order only shared ones, or so many slots, or one exclusive hold together."""
    found = []
    for queue, grants in story.of_queue.items():
        holding: list[GrantRecord] = []
        for grant in grants:
            holding = [each for each in holding if not _ended_by(each, grant.granted_zxid)]
            for other in holding:
                if not (_is_shared(grant) and _is_shared(other)) and not _are_slots(grant, other):
                    found.append(f"{queue}: {_shown(grant)} was granted beside {_shown(other)}")
            if grant.kind == "slot":
                size = _size_at(story.sizes[grant.lock], grant.granted_zxid)
                size = max(size, story.size_min)  # sizes of which nobody knows may be in force
                if len(holding) + 1 > size:
                    found.append(f"{queue}: {len(holding) + 1} of {size} slots, {_shown(grant)}")
            holding.append(grant)
    return found


def exclusive_by_checker(story: Story) -> list[str]:
    """The checker of simulated worlds says the same of queues where all hold alone."""
    events = []
    for queue, grants in story.of_queue.items():
        if any(each.kind != "exclusive" for each in grants):
            continue
        for each in grants:
            events.append((each.granted_zxid, 1, LockEvent(queue, each.fencing_token, True)))
            if each.ended_zxid is not None:
                events.append((each.ended_zxid, 0, LockEvent(queue, each.fencing_token, False)))
    events.sort(key=lambda event: event[:2])
    return [str(each) for each in grants_do_not_overlap(event for _, _, event in events)]


def in_order(story: Story) -> list[str]:
    """Grants follow the order of entering, so their tokens grow and are given once."""
    found = []
    for queue, grants in story.of_queue.items():
        for earlier, later in pairwise(grants):
            if later.fencing_token <= earlier.fencing_token:
                found.append(f"{queue}: {_shown(later)} was granted after {_shown(earlier)}")
    return found


def all_or_nothing(story: Story) -> list[str]:
    """Several locks are granted in one command, under one token, and end in one."""
    found = []
    for grant in story.grants:
        for path in grant.group:
            other = story.by_path.get(path)
            if other is None or _life(other) != _life(grant):
                found.append(f"half of a multi-lock: {_shown(grant)}, {path}: {other}")
    return found


def learned_first(story: Story) -> list[str]:
    """Who was certain to hold was right: the end came later, and so did everybody else's grant.

    Not asked of grants that somebody forced out: there the holder learns afterwards.
    """
    found = []
    for held in story.held:
        for path in held["paths"]:
            grant = story.by_path.get(path)
            if grant is None or grant.how in ("forced", "deleted") or grant.ended_ms is None:
                continue
            late_ms = held["certain_ms"] - grant.ended_ms
            if late_ms > (0 if grant.how in _SILENCE else TOLERANCE_MS):
                found.append(f"{held['who']} was certain {late_ms} ms after the end: {grant}")
            for other in story.of_queue[queue_of(path)]:
                if other is grant or other.granted_zxid < (grant.ended_zxid or 0):
                    continue
                said = story.said.get(other.path)
                if said is not None and said["granted_ms"] < held["certain_ms"]:
                    found.append(f"{held} was certain when {said} was told of the next grant")
                break
    return found


def writes_were_held(story: Story) -> list[str]:
    """A write under a grant that was done was done between its beginning and its end."""
    found = []
    for held in story.held:
        for path in held["paths"]:
            grant = story.by_path.get(path)
            for zxid in held["writes"] if grant is not None else ():
                ended_zxid = grant.ended_zxid or zxid
                if not grant.granted_zxid <= zxid <= ended_zxid:
                    found.append(f"a write at zxid {zxid} under {_shown(grant)}")
    return found


def bounds_kept(story: Story, leaders_max: int = 8) -> list[str]:
    """No bounded hold outlives its bound, counted anew by each leader there was."""
    found = []
    for held in story.held:
        grant = story.by_path.get(held["paths"][0])
        if grant is None or not held["max_hold_ms"] or grant.ended_ms is None:
            continue
        length_ms = grant.ended_ms - grant.granted_ms
        if length_ms > leaders_max * (held["max_hold_ms"] + 2_500):
            found.append(f"held for {length_ms} ms of {held['max_hold_ms']}: {_shown(grant)}")
        if grant.how == "max_hold" and length_ms < held["max_hold_ms"] - TOLERANCE_MS:
            found.append(f"ended after {length_ms} ms of {held['max_hold_ms']}: {_shown(grant)}")
    return found


def delays_kept(story: Story, delay_ms: Mapping[str, int] | None = None) -> list[str]:
    """After the silent loss of a holder that asked for it, nobody is granted for the delay."""
    found = []
    for queue, asked_ms in (delay_ms or {}).items():
        for earlier, later in pairwise(story.of_queue.get(queue, ())):
            gap_ms = later.granted_ms - (earlier.ended_ms or 0)
            if earlier.how == "expired" and gap_ms < asked_ms - TOLERANCE_MS:
                found.append(f"{queue}: granted {gap_ms} ms after a silent loss: {_shown(later)}")
    return found


def downgrades_kept(story: Story) -> list[str]:
    """Who downgrades holds alone until then."""
    found = []
    for held in story.held:
        called_ms = held["downgraded_ms"]
        grant = story.by_path.get(held["paths"][0])
        if called_ms is None or grant is None:
            continue
        if grant.kind != "shared":
            found.append(f"downgraded, and not shared: {_shown(grant)}")
        for other in story.of_queue[queue_of(grant.path)]:
            is_beside = grant.granted_zxid < other.granted_zxid < (grant.ended_zxid or 0)
            said = story.said.get(other.path)
            if is_beside and said is not None and said["granted_ms"] < called_ms:
                found.append(f"{_shown(other)} came in before the downgrade of {_shown(grant)}")
    return found


def once(results: Iterable[Held]) -> list[str]:
    """For each key one first time, and its result for everybody."""
    found = []
    of_key: dict[str, list[Held]] = defaultdict(list)
    for each in results:
        of_key[each["key"]].append(each)
    for key, all_of_them in of_key.items():
        said = {each["result"] for each in all_of_them}
        firsts = sum(each["is_first"] for each in all_of_them)
        if len(said) > 1 or firsts > 1:
            found.append(f"{key}: done first {firsts} times, with results {sorted(said)}")
    return found


def rate_kept(taken_ms: Iterable[int], rate: float, burst: int) -> list[str]:
    """In no stretch of time more permits were taken than were in the bucket and came back."""
    times = sorted(taken_ms)
    found = []
    for first in range(len(times)):
        for last in range(first + burst, len(times)):
            allowed = burst + (times[last] - times[first] + 1_000) / 1000 * rate
            if last - first + 1 > allowed:
                found.append(f"{last - first + 1} permits in {times[last] - times[first]} ms")
                return found
    return found


def queue_of(path: str) -> str:
    return path.rpartition("/")[0]


def _life(grant: GrantRecord) -> tuple[Any, ...]:
    return (grant.fencing_token, grant.granted_zxid, grant.ended_zxid, grant.how)


def _ended_by(grant: GrantRecord, zxid: int) -> bool:
    return grant.ended_zxid is not None and grant.ended_zxid <= zxid


def _is_shared(grant: GrantRecord) -> bool:
    return grant.kind == "shared"


def _are_slots(one: GrantRecord, other: GrantRecord) -> bool:
    return one.kind == other.kind == "slot"


def _size_at(sizes: Sequence[tuple[int, int]], zxid: int) -> int:
    """Return the size in force at ``zxid``; ``sizes`` are (zxid of the change, size), in order."""
    return [size for since, size in sizes if since <= zxid][-1]


def _shown(grant: GrantRecord) -> str:
    how = grant.how or "held"
    return (
        f"{grant.path} ({grant.kind}, token {grant.fencing_token}, zxids {grant.granted_zxid} to "
        f"{grant.ended_zxid}, {how})"
    )
