"""Certificates, keys and CAs from files: read, checked, and read again when they change.

1. Only its owner can read a key (mode 0600), as it is with the cluster's secret.
2. At the start, what cannot work is refused, and says what to do: a key that belongs to another
   certificate, a member's certificate that has expired, is of another CA or names another member.
   It is found by a handshake in memory, of the certificate with itself.
3. Files that change are read again within ``RELOAD_MS``, and at SIGHUP. What cannot be right then
   is logged, and the former certificate stays in use: connections go on.
4. The file of the CAs may also have their revocation lists (RFC 5280, section 5). As soon as it has
   one, each CA in it needs one, and whose certificate is on it is refused.
5. TLS 1.3 alone, and no resumed sessions.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import ssl
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from coordinator.errors import ConfigError
from coordinator.tls.lists import ListEnd, first_end
from coordinator.tls.names import uris_of
from coordinator.tls.pipe import TlsPipe
from coordinator.tls.wording import TO_MEMBERS, why_no_tls

logger = logging.getLogger("coordinator.tls")

RELOAD_MS = 2_000
"""How often it is looked whether files have changed."""
EXPIRES_SOON_MS = 14 * 24 * 3_600_000
RSA_BITS_MAX = 4_096
"""The length of a key that is shown: with a longer one a handshake would hold the event loop for
too long."""
_HAS_REVOCATIONS = b"-----BEGIN X509 CRL-----"
_RSA_KEY = bytes.fromhex("06092a864886f70d010101")  # RFC 8017, appendix A.1: rsaEncryption
STREAM, HTTP = "coordinator-stream", "http/1.1"
"""What a client may speak over TLS (ALPN)."""

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one side, each with the setting that names it, for messages."""

    cert_file: str | None
    key_file: str | None
    ca_file: str | None = None
    cert_name: str = "cert_file"
    key_name: str = "key_file"
    ca_name: str = "ca_file"

    def all(self) -> tuple[str, ...]:
        """Return those that are given."""
        return tuple(each for each in (self.cert_file, self.key_file, self.ca_file) if each)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The TLS settings of a port for clients."""

    context: ssl.SSLContext
    expires_ms: int
    trusted: bytes = b""
    """A digest of the CAs and revocation lists that count for clients."""
    list_end: ListEnd | None = None
    """When the first of these lists is out of date."""


@dataclass(frozen=True, slots=True)
class MemberTls:
    """The TLS settings between members, for the side that is called and the side that calls."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    expires_ms: int
    trusted: bytes = b""
    """A digest of the CAs and revocation lists that count for members."""
    list_end: ListEnd | None = None
    """When the first of these lists is out of date."""


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return whom a client trusts: the CA of ``files``, else those of this machine.

    Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if files.ca_file is None:
        context.load_default_certs()
    else:
        _trust(context, files)
    if files.cert_file is not None or files.key_file is not None:
        _show(context, files)
    return context


def server_tls(files: TlsFiles, *, needs_certificate: bool) -> ServerTls:
    """Return what a port for clients shows; with a CA, clients show certificates of it.

    Raises ConfigError."""
    trusted = _digest(files)
    context = _server(files)
    context.set_alpn_protocols([STREAM, HTTP])
    if files.ca_file is not None:
        _trust(context, files)
        context.verify_mode = ssl.CERT_REQUIRED if needs_certificate else ssl.CERT_OPTIONAL
    check = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    check.check_hostname = False
    check.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trusted as such: its CA may be unknown
    check.load_verify_locations(files.cert_file)
    shown = _server(files)
    return ServerTls(context, _expires_ms(_shown(shown, check, files)), trusted, _list_end(files))


def member_tls(files: TlsFiles, uri: str) -> MemberTls:
    """Return what the member of this name shows, and whom it trusts. Raises ConfigError."""
    trusted = _digest(files)
    server = _server(files)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    client.check_hostname = False  # the name that counts is the URI of the member
    _show(client, files)
    for each in (server, client):
        _trust(each, files)
        each.verify_mode = ssl.CERT_REQUIRED
    certificate = _shown(server, client, files)
    found = uris_of(certificate)
    if uri not in found:
        raise ConfigError(
            f"{files.cert_name}: expected a certificate with the name URI:{uri} in"
            f" {files.cert_file}, found {_listed(found)}; `coordinator certs` makes one"
        )
    return MemberTls(server, client, _expires_ms(certificate), trusted, _list_end(files))


