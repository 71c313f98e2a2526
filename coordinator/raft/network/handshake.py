"""The handshake: two members prove their identity to each other before anything else. No I/O.

::

    dialer                                    acceptor
      GREETING   protocols, cluster, from, to, nonce  ──►
      ◄──  CHALLENGE  protocols, nonce
      PROOF      what it shows, proof("dial")  ──►
      ◄──  WELCOME    what it shows, proof("accept")

1. A proof is HMAC-SHA256, keyed with the cluster's secret, over its label and everything that both
   have said so far. The label, the ids and the nonces of both sides make it useless in the other
   direction, for another pair of members and at another time. Compared in constant time. While the
   secret is replaced an acceptor knows two, and goes on with the one that was proved. Once that
   one counts no more the connection ends (``transport``).
2. The dialer proves itself first: a stranger gets no text made with the secret, so it cannot try
   guesses of the secret on one.
3. Each side says which protocols it speaks, from the oldest to the newest, and both go on with the
   newest one that both speak (``messages``). The proofs cover these words as they were sent and as
   they were received: who changes them on the way, so that an older protocol is spoken, ends the
   connection. Without a common protocol each side says so in one sentence.
4. The proofs cover what each side shows (``agreement``). Both sides compare it once the proofs are
   sound; they come to the same result, and each logs why.
5. The first two messages are read by every later release, and later ones may be longer: fields are
   added at their ends only. What is shown is a map, in which unknown names are skipped.
6. The keys under which frames are sealed afterwards come from the secret and both nonces, one for
   each direction (HKDF, RFC 5869), so they are new for each connection.

Refusals say which field was wrong, never the secret or a proof.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator.raft.network.agreement import (
    FACTS_BYTES_MAX,
    NOTHING_AGREED,
    Agreement,
    ShownAgreement,
    difference,
)
from coordinator.raft.network.messages import PROTOCOL_NEWEST, PROTOCOL_OLDEST, FrameError

HANDSHAKE_FRAME_BYTES_MAX = FACTS_BYTES_MAX + 1024
NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO, _CHALLENGE, _PROOF, _WELCOME = "greeting", "challenge", "proof", "welcome"
_TEXT_BYTES_MAX = 128


class HandshakeError(FrameError):
    """The other side is not who it should be, or does not keep to the handshake."""


class NoProtocolError(HandshakeError):
    """The two members speak no protocol in common."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What this member knows before it meets another."""

    cluster: str
    member_id: str
    secret: bytes
    agreement: Agreement = NOTHING_AGREED
    former: tuple[bytes, ...] = ()
    """Secrets that are believed, and not proved: while the secret is replaced."""
    protocols: tuple[int, int] = (PROTOCOL_OLDEST, PROTOCOL_NEWEST)
    """The oldest and the newest that it speaks."""

    def __repr__(self) -> str:
        return f"Identity(cluster={self.cluster!r}, member_id={self.member_id!r})"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys that seal the frames of one connection."""

    dialed: bytes
    """From the dialer to the acceptor."""
    accepted: bytes
    """From the acceptor to the dialer."""

    def __repr__(self) -> str:
        return "Keys(...)"


class Dialer:
    """The side that opened the connection; it knows whom it wants to reach."""

    def __init__(self, identity: Identity, peer_id: str, nonce: bytes) -> None:
        self._identity = identity
        self._nonce = nonce
        self._transcript: _Transcript | None = None
        self.peer_id: str = peer_id
        self.protocol = identity.protocols[1]
        """The one that both speak; once it is done."""
        self.is_done = False
        """Both sides have proved themselves."""
        self.disagreement = ""
        """Why there is no link all the same, in one sentence; once it is done."""

    def begin(self) -> bytes:
        """Return the first payload to send."""
        me = self._identity
        return _pack(_HELLO, *me.protocols, me.cluster, me.member_id, self.peer_id, self._nonce)

    def receive(self, payload: bytes) -> bytes | None:
        """Take the other side's next payload; return what to answer. Raises HandshakeError."""
        me = self._identity
        if self._transcript is None:
            oldest, newest, nonce = _unpack(payload, _CHALLENGE, (int, int, bytes), is_whole=False)
            _expect_nonce(nonce)
            self.protocol = _common(me, self.peer_id, (oldest, newest))
            self._transcript = _Transcript(me, self.begin(), payload, self._nonce + nonce)
            shown = me.agreement.shown()
            return _pack(_PROOF, shown, self._transcript.proof_of_dialer(shown))
        theirs, proof = _unpack(payload, _WELCOME, (bytes, bytes))
        _check(
            proof,
            self._transcript.proof_of_acceptor(me.agreement.shown(), theirs),
            f"member {self.peer_id!r}",
        )
        self.disagreement = _disagreement(me, theirs, self.peer_id)
        self.is_done = True
        return None

    def is_by(self, secrets: Sequence[bytes]) -> bool:
        """Whether one of these is the secret that was proved; once it is done."""
        assert self._transcript is not None
        return self._transcript.is_by(secrets)

    @property
    def is_unanswered(self) -> bool:
        """Whether the proof was sent, and nothing came for it."""
        return self._transcript is not None and not self.is_done

    def keys(self) -> Keys:
        """Return the keys of the frames that follow; once it is done."""
        assert self.is_done
        assert self._transcript is not None
        return self._transcript.keys()


