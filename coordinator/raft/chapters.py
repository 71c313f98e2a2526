"""Which copy of its data a member runs on: an older one, put back, is told from the newest.

A member's data are in chapters. A new one, with a number and an id drawn at random, begins with
each start, and once a minute while something was written. On each connection a member shows the
ids of its last chapters; the others keep the last one that they have met of each member.

1. What a member says about the log does not count on a connection before it has shown a chapter,
   and that one, unless it was known, is stable here. So whoever counted on a member remembers of
   which chapter it was, whatever happens to itself; but not while there is no room for that, nor
   of the chapter that the member begins on the same connection before that is noted, too.
2. One that does not know the chapter that another member has met of it runs on an older copy. It is
   told, goes on probation (``probation``), and shows itself again as one that is. So does one whose
   directory was emptied, from the beginning.
3. One that lost its disk, or was accused, and has caught up since, knows none of its chapters of
   before; it was proven with more than what it was then (``probation``, rule 5), so those who met
   it before and were away since take it as it is. One that was proven with less is an older copy,
   whatever it knows. Who was met on probation must know that chapter by its id: of two lives the
   later cannot be told then, and it is accused, to be safe, and has to catch up once more.
4. A chapter is stable where it began before it is shown; so nobody knows one that a member has
   forgotten without having lost data.
5. Numbers only grow, and of the ids as many are kept as decide where numbers are close. Beyond
   those a number alone decides, within one life. A life, from an empty directory on, is known by
   the id of its first chapter, which is never dropped: a member that met others on probation and
   was away for longer than the ids reach must not accuse them, for they may be all there are.

What is not found out: a copy younger than the chapter in which it was taken, that is, one that
forgets less than a minute; and one that meets nobody who knew better.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple
from zlib import crc32

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.blocking import RunBlocking
from coordinator.raft.disk import Disk, join, replace_file
from coordinator.raft.messages import (
    CHAPTER_ID_BYTES,
    INTEGER_MAX,
    Chapter,
    ChapterLost,
    ChapterSeen,
    Message,
)
from coordinator.raft.obstacles import Shown, obstacle
from coordinator.raft.ownership import Ownership
from coordinator.raft.probation import TRY_AGAIN_MS, Probation, Proof

logger = logging.getLogger(__name__)

NAME = "chapters"
_MAGIC = b"COORDCHP"
_HEAD_BYTES = len(_MAGIC) + 4
CHAPTERS_KEPT = 4_096
"""32 KiB: starts, or minutes, after which a number alone must do."""
CHAPTER_MS = 60_000
"""A chapter in which something was written ends after so long."""

NO_PROOF_IS_LATER = Proof(INTEGER_MAX, INTEGER_MAX)
"""Of a life that was not proven when it was met: which one is the later is not known."""


class Met(NamedTuple):
    """A chapter in which a member was met, and with what it was proven then."""

    number: int
    chapter_id: bytes
    proof: Proof
    life_id: bytes = b""
    """Empty: noted before lives had ids."""


@dataclass(slots=True)
class Record:
    """What the file says: this member's last chapters, and the last one met of each other one."""

    number: int = 0
    ids: list[bytes] = field(default_factory=list)
    met: dict[str, Met] = field(default_factory=dict)
    life_id: bytes = b""
    """The id of this life's first chapter; of a file of before, of the next that began."""

    def begin(self, chapter_id: bytes) -> None:
        self.number += 1
        self.ids = [*self.ids, chapter_id][-CHAPTERS_KEPT:]
        self.life_id = self.life_id or chapter_id

    def begun(self, chapter_id: bytes) -> Record:
        """Return it with one more chapter; this one stays as it is."""
        record = replace(self)
        record.begin(chapter_id)
        return record


def knows(number: int, ids: list[bytes], met: Met) -> bool:
    """Whether one whose last chapter is ``number``, with ``ids``, can have begun ``met``."""
    behind = number - met.number
    if behind < 0:
        return False
    return behind >= len(ids) or ids[-1 - behind] == met.chapter_id


