"""The core of Raft in plain Python: what ``hardening`` makes PySyncObj do, as a specification.

Elections, terms, votes and the commit rule are those of the paper. A member hears its host of
everything: messages, the clock, which followers hold what. It writes its log, and says to the host
what has to be sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.raft.context import RaftContext
from coordinator.raft.core import Host
from coordinator.raft.engine import Role
from coordinator.raft.entries import Entries
from coordinator.raft.hardening import APPLY_ENTRIES_MAX, LITTLE_BYTES
from coordinator.raft.network.messages import Appended, VoteGrant, VoteRequest


class PureCore:
    """One member's Raft state; a ``coordinator.raft.core.Core``."""

    def __init__(
        self, context: RaftContext, entries: Entries, *, host: Host, applied_index: int
    ) -> None:
        self._member_id, self._others = context.member_id, context.others
        self._raft, self._random, self._now_ms = context.raft, context.random, context.now_ms
        self._log, self._entries, self._host = context.log, entries, host
        self._majority = context.majority
        self.role = Role.FOLLOWER
        self.term = max(self._log.getCurrentTerm(), self._log[-1][2])
        self.voted_for = self._log.getVotedForNodeId()
        self.leader_id: str | None = None
        # The commit index is learned again, never read from disk.
        self.commit_index = self.applied_index = applied_index
        self.noop_index: int | None = None
        self._votes = 0
        self._match = dict.fromkeys(self._others, 0)
        self._heard_s = dict.fromkeys(self._others, 0.0)
        self._heartbeat_s = 0.0
        self._election_s = self._now_s() + self._timeout_s()

    @property
    def heartbeat_due_ms(self) -> int:
        return int(self._heartbeat_s * 1000) + 1

    @property
    def election_due_ms(self) -> int:
        return int(self._election_s * 1000)

    @election_due_ms.setter
    def election_due_ms(self, at_ms: int) -> None:
        self._election_s = at_ms / 1000

    def tick(self) -> None:
        """As a leader: commit, step down without a majority, send heartbeats, log what waits."""
        if self.role is not Role.LEADER:
            return
        self._commit()
        since_s = self._now_s() - self._raft.election_timeout_ms_min / 1000
        if 1 + sum(each > since_s for each in self._heard_s.values()) < self._majority:
            self._become(Role.FOLLOWER)
            self.leader_id = None
            return
        if self._now_s() > self._heartbeat_s:
            self._send_heartbeats()
        is_any = False
        while (entry := self._entries.next()) is not None:
            index = self._log[-1][1] + 1
            self._log.add(entry, index, self.term)
            self._entries.on_logged(index)
            is_any = True
        if is_any:
            self._host.send_entries()

    def apply(self) -> None:
        self._entries.begin_applying()
        last = min(self.commit_index, self.applied_index + APPLY_ENTRIES_MAX)
        for command, index, term in self._from(self.applied_index + 1):
            if index > last or not self._entries.apply(index, term, command):
                return
            self.applied_index = index

    def has_little_to_apply(self) -> bool:
        if self.commit_index != self.applied_index + 1:
            return False
        return len(self._from(self.commit_index)[0][0]) <= LITTLE_BYTES

    def campaign(self) -> None:
        """A new term, the own vote, and a new deadline; alone it has won at once."""
        self.postpone(self._timeout_s())
        self.leader_id = None
        self._become(Role.CANDIDATE)
        self._enter(self.term + 1, self._member_id)
        self._votes = 1
        if self._others:
            _, last_index, last_term = self._log[-1]
            self._host.broadcast_vote_request(
                VoteRequest(self.term, last_index=last_index, last_term=last_term)
            )
        self._lead_if_elected()
        self.tick()

    def postpone(self, timeout_s: float) -> None:
        """Campaign in so many seconds, if no leader is heard by then."""
        self._election_s = self._now_s() + timeout_s

    def postpone_election(self) -> None:
        self._election_s = (self._now_ms() + int(self._timeout_s() * 1000)) / 1000

    def hear_leader(self, member_id: str, term: int, commit_index: int = 0) -> None:
        if self._follows(member_id, term):
            self._commit_up_to(commit_index)

    def append(
        self,
        member_id: str,
        *,
        term: int,
        epoch: int,
        commit_index: int,
        previous: tuple[int, int],
        entries: Sequence[tuple[int, bytes]],
    ) -> None:
        if not self._follows(member_id, term):
            return
        index, previous_term = previous
        assert self._from(index)[0][2] == previous_term, "the caller has made sure that it agrees"
        if self._log[-1][1] > index:
            self._log.deleteEntriesFrom(index + 1 - self._log[0][1])
        for at, (entry_term, command) in enumerate(entries, index + 1):
            self._log.add(command, at, entry_term)
        last = index + len(entries)
        self._host.send(member_id, Appended(self.term, epoch, next_index=last + 1, is_success=True))
        self._commit_up_to(min(commit_index, last))

    def consider_vote(self, member_id: str, request: VoteRequest) -> None:
        """One vote in a term, for whose log is not behind the own one; a leader gives none."""
        self.adopt_term(request.term)
        _, last_index, last_term = self._log[-1]
        is_behind = (request.last_term, request.last_index) < (last_term, last_index)
        if self.role is Role.LEADER or request.term < self.term or is_behind or self.voted_for:
            return
        self._enter(self.term, member_id)
        self.postpone(self._timeout_s())
        self._host.send(member_id, VoteGrant(request.term))

    def count_vote(self, member_id: str, term: int) -> None:
        if self.role is Role.CANDIDATE and term == self.term:
            self._votes += 1
            self._lead_if_elected()

    def adopt_term(self, term: int) -> None:
        if term > self.term:
            self._enter(term, None)
            self._become(Role.FOLLOWER)
            self.leader_id = None

    def set_follower(self, member_id: str, match_index: int, heard_ms: int) -> None:
        self._match[member_id], self._heard_s[member_id] = match_index, heard_ms / 1000

    def install(self, index: int) -> None:
        self.commit_index = self.applied_index = index

    # What it decides.

    def _follows(self, member_id: str, term: int) -> bool:
        """Follow the leader of this term, unless the term is over; return whether it is not."""
        if term < self.term:
            return False
        self.postpone(self._timeout_s())
        self.leader_id = member_id
        if term > self.term:
            self._enter(term, None)
        self._become(Role.FOLLOWER)
        return True

    def _lead_if_elected(self) -> None:
        """Begin the term with an entry of its own: with it, what is before it is committed."""
        if self._votes < self._majority:
            return
        self.leader_id = self._member_id
        self._become(Role.LEADER)
        self.noop_index = self._log[-1][1] + 1
        self._match = dict.fromkeys(self._others, 0)
        self._heard_s = dict.fromkeys(self._others, self._now_s())
        self._log.add(self._entries.first(), self.noop_index, self.term)
        self._send_heartbeats()

    def _commit(self) -> None:
        """Commit what a majority holds, up to an entry of this term (the paper, 5.4.2)."""
        for _, index, term in self._from(self.commit_index + 1):
            if 1 + sum(each >= index for each in self._match.values()) < self._majority:
                return
            if term == self.term:
                self.commit_index = index

    def _commit_up_to(self, index: int) -> None:
        """Commit what the leader has committed, as far as it is here."""
        self.commit_index = max(self.commit_index, min(index, self._log[-1][1]))

    def _send_heartbeats(self) -> None:
        self._heartbeat_s = (self._now_ms() + self._raft.heartbeat_interval_ms - 0.5) / 1000
        self._host.send_heartbeats()

    def _enter(self, term: int, voted_for: str | None) -> None:
        self.term, self.voted_for = term, voted_for
        self._log.setCurrentTerm(term, voted_for)

    def _become(self, role: Role) -> None:
        if role is not self.role:
            self.role = role
            self._host.on_role(role)

    def _from(self, index: int) -> list[tuple[bytes, int, int]]:
        """Return the entries of the log from this index on."""
        return self._log[index - self._log[0][1] :]

    def _timeout_s(self) -> float:
        """Return how long to wait for a leader: a chance for each member, so that one is first."""
        spread_ms = self._raft.election_timeout_ms_max - self._raft.election_timeout_ms_min
        return (self._raft.election_timeout_ms_min + spread_ms * self._random.random()) / 1000

    def _now_s(self) -> float:
        return self._now_ms() / 1000
