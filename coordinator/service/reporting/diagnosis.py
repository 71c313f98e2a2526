"""The diagnosis of a lock's use from its history: figures in, findings in words out. Pure.

``coordinator diagnose``, the console and any caller of ``GET /v1/diagnosis`` show these sentences,
and judge nothing themselves. Times come from the history. They are of the wall clocks of the
members that proposed the changes: good enough for people, no measure of safety. The thresholds are
below; each finding carries the figures that it is drawn from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from coordinator.model.diagnosis import SEVERITIES, LockDiagnosis, LockFigures, LockFinding
from coordinator.model.views import Spread
from coordinator.wording import counted, lasting, spread

WAITING_TENTHS_MIN: Final = 20
"""So many tenths wait, on average over the time that it is held, for a lock that is a
bottleneck."""
WAIT_MS_MIN: Final = 50
"""Shorter waits do not matter (p95)."""
UNCONTENDED_GRANTS_MIN: Final = 5
"""Fewer grants say nothing about whether anybody contends."""


class Acquisition(NamedTuple):
    """One grant, as far as figures are drawn from it; ``ended_ms`` is None while it holds."""

    entered_ms: int
    granted_ms: int
    is_at_once: bool = False
    ended_ms: int | None = None
    how: str = ""
    silent_ms: int = 0


def figures_of(grants: Sequence[Acquisition], **now: Any) -> LockFigures:
    """Return the numbers of a lock from its ``grants``; ``now`` are those of this moment."""
    ended = [each for each in grants if each.ended_ms is not None]
    holds_ms = [_length_ms(each.granted_ms, each.ended_ms or 0) for each in ended]
    silences_ms = [each.silent_ms for each in ended if each.how == "expired"]
    begin_ms = min((each.granted_ms for each in grants), default=0)
    end_ms = max((each.ended_ms or each.granted_ms for each in grants), default=0)
    return LockFigures(
        grants=len(grants),
        at_once=sum(each.is_at_once for each in grants),
        waits=Spread.of(_length_ms(each.entered_ms, each.granted_ms) for each in grants),
        holds=Spread.of(holds_ms),
        ends=dict(sorted(Counter(each.how for each in ended).items())),
        silence_ms_max=max(silences_ms, default=None),
        span_ms=_length_ms(begin_ms, end_ms),
        held_ms=sum(holds_ms),
        waiting_tenths=_waiting_tenths(grants),
        **now,
    )


def _waiting_tenths(grants: Sequence[Acquisition]) -> int | None:
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
    return max(0, round(10 * waits_ms / max(1, holds_ms)))


def _length_ms(begin_ms: int, end_ms: int) -> int:
    """Return how long it took by wall clocks, which may disagree: not less than 0."""
    return max(0, end_ms - begin_ms)


def diagnosed(lock: str, figures: LockFigures, release_it: str = "") -> LockDiagnosis:
    """Return what the numbers say; ``release_it`` is how a hold by hand ends."""
    found = [_held_by_hand(figures, release_it), *(rule(figures) for rule in _RULES)]
    findings = [each for each in found if each is not None] or [_nothing(figures)]
    findings.sort(key=lambda each: SEVERITIES.index(each.severity))
    return LockDiagnosis(lock, tuple(findings), figures)


# --- the rules


def _held_by_hand(figures: LockFigures, release_it: str) -> LockFinding | None:
    if not figures.by_hand:
        return None
    overdue = " for longer than planned" if figures.is_overdue else ""
    return LockFinding(
        "held-by-hand",
        "problem" if figures.is_overdue else "note",
        f"It is held by hand{overdue}.",
        f"Nobody else is granted it: {figures.by_hand}.",
        release_it or "`coordinator unlock` ends it.",
    )


def _closed_after_loss(figures: LockFigures) -> LockFinding | None:
    if not figures.lock_delay_ms:
        return None
    return LockFinding(
        "closed-after-loss",
        "note",
        "It is closed after an unclean loss.",
        "A holder was lost without a release, and its writes may still arrive: for a lock-delay of "
        f"{lasting(figures.lock_delay_ms)} nobody else is granted it.",
    )


def _wait_dominates(figures: LockFigures) -> LockFinding | None:
    waits, tenths = figures.waits, figures.waiting_tenths
    if waits is None or waits.p95_ms < WAIT_MS_MIN:
        return None
    if tenths is None or tenths < WAITING_TENTHS_MIN:
        return None
    busy = ""
    if figures.span_ms:
        busy = f"; it was held for {min(100, 100 * figures.held_ms // figures.span_ms)} % of the "
        busy += f"{lasting(figures.span_ms)} that the history covers"
    return LockFinding(
        "wait-dominates",
        "problem",
        "Wait dominates: the lock is the bottleneck.",
        f"On average {tenths / 10} waited while it was held, not counting its longest hold. Waits "
        f"took {spread(waits)}, holds {spread(figures.holds)}{busy}.",
        "Hold it shorter, split it into several locks (one for each record or partition), or ask "
        "`coordinator advise` whether it is needed.",
    )


def _denied(figures: LockFigures) -> LockFinding | None:
    tries, left = figures.refused_tries, figures.left_waiting
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


def _shorter_than_pauses(figures: LockFigures) -> LockFinding | None:
    lost, silence_ms = figures.ends.get("expired", 0), figures.silence_ms_max
    if silence_ms is None:
        return None
    lease = "the lease" if figures.lease_ms is None else f"the lease ({lasting(figures.lease_ms)})"
    longest = lasting(silence_ms)
    return LockFinding(
        "lease-shorter-than-pauses",
        "warning",
        f"The lease is shorter than observed pauses: {counted(lost, 'holder')} lost it by silence.",
        f"{lost} of {counted(figures.grants, 'grant')} ended because the holder sent "
        f"nothing for longer than {lease}; the longest silence was {longest}.",
        "If these programs had died, nothing is wrong. If they were only paused (garbage "
        "collection, a busy or sleeping machine, a slow network), make the session timeout longer "
        f"than their pauses, above {longest}; `coordinator why-lost` names each of them.",
    )


def _shorter_than_holds(figures: LockFigures) -> LockFinding | None:
    holds, lease_ms = figures.holds, figures.lease_ms
    if holds is None or lease_ms is None or lease_ms >= holds.p99_ms:
        return None
    return LockFinding(
        "lease-shorter-than-holds",
        "note",
        "The lease is shorter than the 99th percentile of holds.",
        f"The shortest lease of the present contenders is {lasting(lease_ms)}; holds took "
        f"{spread(holds)}.",
        "That is normal while heartbeats are sent during the work, as they are in the Python "
        "client and in `coordinator lock`. Work that stops them (a blocked event loop, a paused "
        "process) for longer than the lease loses the lock.",
    )


def _put_out(figures: LockFigures) -> LockFinding | None:
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


def _bounds_reached(figures: LockFigures) -> LockFinding | None:
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


def _never_contended(figures: LockFigures) -> LockFinding | None:
    if figures.grants < UNCONTENDED_GRANTS_MIN or figures.at_once < figures.grants:
        return None
    if figures.queue_length or figures.refused_tries or figures.left_waiting:
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


def _nothing(figures: LockFigures) -> LockFinding:
    if not figures.grants:
        return LockFinding(
            "unknown", "note", "Nothing is known of it.", "The history has no grant of this lock."
        )
    return LockFinding(
        "healthy",
        "note",
        "Nothing is wrong with it.",
        f"{figures.at_once} of {counted(figures.grants, 'grant')} "
        f"{'was' if figures.at_once == 1 else 'were'} given at once; waits took "
        f"{spread(figures.waits)}; holds took {spread(figures.holds)}.",
    )


_RULES: Final = (
    _closed_after_loss, _wait_dominates, _denied, _shorter_than_pauses, _put_out,
    _bounds_reached, _shorter_than_holds, _never_contended,
)  # fmt: skip
