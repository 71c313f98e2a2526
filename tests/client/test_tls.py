"""Clients over TLS: both doors, both kinds of client, and what they say when it fails."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator import AsyncClient, Client, Lock, connect
from coordinator.client import Connector, RetryPolicy
from coordinator.client.connecting import FILE_VARIABLES, client_tls
from coordinator.client.http import HttpTransport
from coordinator.client.stream import transport
from coordinator.clock import ManualClock, SystemClock
from coordinator.errors import BadArgumentsError, ConfigError, CoordinatorError, UnavailableError
from coordinator.node.config import Config, HttpConfig
from coordinator.node.server import Server
from coordinator.tls import certificates
from coordinator.tls.files import TlsFiles, list_warning, server_tls
from coordinator.tls.issuing import Authority
from coordinator.tls.lists import first_end
from coordinator.tls.names import URI_BYTES_MAX
from coordinator.tls.transport import TlsTransport
from coordinator.wire.admission import Place
from coordinator.wire.arrival import UNFINISHED_HANDSHAKES_MAX, Arrival
from tests.certificates import Certificates

ONCE = RetryPolicy(tries=1)
"""Says what the first try finds, however long that takes."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certs"))


@asynccontextmanager
async def serving(made: Certificates, *, plain: bool = False, **http: Any) -> AsyncIterator[Server]:
    cert_file, key_file = made.member("1")
    files = {} if plain else {"tls_cert_file": cert_file, "tls_key_file": key_file}
    settings = HttpConfig(bind_port=0, **{**files, **http})
    server = Server.in_memory(replace(Config(), http=settings))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@pytest.mark.parametrize("transport", ["stream", "http"])
async def test_both_kinds_of_client_by_both_doors(made: Certificates, transport: Any) -> None:
    """Data, watches and locks as without TLS; the largest data cross whole."""
    blob = bytes(range(256)) * 4_000
    async with serving(made) as server:
        assert server.url.startswith("https://")
        told = {"ca_file": made.ca_file, "transport": transport}
        async with connect(server.url, **told) as client:
            await client.create("/a", blob)
            assert (await client.get("/a")).data == blob

        def by_threads() -> None:
            with connect(server.url, **told) as client:
                client.set("/a", b"2")
                assert client.get("/a").data == b"2"
                with client.watch("/a") as events:
                    client.set("/a", blob)
                    assert next(iter(events)) is not None
                with Lock(client, "l"):
                    assert client.get("/a").data == blob

        await asyncio.to_thread(by_threads)


