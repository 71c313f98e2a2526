"""Seals on acknowledgements: proof to a member of what it once acknowledged. Pure.

A leader that finds that a follower lacks entries which it had acknowledged notifies it
(``LogLost``), and the follower gives up its vote. So no other member may be able to forge this.
Each acknowledgement carries a seal: a keyed hash over the leader's term and the last entry. The key
never leaves the follower's directory (``incarnations``); the leader keeps the last seal and repeats
it. An older copy of the directory has the same key. The follower stores no seals, and an honest
leader always has one: it counted only sealed acknowledgements.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from coordinator.raft.network.messages import Appended, LogLost, Message, SnapshotReply

SEAL_BYTES = 16
_SAID = struct.Struct(">QQ")


class Acknowledgement(NamedTuple):
    """This member durably holds all entries of the leader of ``term`` up to ``last_index``."""

    term: int = 0
    last_index: int = 0
    seal: bytes = b""


NO_ACKNOWLEDGEMENT = Acknowledgement()


def sealed(key: bytes, message: Message) -> Message:
    """Return ``message`` with this member's seal if it is one that acknowledges entries."""
    if isinstance(message, Appended) and message.is_success:
        term, epoch, next_index, is_success, _ = message
        return Appended(term, epoch, next_index, is_success, _seal(key, term, next_index - 1))
    if isinstance(message, SnapshotReply) and message.is_installed:
        return message._replace(seal=_seal(key, message.term, message.snapshot_index))
    return message


def is_own(key: bytes, lost: LogLost) -> bool:
    """Whether this member really acknowledged what the message says it acknowledged."""
    expected = _seal(key, lost.said_term, lost.said_index)
    return lost.last_index <= lost.said_index and compare_digest(lost.seal, expected)


def _seal(key: bytes, term: int, index: int) -> bytes:
    sealed = _SAID.pack(term, index)
    return blake2b(sealed, digest_size=SEAL_BYTES, key=key, person=b"acknowledged").digest()
