"""What access rights show and refuse at a running member: lists, watches, sessions, tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.clock import SystemClock
from coordinator.model.manual_holds import ManualHold
from coordinator.raft.loopback import LoopbackEngine
from coordinator.wire.stream import frames
from tests.wire.guarded import bearer, guarded
from tests.wire.stream.speaking import speaking
from tests.wire.teams import PAY, make_teams

WEB = ("/teams/web", ("read", "write", "watch"))


class HookedEngine(LoopbackEngine):
    """Counts its read barriers, and does something once within the next one."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.next_hook: Callable[[], Awaitable[None]] | None = None

    async def read_barrier(self) -> int:
        index = await super().read_barrier()
        self.rounds += 1
        hook, self.next_hook = self.next_hook, None
        if hook is not None:
            await hook()
        return index


async def test_other_teams_are_not_listed() -> None:
    """Of what one may not read only the way to one's own is shown, and nothing of its size."""
    async with guarded() as cluster:
        await make_teams(cluster)
        pay = bearer(await cluster.identity(PAY))

        root = await cluster.api.get("/v1/tree?children", **pay)
        teams = await cluster.api.get("/v1/tree/teams?children&stat", **pay)
        own = await cluster.api.get("/v1/tree/teams/pay?children", **pay)
        theirs = await cluster.api.get("/v1/tree/teams/web?children", **pay)
        missing = await cluster.api.get("/v1/tree/teams/none?children", **pay)
        data = await cluster.api.get("/v1/tree/teams", **pay)
        first = await cluster.api.get("/v1/tree?children&limit=1", **pay)

    assert (first.body["children"], first.body["next"]) == (["teams"], None)
    assert root.body["children"] == ["teams"]
    assert [each["name"] for each in teams.body["children"]] == ["pay"]
    assert teams.body["stat"]["num_children"] == 1
    assert own.body["children"] == ["a"]
    assert theirs.status == missing.status == data.status == 403
    assert "needs read on /teams/web" in theirs.body["detail"]


async def test_locks_grants_and_sessions_of_others_are_not_listed() -> None:
    """Nor are the sessions of those that are, unless to who administers sessions."""
    async with guarded() as cluster:
        pay = await cluster.identity(("/locks/pay*", ("lock",)))
        web = await cluster.identity(("/locks/web*", ("lock",)))
        looker = await cluster.identity(("/locks", ("read",)))
        ids = {}
        for token, lock in ((pay, "pay:1"), (web, "web:1")):
            session = await cluster.api.post("/v1/sessions", {}, **bearer(token))
            ids[lock] = session.body["session_id"]
            body = {"session_id": ids[lock], "timeout_ms": 0}
            held = await cluster.api.post(f"/v1/locks/{lock}", body, **bearer(token))
            assert held.status == 200
        seen: dict[str, list[Any]] = {}
        for name, token in (("pay", pay), ("look", looker), ("root", cluster.root)):
            locks = (await cluster.api.get("/v1/locks", **bearer(token))).body["locks"]
            grants = (await cluster.api.get("/v1/grants", **bearer(token))).body["grants"]
            sessions = (await cluster.api.get("/v1/sessions", **bearer(token))).body["sessions"]
            seen[name] = [
                {each["lock"]: each["holder"]["session_id"] for each in locks},
                {each["lock"]: each["session_id"] for each in grants},
                sorted(each["session_id"] for each in sessions),
            ]
        other = await cluster.api.get("/v1/grants?lock=web:1", **bearer(pay))
        first = await cluster.api.get("/v1/locks?limit=1", **bearer(web))
        wider = await cluster.identity(("/locks", ("lock",)))
        tried = await cluster.api.post(
            "/v1/locks/pay:1", {"lease_ms": 60_000, "timeout_ms": 0}, **bearer(wider)
        )

    nobody = dict.fromkeys(ids, "")
    assert seen["pay"] == [{"pay:1": ids["pay:1"]}, {"pay:1": ids["pay:1"]}, [ids["pay:1"]]]
    assert seen["look"] == [nobody, nobody, []]
    assert seen["root"] == [ids, ids, sorted(ids.values())]
    assert other.status == 403
    assert ([each["lock"] for each in first.body["locks"]], first.body["next"]) == (["web:1"], None)
    assert (tried.status, tried.body["holder"]["session_id"]) == (409, "")


async def test_a_hold_by_hand_is_explained_to_who_may_read_it() -> None:
    """A right to something below its znode shows the way there, and not its data."""
    hold = ManualHold(by="ann", note="the plan").to_bytes().decode()
    lock = ("/locks/x", ("lock",))
    async with guarded() as cluster:
        body = {"data": hold, "parents": "persistent"}
        await cluster.admin("POST", "/v1/tree/manual-locks/x", body)
        reader = await cluster.identity(lock, ("/manual-locks/x", ("read",)))
        other = await cluster.identity(lock, ("/manual-locks/x/below", ("read",)))
        reader_view = await cluster.api.get("/v1/locks/x", **bearer(reader))
        other_view = await cluster.api.get("/v1/locks/x", **bearer(other))

    assert reader_view.body["by_hand"] == "it is held by hand by 'ann': 'the plan'"
    assert other_view.body["by_hand"] == "it is held by hand"


