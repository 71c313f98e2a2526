"""Certificates for a cluster: a CA of its own, and what it signs. Extra ``certs``.

Keys are of the curve P-256: small, fast, known to every TLS library. A CA signs for members (names
of hosts and a URI, for servers and clients) and for clients (a URI, for clients alone).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from coordinator.errors import ConfigError

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_BACKDATED = timedelta(minutes=5)
"""Clocks of machines differ: what is made now is valid at once."""


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Issued(...)"


class Authority:
    """A CA; ``made`` makes one, ``read`` takes one from PEM."""

    def __init__(self, certificate: x509.Certificate, key: EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def made(cls, cluster: str, days: int) -> Authority:
        """Make a CA for a cluster."""
        _expect_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"CA of coordinator {cluster}")
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
            encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = _dated(x509.CertificateBuilder(), days)
        builder = builder.subject_name(name).issuer_name(name).public_key(key.public_key())
        builder = (
            builder.serial_number(x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Authority:
        """Take the CA of these PEM texts. Raises ConfigError."""
        _expect_cryptography()
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            found = x509.load_pem_x509_certificate(certificate)
            signing = load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"expected a CA's certificate and key (PEM), found: {error}"
            ) from None
        if not isinstance(signing, EllipticCurvePrivateKey):
            raise ConfigError("expected a CA with an elliptic curve's key, found another")
        if signing.public_key() != found.public_key():
            raise ConfigError("expected the key of the CA's certificate, found that of another")
        return cls(found, signing)

    def issued(self) -> Issued:
        """Return the CA itself."""
        return Issued(_pem(self._certificate), _key_pem(self._key))

    def issue(
        self, uri: str, *, hosts: Sequence[str] = (), days: int = 365, is_member: bool = False
    ) -> Issued:
        """Return a certificate of this name, for ``hosts`` if it is a member's."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID as Usage

        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
        names += [_host(each) for each in dict.fromkeys(hosts)]
        uses = [Usage.CLIENT_AUTH, *([Usage.SERVER_AUTH] if is_member else [])]
        ours = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        builder = _dated(x509.CertificateBuilder(), days, self._certificate.not_valid_after_utc)
        builder = (
            builder.subject_name(_name(uri))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ours.value),
                critical=False,
            )
        )
        return Issued(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))

    def has_signed(self, revocations: bytes) -> bool:
        """Say whether this CA made a revocation list (PEM). Raises ConfigError."""
        from cryptography import x509

        try:
            found = x509.load_pem_x509_crl(revocations)
        except ValueError as error:
            raise ConfigError(f"expected a revocation list (PEM), found: {error}") from None
        return found.is_signature_valid(self._key.public_key())

    def revocations(self, serials: Sequence[int], former: bytes = b"") -> bytes:
        """Return the list (CRL, PEM) of the certificates that count no more: those of ``former``,
        and these. It is valid for as long as the CA is. Raises ConfigError."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._certificate.subject)
        builder = builder.last_update(now - _BACKDATED)
        builder = builder.next_update(self._certificate.not_valid_after_utc)
        known: set[int] = set()
        try:
            for each in x509.load_pem_x509_crl(former) if former else ():
                known.add(each.serial_number)
                builder = builder.add_revoked_certificate(each)
        except ValueError as error:
            raise ConfigError(f"expected a revocation list (PEM), found: {error}") from None
        for serial in dict.fromkeys(serials):
            if serial not in known:
                revoked = x509.RevokedCertificateBuilder().serial_number(serial)
                builder = builder.add_revoked_certificate(revoked.revocation_date(now).build())
        ours = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        key_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ours.value)
        builder = builder.add_extension(key_id, critical=False)
        return _pem(builder.sign(self._key, hashes.SHA256()))


def _expect_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise ConfigError(
            "expected the package cryptography, found none: pip install 'raft-coordinator[certs]'"
        ) from None


def names_in(certificate: bytes) -> tuple[list[str], list[str]]:
    """Return the URIs and the hosts that a certificate (PEM) names. Raises ConfigError."""
    _expect_cryptography()
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, x509.ExtensionNotFound) as error:
        raise ConfigError(f"expected a certificate with names (PEM), found: {error}") from None
    addresses = [str(each) for each in names.get_values_for_type(x509.IPAddress)]
    return (
        names.get_values_for_type(x509.UniformResourceIdentifier),
        [*names.get_values_for_type(x509.DNSName), *addresses],
    )


def serial_of(certificate: bytes) -> int:
    """Return the serial number of a certificate (PEM). Raises ConfigError."""
    _expect_cryptography()
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(certificate).serial_number
    except ValueError as error:
        raise ConfigError(f"expected a certificate (PEM), found: {error}") from None


def _dated(
    builder: x509.CertificateBuilder, days: int, latest: datetime | None = None
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    until = now + timedelta(days=days)
    if latest is not None:
        until = min(until, latest)  # what outlives its CA is not valid then
    begins = min(now, until) - _BACKDATED
    return builder.not_valid_before(begins).not_valid_after(until)


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate | x509.CertificateRevocationList) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM)


def _key_pem(key: EllipticCurvePrivateKey) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
