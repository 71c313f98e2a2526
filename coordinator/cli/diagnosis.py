"""The diagnosis of a lock's use from its history: figures in, findings in words out. Pure.

Times come from the history. They are of the wall clocks of the members that proposed the changes:
good enough for people, no measure of safety. The thresholds are below; each finding carries the
figures that it is drawn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from coordinator.cli.wording import counted, lasting
from coordinator.client import GrantRecord
from coordinator.model.views import nearest_rank

WAITING_ON_AVERAGE_MIN = 2
"""So many wait, on average over the time that it is held, for a lock that is a bottleneck."""
WAIT_MS_MIN = 50
"""Shorter waits do not matter (p95)."""
UNCONTENDED_GRANTS_MIN = 5
"""Fewer grants say nothing about whether anybody contends."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """How long ``count`` waits or holds took, by nearest rank."""

    count: int
    p50_ms: int
    p95_ms: int
    p99_ms: int
    max_ms: int

    @classmethod
    def of(cls, lengths_ms: Iterable[int]) -> Percentiles | None:
        """Return those of ``lengths_ms``, None of nothing."""
        ordered = sorted(lengths_ms)
        if not ordered:
            return None
        p50, p95, p99 = (nearest_rank(ordered, each) for each in (50, 95, 99))
        return cls(len(ordered), p50, p95, p99, ordered[-1])

    def __str__(self) -> str:
        return (
            f"{lasting(self.p50_ms)} (p50), {lasting(self.p95_ms)} (p95), "
            f"{lasting(self.p99_ms)} (p99)"
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """One lock in numbers.

    ``at_once``: how many of the grants were given in the very command that asked. ``silences_ms``:
    for how long nothing had been heard of the holders that expired. ``lease_ms``: the shortest
    lease of those who hold or wait now, None without any. ``endless``: how many of the grants
    that are held now belong to no session. ``tries`` were refused at once, and waiters ``left``
    without it, as far as the member that was asked has seen since it started.
    ``waiting_on_average``: how many waited for it while it was held, on average over that time and
    without its longest hold; None if fewer than two holds have ended. ``by_hand`` says by whom it
    is held by hand, ``release_it`` how that ends; ``lock_delay_ms`` is not 0 while an unclean loss
    closes it.
    """

    lock: str
    grants: int
    at_once: int
    waits: Percentiles | None
    holds: Percentiles | None
    ends: Mapping[str, int]
    silences_ms: tuple[int, ...]
    span_ms: int
    held_ms: int
    queue_length: int = 0
    lease_ms: int | None = None
    endless: int = 0
    tries: int = 0
    left: int = 0
    waiting_on_average: float | None = None
    by_hand: str = ""
    is_overdue: bool = False
    lock_delay_ms: int = 0
    release_it: str = ""

    def to_body(self) -> dict[str, Any]:
        """Return the figures under the names that ``--json`` gives them."""
        return {
            "grants": self.grants,
            "at_once": self.at_once,
            "waits": None if self.waits is None else asdict(self.waits),
            "holds": None if self.holds is None else asdict(self.holds),
            "ends": dict(self.ends),
            "silence_ms_max": max(self.silences_ms, default=None),
            "span_ms": self.span_ms,
            "held_ms": self.held_ms,
            "queue_length": self.queue_length,
            "lease_ms": self.lease_ms,
            "endless": self.endless,
            "refused_tries": self.tries,
            "left_waiting": self.left,
            "waiting_on_average": self.waiting_on_average,
            "by_hand": self.by_hand or None,
            "is_overdue": self.is_overdue,
            "lock_delay_ms": self.lock_delay_ms,
        }


@dataclass(frozen=True, slots=True)
class LockFinding:
    """One sentence about a lock, why it is said, and what helps."""

    code: str
    severity: Literal["problem", "warning", "note"]
    text: str
    why: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A lock's figures and what they say; the worst comes first."""

    figures: Figures
    findings: tuple[LockFinding, ...] = field(default=())

    def to_body(self) -> dict[str, Any]:
        """Return the answer of ``--json``."""
        return {
            "lock": self.figures.lock,
            "findings": [asdict(each) for each in self.findings],
            "figures": self.figures.to_body(),
        }


