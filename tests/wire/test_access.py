"""What access rights show and refuse at a running member: lists, watches, sessions, tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.clock import SystemClock
from coordinator.errors import AuthFailedError
from coordinator.raft.loopback import LoopbackEngine
from coordinator.wire.stream import frames
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import speaking
from tests.wire.test_access_table import Cluster, _shown, guarded

PAY = ("/teams/pay", ("read", "write", "watch"))
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


async def _teams(cluster: Cluster) -> None:
    for path in ("teams", "teams/pay", "teams/pay/a", "teams/web", "teams/web/b", "own"):
        await cluster.admin("POST", f"/v1/tree/{path}", {"data": path})


async def test_other_teams_are_not_listed() -> None:
    """Of what one may not read only the way to one's own is shown, and nothing of its size."""
    async with guarded() as cluster:
        await _teams(cluster)
        pay = _shown(await cluster.identity(PAY))

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
            session = await cluster.api.post("/v1/sessions", {}, **_shown(token))
            ids[lock] = session.body["session_id"]
            body = {"session_id": ids[lock], "timeout_ms": 0}
            held = await cluster.api.post(f"/v1/locks/{lock}", body, **_shown(token))
            assert held.status == 200
        seen: dict[str, list[Any]] = {}
        for name, token in (("pay", pay), ("look", looker), ("root", cluster.root)):
            locks = (await cluster.api.get("/v1/locks", **_shown(token))).body["locks"]
            grants = (await cluster.api.get("/v1/grants", **_shown(token))).body["grants"]
            sessions = (await cluster.api.get("/v1/sessions", **_shown(token))).body["sessions"]
            seen[name] = [
                {each["lock"]: each["holder"]["session_id"] for each in locks},
                {each["lock"]: each["session_id"] for each in grants},
                sorted(each["session_id"] for each in sessions),
            ]
        other = await cluster.api.get("/v1/grants?lock=web:1", **_shown(pay))
        first = await cluster.api.get("/v1/locks?limit=1", **_shown(web))
        wider = await cluster.identity(("/locks", ("lock",)))
        tried = await cluster.api.post(
            "/v1/locks/pay:1", {"lease_ms": 60_000, "timeout_ms": 0}, **_shown(wider)
        )

    nobody = dict.fromkeys(ids, "")
    assert seen["pay"] == [{"pay:1": ids["pay:1"]}, {"pay:1": ids["pay:1"]}, [ids["pay:1"]]]
    assert seen["look"] == [nobody, nobody, []]
    assert seen["root"] == [ids, ids, sorted(ids.values())]
    assert other.status == 403
    assert ([each["lock"] for each in first.body["locks"]], first.body["next"]) == (["web:1"], None)
    assert (tried.status, tried.body["holder"]["session_id"]) == (409, "")


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
        await _teams(cluster)
        shown = _shown(await cluster.identity(*rules))  # type: ignore[arg-type]
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
        await _teams(cluster)
        token = await cluster.identity(PAY)
        headers = _shown(token)
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
        refused = await cluster.api.get("/v1/watch?path=/teams/web", **_shown(token))

    assert [each["path"] for each in change["events"]] == ["/teams/pay/new"]
    assert (last["type"], last["problem"]["code"], end) == ("error", "NoAuth", None)
    assert refused.status == 403


async def test_a_watch_from_the_past_shows_what_may_be_watched_now() -> None:
    """The history is filtered by the rules of today."""
    async with guarded() as cluster:
        await _teams(cluster)
        headers = _shown(await cluster.identity(WEB))
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
        async with cluster.api.stream("GET", path, **_shown(token)) as lines:
            assert (await lines.next())["elected"] is None
            await cluster.admin("PUT", "/v1/access/roles/who1", {"rules": []})
            await cluster.admin("POST", "/v1/elections/e", body)
            last = await lines.next()

    assert last["problem"]["code"] == "NoAuth"


async def test_a_revoked_token_is_refused_at_once_and_its_stream_ends() -> None:
    """Its watch, its next request, and what it has open."""
    async with guarded() as cluster:
        await _teams(cluster)
        token = await cluster.identity(PAY)
        session = (await cluster.api.post("/v1/sessions", {}, **_shown(token))).body["session_id"]
        path = "/v1/watch?path=/teams/pay&kind=subtree"
        async with cluster.api.stream("GET", path, **_shown(token)) as lines:
            await lines.next()
            await cluster.admin("DELETE", f"/v1/access/tokens/{token.split('_')[1]}")
            last = await lines.next()
        reply = await cluster.api.get("/v1/tree/teams/pay", **_shown(token))
        found = await cluster.admin("GET", "/v1/sessions")

    assert last["problem"]["code"] == "AuthFailed"
    assert (reply.status, reply.code, reply.body["definite"]) == (401, "AuthFailed", True)
    assert session not in {each["session_id"] for each in found["sessions"]}


