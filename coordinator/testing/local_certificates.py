"""Certificates of a local cluster: its CA, its members, and clients that a test names."""

from __future__ import annotations

from pathlib import Path

from coordinator.tls.issuing import Authority, Issued
from coordinator.tls.names import client_uri, member_uri

_DAYS = 30


class LocalCertificates:
    """Files in a directory of the cluster; ``write`` says where."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._authority = Authority.made(cluster, _DAYS)
        self._directory: Path | None = None

    @property
    def ca_file(self) -> str:
        """The CA that clients trust."""
        return str(self._within() / "ca.pem")

    def write(self, directory: Path) -> None:
        """Keep all files in ``directory`` from now on."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        Path(self.ca_file).write_bytes(self._authority.issued().certificate)

    def member(self, member_id: str, host: str, *, days: int = _DAYS) -> tuple[str, str]:
        """Make a member's certificate; return its file and that of its key."""
        uri, hosts = member_uri(self._cluster, member_id), (host, "localhost")
        issued = self._authority.issue(uri, hosts=hosts, days=days, is_member=True)
        return self._written(f"member-{member_id}", issued)

    def client(self, name: str, *, days: int = _DAYS) -> tuple[str, str]:
        """Make a client's certificate; return its file and that of its key."""
        issued = self._authority.issue(client_uri(self._cluster, name), days=days)
        return self._written(f"client-{name}", issued)

    def _within(self) -> Path:
        assert self._directory is not None, "the cluster has been started"
        return self._directory

    def _written(self, name: str, issued: Issued) -> tuple[str, str]:
        certificate, key = self._within() / f"{name}.pem", self._within() / f"{name}-key.pem"
        certificate.write_bytes(issued.certificate)
        key.touch(mode=0o600)
        key.write_bytes(issued.key)
        return str(certificate), str(key)