@pytest.mark.parametrize(
    "target",
    [
        "tree/teams/pay/a",
        "tree/teams/pay?children",
        "locks/pay",
        "elections/pay",
        "limits",
        "access/roles",
        "access/identities",
    ],
)
async def test_a_read_is_judged_behind_its_barrier(target: str) -> None:
    """Its right was taken away while the quorum was asked: by then it may show what came after."""
    rules = [("/", ("read",)), ("@", ("read",))]
    engine = HookedEngine()
    async with guarded(engine=engine) as cluster:
        await make_teams(cluster)
        shown = bearer(await cluster.identity(*rules))  # type: ignore[arg-type]
        before = await cluster.api.get(f"/v1/{target}", **shown)

        async def take_away() -> None:
            await cluster.admin("PUT", "/v1/access/roles/who1", {"rules": []})

        engine.next_hook, rounds = take_away, engine.rounds
        after = await cluster.api.get(f"/v1/{target}", **shown)

    assert (before.status in (200, 404), after.status) == (True, 403), after
    assert engine.rounds > rounds


async def test_a_watch_shows_what_may_be_watched_and_ends_with_the_right() -> None:
    """Of one change a part, of others nothing; NoAuth as the last line when the role is gone."""
    async with guarded() as cluster:
        await make_teams(cluster)
        token = await cluster.identity(PAY)
        headers = bearer(token)
        async with cluster.api.stream("GET", "/v1/watch?path=/&kind=subtree", **headers) as lines:
            assert (await lines.next())["type"] == "watching"
            both = [
                {"op": "create", "path": f"/teams/{team}/new", "data": ""}
                for team in ("web", "pay")
            ]
            await cluster.admin("PUT", "/v1/tree/teams/web/b", {"data": "2"})
            await cluster.admin("POST", "/v1/multi", {"operations": both})
            change = await lines.next()
            await cluster.admin("PUT", "/v1/access/roles/who1", {"rules": []})
            await cluster.admin("PUT", "/v1/tree/teams/pay/a", {"data": "2"})
            last = await lines.next()
            end = await lines.next()
        refused = await cluster.api.get("/v1/watch?path=/teams/web", **bearer(token))

    assert [each["path"] for each in change["events"]] == ["/teams/pay/new"]
    assert (last["type"], last["problem"]["code"], end) == ("error", "NoAuth", None)
    assert refused.status == 403


async def test_a_watch_from_the_past_shows_what_may_be_watched_now() -> None:
    """The history is filtered by the rules of today."""
    async with guarded() as cluster:
        await make_teams(cluster)
        headers = bearer(await cluster.identity(WEB))
        path = "/v1/watch?path=/&kind=subtree&from_zxid=0"
        async with cluster.api.stream("GET", path, **headers) as lines:
            await lines.next()
            first, second = await lines.next(), await lines.next()

    paths = [each["path"] for change in (first, second) for each in change["events"]]
    assert paths == ["/teams/web", "/teams/web/b"]


async def test_an_observed_election_ends_with_the_right() -> None:
    """At the next thing to say."""
    async with guarded() as cluster:
        token = await cluster.identity(("/elections", ("lock",)))
        body = {"lease_ms": 60_000, "value": "v", "timeout_ms": 0}
        path = "/v1/elections/e?observe"
        async with cluster.api.stream("GET", path, **bearer(token)) as lines:
            assert (await lines.next())["elected"] is None
            await cluster.admin("PUT", "/v1/access/roles/who1", {"rules": []})
            await cluster.admin("POST", "/v1/elections/e", body)
            last = await lines.next()

    assert last["problem"]["code"] == "NoAuth"


async def test_a_request_renews_no_session_of_another() -> None:
    """The header that names a session is judged, too."""
    async with guarded() as cluster:
        pay, web = await cluster.identity(PAY), await cluster.identity(WEB)
        session = (await cluster.api.post("/v1/sessions", {}, **bearer(pay))).body["session_id"]
        named = {"Coordinator-Session-Id": session}

        own = await cluster.api.get("/v1/status", **named, **bearer(pay))
        foreign = await cluster.api.get("/v1/status", **named, **bearer(web))

    assert "Coordinator-Safe-Ms" in own.headers
    assert "Coordinator-Safe-Ms" not in foreign.headers


async def test_the_status_says_whether_rights_are_on() -> None:
    """To people as to programs."""
    async with guarded() as cluster:
        on = (await cluster.admin("GET", "/v1/status"))["access"]
        await cluster.admin("PUT", "/v1/access", {"is_on": False})
        off = (await cluster.admin("GET", "/v1/status"))["access"]

    assert (on, off) == ("on", "off")


