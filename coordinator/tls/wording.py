"""The reason why a TLS connection could not be made, in a sentence, and what to do about it.

OpenSSL has some hundred reasons. Those that an operator can do something about are named here;
any other is quoted.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

_EXPIRED, _EARLY, _UNTRUSTED, _NAME, _USE = "expired", "early", "untrusted", "name", "use"
_NO_TLS, _CLOSED, _VERSION = "no tls", "closed", "version"
_WANTS, _DISTRUSTS, _STALE = "wants", "distrusts", "stale"
_REVOKED, _NO_LIST, _OLD_LIST, _TAKEN = "revoked", "no list", "old list", "taken"

_BY_VERIFY_CODE = {
    9: _EARLY, 10: _EXPIRED, 18: _UNTRUSTED, 19: _UNTRUSTED, 20: _UNTRUSTED, 21: _UNTRUSTED,
    7: _UNTRUSTED, 24: _UNTRUSTED, 26: _USE, 62: _NAME, 64: _NAME,
    23: _REVOKED, 3: _NO_LIST, 11: _OLD_LIST, 12: _OLD_LIST,
}  # fmt: skip
_BY_REASON = {
    "WRONG_VERSION_NUMBER": _NO_TLS, "HTTP_REQUEST": _NO_TLS, "HTTPS_PROXY_REQUEST": _NO_TLS,
    "PACKET_LENGTH_TOO_LONG": _NO_TLS, "RECORD_LAYER_FAILURE": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": _VERSION, "TLSV1_ALERT_PROTOCOL_VERSION": _VERSION,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": _WANTS, "TLSV13_ALERT_CERTIFICATE_REQUIRED": _WANTS,
    "TLSV1_ALERT_UNKNOWN_CA": _DISTRUSTS, "SSLV3_ALERT_BAD_CERTIFICATE": _DISTRUSTS,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _DISTRUSTS, "TLSV1_ALERT_DECRYPT_ERROR": _DISTRUSTS,
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _DISTRUSTS,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _STALE, "SSLV3_ALERT_CERTIFICATE_REVOKED": _TAKEN,
}  # fmt: skip

TO_CLIENTS: Mapping[str, str] = {
    _EXPIRED: "the member's certificate has expired: give it a new one (it is read again at once)",
    _EARLY: "the member's certificate is not valid yet: compare the clocks of both machines",
    _UNTRUSTED: "the member's certificate is from no CA that this client trusts: give the file of"
    " the cluster's CA (ca_file=, --ca-file or COORDINATOR_CA_FILE)",
    _NAME: "the member's certificate has another name than this endpoint: use a name that it has,"
    " or give the member a certificate with this one (`coordinator certs --host`)",
    _USE: "the member's certificate is not for servers: give it one that is",
    _NO_TLS: "it does not speak TLS: use http:// instead of https://, or set http.tls_cert_file"
    " on that member",
    _VERSION: "it speaks an older TLS: expected TLS 1.3",
    _CLOSED: "it closed the connection within the TLS handshake: it may be full or stopping, or"
    " something else listens there",
    _WANTS: "the member wants a certificate of its clients: give one (cert_file= and key_file=,"
    " --cert-file and --key-file, or COORDINATOR_CERT_FILE and COORDINATOR_KEY_FILE)",
    _DISTRUSTS: "the member refuses this client's certificate: use one from the CA of its"
    " http.client_ca_file",
    _STALE: "the member refuses this client's certificate because it has expired: get a new one",
    _REVOKED: "the member's certificate is revoked: give it a new one",
    _NO_LIST: "the file of the CA has a revocation list, and none of the CA of the member's"
    " certificate: give it one of each CA, or none",
    _OLD_LIST: "the revocation list in the file of the CA is out of date: get a new file",
    _TAKEN: "the member refuses this client's certificate because it is revoked: get a new one",
}
TO_MEMBERS: Mapping[str, str] = {
    _EXPIRED: "its certificate has expired: give it a new one (it is read again at once)",
    _EARLY: "its certificate is not valid yet: compare the clocks of both machines",
    _UNTRUSTED: "its certificate is from another CA than that of cluster.tls_ca_file here",
    _NAME: "its certificate has another name",
    _USE: "its certificate is not for both servers and clients: members are both",
    _NO_TLS: "it does not speak TLS: give it member.tls_cert_file, member.tls_key_file and"
    " cluster.tls_ca_file, or take them away here",
    _VERSION: "it speaks an older TLS: expected TLS 1.3",
    _CLOSED: "it closed the connection within the TLS handshake: look into its log; if it has no"
    " member.tls_cert_file, give it one",
    _WANTS: "it came without a certificate: give it member.tls_cert_file",
    _DISTRUSTS: "it refuses this member's certificate, which is from another CA than that of its"
    " cluster.tls_ca_file",
    _STALE: "it refuses this member's certificate because it has expired: replace it",
    _REVOKED: "its certificate is revoked: give it a new one",
    _NO_LIST: "cluster.tls_ca_file has a revocation list, and none of the CA of this certificate:"
    " give it one of each CA, or none",
    _OLD_LIST: "the revocation list in the file of the CA is out of date: make a new one"
    " (it lasts as long as its CA)",
    _TAKEN: "it refuses this member's certificate because it is revoked: replace it",
}


def why_no_tls(error: BaseException, words: Mapping[str, str]) -> str:
    """Return why there is no connection, for clients or for members."""
    kind = _kind(error)
    if kind is not None:
        return words[kind]
    reason = getattr(error, "reason", None) or str(error) or type(error).__name__
    return f"the TLS handshake failed: {reason}"


def is_refusal(error: BaseException | None) -> bool:
    """Whether the other side refused this side's certificate: it took nothing that was sent."""
    return error is not None and _kind(error) in (_WANTS, _DISTRUSTS, _STALE, _TAKEN)


def _kind(error: BaseException) -> str | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_VERIFY_CODE.get(error.verify_code, _UNTRUSTED)
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError | EOFError):
        return _CLOSED
    reason = getattr(error, "reason", None)
    return _BY_REASON.get(reason) if isinstance(reason, str) else None