async def test_an_https_endpoint_speaks_the_stream(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default does not fall back to HTTP there."""
    monkeypatch.setattr(HttpTransport, "sent", None)
    async with serving(made) as server, connect(server.url, ca_file=made.ca_file) as client:
        assert await client.exists("/") is not None


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "another CA": ({}, "from no CA that this client trusts"),
    "expired": ({}, "the member's certificate has expired"),
    "another name": ({}, "has another name than this endpoint"),
    "plain port": ({"plain": True}, "it does not speak TLS: use http://"),
    "no certificate": ({"needs": True}, "the member wants a certificate of its clients"),
    "a certificate of another CA": ({"needs": True}, "refuses this client's certificate"),
    "an expired certificate": ({"needs": True}, "because it has expired"),
}


@pytest.mark.check
@pytest.mark.parametrize("kind", ["async stream", "async http", "sync stream"])
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_says_what_to_do(made: Certificates, failure: str, kind: str) -> None:
    """By every way that a client has; nothing was sent where that is known."""
    told, said = FAILURES[failure]
    http: dict[str, Any] = {}
    if failure == "another name":
        names = made.member("1", hosts=("db.example",), name="db")
        http["tls_cert_file"], http["tls_key_file"] = names
    if told.get("needs"):
        http["client_ca_file"] = made.ca_file
    other = Certificates(made.folder / "other", authority="other")
    client: dict[str, Any] = {"ca_file": other.ca_file if failure == "another CA" else made.ca_file}
    if failure.startswith(("a cert", "an exp")):
        source, days = (made, -1) if "expired" in failure else (other, 30)
        client["cert_file"], client["key_file"] = source.client("app", days=days)
    async with serving(made, plain="plain" in told, **http) as server:
        if failure == "expired":
            door = server._certificates.door
            assert door is not None
            door.current.context.load_cert_chain(*made.member("1", days=-1, name="old"))
        url = server.url.replace("http:", "https:")
        connector = connect(url, retry=ONCE, transport=kind.split()[1], **client)  # type: ignore[arg-type]
        asking = (
            ask_here(connector) if kind.startswith("async") else asyncio.to_thread(ask, connector)
        )
        with pytest.raises(CoordinatorError) as caught:
            await asking

    assert said in str(caught.value), caught.value


async def ask_here(connector: Connector) -> None:
    async with connector as client:
        await client.exists("/")


def ask(client: Client) -> None:
    with client:
        client.exists("/")


async def test_a_client_certificate_names_its_client(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The door knows the URIs that it verified; who shows none has none."""
    places: list[Place] = []
    take = Arrival.on_secured

    def note(arrival: Arrival, transport: TlsTransport) -> None:
        take(arrival, transport)
        assert arrival._place is not None
        places.append(arrival._place)

    monkeypatch.setattr(Arrival, "on_secured", note)
    http = {"client_ca_file": made.ca_file, "is_client_cert_required": False}
    cert_file, key_file = made.client("payments")
    async with serving(made, **http) as server:
        told: dict[str, Any] = {"ca_file": made.ca_file}
        for more in ({}, {"cert_file": cert_file, "key_file": key_file}):
            async with connect(server.url, **told, **more) as client:
                await client.exists("/")

    assert [place.certificate_names for place in places] == [
        (), ("coordinator://test/clients/payments",),
    ]  # fmt: skip


async def test_a_new_certificate_is_shown_without_a_stop(made: Certificates) -> None:
    """New connections see it, those that are there go on; what cannot be right is not taken."""
    folder = Certificates(made.folder / "rotated")
    async with serving(folder) as server, connect(server.url, ca_file=folder.ca_file) as before:
        await before.exists("/")
        folder.member("1", hosts=("127.0.0.1", "new.example"))
        server.reload_certificates()
        names = await shown(server, folder)
        assert ("DNS", "new.example") in names
        await before.exists("/")
        await asyncio.to_thread((folder.folder / "member-1.key").chmod, 0o644)
        server.reload_certificates()
        assert await shown(server, folder) == names
        [warning] = server.member.status().warnings
        assert "former certificate stays in use: http.tls_key_file: expected mode 0600" in warning
        await asyncio.to_thread((folder.folder / "member-1.key").chmod, 0o600)
        server.reload_certificates()
        assert server.member.status().warnings == ()


async def ask_until_refused(client: AsyncClient) -> None:
    """What is asked before the member parts with a client may be answered."""
    while True:
        await client.exists("/")


async def test_a_revoked_client_is_parted_with(made: Certificates) -> None:
    """Its stream ends, and no other is let in; whose certificate counts goes on."""
    own = Certificates(made.folder / "revoking")
    files = {name: own.client(name) for name in ("good", "bad")}
    http = {"client_ca_file": own.ca_file, "shutdown_grace_ms": 50}
    async with serving(own, **http) as server:
        clients = {
            name: await connect(
                server.url, ca_file=made.ca_file, cert_file=cert_file, key_file=key_file,
                transport="stream", timeout=5.0,
            )
            for name, (cert_file, key_file) in files.items()
        }  # fmt: skip
        for each in clients.values():
            await each.exists("/")
        own.revoke("client-bad")
        server.reload_certificates()

        with pytest.raises(CoordinatorError, match="because it is revoked"):
            await ask_until_refused(clients["bad"])
        await clients["good"].exists("/")
        expiry = await asyncio.to_thread(server.member.metrics.render)
        for each in clients.values():
            await each.close()

    assert b'coordinator_certificate_expiry_timestamp_seconds{shown_to="clients"} 1.' in expiry


@pytest.mark.parametrize("bits", [4_096, 4_097, 16_384])
def test_a_key_that_would_hold_the_loop_is_refused(made: Certificates, bits: int) -> None:
    """An RSA signature of 16,384 bits takes 100 ms."""
    cert_file, key_file = made.rsa_member("1", bits)
    expected = "4096 bits" if bits > 4_096 else "neither, or only one"  # its own is of another kind

    with pytest.raises(ConfigError, match=expected):
        server_tls(TlsFiles(cert_file, key_file), needs_certificate=False)


async def shown(server: Server, made: Certificates) -> list[tuple[str, str]]:
    context = ssl.create_default_context(cafile=made.ca_file)
    host, port = server.url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    names = writer.get_extra_info("peercert")["subjectAltName"]
    writer.close()
    return list(names)


@pytest.mark.check
async def test_a_client_reads_its_certificate_again(made: Certificates) -> None:
    """A program that runs for longer than its certificate goes on, by both transports."""
    own = Certificates(made.folder / "app")
    cert_file, key_file = own.client("app")
    async with serving(made, client_ca_file=own.ca_file) as server:
        for transport in ("stream", "http"):
            client = await connect(
                server.url, ca_file=made.ca_file, cert_file=cert_file, key_file=key_file,
                transport=transport, timeout=2.0,
            )  # fmt: skip
            own.client("app", days=-1)
            with pytest.raises(CoordinatorError, match="because it has expired"):
                await client.exists("/")
            own.client("app")
            await client.exists("/")
            await client.close()


async def test_an_expired_certificate_is_refused_at_the_start(made: Certificates) -> None:
    """Every client would refuse it."""
    cert_file, key_file = made.member("1", days=-1, name="old")
    with pytest.raises(ConfigError, match=r"http\.tls_cert_file: .*its certificate has expired"):
        async with serving(made, tls_cert_file=cert_file, tls_key_file=key_file):
            pass


async def test_a_certificate_that_expires_soon_is_a_warning(made: Certificates) -> None:
    """In the status, and in the log at the start."""
    cert_file, key_file = made.member("1", days=3, name="soon")
    async with serving(made, tls_cert_file=cert_file, tls_key_file=key_file) as server:
        [warning] = server.member.status().warnings

    assert "member 1: the certificate of [http] expires at" in warning


def test_a_revocation_list_that_expires_soon_is_a_warning(
    made: Certificates, tmp_path: Path
) -> None:
    """In its last quarter: no certificate of its CA counts once it is out of date."""
    day_ms, authority, ca_file = 86_400_000, Authority.made("soon", 40), tmp_path / "ca.pem"
    ca_file.write_bytes(authority.issued().certificate + authority.revocations([1]))
    cert_file, key_file = made.member("1")
    files = TlsFiles(cert_file, key_file, ca_file=str(ca_file))

    end = server_tls(files, needs_certificate=True).list_end

    assert end is not None
    assert abs(end.expires_ms - SystemClock().wall_ms() - 40 * day_ms) < 120_000
    for days, expected in ((11, ""), (9, "expires at"), (-1, "expired at")):
        said = list_warning("the file", end, end.expires_ms - days * day_ms)
        assert expected in said
        assert bool(said) is bool(expected)
    http = HttpConfig(tls_cert_file=cert_file, tls_key_file=key_file, client_ca_file=str(ca_file))
    clock = ManualClock(wall_ms=end.expires_ms - day_ms)
    warnings = certificates.Certificates(Config(http=http), clock, has_members=False).warnings()
    assert "the revocation list in http.client_ca_file expires at" in " ".join(warnings)
    assert first_end(authority.issued().certificate) is None


async def test_what_is_off_is_a_warning(
    made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """In the status and in the log, each by its setting; with a certificate TLS is not off."""
    told = {"bind_host": "0.0.0.0", "tls": "off", "access": "off"}
    async with serving(made, plain=True, **told) as server:
        tls, access = server.member.status().off
    async with serving(made, bind_host="0.0.0.0") as server:
        assert server.member.status().off == ()

    assert tls.startswith("http.tls is off: ")
    assert access.startswith("http.access is off: ")
    assert tls in caplog.text
    assert access in caplog.text


@pytest.mark.parametrize("what", ["request", "stream"])
async def test_who_speaks_no_tls_is_told_so(made: Certificates, what: str) -> None:
    """By the words of HTTP, which a client of ours repeats."""
    async with serving(made) as server:
        url = server.url.replace("https:", "http:")
        if what == "stream":
            async with connect(url, timeout=2.0) as client:
                with pytest.raises(BadArgumentsError, match="this port speaks TLS: use https://"):
                    await client.exists("/")
            return
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n")
        answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    said = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert "this port speaks TLS" in said["detail"]


@pytest.mark.parametrize("sent", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
async def test_an_unfinished_handshake_has_the_deadline_of_a_header(
    made: Certificates, sent: bytes
) -> None:
    """Who sends it byte by byte is closed like who sends a header so."""
    async with serving(made, header_deadline_ms=300) as server:
        host, port = server.url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(sent)
        async with asyncio.timeout(5):
            assert await reader.read() == b""
        writer.close()


async def test_a_crowd_of_unfinished_handshakes_keeps_nobody_out(made: Certificates) -> None:
    """The oldest make room; a client that goes on gets in."""
    async with serving(made, header_deadline_ms=60_000) as server:
        host, port = server.url.removeprefix("https://").split(":")
        crowd = [
            await asyncio.open_connection(host, int(port))
            for _ in range(UNFINISHED_HANDSHAKES_MAX + 20)
        ]
        for _, writer in crowd:
            writer.write(b"\x16\x03\x01\x02\x00\x01")
        async with connect(server.url, ca_file=made.ca_file) as client:
            await client.exists("/")
        for _, writer in crowd:
            writer.close()


async def test_a_server_that_dribbles_its_handshake_is_given_up(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of it has one deadline, not each byte."""
    monkeypatch.setattr(transport, "_CONNECT_S_MAX", 0.2)

    async def dribble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x16\x03\x03\x40\x00\x02")
        with suppress(OSError):
            while not writer.is_closing():
                await asyncio.sleep(0.02)
                writer.write(b"\x00")

    listener = await asyncio.start_server(dribble, "127.0.0.1", 0)
    async with listener:
        url = f"https://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with connect(
            url, ca_file=made.ca_file, transport="stream", retry=RetryPolicy(tries=1)
        ) as client:
            with pytest.raises(UnavailableError, match=r"cannot connect within 0\.2 s"):
                await client.exists("/")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"ca_file": "/nowhere"}, "ca_file: cannot read /nowhere"),
        ({"cert_file": "/nowhere"}, "key_file: expected a file beside cert_file"),
        ({"endpoints": "http://127.0.0.1:1", "ca_file": "x"}, "expected https:// endpoints beside"),
    ],
)
def test_files_are_looked_at_by_connect(arguments: dict[str, str], said: str) -> None:
    """Before anything is sent, and by the name of the argument."""
    with pytest.raises(BadArgumentsError, match=said):
        connect(**{"endpoints": "https://127.0.0.1:1", **arguments})  # type: ignore[arg-type]


def test_an_empty_name_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of the environment either, which is for another cluster."""
    for variable in FILE_VARIABLES.values():
        monkeypatch.setenv(variable, "/nowhere")
    files = ("", "", "")

    assert client_tls(["https://127.0.0.1:1"], *files) is not None
    assert client_tls(["http://127.0.0.1:1"], *files) is None
    with pytest.raises(BadArgumentsError, match="/nowhere"):
        client_tls(["https://127.0.0.1:1"])


@pytest.mark.check
async def test_the_command_line_takes_files(made: Certificates) -> None:
    """As options, and from the environment; a wrong one is a mistake in the command."""
    async with serving(made) as server:
        words = [sys.executable, "-m", "coordinator", "get", "/", "--endpoints", server.url]
        for more, env in (
            (["--ca-file", made.ca_file], {}),
            ([], {"COORDINATOR_CA_FILE": made.ca_file}),
        ):
            done = await asyncio.to_thread(
                subprocess.run, [*words, *more], capture_output=True, text=True, env=env
            )
            assert done.returncode == 0, done.stderr
        done = await asyncio.to_thread(
            subprocess.run, [*words, "--ca-file", "/nowhere"], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert "cannot read /nowhere" in done.stderr


async def test_a_revoked_client_without_a_name_is_parted_with(made: Certificates) -> None:
    """Its certificate lets it in where one is needed, though it names nobody here."""
    own = Certificates(made.folder / "nameless")
    context = ssl.create_default_context(cafile=made.ca_file)
    long = "n" * URI_BYTES_MAX  # a longer name counts for nothing
    cert_file, key_file = own._written("nameless", own._authority.issue(f"spiffe://{long}"))
    context.load_cert_chain(cert_file, key_file)
    async with serving(own, client_ca_file=own.ca_file, shutdown_grace_ms=50) as server:
        host, port = server.url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP/1.1" in await reader.readuntil(b"\r\n\r\n")
        own.revoke("nameless")
        server.reload_certificates()

        with suppress(ConnectionError):
            async with asyncio.timeout(5):
                while await reader.read(1_000):
                    pass
        writer.close()


async def test_a_client_revoked_during_its_handshake_is_not_let_in(made: Certificates) -> None:
    """What begins under the former lists and ends under the new ones does not stay, nor is what
    it asked for in the same breath done."""
    own = Certificates(made.folder / "shaking")
    context = ssl.create_default_context(cafile=made.ca_file)
    context.load_cert_chain(*own.client("slow"))
    async with serving(own, client_ca_file=own.ca_file) as server:
        host, port = server.url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(received, sent, server_hostname=host)
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        writer.write(sent.read())
        while True:
            received.write(await reader.read(20_000))
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                pass
        own.revoke("client-slow")
        server.reload_certificates()
        tls.write(b"PUT /v1/tree/slow HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        writer.write(sent.read())

        with suppress(ConnectionError):
            async with asyncio.timeout(5):
                assert await reader.read(20_000) == b""
        writer.close()
        assert server.member._replica.machine.get("/slow") is None
