"""Route x verb x role, through every door: who may ask what once access rights are on.

One row for each route, generated against the routes themselves: a route without a row fails. Each
is asked by a stranger, by an identity without a role, by one with every verb but the right one, by
one with every verb elsewhere, by one with the right alone, and, of what belongs to somebody, by
another with the same rights.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coordinator.wire.stream import frames
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import Speaker, speaking
from tests.wire.stream.test_both_doors import MSGPACK, ROWS, Row, _filled, _raw

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
    "status": _ALL,
    "hand_over": Right("admin", "@members"),
    "list_deadlocks": _ALL,
    "list_members": _ALL,
    "health_live": _OPEN,
    "health_live_head": _OPEN,
    "health_ready": _OPEN,
    "health_ready_head": _OPEN,
    "metrics": Right("read", "@metrics"),
    "openapi": _ALL,
    "console": _OPEN,
    "console_head": _OPEN,
    "console_file": _OPEN,
    "console_file_head": _OPEN,
    "learn": _OPEN,
    "learn_head": _OPEN,
    "learn_file": _OPEN,
    "learn_file_head": _OPEN,
}


class Cluster:
    """One member with access rights on, and a way to ask it as anybody through each door."""

    def __init__(self, api: Api, speaker: Speaker, root: str) -> None:
        self.api, self.speaker, self.root = api, speaker, root
        self._tokens: dict[tuple[tuple[str, tuple[str, ...]], ...], str] = {}
        self._count = 0

    async def admin(self, method: str, path: str, body: Any = None) -> Any:
        reply = await self.api.call(
            method, path, body, headers={"Authorization": f"Bearer {self.root}"}
        )
        assert reply.status < 300 or reply.status == 409, reply
        return reply.body

    async def identity(self, *rules: tuple[str, tuple[str, ...]], is_new: bool = False) -> str:
        """Return a token of an identity with these rules alone."""
        token = None if is_new else self._tokens.get(rules)
        if token is None:
            self._count += 1
            name = f"who{self._count}"
            stated = [{"prefix": prefix, "verbs": list(verbs)} for prefix, verbs in rules]
            await self.admin("PUT", f"/v1/access/roles/{name}", {"rules": stated})
            await self.admin("PUT", f"/v1/access/identities/{name}", {"roles": [name]})
            added = await self.admin("POST", f"/v1/access/identities/{name}/tokens", {})
            self._tokens[rules] = token = added["token"]
        return token

    async def scene(self, owner: str) -> dict[str, str]:
        """Make what the rows speak of; return what stands for what in them."""
        await self.admin("POST", "/v1/tree/a", {"data": "one"})
        reply = await self.api.post("/v1/sessions", {"timeout_ms": 60_000}, **_shown(owner))
        if reply.status >= 300:
            return {"{session}": "none", "{grant}": "1-1", "{elected}": "1-1"}
        session_id = reply.body["session_id"]
        admins = (await self.admin("POST", "/v1/sessions", {}))["session_id"]
        body = {"session_id": session_id, "timeout_ms": 0}
        bounded = {**body, "max_hold_ms": 600_000}
        held = await self.api.post("/v1/locks/held", bounded, **_shown(owner))
        if held.status >= 300:
            held = await self.api.post(
                "/v1/locks/held", {**bounded, "session_id": admins}, **_shown(self.root)
            )
        elected = await self.api.post("/v1/elections/e", body, **_shown(owner))
        sized = {"session_id": admins, "timeout_ms": 0, "kind": "slot", "size": 2}
        await self.admin("POST", "/v1/locks/sized", sized)
        await self.admin("PUT", "/v1/access/roles/spare", {"rules": []})
        await self.admin("PUT", "/v1/access/identities/ann", {})
        spare = {"token_id": "spare000", "digest_base64": "/" * 42 + "8="}
        await self.admin("POST", "/v1/access/identities/ann/tokens", spare)
        grant = held.body.get("grant", {}).get("grant_id", "1-1")
        elected_id = elected.body.get("grant", {}).get("grant_id", "1-1")
        return {"{session}": session_id, "{grant}": grant, "{elected}": elected_id}

    async def clear(self) -> None:
        """End all sessions, and with them all that is held."""
        for each in (await self.admin("GET", "/v1/sessions"))["sessions"]:
            await self.admin("DELETE", f"/v1/sessions/{each['session_id']}")

    async def by_http(self, row: Row, token: str | None, names: dict[str, str]) -> int:
        from yarl import URL

        raw = _raw(_filled(row.body, names))
        headers = {
            "Accept": MSGPACK,
            "Content-Type": MSGPACK,
            "Coordinator-Test": "1",
            **_shown(token),
        }
        headers.update({name.title(): value for name, value in row.headers.items()})
        if raw is None:
            del headers["Content-Type"]
        url = URL(self.api.server.url + _filled(row.target, names), encoded=True)
        given: dict[str, Any] = {"headers": headers, "data": raw}
        given["skip_auto_headers"] = ["Content-Type"] if raw is None else []
        async with self.api.session.request(row.method, url, **given) as response:
            assert (response.status == 401) == ("WWW-Authenticate" in response.headers)
            return response.status

    async def by_stream(self, row: Row, token: str | None, names: dict[str, str]) -> int:
        shown = frames.Credential("" if token is None else f"Bearer {token}")
        request = self.speaker.request(
            row.method, _filled(row.target, names), _raw(_filled(row.body, names)), **row.headers
        )
        self.speaker.send(shown, request)
        while True:
            frame = await self.speaker.next()
            if isinstance(frame, frames.AnswerFrame | frames.Head) and frame.id == request.id:
                if isinstance(frame, frames.Head):
                    self.speaker.send(frames.Cancel(frame.id))
                return frame.status


def _shown(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def guarded(**options: Any) -> AsyncIterator[Cluster]:
    """Run a member with access rights on; ``options`` are those of ``serving``."""
    async with serving(**options) as api, speaking(api.server.port) as speaker:
        root = (await api.post("/v1/access/init", {"identity": "root"})).body["token"]
        yield Cluster(api, speaker, root)


def row_of(operation_id: str) -> Row:
    right, row = RIGHTS[operation_id], ROWS[operation_id]
    target = row.target if right.target is None else right.target
    return replace(row, target=target, body=row.body if right.body is None else right.body)


async def test_every_route_has_a_right() -> None:
    """A new route says who may ask it, or fails here."""
    async with serving() as api:
        known = {route.operation_id: route for route in api.server._full._what.routes}

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
