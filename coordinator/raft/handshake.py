"""How two members prove to each other who they are, before a word about the log. No I/O.

::

    dialer                                    acceptor
      HELLO  version, cluster, from, to, nonce  ──►
      ◄──  CHALLENGE  nonce, proof("accept")
      PROOF  proof("dial")  ──►
      ◄──  WELCOME

A proof is HMAC-SHA256, keyed with the cluster's secret, over its label and everything both have
said. The label, the ids and the nonces of both sides make it useless in the other direction, for
another pair of members and at another time. Compared in constant time. What comes after is neither
encrypted nor authenticated by this: off a trusted network that is TLS's part.

Refusals say which field was wrong, never the secret or a proof.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator.raft.messages import FrameError

PROTOCOL_VERSION = 5
HANDSHAKE_FRAME_BYTES_MAX = 1024
NONCE_BYTES = 32
_PROOF_BYTES = 32
_HELLO, _CHALLENGE, _PROOF, _WELCOME = "hello", "challenge", "proof", "welcome"
_TEXT_BYTES_MAX = 128


class HandshakeError(FrameError):
    """The other side is not who it should be, or speaks another protocol."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What this member knows before it meets another: ``secret`` is empty on loopback only."""

    cluster: str
    member_id: str
    secret: bytes
    known_ids: frozenset[str]

    def __repr__(self) -> str:
        return f"Identity(cluster={self.cluster!r}, member_id={self.member_id!r})"


class Dialer:
    """The side that opened the connection; it knows whom it wants to reach."""

    def __init__(self, identity: Identity, peer_id: str, nonce: bytes) -> None:
        self._identity = identity
        self._nonce = nonce
        self._is_proved = False
        self.peer_id: str = peer_id
        self.is_done = False

    def begin(self) -> bytes:
        """Return the first payload to send."""
        me = self._identity
        return _pack(_HELLO, PROTOCOL_VERSION, me.cluster, me.member_id, self.peer_id, self._nonce)

    def receive(self, payload: bytes) -> bytes | None:
        """Take the other side's next payload; return what to answer. Raises HandshakeError."""
        if not self._is_proved:
            nonce, proof = _unpack(payload, _CHALLENGE, (bytes, bytes))
            _expect_nonce(nonce)
            told = (self._identity.member_id, self.peer_id, self._nonce, nonce)
            _check(proof, _proof(self._identity, "accept", *told), f"member {self.peer_id!r}")
            self._is_proved = True
            return _pack(_PROOF, _proof(self._identity, "dial", *told))
        _unpack(payload, _WELCOME, ())
        self.is_done = True
        return None


class Acceptor:
    """The side that was called; it learns who calls from the hello and believes the proof."""

    def __init__(self, identity: Identity, nonce: bytes) -> None:
        self._identity = identity
        self._nonce = nonce
        self._peer_nonce: bytes | None = None
        self.peer_id: str = ""
        self.is_done = False

    def receive(self, payload: bytes) -> bytes | None:
        """Take the other side's next payload; return what to answer. Raises HandshakeError."""
        if self._peer_nonce is None:
            return self._answer_hello(payload)
        (proof,) = _unpack(payload, _PROOF, (bytes,))
        _check(proof, self._own_proof("dial"), f"a caller that says it is {self.peer_id!r}")
        self.is_done = True
        return _pack(_WELCOME)

    def _answer_hello(self, payload: bytes) -> bytes:
        me = self._identity
        said = _unpack(payload, _HELLO, (int, str, str, str, bytes))
        version, cluster, peer_id, own_id, nonce = said
        if version != PROTOCOL_VERSION:
            raise HandshakeError(f"expected protocol {PROTOCOL_VERSION}, found {version}")
        if cluster != me.cluster:
            raise HandshakeError(f"expected cluster {me.cluster!r}, found {_short(cluster)}")
        if own_id != me.member_id:
            raise HandshakeError(f"this is member {me.member_id!r}, not {_short(own_id)}")
        if peer_id == me.member_id or peer_id not in me.known_ids:
            raise HandshakeError(f"no other member is called {_short(peer_id)}")
        _expect_nonce(nonce)
        self.peer_id = peer_id
        self._peer_nonce = nonce
        return _pack(_CHALLENGE, self._nonce, self._own_proof("accept"))

    def _own_proof(self, label: str) -> bytes:
        assert self._peer_nonce is not None
        return _proof(
            self._identity,
            label,
            self.peer_id,
            self._identity.member_id,
            self._peer_nonce,
            self._nonce,
        )


def _proof(
    identity: Identity, label: str, dialer: str, acceptor: str, nonce: bytes, other_nonce: bytes
) -> bytes:
    said: bytes = msgpack.packb(
        (label, PROTOCOL_VERSION, identity.cluster, dialer, acceptor, nonce, other_nonce)
    )
    # An empty key is allowed: on loopback without a secret the proof only ties the words together.
    return hmac.new(identity.secret, said, hashlib.sha256).digest()


def _check(found: bytes, expected: bytes, who: str) -> None:
    if len(found) != _PROOF_BYTES or not hmac.compare_digest(found, expected):
        raise HandshakeError(f"{who} does not know this cluster's secret")


def _expect_nonce(nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise HandshakeError(f"expected a nonce of {NONCE_BYTES} bytes, found {len(nonce)}")


def _pack(kind: str, *fields: Any) -> bytes:
    packed: bytes = msgpack.packb((kind, *fields))
    return packed


def _unpack(payload: bytes, kind: str, types: tuple[type, ...]) -> tuple[Any, ...]:
    try:
        said = msgpack.unpackb(payload, use_list=False, strict_map_key=True)
    except Exception as error:  # msgpack raises a dozen kinds for bytes that are not msgpack
        raise HandshakeError(f"expected a {kind}, found {type(error).__name__}") from None
    if type(said) is not tuple or not said or said[0] != kind or len(said) != len(types) + 1:
        raise HandshakeError(f"expected a {kind}, found something else")
    if any(type(value) is not wanted for value, wanted in zip(said[1:], types, strict=True)):
        raise HandshakeError(f"expected other types in a {kind}")
    return said[1:]


def _short(text: str) -> str:
    """Quote a stranger's text so that it cannot flood or forge a log line."""
    return ascii(text[:_TEXT_BYTES_MAX])
