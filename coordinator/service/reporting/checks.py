"""The checks of ``coordinator doctor``: what members measured, in sentences with what to do. Pure.

Each check says what it looked at also when nothing is wrong, so that an operator sees what was
examined. What ``cluster_health`` says of the cluster is not said here again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.model.diagnosis import CheckResult
from coordinator.wording import lasting

CLOCKS_MS_MAX = 1_000
"""Clocks that differ by more make times in lists, certificates and tokens doubtful."""
SYNC_MS_MAX = 10.0
FILES_MIN = 4_096
FULL_PERCENT = 80
DAY_MS = 86_400_000
EXPIRES_DAYS = 30


@dataclass(frozen=True, slots=True)
class Examined:
    """What one member found when it examined itself and its connections.

    ``round_trips_ms`` has the best of a few for each other member, None for one that did not
    answer; ``used`` has what is used of what there may be; ``expires_ms`` when a certificate
    expires, by whom it is shown to.
    """

    member_id: str
    wall_ms: int
    version: str
    is_compiled: bool
    round_trips_ms: dict[str, int | None]
    sync_ms: float | None = None
    files: int = 0
    files_max: int | None = None
    expires_ms: dict[str, int] = field(default_factory=dict)
    used: dict[str, tuple[int, int]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """A look at all members: ``clocks_ms`` is by how much the clock of each is ahead of that of the
    member that asked, with how much that may be wrong."""

    members: tuple[Examined, ...]
    clocks_ms: dict[str, tuple[int, int]]
    round_trip_ms_max: int


def checks_of(look: Look) -> tuple[CheckResult, ...]:
    """Return what is found, check by check; those who did not answer are not in it."""
    return tuple(
        check
        for each in (_clocks, _disks, _network, _files, _releases, _settings, _certificates, _room)
        for check in each(look)
    )


def _clocks(look: Look) -> Iterator[CheckResult]:
    if len(look.clocks_ms) < 2:
        return
    low = min(look.clocks_ms, key=lambda each: look.clocks_ms[each][0])
    high = max(look.clocks_ms, key=lambda each: look.clocks_ms[each][0])
    apart = look.clocks_ms[high][0] - look.clocks_ms[low][0]
    doubt = max(look.clocks_ms[low][1], look.clocks_ms[high][1])
    if apart - doubt <= CLOCKS_MS_MAX:
        yield CheckResult("clocks", "good", f"The members' clocks differ by {_ms(apart)} at most.")
        return
    yield CheckResult(
        "clocks",
        "warn",
        f"The clock of member {high} is {lasting(apart)} ahead of that of member {low}.",
        "Set both by NTP or PTP. Locks do not depend on it, but times in lists and in the audit"
        " log, certificates and tokens do.",
    )


def _disks(look: Look) -> Iterator[CheckResult]:
    times = {each.member_id: each.sync_ms for each in look.members if each.sync_ms is not None}
    slow = {name: took for name, took in times.items() if took > SYNC_MS_MAX}
    for name, took in slow.items():
        yield CheckResult(
            "disks",
            "warn",
            f"One sync of the disk of member {name} takes {took:.1f} ms.",
            "Every write waits for a quorum of disks: look at what else uses that disk, or give"
            " the member a faster one.",
        )
    if times and not slow:
        longest = max(times.values())
        yield CheckResult("disks", "good", f"One sync of a disk takes {longest:.1f} ms.")


def _network(look: Look) -> Iterator[CheckResult]:
    longest: int | None = None
    is_well = True
    for each in look.members:
        for other, took in each.round_trips_ms.items():
            if took is None:
                is_well = False
                yield CheckResult(
                    "network",
                    "warn",
                    f"Member {each.member_id} had no answer from member {other}.",
                    "Look at the network between them, and at the log of both.",
                )
                continue
            longest = took if longest is None else max(longest, took)
            if took > look.round_trip_ms_max:
                is_well = False
                yield CheckResult(
                    "network",
                    "warn",
                    f"A round trip from member {each.member_id} to member {other} takes {took} ms.",
                    f"Above {look.round_trip_ms_max} ms, a tenth of raft.election_timeout_ms_min,"
                    " leaders change without need: raise that and election_timeout_ms_max on all"
                    " members, or look at what delays the network or the machines.",
                )
    if is_well and longest is not None:
        yield CheckResult("network", "good", f"A round trip between members takes {_ms(longest)}.")


def _files(look: Look) -> Iterator[CheckResult]:
    is_well = True
    for each in look.members:
        limit = each.files_max
        if limit is None:
            continue
        if each.files * 100 >= limit * FULL_PERCENT:
            text = f"Member {each.member_id} has {each.files} of {limit} files open."
        elif limit < FILES_MIN:
            text = f"Member {each.member_id} may open {limit} files only."
        else:
            continue
        is_well = False
        yield CheckResult(
            "files",
            "warn",
            text,
            "Each connection of a client takes one: raise the limit (LimitNOFILE of its unit,"
            " ulimit -n) and start it again.",
        )
    if is_well:
        limits = [each.files_max for each in look.members if each.files_max is not None]
        may = f"may open {min(limits)}" if limits else "may open as many files as there are"
        most = max(each.files for each in look.members)
        yield CheckResult("files", "good", f"A member has up to {most} files open, and {may}.")


def _releases(look: Look) -> Iterator[CheckResult]:
    by_release = _members_by({each.member_id: each.version for each in look.members})
    if len(by_release) > 1:
        yield CheckResult(
            "releases",
            "warn",
            f"Members run different releases: {_named(by_release)}.",
            "Restart those with the older one, one after the other, with the newer one.",
        )
        return
    builds = _members_by(
        {each.member_id: "compiled" if each.is_compiled else "pure" for each in look.members}
    )
    release = next(iter(by_release))
    if len(builds) > 1:
        yield CheckResult(
            "releases",
            "note",
            f"All members run release {release}, but not the same build: {_named(builds)}.",
            "They agree on everything; a compiled member is faster.",
        )
    else:
        build = next(iter(builds))
        yield CheckResult("releases", "good", f"Release {release} runs everywhere, {build}.")


def _settings(look: Look) -> Iterator[CheckResult]:
    keys = sorted({key for each in look.members for key in each.settings})
    is_well = True
    for key in keys:
        found = _members_by(
            {each.member_id: each.settings[key] for each in look.members if key in each.settings}
        )
        if len(found) > 1:
            is_well = False
            yield CheckResult(
                "settings",
                "warn",
                f"Members differ in {key}: {_named(found)}.",
                "Make it equal in their files, and restart them one after the other.",
            )
    if is_well and len(look.members) > 1:
        yield CheckResult("settings", "good", f"Members agree in {len(keys)} settings.")


def _certificates(look: Look) -> Iterator[CheckResult]:
    first: int | None = None
    is_well = True
    for each in look.members:
        for whom, expires_ms in each.expires_ms.items():
            days = (expires_ms - each.wall_ms) // DAY_MS
            first = days if first is None else min(first, days)
            if days >= EXPIRES_DAYS:
                continue
            is_well = False
            when = f"expires in {days} days" if days >= 0 else "has expired"
            yield CheckResult(
                "certificates",
                "warn",
                f"The certificate that member {each.member_id} shows to {whom} {when}.",
                "Replace its file (coordinator certs --renew, or your CA); it is read again at"
                " once.",
            )
    if is_well and first is not None:
        yield CheckResult("certificates", "good", f"No certificate expires within {first} days.")


def _room(look: Look) -> Iterator[CheckResult]:
    most: Mapping[str, tuple[int, int]] = {
        name: max(each.used[name] for each in look.members if name in each.used)
        for name in sorted({name for each in look.members for name in each.used})
    }
    full = {name: both for name, both in most.items() if both[0] * 100 >= both[1] * FULL_PERCENT}
    for name, (used, limit) in full.items():
        yield CheckResult(
            "limits",
            "warn",
            f"{used:,} of {limit:,} are used of {name}, {used * 100 // limit} %.",
            "Delete what is not needed, end sessions (coordinator sessions close), or raise it"
            f" (coordinator limits set {name}=NUMBER).",
        )
    if most and not full:
        name = max(most, key=lambda each: most[each][0] / most[each][1])
        used, limit = most[name]
        share = used * 100 // limit
        yield CheckResult("limits", "good", f"The fullest limit is {name}, with {share} % used.")


def _members_by(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return which members have each value, in the order of the members."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for member_id, value in values.items():
        found[value].append(member_id)
    return found


def _named(members_by: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{value or 'nothing'} on {', '.join(members)}" for value, members in members_by.items()
    )


def _ms(span: int) -> str:
    return f"{span} ms" if span else "less than 1 ms"
