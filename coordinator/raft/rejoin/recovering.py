"""A recovering member: the rules for a member that may have forgotten its promises.

An empty data directory belongs to a member of a new cluster, or to one whose disk was lost; the
member cannot know which. Such a member is recovering. Raft has no answer to a lost disk; the rules
are those of Viewstamped Replication's recovery (Liskov and Cowling 2012, section 4.3) and of
"Protocol-Aware Recovery for Consensus-Based Storage" (Alagappan et al., FAST 2018):

1. It gives no vote and no pre-vote to a candidate that has, or ever had, anything to lose, and does
   not stand for election. While the logs of *all* members are empty, a new member may be elected as
   the first leader; it needs the pre-vote of each of them. (If a majority were enough, one lost
   disk and a member that was never started could begin a second history.) A voter in that election
   is proven before its vote is sent; a candidate, when it gets its first vote.
2. It follows no leader before enough other members have named their terms: so many that one of them
   knows every term in which this member may have voted or acknowledged. It then refuses older
   leaders, since acknowledging to one could contradict a forgotten acknowledgement. It asks for the
   terms only once its life is older than the time for which votes count: every vote that could be
   counted together with its forgotten one was given before it asks.
3. It is proven once it durably holds what a leader had committed in its own term, as named in an
   append that agrees with this log: every committed entry that this member ever acknowledged is
   among those. The commit index must be above the one that this member first heard of; for a member
   that asks, the leader writes an empty entry.
4. A file beside the log marks the member as recovering. It is durable before the log begins, and
   removed after the log is durable; so recovery survives any crash.
5. The proof, the term and the commit index of that leader, is kept in another file. By rules 2 and
   3 it grows from proof to proof, also across lost disks. So of two lives of this member that share
   no memory, the one with the higher proof is the later one (``incarnations``). Without room for
   the proof a member keeps recovering.

These files are synced on the loop and hold it up: a few bytes, a few times in the life of a disk,
while the member has no vote yet, or, in a first election, while all others wait for that vote.

What stays unsafe: losing the disks of a majority, at whatever times, before they are proven again.
"""

from __future__ import annotations

import logging
import struct
from enum import StrEnum
from typing import NamedTuple
from zlib import crc32

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.storage.disk import Disk, join, replace_file

logger = logging.getLogger(__name__)

NAME = "unproven"
PROOF_NAME = "proof"
MARKED_BY = "chapters"
"""A file of every member that can be accused."""
TRY_AGAIN_MS = 1_000
"""Without room on the disk."""
_PROOF = struct.Struct("<QQ")


def ask_after_ms(election_timeout_ms_max: int) -> int:
    """The age of a life at which votes of the former life no longer count anywhere (rule 3 of
    ``elections``); clocks may be off by 1 %, either way."""
    return election_timeout_ms_max * 103 // 100 + 2


class RecoveryStage(StrEnum):
    """``NEW``: nothing is known of a cluster with a history. ``JOINING``: there is one.
    ``FOUNDING``: it begins again with what this member holds (``refounding``)."""

    PROVEN = "proven"
    NEW = "new"
    JOINING = "joining"
    FOUNDING = "founding"


class Proof(NamedTuple):
    """What a member held when it was last proven: all that the leader of ``term`` had committed,
    up to ``commit_index``. Zeros: it took part in a first election."""

    term: int
    commit_index: int