async def test_a_token_is_replaced_without_the_end_of_its_sessions() -> None:
    """The heartbeat under the new token keeps the session when the old one is revoked."""
    async with guarded() as cluster:
        old = await cluster.identity(PAY)
        session = (await cluster.api.post("/v1/sessions", {}, **_shown(old))).body["session_id"]
        new = (await cluster.admin("POST", "/v1/access/identities/who1/tokens", {}))["token"]

        beat = await cluster.api.post(f"/v1/sessions/{session}/heartbeat", {}, **_shown(new))
        await cluster.admin("DELETE", f"/v1/access/tokens/{old.split('_')[1]}")
        after = await cluster.api.post(f"/v1/sessions/{session}/heartbeat", {}, **_shown(new))

    assert (beat.status, after.status) == (200, 200)


async def test_a_request_renews_no_session_of_another() -> None:
    """The header that names a session is judged, too."""
    async with guarded() as cluster:
        pay, web = await cluster.identity(PAY), await cluster.identity(WEB)
        session = (await cluster.api.post("/v1/sessions", {}, **_shown(pay))).body["session_id"]
        named = {"Coordinator-Session-Id": session}

        own = await cluster.api.get("/v1/status", **named, **_shown(pay))
        foreign = await cluster.api.get("/v1/status", **named, **_shown(web))

    assert "Coordinator-Safe-Ms" in own.headers
    assert "Coordinator-Safe-Ms" not in foreign.headers


async def test_the_status_says_whether_rights_are_on() -> None:
    """To people as to programs."""
    async with guarded() as cluster:
        on = (await cluster.admin("GET", "/v1/status"))["access"]
        await cluster.admin("PUT", "/v1/access", {"is_on": False})
        off = (await cluster.admin("GET", "/v1/status"))["access"]

    assert (on, off) == ("on", "off")


async def test_a_token_ends_by_its_date() -> None:
    """Judged by the clock of the member that is asked."""
    async with guarded() as cluster:
        await cluster.identity(PAY)
        statuses = []
        for ends_in_ms in (60_000, -1):
            expires_ms = SystemClock().wall_ms() + ends_in_ms
            body = {"expires_ms": expires_ms}
            added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", body)
            reply = await cluster.api.get("/v1/access/me", **_shown(added["token"]))
            statuses.append(reply.status)

    assert statuses == [200, 401]


async def test_a_repeat_whose_token_is_gone_is_not_told_that_nothing_happened() -> None:
    """The door says what apply would; of a number that never came it is sure."""
    async with guarded() as cluster:
        await _teams(cluster)
        token = await cluster.identity(PAY)

        async def write(number: str) -> str:
            numbered = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": number}
            headers = {**numbered, **_shown(token)}
            reply = await cluster.api.put("/v1/tree/teams/pay/a", {"data": "2"}, **headers)
            return str(reply.body.get("code", reply.status))

        first = await write("1")
        await cluster.admin("DELETE", f"/v1/access/tokens/{token.split('_')[1]}")
        answers = [first, await write("1"), await write("2")]

    assert answers == ["200", "RequestForgotten", "AuthFailed"]


async def test_a_repeat_is_answered_to_who_may_have_the_answer_alone() -> None:
    """Not under a token that has expired meanwhile, not to another identity that knows the number,
    not to one that has lost the right; under the next token of the same identity it is."""
    async with guarded() as cluster:
        await _teams(cluster)
        await cluster.identity(PAY)
        others = await cluster.identity(PAY, is_new=True)
        tokens = "/v1/access/identities/who1/tokens"
        expires_ms = SystemClock().wall_ms() + 1_500
        short = (await cluster.admin("POST", tokens, {"expires_ms": expires_ms}))["token"]
        following = (await cluster.admin("POST", tokens, {}))["token"]

        async def write(token: str, data: str = "2") -> tuple[str, str]:
            numbered = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
            headers = {**numbered, **_shown(token)}
            reply = await cluster.api.put("/v1/tree/teams/pay/a", {"data": data}, **headers)
            return str(reply.body.get("code", reply.status)), str(reply.body)

        first = await write(short)
        by_another = await write(others)
        await asyncio.sleep((expires_ms - SystemClock().wall_ms() + 50) / 1_000)
        expired = await write(short)
        repeated = await write(following)
        await cluster.admin("PUT", "/v1/access/roles/who1", {"rules": []})
        without = await write(following)
        found = await cluster.admin("GET", "/v1/tree/teams/pay/a")

    codes = [each[0] for each in (first, by_another, expired, repeated, without)]
    assert codes == ["200", "NoAuth", "RequestForgotten", "200", "200"]
    assert repeated[1] == first[1]
    assert "mzxid" not in by_another[1] + expired[1]
    assert found["stat"]["version"] == 1


