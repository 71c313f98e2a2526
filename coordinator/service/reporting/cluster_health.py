"""The health of the cluster: one judge of what members find, in sentences for all. Pure.

``coordinator status``, the console and any caller of ``GET /v1/members`` show these sentences, and
judge nothing themselves. Each member says what is wrong with itself, as far as it knows; the one
that is asked adds what only a look at all of them shows. What several find alike is said once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from coordinator.model.backup import newest_ms
from coordinator.model.members import ClusterHealth, HealthFinding, MemberFacts, MemberReport
from coordinator.model.sizes import in_bytes
from coordinator.model.status import Status
from coordinator.raft.engine import EngineStatus
from coordinator.wording import lasting

LAG_MAX = 1_000
"""So many entries behind the first of them is said of a member."""
DISK_FREE_MIN = 512 * 1024 * 1024
LEADERS_MS = 600_000
BACKUP_LATE = 2
"""A backup that is more than so many times as old as one may be is said of the cluster."""
LEADERS_MAX = 5
"""So many changes of the leader in ``LEADERS_MS`` are usual: a rolling restart."""
_RANK = ("bad", "warn", "note")


def of_member(
    facts: MemberFacts, status: Status, engine: EngineStatus
) -> tuple[HealthFinding, ...]:
    """Return what a member finds wrong with itself, from what else it says of itself."""
    return tuple(
        HealthFinding(level, sentence(text), todo)
        for level, text, todo in _of_member(facts, status, engine)
    )


def of_cluster(reports: Sequence[MemberReport], now_ms: int, difference: str) -> ClusterHealth:
    """Return how the cluster is.

    Args:
        reports: of every configured member; the one that judges has its facts in it.
        now_ms: wall time.
        difference: why the one that judges answers nothing from its state, "" if it does.
    """
    if difference:  # nothing is known of the others by one that has stopped
        found = [HealthFinding("bad", sentence(difference))]
    else:
        found = list(dict.fromkeys(_of_cluster(reports, now_ms)))
        found.sort(key=lambda each: _RANK.index(each.level))
    lead = _lead(reports)
    if not found:
        return ClusterHealth("good", f"All is well: {lead}.")
    if found[0].level == "note":
        return ClusterHealth("note", sentence(lead), tuple(found))
    more = len(found) - 1
    text = found[0].text
    if more:
        text += " There is one thing more." if more == 1 else f" There are {more} things more."
    return ClusterHealth(found[0].level, text, tuple(found))


def sentence(text: str) -> str:
    """Return ``text`` with a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


# --- one member


def _of_member(
    facts: MemberFacts, status: Status, engine: EngineStatus
) -> Iterator[tuple[str, str, str]]:
    name = f"member {facts.member_id}"
    if not facts.is_ready and facts.leader_id is not None:
        yield "warn", facts.summary, "Send requests to the others until it has caught up."
    if facts.is_disk_full:
        yield (
            "bad",
            f"the disk of {name} is full: it accepts no writes",
            "Free space on it; the member goes on by itself.",
        )
    elif facts.disk_free_bytes is not None and facts.disk_free_bytes < DISK_FREE_MIN:
        yield (
            "warn",
            f"{name} has {in_bytes(facts.disk_free_bytes)} of disk left",
            "Free space before it is full.",
        )
    if facts.is_disk_slow:
        yield (
            "warn",
            f"the disk of {name} is slow: it hands over what it leads",
            "Look at what else uses that disk.",
        )
    for text in engine.alarms.values():
        yield "bad", f"ALARM: {text}", "Stop the member that it names, and look at its log."
    for text in engine.refused.values():
        yield "warn", text, ""
    if engine.obstacle and facts.leader_id is not None:
        yield "warn", f"{name}: {engine.obstacle}", ""
    if status.reserve:
        yield "bad", status.reserve, ""
    if status.limits_differ:
        yield "warn", status.limits_differ, ""
    for text in status.warnings:
        yield "warn", text, ""
    for text in status.off:
        yield "note", text, ""


# --- all of them


def _of_cluster(reports: Sequence[MemberReport], now_ms: int) -> Iterator[HealthFinding]:
    yield from _leadership(reports)
    yield from _silent(reports)
    for report in reports:
        if report.facts is not None:
            yield from report.facts.findings
            yield from _beside_others(report.facts, reports)
    yield from _leaders(reports, now_ms)
    yield from _backups(reports, now_ms)


def _own(reports: Sequence[MemberReport]) -> MemberFacts:
    return next(each.facts for each in reports if each.is_self and each.facts is not None)


def _lead(reports: Sequence[MemberReport]) -> str:
    """Return who leads, how many answer, and how many may fail."""
    own, count = _own(reports), len(reports)
    spare = (count - 1) // 2
    may = f"{'one' if spare == 1 else spare} may fail" if spare else "there is no other"
    answers = "1 member answers" if count == 1 else f"{count} members answer"
    return f"member {own.leader_id} leads in term {own.term}, {answers}, and {may}"


