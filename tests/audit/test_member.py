"""The audit log of a member: what is forced and refused, by whom, from where, and no more."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
from typing import Any, get_args

import aiohttp
import pytest
from click.testing import CliRunner

from coordinator.cli.main import cli
from coordinator.clock import SystemClock
from coordinator.model.access import NOBODY, Rule, Verb
from coordinator.node.config import AuditConfig, Config, HttpConfig, MemberConfig
from coordinator.node.server import Server
from coordinator.service.reporting.audit_trail import LINES
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.access.operations import Change
from coordinator.state.commands import (
    AddToken,
    DropIdentity,
    DropRole,
    DropToken,
    InitAccess,
    PutIdentity,
    PutRole,
    SetAccess,
)
from tests.audit.audited import lines, verdict
from tests.wire.test_credentials import StepClock


class Audited:
    """One member on disk with an audit log, and plain HTTP to it."""

    def __init__(self, path: Path) -> None:
        self.log = path / "audit.jsonl"
        self.config = Config(
            member=MemberConfig(data_dir=str(path / "data")),
            http=HttpConfig(bind_port=0, shutdown_grace_ms=100),
            audit=AuditConfig(target="file", file=str(self.log)),
        )
        self.clock = StepClock()
        self.server = Server(self.config, clock=self.clock)

    async def __aenter__(self) -> Audited:
        self.server = Server(self.config, clock=self.clock)
        await self.server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop()

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        async with (
            aiohttp.ClientSession() as http,
            http.request(method, self.server.url + path, json=body, headers=headers) as response,
        ):
            return response.status, await response.json()

    def noted(self, event: str) -> list[Any]:
        return [each for each in lines(self.log) if each["event"] == event]


async def lose_a_lock(member: Audited) -> Any:
    """Take a lock, have it revoked by a person, and write under it too late."""
    _, opened = await member.call("POST", "/v1/sessions", {"timeout_ms": 60_000, "label": "x"})
    body = {"session_id": opened["session_id"]}
    _, granted = await member.call("POST", "/v1/locks/pay", body)
    fields = {"by": "ann", "reason": "it hangs\n{"}
    headers = {"Coordinator-Client-Id": "c-1", "Coordinator-Request-Number": "1"}
    status, _ = await member.call("POST", "/v1/locks/pay/revoke", fields, **headers)
    assert status == 200
    token = granted["grant"]["fencing_token"]
    late = {"data": "a-value", "if_held": {"lock": "pay", "fencing_token": token}}
    status, _ = await member.call("POST", "/v1/tree/paid", late)
    assert status == 410
    return opened["session_id"]


async def test_what_is_forced_and_refused_has_lines(tmp_path: Path) -> None:
    """By the member that applied it, with its zxid, and by the one that was asked."""
    async with Audited(tmp_path) as member:
        session_id = await lose_a_lock(member)
        await member.call("PATCH", "/v1/limits", {"limits": {"children_max": 99}, "by": "ann"})
        await member.call("DELETE", f"/v1/sessions/{session_id}?by=bob&failure=left")
        await member.call("POST", "/v1/tree/locks/x", {"mode": "container", "parents": "container"})
        await member.call("DELETE", "/v1/tree/locks/x")

    assert verdict(member.log).broken == ""
    (revoked,) = member.noted("grant.revoked")
    assert revoked["source"] == "applied"
    assert revoked["verb"] == "admin"
    assert revoked["resource"].startswith("/locks/pay/lock-")
    assert revoked["detail"]["reason"] == "it hangs\n{"
    assert revoked["request"] == "c-1/1"
    (asked,) = member.noted("request.revoke")
    assert (asked["address"], asked["outcome"], asked["request"]) == ("127.0.0.1", "done", "c-1/1")
    assert asked["zxid"] >= revoked["zxid"]
    first, limits = member.noted("limits.changed")
    assert first["detail"]["version"] == 1
    assert limits["detail"]["changes"] == {"children_max": [100_000, 99]}
    (late,) = member.noted("write.refused_as_late")
    assert (late["outcome"], late["code"], late["zxid"]) == ("refused", "LockLost", None)
    (ended,) = member.noted("session.ended_by_another")
    assert ended["detail"] == {
        "session_id": session_id,
        "by": "bob",
        "reason": "left",
        "identity": "",
    }
    (deleted,) = member.noted("queue.deleted_by_path")
    assert deleted["resource"] == "/locks/x"
    started, stopped = member.noted("member.started"), member.noted("member.stopped")
    assert (len(started), len(stopped)) == (1, 1)
    assert b"a-value" not in member.log.read_bytes()


async def test_a_line_of_deletes_says_what_was_deleted_and_no_more(tmp_path: Path) -> None:
    """Not the branch that did not run; and all queues at once are not less than one of them."""
    made = {"op": "create", "path": "/locks/x", "mode": "container", "parents": "container"}
    gone = {"op": "delete", "path": "/locks/x"}
    async with Audited(tmp_path) as member:
        assert (await member.call("POST", "/v1/multi", {"operations": [made]}))[0] == 200
        guarded = {
            "conditions": [{"op": "check", "path": "/none"}],
            "then": [gone],
            "otherwise": [{"op": "read", "path": "/locks/x"}],
        }
        assert (await member.call("POST", "/v1/multi", guarded))[0] == 200
        assert member.noted("queue.deleted_by_path") == []

        guarded["conditions"] = [{"op": "check", "path": "/locks/x"}]
        assert (await member.call("POST", "/v1/multi", guarded))[0] == 200
        assert (await member.call("POST", "/v1/multi", {"operations": [made]}))[0] == 200
        assert (await member.call("DELETE", "/v1/tree/locks?recursive"))[0] == 200

        assert (await member.call("POST", "/v1/multi", {"operations": [made]}))[0] == 200
        said = {"by": "ann", "reason": "a new disk"}
        assert (await member.call("POST", "/v1/multi", {"operations": [gone], **said}))[0] == 200

    noted = member.noted("queue.deleted_by_path")
    assert [each["resource"] for each in noted] == ["/locks/x", "/locks", "/locks/x"]
    assert noted[-1]["detail"] == {"paths": ["/locks/x"], "count": 1, **said}


async def test_a_start_writes_no_change_twice(tmp_path: Path) -> None:
    """It applies its log again, and knows what has lines."""
    async with Audited(tmp_path) as member:
        await lose_a_lock(member)
    async with member:
        await member.call("PATCH", "/v1/limits", {"limits": {"children_max": 99}, "by": "ann"})

    applied = [each["index"] for each in lines(member.log) if each["source"] == "applied"]
    assert len(applied) == len(set(applied)) == 3
    assert verdict(member.log).broken == ""


async def test_a_cluster_without_its_data_is_another_one(tmp_path: Path) -> None:
    """Its changes have lines, also if the clock was set back in between: its id is another."""
    async with Audited(tmp_path) as member:
        await member.call("GET", "/v1/limits")
    rmtree(tmp_path / "data")
    member.clock.ahead_ms = -2_000
    async with member:
        await member.call("GET", "/v1/limits")

    first, again = member.noted("limits.changed")
    assert again["time"] < first["time"]
    assert (first["index"], first["zxid"]) == (again["index"], again["zxid"])
    assert len({first["cluster_id"], again["cluster_id"]}) == 2


async def test_a_member_that_ends_at_once_leaves_its_log_to_the_next_life(tmp_path: Path) -> None:
    """Nothing says that it stopped, and the chain goes on."""
    audited = Audited(tmp_path)
    await audited.server.start()
    await audited.call("GET", "/v1/limits")
    await audited.server.abort()
    async with audited:
        pass

    assert len(audited.noted("member.started")) == 2
    assert len(audited.noted("member.stopped")) == 1
    assert verdict(audited.log).broken == ""


async def test_changes_without_lines_get_them_at_the_next_start(tmp_path: Path) -> None:
    """A member may die between applying a change and writing its line."""
    async with Audited(tmp_path) as member:
        await lose_a_lock(member)
    member.log.unlink()
    async with member:
        assert (await member.call("GET", "/v1/limits"))[0] == 200

    assert len(member.noted("grant.revoked")) == 1


async def test_every_change_of_rights_has_a_line_without_its_secrets(tmp_path: Path) -> None:
    """With who made it, by which credential; none of a change that changed nothing."""
    digest, other = sha256(b"a token").digest(), sha256(b"another").digest()
    rules = (Rule("/pay", (Verb.READ, Verb.LOCK)), Rule("@limits", (Verb.ADMIN,)))
    caller = NOBODY
    async with Audited(tmp_path) as member:
        await member.call("GET", "/v1/limits")
        inside = member.server.member

        async def submit(operation: Any) -> Any:
            deadline_ms = SystemClock().monotonic_ms() + 5_000
            committed = await inside.proposer.submit(
                operation, RequestContext(None, deadline_ms, caller=caller)
            )
            return committed.outcome.unwrap()

        await submit(InitAccess("ann", token_id="token0001", digest=digest))
        since = inside._replica.machine.access.token("token0001")
        assert since is not None
        caller = since.caller
        for operation in (
            PutRole("payer", rules), PutRole("payer", rules), PutIdentity("bob", ("payer",)),
            AddToken(
                identity="bob", token_id="token0002", digest=other, expires_ms=0, label="laptop"
            ),
            DropToken("token0002"), DropIdentity("bob"), DropRole("payer"), SetAccess(False),
        ):  # fmt: skip
            await submit(operation)

    noted = [each for each in lines(member.log) if each["resource"] == "@access"]
    assert [each["event"] for each in noted] == [
        "access.turned_on", "role.put", "identity.put", "token.added", "token.dropped",
        "identity.dropped", "role.dropped", "access.turned_off",
    ]  # fmt: skip
    assert noted[1]["detail"]["rules"] == {"/pay": "read,lock", "@limits": "admin"}
    assert {each["identity"] for each in noted[1:]} == {"ann"}
    assert {each["credential"] for each in noted[1:]} == {"token:token0001"}
    assert len({each["zxid"] for each in noted}) == 8
    for secret in (digest, other):
        assert secret.hex().encode() not in member.log.read_bytes()
        assert repr(secret)[2:-1].encode() not in member.log.read_bytes()
    assert set(get_args(Change)) <= set(LINES)


async def test_metrics_say_what_was_written_and_left_out(tmp_path: Path) -> None:
    """And a member without an audit log shows none of that."""
    async with Audited(tmp_path) as member:
        await asyncio.sleep(0)
        shown = member.server.member.render_metrics().decode()
    async with Audited(tmp_path / "second") as other:
        other.config = replace(other.config, audit=AuditConfig())
        await other.server.stop()
        other.server = Server(other.config)
        silent = other.server.member.render_metrics().decode()

    assert "coordinator_audit_left_out_total 0.0" in shown
    assert "coordinator_audit_lines_total" in shown
    assert "coordinator_audit_lines_total 0.0" in silent


async def test_verify_names_the_first_broken_line(tmp_path: Path) -> None:
    """With exit code 1; and with a head that was noted, also a log that was cut."""
    async with Audited(tmp_path) as member:
        await lose_a_lock(member)

    def verified(*options: str) -> Any:
        return CliRunner().invoke(cli, ["audit", "verify", str(member.log), *options])

    good = verified()
    assert good.exit_code == 0, good.output
    head = good.output.split("head ")[1].strip()
    assert verified("--head", head).exit_code == 0
    whole = member.log.read_bytes()
    member.log.write_bytes(whole.replace(b"ann", b"bob", 1))
    broken = verified()
    assert broken.exit_code == 1
    assert "BROKEN: " in broken.output
    member.log.write_bytes(whole[: whole.rstrip().rindex(b"\n") + 1])
    assert verified().exit_code == 0
    assert "which was noted elsewhere" in verified("--head", head).output
    assert verified("--head", "7:x").exit_code == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"target": "disk"}, "one of log, file, stderr, syslog"),
        ({"target": "file"}, "the path of the audit log"),
        ({"target": "syslog", "syslog_address": "loghost"}, "host:port"),
        ({"target": "file", "file": "data/member-1/audit"}, "outside of"),
    ],
)
def test_a_wrong_setting_says_what_was_expected(
    tmp_path: Path, settings: dict[str, str], expected: str
) -> None:
    """At the start, by the name of its key."""
    keys = "\n".join(f"{name} = {json.dumps(value)}" for name, value in settings.items())
    (tmp_path / "member.toml").write_text(f"[audit]\n{keys}\n")

    refused = CliRunner().invoke(cli, ["serve", "--config", str(tmp_path / "member.toml")])

    assert refused.exit_code == 2
    assert expected in refused.output
    assert "[audit]" in refused.output
