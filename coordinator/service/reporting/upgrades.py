"""The upgrade of the cluster, as one member shows it and finishes it.

1. A member says of itself which release it runs and which levels that release reads. Nothing is
   decided by it but whether the next level may be proposed.
2. The level is raised by people alone (``finish``): before that, each member can be started with
   the former release again; after it, none can.
3. It is raised only while every configured member answers and reads the next level. One that is
   started with an older release after that is refused by the others, and stops (``state.levels``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.errors import BadVersionError
from coordinator.model.access import MEMBERS, Caller, Verb
from coordinator.model.members import MemberReport
from coordinator.model.upgrade import UpgradeMember, UpgradeView
from coordinator.service.base.context import MemberContext
from coordinator.service.reporting.members import MemberReports
from coordinator.service.writes.proposals import Proposer, RequestContext
from coordinator.state.commands import SetLevel
from coordinator.state.outcomes import LevelSet

audit = logging.getLogger("coordinator.audit")


@dataclass(frozen=True, slots=True)
class LevelRaised:
    """The upgrade after a request to finish it."""

    view: UpgradeView
    zxid: int
    index: int


class Upgrades:
    """The upgrade, as one member sees it."""

    def __init__(self, context: MemberContext, proposer: Proposer, reports: MemberReports) -> None:
        self._replica = context.replica
        self._proposer = proposer
        self._reports = reports

    async def status(self, caller: Caller) -> UpgradeView:
        """Ask all members for their releases; say how far the upgrade is.

        Raises:
            NoAuthError: the caller does not administer the members.
        """
        self._replica.machine.access.check(caller, Verb.ADMIN, MEMBERS)
        reports = await self._reports.fresh()
        return upgrade_of(self._replica.machine.level, reports.members)

    async def finish(self, by: str, context: RequestContext) -> LevelRaised:
        """Raise the level of the cluster by one, if every member reads the next one.

        At the newest level that all members read it changes nothing.

        Raises:
            NoAuthError: the caller does not administer the members.
            BadVersionError: a member does not answer, or reads no further; nothing was changed.
        """
        view = await self.status(context.caller)
        machine = self._replica.machine
        if not view.can_finish:
            if view.todo:
                raise BadVersionError(f"the upgrade cannot be finished: {view.text} {view.todo}")
            return LevelRaised(view, machine.zxid, machine.applied_index)
        committed = await self._proposer.submit(SetLevel(view.level + 1, by), context)
        result = committed.result(LevelSet)
        audit.warning("level of the cluster raised to %d by %r", result.level, by)
        reports = await self._reports.fresh()
        view = upgrade_of(result.level, reports.members)
        return LevelRaised(view, committed.outcome.zxid, committed.index)


def upgrade_of(level: int, reports: Iterable[MemberReport]) -> UpgradeView:
    """Return how far the upgrade of a cluster at ``level`` is, by what its members say."""
    members = tuple([_member(each) for each in reports])
    silent = [each.member_id for each in members if each.silence]
    newest = {each.level_newest for each in members if not each.silence}
    behind = [each for each in members if not each.silence and each.level_newest <= level]
    releases = _releases(members)
    at = f"The cluster is at level {level}"
    if silent:
        text = f"{at}; {releases}; {_named(silent)} not answering."
        return UpgradeView(
            level, can_finish=False, members=members, text=text,
            todo=f"Wait until {_named(silent)} here again, then look again.",
        )  # fmt: skip
    if not behind:
        text = f"{at}, and all members read level {min(newest)}; {releases}."
        todo = (
            "Each member can still be started with its former release. To go on for good: "
            "coordinator upgrade finish"
        )
        return UpgradeView(level, can_finish=True, members=members, text=text, todo=todo)
    if len(newest) > 1:
        names = [each.member_id for each in behind]
        text = f"{at}; {releases}."
        todo = f"Start {_each(names)} with the new release, one after the other."
        return UpgradeView(level, can_finish=False, members=members, text=text, todo=todo)
    text = f"{at}, the newest that its members read; {releases}."
    return UpgradeView(level, can_finish=False, members=members, text=text)


def _member(report: MemberReport) -> UpgradeMember:
    facts = report.facts
    if facts is None:
        return UpgradeMember(report.member_id, silence=report.silence or "it does not answer")
    return UpgradeMember(
        report.member_id, facts.version, facts.level_oldest, facts.level_newest
    )


def _releases(members: tuple[UpgradeMember, ...]) -> str:
    """Say who runs what."""
    of: dict[str, list[str]] = {}
    for each in members:
        if not each.silence:
            of.setdefault(each.release, []).append(each.member_id)
    if len(of) == 1 and all(not each.silence for each in members):
        return f"all run release {next(iter(of))}"
    return "; ".join(f"release {release}: {_each(ids)}" for release, ids in of.items())


def _each(ids: list[str]) -> str:
    return f"member {ids[0]}" if len(ids) == 1 else f"members {', '.join(ids)}"


def _named(ids: list[str]) -> str:
    return f"{_each(ids)} {'is' if len(ids) == 1 else 'are'}"