class Acceptor:
    """The side that was called; it learns the caller's id from the hello and checks its proof."""

    def __init__(self, identity: Identity, nonce: bytes) -> None:
        self._identity = identity
        self._nonce = nonce
        self._transcript: _Transcript | None = None
        self.peer_id: str = ""
        self.protocol = identity.protocols[1]
        """The one that both speak; once it is done."""
        self.refusal = ""
        """Why it ends with what was answered, in one sentence."""
        self.is_done = False
        """Both sides have proved themselves, the other one as soon as it has read our answer."""
        self.disagreement = ""
        """Why there is no link all the same, in one sentence; once it is done."""

    def receive(self, payload: bytes) -> bytes | None:
        """Take the other side's next payload; return what to answer. Raises HandshakeError."""
        if self._transcript is None:
            return self._answer_hello(payload)
        if self.is_done:
            raise HandshakeError("expected nothing more in a handshake")
        me = self._identity
        theirs, proof = _unpack(payload, _PROOF, (bytes, bytes))
        self._transcript.take_secret_of(proof, theirs, (me.secret, *me.former))
        expected = self._transcript.proof_of_dialer(theirs)
        _check(proof, expected, f"a caller that says it is {_short(self.peer_id)}")
        self.disagreement = _disagreement(me, theirs, self.peer_id)
        self.is_done = True
        shown = me.agreement.shown()
        return _pack(_WELCOME, shown, self._transcript.proof_of_acceptor(theirs, shown))

    def is_by(self, secrets: Sequence[bytes]) -> bool:
        """Whether one of these is the secret that was proved; once it is done."""
        assert self._transcript is not None
        return self._transcript.is_by(secrets)

    def keys(self) -> Keys:
        """Return the keys of the frames that follow; once it is done."""
        assert self.is_done
        assert self._transcript is not None
        return self._transcript.keys()

    def _answer_hello(self, payload: bytes) -> bytes:
        me = self._identity
        types = (int, int, str, str, str, bytes)
        oldest, newest, cluster, peer_id, own_id, nonce = _unpack(
            payload, _HELLO, types, is_whole=False
        )
        if cluster != me.cluster:
            raise HandshakeError(
                f"expected cluster {me.cluster!r}, found {_short(cluster)}: set the same"
                " cluster.name on all members"
            )
        if own_id != me.member_id:
            raise HandshakeError(
                f"this is member {me.member_id!r}, not {_short(own_id)}: correct its address in"
                " [[cluster.members]] of the member that calls"
            )
        if peer_id == me.member_id or not peer_id or len(peer_id) > _TEXT_BYTES_MAX:
            raise HandshakeError(
                f"no other member is called {_short(peer_id)}: give each member an id of its own"
            )
        _expect_nonce(nonce)
        self.peer_id = peer_id
        answer = _pack(_CHALLENGE, *me.protocols, self._nonce)
        try:
            self.protocol = _common(me, peer_id, (oldest, newest))
        except NoProtocolError as error:
            self.refusal = str(error)
        self._transcript = _Transcript(me, payload, answer, nonce + self._nonce)
        return answer


