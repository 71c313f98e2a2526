"""The record of incarnations, a member's own and those of others that it met; how they compare.

The file ``incarnations``: a magic, a checksum, and msgpack of ``IncarnationRecord``. The rules are
those of the module ``incarnations``; nothing here sends or waits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple
from zlib import crc32

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import StorageError
from coordinator.raft.network.messages import INCARNATIONS_SHOWN_MAX, INTEGER_MAX
from coordinator.raft.rejoin.recovering import Proof
from coordinator.raft.storage.disk import Disk, join, replace_file

NAME = "chapters"
_MAGIC = b"coordchp"
_HEAD_BYTES = len(_MAGIC) + 4
INCARNATIONS_KEPT = INCARNATIONS_SHOWN_MAX
"""32 KiB of ids: beyond so many starts, or minutes, only the number is compared."""
SEAL_BYTES = 16
_SHOWN = struct.Struct(">BQQ")

NO_PROOF_IS_LATER = Proof(INTEGER_MAX, INTEGER_MAX)
"""For a life that was not proven when it was met: unknown which life is the later one."""


class Met(NamedTuple):
    """An incarnation in which a member was met, and with what it was proven then."""

    number: int
    incarnation_id: bytes
    proof: Proof
    life_id: bytes = b""
    seal: bytes = b""
    """That member's own seal over all this: it proves to it that it was in that incarnation."""


@dataclass(slots=True)
class IncarnationRecord:
    """The content of the file: this member's last incarnations, and the last one met of each other
    one."""

    number: int = 0
    ids: list[bytes] = field(default_factory=list)
    met: dict[str, Met] = field(default_factory=dict)
    life_id: bytes = b""
    """The id of this life's first incarnation."""
    key: bytes = b""
    """The key of this life's seals; never sent, but in all copies of the directory."""

    def begin(self, incarnation_id: bytes) -> None:
        """Count one more incarnation, with this id."""
        self.number += 1
        self.ids = [*self.ids, incarnation_id][-INCARNATIONS_KEPT:]
        self.life_id = self.life_id or incarnation_id

    def begun(self, incarnation_id: bytes) -> IncarnationRecord:
        """Return a copy with one more incarnation."""
        record = replace(self)
        record.begin(incarnation_id)
        return record


def knows(number: int, ids: list[bytes], met: Met) -> bool:
    """Whether a member with last incarnation ``number`` and with ``ids`` can have begun ``met``."""
    behind = number - met.number
    if behind < 0:
        return False
    return behind >= len(ids) or ids[-1 - behind] == met.incarnation_id


def is_older_copy(number: int, ids: list[bytes], life_id: bytes, proof: Proof, met: Met) -> bool:
    """Whether a proven member that shows this may have forgotten what it was when it was met."""
    if met.proof == NO_PROOF_IS_LATER:
        is_same_life = life_id == met.life_id != b""
        is_too_far = number - met.number >= len(ids) and not is_same_life
        return is_too_far or not knows(number, ids, met)
    if proof != met.proof:
        return proof < met.proof  # another life: each has its own numbers
    return not knows(number, ids, met)


def seal(
    key: bytes, number: int, incarnation_id: bytes, life_id: bytes, proof: Proof | None
) -> bytes:
    """Return what only the member with this key can have made of an incarnation that it was in,
    proven with ``proof``; None: while it recovers."""
    shown = _SHOWN.pack(proof is not None, *(proof or (0, 0)))
    sealed = number.to_bytes(8, "big") + incarnation_id + shown
    return blake2b(sealed + life_id, key=key, digest_size=SEAL_BYTES).digest()


def is_own_seal(own: IncarnationRecord, met: Met) -> bool:
    """Whether this member made the seal of ``met``, in which another says that it met it."""
    proofs = [None if met.proof == NO_PROOF_IS_LATER else met.proof]
    if met.proof == Proof(0, 0):
        proofs.append(None)  # so it is noted by a member that knows of no history
    return any(
        compare_digest(met.seal, seal(own.key, met.number, met.incarnation_id, met.life_id, proof))
        for proof in proofs
    )


def load(disk: Disk, directory: str) -> IncarnationRecord:
    """Return what the file says, an empty record without one; StorageError if it is not sound."""
    path = join(directory, NAME)
    if not disk.exists(path):
        return IncarnationRecord()
    data = disk.read(path)
    body = data[_HEAD_BYTES:]
    is_sound = data[: len(_MAGIC)] == _MAGIC
    if not is_sound or crc32(body).to_bytes(4, "little") != data[len(_MAGIC) : _HEAD_BYTES]:
        raise StorageError(
            f"{path}: damaged; expected a file of incarnations with a sound checksum; what this"
            " member has forgotten is unknown: it must be replaced",
            path=path,
        )
    try:
        number, ids, met, life_id, key = msgpack.unpackb(body)
        of_others = {key: _met(*each) for key, each in met.items()}
        record = IncarnationRecord(number, list(ids), of_others, life_id, key)
        _check_types(record)
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise StorageError(
            f"{path}: damaged; expected incarnations, found other values under a sound checksum:"
            " this member must be replaced",
            path=path,
        ) from error
    return record


def _check_types(record: IncarnationRecord) -> None:
    """Raise ValueError for values of other types than ``save`` writes."""
    numbers = [record.number]
    texts: list[object] = [*record.ids, record.life_id, record.key]
    for name, met in record.met.items():
        if type(name) is not str:
            raise ValueError("expected the id of a member")
        numbers += [met.number, *met.proof]
        texts += [met.incarnation_id, met.life_id, met.seal]
    if any(type(each) is not int or each < 0 for each in numbers):
        raise ValueError("expected numbers that are not negative")
    if any(type(each) is not bytes for each in texts):
        raise ValueError("expected ids and seals as bytes")


def _met(
    number: int, incarnation_id: bytes, proof: Iterable[int], life_id: bytes, seal: bytes
) -> Met:
    return Met(number, incarnation_id, Proof(*proof), life_id, seal)


def packed(record: IncarnationRecord) -> bytes:
    """Return what ``save`` keeps of ``record``."""
    body: bytes = msgpack.packb((record.number, record.ids, record.met, record.life_id, record.key))
    return body


def save(disk: Disk, directory: str, body: bytes) -> None:
    """Replace the file; returns when that is stable."""
    replace_file(disk, directory, NAME, _MAGIC + crc32(body).to_bytes(4, "little") + body)
