"""Seals on acknowledgements: what a member said once, it can be shown again. Pure.

A leader that finds that a follower lacks entries which it had acknowledged tells it so
(``LogLost``), and the follower gives up its vote. So that must not be something that anybody can
make up. Each acknowledgement carries a seal, a keyed hash over the leader's term and the last
entry, whose key never leaves the follower's directory (``incarnations``); the leader keeps the last
one and repeats it. An older copy of the directory has the same key. The follower keeps nothing, and
a leader that says so in truth always has one: it counted on nothing else.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from coordinator.raft.network.messages import Appended, LogLost, Message, SnapshotReply

SEAL_BYTES = 16
_SAID = struct.Struct(">QQ")


class Said(NamedTuple):
    """I hold, durably, everything up to ``last_index`` that the leader of ``term`` has."""

    term: int = 0
    last_index: int = 0
    seal: bytes = b""


NOTHING_SAID = Said()


def sealed(key: bytes, message: Message) -> Message:
    """Return ``message`` with this member's seal if it is one that acknowledges entries."""
    if isinstance(message, Appended) and message.is_success:
        return message._replace(seal=_seal(key, message.term, message.next_index - 1))
    if isinstance(message, SnapshotReply) and message.is_installed:
        return message._replace(seal=_seal(key, message.term, message.snapshot_index))
    return message


def is_own(key: bytes, lost: LogLost) -> bool:
    """Whether this member said that it holds what it is told it had."""
    expected = _seal(key, lost.said_term, lost.said_index)
    return lost.last_index <= lost.said_index and compare_digest(lost.seal, expected)


def _seal(key: bytes, term: int, index: int) -> bytes:
    said = _SAID.pack(term, index)
    return blake2b(said, digest_size=SEAL_BYTES, key=key, person=b"acknowledged").digest()
