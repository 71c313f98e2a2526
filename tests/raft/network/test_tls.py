"""Members over TLS on loopback: who is let in, and what both sides say of who is not."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.clock import SystemClock
from coordinator.errors import ConfigError
from coordinator.node.config import Config, MemberConfig
from coordinator.raft.network import messages as say
from coordinator.raft.network.agreement import facts_of_cluster
from coordinator.raft.network.frames import frame
from coordinator.raft.network.handshake import Dialer, Identity
from coordinator.raft.network.securing import ALERT
from coordinator.raft.network.transport import UNPROVED_CALLERS_MAX, TcpTransport
from coordinator.tls import certificates
from coordinator.tls.files import MemberTls, Reloaded
from tests.certificates import Certificates
from tests.raft.network.test_transport import Ear, Network, until

Files = tuple[str, str]


class TlsNetwork(Network):
    """Members with certificates; the cluster has no secret."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.made = Certificates(folder / "certs")
        self.cluster = replace(self.cluster, secret_file=None, tls_ca_file=self.made.ca_file)
        self.tls: dict[int, Reloaded[MemberTls]] = {}

    def certificate(
        self, number: int, files: Files | None = None, ca_file: str | None = None
    ) -> Reloaded[MemberTls]:
        cert_file, key_file = files or self.made.member(str(number))
        member = MemberConfig(member_id=str(number), tls_cert_file=cert_file, tls_key_file=key_file)
        cluster = replace(self.cluster, tls_ca_file=ca_file or self.made.ca_file)
        tls = certificates.of_member(Config(member=member, cluster=cluster))
        assert tls is not None
        return tls

    async def start_tls(
        self, number: int, tls: Reloaded[MemberTls] | None = None, mode: str = "required"
    ) -> tuple[TcpTransport, Ear]:
        self.tls[number] = tls or self.certificate(number)
        transport = TcpTransport(
            self.cluster,
            MemberConfig(member_id=str(number), tls=mode),
            self.raft,
            clock=SystemClock(),
            random=random.Random(number),
            listening_socket=self.sockets[number - 1],
            tls=self.tls[number],
        )
        self.transports.append(transport)
        transport.agree_on(facts_of_cluster(self.cluster))
        ear = Ear()
        await transport.start(ear)
        return transport, ear


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TlsNetwork]:
    network = TlsNetwork(tmp_path)
    yield network
    await network.stop()


async def test_members_talk_over_tls_without_a_secret(network: TlsNetwork) -> None:
    """Both prove themselves by certificates; long messages cross whole and in order."""
    one, one_ear = await network.start_tls(1)
    two, two_ear = await network.start_tls(2)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))

    blob = bytes(range(256)) * 4_096
    sent = [
        say.Append(
            term=1, epoch=2, commit_index=3, prev_index=4, prev_term=5, entries=((1, blob[:size]),)
        )
        for size in (1, 20_000, 1_000_000)
    ]
    for message in sent:
        assert one.send("2", message)
    assert two.send("1", say.TermNotice(7))
    await until(lambda: len(two_ear.messages) == 3 and len(one_ear.messages) == 1)

    assert [message for _, message in two_ear.messages] == sent
    assert one_ear.messages == [("2", say.TermNotice(7))]


async def test_nothing_that_members_say_is_readable_on_the_way(network: TlsNetwork) -> None:
    """A relay sees records of TLS alone, and a byte that it changes ends the connection."""
    heard, target = bytearray(), network.port(2)
    broken = asyncio.Event()
    carrying: list[asyncio.Task[None]] = []

    async def carry(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(65_536):
            heard.extend(data)
            if broken.is_set():
                data = data[:-1] + bytes([data[-1] ^ 1])
            to.write(data)
        to.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", target)
        carrying.append(asyncio.create_task(carry(reader, outer)))
        carrying.append(asyncio.create_task(carry(inner, writer)))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    members = network.cluster.members
    on_the_way = (members[0], replace(members[1], member_port=port))
    facts = facts_of_cluster(network.cluster)
    nowhere = (replace(members[0], member_port=1), members[1])
    network.cluster = replace(network.cluster, members=nowhere)
    two, two_ear = await network.start_tls(2)
    network.cluster = replace(network.cluster, members=on_the_way)
    one, _ = await network.start_tls(1)
    one.agree_on(facts)
    two.agree_on(facts)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))

    one.send(
        "2",
        say.Append(
            term=1,
            epoch=2,
            commit_index=3,
            prev_index=4,
            prev_term=5,
            entries=((1, b"the secret of a znode"),),
        ),
    )
    await until(lambda: bool(two_ear.messages))
    assert b"secret of a znode" not in heard
    broken.set()
    one.send("2", say.TermNotice(7))
    await until(lambda: ("disconnected", "1") in two_ear.events)

    assert len(two_ear.messages) == 1
    server.close()
    for each in carrying:
        each.cancel()