class StepClock:
    """A clock that can be set to another date."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms()

    def wall_ms(self) -> int:
        return self._system.wall_ms() + self.ahead_ms


async def test_a_watch_ends_with_its_token_by_the_date() -> None:
    """Nothing is told to it any more, whoever changes what."""
    clock = StepClock()
    async with guarded(clock=clock) as cluster:
        await _teams(cluster)
        await cluster.identity(PAY)
        body = {"expires_ms": SystemClock().wall_ms() + 600_000}
        added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", body)
        headers, path = _shown(added["token"]), "/v1/watch?path=/teams/pay&kind=subtree"
        async with cluster.api.stream("GET", path, **headers) as lines:
            await lines.next()
            clock.ahead_ms = 600_000
            await cluster.admin("PUT", "/v1/tree/teams/pay/a", {"data": "2"})
            last = await lines.next()

    assert (last["type"], last["problem"]["code"]) == ("error", "ConnectionLost")


async def test_a_deadlock_and_a_multi_lock_name_nothing_of_others() -> None:
    """Neither the session nor the other locks of another identity that is in it."""
    async with guarded() as cluster:
        common = ("/locks/common*", ("lock", "read"))
        pay = await cluster.identity(common, ("/locks/pay*", ("lock",)))
        web = await cluster.identity(common)
        ids: dict[str, str] = {}
        held = []
        for token, names in ((pay, ["common1", "pay:1"]), (web, ["common2"])):
            session = await cluster.api.post("/v1/sessions", {}, **_shown(token))
            ids[token] = session.body["session_id"]
            body = {"names": names, "session_id": ids[token], "owner": "o", "timeout_ms": 0}
            held.append((await cluster.api.post("/v1/locks", body, **_shown(token))).status)
        seen = await cluster.api.get("/v1/grants?lock=common1", **_shown(web))
        body = {"session_id": ids[pay], "owner": "o"}
        waiting = asyncio.create_task(
            cluster.api.post("/v1/locks/common2", {**body, "timeout_ms": 900}, **_shown(pay))
        )
        queued: list[Any] = []
        while not queued:
            queued = (await cluster.api.get("/v1/locks/common2", **_shown(web))).body["queue"]
        body = {"session_id": ids[web], "owner": "o", "timeout_ms": 900}
        answer = await cluster.api.post("/v1/locks/common1", body, **_shown(web))
        await waiting

    assert held == [200, 200]
    assert [each["group"] for each in seen.body["grants"]] == [[seen.body["grants"][0]["path"]]]
    assert (answer.body["code"], answer.body["cycle_length"]) == ("Deadlock", 2)
    assert [each["session_id"] for each in answer.body["cycle"]] == [ids[web]]
    assert ids[pay] not in str(answer.body)


async def test_a_stream_ends_with_its_token() -> None:
    """Watch, observation and wait, each with a last line that says what to do."""
    targets = {
        ("GET", "/v1/watch?path=/teams/pay&kind=subtree"): None,
        ("GET", "/v1/elections/pay?observe"): None,
        ("POST", "/v1/locks/pay"): {"lease_ms": 9_000, "timeout_ms": 9_000},
    }
    async with guarded() as cluster:
        await _teams(cluster)
        await cluster.identity(PAY, ("/elections", ("read",)), ("/locks", ("lock",)))
        free = {"lease_ms": 60_000}
        assert await cluster.admin("POST", "/v1/locks/pay", free)
        expires_ms = SystemClock().wall_ms() + 900
        body = {"expires_ms": expires_ms}
        added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", body)
        shown = {**_shown(added["token"]), "Accept": "application/x-ndjson"}

        async def last(method: str, path: str, body: Any) -> Any:
            async with cluster.api.stream(method, path, body, **shown) as lines:
                found = None
                while (line := await lines.next()) is not None:
                    found = line
                return found

        ends = await asyncio.gather(*[last(*key, body) for key, body in targets.items()])

    assert [each["problem"]["code"] for each in ends] == ["ConnectionLost"] * 3
    assert all("has expired" in each["problem"]["detail"] for each in ends)
    assert SystemClock().wall_ms() >= expires_ms


async def test_what_a_connection_has_proved_counts_while_nothing_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is proved once; not beyond the date of its token, nor beyond a change of the rights."""
    async with guarded() as cluster, speaking(cluster.api.server.port) as speaker:
        token = await cluster.identity(PAY)
        access = cluster.api.member.access
        proofs = []
        asked = access._known
        monkeypatch.setattr(access, "_known", lambda *shown: proofs.append(shown) or asked(*shown))
        shown = {"authorization": f"Bearer {token}"}
        statuses = [(await speaker.call("GET", "/v1/access/me", **shown)).status]
        proofs.clear()
        statuses.append((await speaker.call("GET", "/v1/access/me", **shown)).status)
        assert proofs == []
        me = await access.caller(shown["authorization"], (), SystemClock().monotonic_ms() + 9_000)
        proof = access.proof(shown["authorization"], me)
        assert proof is not None
        counts = [access.holds(proof), access.holds(proof._replace(expires_ms=1))]
        await cluster.admin("DELETE", f"/v1/access/tokens/{token.split('_')[1]}")
        counts.append(access.holds(proof))
        statuses.append((await speaker.call("GET", "/v1/access/me", **shown)).status)

    assert (statuses, counts) == ([200, 200, 401], [True, False, False])
    assert token not in repr(proof)


