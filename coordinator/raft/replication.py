"""Replication: both ends of an append, the leader's and the follower's. No I/O.

1. ``match_index`` only grows within a term: what a follower acknowledged stays acknowledged.
2. A reply counts only in the epoch in which its request was sent. Every step back begins a new
   epoch, so only the first refusal of a whole pipeline of appends moves ``next_index`` (row 6).
3. A success never moves ``next_index`` back (row 5); a refusal never moves it below what is
   acknowledged (row 7).
4. A follower holds for ever what it acknowledged and was committed. A follower that lacks it has
   lost a part of its log (an emptied disk, an old copy); the leader notifies it, with the
   follower's own seal on its acknowledgement.
5. The bytes and messages under way to one follower are bounded.
6. A follower learns the commit index from the next message that leaves for it, if one is likely to
   leave at once; otherwise from a notice of its own (``notice_pacing``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from coordinator.node.config import RaftConfig
from coordinator.raft.context import RaftContext
from coordinator.raft.core import Core
from coordinator.raft.engine import InvariantError, Role
from coordinator.raft.network.messages import (
    APPEND_ENTRIES_MAX,
    Append,
    Appended,
    CommitNotice,
    LogLost,
    Message,
    Probe,
    ProbeReply,
)
from coordinator.raft.notice_pacing import NoticePacing
from coordinator.raft.progress import Progress
from coordinator.raft.rejoin.acknowledgement_seals import NO_ACKNOWLEDGEMENT, Acknowledgement

logger = logging.getLogger(__name__)

IN_FLIGHT_MESSAGES_MAX = 128
IN_FLIGHT_BATCHES_MAX = 4
"""Bytes under way to one follower, in units of ``append_batch_bytes``."""
OVERTAKEN_BYTES = 64 * 1024
"""With more entries under way a follower gets its heartbeats ahead of them (``network.lanes``)."""
ANSWER_INTERVALS_MAX = 2.5
"""A follower that answers every other heartbeat has answered within so many of their intervals."""
PASS_BATCHES_MAX = 2
"""Bytes of entries sent in one pass of the loop to all followers together, in the same units; more
if one message has more. To seal and write one takes some ms a MiB, for each follower."""


class Replication:
    """The leader's side of the log: what each follower has, and what it is sent next."""

    def __init__(
        self,
        member_ids: Sequence[str],
        *,
        log: Any,
        raft: RaftConfig,
        now_ms: Callable[[], int],
        send: Callable[[str, Message], bool],
        on_snapshot_needed: Callable[[str], None],
    ) -> None:
        self.followers = {member_id: Progress(member_id) for member_id in member_ids}
        self._log = log
        self._batch_bytes = raft.append_batch_bytes
        self._send = send
        self._on_snapshot_needed = on_snapshot_needed
        self._notices = NoticePacing(now_ms)
        self._now_ms = now_ms
        self._answer_ms_max = ANSWER_INTERVALS_MAX * raft.heartbeat_interval_ms
        self._may_spare = len(member_ids) % 2 == 0
        """Whether the half of the followers and this member are a quorum."""
        self._heartbeat_count = 0
        self._pass_bytes = 0
        """The size of the entries sent in this pass."""
        self._first = 0
        """Which follower is served first in this one."""
        self.is_cut_off = False
        """Whether entries wait for the next pass."""
        self.excused_ms = 0
        """No follower's silence counts before: it could not answer, or be read."""

    def quorum_heard_ms(self) -> int | None:
        """Return since when a quorum, this member in it, was heard; None: it never was."""
        known = [each.heard_ms for each in self.followers.values() if each.heard_ms is not None]
        needed = (len(self.followers) + 1) // 2
        return sorted(known)[-needed] if 0 < needed <= len(known) else None

    def begin_pass(self, term: int, commit_index: int) -> None:
        """Send what the last pass of the loop left; begin with whom it left out."""
        self._pass_bytes = 0
        if self.is_cut_off:
            self.is_cut_off = False
            self._first = (self._first + 1) % len(self.followers)
            self.send_entries(term, commit_index)
        else:
            self._first = 0

    def begin_term(self, now_ms: int) -> None:
        """Forget what an earlier leadership knew."""
        self.is_cut_off = False
        self.excused_ms = now_ms
        for progress in self.followers.values():
            progress.step_back(self._log[-1][1] + 1)
            progress.match_index = 0
            progress.sent_commit_index = 0
            progress.is_doubted = False

    def send_entries(self, term: int, commit_index: int) -> None:
        """Send each follower the entries not sent to it yet, as far as there is room."""
        followers = list(self.followers.values())
        for progress in (*followers[self._first :], *followers[: self._first]):
            self._send_to(progress, term, commit_index)

    def send_heartbeats(self, term: int, commit_index: int) -> None:
        """As ``send_entries``; a follower with nothing to send gets an append without entries.

        While all answer, each second one gets what asks for no answer, in turns: a quorum is heard
        as often, and a follower has half the work."""
        self._heartbeat_count += 1
        is_spared = self._may_spare and self._all_answer()
        for number, progress in enumerate(self.followers.values(), self._heartbeat_count):
            if progress.in_flight_bytes > OVERTAKEN_BYTES:
                self._send(progress.member_id, Probe(term, 0))  # ahead of what is under way
            if self._send_to(progress, term, commit_index):
                continue
            if is_spared and number % 2 and progress.match_index >= self._log[-1][1]:
                self._send_notice(progress, term, commit_index)
                continue
            if not self._send_append(progress, term, commit_index, []):
                self._send(progress.member_id, Probe(term, 0))

    def _all_answer(self) -> bool:
        """Whether all followers have answered soon, each since its connection was made."""
        since_ms = self._now_ms() - self._answer_ms_max
        for progress in self.followers.values():
            heard_ms = progress.heard_ms
            if not progress.has_answered or heard_ms is None or heard_ms < since_ms:
                return False
        return True

    def send_commit_index(self, term: int, commit_index: int) -> None:
        """Send the commit index to followers that have the entries, if no append carries it."""
        owed = []
        for progress in self.followers.values():
            if progress.sent_commit_index < commit_index <= progress.match_index:
                owed.append(progress)
        if not owed:
            self._notices.note_nothing_owed()
        elif not self._notices.may_wait(is_followed=commit_index < self._log[-1][1]):
            for progress in owed:
                self._send_notice(progress, term, commit_index)

    def send_commit_index_to(self, member_id: str, term: int, commit_index: int) -> None:
        """Send it to one follower, if it lacks it: another message leaves for it anyway."""
        progress = self.followers[member_id]
        if progress.sent_commit_index < commit_index <= progress.match_index:
            self._send_notice(progress, term, commit_index)

    @property
    def notice_due_ms(self) -> int | None:
        """When ``send_commit_index`` must be called again; None if nothing waits for it."""
        return self._notices.due_ms

    def must_notify(self, commit_index: int) -> bool:
        """Return whether a follower lacks the commit index, and no time is set to send it."""
        if self._notices.due_ms is not None:
            return False
        for progress in self.followers.values():
            if progress.sent_commit_index < commit_index <= progress.match_index:
                return True
        return False

    def _send_notice(self, progress: Progress, term: int, commit_index: int) -> None:
        progress.sent_commit_index = commit_index
        self._send(progress.member_id, CommitNotice(term, commit_index))

    def on_appended(self, member_id: str, reply: Appended, term: int, commit_index: int) -> None:
        """Take a reply of this term; send on."""
        progress = self.followers[member_id]
        if reply.epoch != progress.epoch:
            return
        last_index = self._log[-1][1]
        if reply.is_success:
            match_index = min(reply.next_index - 1, last_index)
            progress.match_index = max(progress.match_index, match_index)
            progress.next_index = max(progress.next_index, progress.match_index + 1)
            if progress.kept_index < commit_index:
                progress.keep_committed(commit_index)
            progress.is_doubted = False
            progress.keep(Acknowledgement(reply.term, reply.next_index - 1, reply.seal))
            self._land(progress)
            progress.has_answered = True
        else:
            self._on_refused(progress, reply, term)
        if not self._send_to(progress, term, commit_index) and not reply.is_success:
            self._send_append(progress, term, commit_index, [])  # a probe of the new epoch

    def _on_refused(self, progress: Progress, reply: Appended, term: int) -> None:
        floor = max(progress.match_index, progress.kept_index)
        if reply.next_index > floor:
            progress.step_back(min(reply.next_index, self._log[-1][1] + 1))
        elif not progress.is_doubted:
            progress.is_doubted = True
            progress.step_back(floor + 1)
        else:
            logger.error(
                "member %s lost entries %d to %d, which it had acknowledged",
                progress.member_id, reply.next_index, floor,
            )  # fmt: skip
            self._send(progress.member_id, LogLost(term, floor, *progress.acknowledged))
            progress.match_index = progress.kept_index = 0
            progress.acknowledged = NO_ACKNOWLEDGEMENT
            progress.is_doubted = False
            progress.step_back(reply.next_index)

    def on_connection_changed(self, member_id: str) -> None:
        """Messages under way may be lost; start again from what is acknowledged."""
        progress = self.followers[member_id]
        is_known = progress.match_index > 0
        progress.step_back(progress.match_index + 1 if is_known else progress.next_index)
        progress.sent_commit_index = 0

    def on_snapshot_installed(self, member_id: str, acknowledged: Acknowledgement) -> None:
        """The follower holds everything up to an index."""
        progress = self.followers[member_id]
        progress.match_index = max(progress.match_index, acknowledged.last_index)
        progress.keep(acknowledged)
        progress.step_back(max(progress.next_index, progress.match_index + 1))

    def _send_to(self, progress: Progress, term: int, commit_index: int) -> bool:
        """Send entries while there are some and there is room; return whether any were sent."""
        first_index, last_index = self._log[0][1], self._log[-1][1]
        if progress.next_index <= first_index:
            self._on_snapshot_needed(progress.member_id)
            return False
        is_any = False
        while progress.next_index <= last_index and self._has_room(progress):
            if self._pass_bytes >= PASS_BATCHES_MAX * self._batch_bytes:
                self.is_cut_off = True
                break
            entries, size = self._batch(progress.next_index - first_index)
            if not self._send_append(progress, term, commit_index, entries):
                break
            progress.next_index += len(entries)
            progress.in_flight.append((progress.next_index - 1, size))
            progress.in_flight_bytes += size
            self._pass_bytes += size
            is_any = True
        if is_any:
            self._notices.note_append()
        return is_any

    def _send_append(
        self, progress: Progress, term: int, commit_index: int, entries: list[tuple[int, bytes]]
    ) -> bool:
        position = progress.next_index - 1 - self._log[0][1]
        if position < 0:
            return False
        _, previous_index, previous_term = self._log[position]
        is_sent = self._send(
            progress.member_id,
            Append(term, progress.epoch, commit_index, previous_index, previous_term, entries),
        )
        if is_sent and progress.match_index >= commit_index:
            progress.sent_commit_index = max(progress.sent_commit_index, commit_index)
        return is_sent

    def _batch(self, position: int) -> tuple[list[tuple[int, bytes]], int]:
        entries: list[tuple[int, bytes]] = []
        size = 0
        for command, _, term in self._log[position : position + APPEND_ENTRIES_MAX]:
            if entries and size + len(command) > self._batch_bytes:
                break
            entries.append((term, command))
            size += len(command)
        return entries, size

    def _has_room(self, progress: Progress) -> bool:
        return (
            len(progress.in_flight) < IN_FLIGHT_MESSAGES_MAX
            and progress.in_flight_bytes < IN_FLIGHT_BATCHES_MAX * self._batch_bytes
        )

    def _land(self, progress: Progress) -> None:
        while progress.in_flight and progress.in_flight[0][0] <= progress.match_index:
            _, size = progress.in_flight.popleft()
            progress.in_flight_bytes -= size