WRONG = ["another cluster", "another CA", "no certificate", "expired"]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_caller_without_the_right_certificate_is_refused(
    network: TlsNetwork, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    """TLS itself refuses it, or the name that it shows; nothing that it says is heard."""
    one, ear = await network.start_tls(1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if wrong == "another CA":
        other = Certificates(network.made.folder / "other", authority="other")
        context.load_cert_chain(*other.member("2"))
    elif wrong == "expired":
        context.load_cert_chain(*network.made.member("2", days=-1))
    elif wrong == "another cluster":
        context.load_cert_chain(*network.made.member("2", cluster="prod"))
    with caplog.at_level(logging.WARNING):
        reader, writer = await asyncio.open_connection("127.0.0.1", network.port(1), ssl=context)
        writer.write(
            frame(Dialer(Identity("test", member_id="2", secret=b""), "1", b"n" * 32).begin())
        )
        with pytest.raises((ssl.SSLError, asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        await until(lambda: "connection refused" in caplog.text)

    writer.close()
    assert not one.is_connected("2")
    assert ear.events == []
    expected = {
        "another cluster": "its certificate is another's: expected the name coordinator://test/2,"
        " found 'coordinator://prod/2'",
        "another CA": "from another CA than that of cluster.tls_ca_file",
        "no certificate": "it came without a certificate",
        "expired": "its certificate has expired",
    }[wrong]
    assert expected in caplog.text


async def test_one_member_cannot_pass_for_another(network: TlsNetwork) -> None:
    """Whoever calls 2 and finds 3's certificate says so in its status, and does not talk."""
    files = network.made.member("3")
    impostor = network.certificate(2)
    impostor.current.server.load_cert_chain(*files)
    impostor.current.client.load_cert_chain(*files)
    one, _ = await network.start_tls(1)
    await network.start_tls(2, impostor)

    await until(lambda: "2" in one.disagreements())

    assert "expected the name coordinator://test/2" in one.disagreements()["2"]
    assert not one.is_connected("2")


async def test_both_say_so_when_one_has_no_tls(network: TlsNetwork, tmp_path: Path) -> None:
    """Neither waits in silence: each names what to set where."""
    one, _ = await network.start_tls(1)
    secret = str(network.secret_file)
    network.cluster = replace(network.cluster, secret_file=secret, tls_ca_file=None)
    two, _ = await network.start(2)

    await until(lambda: "2" in one.disagreements() and "1" in two.disagreements())

    assert "tls_cert_file" in one.disagreements()["2"]
    assert "it speaks TLS, and this member does not" in two.disagreements()["1"]


def append(path: str, more: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes() + Path(more).read_bytes())


def overwrite(path: Path, text: str) -> None:
    path.write_text(text)


async def test_a_new_certificate_counts_for_the_next_connection(network: TlsNetwork) -> None:
    """The CA is replaced by one in a file with both, then certificates, without a stop."""
    one, _ = await network.start_tls(1)
    two, _ = await network.start_tls(2)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))
    new = Certificates(network.made.folder / "new", authority="new")
    append(network.made.ca_file, new.ca_file)
    for tls in network.tls.values():
        tls.maybe_reload()
    Certificates(network.made.folder, authority="new").member("2")
    network.tls[2].maybe_reload()
    assert not network.tls[2].problem

    await two.stop()
    network.sockets[1] = network.bind(network.port(2))
    again, _ = await network.start_tls(2, network.tls[2])

    await until(lambda: one.is_connected("2") and again.is_connected("1"))


async def test_members_get_certificates_one_after_the_other(network: TlsNetwork) -> None:
    """Each restarts twice, first accepting both, then TLS alone; the others stay connected."""
    secret = str(network.secret_file)
    network.cluster = replace(network.cluster, secret_file=secret)
    running: dict[int, TcpTransport] = {}

    async def restart(number: int, tls: str | None) -> None:
        if number in running:
            await running[number].stop()
            network.sockets[number - 1] = network.bind(network.port(number))
        if tls is None:
            running[number], _ = await network.start(number)
        else:
            running[number], _ = await network.start_tls(number, mode=tls)
        if len(running) == 2:
            await until(lambda: running[1].is_connected("2") and running[2].is_connected("1"))

    for tls in (None, "accepted", "required"):
        for number in (1, 2):
            await restart(number, tls)

    assert not running[1].disagreements()
    assert not running[2].disagreements()


async def test_a_revoked_member_loses_its_connection(network: TlsNetwork) -> None:
    """The list is in the file of the CA; what was let in before does not stay."""
    for number in (1, 2):
        network.made.member(str(number))
    one, _ = await network.start_tls(1)
    two, _ = await network.start_tls(2)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))
    network.made.revoke("member-2")
    network.tls[1].maybe_reload()

    await until(lambda: "2" in one.disagreements(), 20)

    assert not one.is_connected("2")
    assert "its certificate is revoked" in one.disagreements()["2"]
    network.tls[2].maybe_reload()
    assert "its certificate is revoked" in network.tls[2].problem