def is_older_copy(number: int, ids: list[bytes], life_id: bytes, proof: Proof, met: Met) -> bool:
    """Whether a proven member that shows this may have forgotten what it was when it was met."""
    if met.proof == NO_PROOF_IS_LATER:
        is_same_life = life_id == met.life_id != b""
        is_too_far = number - met.number >= len(ids) and not is_same_life
        return is_too_far or not knows(number, ids, met)
    if proof != met.proof:
        return proof < met.proof  # another life: numbers begin anew with each
    return not knows(number, ids, met)


def load(disk: Disk, directory: str) -> Record:
    """Return what the file says, an empty record without one; StorageError if it is not sound."""
    path = join(directory, NAME)
    if not disk.exists(path):
        return Record()
    data = disk.read(path)
    body = data[_HEAD_BYTES:]
    is_sound = data[: len(_MAGIC)] == _MAGIC
    if not is_sound or crc32(body).to_bytes(4, "little") != data[len(_MAGIC) : _HEAD_BYTES]:
        raise StorageError(
            f"{path}: damaged; expected a file of chapters with a sound checksum, so it cannot be"
            " told what this member has forgotten: it must be replaced",
            path=path,
        )
    number, ids, met, *life = msgpack.unpackb(body)
    of_others = {key: _met(*each) for key, each in met.items()}
    return Record(number, list(ids), of_others, life[0] if life else b"")


def _met(
    number: int, chapter_id: bytes, proof: Iterable[int] = (0, 0), life_id: bytes = b""
) -> Met:
    return Met(number, chapter_id, Proof(*proof), life_id)  # without: noted before they were kept


def packed(record: Record) -> bytes:
    """Return what ``save`` keeps of ``record``."""
    body: bytes = msgpack.packb((record.number, record.ids, record.met, record.life_id))
    return body


def save(disk: Disk, directory: str, body: bytes) -> None:
    """Replace the file; returns when that is stable."""
    replace_file(disk, directory, NAME, _MAGIC + crc32(body).to_bytes(4, "little") + body)


