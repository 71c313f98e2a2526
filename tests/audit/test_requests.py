"""The lines of requests: who was refused what, at both doors, and whose session was ended."""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.audit.event import AuditEvent
from tests.wire.guarded import Cluster, bearer, guarded


class Recording:
    """An audit log of a test, in memory."""

    is_kept = True

    def __init__(self, cluster: Cluster) -> None:
        self.events: list[AuditEvent] = []
        cluster.api.member.audit = self

    def note(self, event: AuditEvent) -> None:
        self.events.append(event)

    def figures(self) -> Mapping[str, float]:
        return {}


async def test_a_refusal_says_who_wanted_what_by_which_token() -> None:
    """And which token was shown in vain, by its id; the path, never the query."""
    async with guarded() as cluster:
        token = await cluster.identity(("/pay", ("read",)))
        log = Recording(cluster)
        await cluster.api.post("/v1/tree/pay/x?raw", {"data": "x"}, **bearer(token))
        await cluster.api.post("/v1/tree/pay/x", {"data": "x"}, **bearer(token))
        await cluster.api.get("/v1/tree/pay?stale=1", **bearer(token[:-3] + "AAA"))
        await cluster.api.get("/v1/status")
        await cluster.api.get("/v1/tree/pay/none", **bearer(token))

    token_id = token.split("_")[1]
    write, wrong, nobody = log.events
    assert (write.event, write.code, write.outcome) == ("request.refused", "NoAuth", "refused")
    assert (write.identity, write.credential) == ("who1", f"token:{token_id}")
    assert (write.verb, write.resource) == ("write", "/pay/x")
    assert (wrong.code, wrong.identity, wrong.resource) == ("AuthFailed", "", "/v1/tree/pay")
    assert wrong.detail["token_id"] == token_id
    assert (nobody.code, nobody.detail["operation"]) == ("AuthFailed", "status")


async def test_a_stream_that_ends_for_want_of_a_right_is_a_refusal() -> None:
    """Its status was 200; its last line is what counts."""
    async with guarded() as cluster:
        headers = bearer(await cluster.identity(("/pay", ("read", "watch"))))
        await cluster.admin("POST", "/v1/tree/pay", {"data": "1"})
        async with cluster.api.stream("GET", "/v1/watch?path=/pay", **headers) as lines:
            await lines.next()
            log = Recording(cluster)
            await cluster.admin("PUT", "/v1/access/roles/who1", {"rules": []})
            await cluster.admin("PUT", "/v1/tree/pay", {"data": "2"})
            assert (await lines.next())["problem"]["code"] == "NoAuth"
            assert await lines.next() is None

    ended, changed = sorted(log.events, key=lambda each: each.outcome, reverse=True)
    assert (changed.event, changed.outcome) == ("request.put_role", "done")
    assert (ended.event, ended.detail["status"]) == ("request.refused", 403)
    assert ended.identity == "who1"


async def test_the_end_of_anothers_session_is_noted_whatever_is_said() -> None:
    """By the identities; one's own is one's own business."""
    async with guarded() as cluster:
        token = await cluster.identity(("/locks", ("lock",)))
        sessions = [
            (await cluster.api.post("/v1/sessions", {}, **bearer(token))).body["session_id"]
            for _ in range(2)
        ]
        log = Recording(cluster)
        await cluster.api.delete(f"/v1/sessions/{sessions[0]}", **bearer(token))
        await cluster.admin("DELETE", f"/v1/sessions/{sessions[1]}")
        await cluster.admin("DELETE", f"/v1/sessions/{sessions[1]}")

    (ended,) = log.events
    assert ended.event == "session.ended_by_another"
    assert ended.identity != "who1"
    assert ended.detail["session_id"] == sessions[1]
    assert ended.detail["identity"] == "who1"


async def test_who_asked_to_finish_an_upgrade_is_noted() -> None:
    """Also where nothing came of it: at the newest level there is nothing to finish."""
    async with guarded() as cluster:
        log = Recording(cluster)
        await cluster.admin("POST", "/v1/upgrade/finish", {"by": "ann"})

    (asked,) = log.events
    assert (asked.event, asked.outcome, asked.verb) == ("request.finish_upgrade", "done", "admin")
    assert asked.credential


async def test_an_expired_token_is_no_wrong_one() -> None:
    """Its holder had all of it; he and the audit log are told that it has expired, and whose."""
    async with guarded() as cluster:
        await cluster.identity(("/pay", ("read",)))
        added = await cluster.admin("POST", "/v1/access/identities/who1/tokens", {"expires_ms": 1})
        log = Recording(cluster)
        token = added["token"]
        expired = await cluster.api.get("/v1/tree/pay", **bearer(token))
        guessed = await cluster.api.get("/v1/tree/pay", **bearer(token[:-3] + "AAA"))

    assert (expired.status, guessed.status) == (401, 401)
    assert "has expired" in expired.body["detail"]
    assert "expired" not in guessed.body["detail"]
    first, second = log.events
    assert (first.detail["reason"], first.detail["identity"]) == ("expired", "who1")
    assert "reason" not in second.detail


async def test_who_forces_a_release_is_on_record_by_his_identity() -> None:
    """Whatever he calls himself: a text that anybody may write is no attribution."""
    async with guarded() as cluster:
        token = await cluster.identity(("/", ("admin",)), ("@limits", ("admin",)))
        mine = await cluster.admin("POST", "/v1/sessions", {})
        body = {"session_id": mine["session_id"], "timeout_ms": 0}
        await cluster.admin("POST", "/v1/locks/a", body)
        fields = {"by": "ann", "reason": "it hangs"}
        revoked = await cluster.api.post("/v1/locks/a/revoke", fields, **bearer(token))
        change = {"limits": {"sessions_max": 60_000}, "by": "ann"}
        limits = await cluster.api.call("PATCH", "/v1/limits", change, headers=bearer(token))
        ended = await cluster.admin("GET", "/v1/grants?lock=a")

    assert (revoked.status, limits.status) == (200, 200), (revoked, limits)
    assert limits.body["by"] == "who1 (ann)"
    assert [each["by"] for each in ended["grants"]] == ["who1 (ann)"]