async def test_a_member_revoked_while_it_calls_is_not_let_in(network: TlsNetwork) -> None:
    """Its TLS began under the former list; it proves itself under the new one."""
    one, ear = await network.start_tls(1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(network.made.ca_file)
    context.load_cert_chain(*network.made.member("2"))
    reader, writer = await asyncio.open_connection("127.0.0.1", network.port(1), ssl=context)
    network.made.revoke("member-2")
    network.tls[1].maybe_reload()
    writer.write(frame(Dialer(Identity("test", member_id="2", secret=b""), "1", b"n" * 32).begin()))

    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await reader.readexactly(1)

    writer.close()
    assert not one.is_connected("2")
    assert ear.events == []


async def test_a_certificate_that_cannot_be_right_leaves_the_former(
    network: TlsNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    """A half-written pair is logged, and does not end the member."""
    tls = network.certificate(1)
    before = tls.current
    overwrite(network.made.folder / "member-1.pem", "half")

    tls.maybe_reload()

    assert tls.current is before
    assert "the former certificate stays in use: member.tls_cert_file" in caplog.text
    network.made.member("1")
    tls.maybe_reload()
    assert tls.current is not before
    assert tls.problem == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("key readable", "member.tls_key_file: expected mode 0600"),
        ("other id", "expected a certificate with the name URI:coordinator://test/1"),
        ("other CA", "its certificate is from another CA"),
        ("expired", "its certificate has expired"),
        ("other key", "expected the key of the certificate"),
        ("no CA", "expected certificates of CAs"),
        ("absent", "No such file"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    network: TlsNetwork, change: str, said: str
) -> None:
    """Not at the first connection, and by the name of the setting."""
    made, ca_file = network.made, None
    files = made.member("1")
    if change == "key readable":
        Path(files[1]).chmod(0o640)
    elif change == "other id":
        files = made.member("2")
    elif change == "other CA":
        ca_file = Certificates(made.folder / "other", authority="other").ca_file
    elif change == "expired":
        files = made.member("1", days=-1)
    elif change == "other key":
        files = (files[0], made.member("2")[1])
    elif change == "no CA":
        ca_file = files[1]
    else:
        files = ("/nowhere", files[1])

    with pytest.raises(ConfigError, match=said):
        network.certificate(1, files, ca_file)


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02\x00", b"\x16" * 300_000])
async def test_an_unfinished_handshake_ends_by_its_deadline(
    network: TlsNetwork, sent: bytes
) -> None:
    """Who begins and does not go on keeps nothing."""
    await network.start_tls(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", network.port(1))
    writer.write(sent)

    async with asyncio.timeout(5):
        try:
            while await reader.read(1_000):
                pass
        except ConnectionError:
            pass
    writer.close()


async def test_strangers_with_unfinished_handshakes_keep_no_member_out(
    network: TlsNetwork,
) -> None:
    """The oldest of too many makes room."""
    network.raft = replace(network.raft, handshake_deadline_ms=60_000)
    one, _ = await network.start_tls(1)
    strangers = [
        await asyncio.open_connection("127.0.0.1", network.port(1))
        for _ in range(2 * UNPROVED_CALLERS_MAX)
    ]
    for _, writer in strangers:
        writer.write(b"\x16\x03\x01\x02\x00")
    network.raft = replace(network.raft, handshake_deadline_ms=5_000)
    two, _ = await network.start_tls(2)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))

    for _, writer in strangers:
        writer.close()


async def test_frames_sent_to_a_tls_port_get_an_alert(network: TlsNetwork) -> None:
    """A member without TLS reads by it what is wrong."""
    await network.start_tls(1)
    reader, writer = await asyncio.open_connection("127.0.0.1", network.port(1))
    writer.write(b"\0\0\0\x05hello")

    assert await reader.read() == ALERT
    writer.close()
