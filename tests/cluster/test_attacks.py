"""Attacks on three real members, as who reaches them on the network would try them.

Each asks what it costs the others: all members go on in the same term, a client keeps
its session, and what the attacker was told is no more than its rights.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest

from coordinator import connect
from coordinator.client import AsyncClient, Rule, Verb
from coordinator.client.ending_sessions import end_session
from coordinator.errors import CoordinatorError
from coordinator.raft.network import messages as say
from coordinator.raft.network.frames import frame
from coordinator.raft.network.messages import NEWEST
from coordinator.raft.network.seals import SEAL_BYTES, Seals
from coordinator.recipes import Lock
from tests.audit.audited import lines, verdict
from tests.cluster.test_audit import AuditedCluster
from tests.patience import patient
from tests.raft.network.relay import TO_ACCEPTOR, Passage, Relay, pass_on

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
JSON = "application/json"
MSGPACK = "application/msgpack"
HIDDEN = "127.0.0.2"
"""Where members really listen; at their addresses there are relays."""


UNHURRIED = {"raft": {"election_timeout_ms_min": 1_500, "election_timeout_ms_max": 3_000}}
"""So that a machine that does other work deposes no leader; one bomb of former releases did."""


class AttackedCluster(AuditedCluster):
    """What an attack must leave as it was."""

    def terms(self) -> list[int]:
        found = [self.status(each) for each in self.ids]
        return [each["term"] for each in found if each is not None]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run; afterwards all members do still, without a traceback, in the term they had."""
        try:
            self.start()
            await self.wait_ready_async()
            before = await asyncio.to_thread(self.terms)
            yield
            await self.wait_ready_async()
            after = await asyncio.to_thread(self.terms)
            assert after == before, "nobody was deposed"
            assert all(self.is_running(each) for each in self.ids)
            assert self.tracebacks() == []
        finally:
            self.stop()


class RelayedCluster(AttackedCluster):
    """Members that reach each other by relays that know no secret."""

    def _write_config(self, member_id: str) -> None:
        super()._write_config(member_id)
        config = self.directory / f"member-{member_id}.toml"
        named = f'member_id = "{member_id}"\n'
        bound = named + f'member_bind_host = "{HIDDEN}"\n'
        config.write_text(config.read_text().replace(named, bound, 1))


@asynccontextmanager
async def attacked(tmp_path: Path) -> AsyncIterator[AttackedCluster]:
    """Three members that reach each other directly, whatever else this process does."""
    cluster = AttackedCluster(tmp_path / "cluster", settings=UNHURRIED)
    async with cluster.running():
        yield cluster


@asynccontextmanager
async def relayed(tmp_path: Path) -> AsyncIterator[tuple[AttackedCluster, dict[str, Relay]]]:
    """Three members, and the relay before each. The relays are in this process: what it does
    besides delays what the members say to each other, and may depose a leader."""
    cluster = RelayedCluster(tmp_path / "cluster", settings=UNHURRIED)
    relays = {each: Relay(port, HIDDEN) for each, port in cluster.member_ports.items()}
    for member_id, relay in relays.items():
        await relay.start(cluster.member_ports[member_id])
    try:
        async with cluster.running():
            yield cluster, relays
    finally:
        for relay in relays.values():
            await relay.stop()


@asynccontextmanager
async def victim(cluster: AttackedCluster) -> AsyncIterator[AsyncClient]:
    """A client with a lease of ten seconds, which it must not lose."""
    async with connect(cluster.endpoints, session_timeout=10) as client:
        grant = await Lock(client, "victim").acquire()
        yield client
        await grant.verify()
        await grant.release()