async def test_a_name_in_a_certificate_proves_an_identity() -> None:
    """If it is a subject of one; a token that is shown beside it counts more."""
    name = "coordinator://main/billing"
    async with guarded() as cluster:
        token = await cluster.identity(PAY)
        subjects = {"subjects": [f"cert:{name}"], "roles": ["who1"]}
        await cluster.admin("PUT", "/v1/access/identities/billing", subjects)
        access, until_ms = cluster.api.member.access, SystemClock().monotonic_ms() + 9_000

        by_name = await access.caller(None, ("coordinator://main/other", name), until_ms)
        by_both = await access.caller(f"Bearer {token}", (name,), until_ms)
        with pytest.raises(AuthFailedError, match="credential is needed"):
            await access.caller(None, ("coordinator://main/other",), until_ms)
        with pytest.raises(AuthFailedError, match="not known"):
            await access.caller("Bearer nonsense", (name,), until_ms)

    assert (by_name.identity, by_name.credential) == ("billing", f"cert:{name}")
    assert by_both.identity == "who1"


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
        for number in range(200):
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


async def test_a_token_appears_nowhere_but_in_its_one_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not in logs, errors, lists, metrics, status; whatever it is shown for."""
    caplog.set_level(logging.DEBUG)
    messages: list[str] = []
    async with guarded() as cluster, speaking(cluster.api.server.port) as speaker:
        token = await cluster.identity(PAY)
        wrong = token[:-5] + "AAAAA"
        for shown in (cluster.root, token, wrong):
            for path in (
                "/v1/status", "/v1/tree/no", "/v1/access/me", "/v1/access/identities",
                "/v1/access/roles", "/metrics", "/v1/nothing", "/v1/sessions?limit=x",
            ):  # fmt: skip
                reply = await cluster.api.get(path, **_shown(shown))
                messages += [reply.raw.decode(), str(reply.headers)]
        speaker.send(frames.Credential(f"Bearer {token}"))
        messages.append(repr(await speaker.call("GET", "/v1/tree/no")))
        messages.append(repr(cluster.api.member.access.__dict__))
    messages += [record.getMessage() for record in caplog.records] + [caplog.text]

    for secret in (token, wrong, cluster.root):
        assert secret[-43:] not in "\n".join(messages)


async def test_callers_without_a_credential_have_the_roles_of_anonymous() -> None:
    """401 where these end; while access is off a known token counts already."""
    async with serving() as api:
        rules = {"rules": [{"prefix": "/open", "verbs": ["read", "write"]}]}
        await api.put("/v1/access/roles/open", rules)
        await api.put("/v1/access/identities/anonymous", {"roles": ["open"]})
        await api.put("/v1/access/identities/early", {"roles": ["open"]})
        early = (await api.post("/v1/access/identities/early/tokens", {})).body["token"]
        before = (await api.get("/v1/access/me", **_shown(early))).body
        stranger = await api.get("/v1/access/me", **_shown("co_unknown00_" + "A" * 43))
        await api.post("/v1/access/init", {})

        made = await api.post("/v1/tree/open", {"data": "x"})
        found = await api.get("/v1/tree/open")
        closed = await api.post("/v1/tree/closed", {"data": "x"})

    assert (before["identity"], before["is_on"], stranger.status) == ("early", False, 200)
    assert (made.status, found.status, closed.status) == (201, 200, 401)
    assert "needs write on /closed" in closed.body["detail"]


@pytest.mark.parametrize("header", ["Bearer", "Basic YTpi", "bearer co_x", "Bearer  ", "co_x", "é"])
async def test_what_is_no_bearer_token_is_refused(header: str) -> None:
    """With the challenge that says what is expected."""
    async with guarded() as cluster:
        reply = await cluster.api.get("/v1/status", Authorization=header)
        twice = await _twice(cluster.api, cluster.root)

    assert reply.status == twice == 401
    assert reply.headers["WWW-Authenticate"] == 'Bearer realm="coordinator"'


async def _twice(api: Api, token: str) -> int:
    headers = [("Authorization", f"Bearer {token}")] * 2
    async with api.session.get(f"{api.server.url}/v1/status", headers=headers) as response:
        return response.status
