"""TLS between members: which side a connection is, and whose certificate the other one shows.

A certificate proves a member if it is of the cluster's CA and has the member's name, which says
cluster and id (``tls.names``). The names of hosts count for nothing: a member may move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.raft.network.messages import FrameError
from coordinator.tls.files import MemberTls, Reloaded
from coordinator.tls.handshakes import Handshakes
from coordinator.tls.names import member_uri
from coordinator.tls.transport import SecuredProtocol, TlsTransport

TLS_RECORD = b"\x16\x03"
"""How a TLS connection begins; the length of a first frame begins with NUL."""
ALERT = bytes((0x15, 3, 3, 0, 2, 2, 10))
"""Says in TLS, to a dialer that speaks something else, that it was not understood
(unexpected_message). A member without TLS knows by exactly this that the other one speaks it."""
SPEAKS_TLS = (
    "it speaks TLS, and this member does not: give this one member.tls_cert_file,"
    " member.tls_key_file and cluster.tls_ca_file"
)
SPEAKS_NO_TLS = (
    "it does not speak TLS: give it member.tls_cert_file, member.tls_key_file and"
    " cluster.tls_ca_file"
)

TRUST_CHANGED = "the CAs or revocation lists that count have changed"


class Securing:
    """The TLS settings of one member's connections.

    Args:
        certificate: of this member, as it is now.
        unfinished_max: how many handshakes may be under way.
        is_needed: False also lets in members without TLS, by sealed frames.
    """

    def __init__(
        self,
        cluster: str,
        certificate: Reloaded[MemberTls],
        unfinished_max: int,
        *,
        is_needed: bool = True,
    ) -> None:
        self.is_needed = is_needed
        self._cluster = cluster
        self._certificate = certificate
        self._handshakes = Handshakes(unfinished_max)

    def secure(
        self,
        link: SecuredProtocol,
        plain: asyncio.Transport,
        *,
        is_dialed: bool,
        head: bytes = b"",
    ) -> bytes:
        """Begin the handshake of a connection, of which ``head`` has been read; return a digest of
        the CAs by which the other side is judged."""
        tls = self._certificate.current
        context = tls.client if is_dialed else tls.server
        secured = TlsTransport(link, context, self._handshakes, is_server=not is_dialed)
        secured.begin(plain, head)
        return tls.trusted

    def check(self, names: Sequence[str], member_id: str, trusted: bytes) -> None:
        """Raise FrameError unless a certificate with these names is this member's, and was judged
        by what counts now."""
        if trusted != self._certificate.current.trusted:
            raise FrameError(TRUST_CHANGED)
        expected = member_uri(self._cluster, member_id)
        if expected not in names:
            found = ", ".join(f"{each!a}" for each in names) or "none"
            raise FrameError(
                f"it says it is member {member_id!a}, and its certificate is another's:"
                f" expected the name {expected}, found {found}"
            )