class Following:
    """The follower's side of the log.

    An append is compared with the log first. Entries that agree are not written again, so nothing
    that was acknowledged is ever cut (row 4). A committed entry never changes, or the member stops.

    Args:
        send: sends once everything written by now is durable.
        accept_leader: follows the leader of (member id, term); False if the member must not.
        on_agreement: is called with an append whose entries this log has.
    """

    def __init__(
        self,
        context: RaftContext,
        core: Core,
        *,
        send: Callable[[str, Message], None],
        accept_leader: Callable[[str, int], bool],
        on_agreement: Callable[[Append], None],
    ) -> None:
        self._log = context.log
        self._recovering = context.recovering
        self._core = core
        self._send = send
        self._accept_leader = accept_leader
        self._on_agreement = on_agreement
        self._verified = (0, 0)
        """(term, index) up to which this log is known to agree with that term's leader's."""
        self._heard_commit_index = 0
        """The leader's commit index, as last received while the disk here was full."""
        self.first_commit_index: int | None = None
        """The commit index named by the first leader that this member heard."""

    def is_out_of_reach(self, index: int | None = None) -> bool:
        """Whether the disk is full and the entry at ``index`` cannot come before there is room.

        None: the last one that is committed, as far as is known here."""
        term, verified_index = self._verified
        known = verified_index if term == self._core.term else 0
        index = self._heard_commit_index if index is None else index
        return bool(self._log.is_full) and index > max(known, self._core.commit_index)

    def on_append(self, member_id: str, message: Append) -> None:
        """Write what is new in an append to the log, and acknowledge it; or say what is missing."""
        if not self._accept_leader(member_id, message.term):
            return
        if self._verified[0] != message.term:
            self._verified = (message.term, 0)
        if self.first_commit_index is None:
            self.first_commit_index = message.commit_index
        self._recovering.note_leaders_commit(message.commit_index)
        core, log = self._core, self._log
        if log.is_full:
            self._answer_without_room(member_id, message)
            return
        start, last_index = log[0][1], log[-1][1]
        entries, index = list(message.entries), message.prev_index
        if index > last_index:
            self._refuse_append(member_id, message, last_index + 1)
            return
        if index < core.commit_index:
            index = self._skip_committed(index, entries)
        elif log[index - start][2] != message.prev_term:
            self._refuse_append(member_id, message, self._first_of_term(index))
            return
        index = self._skip_agreeing(index, entries)
        commit_index = min(message.commit_index, index + len(entries))
        self._verified = (message.term, max(self._verified[1], index + len(entries)))
        if entries:
            core.append(
                member_id,
                term=message.term,
                epoch=message.epoch,
                commit_index=commit_index,
                previous=(index, log[index - start][2]),
                entries=entries,
            )
        else:
            if commit_index > core.commit_index:
                core.hear_leader(member_id, message.term, commit_index)
            self._send(member_id, Appended(core.term, message.epoch, index + 1, True))
        self._on_agreement(message)

    def on_commit_notice(self, member_id: str, message: CommitNotice) -> None:
        """Commit what the leader has committed, as far as it is known to be the same here; it may
        be a heartbeat that asks for no answer."""
        core = self._core
        if message.term != core.term or core.leader_id != member_id:
            return
        if not self._accept_leader(member_id, message.term):
            return
        term, index = self._verified
        commit_index = min(message.commit_index, index)
        if term == core.term and core.role is Role.FOLLOWER and commit_index > core.commit_index:
            core.hear_leader(member_id, term, commit_index)

    def _answer_without_room(self, member_id: str, message: Append) -> None:
        """Say that this member is there, and not what it lacks: that would be sent again and again.

        With room it refuses the next heartbeat, and is sent what it lacks."""
        self._heard_commit_index = message.commit_index
        self.on_commit_notice(member_id, CommitNotice(message.term, message.commit_index))
        self._send(member_id, ProbeReply(message.term, 0))

    def _skip_agreeing(self, index: int, entries: list[tuple[int, bytes]]) -> int:
        """Drop what this log has already from ``entries``; return the index before the rest."""
        log = self._log
        start, last_index = log[0][1], log[-1][1]
        agreeing = 0
        while agreeing < len(entries) and index < last_index:
            if log[index + 1 - start][2] != entries[agreeing][0]:
                break
            agreeing += 1
            index += 1
        del entries[:agreeing]
        return index

    def _skip_committed(self, index: int, entries: list[tuple[int, bytes]]) -> int:
        """Drop what is committed here from ``entries``; return the index before the rest."""
        log, commit_index = self._log, self._core.commit_index
        start = log[0][1]
        skipped = min(commit_index - index, len(entries))
        for offset in range(max(0, start - index - 1), skipped):
            if log[index + 1 + offset - start][2] != entries[offset][0]:
                raise InvariantError(f"entry {index + 1 + offset} is committed, and differs")
        del entries[:skipped]
        # A leader has every committed entry, so its log agrees with ours up to there.
        return commit_index

    def _refuse_append(self, member_id: str, message: Append, next_index: int) -> None:
        next_index = max(next_index, self._core.commit_index + 1)
        self._send(member_id, Appended(self._core.term, message.epoch, next_index, False))

    def _first_of_term(self, index: int) -> int:
        """Return the first index of the term of the entry at ``index``: all of it may differ."""
        log = self._log
        start = log[0][1]
        term = log[index - start][2]
        while index - 1 > max(self._core.commit_index, start) and log[index - 1 - start][2] == term:
            index -= 1
        return index
