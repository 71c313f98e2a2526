"""Names of which one begins with another: a right to one shows and reaches nothing of the others.

A tree, locks, elections, semaphores, holds by hand, identities and roles of ``team`` stand among
those whose names begin with its name, or are the beginning of it, in each order that bytes allow:
before ``/``, behind it, and escaped. Whatever is asked for ``team``, by itself or by an operator,
the others are not shown, counted or changed; what is its own is. Each route has a row here, or is
said to have no names: a new one fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from coordinator.state.machine import StateMachine
from tests.wire.guarded import Cluster, bearer, guarded
from tests.wire.stream.test_both_doors import ROWS

OWN = "team"
OTHERS = ("te", "team-foreign", "team.foreign", "team0foreign", "teamforeign", "team:foreign")
"""``-`` and ``.`` sort before ``/``, ``0`` right behind it; ``:`` is escaped in a lock's path."""
FOREIGN = ("foreign", '"te"', "/te/", '/te"')
"""What is in no answer about ``team``."""
VERBS = ("read", "write", "lock", "watch")
RULES = tuple(
    (path, VERBS)
    for path in ("/team", "/locks/team", "/locks/sized-team", "/elections/team",
                 "/manual-locks/hand-team", "/locks/hand-team", "/locks/pair-team")
)  # fmt: skip


def segment(name: str) -> str:
    return quote(name, safe="")


