"""``coordinator certs``: files with which members and clients talk at once."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.x509 import load_pem_x509_crl

from coordinator import connect
from coordinator.cli.certs import certs as command
from coordinator.node.config import Config, HttpConfig
from coordinator.node.server import Server
from coordinator.tls.files import TlsFiles, member_tls
from coordinator.tls.issuing import names_in
from coordinator.tls.names import client_uri, member_uri

MEMBERS = """
[cluster]
name = "prod"
secret_file = "s"
[[cluster.members]]
member_id = "1"
client_url = "http://locks-1.example:7071"
member_host = "10.0.0.1"
member_port = 7171
[[cluster.members]]
member_id = "2"
client_url = "http://locks-2.example:7071"
member_host = "10.0.0.2"
member_port = 7171
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "member-1.toml"
    path.write_text(MEMBERS)
    return path


def certs(directory: Path, config: Path, *more: str) -> Result:
    return CliRunner().invoke(command, [str(directory), "--config", str(config), *more])


def test_one_command_makes_all_that_a_cluster_needs(tmp_path: Path, config: Path) -> None:
    """A CA, two members, a client; keys for their owner alone; members find them right."""
    folder = tmp_path / "certs"
    done = certs(folder, config, "--client", "payments", "--host", "locks.example")

    assert done.exit_code == 0, done.output
    names = ["ca", "client-payments", "member-1", "member-2"]
    assert sorted(path.name for path in folder.glob("*.pem")) == sorted(
        f"{name}{end}.pem" for name in names for end in ("", "-key")
    )
    for name in names:
        assert stat.S_IMODE((folder / f"{name}-key.pem").stat().st_mode) == 0o600
    for member_id in ("1", "2"):
        cert, key = folder / f"member-{member_id}.pem", folder / f"member-{member_id}-key.pem"
        files = TlsFiles(str(cert), key_file=str(key), ca_file=str(folder / "ca.pem"))
        member_tls(files, member_uri("prod", member_id))


def test_what_exists_stays_until_it_is_renewed(tmp_path: Path, config: Path) -> None:
    """A second run adds a client; --renew makes the others again, of the same CA."""
    folder = tmp_path / "certs"
    certs(folder, config)
    before = {path.name: path.read_bytes() for path in folder.glob("*.pem")}

    assert "kept" in certs(folder, config, "--client", "new").output
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert certs(folder, config, "--renew", "--days", "30").exit_code == 0

    changed = {name for name, data in before.items() if (folder / name).read_bytes() != data}
    assert changed == {f"member-{each}{end}.pem" for each in (1, 2) for end in ("", "-key")}


def test_without_a_file_the_directory_says_whose_certificates_they_are(
    tmp_path: Path, config: Path
) -> None:
    """A client is added to the same cluster; --renew forgets no client and no host."""
    folder = tmp_path / "certs"
    certs(folder, config, "--client", "payments", "--host", "locks.example")
    before = {path.name: path.read_bytes() for path in folder.glob("*.pem")}
    bare = [str(folder), "--client", "reports", "--renew"]
    done = CliRunner().invoke(command, bare)

    assert done.exit_code == 0, done.output
    assert names_in((folder / "client-reports.pem").read_bytes())[0] == [
        client_uri("prod", "reports")
    ]
    uris, hosts = names_in((folder / "member-2.pem").read_bytes())
    assert uris == [member_uri("prod", "2")]
    assert {"locks.example", "locks-2.example", "10.0.0.2", "localhost", "::1"} <= set(hosts)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {name for name, data in before.items() if after[name] == data} == {
        "ca.pem", "ca-key.pem"
    }  # fmt: skip


def test_a_revoked_name_counts_no_more_and_others_do(tmp_path: Path, config: Path) -> None:
    """Every certificate that was made under it, also those that were renewed."""
    folder = tmp_path / "certs"
    for more in (("--client", "payments", "--client", "reports"), ("--renew",)):
        assert certs(folder, config, *more).exit_code == 0
    done = CliRunner().invoke(command, [str(folder), "--revoke", "client-payments"])
    again = CliRunner().invoke(command, [str(folder), "--revoke", "member-2"])

    assert done.exit_code == again.exit_code == 0, done.output + again.output
    assert not (folder / "client-payments.pem").exists()
    text = (folder / "ca.pem").read_bytes()
    revoked = {each.serial_number for each in load_pem_x509_crl(text)}
    issued = [line.split() for line in (folder / "issued.txt").read_text().splitlines()]
    assert revoked == {
        int(serial, 16) for name, serial in issued if name in ("client-payments", "member-2")
    }
    assert len(revoked) == 4
    ca_file, own = str(folder / "ca.pem"), str(folder / "member-1")
    member_tls(
        TlsFiles(f"{own}.pem", key_file=f"{own}-key.pem", ca_file=ca_file), member_uri("prod", "1")
    )


