"""The owner of a data directory: its member and its cluster.

The file ``owner`` is the first in a directory, stable before anything else is written there. It
names the cluster and the member as they are configured, and holds the *cluster id*: 16 random
bytes that tell apart two clusters of the same name. With the id it holds the list of members. Its
``format`` says by which rules a release reads the whole directory.

1. At its start a member refuses a directory of another member, or of a cluster of another name. It
   changes nothing there.
2. Members agree on the cluster id through the log: a leader that knows no id, and has none in its
   log, draws one and puts it into the first entry of its term. So a log holds at most one id, and a
   member that applies the entry notes it. A member that gets a snapshot instead takes the id that
   its leader shows. Until the id is noted its entry stays in the log and no snapshot replaces it;
   otherwise the next life could lead without an id and draw a second one.
3. Members show the id to each other before anything that one says about the log counts
   (``incarnations`` are shown with it: ``incarnations``). Two different ids: neither hears the
   other, and neither believes what the other says of its past. Without an id a member hears those
   with one; it may be new, or have lost its disk (``recovering``).
4. The list of members is noted with the id, when it is sure: who shows an id, or an entry with
   one, has agreed on the list before (``agreement``). A member started with another list refuses:
   a majority of a shorter one may be a minority of the cluster, and cut off from those that know
   better it would have a leader of its own. Begun again (``refounding``) a cluster has a new one.
5. A log without an owner file, or with one that has no format, was written before the first
   release. It is refused here, and nowhere else: nothing of it is read.

Why not an id drawn at the first start, or a digest of the configuration: members without a leader
could not agree on the first, and two clusters made from one example would share the second.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from zlib import crc32

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.engine import InvariantError
from coordinator.raft.storage import hard_state as term
from coordinator.raft.storage.disk import Disk, join, replace_file

logger = logging.getLogger(__name__)

NAME = "owner"
FORMAT = 1
CLUSTER_ID_BYTES = 16
TRY_AGAIN_MS = 1_000
"""Without room on the disk."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The contents of the file; ``cluster_id`` is empty as long as none is agreed on."""

    cluster: str
    member_id: str
    cluster_id: bytes = b""
    member_ids: tuple[str, ...] = ()
    """The members of the whole cluster, sorted; empty as long as they may still be corrected."""

    def __str__(self) -> str:
        return f"member {self.member_id!r} of cluster {self.cluster!r}"


