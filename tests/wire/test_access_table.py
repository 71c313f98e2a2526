"""Route x verb x role, through every door: who may ask what once access rights are on.

One row for each route, generated against the routes themselves: a route without a row fails. Each
is asked by a stranger, by an identity without a role, by one with every verb but the right one, by
one with every verb elsewhere, by one with the right alone, and, of what belongs to somebody, by
another with the same rights.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.wire.guarded import Cluster, guarded
from tests.wire.serving import serving
from tests.wire.stream.test_both_doors import ROWS, Row

VERBS = ("read", "write", "lock", "watch")

Needs = tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Right:
    """What a route needs: a verb at a resource; of what belongs to somebody, to be that one.

    ``also`` are verbs of which one is as good. ``is_for_all``: any identity may; ``is_open``:
    anybody. ``target`` and ``body`` are another request than that of ``ROWS``."""

    verb: str = ""
    resource: str = ""
    is_own: bool = False
    is_for_all: bool = False
    is_open: bool = False
    also: tuple[str, ...] = ()
    needs_rule: bool = False
    target: str | None = None
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)


_ALL, _OPEN = Right(is_for_all=True), Right(is_open=True)

_OWN = Right(is_own=True, needs_rule=True)

_SEES = {"also": ("lock", "read")}

RIGHTS: dict[str, Right] = {
    "read_root": Right("read", "/"),
    "read_znode": Right("read", "/a"),
    "head_znode": Right("read", "/a"),
    "create_znode": Right("write", "/a"),
    "set_data": Right("write", "/a", target="/v1/tree/a", body={"data": b"two"}),
    "delete_znode": Right("write", "/a"),
    "multi": Right("read", "/a"),
    "watch": Right("watch", "/a"),
    "watch_many": Right("watch", "/a"),
    "open_session": Right(needs_rule=True),
    "list_sessions": _ALL,
    "get_session": _OWN,
    "close_session": _OWN,
    "heartbeat": _OWN,
    "heartbeats": _OWN,
    "list_locks": _ALL,
    "acquire_locks": Right("lock", "/locks"),
    "get_lock": Right("lock", "/locks/held", **_SEES),  # type: ignore[arg-type]
    "acquire_lock": Right("lock", "/locks/free"),
    "release_lock": Right("lock", "/locks/held", is_own=True),
    "abandon_lock_attempt": _ALL,
    "downgrade_lock": Right("lock", "/locks/held", is_own=True),
    "note_lock": Right("lock", "/locks/held", is_own=True),
    "extend_lock": Right(
        "lock", "/locks/held", is_own=True, target="/v1/locks/held/grants/{grant}/extend"
    ),
    "resize_semaphore": Right("lock", "/locks/sized"),
    "revoke_lock": Right("admin", "/locks/held"),
    "list_grants": Right("read", "/locks/held", **_SEES),  # type: ignore[arg-type]
    "get_grant": Right("read", "/locks/held", **_SEES),  # type: ignore[arg-type]
    "explain_lock": Right("lock", "/locks/held", **_SEES),  # type: ignore[arg-type]
    "diagnose": _ALL,
    "get_election": Right("read", "/elections/e", **_SEES),  # type: ignore[arg-type]
    "campaign": Right("lock", "/elections/e"),
    "proclaim": Right(
        "lock", "/elections/e", is_own=True, target="/v1/elections/e/grants/{elected}"
    ),
    "resign": Right("lock", "/elections/e"),
    "abandon_campaign": _ALL,
    "get_limits": Right("read", "@limits"),
    "set_limits": Right("admin", "@limits"),
    "get_access": _ALL,
    "set_access": Right("admin", "@access", body={"is_on": True}),
    "init_access": Right("admin", "@access"),
    "get_caller": _ALL,
    "explain_access": Right("read", "@access"),
    "list_roles": Right("read", "@access"),
    "put_role": Right("admin", "@access"),
    "drop_role": Right("admin", "@access"),
    "list_identities": Right("read", "@access"),
    "put_identity": Right("admin", "@access"),
    "list_quotas": Right("read", "@access"),
    "get_quota": Right("read", "@access"),
    "set_quota": Right("admin", "@access"),
    "drop_identity": Right("admin", "@access"),
    "add_token": Right("admin", "@access"),
    "drop_token": Right("admin", "@access"),
    "backup": Right("admin", "@members"),
    "upgrade_status": Right("admin", "@members"),
    "finish_upgrade": Right("admin", "@members"),
    "status": _ALL,
    "hand_over": Right("admin", "@members"),
    "set_log_level": Right("admin", "@members"),
    "list_deadlocks": _ALL,
    "list_members": _ALL,
    "health_live": _OPEN,
    "health_live_head": _OPEN,
    "health_ready": _OPEN,
    "health_ready_head": _OPEN,
    "metrics": Right("read", "@metrics"),
    "openapi": _ALL,
    "root": _OPEN,
    "root_head": _OPEN,
    "console": _OPEN,
    "console_head": _OPEN,
    "console_file": _OPEN,
    "console_file_head": _OPEN,
    "learn": _OPEN,
    "learn_head": _OPEN,
    "learn_file": _OPEN,
    "learn_file_head": _OPEN,
}


def row_of(operation_id: str) -> Row:
    right, row = RIGHTS[operation_id], ROWS[operation_id]
    target = row.target if right.target is None else right.target
    return replace(row, target=target, body=row.body if right.body is None else right.body)


async def test_every_route_has_a_right() -> None:
    """A new route says who may ask it, or fails here."""
    async with serving() as api:
        known = {route.operation_id: route for route in api.server._what.routes}

    assert set(RIGHTS) == set(known)
    assert {name for name, each in RIGHTS.items() if each.is_open} == {
        name for name, each in known.items() if each.is_open
    }


async def _refused(cluster: Cluster, right: Right) -> dict[str, str | None]:
    """Return callers who may not, by what they are."""
    who: dict[str, str | None] = {}
    if not right.is_open:
        who["a stranger"] = None
        who["a wrong token"] = cluster.root[:-4] + "AAAA"
        who["no token"] = "nonsense"
    if right.verb or right.needs_rule:
        who["no role"] = await cluster.identity()
    if right.verb:
        sufficient = {right.verb, *right.also, "admin"}
        others = tuple([each for each in VERBS if each not in sufficient])
        who["other verbs"] = await cluster.identity((right.resource, others))
        everything = (*VERBS, "admin")
        elsewhere = "@sessions" if right.resource.startswith("@") else "/elsewhere"
        beside = right.resource.rstrip("/") + "x" if right.resource != "/" else "/elsewhere"
        who["elsewhere"] = await cluster.identity((elsewhere, everything), (beside, everything))
    return who


async def _owner(cluster: Cluster, right: Right) -> str:
    if right.verb:
        verbs = ("admin",) if right.verb == "admin" else (right.verb,)
        return await cluster.identity((right.resource, verbs))
    if right.needs_rule:
        return await cluster.identity(("/some", ("read",)))
    return await cluster.identity()


@pytest.mark.parametrize("operation_id", list(RIGHTS))
async def test_who_may_not_is_refused_and_who_may_is_not(operation_id: str) -> None:
    """401 without a credential that is good, 403 without the right; through both doors."""
    right, row = RIGHTS[operation_id], row_of(operation_id)
    async with guarded() as cluster:
        owner = await _owner(cluster, right)
        refused = await _refused(cluster, right)
        names = await cluster.scene(owner)
        seen = {
            (who, door.__name__): await door(row, token, names)
            for who, token in refused.items()
            for door in (cluster.by_http, cluster.by_stream)
        }
        if right.is_own:
            rules = ((right.resource or "/some", (right.verb or "read",)),)
            another = await cluster.identity(*rules, is_new=True)
            seen["another", "by_http"] = await cluster.by_http(row, another, names)
            seen["another", "by_stream"] = await cluster.by_stream(row, another, names)
        allowed = []
        for door in (cluster.by_http, cluster.by_stream):
            await cluster.clear()
            allowed.append(await door(row, owner, await cluster.scene(owner)))

    is_credential = {"a stranger", "a wrong token", "no token"}
    assert seen == {(who, door): 401 if who in is_credential else 403 for who, door in seen}
    assert not {401, 403} & set(allowed), allowed