class Scene:
    """What there is of the team and of all others, and how to ask for it."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self.cluster, self.token = cluster, token
        self.names: dict[str, str] = {}

    @property
    def machine(self) -> StateMachine:
        return self.cluster.api.member._replica.machine

    async def make(self) -> None:
        for name in (*OTHERS, OWN):
            word = "mine" if name == OWN else "foreign"
            token = self.token if name == OWN else self.cluster.root
            made = [
                {"op": "create", "path": path, "data": f"{word} {path}", "parents": "persistent"}
                for path in (f"/{name}", f"/{name}/below")
            ]
            held = json.dumps({"by": word, "note": word, "since_ms": 1})
            by_hand = {**made[0], "path": f"/manual-locks/hand-{segment(name)}", "data": held}
            await self.cluster.admin("POST", "/v1/multi", {"operations": [*made, by_hand]})
            session = await self.ask(token, "POST", "/v1/sessions", {"label": word})
            session_id = session.body["session_id"]
            wanted = {"session_id": session_id, "timeout_ms": 0, "label": word}
            grants = {}
            for target, more in (
                (f"locks/{segment(name)}", {"max_hold_ms": 900_000}),
                (f"locks/sized-{segment(name)}", {"kind": "slot", "size": 2}),
                (f"elections/{segment(name)}", {"value": word}),
            ):
                granted = await self.ask(token, "POST", f"/v1/{target}", {**wanted, **more})
                assert granted.status == 200, granted.raw
                grants[target] = granted.body["grant"]["grant_id"]
            if name == OWN:
                self.names = {
                    "{session}": session_id, "{grant}": grants["locks/team"],
                    "{elected}": grants["elections/team"],
                }  # fmt: skip
            for path, body in (
                (f"roles/{OWN}{name[4:]}" if name != "te" else "roles/te", {"rules": []}),
                (f"identities/{name}", {"roles": []}),
                (f"identities/{name}/tokens", {}),
            ):
                if ":" not in name:
                    method = "POST" if path.endswith("tokens") else "PUT"
                    await self.cluster.admin(method, f"/v1/access/{path}", body)

    async def ask(self, token: str, method: str, path: str, body: Any = None) -> Any:
        return await self.cluster.api.call(method, path, body, headers=bearer(token))

    def filled(self, text: str, name: str) -> str:
        text = text.replace("{name}", name).replace("{segment}", segment(name))
        for key, value in self.names.items():
            text = text.replace(key, value)
        return text

    async def asked(self, row: Named, token: str, name: str = OWN) -> tuple[int, str]:
        """Return the status and all pages of what is answered to ``token``."""
        target, text, status = self.filled(row.target, name), "", 0
        body = None if row.body is None else json.loads(self.filled(json.dumps(row.body), name))
        while True:
            reply = await self.ask(token, row.method, target, body)
            text, status = text + reply.raw.decode(), reply.status
            following = None
            if row.is_paged:
                following = reply.body.get("next")
                shown = [each for each in reply.body.values() if isinstance(each, list)]
                assert following is None or all(shown), f"an empty page tells of others: {text}"
            if following is None:
                return status, text
            base = target.partition("&after=")[0]
            target = f"{base}&after={quote(str(following), safe='')}"

    async def streamed(self, row: Named, token: str) -> str:
        """Return what is streamed while others and the team change, until the team's last."""
        target = self.filled(row.target, OWN)
        body = None if row.body is None else json.loads(self.filled(json.dumps(row.body), OWN))
        api, heard = self.cluster.api, ""
        async with api.stream(row.method, target, body, **bearer(token)) as lines:
            heard += str(await lines.next())
            changed = [{"op": "set", "path": f"/{each}", "data": "foreign"} for each in OTHERS]
            made = [
                {"op": "create", "path": f"/{each}/new-{token[-4:]}", "data": "foreign"}
                for each in OTHERS
            ]
            done = await self.ask(
                self.cluster.root, "POST", "/v1/multi", {"operations": [*changed, *made]}
            )
            assert done.status == 200, done.raw
            for path in (f"/team/last-{token[-4:]}", "/team"):
                await self.cluster.admin("PUT", f"/v1/tree{path}?create", {"data": "mine"})
            while row.shows not in heard:
                line = await lines.next()
                assert line is not None, heard
                heard += json.dumps(line)
        return heard

    def of_others(self) -> list[Any]:
        """Return all that there is of others: znodes, contenders, sessions, rights."""
        machine, found, paths = self.machine, list[Any](), ["/"]
        while paths:
            path = paths.pop()
            for name in machine.children(path) or []:
                below = f"{path.rstrip('/')}/{name}"
                if name not in (OWN, *[f"{each}-{OWN}" for each in ("sized", "pair", "hand")]):
                    paths.append(below)
                    if path != "/" or name not in ("locks", "elections", "manual-locks"):
                        found.append((below, machine.get(below), machine.locks.record(below)))
        found += [each for each in machine.sessions() if each.label == "foreign"]
        found += [each for each in machine.access.identities() if each.name not in (OWN, "new")]
        found += [each for each in machine.access.roles() if each.name not in (OWN, "new")]
        return sorted(found, key=str)


class Named(NamedTuple):
    """One request about ``{name}``, and what of the team's own its answer shows."""

    operation_id: str
    method: str
    target: str
    body: Any = None
    shows: str = ""
    is_listed: bool = False
    """Whether it lists what the caller may see: an operator sees all."""
    is_paged: bool = False
    is_streamed: bool = False


def listed(operation_id: str, target: str, shows: str) -> Iterable[Named]:
    """Return a list as a whole, and in pages of one."""
    mark = "&" if "?" in target else "?"
    yield Named(operation_id, "GET", target, shows=shows, is_listed=True)
    yield Named(
        operation_id, "GET", f"{target}{mark}limit=1", shows=shows, is_listed=True, is_paged=True
    )