class Chapters:
    """One member's, and what it knows of the others'.

    Args:
        probation: this member's.
        on_met: told of one that this member hears now, or that hears it.
        on_older_copy: told once it is known that this member's data are an older copy.
        on_cluster_id: told of the cluster's id when it is learned of a leader.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        others: tuple[str, ...],
        *,
        random: Random,
        now_ms: Callable[[], int],
        resend_ms: int,
        send: Callable[[str, Message], bool],
        run_blocking: RunBlocking,
        probation: Probation,
        ownership: Ownership,
        on_met: Callable[[str], None],
        on_older_copy: Callable[[str], None],
        on_cluster_id: Callable[[bytes], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """Begin a chapter; it is stable on return."""
        self._disk = disk
        self._directory = directory
        self._others = others
        self._random = random
        self._now_ms = now_ms
        self._resend_ms = resend_ms
        self._send = send
        self._run_blocking = run_blocking
        self._probation = probation
        self._ownership = ownership
        self._on_met = on_met
        self._on_older_copy = on_older_copy
        self._on_cluster_id = on_cluster_id
        self._on_failure = on_failure
        self._connected: set[str] = set()
        self._heard: set[str] = set()
        """Those who have shown, on this connection, that they are what is known of them."""
        self._seen_by: set[str] = set()
        """Those who have noted the chapter of now."""
        self._heard_by: set[str] = set()
        """Those who have noted one on this connection, and hear this member since."""
        self._accused: set[str] = set()
        self._shown_by: dict[str, Shown] = {}
        """What the connected ones show of their data."""
        self._shown_ms = 0
        self._shown_state: object = (probation.standing, ownership.cluster_id)
        self._saving: asyncio.Task[None] | None = None
        self._noted: dict[str, Met] = {}
        """Met, and not stable yet."""
        self._is_stopped = False
        self._record = load(disk, directory)
        self._began_ms = now_ms()
        self._began_at: object = None
        self._try_again_ms: int | None = None
        """Something of the record is not stable for want of room."""
        self._owes_chapter = False
        if others:
            self._begin_life()

    def _begin_life(self) -> None:
        begun = self._record.begun(self._draw())
        try:
            save(self._disk, self._directory, packed(begun))
        except DiskFullError as error:
            if not self._record.number:
                raise  # it was never shown anywhere: there is no chapter to go on in
            logger.warning("a chapter begins when there is room: %s", error)
            self._owes_chapter = True
            self._try_again_ms = self._now_ms() + TRY_AGAIN_MS
        else:
            self._record = begun

    @property
    def obstacle(self) -> str:
        """What stands in the way of a leader, in words; "" if nothing is known to."""
        own, cluster_id = self._probation, self._ownership.cluster_id
        return obstacle(
            self._ownership.owner.member_id, self._others, shown=self._shown_by,
            own=Shown(own.is_proven, cluster_id), is_new=own.is_new,
        )  # fmt: skip

    def hears(self, member_id: str) -> bool:
        """Whether what this member says about the log counts."""
        return member_id in self._heard

    def on_connected(self, member_id: str) -> None:
        self.on_disconnected(member_id)
        self._connected.add(member_id)
        self._show(member_id)

    def on_disconnected(self, member_id: str) -> None:
        for known in (
            self._connected, self._heard, self._seen_by, self._heard_by, self._accused,
        ):  # fmt: skip
            known.discard(member_id)
        self._shown_by.pop(member_id, None)
        self._noted.pop(member_id, None)

    def on_message(self, member_id: str, message: Chapter | ChapterSeen | ChapterLost) -> None:
        if isinstance(message, ChapterSeen):
            if message.number == self._record.number:
                self._seen_by.add(member_id)
                if member_id not in self._heard_by:
                    self._heard_by.add(member_id)
                    self._on_met(member_id)
        elif isinstance(message, Chapter):
            self._on_chapter(member_id, message)
        else:
            self._on_lost(member_id, message)

    def tick(self, log_position: object, leader_id: str | None) -> None:
        """Show again what was not seen; begin a chapter if the log moved and it is time to."""
        now_ms = self._now_ms()
        if leader_id in self._shown_by and not self._ownership.cluster_id:
            self._ownership.learn(self._shown_by[leader_id].cluster_id)
            self._on_cluster_id(self._ownership.cluster_id)
        state = (self._probation.standing, self._ownership.cluster_id)
        if self._shown_state != state:
            self._shown_state = state
            self._show_all()
        if now_ms - self._shown_ms >= self._resend_ms:
            self._shown_ms = now_ms
            for member_id in self._others:
                is_done = member_id in self._heard and member_id in self._seen_by
                is_done = is_done or self._is_foreign(member_id)
                if member_id in self._connected and not is_done:
                    self._show(member_id)
        if self._saving is not None or (self._try_again_ms or 0) > now_ms:
            return
        is_old = now_ms - self._began_ms >= CHAPTER_MS and log_position != self._began_at
        if self._others and (is_old or self._owes_chapter):
            self._owes_chapter = False
            self._began_ms, self._began_at = now_ms, log_position
            self._start_saving(self._record.begun(self._draw()))
        elif self._try_again_ms is not None:
            self._start_saving(self._record)

    async def stop(self) -> None:
        """Do nothing more; the file that is being written is written to its end."""
        self._is_stopped = True
        if self._saving is not None:
            await asyncio.wait((self._saving,))

    def drop(self) -> None:
        """Say nothing more."""
        self._is_stopped = True

    def _draw(self) -> bytes:
        return self._random.getrandbits(8 * CHAPTER_ID_BYTES).to_bytes(CHAPTER_ID_BYTES, "big")

    def _show(self, member_id: str, *, is_answer: bool = False) -> None:
        record = self._record
        is_asking = not is_answer and member_id not in self._heard
        ids = b"".join(record.ids)
        is_proven, proof = self._probation.is_proven, self._probation.proof
        shown = Chapter(
            record.number, ids, record.life_id, is_proven, is_asking, *proof,
            self._ownership.cluster_id,
        )  # fmt: skip
        self._send(member_id, shown)

    def _show_all(self) -> None:
        for member_id in sorted(self._connected):
            self._show(member_id)

    def _on_chapter(self, member_id: str, message: Chapter) -> None:
        ids = message.ids
        found = [
            ids[at : at + CHAPTER_ID_BYTES]
            for at in range(0, len(ids) - CHAPTER_ID_BYTES + 1, CHAPTER_ID_BYTES)
        ]
        if not found:
            return
        if message.is_asking:
            self._show(member_id, is_answer=True)
        if self._is_of_another_cluster(member_id, message):
            return
        number, is_proven = message.number, message.is_proven
        proof = Proof(message.proof_term, message.proof_index)
        met = self._record.met.get(member_id)
        life_id = message.life_id
        shown = Met(number, found[-1], proof if is_proven else NO_PROOF_IS_LATER, life_id)
        if met is not None and is_proven and is_older_copy(number, found, life_id, proof, met):
            self._heard.discard(member_id)
            if member_id not in self._accused:
                self._accused.add(member_id)
                logger.error(
                    "member %s runs on an older copy of its data: in chapter %d, it was in %d",
                    member_id, number, met.number,
                )  # fmt: skip
            self._send(member_id, ChapterLost(met.number, met.chapter_id, met.life_id, *met.proof))
        elif met == shown:
            self._hear(member_id, number)
        else:
            self._noted[member_id] = shown
            self._maybe_save()

    def _is_of_another_cluster(self, member_id: str, message: Chapter) -> bool:
        was_foreign = self._is_foreign(member_id)
        cluster_id = message.cluster_id
        self._shown_by[member_id] = Shown(message.is_proven, cluster_id)
        if not self._is_foreign(member_id):
            return False
        self._heard.discard(member_id)
        if not was_foreign:
            logger.error(
                "member %s runs on the data of another cluster (expected id %s, found %s): one of"
                " the two has a data directory that is not its own",
                member_id, self._ownership.cluster_id.hex(), cluster_id.hex(),
            )  # fmt: skip
        return True

    def _is_foreign(self, member_id: str) -> bool:
        own_id, shown = self._ownership.cluster_id, self._shown_by.get(member_id)
        return shown is not None and own_id != b"" and shown.cluster_id not in (b"", own_id)

    def _hear(self, member_id: str, number: int) -> None:
        self._send(member_id, ChapterSeen(number))
        if member_id not in self._heard:
            self._heard.add(member_id)
            self._on_met(member_id)

    def _on_lost(self, member_id: str, message: ChapterLost) -> None:
        proof = Proof(message.proof_term, message.proof_index)
        met = Met(message.number, message.chapter_id, proof, message.life_id)
        shown, own = self._record, self._probation
        if not own.is_proven or not is_older_copy(
            shown.number, shown.ids, shown.life_id, own.proof, met
        ):
            return
        self._on_older_copy(
            f"member {member_id} has met it in chapter {message.number}, which is not known here;"
            " was an old copy of its data put back?"
        )
        self._shown_state = (self._probation.standing, self._ownership.cluster_id)
        self._seen_by.clear()
        self._heard_by.clear()
        self._show_all()

    # Making it stable.

    def _maybe_save(self) -> None:
        if self._saving is None and self._noted and not self._is_stopped:
            met = {**self._record.met, **self._noted}
            self._start_saving(replace(self._record, met=met))

    def _start_saving(self, record: Record) -> None:
        self._saving = asyncio.get_running_loop().create_task(self._save(record))

    async def _save(self, record: Record) -> None:
        try:
            body = packed(record)
            await self._run_blocking(lambda: save(self._disk, self._directory, body))
            self._try_again_ms = None
        except DiskFullError as error:
            # Of the others it is remembered in this life; the chapter here goes on.
            logger.warning("chapters are not noted for now: %s", error)
            self._try_again_ms = self._now_ms() + TRY_AGAIN_MS
            self._owes_chapter |= record.number > self._record.number
            record = replace(self._record, met=record.met)
        except Exception as error:
            self._on_failure(error)
            return
        finally:
            self._saving = None
        if not self._is_stopped:
            self._follow(record)
            self._maybe_save()

    def _follow(self, record: Record) -> None:
        """``record`` is stable."""
        has_begun = record.number > self._record.number
        self._record = record
        for member_id, shown in list(self._noted.items()):
            if record.met.get(member_id) == shown:
                del self._noted[member_id]
                self._hear(member_id, shown[0])
        if has_begun:
            self._seen_by.clear()
            self._show_all()
