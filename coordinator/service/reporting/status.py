"""The status of a member: fields, and one sentence in words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from coordinator.model.backup import ScheduledBackups
from coordinator.model.status import MemberInfo, Status
from coordinator.node.config import Config, MemberAddress
from coordinator.raft.engine import EngineStatus, Role
from coordinator.state.machine import StateMachine


def status_of(
    config: Config,
    engine: EngineStatus,
    machine: StateMachine,
    *,
    cluster_id: str,
    wrong: str,
    limits_differ: str,
    reserve: str,
    warnings: tuple[str, ...],
    off: tuple[str, ...],
    backups: ScheduledBackups | None = None,
) -> Status:
    """Return what a member says of itself; ``wrong`` is why it is not ready, "" when it is."""
    members = members_of(config.cluster.members, engine)
    return Status(
        member_id=engine.member_id,
        cluster=config.cluster.name,
        role=engine.role.value,
        leader_id=engine.leader_id,
        term=engine.term,
        commit_index=engine.commit_index,
        applied_index=engine.applied_index,
        zxid=machine.zxid,
        is_ready=not wrong,
        summary=in_words(members, engine, wrong),
        version=product_version(),
        sessions=machine.session_count,
        znodes=machine.znode_count,
        members=members,
        cluster_id=cluster_id,
        limits_differ=limits_differ,
        reserve=reserve,
        warnings=warnings,
        off=off,
        backups=backups,
        access="on" if machine.access.is_on else "off",
        # The clients of a story have no token.
        learn_url="" if machine.access.is_on else config.http.learn_url or "",
    )


def members_of(addresses: Sequence[MemberAddress], engine: EngineStatus) -> tuple[MemberInfo, ...]:
    """Return every configured member; a cluster without a list of members is this one alone."""
    url_of = {each.member_id: each.client_url for each in addresses}
    url_of.setdefault(engine.member_id, "")
    return tuple(
        MemberInfo(
            member_id=member_id,
            client_url=url,
            is_reachable=member_id == engine.member_id or engine.is_reachable.get(member_id, False),
            is_self=member_id == engine.member_id,
            is_leader=member_id == engine.leader_id,
            refusal=engine.refused.get(member_id, ""),
        )
        for member_id, url in url_of.items()
    )


def what_is_wrong(engine: EngineStatus, *, is_stopping: bool, failure: str | None) -> str:
    """Return why this member should not be sent requests; "" when it can take them."""
    name = f"member {engine.member_id}"
    if failure is not None:
        return f"{name} has failed and stops: {failure}"
    if is_stopping:
        return f"{name} is stopping"
    if engine.leader_id is None and engine.obstacle:
        return f"{name} knows no leader: {engine.obstacle}{_warnings(engine)}"
    if engine.leader_id is None:
        return f"{name} knows no leader: {_quorum(engine)}{_warnings(engine)}"
    if not engine.is_ready and engine.trouble:
        return f"{name} cannot keep up: {engine.trouble}"
    if not engine.is_ready:
        behind = max(0, engine.commit_index - engine.applied_index)
        return f"{name} is catching up: {behind} committed entries are still to be applied"
    return ""


def in_words(members: Sequence[MemberInfo], engine: EngineStatus, wrong: str) -> str:
    """Return the summary: what is wrong, or whom this member follows and who is missing. Whether
    all is well is not known by one member alone; see ``cluster_health``."""
    if wrong:
        return wrong + "."
    role = "leads" if engine.role is Role.LEADER else f"follows member {engine.leader_id}"
    lead = f"member {engine.member_id} {role} in term {engine.term}"
    missing = [each.member_id for each in members if not each.is_reachable]
    trouble = "; ".join(each for each in (engine.trouble, engine.obstacle) if each)
    if trouble:
        lead += f", but {trouble}"
    if not missing and trouble:
        return f"{lead}; every member is reachable{_warnings(engine)}."
    if not missing:
        return f"{lead}, and every member is reachable{_warnings(engine)}."
    more = (len(members) - 1) // 2 - len(missing)
    spare = f"{more} more may fail" if more > 0 else "no other may fail"
    return f"{lead}; not reachable: {', '.join(missing)}; {spare}{_warnings(engine)}."


def _warnings(engine: EngineStatus) -> str:
    """Return the first refusal and the first alarm, and how many more there are; "" without."""
    text = ""
    for what, found in (("refused", engine.refused), ("ALARM", engine.alarms)):
        if found:
            first, *more = found.values()
            text += f"; {what}: {first}" + (f" (and {len(more)} more)" if more else "")
    return text


def _quorum(engine: EngineStatus) -> str:
    total = len(engine.is_reachable) + 1
    reachable = sum(engine.is_reachable.values()) + 1
    needed = total // 2 + 1
    if reachable < needed:
        return f"it reaches {reachable} of {total} members, itself included, and needs {needed}"
    return f"it reaches {reachable} of {total} members; an election is under way"


@cache
def product_version() -> str:
    """Return the version of the installed product, or that it is a checkout."""
    from importlib import metadata  # it takes long to load, and a start does not need it

    try:
        return metadata.version("raft-coordinator")
    except metadata.PackageNotFoundError:
        return "0+checkout"