class _Transcript:
    """What both sides have said once the nonces are exchanged, and what is made of it."""

    def __init__(self, identity: Identity, hello: bytes, challenge: bytes, salt: bytes) -> None:
        self._secret = identity.secret
        self._words = (hello, challenge)
        self._salt = salt

    def proof_of_dialer(self, shown: bytes) -> bytes:
        return self._proof("dial", shown)

    def proof_of_acceptor(self, shown_by_dialer: bytes, shown: bytes) -> bytes:
        return self._proof("accept", shown_by_dialer, shown)

    def take_secret_of(self, proof: bytes, shown: bytes, secrets: Sequence[bytes]) -> None:
        """Go on with the one of ``secrets`` that the dialer has proved, if it is one of them."""
        for self._secret in reversed(secrets):
            if hmac.compare_digest(proof, self.proof_of_dialer(shown)):
                return

    def is_by(self, secrets: Sequence[bytes]) -> bool:
        return any(hmac.compare_digest(self._secret, each) for each in secrets)

    def keys(self) -> Keys:
        drawn = hmac.new(self._salt, self._secret, hashlib.sha256).digest()
        return Keys(*(self._key(drawn, label) for label in ("frames dial", "frames accept")))

    def _proof(self, label: str, *fields: bytes) -> bytes:
        # An empty key: a cluster of one, or a test; then a proof only ties the words together.
        return hmac.new(self._secret, _pack(label, *self._words, *fields), hashlib.sha256).digest()

    def _key(self, drawn: bytes, label: str) -> bytes:
        return hmac.new(drawn, _pack(label, *self._words) + b"\x01", hashlib.sha256).digest()


def _common(me: Identity, peer_id: str, theirs: tuple[int, int]) -> int:
    """Return the newest protocol that both speak; raises NoProtocolError if there is none."""
    oldest, newest = theirs
    if not 0 < oldest <= newest:
        raise HandshakeError(f"expected protocols from an oldest to a newest, found {theirs}")
    common = min(newest, me.protocols[1])
    if common >= max(oldest, me.protocols[0]):
        return common
    older = me.member_id if me.protocols[1] < oldest else _short(peer_id)
    raise NoProtocolError(
        f"member {me.member_id} speaks the protocols {_range(me.protocols)}, and member"
        f" {_short(peer_id)} speaks {_range(theirs)}: upgrade one release after the other, and"
        f" start member {older} with a release between the two"
    )


def _range(protocols: tuple[int, int]) -> str:
    oldest, newest = protocols
    return str(newest) if oldest == newest else f"{oldest} to {newest}"


def _disagreement(me: Identity, theirs: bytes, peer_id: str) -> str:
    try:
        shown = ShownAgreement.read(theirs)
    except (ValueError, RecursionError):
        raise HandshakeError(f"expected a list of facts of {_short(peer_id)}") from None
    return difference(me.agreement, shown, me.member_id, peer_id)


def _check(found: bytes, expected: bytes, who: str) -> None:
    if len(found) != _PROOF_BYTES or not hmac.compare_digest(found, expected):
        raise HandshakeError(
            f"{who} does not know this cluster's secret: give all members the same secret file"
        )


def _expect_nonce(nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise HandshakeError(f"expected a nonce of {NONCE_BYTES} bytes, found {len(nonce)}")


def _pack(kind: str, *fields: Any) -> bytes:
    packed: bytes = msgpack.packb((kind, *fields))
    return packed


def _unpack(
    payload: bytes, kind: str, types: tuple[type, ...], *, is_whole: bool = True
) -> tuple[Any, ...]:
    """Return the fields of a message; unless ``is_whole``, a later release may have added some."""
    try:
        fields = msgpack.unpackb(payload, use_list=False, strict_map_key=True)
    except Exception as error:  # msgpack raises a dozen kinds for bytes that are not msgpack
        raise HandshakeError(f"expected a {kind}, found {type(error).__name__}") from None
    if type(fields) is not tuple or not fields or fields[0] != kind:
        raise HandshakeError(f"expected a {kind}, found something else")
    known = fields[1 : len(types) + 1]
    if len(known) < len(types) or (is_whole and len(fields) > len(types) + 1):
        raise HandshakeError(f"expected {len(types)} fields in a {kind}, found {len(fields) - 1}")
    if any(type(value) is not wanted for value, wanted in zip(known, types, strict=True)):
        raise HandshakeError(f"expected other types in a {kind}")
    return known


def _short(text: str) -> str:
    """Quote a stranger's text so that it cannot flood or forge a log line."""
    return ascii(text[:_TEXT_BYTES_MAX])