def figures_of(
    lock: str,
    grants: Sequence[GrantRecord],
    *,
    queue_length: int = 0,
    leases_ms: Sequence[int] = (),
    tries: int = 0,
    left: int = 0,
    by_hand: str = "",
    is_overdue: bool = False,
    lock_delay_ms: int = 0,
    release_it: str = "",
) -> Figures:
    """Return the numbers of ``lock`` from its ``grants``, the oldest first."""
    ended = [each for each in grants if each.ended_ms is not None]
    holds_ms = [_length_ms(each.granted_ms, each.ended_ms or 0) for each in ended]
    begin_ms = min((each.granted_ms for each in grants), default=0)
    end_ms = max((each.ended_ms or each.granted_ms for each in grants), default=0)
    return Figures(
        lock=lock,
        grants=len(grants),
        at_once=sum(each.granted_zxid == each.entered_zxid for each in grants),
        waits=Percentiles.of(_length_ms(each.entered_ms, each.granted_ms) for each in grants),
        holds=Percentiles.of(holds_ms),
        ends=Counter(each.how for each in ended),
        silences_ms=tuple(each.silent_ms for each in ended if each.how == "expired"),
        span_ms=_length_ms(begin_ms, end_ms),
        held_ms=sum(holds_ms),
        queue_length=queue_length,
        lease_ms=min(leases_ms, default=None),
        endless=sum(each.ended_ms is None and not each.session_id for each in grants),
        tries=tries,
        left=left,
        waiting_on_average=_waiting_on_average(grants),
        by_hand=by_hand,
        is_overdue=is_overdue,
        lock_delay_ms=lock_delay_ms,
        release_it=release_it,
    )


def _waiting_on_average(grants: Sequence[GrantRecord]) -> float | None:
    """Return how many waited while it was held: what all waits took by what all holds took.

    The longest hold is left out on both sides, with what was waited for during it: one holder
    that hung, or one hiccup of a machine, neither makes a bottleneck nor hides one.
    """
    holds = [(each.granted_ms, each.ended_ms) for each in grants if each.ended_ms is not None]
    if len(holds) < 2:
        return None
    longest = max(holds, key=lambda hold: hold[1] - hold[0])
    waits_ms = sum(
        _length_ms(each.entered_ms, each.granted_ms)
        - _length_ms(max(each.entered_ms, longest[0]), min(each.granted_ms, longest[1]))
        for each in grants
    )
    holds_ms = sum(_length_ms(*hold) for hold in holds) - _length_ms(*longest)
    return round(waits_ms / max(1, holds_ms), 1)


def _length_ms(begin_ms: int, end_ms: int) -> int:
    """Return how long it took by wall clocks, which may disagree: not less than 0."""
    return max(0, end_ms - begin_ms)


def diagnosed(figures: Figures) -> Diagnosis:
    """Return what the numbers say; nothing wrong is a finding too."""
    rules = (
        _held_by_hand, _closed_after_loss, _never_ends, _wait_dominates, _denied,
        _shorter_than_pauses, _put_out, _bounds_reached, _shorter_than_holds, _never_contended,
    )  # fmt: skip
    findings = [finding for rule in rules if (finding := rule(figures)) is not None]
    if not findings:
        findings.append(_nothing(figures))
    rank = ("problem", "warning", "note")
    findings.sort(key=lambda each: rank.index(each.severity))
    return Diagnosis(figures, tuple(findings))


# --- the rules


def _held_by_hand(figures: Figures) -> LockFinding | None:
    if not figures.by_hand:
        return None
    overdue = " for longer than planned" if figures.is_overdue else ""
    return LockFinding(
        "held-by-hand",
        "problem" if figures.is_overdue else "note",
        f"It is held by hand{overdue}.",
        f"Nobody else is granted it: {figures.by_hand}.",
        figures.release_it or "`coordinator unlock` ends it.",
    )


def _closed_after_loss(figures: Figures) -> LockFinding | None:
    if not figures.lock_delay_ms:
        return None
    return LockFinding(
        "closed-after-loss",
        "note",
        "It is closed after an unclean loss.",
        "A holder was lost without a release, and its writes may still arrive: for a lock-delay of "
        f"{lasting(figures.lock_delay_ms)} nobody else is granted it.",
    )


def _never_ends(figures: Figures) -> LockFinding | None:
    if not figures.endless:
        return None
    return LockFinding(
        "never-ends",
        "problem",
        "It is held by what never ends.",
        f"{counted(figures.endless, 'grant')} held now {'is' if figures.endless == 1 else 'are'} "
        "of a persistent znode in its queue, made by hand: no session, so no lease that runs out.",
        "`coordinator why` names it; `coordinator revoke` or deleting the znode frees the lock. "
        "Such znodes are refused today; this one is from before.",
    )


def _wait_dominates(figures: Figures) -> LockFinding | None:
    waits, waiting = figures.waits, figures.waiting_on_average
    if waits is None or waits.p95_ms < WAIT_MS_MIN:
        return None
    if waiting is None or waiting < WAITING_ON_AVERAGE_MIN:
        return None
    busy = ""
    if figures.span_ms:
        busy = f"; it was held for {min(100, 100 * figures.held_ms // figures.span_ms)} % of the "
        busy += f"{lasting(figures.span_ms)} that the history covers"
    return LockFinding(
        "wait-dominates",
        "problem",
        "Wait dominates: the lock is the bottleneck.",
        f"On average {waiting} waited while it was held, not counting its longest hold. Waits "
        f"took {waits}, holds {figures.holds}{busy}.",
        "Hold it shorter, split it into several locks (one for each record or partition), or ask "
        "`coordinator advise` whether it is needed.",
    )