def _leadership(reports: Sequence[MemberReport]) -> Iterator[HealthFinding]:
    own = _own(reports)
    if own.leader_id is not None:
        return
    quorum = len(reports) // 2 + 1
    here = sum(each.facts is not None for each in reports)
    todo = (
        "Wait for the election, some seconds. If it goes on, look at the logs of the members for"
        " the reason."
    )
    if here < quorum:
        todo = (
            f"Start members again until {quorum} of {len(reports)} run; their data stays where it"
            " is."
        )
    text = "No leader is known: nothing can be written, and no lock granted. "
    yield HealthFinding("bad", text + sentence(own.summary), todo)


def _silent(reports: Sequence[MemberReport]) -> Iterator[HealthFinding]:
    gone = [each for each in reports if each.facts is None]
    if not gone:
        return
    spare = (len(reports) - 1) // 2 - len(gone)
    may = f"{spare} more may fail" if spare > 0 else "no other may fail"
    if spare < 0:
        may = "there is no quorum"
    names, is_one = ", ".join(each.member_id for each in gone), len(gone) == 1
    yield HealthFinding(
        "warn" if spare > 0 else "bad",
        f"Member{'' if is_one else 's'} {names} {'does' if is_one else 'do'} not answer; {may}.",
        f"Look at {'its machine and its log' if is_one else 'their machines and logs'}, and start"
        f" {'it' if is_one else 'them'} again with the same data directory unless the reason says"
        f" otherwise. {' '.join(sentence(each.silence) for each in gone)}",
    )


def _beside_others(facts: MemberFacts, reports: Sequence[MemberReport]) -> Iterator[HealthFinding]:
    name = f"Member {facts.member_id}"
    there = [each.facts for each in reports if each.facts is not None]
    lag = max(each.applied_index for each in there) - facts.applied_index
    if lag > LAG_MAX and (facts.is_ready or facts.leader_id is None):
        yield HealthFinding(
            "warn",
            f"{name} is {lag} entries behind.",
            "Look at its disk and its network; it catches up by itself.",
        )
    for other in there:
        if other.member_id not in (facts.member_id, *facts.sees):
            yield HealthFinding(
                "warn",
                f"{name} does not reach member {other.member_id}.",
                "Look at the network between them, and at the log of both.",
            )


_CAUSES = {
    "pause": "that they did not run for a while",
    "disk": "that their disk was slow",
    "link": "that the connection ended",
    "silence": "that nothing was heard",
}


def _leaders(reports: Sequence[MemberReport], now_ms: int) -> Iterator[HealthFinding]:
    """Say it if leaders change often; a change that several noticed counts once."""
    terms = {
        each.term
        for report in reports if report.facts is not None
        for each in report.facts.elections
        if each.leader_id is not None and each.at_ms > now_ms - LEADERS_MS
    }  # fmt: skip
    if len(terms) > LEADERS_MAX:
        seen = Counter(
            each.cause
            for report in reports if report.facts is not None
            for each in report.facts.elections
            if each.cause and each.at_ms > now_ms - LEADERS_MS
        )  # fmt: skip
        causes = ", ".join(f"{count} times {_CAUSES[why]}" for why, count in seen.most_common())
        yield HealthFinding(
            "warn",
            f"The leader has changed {len(terms)} times in ten minutes"
            f"{causes and '; members saw '}{causes}.",
            "Look at the machines and the members' logs: a member that is not let run wants"
            " processor time (no tick), a slow disk another disk, and a link that ends or is silent"
            " a look at the network. election_timeout_ms_min and _max may be longer.",
        )


def _backups(reports: Sequence[MemberReport], now_ms: int) -> Iterator[HealthFinding]:
    """Say it if the newest backup that members make by themselves is too old, or why one failed."""
    facts = [each.facts for each in reports if each.facts is not None]
    known = [(each, each.backups) for each in facts if each.backups is not None]
    if not known:
        return
    every_ms = min(backups.every_ms for _, backups in known)
    last_ms = newest_ms((backups for _, backups in known), now_ms)
    age_ms = now_ms - (last_ms or min(each.started_ms for each, _ in known))
    if age_ms > BACKUP_LATE * every_ms:
        made = "The newest backup was made" if last_ms else "No backup was made since a start"
        yield HealthFinding(
            "warn",
            f"{made} {lasting(age_ms)} ago; one is due every {lasting(every_ms)}.",
            "Look at [backup] of the members, and at their logs (docs/backup.md).",
        )
    for each, backups in known:
        if backups.is_ahead(now_ms):
            ahead_ms = (backups.succeeded_ms or 0) - now_ms
            yield HealthFinding(
                "warn",
                f"Member {each.member_id} made its newest backup {lasting(ahead_ms)} from now, by"
                " its clock: it is not counted.",
                "Set the clocks of the members right; the next backup of that member counts.",
            )
        if (backups.failed_ms or 0) > last_ms:
            yield HealthFinding(
                "warn",
                f"Member {each.member_id} could not make a backup: {sentence(backups.failure)}",
                "It is tried again. If that fails as well, look at its log.",
            )