SUBTREE = "/v1/watch?path={path}&kind=subtree&from_zxid=0"
SEEN = '"/team/last'
READS: tuple[Named, ...] = (
    *listed("read_root", "/v1/tree?children", '"team"'),
    *listed("read_root", "/v1/tree?subtree", '"/team/below"'),
    *listed("read_znode", "/v1/tree/locks?children", '"team"'),
    *listed("read_znode", "/v1/tree/elections?children", '"team"'),
    *listed("read_znode", "/v1/tree/manual-locks?children", '"hand-team"'),
    *listed("read_znode", "/v1/tree/locks?subtree", "/locks/team/lock-"),
    *listed("list_sessions", "/v1/sessions", '"mine"'),
    *listed("list_locks", "/v1/locks?held_ms_min=0", '"team"'),
    *listed("list_grants", "/v1/grants", "/locks/team/lock-"),
    *listed("diagnose", "/v1/diagnosis", '"team"'),
    Named("read_root", "GET", "/v1/tree?children&stat", shows='"num_children"', is_listed=True),
    Named("read_znode", "GET", "/v1/tree/team", shows="mine /team"),
    Named("read_znode", "GET", "/v1/tree/team?children", shows='"below"'),
    Named("read_znode", "GET", "/v1/tree/team?subtree", shows="/team/below"),
    Named("read_znode", "GET", "/v1/tree/team?subtree&limit=1", shows="/team/below", is_paged=True),
    Named("head_znode", "HEAD", "/v1/tree/team"),
    Named("multi", "POST", "/v1/multi", {"operations": [{"op": "read", "path": "/team"}]}, "mine"),
    Named("get_session", "GET", "/v1/sessions/{session}", shows='"mine"'),
    Named("get_lock", "GET", "/v1/locks/team", shows='"mine"'),
    Named("get_lock", "GET", "/v1/locks/team?session_id={session}", shows='"mine"'),
    Named("explain_lock", "GET", "/v1/locks/team/why", shows='"mine"'),
    Named("diagnose", "GET", "/v1/diagnosis?lock=team", shows='"team"'),
    Named("list_grants", "GET", "/v1/grants?lock=team", shows="/locks/team/lock-"),
    Named("list_grants", "GET", "/v1/grants?election=team", shows="/elections/team/"),
    Named("list_grants", "GET", "/v1/grants?session_id={session}", shows="/locks/team/lock-"),
    Named("get_grant", "GET", "/v1/grants/team/{grant}", shows="/locks/team/lock-"),
    Named("get_election", "GET", "/v1/elections/team", shows="/elections/team/"),
    Named("watch", "GET", SUBTREE.format(path="/"), shows=SEEN, is_listed=True, is_streamed=True),
    Named("watch", "GET", SUBTREE.format(path="/team"), shows=SEEN, is_streamed=True),
    Named("watch", "GET", "/v1/watch?path=/team&kind=subtree&values", shows=SEEN, is_streamed=True),
    Named("watch", "GET", "/v1/watch?path=/team&kind=children", shows=SEEN, is_streamed=True),
    Named("watch", "GET", "/v1/watch?path=/team", shows='"/team"', is_streamed=True),
    Named(
        "watch_many", "POST", "/v1/watch",
        {"watches": [{"path": "/team", "kind": kind} for kind in ("subtree", "znode")]},
        shows=SEEN, is_streamed=True,
    ),
    Named("list_deadlocks", "GET", "/v1/deadlocks", is_listed=True),
    Named("status", "GET", "/v1/status", is_listed=True),
    Named("list_members", "GET", "/v1/members", is_listed=True),
    Named("get_caller", "GET", "/v1/access/me", shows="/locks/team", is_listed=True),
)  # fmt: skip
_LEASE = {"lease_ms": 60_000, "timeout_ms": 0}
_TREE = "/v1/tree/{segment}"
WRITES: tuple[Named, ...] = (
    Named("create_znode", "POST", f"{_TREE}/new", {"data": ""}),
    Named("set_data", "PUT", _TREE, {"data": ""}),
    Named("set_data", "PUT", f"{_TREE}/new?create", {"data": ""}),
    Named("delete_znode", "DELETE", f"{_TREE}?recursive"),
    Named("delete_znode", "DELETE", f"{_TREE}/below"),
    Named("multi", "POST", "/v1/multi", {
        "operations": [{"op": "delete", "path": "/{name}", "recursive": True}]}),
    Named("multi", "POST", "/v1/multi", {
        "conditions": [{"op": "check", "path": "/{name}"}],
        "then": [{"op": "set", "path": "/{name}", "data": ""}], "otherwise": []}),
    Named("acquire_lock", "POST", "/v1/locks/sized-{segment}",
          {**_LEASE, "kind": "slot", "size": 2}),
    Named("acquire_locks", "POST", "/v1/locks", {**_LEASE, "names": ["pair-{name}"]}),
    Named("release_lock", "DELETE", "/v1/locks/{segment}/grants/{grant}"),
    Named("downgrade_lock", "POST", "/v1/locks/{segment}/grants/{grant}/downgrade", {}),
    Named("note_lock", "PUT", "/v1/locks/{segment}/grants/{grant}/note", {"note": "n"}),
    Named("extend_lock", "POST", "/v1/locks/{segment}/grants/{grant}/extend", {"by_ms": 1_000}),
    Named("resize_semaphore", "PUT", "/v1/locks/sized-{segment}/size", {"size": 3}),
    Named("campaign", "POST", "/v1/elections/{segment}", {**_LEASE, "value": "v"}),
    Named("proclaim", "PUT", "/v1/elections/{segment}/grants/{elected}", {"value": "v"}),
    Named("resign", "DELETE", "/v1/elections/{segment}/grants/{elected}"),
)  # fmt: skip
ANSWERS = {"campaign": (200, 409)}
"""Of the team's own, where it is not just done: the office is taken."""
_ACCESS = "/v1/access"
OPERATORS: tuple[Named, ...] = (
    Named("revoke_lock", "POST", "/v1/locks/team/revoke",
          {"grant_id": "{grant}", "by": "ann", "reason": "test"}),
    Named("close_session", "DELETE", "/v1/sessions/{session}"),
    Named("put_role", "PUT", f"{_ACCESS}/roles/team",
          {"rules": [{"prefix": "/a", "verbs": ["read"]}]}),
    Named("drop_role", "DELETE", f"{_ACCESS}/roles/team"),
    Named("put_identity", "PUT", f"{_ACCESS}/identities/team", {"roles": ["team"]}),
    Named("set_quota", "PATCH", f"{_ACCESS}/identities/team/quota", {"quota": {"znodes": 9}}),
    Named("drop_identity", "DELETE", f"{_ACCESS}/identities/team"),
    Named("add_token", "POST", f"{_ACCESS}/identities/team/tokens", {}),
    Named("get_quota", "GET", f"{_ACCESS}/identities/team/quota"),
    Named("explain_access", "GET", f"{_ACCESS}/can?identity=team&verb=read&resource=/team"),
)  # fmt: skip
"""What operators alone do."""
NAMELESS = {
    *("open_session", "heartbeat", "heartbeats", "abandon_lock_attempt", "abandon_campaign"),
    *("get_limits", "set_limits", "get_access", "set_access", "init_access", "drop_token"),
    *("list_roles", "list_identities", "list_quotas", "hand_over", "set_log_level", "openapi"),
    *("metrics", "backup"),
    *("upgrade_status", "finish_upgrade"),
    *[name for name in ROWS if name.startswith(("health", "root", "console", "learn"))],
}
"""Routes without a name of what the team has, or whose lists are for operators alone."""