def _denied(figures: Figures) -> LockFinding | None:
    tries, left = figures.tries, figures.left
    if not tries and not left:
        return None
    is_usual = left > figures.grants
    return LockFinding(
        "denied",
        "problem" if is_usual else "note",
        "Most waiters leave without it." if is_usual else "Some requests did not get it.",
        f"{counted(tries, 'try', 'tries')} {'was' if tries == 1 else 'were'} refused at once, and "
        f"{counted(left, 'waiter')} left before they got it (they timed out, were cancelled, or "
        f"their session ended); {counted(figures.grants, 'grant')} in the history.",
        "Refused tries are normal if one of several is to do the work. Waiters that leave wait "
        "for less time than the lock is held: `coordinator why` says who holds it.",
    )


def _shorter_than_pauses(figures: Figures) -> LockFinding | None:
    silences_ms = figures.silences_ms
    if not silences_ms:
        return None
    lease = "the lease" if figures.lease_ms is None else f"the lease ({lasting(figures.lease_ms)})"
    longest = lasting(max(silences_ms))
    return LockFinding(
        "lease-shorter-than-pauses",
        "warning",
        f"The lease is shorter than observed pauses: {counted(len(silences_ms), 'holder')} lost it "
        f"by silence.",
        f"{len(silences_ms)} of {counted(figures.grants, 'grant')} ended because the holder sent "
        f"nothing for longer than {lease}; the longest silence was {longest}.",
        "If these programs had died, nothing is wrong. If they were only paused (garbage "
        "collection, a busy or sleeping machine, a slow network), make the session timeout longer "
        f"than their pauses, above {longest}; `coordinator why-lost` names each of them.",
    )


def _shorter_than_holds(figures: Figures) -> LockFinding | None:
    holds, lease_ms = figures.holds, figures.lease_ms
    if holds is None or lease_ms is None or lease_ms >= holds.p99_ms:
        return None
    return LockFinding(
        "lease-shorter-than-holds",
        "note",
        "The lease is shorter than the 99th percentile of holds.",
        f"The shortest lease of the present contenders is {lasting(lease_ms)}; holds took {holds}.",
        "That is normal while heartbeats are sent during the work, as they are in the Python "
        "client and in `coordinator lock`. Work that stops them (a blocked event loop, a paused "
        "process) for longer than the lease loses the lock.",
    )


def _put_out(figures: Figures) -> LockFinding | None:
    forced = figures.ends.get("forced", 0) + figures.ends.get("deleted", 0)
    if not forced:
        return None
    return LockFinding(
        "forced-out",
        "warning",
        "People released it by force.",
        f"{forced} of {counted(figures.grants, 'grant')} ended by force "
        f"({figures.ends.get('deleted', 0)} of them by deleting a znode).",
        "`coordinator grants --how forced` says who did it and why. A maximum hold (max_hold) ends "
        "a hold that hangs, without people.",
    )


def _bounds_reached(figures: Figures) -> LockFinding | None:
    reached = figures.ends.get("max_hold", 0)
    if not reached:
        return None
    return LockFinding(
        "bounds-reached",
        "warning",
        "Holders reached their maximum hold.",
        f"{reached} of {counted(figures.grants, 'grant')} ended by max_hold.",
        "Either the work hangs, or the maximum is shorter than the work takes.",
    )


def _never_contended(figures: Figures) -> LockFinding | None:
    if figures.grants < UNCONTENDED_GRANTS_MIN or figures.at_once < figures.grants:
        return None
    if figures.queue_length or figures.tries or figures.left:
        return None
    return LockFinding(
        "never-contended",
        "note",
        "Never contended.",
        f"Each of the {figures.grants} grants in the history was given at once, and no request is "
        "known to have been refused.",
        "If that is also true under full load, the lock costs a round trip and prevents what never "
        "happens; ask `coordinator advise` whether it is needed.",
    )


def _nothing(figures: Figures) -> LockFinding:
    if not figures.grants:
        return LockFinding(
            "unknown", "note", "Nothing is known of it.", "The history has no grant of this lock."
        )
    return LockFinding(
        "healthy",
        "note",
        "Nothing is wrong with it.",
        f"{figures.at_once} of {counted(figures.grants, 'grant')} "
        f"{'was' if figures.at_once == 1 else 'were'} given at once; waits took {figures.waits}; "
        f"holds took {figures.holds or 'no time yet'}.",
    )