class Recovering:
    """The recovery of one member.

    Args:
        directory: of the member's data.
        member_count: of the whole cluster.
        is_new: there is no log yet; the caller that first opens the directory knows.
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
        self.caught_up: Proof | None = None
        """What ends the recovery once it is durable."""
        self._founder_id: str | None = None
        self._first_leaders_commit: int | None = None
        self._try_again_ms: int | None = None
        self.proof = self._load_proof()
        self.key = b""
        """The key of the seals of this directory (``incarnations`` keeps it)."""
        self.stage = RecoveryStage.PROVEN
        if disk.exists(self._path):
            recorded = disk.read(self._path)
            known = (RecoveryStage.NEW, RecoveryStage.FOUNDING)
            found = [stage for stage in known if recorded == stage.encode()]
            self.stage = found[0] if found else RecoveryStage.JOINING
        elif is_new:
            self._write(RecoveryStage.NEW)
            self.stage = RecoveryStage.NEW

    @property
    def is_proven(self) -> bool:
        """Whether this member knows all that it ever promised."""
        return self.stage is RecoveryStage.PROVEN

    @property
    def is_new(self) -> bool:
        """Whether this member knows of no history at all."""
        return self.stage is RecoveryStage.NEW

    @property
    def is_founding(self) -> bool:
        """Whether this member begins a cluster again from its data."""
        return self.stage is RecoveryStage.FOUNDING

    @property
    def may_campaign(self) -> bool:
        """Whether this member may stand for election."""
        return self.stage is not RecoveryStage.JOINING

    def may_follow(self, leader_id: str) -> bool:
        """Whether a leader whose term is not too old may be followed and acknowledged."""
        is_known = self.is_proven or len(self._answered) >= self._answers_needed
        return is_known or leader_id == self._founder_id

    def note_history(self) -> None:
        """There is a cluster with a history: this member joins no first election."""
        if self.is_new:
            self._store(RecoveryStage.JOINING)

    def note_other_leader(self) -> None:
        """Another member leads: if this member was founding, enough others are proven."""
        self.note_history()
        if self.is_founding:
            self._store(RecoveryStage.JOINING)

    def note_founder(self, member_id: str) -> None:
        """This member voted for a founding member: there are no earlier terms to ask for."""
        self._founder_id = member_id

    def begin(self, why: str) -> None:
        """This member has lost entries that it acknowledged: begin to recover."""
        logger.error("member %s may not vote until it has caught up: %s", self._member_id, why)
        self._answered.clear()
        self._question = 0
        self.caught_up = self._first_leaders_commit = self._founder_id = None
        self.stage = RecoveryStage.JOINING
        try:
            self._write(RecoveryStage.JOINING)
        except DiskFullError:
            self._mark_without_room()

    def ask(self, number: int) -> int:
        """Return the number of this life's question for terms; ``number`` if it is the first."""
        self._question = self._question or number
        return self._question

    def on_answer(self, member_id: str, number: int) -> None:
        """Count an answer to the last question: that member's term is known."""
        if number == self._question:
            self._answered.add(member_id)

    def note_leaders_commit(self, commit_index: int) -> None:
        """Note the commit index of a leader that this member follows."""
        if self._first_leaders_commit is None:
            self._first_leaders_commit = commit_index

    def is_enough(self, commit_index: int) -> bool:
        """Whether that is above the first commit index heard in this life."""
        return self._first_leaders_commit is not None and commit_index > self._first_leaders_commit

    def note_caught_up(self, proof: Proof) -> None:
        """The log agrees up to its index with what the leader of its term has committed."""
        self.caught_up = proof

    def maybe_end(self, durable_index: int, now_ms: int) -> None:
        """End the recovery if the entries of the proof are durable and there is room for it."""
        proof = self.caught_up
        if proof is None or durable_index < proof.commit_index:
            return
        if self._try_again_ms is not None and now_ms < self._try_again_ms:
            return
        try:
            if not self.is_proven:
                self._keep_proof(proof)
            self.end()
        except DiskFullError as error:
            logger.warning("member %s is not proven for now: %s", self._member_id, error)
            self._try_again_ms = now_ms + TRY_AGAIN_MS

    def end(self) -> None:
        """From now on this member votes; returns when that is stable. DiskFullError, where even a
        removal takes room, leaves it recovering; in an election that stops it."""
        if not self.is_proven:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
            self._disk.sync_directory(self._directory)
            logger.info("member %s may vote", self._member_id)
            self.stage = RecoveryStage.PROVEN
        self.caught_up = self._try_again_ms = None

    def _store(self, stage: RecoveryStage) -> None:
        self.stage = stage
        try:
            self._write(stage)
        except DiskFullError as error:
            # The next life of this member recovers as well, as a new member.
            logger.error("member %s could not note that: %s", self._member_id, error)

    def _mark_without_room(self) -> None:
        """A second name for a file takes none, and any content but that of a new one will do. If
        that fails, too, StorageError stops the member: in its next life it would be believed."""
        try:
            is_marked = self._disk.link(join(self._directory, MARKED_BY), self._path)
        except DiskFullError:
            is_marked = False
        if not is_marked:
            raise StorageError(
                f"{self._path}: expected room to note that this member may not vote, found none",
                path=self._path,
            )
        self._disk.sync_directory(self._directory)

    def _load_proof(self) -> Proof:
        path = join(self._directory, PROOF_NAME)
        if not self._disk.exists(path):
            return Proof(0, 0)
        data = self._disk.read(path)
        fields = data[: _PROOF.size]
        if len(fields) == _PROOF.size and data == fields + crc32(fields).to_bytes(4, "little"):
            return Proof(*_PROOF.unpack(fields))
        raise StorageError(
            f"{path}: damaged; expected a term and an index with a sound checksum; which life"
            " of this member is the later one is unknown: it must be replaced",
            path=path,
        )

    def _keep_proof(self, proof: Proof) -> None:
        data = _PROOF.pack(*proof)
        data += crc32(data).to_bytes(4, "little")
        replace_file(self._disk, self._directory, PROOF_NAME, data)
        self.proof = proof

    def _write(self, stage: RecoveryStage) -> None:
        replace_file(self._disk, self._directory, NAME, stage.encode())
