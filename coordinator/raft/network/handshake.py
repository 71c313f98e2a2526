"""The handshake: two members prove their identity to each other before anything else. No I/O.

::

    dialer                                    acceptor
      GREETING   version, cluster, from, to, nonce  ──►
      ◄──  CHALLENGE  nonce
      PROOF      facts, proof("dial")  ──►
      ◄──  WELCOME    facts, proof("accept")

1. A proof is HMAC-SHA256, keyed with the cluster's secret, over its label and everything that both
   have said so far. The label, the ids and the nonces of both sides make it useless in the other
   direction, for another pair of members and at another time. Compared in constant time. While the
   secret is replaced an acceptor knows two, and goes on with the one that was proved. Once that
   one counts no more the connection ends (``transport``).
2. The dialer proves itself first: a stranger gets no text made with the secret, so it cannot try
   guesses of the secret on one.
3. The proofs cover the facts (``agreement``). Both sides compare them once the proofs are sound;
   they come to the same result, and each logs why.
4. The keys under which frames are sealed afterwards come from the secret and both nonces, one for
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

from coordinator.raft.network.agreement import FACTS_BYTES_MAX, Fact, difference, is_shown, shown
from coordinator.raft.network.messages import FrameError

PROTOCOL_VERSION = 1
HANDSHAKE_FRAME_BYTES_MAX = FACTS_BYTES_MAX + 1024
NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO, _CHALLENGE, _PROOF, _WELCOME = "greeting", "challenge", "proof", "welcome"
_TEXT_BYTES_MAX = 128


class HandshakeError(FrameError):
    """The other side is not who it should be, or speaks another protocol."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What this member knows before it meets another: ``facts`` must be equal on all members."""

    cluster: str
    member_id: str
    secret: bytes
    facts: Sequence[Fact] = ()
    former: tuple[bytes, ...] = ()
    """Secrets that are believed, and not proved: while the secret is replaced."""

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
        self.is_done = False
        """Both sides have proved themselves."""
        self.disagreement = ""
        """Why there is no link all the same, in one sentence; once it is done."""

    def begin(self) -> bytes:
        """Return the first payload to send."""
        me = self._identity
        return _pack(_HELLO, PROTOCOL_VERSION, me.cluster, me.member_id, self.peer_id, self._nonce)

    def receive(self, payload: bytes) -> bytes | None:
        """Take the other side's next payload; return what to answer. Raises HandshakeError."""
        me = self._identity
        if self._transcript is None:
            (nonce,) = _unpack(payload, _CHALLENGE, (bytes,))
            _expect_nonce(nonce)
            transcript = _Transcript(me, me.member_id, self.peer_id, self._nonce, nonce)
            self._transcript = transcript
            return _pack(_PROOF, shown(me.facts), transcript.proof_of_dialer(shown(me.facts)))
        theirs, proof = _unpack(payload, _WELCOME, (tuple, bytes))
        _expect_facts(theirs, self.peer_id)
        _check(
            proof,
            self._transcript.proof_of_acceptor(shown(me.facts), theirs),
            f"member {self.peer_id!r}",
        )
        self.disagreement = difference(me.facts, theirs, me.member_id, self.peer_id)
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
        theirs, proof = _unpack(payload, _PROOF, (tuple, bytes))
        _expect_facts(theirs, self.peer_id)
        self._transcript.take_secret_of(proof, theirs, (me.secret, *me.former))
        expected = self._transcript.proof_of_dialer(theirs)
        _check(proof, expected, f"a caller that says it is {_short(self.peer_id)}")
        self.disagreement = difference(me.facts, theirs, me.member_id, self.peer_id)
        self.is_done = True
        answer = self._transcript.proof_of_acceptor(theirs, shown(me.facts))
        return _pack(_WELCOME, shown(me.facts), answer)

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
        fields = _unpack(payload, _HELLO, (int, str, str, str, bytes))
        version, cluster, peer_id, own_id, nonce = fields
        if version != PROTOCOL_VERSION:
            raise HandshakeError(
                f"expected member protocol {PROTOCOL_VERSION}, found {version}: run the same"
                " release on all members"
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
        self._transcript = _Transcript(me, peer_id, me.member_id, nonce, self._nonce)
        return _pack(_CHALLENGE, self._nonce)


class _Transcript:
    """What both sides know once the nonces are exchanged, and what is made of it."""

    def __init__(
        self, identity: Identity, dialer: str, acceptor: str, nonce: bytes, other_nonce: bytes
    ) -> None:
        self._secret = identity.secret
        self._words = (
            PROTOCOL_VERSION, identity.cluster, dialer, acceptor, nonce, other_nonce,
        )  # fmt: skip
        self._salt = nonce + other_nonce

    def proof_of_dialer(self, facts: Any) -> bytes:
        return self._proof("dial", facts)

    def proof_of_acceptor(self, facts_of_dialer: Any, facts: Any) -> bytes:
        return self._proof("accept", facts_of_dialer, facts)

    def take_secret_of(self, proof: bytes, facts: Any, secrets: Sequence[bytes]) -> None:
        """Go on with the one of ``secrets`` that the dialer has proved, if it is one of them."""
        for self._secret in reversed(secrets):
            if hmac.compare_digest(proof, self.proof_of_dialer(facts)):
                return

    def is_by(self, secrets: Sequence[bytes]) -> bool:
        return any(hmac.compare_digest(self._secret, each) for each in secrets)

    def keys(self) -> Keys:
        drawn = hmac.new(self._salt, self._secret, hashlib.sha256).digest()
        return Keys(*(self._key(drawn, label) for label in ("frames dial", "frames accept")))

    def _proof(self, label: str, *fields: Any) -> bytes:
        # An empty key: a cluster of one, or a test; then a proof only ties the words together.
        return hmac.new(self._secret, _pack(label, *self._words, *fields), hashlib.sha256).digest()

    def _key(self, drawn: bytes, label: str) -> bytes:
        return hmac.new(drawn, _pack(label, *self._words) + b"\x01", hashlib.sha256).digest()


def _expect_facts(found: Any, who: str) -> None:
    # Before the proof: it is made of what is packed again, and not everything could be.
    if not is_shown(found):
        raise HandshakeError(f"expected a list of facts of {_short(who)}")


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


def _unpack(payload: bytes, kind: str, types: tuple[type, ...]) -> tuple[Any, ...]:
    try:
        fields = msgpack.unpackb(payload, use_list=False, strict_map_key=True)
    except Exception as error:  # msgpack raises a dozen kinds for bytes that are not msgpack
        raise HandshakeError(f"expected a {kind}, found {type(error).__name__}") from None
    if type(fields) is not tuple or len(fields) != len(types) + 1 or fields[0] != kind:
        raise HandshakeError(f"expected a {kind}, found something else")
    if any(type(value) is not wanted for value, wanted in zip(fields[1:], types, strict=True)):
        raise HandshakeError(f"expected other types in a {kind}")
    return fields[1:]


def _short(text: str) -> str:
    """Quote a stranger's text so that it cannot flood or forge a log line."""
    return ascii(text[:_TEXT_BYTES_MAX])