def _server(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    _show(context, files)
    return context


def _show(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.cert_file is None or files.key_file is None:
        here, there = files.key_name, files.cert_name
        if files.cert_file is None:
            here, there = there, here
        raise ConfigError(f"{here}: expected a file beside {there}, found none")
    check_is_private(files.key_file, files.key_name)
    try:
        _check_size(files)
        context.load_cert_chain(files.cert_file, files.key_file, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(
                f"{files.key_name}: expected the key of the certificate in {files.cert_file},"
                f" found that of another one in {files.key_file}"
            ) from None
        raise ConfigError(
            f"{files.cert_name}: expected a certificate in {files.cert_file} and its key, without"
            f" a passphrase, in {files.key_file} (PEM), found neither, or only one"
        ) from None
    except (OSError, _EncryptedError) as error:
        raise ConfigError(
            f"{files.cert_name}, {files.key_name}: cannot read {files.cert_file} and"
            f" {files.key_file}: {getattr(error, 'strerror', None) or error}"
        ) from None


class _EncryptedError(Exception):
    """A key has a passphrase, and nobody is there to ask."""


def _no_password() -> str:
    raise _EncryptedError(
        "expected a key without a passphrase, found one with: decrypt it with openssl pkey"
    )


def _check_size(files: TlsFiles) -> None:
    """Raise ConfigError if the certificate, the first of its file, has too long an RSA key."""
    assert files.cert_file is not None
    with open(files.cert_file, encoding="ascii", errors="replace") as file:
        begin, text = "-----BEGIN CERTIFICATE-----", file.read()
    body = text.partition(begin)[2].partition("-----END")[0]
    try:
        bits = _rsa_bits(base64.b64decode("".join(body.split())))
    except ValueError:
        return  # the error is raised where it is loaded
    if bits > RSA_BITS_MAX:
        raise ConfigError(
            f"{files.cert_name}: expected an elliptic curve's key, or RSA of at most {RSA_BITS_MAX}"
            f" bits, in {files.cert_file}, found RSA of {bits}: with it each handshake would hold"
            " up everything else"
        )


def _rsa_bits(certificate: bytes) -> int:
    """Return how long the RSA key of a certificate (DER) is; 0 if it has another kind of key.

    The key follows its algorithm (RFC 5280, section 4.1): NULL, a bit string, in it a sequence
    whose first integer is the modulus (RFC 8017, appendix A.1.1)."""
    found = certificate.partition(_RSA_KEY + b"\x05\x00")[2]
    for tag in (b"\x03", b"\x30", b"\x02"):
        if found[:1] != tag or len(found) < 2:
            return 0
        head = 2 + (found[1] & 0x7F if found[1] & 0x80 else 0)
        length = int.from_bytes(found[2:head], "big") if head > 2 else found[1]
        found = found[head : head + length]
        if tag == b"\x03":
            found = found[1:]  # how many bits of the last byte are unused
    return int.from_bytes(found, "big").bit_length()


def _digest(files: TlsFiles) -> bytes:
    """Return a digest of the CAs. Taken before they are loaded: if the file is replaced between
    the two, the digest is the former's, and the next look at the file finds another one."""
    if files.ca_file is None:
        return b""
    try:
        with open(files.ca_file, "rb") as file:
            return hashlib.sha256(file.read()).digest()
    except OSError as error:
        raise _unreadable(files, error) from None


def _list_end(files: TlsFiles) -> ListEnd | None:
    if files.ca_file is None:
        return None
    try:
        with open(files.ca_file, "rb") as file:
            return first_end(file.read())
    except OSError as error:
        raise _unreadable(files, error) from None
    except ValueError:
        return None  # OpenSSL has read it: it is not of a form that is known here


def _unreadable(files: TlsFiles, error: OSError) -> ConfigError:
    return ConfigError(f"{files.ca_name}: cannot read {files.ca_file}: {error.strerror}")


def _trust(context: ssl.SSLContext, files: TlsFiles) -> None:
    assert files.ca_file is not None
    try:
        context.load_verify_locations(files.ca_file)
        with open(files.ca_file, "rb") as file:
            if _HAS_REVOCATIONS in file.read():
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except ssl.SSLError:
        raise ConfigError(
            f"{files.ca_name}: expected certificates of CAs (PEM) in {files.ca_file}, found none"
        ) from None
    except OSError as error:
        raise _unreadable(files, error) from None


def check_is_private(key_file: str, name: str) -> None:
    """Raise ConfigError if others than its owner can read a key."""
    try:
        mode = stat.S_IMODE(os.stat(key_file).st_mode)
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {key_file}: {error.strerror}") from None
    if mode & 0o077:
        raise ConfigError(
            f"{name}: expected mode 0600 of {key_file}, found {mode:04o};"
            f" run: chmod 0600 {key_file}"
        )


def _shown(server: ssl.SSLContext, client: ssl.SSLContext, files: TlsFiles) -> dict[str, Any]:
    """Return the certificate, by a handshake with itself. Raises ConfigError."""
    pipes = TlsPipe(client), TlsPipe(server, is_server=True)
    try:
        for here, there in (pipes, pipes[::-1]) * 2:
            here.shake()
            there.feed(here.to_send())
        return dict(pipes[0].ssl_object.getpeercert() or {})
    except ssl.SSLError as error:
        raise ConfigError(
            f"{files.cert_name}: {files.cert_file} cannot be used: {why_no_tls(error, TO_MEMBERS)}"
        ) from None


def _expires_ms(certificate: dict[str, Any]) -> int:
    return int(ssl.cert_time_to_seconds(certificate["notAfter"])) * 1_000


def _listed(uris: Sequence[str]) -> str:
    return ", ".join(f"URI:{each!a}" for each in uris) or "one without such a name"


class Reloaded(Generic[C]):
    """A value that is made from files, and made again when they change.

    Args:
        load: makes it, or raises ConfigError.
        paths: of the files that it is made of.
        what: it is, for the log.
    """

    def __init__(
        self, load: Callable[[], C], paths: Sequence[str], what: str = "certificate"
    ) -> None:
        self._load = load
        self._paths = tuple(paths)
        self._what = what
        self._read = _signatures(self._paths)
        self.current: C = load()
        self.problem = ""
        """Why the files as they are now are not in use."""
        self._listeners: list[Callable[[C, C], None]] = []

    def on_reload(self, listener: Callable[[C, C], None]) -> None:
        """Call ``listener`` with what was in use and what is, whenever the files were read
        again."""
        self._listeners.append(listener)

    def maybe_reload(self, *, is_asked: bool = False) -> None:
        """Read the files again if they have changed, or an operator asks."""
        found = _signatures(self._paths)
        if found == self._read and not is_asked:
            return
        self._read = found
        try:
            former, self.current = self.current, self._load()
        except ConfigError as error:
            self.problem = error.message
            logger.error("the former %s stays in use: %s", self._what, error.message)
        else:
            self.problem = ""
            logger.info("%s read again: %s", self._what, ", ".join(self._paths))
            for each in self._listeners:
                each(former, self.current)


def _signatures(paths: Sequence[str]) -> tuple[tuple[int, int, int] | None, ...]:
    found: list[tuple[int, int, int] | None] = []
    for path in paths:
        try:
            status = os.stat(path)
            found.append((status.st_mtime_ns, status.st_ino, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def expiry_warning(name: str, expires_ms: int, now_ms: int) -> str:
    """Return what is to be said of a certificate that expires soon, or has; "" if neither."""
    if expires_ms - now_ms > EXPIRES_SOON_MS:
        return ""
    return (
        f"the certificate of {name} {_expires(expires_ms, now_ms)}: replace it (it is read again at"
        " once)"
    )


def list_warning(name: str, end: ListEnd | None, now_ms: int) -> str:
    """Return what is to be said of a revocation list that is out of date soon; "" if nothing."""
    if end is None or now_ms < end.warns_ms:
        return ""
    return (
        f"the revocation list in {name} {_expires(end.expires_ms, now_ms)}: replace it, because no"
        " certificate of its CA counts then (it is read again at once)"
    )


def _expires(expires_ms: int, now_ms: int) -> str:
    at = datetime.fromtimestamp(expires_ms / 1_000, UTC).isoformat(timespec="minutes")
    return f"{'expires' if expires_ms > now_ms else 'expired'} at {at}"
