"""Elections: pre-votes and votes, requested, granted and counted, around PySyncObj's own.

1. A member campaigns only with a majority of pre-votes, and a member that hears a leader grants
   none (row 19; Raft thesis, 9.6 and 4.2.3).
2. A member's vote counts once in a term. If the candidate asks again, it repeats its vote (row 23).
3. Votes count for one longest election timeout after they were requested, by the clock, whatever
   the candidate did meanwhile: after that a voter may have lost its disk and been proven again by
   others.
4. A recovering member votes at most in a first election, and campaigns only with the pre-vote of
   every member (``recovering``).
5. A member whose disk is not fit to lead lets the others campaign first.
6. A member that a quorum of members refuses, because it differs in what must be equal on all
   (``agreement``), neither campaigns nor votes. The refusing members need not be in its own
   list. If it leads already, it continues while its quorum confirms it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from coordinator.raft.context import RaftContext
from coordinator.raft.core import Core
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.standstill import Standstill

logger = logging.getLogger(__name__)

LATE_ELECTION_MS = 2
"""Between noticing that the election is due and campaigning: a member that was paused reads its
sockets first (row 22)."""
HINTED_ELECTION_MS = 15
"""Between one member's and the next one's reaction to a leader whose connection closed, or to the
first others met after a start."""
_FIRST_WORD_MS = 20
"""In this time a leader, if there is one, is heard by who was met."""
EMPTY_LOG = (0, 1)
"""(term, index) of the last entry of an empty log."""


class Elections:
    """One member's part in elections."""

    def __init__(
        self, context: RaftContext, core: Core, *, may_lead: Callable[[], bool]
    ) -> None:
        self._member_id = context.member_id
        self._others = context.others
        self._majority = context.majority
        self._core = core
        self._log = context.log
        self._raft = raft = context.raft
        self._random = random = context.random
        self._now_ms = now_ms = context.now_ms
        self._send_now = context.send_now
        self._send_durable = context.send_durable
        self._may_lead = may_lead
        self._recovering = context.recovering
        self._trust = context.trust
        self._votes: set[str] = set()
        self._counts_until_ms = 0
        self._pre_votes: set[str] = set()
        self._pre_vote_term = 0
        self._logged_missing: set[str] = set()
        self._is_handed_over = False
        self._has_yielded = False
        self._late_until_ms: int | None = None
        self.is_leader_in_sight = False
        """Whether the leader was heard since its last silence or disconnection."""
        self._is_cut_off = False
        """Whether the connection to the leader has ended since it was heard."""
        self._was_late = False
        """Whether this member did not run for a while before it missed the leader or the quorum."""
        self._has_led = False
        self._role_ms = 0
        """Since when it has its role."""
        self.heard_leader_ms: int | None = None
        """When a leader was last heard, whatever became of it; None: never."""
        self.standstill = Standstill(raft, now_ms())
        # A first election need not wait in full: a member with a leader refuses the pre-vote.
        minimum = raft.election_timeout_ms_min
        core.election_due_ms = now_ms() + random.randint(minimum // 8, minimum // 2)

    # What a member hears and sees of leaders.

    def on_leader_heard(self, now_ms: int) -> None:
        """The leader of this term was heard: no election is due."""
        self.standstill.note(now_ms)
        self.is_leader_in_sight = True
        self._is_cut_off = self._was_late = False
        self.heard_leader_ms = now_ms
        self._has_yielded = False
        self._late_until_ms = None
        self._pre_vote_term = 0

    def contact_age_ms(self, quorum_heard_ms: int | None) -> int | None:
        """Return how long ago a leader was heard or, leading, a quorum, at least; None: never."""
        # A member that has just changed its role heard the others in the former one.
        known = [each for each in (self.heard_leader_ms, quorum_heard_ms) if each is not None]
        now_ms = self._now_ms()
        self.standstill.note(now_ms)
        return now_ms - self.standstill.since(max(known)) if known else None

    def lost_by(self) -> str:
        """Return what a loss of the leader, or of the quorum, that is noticed now is due to."""
        if self._was_late:
            return "pause"
        return "link" if self._is_cut_off else "silence"

    def on_role(self, role: Role) -> None:
        """The role has changed: no leader was heard in it yet."""
        self.is_leader_in_sight = False
        self._role_ms = now_ms = self._now_ms()
        if self._has_led:
            self._was_late = self.standstill.is_recent(now_ms)
        self._has_led = role is Role.LEADER

    def on_met(self, met_count: int) -> None:
        """Ask soon if no leader was heard since the start: all may have just come back.

        The first time may have been too early to reach anybody, and the next one is an election
        timeout later. A member with a leader refuses the pre-vote. Not on connection: votes do not
        count before two members have met, pre-votes do, and who won only those loses time."""
        is_back = self.heard_leader_ms is None and self._recovering.is_proven
        may_win = met_count + 1 >= self._majority
        if is_back and may_win and self._core.role is Role.FOLLOWER:
            rank = sorted((*self._others, self._member_id)).index(self._member_id)
            due_ms = self._now_ms() + _FIRST_WORD_MS + rank * HINTED_ELECTION_MS
            self._core.election_due_ms = min(self._core.election_due_ms, due_ms)

    def on_leader_disconnected(self, leader_id: str) -> None:
        """Ask the others soon: a leader whose connection closed is probably dead."""
        self.is_leader_in_sight = False
        self._is_cut_off = True
        rank = sorted(other for other in (*self._others, self._member_id) if other != leader_id)
        delay_ms = rank.index(self._member_id) * HINTED_ELECTION_MS + self._random.randint(1, 5)
        core = self._core
        core.election_due_ms = min(core.election_due_ms, self._now_ms() + delay_ms)

    # Standing for election.

    def tick(self, now_ms: int) -> None:
        """Do what is due on a member that does not lead."""
        if now_ms < self._core.election_due_ms:
            self._late_until_ms = None
        elif self._recovering.may_campaign and not self._trust.is_refused:
            self._maybe_ask_for_pre_votes(now_ms)
        else:
            self.is_leader_in_sight = False
            self._core.postpone_election()

    def due_ms(self) -> int:
        """When ``tick`` must be called at the latest."""
        return self._core.election_due_ms if self._late_until_ms is None else self._late_until_ms

    def broadcast(self, request: say.VoteRequest) -> None:
        """Ask all members for their vote; the pre-votes were won."""
        self._votes = set()
        self._counts_until_ms = self._now_ms() + self._raft.election_timeout_ms_max
        request = request._replace(
            is_new=self._recovering.is_new, is_handed_over=self._is_handed_over,
            is_founding=self._recovering.is_founding,
        )  # fmt: skip
        for member_id in self._others:
            self._send_durable(member_id, request)

    def _maybe_ask_for_pre_votes(self, now_ms: int) -> None:
        if self._late_until_ms is None:
            late_ms = now_ms - max(self._core.election_due_ms, self._role_ms)
            self._was_late |= late_ms > self._raft.election_timeout_ms_min // 2
            self._late_until_ms = now_ms + LATE_ELECTION_MS
        if now_ms < self._late_until_ms:
            return
        self._late_until_ms = None
        self.is_leader_in_sight = False
        self._core.postpone_election()
        self._counts_until_ms = 0
        self._log_missing()
        if self._others and not self._has_yielded and not self._may_lead():
            self._has_yielded = True
            return
        self._pre_vote_term = self._core.term + 1
        self._pre_votes = {self._member_id}
        for member_id in self._others:
            self._send_now(member_id, self._pre_vote_request())
        self._maybe_campaign()

    def _pre_vote_request(self) -> say.PreVoteRequest:
        last_term, last_index = self._last()
        return say.PreVoteRequest(
            self._pre_vote_term, last_index, last_term, self._recovering.is_new,
            self._recovering.is_founding,
        )  # fmt: skip

    def _log_missing(self) -> None:
        """Log once which members the first election waits for, after a failed attempt."""
        missing = {each for each in self._others if each not in self._pre_votes}
        is_first = self._recovering.is_new or self._recovering.is_founding
        is_waiting = is_first and self._pre_vote_term and missing
        if is_waiting and missing != self._logged_missing:
            self._logged_missing = missing
            logger.warning(
                "the first leader of a cluster is elected by all of its members, with empty disks;"
                " member %s waits for %s", self._member_id, ", ".join(sorted(missing)),
            )  # fmt: skip

    def _maybe_campaign(self) -> None:
        if not self._recovering.may_campaign:
            return
        # A new member is elected only if all logs are empty (rule 1 of recovery).
        is_first = self._recovering.is_new or self._recovering.is_founding
        needed = len(self._others) + 1 if is_first else self._majority
        if len(self._pre_votes) >= needed:
            self._pre_vote_term = 0
            self._logged_missing.clear()
            if not self._others:
                self._recovering.end()  # no other member could know better
            self._core.campaign()

    def on_stand_now(self, member_id: str, message: say.StandNow) -> None:
        """The leader stops and asks this member to succeed it; that needs no pre-vote."""
        core = self._core
        is_from_leader = message.term == core.term and core.leader_id == member_id
        is_able = self._recovering.is_proven and self._may_lead()
        is_able = is_able and not self._trust.is_refused
        if is_from_leader and core.role is Role.FOLLOWER and is_able:
            self._pre_vote_term = 0
            self._is_handed_over = True
            core.campaign()
            self._is_handed_over = False

    def on_pre_vote_grant(self, member_id: str, message: say.PreVoteGrant) -> None:
        """Count a pre-vote, and campaign if they are enough."""
        core = self._core
        is_asked = message.term == self._pre_vote_term == core.term + 1
        if is_asked and core.role is not Role.LEADER:
            self._pre_votes.add(member_id)
            self._maybe_campaign()

    def on_vote_grant(self, member_id: str, message: say.VoteGrant) -> None:
        """Count a vote of this term, if it came in time."""
        core = self._core
        if message.term != core.term or core.role is not Role.CANDIDATE:
            return
        if self._now_ms() > self._counts_until_ms or not self._recovering.may_campaign:
            return
        if not self._recovering.is_founding:
            self._recovering.end()  # Before an entry of this term leaves.
        if member_id not in self._votes:
            self._votes.add(member_id)
            core.count_vote(member_id, message.term)

    # Voting.

    def on_pre_vote_request(self, member_id: str, message: say.PreVoteRequest) -> None:
        """Grant a pre-vote, say that the term is over, or be silent."""
        core = self._core
        if message.term <= core.term:
            self._send_durable(member_id, say.TermNotice(core.term))
            return
        theirs, own = (message.last_term, message.last_index), self._last()
        if self._hears_another_leader(member_id) or theirs < own:
            return
        if not self._may_vote_for(message):
            return
        # Both ask at once: the lower id goes first, so the votes are not split. But one that was
        # proven in a first election that failed gets no vote of a new member, and must not wait.
        is_tie = self._pre_vote_term == message.term and theirs == own
        may_win = self._recovering.is_new or not message.is_new
        if is_tie and may_win and member_id > self._member_id:
            return
        self._pre_vote_term = 0
        core.postpone_election()
        self._late_until_ms = None
        self._send_now(member_id, say.PreVoteGrant(message.term))

    def on_vote_request(self, member_id: str, message: say.VoteRequest) -> None:
        """Grant a vote, say that the term is over, or be silent."""
        core = self._core
        if message.term < core.term:
            self._send_durable(member_id, say.TermNotice(core.term))
            return
        if not message.is_handed_over and self._hears_another_leader(member_id):
            return
        if not self._may_vote_for(message):
            return
        if not message.is_founding:
            self._recovering.end()  # Before the vote leaves; of a first election all are proven.
        if message.term == core.term and core.voted_for == member_id:
            self._send_durable(member_id, say.VoteGrant(message.term))
        else:
            core.consider_vote(member_id, message)
        if message.is_founding and (core.term, core.voted_for) == (message.term, member_id):
            self._recovering.note_founder(member_id)

    def _hears_another_leader(self, than_id: str) -> bool:
        if self._core.role is Role.LEADER:
            return True
        heard_ms = self.heard_leader_ms if self.is_leader_in_sight else None
        if heard_ms is None or self._core.leader_id in (None, than_id):
            return False
        return self._now_ms() - heard_ms < self._raft.election_timeout_ms_min

    def _may_vote_for(self, request: say.PreVoteRequest | say.VoteRequest) -> bool:
        """Whether recovery, this member's or the candidate's, allows it (rule 1 of it)."""
        if self._trust.is_refused:
            return False
        if request.is_founding:
            return True  # all must say so, and none does that has more
        is_empty = (request.last_term, request.last_index) == EMPTY_LOG
        if not is_empty:
            self._recovering.note_history()
        if request.is_new:
            is_nothing_known = is_empty and self._last() == EMPTY_LOG
            return is_nothing_known and (self._recovering.is_proven or self._recovering.is_new)
        return self._recovering.is_proven

    def _last(self) -> tuple[int, int]:
        _, last_index, last_term = self._log[-1]
        return last_term, last_index