async def test_a_deadlock_and_a_multi_lock_name_nothing_of_others() -> None:
    """Neither the session nor the other locks of another identity that is in it."""
    async with guarded() as cluster:
        common = ("/locks/common*", ("lock", "read"))
        pay = await cluster.identity(common, ("/locks/pay*", ("lock",)))
        web = await cluster.identity(common)
        ids: dict[str, str] = {}
        held = []
        for token, names in ((pay, ["common1", "pay:1"]), (web, ["common2"])):
            session = await cluster.api.post("/v1/sessions", {}, **bearer(token))
            ids[token] = session.body["session_id"]
            body = {"names": names, "session_id": ids[token], "owner": "o", "timeout_ms": 0}
            held.append((await cluster.api.post("/v1/locks", body, **bearer(token))).status)
        seen = await cluster.api.get("/v1/grants?lock=common1", **bearer(web))
        body = {"session_id": ids[pay], "owner": "o"}
        waiting = asyncio.create_task(
            cluster.api.post("/v1/locks/common2", {**body, "timeout_ms": 900}, **bearer(pay))
        )
        queued: list[Any] = []
        while not queued:
            queued = (await cluster.api.get("/v1/locks/common2", **bearer(web))).body["queue"]
        body = {"session_id": ids[web], "owner": "o", "timeout_ms": 900}
        answer = await cluster.api.post("/v1/locks/common1", body, **bearer(web))
        await waiting

    assert held == [200, 200]
    assert [each["group"] for each in seen.body["grants"]] == [[seen.body["grants"][0]["path"]]]
    assert (answer.body["code"], answer.body["cycle_length"]) == ("Deadlock", 2)
    assert [each["session_id"] for each in answer.body["cycle"]] == [ids[web]]
    assert ids[pay] not in str(answer.body)


async def test_strangers_make_few_rounds() -> None:
    """Each unknown token is looked for once, and all together not more often than ten a second."""
    engine = HookedEngine()
    async with (
        guarded(engine=engine) as cluster,
        speaking(cluster.api.server.port) as speaker,
    ):
        before = engine.rounds
        began_ms = SystemClock().monotonic_ms()
        asked = []
        for number in range(20):
            stranger = f"Bearer co_stranger{number}_{'A' * 43}"
            asked.append(speaker.request("GET", "/v1/status", authorization=stranger))
        speaker.send(*asked)
        statuses = {(await speaker.expect(frames.AnswerFrame)).status for _ in asked}
        allowed = 2 + (SystemClock().monotonic_ms() - began_ms) // 100
        first = engine.rounds - before
        again = speaker.request(
            "GET", "/v1/status", authorization=asked[-1].headers["authorization"]
        )
        speaker.send(again)
        repeated = (await speaker.expect(frames.AnswerFrame)).status

    assert (statuses, repeated) == ({401}, 401)
    assert 1 <= first <= allowed
    assert engine.rounds - before == first, "not looked for again at once"


async def test_a_stranger_learns_nothing_of_a_request_number() -> None:
    """What was done under a number is no answer to who repeats it without the credential."""
    async with guarded() as cluster:
        used = {"Coordinator-Client-Id": "worker", "Coordinator-Request-Number": "1"}
        unused = {**used, "Coordinator-Request-Number": "2"}
        done = await cluster.api.post("/v1/sessions", {}, **used, **bearer(cluster.root))
        found = [
            await cluster.api.post("/v1/sessions", {}, **numbers, **shown)
            for shown in ({}, bearer(f"co_stranger1_{'A' * 43}"))
            for numbers in (used, unused)
        ]

    assert done.status == 201
    assert [each.status for each in found] == [401] * 4
    assert found[0].body == found[1].body
    assert found[2].body.keys() == found[3].body.keys()
    assert found[2].body["detail"] == found[3].body["detail"]


async def test_a_stranger_is_not_told_who_leads() -> None:
    """Neither in WELCOME nor after a change; who proves itself is told then, and from then on."""
    async with guarded() as cluster:
        cluster.api.member.leader_address.url = lambda: url  # type: ignore[method-assign]
        url, server = "http://leader:1", cluster.api.server
        async with speaking(server.port) as stranger, speaking(server.port) as known:
            assert stranger.welcome is not None
            assert stranger.welcome.settings.leader_url is None
            assert (await stranger.call("GET", "/health/live")).status == 200
            known.send(known.request("GET", "/v1/status", authorization=f"Bearer {cluster.root}"))
            assert await known.expect(frames.Leader) == frames.Leader("http://leader:1")
            assert (await known.expect(frames.AnswerFrame)).status == 200
            url = "http://other:1"
            assert server._streams is not None
            server._streams._on_leader_change()
            assert await known.expect(frames.Leader) == frames.Leader("http://other:1")
            assert (await stranger.call("GET", "/health/live")).status == 200
            assert not any(isinstance(each, frames.Leader) for each in stranger._read)


async def test_a_whole_token_is_no_id() -> None:
    """In a path it would come into logs; the answer says what to do, and nothing of it."""
    async with guarded() as cluster:
        token = await cluster.identity(("@access", ("admin",)))
        reply = await cluster.api.delete(f"/v1/access/tokens/{token}", **bearer(token))

    assert (reply.status, reply.code) == (400, "BadArguments")
    assert token.split("_")[1] in str(reply.body)
    assert token[-20:] not in str(reply.body)
