"""Explanations of locks by a member: why one is as it is, and what is wrong with them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from coordinator.model.contention import LockDelay
from coordinator.model.fields import Count, described, one_of
from coordinator.model.history import GrantRecord
from coordinator.model.members import ClusterHealth, Level
from coordinator.model.views import Contender, LockView, Spread

SEVERITIES = ("problem", "warning", "note")


class WaitLink(Struct, frozen=True):
    """A holder waits itself: ``waiter`` is in the queue of ``lock``, whose first holder is
    ``holder``."""

    waiter: Contender
    lock: str
    holder: Contender | None


class LockWhy(LockView, frozen=True, kw_only=True):
    """The reply of GET /v1/locks/{name}/why: the lock, and why it is so, in ``sentences``.

    Of those who hold and of those who wait the first twenty are shown. ``chain`` leads from a
    holder that waits itself to what it waits for, from the holder of that to the next, and so on.
    """

    sentences: tuple[str, ...]
    chain: tuple[WaitLink, ...] = ()
    last_grant: Annotated[
        GrantRecord | None, described("the grant that ended last, as far as the history reaches")
    ] = None


class LockFigures(Struct, frozen=True, kw_only=True):
    """One lock in numbers, from its latest thousand grants, by the wall clocks of the leaders.

    ``waiting_tenths``: how many waited for it while it was held, on average over that time and
    without its longest hold; None if fewer than two holds have ended.
    """

    grants: Count = 0
    at_once: Annotated[Count, described("grants given in the very command that asked")] = 0
    waits: Spread | None = None
    holds: Spread | None = None
    ends: Annotated[dict[str, Count], described("how many grants ended how")]
    silence_ms_max: Annotated[
        Count | None, described("the longest time for which a holder that expired was not heard")
    ] = None
    span_ms: Count = 0
    held_ms: Count = 0
    queue_length: Count = 0
    lease_ms: Annotated[
        Count | None, described("the shortest lease of those who hold or wait now")
    ] = None
    refused_tries: Annotated[
        Count, described("tries refused at once, as this member has seen since it started")
    ] = 0
    left_waiting: Annotated[
        Count, described("waiters that left without it, as this member has seen since it started")
    ] = 0
    waiting_tenths: Annotated[
        Count | None, described("how many waited on average while it was held, in tenths")
    ] = None
    by_hand: str | None = None
    is_overdue: Annotated[
        bool, described("whether it is held by hand for longer than was planned")
    ] = False
    lock_delay_ms: Annotated[LockDelay, described("not 0 while an unclean loss closes it")] = 0


class LockFinding(Struct, frozen=True):
    """One sentence about a lock, why it is said, and what helps, which may have several lines."""

    code: str
    severity: Annotated[str, one_of(*SEVERITIES)]
    text: str
    why: str
    advice: str = ""


class LockDiagnosis(Struct, frozen=True):
    """What is found of one lock, the worst first; nothing wrong is a finding too."""

    lock: str
    findings: tuple[LockFinding, ...]
    figures: LockFigures


class CheckResult(Struct, frozen=True):
    """What one check of the members found, in a sentence, and what to do, "" if nothing."""

    check: Annotated[
        str,
        one_of(
            "clocks", "disks", "network", "files", "releases", "settings", "certificates", "limits"
        ),
    ]
    level: Level
    text: str
    todo: str = ""


class Diagnosis(Struct, frozen=True):
    """The reply of GET /v1/diagnosis: how the cluster is, and what is found of its locks, by name.
    ``next`` is what to pass as ``after`` for the rest. ``checks`` are there if they were asked
    for."""

    cluster: ClusterHealth
    locks: tuple[LockDiagnosis, ...]
    next: str | None = None
    checks: tuple[CheckResult, ...] | None = None