async def begun(cluster: Cluster) -> Scene:
    scene = Scene(cluster, await cluster.identity(*RULES))
    await scene.make()
    return scene


def title(row: Named) -> str:
    body = json.dumps(row.body) if row.body else ""
    return f"{row.operation_id}-{row.target}{body}".replace(" ", "")


@pytest.mark.parametrize("row", READS, ids=title)
async def test_what_is_shown_is_the_teams_own(row: Named) -> None:
    """To itself of each list, and of its own name to an operator as well."""
    async with guarded() as cluster:
        scene = await begun(cluster)
        for token in (scene.token, *([] if row.is_listed else [cluster.root])):
            if row.is_streamed:
                text = await scene.streamed(row, token)
            else:
                status, text = await scene.asked(row, token)
                assert status == 200, text
            assert row.shows in text
            assert [each for each in FOREIGN if each in text] == []
            assert '"next":' not in text or row.is_paged or '"next":null' in text


ASKED = [each for each in READS if "team" in f"{each.target} {each.body}" and not each.is_listed]


@pytest.mark.parametrize("row", ASKED, ids=title)
async def test_what_is_asked_of_others_is_refused(row: Named) -> None:
    """Each question about the team, asked by it about each of the others; an operator may."""
    async with guarded() as cluster:
        scene = await begun(cluster)
        for name in OTHERS:
            target, body = row.target, json.dumps(row.body)
            for before in ("/", "="):
                target = target.replace(f"{before}team", before + segment(name))
            if target.startswith("/v1/watch"):
                target = target.replace(segment(name), name)
            body = body.replace('"/team"', f'"/{name}"')
            about = row._replace(target=target, body=json.loads(body), is_paged=False)
            assert (await scene.asked(about, scene.token))[0] == 403, about


