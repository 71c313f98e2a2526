"""A member that may have forgotten what it promised: what it must not do until it knows it again.

An empty data directory is that of a new cluster's member, or of one whose disk was lost; it cannot
be told which. Such a member is on probation (Raft has no answer to a lost disk; the rules are those
of Viewstamped Replication's recovery, Liskov and Cowling 2012, section 4.3, and of "Protocol-Aware
Recovery for Consensus-Based Storage", Alagappan et al., FAST 2018):

1. It gives no vote and no pre-vote to a candidate that has, or ever had, anything to lose, and does
   not stand for election. Among members that are all on probation as new ones, with empty logs, a
   first leader is elected as usual; whoever asks, grants or is granted in that election is proven.
2. It follows no leader before so many of the others told their terms that one of them knows every
   term in which this member may have voted or acknowledged. An older leader is then refused: what
   this member acknowledged to it could contradict what it acknowledged before.
3. It is proven once it holds, durably, what a leader had committed in its own term, as told in an
   append that agrees with this log: whatever this member had acknowledged and was committed is
   among that.
4. A file beside the log says so. It is stable before the log begins, and removed after the log is
   stable; so probation outlives any crash.
5. With what it was proven, the term of that leader and what had been committed, is kept in another
   file. By rule 2 that never shrinks from proof to proof, also over lost disks: so of two lives of
   this member that share no memory, the one proven with more is the later one (``chapters``).

What stays unsafe: losing the disks of a majority, at whatever times, before they are proven again.
"""

from __future__ import annotations

import logging
import struct
from enum import StrEnum
from typing import NamedTuple
from zlib import crc32

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.disk import Disk, join

logger = logging.getLogger(__name__)

NAME = "unproven"
PROOF_NAME = "proof"
_PROOF = struct.Struct("<QQI")


class Standing(StrEnum):
    """``NEW``: nothing is known of a cluster with a history. ``JOINING``: there is one."""

    PROVEN = "proven"
    NEW = "new"
    JOINING = "joining"


class Proof(NamedTuple):
    """What a member held when it was last proven: all that the leader of ``term`` had committed,
    up to ``commit_index``. Zeros: it took part in a first election, or it is of before there were
    proofs."""

    term: int
    commit_index: int


class Probation:
    """Where one member stands.

    Args:
        directory: of the member's data.
        member_count: of the whole cluster.
        is_new: nothing of a log is there yet; the first to touch the directory says so.
    """

    def __init__(
        self, disk: Disk, directory: str, member_id: str, member_count: int, *, is_new: bool
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._path = join(directory, NAME)
        self._member_id = member_id
        self._answers_needed = member_count - member_count // 2
        self._answered: set[str] = set()
        self._question = 0
        self._caught_up: Proof | None = None
        self.proof = self._load_proof()
        self.standing = Standing.PROVEN
        if disk.exists(self._path):
            is_found_new = disk.read(self._path) == Standing.NEW.encode()
            self.standing = Standing.NEW if is_found_new else Standing.JOINING
        elif is_new:
            self._write(Standing.NEW)
            self.standing = Standing.NEW

    @property
    def is_proven(self) -> bool:
        return self.standing is Standing.PROVEN

    @property
    def is_new(self) -> bool:
        return self.standing is Standing.NEW

    @property
    def may_campaign(self) -> bool:
        return self.standing is not Standing.JOINING

    @property
    def may_follow(self) -> bool:
        """Whether a leader whose term is not too old may be followed and acknowledged."""
        return self.is_proven or len(self._answered) >= self._answers_needed

    def note_history(self) -> None:
        """There is a cluster with a history: no first leader is to be elected here."""
        if self.is_new:
            self._store(Standing.JOINING)

    def begin(self, why: str) -> None:
        """This member has lost what it had acknowledged."""
        logger.error("member %s may not vote until it has caught up: %s", self._member_id, why)
        self._answered.clear()
        self._question = 0
        self._caught_up = None
        self._store(Standing.JOINING)

    def ask(self, number: int) -> int:
        """Return the number of this life's question for terms; ``number`` if it is the first."""
        self._question = self._question or number
        return self._question

    def on_answer(self, member_id: str, number: int) -> None:
        if number == self._question:
            self._answered.add(member_id)

    def note_caught_up(self, proof: Proof) -> None:
        """The log agrees up to its index with what the leader of its term has committed."""
        self._caught_up = proof

    def maybe_end(self, durable_index: int) -> None:
        """End it if what was caught up with is stable."""
        caught_up = self._caught_up
        if caught_up is not None and durable_index >= caught_up.commit_index:
            if not self.is_proven:
                self._keep_proof(caught_up)
            self.end()

    def end(self) -> None:
        """From now on this member votes; returns when that is stable."""
        self._caught_up = None
        if self.is_proven:
            return
        if self._disk.exists(self._path):
            self._disk.remove(self._path)
        self._disk.sync_directory(self._directory)
        logger.info("member %s may vote", self._member_id)
        self.standing = Standing.PROVEN

    def _store(self, standing: Standing) -> None:
        self.standing = standing
        try:
            self._write(standing)
        except DiskFullError as error:
            # It holds in this life; in the next one the others will find out again.
            logger.error("member %s could not note that: %s", self._member_id, error)

    def _load_proof(self) -> Proof:
        path = join(self._directory, PROOF_NAME)
        if not self._disk.exists(path):
            return Proof(0, 0)
        data = self._disk.read(path)
        if len(data) == _PROOF.size:
            term, commit_index, checksum = _PROOF.unpack(data)
            if checksum == crc32(data[:-4]):
                return Proof(term, commit_index)
        raise StorageError(
            f"{path}: damaged; expected a term and an index with a sound checksum, so it cannot be"
            " told which life of this member is the later one: it must be replaced",
            path=path,
        )

    def _keep_proof(self, proof: Proof) -> None:
        data = _PROOF.pack(*proof, 0)[:-4]
        try:
            self._replace(PROOF_NAME, data + crc32(data).to_bytes(4, "little"))
        except DiskFullError as error:
            # The one before is a claim to less: at worst this member has to catch up once more.
            logger.warning("with what it was proven is not noted for now: %s", error)
        else:
            self.proof = proof

    def _write(self, standing: Standing) -> None:
        self._replace(NAME, standing.encode())

    def _replace(self, name: str, content: bytes) -> None:
        """Give the file ``name`` this content; returns when that is stable."""
        path = join(self._directory, name)
        temporary = f"{path}.tmp"
        file = self._disk.create(temporary)
        try:
            file.write(content)
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, path)
        self._disk.sync_directory(self._directory)