def load(disk: Disk, directory: str) -> Owner | None:
    """Return what the file says, None in a new directory.

    Raises:
        StorageError: it is not sound, or the directory is not of a release's format.
    """
    path = join(directory, NAME)
    if not disk.exists(path):
        if disk.exists(join(join(directory, "log"), term.NAME)):
            raise _before_releases(directory)
        return None
    line, _, checksum = disk.read(path).partition(b"\n")
    try:
        if checksum.strip() != _checksum(line):
            raise ValueError("the checksum is another one")
        found = json.loads(line)
        number = found.get("format")
        if number is None:
            raise _before_releases(directory)
        if number != FORMAT:
            raise StorageError(
                f"{directory}: expected data of format {FORMAT}, found format {number}; nothing"
                " was changed there: run the release that wrote them",
                path=directory,
            )
        return Owner(
            found["cluster"],
            found["member"],
            bytes.fromhex(found["cluster_id"]),
            tuple(str(each) for each in found["members"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path}: damaged; expected a line of JSON and its checksum; the owner of these"
            " data is unknown: this member must be replaced",
            path=path,
        ) from error


def save(disk: Disk, directory: str, owner: Owner) -> None:
    """Replace the file; returns when that is stable."""
    document = {
        "format": FORMAT,
        "cluster": owner.cluster,
        "member": owner.member_id,
        "cluster_id": owner.cluster_id.hex(),
        "members": owner.member_ids,
    }
    line = json.dumps(document).encode()
    replace_file(disk, directory, NAME, line + b"\n" + _checksum(line) + b"\n")


class Ownership:
    """One member's directory, once it is known to be this member's.

    Args:
        member_ids: those of the cluster, as configured, sorted.
        draw: returns 32 random bits (``segments.salts``).
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        owner: Owner,
        *,
        member_ids: tuple[str, ...],
        draw: Callable[[], int],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._member_ids = member_ids
        self._draw = draw
        self._try_again_ms: int | None = None
        self.owner = owner

    @property
    def is_noted(self) -> bool:
        """Whether the file says what is known here."""
        return self._try_again_ms is None

    @property
    def cluster_id(self) -> bytes:
        """Empty as long as none is agreed on."""
        return self.owner.cluster_id

    def confirm(self, cluster_id: bytes) -> None:
        """Note the id that the log of this directory holds; InvariantError if it is another's."""
        self.learn(cluster_id)
        if self.cluster_id != cluster_id:
            raise InvariantError(
                f"the log is of cluster {cluster_id.hex()}, the data directory of cluster"
                f" {self.cluster_id.hex()}"
            )

    def draw_id(self) -> bytes:
        """Return an id for a cluster that has none."""
        return b"".join(self._draw().to_bytes(4, "big") for _ in range(CLUSTER_ID_BYTES // 4))

    def learn(self, cluster_id: bytes) -> None:
        """Note the id that was agreed on, and the list of members that was agreed on before it;
        synced on the loop, once in the life of a directory."""
        if (self.cluster_id and self.owner.member_ids) or not cluster_id:
            return
        cluster_id = self.cluster_id or cluster_id
        self.owner = Owner(self.owner.cluster, self.owner.member_id, cluster_id, self._member_ids)
        logger.info("this is cluster %s, id %s", self.owner.cluster, cluster_id.hex())
        self._try_again_ms = 0
        self.maybe_note(0)

    def maybe_note(self, now_ms: int) -> None:
        """Note what there was no room for, if it is time to try that again."""
        if self._try_again_ms is None or now_ms < self._try_again_ms:
            return
        try:
            save(self._disk, self._directory, self.owner)
            self._try_again_ms = None
        except DiskFullError as error:
            # It holds in this life; the next one learns it again of the log or of its leader.
            logger.warning("the id of the cluster is not noted for now: %s", error)
            self._try_again_ms = now_ms + TRY_AGAIN_MS


def take(
    disk: Disk,
    directory: str,
    owner: Owner,
    member_ids: Collection[str],
    *,
    draw: Callable[[], int],
) -> Ownership:
    """Return the ownership of ``directory``, which must be there; StorageError if it is another's.

    ``member_ids`` are those of the cluster, this one's among them."""
    found = load(disk, directory)
    if found is None:
        save(disk, directory, owner)
        found = owner
    refuse_another(directory, found, owner, member_ids)
    configured = tuple(sorted(member_ids))
    return Ownership(disk, directory, found, member_ids=configured, draw=draw)


def refuse_another(
    directory: str, found: Owner, owner: Owner, member_ids: Collection[str]
) -> None:
    """Raise StorageError if ``directory`` belongs to ``found``, and that is not ``owner``."""
    if (found.cluster, found.member_id) != (owner.cluster, owner.member_id):
        raise _refusal(directory, owner, f"those of {found}")
    configured = tuple(sorted(member_ids))
    if found.member_ids and found.member_ids != configured:
        raise StorageError(
            f"{directory}: expected the data of a cluster of the members {', '.join(configured)},"
            f" found those of one of {', '.join(found.member_ids)}; nothing was changed there:"
            " correct [[cluster.members]], for the list of members cannot be changed yet",
            path=directory,
        )


def _before_releases(directory: str) -> StorageError:
    return StorageError(
        f"{directory}: this log was written by a build from before the first release, and no"
        " release reads it; nothing was changed there: export what you need with that build, then"
        " move the data directories of all members away and start with empty ones",
        path=directory,
    )


def _refusal(directory: str, owner: Owner, found: str) -> StorageError:
    return StorageError(
        f"{directory}: expected the data of {owner}, found {found}; nothing was changed there:"
        " set member.data_dir (or cluster.name, member.member_id) right, or use an empty directory",
        path=directory,
    )


def _checksum(line: bytes) -> bytes:
    return f"{crc32(line):08x}".encode()