@pytest.mark.parametrize("row", WRITES, ids=title)
async def test_what_is_done_reaches_the_teams_own_alone(row: Named) -> None:
    """Refused for each of the others' names; done for its own, and then by an operator."""
    async with guarded() as cluster:
        scene = await begun(cluster)
        before = scene.of_others()
        refused = {name: await scene.asked(row, scene.token, name) for name in OTHERS}
        assert {name: status for name, (status, _) in refused.items() if status != 403} == {}
        assert scene.of_others() == before

        own, text = await scene.asked(row, scene.token)
        assert own < 300 or own in ANSWERS.get(row.operation_id, ()), text
        assert [each for each in FOREIGN if each in text] == []
        assert scene.of_others() == before

        await scene.asked(row, cluster.root)
        assert scene.of_others() == before


@pytest.mark.parametrize("row", OPERATORS, ids=title)
async def test_what_an_operator_does_to_the_team_reaches_nobody_else(row: Named) -> None:
    """Forced ends, roles, identities and their tokens."""
    async with guarded() as cluster:
        scene = await begun(cluster)
        before = scene.of_others()
        status, text = await scene.asked(row, cluster.root)

        assert status < 300, text
        assert scene.of_others() == before
        assert [each for each in FOREIGN if each in text] == []


async def test_a_number_behind_a_name_is_a_name_of_another() -> None:
    """So a sequential znode needs a rule for each name that it could get."""
    async with guarded() as cluster:
        scene = await begun(cluster)
        row = Named("create_znode", "POST", _TREE, {"data": "", "mode": "persistent_sequential"})

        assert (await scene.asked(row, scene.token))[0] == 403


async def test_metrics_count_each_class_of_locks_by_itself() -> None:
    """A class is the first part of a lock's name, as a whole."""
    async with guarded() as cluster:
        for name in ("team:1", "team:2", "teamforeign:1", "te:1"):
            body = {"lease_ms": 60_000, "timeout_ms": 0}
            await cluster.admin("POST", f"/v1/locks/{name}", body)
        shown = await cluster.api.get("/metrics", **bearer(cluster.root))
        counts = {
            line.split('lock_class="')[1].split('"')[0]: float(line.rpartition(" ")[2])
            for line in shown.raw.decode().splitlines()
            if "lock_class=" in line and "wait" in line and "_count{" in line
        }

    assert counts == {"team": 2.0, "teamforeign": 1.0, "te": 1.0}


def test_every_route_has_a_row_or_no_name() -> None:
    """A new route is in neither."""
    rows = {each.operation_id for each in (*READS, *WRITES, *OPERATORS)}

    assert rows | NAMELESS == set(ROWS)
    assert not rows & NAMELESS
