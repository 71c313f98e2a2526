"""Tokens and certificates at the door: replaced, revoked, expired, repeated."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from coordinator.clock import SystemClock
from coordinator.errors import AuthFailedError
from coordinator.wire.stream import frames
from tests.wire.guarded import bearer, guarded
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import speaking
from tests.wire.teams import PAY, make_teams


async def test_a_revoked_token_is_refused_at_once_and_its_stream_ends() -> None:
    """Its watch, its next request, and what it has open."""
    async with guarded() as cluster:
        await make_teams(cluster)
        token = await cluster.identity(PAY)
        session = (await cluster.api.post("/v1/sessions", {}, **bearer(token))).body["session_id"]
        path = "/v1/watch?path=/teams/pay&kind=subtree"
        async with cluster.api.stream("GET", path, **bearer(token)) as lines:
            await lines.next()
            await cluster.admin("DELETE", f"/v1/access/tokens/{token.split('_')[1]}")
            last = await lines.next()
        reply = await cluster.api.get("/v1/tree/teams/pay", **bearer(token))
        found = await cluster.admin("GET", "/v1/sessions")

    assert last["problem"]["code"] == "AuthFailed"
    assert (reply.status, reply.code, reply.body["definite"]) == (401, "AuthFailed", True)
    assert session not in {each["session_id"] for each in found["sessions"]}


async def test_a_token_is_replaced_without_the_end_of_its_sessions() -> None:
    """The heartbeat under the new token keeps the session when the old one is revoked."""
    async with guarded() as cluster:
        old = await cluster.identity(PAY)
        session = (await cluster.api.post("/v1/sessions", {}, **bearer(old))).body["session_id"]
        new = (await cluster.admin("POST", "/v1/access/identities/who1/tokens", {}))["token"]

        beat = await cluster.api.post(f"/v1/sessions/{session}/heartbeat", {}, **bearer(new))
        await cluster.admin("DELETE", f"/v1/access/tokens/{old.split('_')[1]}")
        after = await cluster.api.post(f"/v1/sessions/{session}/heartbeat", {}, **bearer(new))

    assert (beat.status, after.status) == (200, 200)


async def test_a_token_ends_by_its_date() -> None:
    """Judged by the clock of the member that is asked."""
    async with guarded() as cluster:
        await cluster.identity(PAY)
        statuses = []
        for ends_in_ms in (60_000, -1):
            expires_ms = SystemClock().wall_ms() + ends_in_ms
            body = {"expires_ms": expires_ms}
            added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", body)
            reply = await cluster.api.get("/v1/access/me", **bearer(added["token"]))
            statuses.append(reply.status)

    assert statuses == [200, 401]


async def test_a_repeat_whose_token_is_gone_is_told_nothing_of_the_first_attempt() -> None:
    """Who shows a token that is not known may be anyone: a number that came is as one that did not.
    The client that sent it knows that its first attempt may have been done."""
    async with guarded() as cluster:
        await make_teams(cluster)
        token = await cluster.identity(PAY)

        async def write(number: str) -> str:
            numbered = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": number}
            headers = {**numbered, **bearer(token)}
            reply = await cluster.api.put("/v1/tree/teams/pay/a", {"data": "2"}, **headers)
            return str(reply.body.get("code", reply.status))

        first = await write("1")
        await cluster.admin("DELETE", f"/v1/access/tokens/{token.split('_')[1]}")
        answers = [first, await write("1"), await write("2")]

    assert answers == ["200", "AuthFailed", "AuthFailed"]


async def test_a_repeat_is_answered_to_who_may_have_the_answer_alone() -> None:
    """Not under a token that has expired meanwhile, not to another identity that knows the number,
    not to one that has lost the right; under the next token of the same identity it is."""
    async with guarded() as cluster:
        await make_teams(cluster)
        await cluster.identity(PAY)
        others = await cluster.identity(PAY, is_new=True)
        tokens = "/v1/access/identities/who1/tokens"
        expires_ms = SystemClock().wall_ms() + 1_500
        short = (await cluster.admin("POST", tokens, {"expires_ms": expires_ms}))["token"]
        following = (await cluster.admin("POST", tokens, {}))["token"]

        async def write(token: str, data: str = "2") -> tuple[str, str]:
            numbered = {"Coordinator-Client-Id": "c1", "Coordinator-Request-Number": "1"}
            headers = {**numbered, **bearer(token)}
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
        await make_teams(cluster)
        await cluster.identity(PAY)
        body = {"expires_ms": SystemClock().wall_ms() + 600_000}
        added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", body)
        headers, path = bearer(added["token"]), "/v1/watch?path=/teams/pay&kind=subtree"
        async with cluster.api.stream("GET", path, **headers) as lines:
            await lines.next()
            clock.ahead_ms = 600_000
            await cluster.admin("PUT", "/v1/tree/teams/pay/a", {"data": "2"})
            last = await lines.next()

    assert (last["type"], last["problem"]["code"]) == ("error", "ConnectionLost")


async def test_a_stream_ends_with_its_token() -> None:
    """Watch, observation and wait, each with a last line that says what to do."""
    targets = {
        ("GET", "/v1/watch?path=/teams/pay&kind=subtree"): None,
        ("GET", "/v1/elections/pay?observe"): None,
        ("POST", "/v1/locks/pay"): {"lease_ms": 9_000, "timeout_ms": 9_000},
    }
    async with guarded() as cluster:
        await make_teams(cluster)
        await cluster.identity(PAY, ("/elections", ("read",)), ("/locks", ("lock",)))
        free = {"lease_ms": 60_000}
        assert await cluster.admin("POST", "/v1/locks/pay", free)
        expires_ms = SystemClock().wall_ms() + 900
        body = {"expires_ms": expires_ms}
        added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", body)
        shown = {**bearer(added["token"]), "Accept": "application/x-ndjson"}

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
                reply = await cluster.api.get(path, **bearer(shown))
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
        before = (await api.get("/v1/access/me", **bearer(early))).body
        stranger = await api.get("/v1/access/me", **bearer("co_unknown00_" + "A" * 43))
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
