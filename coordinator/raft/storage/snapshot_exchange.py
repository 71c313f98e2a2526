"""The exchange of snapshots: making, sending and installing, between store, replica and log.

1. Making never stops the member: the replica's pieces are drawn one by one, some time apart, and
   the members of a cluster do not begin at the same entry. All at once on a busy machine, without a
   pause, they left requests a quarter of their rate.
2. The log is trimmed only after a snapshot is durable, and keeps a tail for laggards (row 29). It
   lies in memory, so the tail is bounded by entries and by bytes.
3. One piece is under way to each follower at once, so heartbeats never wait behind many.
4. Installing is all or nothing: the whole file is verified before the replica sees a byte, and the
   replica replaces its state in one step. Checking, syncing and decoding, which take long, are done
   elsewhere (``blocking``); the member goes on meanwhile, and if it has come further by then than
   the snapshot, it stays as it is.
5. Without room on the disk the snapshot is abandoned and tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coordinator.errors import DiskFullError, StorageError
from coordinator.node.config import RaftConfig
from coordinator.raft.blocking import Result, RunBlocking
from coordinator.raft.consensus import Consensus
from coordinator.raft.engine import InvariantError, Replace, Replica
from coordinator.raft.entries import NO_OP
from coordinator.raft.network.messages import SnapshotPiece, SnapshotReply
from coordinator.raft.rejoin.acknowledgement_seals import Acknowledgement
from coordinator.raft.storage.snapshot_due import SnapshotDue
from coordinator.raft.storage.snapshot_store import (
    SnapshotInfo,
    SnapshotReader,
    SnapshotStore,
    SnapshotTransferError,
    SnapshotWriter,
)

logger = logging.getLogger(__name__)

PIECE_EVERY_MS = 3
"""How far apart the pieces are drawn: each takes up to half a millisecond, and the requests that
come meanwhile wait for it. So 150 MB, of a million znodes, take 7 s. If so much is written
meanwhile that the next snapshot is due, there is no pause: the log that waits for this one is in
memory."""
DIRTY_BYTES_MAX = 2 * 1024 * 1024
"""After so many the disk begins to write them. All of a large snapshot at its end would hold up the
syncs of the log, which share the disk."""
TRY_AGAIN_MS = 60_000
"""After a snapshot found no room."""
KEPT_SNAPSHOTS_MAX = 8
"""A follower that is sent a snapshot finds the entries behind it until so many later ones were
made: with fewer, one that takes longer for it than the leader for its next would never catch up."""
TRIMMED_AT_ONCE = 5_000
"""Entries of the log that are freed in one step."""
RESEND_ELECTION_TIMEOUTS = 5
"""A piece without an answer is sent again after so many of the longest election timeouts."""


@dataclass(slots=True)
class _Stream:
    """One snapshot on its way to one follower."""

    reader: SnapshotReader
    offset: int
    sent_ms: int
    is_heard: bool = False
    """The follower has said something since the first piece was sent."""


@dataclass(slots=True)
class _Kept:
    """The log is kept from ``index`` on while ``count`` more snapshots are made."""

    index: int
    count: int


class SnapshotExchange:
    """The snapshots of one member."""

    def __init__(
        self,
        *,
        store: SnapshotStore,
        log: Any,
        replica: Replica,
        raft: RaftConfig,
        now_ms: Callable[[], int],
        run_blocking: RunBlocking,
        on_installed: Callable[[], None],
        on_failure: Callable[[BaseException], None],
        head_start: float = 0.0,
    ) -> None:
        self._store = store
        self._log = log
        self._replica = replica
        self._raft = raft
        self._now_ms = now_ms
        self._run_blocking = run_blocking
        self._on_installed = on_installed
        self._on_failure = on_failure
        self.streams: dict[str, _Stream] = {}  # what is being sent, by follower
        self._kept_for: dict[str, _Kept] = {}
        self._receiving: tuple[int, bytes] | None = None
        self._making: asyncio.Task[None] | None = None
        self._installing: asyncio.Task[None] | None = None
        self._needed_ms: int | None = None  # when a piece last came of a snapshot it lacks
        self.is_without_room = False  # the last piece that came found none
        self._finishing = asyncio.Lock()  # the store finishes one at a time, written or received
        self.due = SnapshotDue(raft, head_start)
        self._next_make_ms = 0
        self.snapshot_index = 0
        self.made_total = 0
        self.sent_total = 0
        self.installed_total = 0

    def load(self) -> int:
        """Restore the replica from disk; return the index up to which it is applied."""
        log = self._log
        info = self._store.latest()
        if info is None:
            if len(log) == 0:
                log.add(NO_OP, 1, 0)
                log.sync()
            if log[0][1] != 1:
                raise StorageError(
                    f"expected a log from entry 1, or a snapshot; found {log[0][1]} as its first "
                    "entry, and no snapshot: replace this member (docs/recovery.md)"
                )
            return 1
        self._prepare(info)()
        self._note_restored(info)
        if len(log) and log[0][1] > info.index:
            raise StorageError(
                f"expected a log that begins at or before the snapshot, at {info.index}; found "
                f"{log[0][1]} as its first entry: replace this member (docs/recovery.md)"
            )
        if log.getCurrentTerm() < info.term:
            # The snapshot was stable before the term was: others had committed what it holds. No
            # vote of that term has left, for votes wait for the term.
            log.setCurrentTerm(info.term, None)
        self._follow_on(info)
        log.sync()
        return info.index

    def _prepare(self, info: SnapshotInfo) -> Replace:
        """Verify and decode a snapshot; may take long, and run in a thread."""
        reader = self._store.open(info)
        try:
            return reader.decoded(self._replica.prepare_restore)
        except ValueError as error:
            raise StorageError(
                f"the snapshot {info.path} cannot be decoded: {error}; run the release that wrote"
                " it, or replace this member (docs/recovery.md)"
            ) from error
        finally:
            reader.close()

    def _note_restored(self, info: SnapshotInfo) -> None:
        self.snapshot_index = info.index
        self.due.note_restored(info.size_bytes)

    def _follow_on(self, info: SnapshotInfo) -> None:
        """Keep the log if it has the snapshot's last entry; else it begins there (row 11)."""
        log = self._log
        is_inside = len(log) > 0 and log[0][1] <= info.index <= log[-1][1]
        if is_inside and log[info.index - log[0][1]][2] == info.term:
            return
        log.clear()
        log.add(NO_OP, info.index, info.term)

    def open_newest(self) -> SnapshotReader | None:
        """Open the newest snapshot, for a backup; close it when done. None if there is none."""
        info = self._store.latest()
        return None if info is None else self._store.open(info)

    # Making.

    def maybe_make(self, applied_index: int) -> None:
        """Begin a snapshot if enough was applied since the last one."""
        # One that was cancelled before it began does not say that it is over.
        is_making = self._making is not None and not self._making.done()
        if is_making or applied_index <= self.snapshot_index:
            return
        is_due = self.due.is_due(applied_index - self.snapshot_index)
        if not is_due or self._now_ms() < self._next_make_ms:
            return
        self.due.note_begun()
        position = applied_index - self._log[0][1]
        last_entry = self._log[position]
        previous_entry = self._log[position - 1] if position else (NO_OP, applied_index - 1, 0)
        pieces = self._replica.snapshot()
        self._making = asyncio.get_running_loop().create_task(
            self._make(pieces, last_entry, previous_entry)
        )

    async def _make(self, pieces: Any, last_entry: Any, previous_entry: Any) -> None:
        try:
            writer = self._store.begin_write(last_entry, previous_entry)
            try:
                dirty_bytes = 0
                for number, piece in enumerate(pieces):
                    if number:
                        await asyncio.sleep(0 if self.due.is_late else PIECE_EVERY_MS / 1000)
                    writer.write(piece)
                    dirty_bytes += len(piece)
                    if dirty_bytes >= DIRTY_BYTES_MAX:
                        await self._in_thread(writer.write_out)
                        dirty_bytes = 0
                info = await self._finished(writer)
            except BaseException:
                writer.abort()
                raise
            # A newer one may have been received meanwhile, and not be installed yet.
            if info.index == last_entry[1] > self.snapshot_index:
                self.snapshot_index = info.index
                self.due.note_made(info.size_bytes)
                self.made_total += 1
                await self._trim(info.index)
                logger.info("snapshot at entry %d, %d bytes", info.index, info.size_bytes)
        except DiskFullError as error:
            logger.warning("no snapshot for now: %s", error)
            self._next_make_ms = self._now_ms() + TRY_AGAIN_MS
            self.due.note_given_up()
        except Exception as error:
            self._on_failure(error)
        finally:
            self._making = None

    async def _finished(self, writer: SnapshotWriter) -> SnapshotInfo:
        await self._finishing.acquire()
        try:
            return await self._in_thread(writer.finish)
        finally:
            self._finishing.release()

    async def _in_thread(self, call: Callable[[], Result]) -> Result:
        """Return what it returns; if this is cancelled, the call ends before."""
        calling = asyncio.ensure_future(self._run_blocking(call))
        cancelled: asyncio.CancelledError | None = None
        try:
            while not calling.done():  # the file must not be closed under the thread
                try:
                    await asyncio.wait((calling,))
                except asyncio.CancelledError as error:
                    cancelled = error
            if cancelled is None:
                return calling.result()
            calling.exception()  # nobody asks for it any more
            raise cancelled
        finally:
            cancelled = None  # its frames hold it: no cycle is left for the collector

    async def _trim(self, index: int) -> None:
        needed = min((kept.index for kept in self._kept_for.values()), default=index)
        count = min(index - self._tail_entries(index), needed) - self._log[0][1]
        while count > 0:
            self._log.deleteEntriesTo(min(count, TRIMMED_AT_ONCE))
            count -= TRIMMED_AT_ONCE
            if count > 0:
                await asyncio.sleep(0)  # what is installed meanwhile clears the log
                count = min(count, index - self._log[0][1])
        for member_id, kept in list(self._kept_for.items()):
            kept.count -= 1
            if not kept.count:
                del self._kept_for[member_id]

    def _tail_entries(self, index: int) -> int:
        """Return how many entries up to ``index`` are kept for followers that are behind."""
        entries_max = self._raft.keep_entries_after_snapshot
        left_bytes = self.due.kept_bytes
        behind = index - self._log[0][1]
        tail = self._log[max(behind - entries_max, 0) : behind]
        for count, entry in enumerate(reversed(tail)):
            left_bytes -= len(entry[0])
            if left_bytes < 0:
                return count
        return entries_max

    # Sending.

    def send(self, consensus: Consensus, member_id: str, is_connected: bool) -> None:
        """The follower needs a snapshot: start sending, unless that is under way."""
        if member_id in self.streams or not is_connected:
            return
        info = self._store.latest()
        if info is None:
            raise InvariantError("the log was trimmed and there is no snapshot")
        try:
            self.streams[member_id] = _Stream(self._store.open(info), 0, 0)
        except DiskFullError as error:  # no descriptor is left for it; it is needed again soon
            logger.warning("no snapshot is sent to member %s for now: %s", member_id, error)
            return
        self._kept_for[member_id] = _Kept(info.index, KEPT_SNAPSHOTS_MAX)
        logger.info("sending the snapshot at entry %d to member %s", info.index, member_id)
        self._send_piece(consensus, member_id)

    def _send_piece(self, consensus: Consensus, member_id: str) -> None:
        stream = self.streams[member_id]
        info = stream.reader.info
        data = stream.reader.read(stream.offset, self._raft.snapshot_piece_bytes)
        stream.sent_ms = self._now_ms()
        consensus.send_now(
            member_id,
            SnapshotPiece(
                consensus.core.term, info.index, info.size_bytes, info.sha256, stream.offset, data
            ),
        )

    def on_reply(self, consensus: Consensus, member_id: str, reply: SnapshotReply) -> None:
        """Send the follower the next piece, or count it as up to date."""
        stream = self.streams.get(member_id)
        if stream is None or stream.reader.info.index != reply.snapshot_index:
            return
        stream.is_heard = True
        if reply.is_installed:
            self.forget(member_id)
            self._kept_for[member_id] = _Kept(reply.snapshot_index, 1)  # for what comes behind it
            self.sent_total += 1
            acknowledged = Acknowledgement(reply.term, reply.snapshot_index, reply.seal)
            consensus.replication.on_snapshot_installed(member_id, acknowledged)
            consensus.send_entries()
        elif stream.offset != reply.next_offset < stream.reader.info.size_bytes:
            # Else that piece is under way: this answers one that was sent again.
            stream.offset = reply.next_offset
            self._send_piece(consensus, member_id)

    @property
    def is_settled(self) -> bool:
        """Whether no follower is being sent a snapshot."""
        return not self.streams

    def resend(self, consensus: Consensus) -> None:
        """Send again what was not answered for long, and once the first piece when the follower is
        heard: before, it may not have followed (a leader it had to note, terms it had to learn)."""
        limit_ms = RESEND_ELECTION_TIMEOUTS * self._raft.election_timeout_ms_max
        for member_id, stream in self.streams.items():
            heard_ms = consensus.replication.followers[member_id].heard_ms
            is_first_heard = not stream.is_heard and (heard_ms or 0) > stream.sent_ms
            stream.is_heard |= is_first_heard
            if is_first_heard or self._now_ms() - stream.sent_ms > limit_ms:
                self._send_piece(consensus, member_id)

    def forget(self, member_id: str) -> None:
        """The follower is gone, or has what it needs."""
        self._kept_for.pop(member_id, None)
        stream = self.streams.pop(member_id, None)
        if stream is not None:
            stream.reader.close()

    def forget_all(self) -> None:
        """Send no snapshot to anyone: this member does not lead."""
        for member_id in list(self.streams):
            self.forget(member_id)
        self._kept_for.clear()

    # Installing.

    @property
    def is_needed(self) -> bool:
        """Whether this member is behind the log of its leader, which sends a snapshot."""
        if self._needed_ms is None:
            return False
        # A leader that has come since may not need to: then no piece comes any more.
        limit_ms = 2 * RESEND_ELECTION_TIMEOUTS * self._raft.election_timeout_ms_max
        return self._now_ms() - self._needed_ms <= limit_ms

    @property
    def lacks_room(self) -> bool:
        """Whether that snapshot finds no room on the disk."""
        return self.is_without_room and self.is_needed

    def receive(self, consensus: Consensus, member_id: str, piece: SnapshotPiece) -> None:
        """Take a piece and answer it; with the last one begin to install the snapshot."""
        if self._installing is not None:
            return  # one at a time; the leader sends the piece again
        if piece.snapshot_index <= consensus.core.commit_index:
            self._needed_ms = None
            self._reply(consensus, member_id, piece, 0, is_installed=True)
            return
        self._needed_ms = self._now_ms()
        try:
            if self._receiving != (piece.snapshot_index, piece.sha256):
                self._store.begin_receive(piece.total_bytes, piece.sha256)
                self._receiving = (piece.snapshot_index, piece.sha256)
            if piece.offset == self._store.received_bytes < piece.total_bytes:
                self._store.receive(piece.offset, piece.data)
            self.is_without_room = False
            if self._store.received_bytes < piece.total_bytes:
                self._reply(consensus, member_id, piece, self._store.received_bytes)
                return
        except SnapshotTransferError as error:
            self._refuse(consensus, member_id, piece, error)
            return
        except DiskFullError as error:
            self._give_up(error)
            return
        self._installing = asyncio.get_running_loop().create_task(
            self._install(consensus, member_id, piece)
        )

    async def _received(self, term_max: int) -> SnapshotInfo:
        await self._finishing.acquire()
        try:
            return await self._run_blocking(lambda: self._store.finish_receive(term_max=term_max))
        finally:
            self._finishing.release()

    async def _install(self, consensus: Consensus, member_id: str, piece: SnapshotPiece) -> None:
        try:
            info = await self._received(piece.term)
            replace = await self._run_blocking(lambda: self._prepare(info))
            self._receiving = None
            is_needed = info.index > consensus.core.commit_index
            if is_needed and self._making is not None:
                self._making.cancel()  # it would be older, and holds the state that goes now
            replace(is_needed=is_needed)
            if is_needed:
                self._note_restored(info)
                self._follow_on(info)
                consensus.core.install(info.index)
                self.installed_total += 1
                logger.info("installed the snapshot at entry %d of %s", info.index, member_id)
            self._needed_ms = None
            self._reply(consensus, member_id, piece, 0, is_installed=True)
        except SnapshotTransferError as error:
            self._refuse(consensus, member_id, piece, error)
        except DiskFullError as error:
            self._give_up(error)
        except Exception as error:
            self._on_failure(error)
            return
        finally:
            self._installing = None
        self._on_installed()

    def _refuse(
        self,
        consensus: Consensus,
        member_id: str,
        piece: SnapshotPiece,
        error: SnapshotTransferError,
    ) -> None:
        logger.warning("the snapshot of member %s is refused: %s", member_id, error)
        self._receiving = None
        self._store.abort_receive()
        self._reply(consensus, member_id, piece, 0)

    def _give_up(self, error: DiskFullError) -> None:
        """Send no answer: the piece is sent again later, and installing starts again."""
        logger.warning("the snapshot cannot be received for now: %s", error)
        self._receiving = None
        self.is_without_room = True
        self._store.abort_receive()

    def _reply(
        self,
        consensus: Consensus,
        member_id: str,
        piece: SnapshotPiece,
        next_offset: int,
        *,
        is_installed: bool = False,
    ) -> None:
        consensus.send(
            member_id,
            SnapshotReply(consensus.core.term, piece.snapshot_index, next_offset, is_installed),
        )

    async def stop(self) -> None:
        """Give up a snapshot that is being made; wait for one that is being installed."""
        self.forget_all()
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(*[self._making], return_exceptions=True)
        if self._installing is not None:
            await asyncio.wait((self._installing,))  # a thread may be in the midst of it
