"""Certificates of a test: a CA, members, clients, as files in a directory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from coordinator.tls.issuing import Authority, Issued, serial_of
from coordinator.tls.names import client_uri, member_uri

_NOW = datetime.now(UTC)
HOSTS = ("localhost", "127.0.0.1", "::1")


@cache
def _authority(name: str) -> Authority:
    return Authority.made(name, 3_650)


class Certificates:
    """Files of one CA; ``authority`` names another one."""

    def __init__(self, folder: Path, cluster: str = "test", authority: str = "test") -> None:
        self.folder = folder
        self.cluster = cluster
        self._authority = _authority(authority)
        folder.mkdir(parents=True, exist_ok=True)
        self.ca_file = str(folder / f"ca-{authority}.pem")
        Path(self.ca_file).write_bytes(self._authority.issued().certificate)

    def member(
        self, member_id: str, *, days: int = 30, cluster: str | None = None,
        hosts: tuple[str, ...] = HOSTS, name: str | None = None,
    ) -> tuple[str, str]:  # fmt: skip
        """Write a member's certificate and key; return their files."""
        uri = member_uri(cluster or self.cluster, member_id)
        issued = self._authority.issue(uri, hosts=hosts, days=days, is_member=True)
        return self._written(name or f"member-{member_id}", issued)

    def rsa_member(self, member_id: str, bits: int) -> tuple[str, str]:
        """Write a certificate with an RSA key of this length, whose private half is nobody's."""
        public = RSAPublicNumbers(65_537, (1 << (bits - 1)) | 1).public_key()
        signing = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, member_id)])
        builder = x509.CertificateBuilder(name, name, public, 1, _NOW, _NOW + timedelta(days=30))
        certificate = builder.sign(signing, hashes.SHA256()).public_bytes(Encoding.PEM)
        own = self._authority.issue(member_uri(self.cluster, member_id), is_member=True)
        return self._written(f"rsa-{bits}", Issued(certificate, own.key))

    def client(self, client_name: str, *, days: int = 30) -> tuple[str, str]:
        """Write a client's certificate and key; return their files."""
        issued = self._authority.issue(client_uri(self.cluster, client_name), days=days)
        return self._written(f"client-{client_name}", issued)

    def revoke(self, name: str) -> None:
        """Put the certificate in the file of this name on the list of the CA, in its file."""
        serial = serial_of((self.folder / f"{name}.pem").read_bytes())
        with Path(self.ca_file).open("ab") as file:
            file.write(self._authority.revocations([serial]))

    def _written(self, name: str, issued: Issued) -> tuple[str, str]:
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(issued.certificate)
        key.touch(mode=0o600)
        key.write_bytes(issued.key)
        return str(certificate), str(key)
