"""``certs``: a CA for a cluster, and the certificates of its members and clients."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click

from coordinator.cli.output import failing_well
from coordinator.cli.serving import config_option
from coordinator.errors import ConfigError
from coordinator.node.config import Config
from coordinator.node.config_file import load
from coordinator.node.stable_files import replace_file
from coordinator.tls.issuing import Authority, Issued, names_in, serial_of
from coordinator.tls.names import client_uri, member_uri

_ALWAYS = ("localhost", "127.0.0.1", "::1")
"""Hosts that every member has: health checks and operators call it on its own machine."""
_CA_DAYS = 3_650
_DAYS = 365
_DAYS_MAX = 36_500
_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?(?:-----END X509 CRL-----\n?|\Z)", re.DOTALL)
_LEDGER = "issued.txt"
"""In the directory: a line for each certificate ever made there, its name and serial number."""
_CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@config_option("The TOML file of one member: it names the cluster, its members and their hosts.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    metavar="NAME",
    help="Make a certificate for a client of this name, too; may be repeated.",
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="HOST",
    help="A name or address by which clients call every member (a proxy's, a service's); may be "
    "repeated. The hosts of client_url, member_host and loopback are in it already.",
)
@click.option(
    "--days",
    type=click.IntRange(1, _DAYS_MAX),
    default=_DAYS,
    show_default=True,
    help="For how long the certificates are valid.",
)
@click.option("--renew", is_flag=True, help="Make those that exist again.")
@click.option(
    "--revoke",
    "revoked",
    multiple=True,
    metavar="NAME",
    help="Put all certificates ever made here under this name, such as client-payments, on the "
    "revocation list in ca.pem, and delete its files; may be repeated.",
)
@failing_well
def certs(
    directory: Path,
    config_path: Path | None,
    clients: tuple[str, ...],
    hosts: tuple[str, ...],
    days: int,
    renew: bool,
    revoked: tuple[str, ...],
) -> None:
    """Make a CA and certificates for a cluster in DIRECTORY.

    There is one for each member, and one for each --client.

    What exists stays: run it again with --client to add one. --renew makes the certificates of all
    members and clients in DIRECTORY again, with the hosts that they have. The CA is made once, for
    ten years; anyone with ca-key.pem can pass for any member, so keep it away from the members'
    machines. Each machine needs ca.pem, and the two files of its member. Members read them again
    when they change. --revoke makes nothing; copy ca.pem to all members afterwards. Needs the extra
    `certs` (cryptography).

    \b
    Examples:
      coordinator certs certs --config member-1.toml --client payments
      coordinator certs certs --client reports     # one more, for the same cluster
      coordinator certs certs --renew
      coordinator certs certs --revoke client-reports
    """
    if revoked:
        if clients or renew:
            raise click.UsageError("expected --revoke alone, found --client or --renew beside it")
        for line in revoke(directory, revoked):
            click.echo(line, err=True)
        return
    config = load(config_path)
    for name in clients:
        if not _CLIENT_NAME.fullmatch(name):
            raise click.UsageError(
                f"--client: expected 1 to 63 of A-Z a-z 0-9 . _ -, found {name!r}"
            )
    existing = Existing.read(directory)
    cluster, members = config.cluster.name, dict(_members(config))
    if config_path is None and not config.cluster.members and existing.cluster:
        cluster, members = existing.cluster, dict.fromkeys(existing.hosts_by_member, ())
    elif existing.cluster not in (None, cluster):
        raise ConfigError(
            f"{directory}: expected certificates of cluster {cluster!r}, found those of "
            f"{existing.cluster!r}: name another directory"
        )
    kept = existing.hosts_by_member if renew else {}
    members = {each: (*own, *hosts, *kept.get(each, ())) for each, own in members.items()}
    clients = tuple(dict.fromkeys((*clients, *(existing.clients if renew else ()))))
    for line in make(directory, cluster, members, clients, days=days, is_renewal=renew):
        click.echo(line, err=True)


def make(
    directory: Path,
    cluster: str,
    hosts_by_member: Mapping[str, Sequence[str]],
    clients: Sequence[str] = (),
    *,
    days: int = _DAYS,
    is_renewal: bool = False,
) -> list[str]:
    """Make what is not there yet, or all but the CA; return what was made. Raises ConfigError."""
    making = _Making(directory, cluster, days, is_renewal)
    for member_id, hosts in hosts_by_member.items():
        uri = member_uri(cluster, member_id)
        making.issue(f"member-{member_id}", uri, hosts=(*hosts, *_ALWAYS), is_member=True)
    for name in clients:
        making.issue(f"client-{name}", client_uri(cluster, name))
    return making.lines


def revoke(directory: Path, names: Sequence[str]) -> list[str]:
    """Let no certificate count that was ever made here under these names, and delete their files;
    return what was done. Raises ConfigError."""
    making = _Making(directory, "", _DAYS, is_renewal=False)
    serials: list[int] = []
    for name in names:
        found = making.serials(name)
        if not name.startswith(("member-", "client-")) or not found:
            raise ConfigError(
                f"--revoke: expected a name such as client-payments or member-2, of which a"
                f" certificate was made in {directory}, found {name!r}"
            )
        serials += found
    making.revoke(serials)
    for name in names:
        for path in (directory / f"{name}.pem", directory / f"{name}-key.pem"):
            path.unlink(missing_ok=True)
        making.lines.append(f"revoked {name}, and deleted its files")
    making.lines.append(f"copy {directory / 'ca.pem'} to all members: the list is in it")
    return making.lines


@dataclass(frozen=True, slots=True)
class Existing:
    """What a directory has certificates for; ``cluster`` is None if it has none of a member."""

    cluster: str | None
    hosts_by_member: Mapping[str, tuple[str, ...]]
    clients: tuple[str, ...]

    @classmethod
    def read(cls, directory: Path) -> Existing:
        """Look at the certificates of a directory. Raises ConfigError."""
        cluster, hosts_by_member, clients = None, {}, []
        for path in sorted(directory.glob("*.pem")):
            if path.stem.endswith("-key") or not path.stem.startswith(("member-", "client-")):
                continue
            if path.stem.startswith("client-"):
                clients.append(path.stem.removeprefix("client-"))
                continue
            uris, hosts = _names_in(path)
            for uri in map(urlsplit, uris):
                cluster = unquote(uri.netloc)
                hosts_by_member[unquote(uri.path[1:])] = tuple(hosts)
        return cls(cluster, hosts_by_member, tuple(clients))


def _names_in(path: Path) -> tuple[list[str], list[str]]:
    try:
        return names_in(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}") from None


def _members(config: Config) -> list[tuple[str, tuple[str, ...]]]:
    """Return each member with the hosts by which it is called."""
    if not config.cluster.members:
        return [(config.member.member_id, ())]
    return [
        (each.member_id, (urlsplit(each.client_url).hostname or "", each.member_host))
        for each in config.cluster.members
    ]


@dataclass(slots=True)
class _Making:
    """What is made in one directory."""

    directory: Path
    cluster: str
    days: int
    is_renewal: bool
    lines: list[str] = field(default_factory=list)
    _authority: Authority | None = None

    def issue(
        self, name: str, uri: str, *, hosts: Sequence[str] = (), is_member: bool = False
    ) -> None:
        """Make a certificate and its key, unless they are there."""
        if name.endswith("-key"):
            raise ConfigError(
                f"expected a name that does not end with -key, found {name!r}: its certificate"
                f" would have the file of the key of {name.removesuffix('-key')!r}"
            )
        authority = self._authority or self._read_or_make()
        self._authority = authority
        if not self.is_renewal and (self.directory / f"{name}.pem").exists():
            self.lines.append(f"kept {self.directory / name}.pem")
            return
        issued = authority.issue(uri, hosts=hosts, days=self.days, is_member=is_member)
        self._write(name, issued)

    def serials(self, name: str) -> list[int]:
        """Return the serial numbers of all certificates that were made under this name."""
        found = []
        try:
            ledger = self.directory / _LEDGER
            for line in ledger.read_text("ascii").splitlines() if ledger.exists() else ():
                issued, _, serial = line.rpartition(" ")
                found += [int(serial, 16)] if issued == name else []
            path = self.directory / f"{name}.pem"
            found += [serial_of(path.read_bytes())] if path.exists() else []
        except OSError as error:
            raise ConfigError(f"{error.filename}: cannot read it: {error.strerror}") from None
        except ValueError:
            raise ConfigError(
                f"{self.directory / _LEDGER}: expected lines of a name and a hexadecimal number, "
                "found others: restore it from a copy"
            ) from None
        return found

    def revoke(self, serials: Sequence[int]) -> None:
        """Put these on the revocation list of the CA, which is in the CA's own file."""
        if not (self.directory / "ca.pem").exists():
            raise ConfigError(f"{self.directory}: expected the ca.pem of a CA, found none")
        authority, path = self._read_or_make(), self.directory / "ca.pem"
        try:
            text = path.read_bytes()
            former = next(filter(authority.has_signed, _LIST.findall(text)), b"")
            kept = text.replace(former, b"").rstrip(b"\n") + b"\n"
            replace_file(path, kept + authority.revocations(serials, former), mode=0o644)
        except OSError as error:
            raise ConfigError(f"{path}: cannot write it: {error.strerror}") from None

    def _read_or_make(self) -> Authority:
        certificate, key = self.directory / "ca.pem", self.directory / "ca-key.pem"
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if certificate.exists():
                return Authority.read(certificate.read_bytes(), key.read_bytes())
        except OSError as error:
            raise ConfigError(
                f"{error.filename}: expected the files of a CA, or none: {error.strerror}"
            ) from None
        authority = Authority.made(self.cluster, _CA_DAYS)
        self._write("ca", authority.issued())
        return authority

    def _write(self, name: str, issued: Issued) -> None:
        """Write both files, each whole: who reads them in between takes the former pair."""
        try:
            if name != "ca":
                with (self.directory / _LEDGER).open("a", encoding="ascii") as ledger:
                    ledger.write(f"{name} {serial_of(issued.certificate):x}\n")
            for path, data in (
                (self.directory / f"{name}-key.pem", issued.key),
                (self.directory / f"{name}.pem", issued.certificate),
            ):
                replace_file(path, data, mode=0o600 if data is issued.key else 0o644)
        except OSError as error:
            raise ConfigError(f"{self.directory}: cannot write there: {error.strerror}") from None
        self.lines.append(f"made {self.directory / name}.pem and {name}-key.pem")