def test_another_ca_and_its_list_stay_when_a_name_is_revoked(tmp_path: Path, config: Path) -> None:
    """While a CA is replaced, ca.pem has both: behind the list, or with lists of their own."""
    folder, other = tmp_path / "certs", tmp_path / "other"
    for each in (folder, other):
        assert certs(each, config, "--client", "a", "--client", "b").exit_code == 0
        assert CliRunner().invoke(command, [str(each), "--revoke", "client-a"]).exit_code == 0
    second = (other / "ca.pem").read_bytes()
    with (folder / "ca.pem").open("ab") as file:
        file.write(second)

    done = CliRunner().invoke(command, [str(folder), "--revoke", "client-b"])

    assert done.exit_code == 0, done.output
    text = (folder / "ca.pem").read_bytes()
    assert second in text
    assert (text.count(b"BEGIN CERTIFICATE"), text.count(b"BEGIN X509 CRL")) == (2, 2)
    mine = next(each for each in text.split(b"-----BEGIN X509")[1:] if each not in second)
    assert len(list(load_pem_x509_crl(b"-----BEGIN X509" + mine))) == 2

    (folder / "ca.pem").write_bytes(text[:-60])
    assert CliRunner().invoke(command, [str(folder), "--revoke", "client-b"]).exit_code == 2
    assert (folder / "ca.pem").read_bytes() == text[:-60]


def test_no_certificate_has_the_file_of_a_key(tmp_path: Path, config: Path) -> None:
    """client-a-key.pem is the key of client a."""
    folder = tmp_path / "certs"
    certs(folder, config, "--client", "a")
    key = (folder / "client-a-key.pem").read_bytes()

    done = certs(folder, config, "--client", "a-key", "--renew")

    assert done.exit_code == 2
    assert "does not end with -key" in done.output
    assert (folder / "client-a-key.pem").read_bytes().count(b"PRIVATE KEY") == key.count(b"PRIVATE")


@pytest.mark.parametrize("name", ["ca", "client-nobody", "../ca"])
def test_who_was_never_certified_cannot_be_revoked(tmp_path: Path, config: Path, name: str) -> None:
    """Nothing changes then."""
    folder = tmp_path / "certs"
    certs(folder, config)
    before = (folder / "ca.pem").read_bytes()
    done = CliRunner().invoke(command, [str(folder), "--revoke", name])

    assert done.exit_code != 0
    assert "expected a name such as client-payments" in done.output
    assert (folder / "ca.pem").read_bytes() == before


def test_two_clusters_do_not_share_a_directory(tmp_path: Path, config: Path) -> None:
    """Nothing is kept that would not be what the file asks for."""
    folder = tmp_path / "certs"
    certs(folder, config)
    config.write_text(MEMBERS.replace('"prod"', '"stage"'))

    done = certs(folder, config, "--client", "payments")

    assert done.exit_code == 2
    assert "expected certificates of cluster 'stage', found those of 'prod'" in done.output


def test_a_name_that_could_be_a_members_is_refused(tmp_path: Path, config: Path) -> None:
    """No client's certificate names a member; nothing is made."""
    done = certs(tmp_path / "certs", config, "--client", "../1")

    assert done.exit_code == 2
    assert not (tmp_path / "certs").exists()


def test_half_a_ca_is_not_replaced(tmp_path: Path, config: Path) -> None:
    """Where its key was taken away, no second CA is made beside it."""
    folder = tmp_path / "certs"
    certs(folder, config)
    (folder / "ca-key.pem").unlink()

    done = certs(folder, config, "--renew")

    assert done.exit_code == 2
    assert "ca-key.pem: expected the files of a CA" in done.output


async def test_a_server_and_a_client_use_them_as_they_are(tmp_path: Path, config: Path) -> None:
    """Both sides show their certificates, by the stream."""
    folder = tmp_path / "certs"
    certs(folder, config, "--client", "payments")
    http = HttpConfig(
        bind_port=0,
        tls_cert_file=str(folder / "member-1.pem"),
        tls_key_file=str(folder / "member-1-key.pem"),
        client_ca_file=str(folder / "ca.pem"),
    )
    server = Server.in_memory(replace(Config(), http=http))
    await server.start()
    try:
        async with connect(
            server.url,
            ca_file=folder / "ca.pem",
            cert_file=folder / "client-payments.pem",
            key_file=folder / "client-payments-key.pem",
        ) as client:
            await client.create("/a", b"1")
    finally:
        await server.stop()
