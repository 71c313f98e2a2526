"""Rights that are turned off while a revocation is still being worked off, and all orders of both.

A revocation counts at once, but what it ends is ended in many steps: sessions some at a time,
streams when they are looked at, waiters by the leader. Access rights may be turned off, or off and
on again, between any two of them. Whatever the order: what was revoked is lost, with all that it
held; what only lost a right keeps on if rights are off by then; nobody else loses anything.

``LASTING`` has a row for each route that begins what lasts, and ``AT_ONCE`` names all others: a new
route is in neither, and fails here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from coordinator.raft.loopback import LoopbackEngine
from coordinator.state.codec import encode_command
from coordinator.state.commands import (
    Command,
    DropIdentity,
    DropToken,
    Operation,
    PutIdentity,
    PutRole,
    SetAccess,
)
from tests.patience import patient
from tests.wire.guarded import Cluster, bearer, guarded
from tests.wire.stream.test_both_doors import ROWS

ALL_VERBS = ("/", ("read", "write", "lock", "watch"))
KEPT = "kept"
WITHOUT_RIGHT = "NoAuth"
GONE = "AuthFailed"
SESSION_GONE = "SessionExpired"


class Scene:
    """One whose credential or right is taken, another who keeps its own, and the member."""

    def __init__(self, cluster: Cluster, engine: LoopbackEngine, tokens: tuple[str, str]) -> None:
        self.cluster = cluster
        self.engine = engine
        self.one, self.two = tokens
        self.tasks: list[asyncio.Task[Any]] = []

    @property
    def machine(self) -> Any:
        return self.cluster.api.member._replica.machine

    async def together(self, *operations: Operation) -> None:
        """Apply these by an operator, with nothing of the member's between them."""
        token = self.machine.access.token(self.cluster.root.split("_")[1])
        await asyncio.gather(
            *[
                self.engine.propose(encode_command(Command(each, 0, caller=token.caller)))
                for each in operations
            ]
        )

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(patient(5.0)):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def session(self, token: str) -> str:
        reply = await self.cluster.api.post(
            "/v1/sessions", {"timeout_ms": 600_000}, **bearer(token)
        )
        return str(reply.body["session_id"])

    async def ask(self, token: str, method: str, path: str, body: Any = None) -> Any:
        return await self.cluster.api.call(method, path, body, headers=bearer(token))

    def begin(self, asked: Awaitable[Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(asked)
        self.tasks.append(task)
        return task

    async def queued(self, path: str, count: int) -> None:
        """Wait until so many contend there."""
        await self.until(lambda: self.machine.locks.length(path) == count)


Outcome = Callable[[], Awaitable[str]]
"""Does what lets it be seen, waits for that, and says what became of one's."""


async def a_session(scene: Scene, token: str) -> Outcome:
    session_id = await scene.session(token)

    async def look() -> str:
        return KEPT if scene.machine.session(session_id) is not None else "ended"

    return look


async def an_ephemeral_znode(scene: Scene, token: str) -> Outcome:
    session_id = await scene.session(token)
    path = f"/e-{session_id}"
    body = {"mode": "ephemeral", "session_id": session_id}
    made = await scene.ask(token, "POST", f"/v1/tree{path}", body)
    assert made.status == 201, made

    async def look() -> str:
        return KEPT if scene.machine.stat(path) is not None else "ended"

    return look


def holding(kind: str, names: tuple[str, ...], **wanted: Any) -> Any:
    """Return what holds these; the other waits behind it, and is granted when it has ended."""

    async def hold(scene: Scene, token: str) -> Outcome:
        own, other = await scene.session(token), await scene.session(scene.two)
        named = [f"{each}-{own}" for each in names]
        target = f"/v1/{kind}" if len(names) > 1 else f"/v1/{kind}/{named[0]}"
        body = {**wanted, "session_id": own, "timeout_ms": 0}
        if len(names) > 1:
            body["names"] = named
        held = await scene.ask(token, "POST", target, body)
        assert held.status == 200, held.raw
        behind = {**body, "session_id": other, "timeout_ms": 60_000}
        granted = scene.begin(scene.ask(scene.two, "POST", target, behind))
        for each in named:
            await scene.queued(f"/{kind}/{each}", 2)

        async def look() -> str:
            if scene.machine.session(own) is None:
                assert (await granted).status == 200
                return "ended"
            assert not granted.done()
            return KEPT

        return look

    return hold


def waiting(kind: str, *, is_leased: bool = False, **wanted: Any) -> Any:
    """Return what waits there; the other holds, gives back, and waits once more behind it."""

    async def wait(scene: Scene, token: str) -> Outcome:
        own, other = await scene.session(token), await scene.session(scene.two)
        third = await scene.session(scene.two)
        name = f"busy-{own}"
        target, directory = f"/v1/{kind}/{name}", f"/{kind}/{name}"
        held = await scene.ask(
            scene.two, "POST", target, {**wanted, "session_id": other, "timeout_ms": 0}
        )
        whose = {"lease_ms": 60_000} if is_leased else {"session_id": own}
        body = {**wanted, **whose, "timeout_ms": 60_000}
        waits = scene.begin(scene.ask(token, "POST", target, body))
        await scene.queued(directory, 2)
        behind = {**wanted, "session_id": third, "timeout_ms": 60_000}
        granted = scene.begin(scene.ask(scene.two, "POST", target, behind))
        await scene.queued(directory, 3)

        async def look() -> str:
            grant_id = held.body["grant"]["grant_id"]
            await scene.ask(scene.two, "DELETE", f"{target}/grants/{grant_id}")
            first, _ = await asyncio.wait((waits, granted), return_when=asyncio.FIRST_COMPLETED)
            if waits in first and waits.result().status == 200:
                assert not granted.done()
                return KEPT
            answer = await waits
            assert (await granted).status == 200, "nobody waits for what is gone"
            return str(answer.body["code"])

        return look

    return wait


def streaming(method: str, target: str, body: Any = None) -> Any:
    """Return a stream of changes of a subtree; the next change shows whether it goes on."""

    async def stream(scene: Scene, token: str) -> Outcome:
        path = f"/w-{len(scene.tasks)}"
        await scene.ask(scene.two, "POST", f"/v1/tree{path}", {"data": ""})
        sent = None if body is None else {"watches": [{"path": path, **body}]}
        opened = scene.cluster.api.stream(method, target.format(path=path), sent, **bearer(token))
        lines = await opened.__aenter__()
        begun = await lines.next()
        assert begun["type"] == "watching", begun

        async def look() -> str:
            changed = await scene.ask(scene.two, "PUT", f"/v1/tree{path}", {"data": "2"})
            assert changed.status == 200, changed.raw
            line = await lines.next()
            while line["type"] == "bookmark":
                line = await lines.next()
            await opened.__aexit__(None, None, None)
            return KEPT if line["type"] == "change" else str(line["problem"]["code"])

        return look

    return stream


async def an_observed_election(scene: Scene, token: str) -> Outcome:
    session_id = await scene.session(scene.two)
    target = f"/v1/elections/seen-{session_id}"
    body = {"session_id": session_id, "timeout_ms": 0, "value": "1"}
    elected = await scene.ask(scene.two, "POST", target, body)
    opened = scene.cluster.api.stream("GET", f"{target}?observe", **bearer(token))
    lines = await opened.__aenter__()
    assert (await lines.next())["elected"] is not None

    async def look() -> str:
        grant_id = elected.body["grant"]["grant_id"]
        said = await scene.ask(scene.two, "PUT", f"{target}/grants/{grant_id}", {"value": "2"})
        assert said.status == 200, said.raw
        line = await lines.next()
        await opened.__aexit__(None, None, None)
        return KEPT if "elected" in line else str(line["problem"]["code"])

    return look


class Lasting(NamedTuple):
    """What one begins, by which route; how it ends with the credential, and with the right."""

    operation_id: str
    begin: Callable[[Scene, str], Awaitable[Outcome]]
    without_credential: str = "ended"
    without_right: str = KEPT


_WAITS = {"without_credential": SESSION_GONE, "without_right": WITHOUT_RIGHT}
_STREAMS = {"without_credential": GONE, "without_right": WITHOUT_RIGHT}
LASTING: dict[str, Lasting] = {
    "a session": Lasting("open_session", a_session),
    "an ephemeral znode": Lasting("create_znode", an_ephemeral_znode),
    "a lock": Lasting("acquire_lock", holding("locks", ("held",))),
    "a shared lock": Lasting("acquire_lock", holding("locks", ("both",), max_hold_ms=900_000)),
    "several locks": Lasting("acquire_locks", holding("locks", ("several", "more"))),
    "an office": Lasting("campaign", holding("elections", ("office",), value="v")),
    "a wait": Lasting("acquire_lock", waiting("locks"), **_WAITS),
    "a wait with a lease": Lasting("acquire_lock", waiting("locks", is_leased=True), **_WAITS),
    "a candidacy": Lasting("campaign", waiting("elections", value="v"), **_WAITS),
    "a watch": Lasting("watch", streaming("GET", "/v1/watch?path={path}&kind=subtree"), **_STREAMS),
    "a watch with values": Lasting(
        "watch", streaming("GET", "/v1/watch?path={path}&kind=subtree&values"), **_STREAMS
    ),
    "many watches": Lasting(
        "watch_many", streaming("POST", "/v1/watch", {"kind": "subtree"}), **_STREAMS
    ),
    "an observed election": Lasting("get_election", an_observed_election, **_STREAMS),
}
OF_OTHERS = ("a session", "a lock", "a wait", "a candidacy", "a watch", "an observed election")
STREAMED = ("watch", "watch_many", "get_election")
AT_ONCE = {
    *("add_token", "drop_token", "drop_role", "put_role", "put_identity", "drop_identity"),
    *("init_access", "set_access", "get_access", "explain_access", "get_caller", "list_roles"),
    *("list_identities", "list_quotas", "get_quota", "set_quota", "get_limits", "set_limits"),
    *("get_lock", "list_locks", "explain_lock", "diagnose", "list_deadlocks", "release_lock"),
    *("downgrade_lock", "note_lock", "extend_lock", "resize_semaphore", "revoke_lock"),
    *("abandon_lock_attempt", "abandon_campaign", "proclaim", "resign", "get_grant"),
    *("list_grants", "list_sessions", "get_session", "close_session", "heartbeat", "heartbeats"),
    *("read_root", "read_znode", "head_znode", "set_data", "delete_znode", "multi"),
    *("status", "backup", "list_members", "hand_over", "set_log_level", "metrics", "openapi"),
    *("upgrade_status", "finish_upgrade"),
    *[name for name in ROWS if name.startswith(("health", "root", "console", "learn"))],
}
"""What is over with its answer."""
CREDENTIALS: dict[str, Callable[[str], Operation]] = {
    "its token": lambda token: DropToken(token.split("_")[1]),
    "its identity": lambda _: DropIdentity("who1"),
}
RIGHTS: dict[str, Callable[[str], Operation]] = {
    "its rules": lambda _: PutRole("who1", ()),
    "its role": lambda _: PutIdentity("who1", ()),
}
TAKEN = {**CREDENTIALS, **RIGHTS}
OFF, ON = SetAccess(is_on=False), SetAccess(is_on=True)
ORDERS = ("on", "off with it", "off before", "off and on with it", "off with it, on later")


async def take(scene: Scene, taken: Operation, order: str) -> None:
    """Take it away, with rights turned off and on in this order; return when that is over."""
    if order == "off before":
        await scene.together(OFF)
    with_it = {"off with it": (OFF,), "off and on with it": (OFF, ON)}
    await scene.together(taken, *with_it.get(order, (OFF,) if "later" in order else ()))
    await worked_off(scene)
    if "later" in order:
        await scene.together(ON)


async def worked_off(scene: Scene) -> None:
    machine = scene.machine
    await scene.until(lambda: not (machine.revoked_sessions(1) or machine.leaving_sessions()))


def hyphened(name: str) -> str:
    return name.replace(" ", "-")


def row_of(name: str, what: str, order: str) -> set[str]:
    """Return what may become of this, of whom ``what`` was taken from."""
    row = LASTING[name]
    if what in CREDENTIALS and order == "off before":
        return {row.without_credential} | (kept(name) - {KEPT})
    if what in CREDENTIALS:
        return {row.without_credential}
    if order == "off before":
        return kept(name)
    if order == "off with it":  # streams may be looked at between the two
        return kept(name) | ({WITHOUT_RIGHT} if row.operation_id in STREAMED else set())
    return {row.without_right}


def kept(name: str) -> set[str]:
    """A watch with values begins again when rights have changed more than once."""
    return {KEPT, "Compacted"} if "values" in name else {KEPT}


@pytest.mark.parametrize("order", ORDERS, ids=hyphened)
@pytest.mark.parametrize("what", TAKEN, ids=hyphened)
async def test_what_is_taken_is_lost_and_nothing_else(what: str, order: str) -> None:
    """Of all that lasts, begun by one and by another; whatever comes between."""
    engine = LoopbackEngine()
    async with guarded(engine=engine) as cluster:
        tokens = await cluster.identity(ALL_VERBS), await cluster.identity(ALL_VERBS, is_new=True)
        scene = Scene(cluster, engine, tokens)
        own = {name: await row.begin(scene, scene.one) for name, row in LASTING.items()}
        others = {name: await LASTING[name].begin(scene, scene.two) for name in OF_OTHERS}
        await take(scene, TAKEN[what](scene.one), order)
        found = {name: await look() for name, look in own.items()}
        found_of_others = {name: await look() for name, look in others.items()}
        for task in scene.tasks:
            task.cancel()

    assert {
        name: each for name, each in found.items() if each not in row_of(name, what, order)
    } == {}
    assert {name: each for name, each in found_of_others.items() if each not in kept(name)} == {}


@pytest.mark.parametrize("what", CREDENTIALS, ids=hyphened)
async def test_rights_turned_off_between_two_rounds_of_ends_stop_none(what: str) -> None:
    """Sessions are ended some at a time; those that are left end as well, and are nobody's."""
    engine = LoopbackEngine()
    async with guarded(engine=engine) as cluster:
        tokens = await cluster.identity(ALL_VERBS), await cluster.identity(ALL_VERBS, is_new=True)
        scene = Scene(cluster, engine, tokens)
        looks = [await a_session(scene, scene.one) for _ in range(45)]
        machine = scene.machine
        await scene.together(TAKEN[what](scene.one))
        await scene.until(lambda: len(machine.revoked_sessions(99)) < 45)
        assert machine.revoked_sessions(99), "it is under way"
        await scene.together(OFF)
        await worked_off(scene)

        assert {await look() for look in looks} == {"ended"}


def test_every_route_begins_what_lasts_or_does_not() -> None:
    """A new route is in neither."""
    lasting = {each.operation_id for each in LASTING.values()}

    assert lasting | AT_ONCE == set(ROWS)
    assert not lasting & AT_ONCE


@pytest.mark.parametrize("order", ["on", "off", "off and on"], ids=hyphened)
async def test_a_session_moves_to_the_next_token_of_its_identity(order: str) -> None:
    """With a heartbeat under it, whatever the rights are then: it ends with the last token."""
    engine = LoopbackEngine()
    async with guarded(engine=engine) as cluster:
        tokens = await cluster.identity(ALL_VERBS), await cluster.identity(ALL_VERBS, is_new=True)
        scene = Scene(cluster, engine, tokens)
        look = await a_session(scene, scene.one)
        session_id = next(iter(scene.machine.sessions())).session_id
        added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", {})
        target = f"/v1/sessions/{session_id}/heartbeat"
        await scene.together(*{"off": (OFF,), "off and on": (OFF,)}.get(order, ()))
        foreign = await scene.ask(scene.two, "POST", target)
        beat = await scene.ask(added["token"], "POST", target)
        await scene.together(*((ON,) if order == "off and on" else ()))
        await scene.together(DropToken(scene.one.split("_")[1]))
        await worked_off(scene)
        seen = [await look()]
        await scene.together(DropToken(added["token"].split("_")[1]))
        await worked_off(scene)
        seen.append(await look())

    assert beat.status == 200
    assert foreign.status == (403 if order == "on" else 200)
    assert seen == [KEPT, "ended"]