async def told(
    url: str, head: str, body: bytes = b"", source: str = "127.0.0.1"
) -> tuple[int, str]:
    """Send a request byte for byte from an address; return the status and all of the answer."""
    port = int(url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    try:
        async with asyncio.timeout(20):
            answer = await reader.read(65_536)
    finally:
        writer.transport.abort()
    words = answer.split(b" ", 2)
    return (int(words[1]) if len(words) > 1 else 0), answer.decode(errors="replace")


def post(path: str, content_type: str, body: bytes, more: str = "") -> str:
    return (
        f"POST {path} HTTP/1.1\nHost: 127.0.0.1\nContent-Type: {content_type}\n"
        f"Content-Length: {len(body)}{more}"
    )


# --- the members' port


async def test_who_relays_between_members_can_cut_the_line_and_no_more(tmp_path: Path) -> None:
    """It forges terms, entries and a leader's claim in both directions, and repeats what it saw."""
    forged = [
        say.TermNotice(2**63 - 1),
        say.Append(term=1, epoch=0, commit_index=0, prev_index=0, prev_term=0, entries=()),
    ]
    made = [
        each
        for message in forged
        for each in (
            frame(NEWEST.encode(message)),
            frame(NEWEST.encode(message), bytes(SEAL_BYTES)),
            Seals(bytes(32)).sealed_frame(NEWEST.encode(message)),
        )
    ]
    deeds = 0

    def deed(target: str, to: str, passage: Passage, direction: str, whole: bytes) -> list[bytes]:
        nonlocal deeds
        if not passage.is_sealed(direction) or len(passage.heard[direction]) % 10:
            return [whole]
        _, _, _, _, dialer, *_ = msgpack.unpackb(passage.heard[TO_ACCEPTOR][0][4:])
        if target not in (to, dialer):
            return [whole]
        deeds += 1
        return [made[deeds % len(made)], whole] if deeds % 2 else [whole, whole]

    async with relayed(tmp_path) as (cluster, relays), victim(cluster) as client:
        await client.create("/real", b"0")
        leader = await asyncio.to_thread(cluster.leader)
        target = "2" if leader == "1" else "1"
        for member_id, relay in relays.items():
            relay.deed = partial(deed, target, member_id)
        for number in range(100):
            await client.set("/real", b"%d" % number)
            await asyncio.sleep(0.02)
        for relay in relays.values():
            relay.deed = pass_on
        for member_id in cluster.ids:
            async with connect(cluster.url(member_id), timeout=20) as reader:
                assert (await reader.get("/real")).data == b"99"

    assert deeds >= 5, "it was on the path"


async def test_strangers_at_the_members_port_get_nothing(tmp_path: Path) -> None:
    """Silence, noise, HTTP, TLS, and frames without a handshake, by hundreds of connections."""
    hello = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    tls = context.wrap_bio(ssl.MemoryBIO(), hello)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    noises = [
        b"", os.urandom(4_000), b"GET / HTTP/1.1\r\n\r\n", hello.read(), b"\xff" * 64,
        frame(NEWEST.encode(say.TermNotice(2**63 - 1))) * 10, (2**31 - 1).to_bytes(4, "big"),
    ]  # fmt: skip
    async with attacked(tmp_path) as cluster, victim(cluster):
        kept = []
        for number in range(420):
            host, port = ("127.0.0.1", cluster.member_ports["13"[number % 2]])
            try:
                reader, writer = await asyncio.open_connection(host, port)
            except OSError:
                continue
            writer.write(noises[number % len(noises)])
            kept.append((reader, writer))
        await asyncio.sleep(2)
        answers = set()
        for reader, writer in kept:
            try:
                async with asyncio.timeout(0.01):
                    answers.add(await reader.read(65_536))
            except (TimeoutError, ConnectionError):
                pass
            writer.transport.abort()

    assert all(len(each) < 200 for each in answers), "a challenge at most"


# --- the clients' port, by who has no rights or while there are none


async def test_bombs_hold_up_nobody(tmp_path: Path) -> None:
    """Bodies of a megabyte that decode to a million things, and deep and endless ones, at routes
    that want little: refused, and the victim notices nothing."""
    bombs = [
        (MSGPACK, b"\xdd\x00\x17\xff\xfb" + b"\x90" * 1_570_000),
        (MSGPACK, b"\xdd\x00\x17\xff\xfb" + b"\x80" * 1_570_000),
        (JSON, b"[" + b"{}," * 500_000 + b"{}]"),
        (JSON, b"[" * 100_000),
        (JSON, b'{"timeout_ms": ' + b"9" * 100_000 + b"}"),
        (MSGPACK, b"\xdf\xff\xff\xff\xff"),
    ]
    async with attacked(tmp_path) as cluster, victim(cluster) as client:
        statuses = []
        for path in ("/v1/sessions", "/v1/tree/x", "/v1/multi", "/v1/locks/x"):
            for content_type, body in bombs:
                head = post(path, content_type, body)
                tries = [told(url, head, body, f"127.0.0.{9 + n}")
                         for n, url in enumerate(cluster.urls)]  # fmt: skip
                for found in await asyncio.gather(*tries, return_exceptions=True):
                    if not isinstance(found, OSError):  # cut while it sent
                        assert not isinstance(found, BaseException), found
                        statuses.append(found[0])
            await client.exists("/")

    assert set(statuses) <= {400, 413, 415, 422, 429}, set(statuses)


async def test_pages_of_others_and_ambiguous_requests_are_refused(tmp_path: Path) -> None:
    """DNS rebinding, forms and plain text of other origins, and requests that two parsers read
    differently."""
    raw = b"x"
    rows = {
        "rebound": "GET /v1/sessions HTTP/1.1\nHost: evil.example",
        "rebound write": post("/v1/sessions", JSON, b"", "\nSec-Fetch-Site: same-origin").replace(
            "Host: 127.0.0.1", "Host: evil.example:7071"
        ),
        "form": post("/v1/sessions", "text/plain", b"{}", "\nOrigin: http://evil.example"),
        "raw": post("/v1/tree/x?raw", "text/plain", raw, "\nOrigin: http://evil.example"),
        "raw octets": post(
            "/v1/tree/x?raw", "application/octet-stream", raw, "\nOrigin: http://evil.example"
        ),
        "empty": post("/v1/sessions", JSON, b"", "\nOrigin: http://evil.example"),
        "cross-site": post("/v1/sessions", JSON, b"{}", "\nSec-Fetch-Site: cross-site"),
        "contender": post(
            "/v1/tree/locks/payroll/x-?raw&mode=persistent_sequential&parents=persistent",
            "application/octet-stream", raw,
        ),
        "two lengths": post("/v1/sessions", JSON, b"{}", "\nContent-Length: 5"),
        "length and chunks": post("/v1/sessions", JSON, b"{}", "\nTransfer-Encoding: chunked"),
        "two hosts": "GET /v1/status HTTP/1.1\nHost: 127.0.0.1\nHost: evil.example",
        "folded": "GET /v1/status HTTP/1.1\nHost: 127.0.0.1\nX: a\n b",
        "absolute": "GET http://evil.example/v1/sessions HTTP/1.1\nHost: evil.example",
        "no host": "GET /v1/sessions HTTP/1.1",
        "dots": "GET /v1/tree/../sessions HTTP/1.1\nHost: 127.0.0.1",
        "nul": "GET /v1/tree/a%00b HTTP/1.1\nHost: 127.0.0.1",
    }  # fmt: skip
    async with attacked(tmp_path) as cluster:
        found = {}
        for name, head in rows.items():
            body = b"{}" if "Content-Length: 2" in head else raw
            found[name] = (await told(cluster.urls[0], head, body))[0]
        async with connect(cluster.endpoints) as client:
            await Lock(client, "payroll").acquire()
            assert (await client.children("/")).children == ("locks",)

    assert all(400 <= status < 500 for status in found.values()), found


async def take_places(port: int, source: str, kept: list[Connection]) -> None:
    """Have 2,100 connections from an address open, as far as the member lets it."""
    kept[:] = [each for each in kept if not each[0].at_eof()]
    while len(kept) < 2_100:
        tries = [
            asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            for _ in range(min(100, 2_100 - len(kept)))
        ]
        made = await asyncio.gather(*tries, return_exceptions=True)
        kept += [each for each in made if not isinstance(each, BaseException)]
        if any(isinstance(each, OSError) for each in made):
            return


async def test_one_address_cannot_take_all_places(tmp_path: Path) -> None:
    """Sessions and connections of one; from another address both go on, and health is answered."""
    async with attacked(tmp_path) as cluster, victim(cluster):
        url = cluster.urls[0]
        body = json.dumps({"timeout_ms": 3_600_000}).encode()
        head = post("/v1/sessions", JSON, body)
        asked = "GET /health/live HTTP/1.1\nHost: 127.0.0.1"
        kept: list[Connection] = []
        ends_s = time.monotonic() + patient(30)
        while True:
            await take_places(cluster.client_ports["1"], "127.0.0.66", kept)
            near = await told(url, asked, source="127.0.0.67")
            other = await told(url, head, body, "127.0.0.67")
            refused = await told(url, head, body, "127.0.0.66")
            if refused[0] != 201 or time.monotonic() > ends_s:
                break  # else the first had said nothing for too long before the last was there
        own, began_s = refused, time.monotonic()
        while own[0] == 503 and time.monotonic() < began_s + 30:
            await asyncio.sleep(0.1)  # it has the spare places, too, for a second each
            own = await told(url, asked, source="127.0.0.66")
        for _, writer in kept:
            writer.transport.abort()

    assert (near[0], other[0], own[0]) == (200, 201, 200), (near, other, own)
    assert refused[0] == 503
    assert "connections_per_address_max" in refused[1]


# --- with access rights


async def test_an_identity_gets_nothing_of_another(tmp_path: Path) -> None:
    """Its paths, its locks, its session, its tokens; and no line of a log can be forged."""
    async with attacked(tmp_path) as cluster, connect(cluster.endpoints) as first:
        root = (await first.init_access("root")).token
        async with connect(cluster.endpoints, token=root) as admin:
            tokens = {}
            for name in ("pay", "web"):
                every = (Verb.READ, Verb.WRITE, Verb.WATCH)
                rules = [Rule(f"/{name}", every), Rule(f"/locks/{name}*", (Verb.LOCK,))]
                await admin.put_role(name, rules)
                await admin.put_identity(name, [name])
                tokens[name] = (await admin.add_token(name)).token
                await admin.create(f"/{name}", b"of " + name.encode())
        async with (
            connect(cluster.endpoints, token=tokens["pay"], session_timeout=10) as pay,
            connect(cluster.endpoints, token=tokens["web"]) as web,
        ):
            grant = await Lock(pay, "pay").acquire()
            refused = await _as_another(web, grant.session_id)
            forged = "maintenance\n2026-11-22 07:00:00 forced release by alice\x1b]0;x\x07"
            async with connect(cluster.endpoints, token=root) as admin:
                await Lock(admin, "kept").acquire()
                await admin.revoke("kept", by="mallory\n", reason=forged)
            children = (await web.children("/")).children
            await grant.verify()
            await grant.release()
        async with connect(cluster.endpoints, token=root) as admin:
            await admin.set_access(is_on=False)  # so that everybody may ask for the term
        paths = [cluster.audit_path(each) for each in cluster.ids]
        deadline_s = time.monotonic() + patient(20)
        while True:  # the last change is noted by all, and what came before it
            noted = [each for path in paths for each in lines(path)]
            changes = [each["event"] for each in noted].count("access.turned_off")
            if changes == len(paths) or time.monotonic() > deadline_s:
                break
            await asyncio.sleep(0.1)
        text = b"".join([each.read_bytes() for each in paths])
        logs = b"".join([cluster.log_path(each).read_bytes() for each in cluster.ids])
        chains = [verdict(path) for path in paths]

    assert set(refused.values()) <= {"NoAuth", "NotOwner", "NoNode"}, refused
    assert children == ("web",)
    assert "request.refused" in {each["event"] for each in noted}
    assert b"\x1b" not in text + logs
    assert b"\n2026-11-22 07:00:00 forced" not in text + logs
    assert not [each.broken for each in chains if each.broken]


async def _as_another(web: AsyncClient, session_id: str) -> dict[str, Any]:
    """Try what is another's; return how each was refused."""
    asks: dict[str, Any] = {
        "read": lambda: web.get("/pay"),
        "write": lambda: web.set("/pay", b"mine"),
        "delete": lambda: web.delete("/pay"),
        "list": lambda: web.children("/pay"),
        "lock": lambda: Lock(web, "pay", timeout=1).acquire(),
        "look at a lock": lambda: web.lock("pay"),
        "revoke": lambda: web.revoke("pay", by="web", reason="mine"),
        "end": lambda: end_session(web, session_id, by="web", reason="mine"),
        "token": lambda: web.add_token("pay"),
        "role": lambda: web.put_role("web", [Rule("/", (Verb.ADMIN,))]),
        "contender": lambda: web.create("/locks/web/x", b""),
    }
    found: dict[str, Any] = {}
    for name, ask in asks.items():
        try:
            found[name] = await ask()
        except CoordinatorError as error:
            found[name] = error.code
    return found
