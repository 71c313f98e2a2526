"""The rules of Raft that PySyncObj lacks: how a member acts on each message of another member.

1. A promise (a vote, an acknowledgement) is sent only when it is durable (``send_durable``). A
   leader's requests are sent before its own sync (``send_now``).
2. A reply of an older term is ignored; one of a newer term ends a leadership (rows 7, 8, 20).
3. A second leader in one term is never believed: entries of the same index and term could differ,
   and nothing would notice. The first leader of a term stays; another member that claims the term
   is dropped, with an alarm. A leader that receives such a claim stops leading in that term: if the
   claim is true both stop before more is acknowledged; if it is a lie it costs an election. The
   member keeps running: stopping would repair nothing, and one frame could stop it.
4. A leader counts its own entries only as far as they are durable (row 3).
5. A member that may have forgotten what it promised promises nothing (``recovering``).

Elections (``elections``) and both ends of an append (``replication``) have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.raft.barrier import QuorumRounds
from coordinator.raft.context import RaftContext
from coordinator.raft.core import Core
from coordinator.raft.elections import Elections
from coordinator.raft.engine import Role
from coordinator.raft.entries import Entries
from coordinator.raft.hardening import HardenedSyncObj, position_of
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from coordinator.raft.rejoin.acknowledgement_seals import is_own, sealed
from coordinator.raft.rejoin.recovering import Proof, ask_after_ms
from coordinator.raft.replication import Following, Replication

_LONE_MS = 1_000
"""How long a leader without others sleeps while nothing happens."""


class Consensus:
    """One member's part in the protocol, driven by messages and by ``tick``.

    Args:
        entries: what this member's entries are made of, and what applies them.
        on_role: is called when PySyncObj moves to another role.
        on_snapshot_needed: is called for a follower that lacks entries this log no longer has.
        may_lead: says whether this member's disk is fit to lead with.
        applied_index: the last index that the replica holds already, from a snapshot.
    """

    def __init__(
        self,
        context: RaftContext,
        entries: Entries,
        *,
        on_role: Callable[[Role], None],
        on_snapshot_needed: Callable[[str], None],
        may_lead: Callable[[], bool],
        applied_index: int,
    ) -> None:
        self.member_id = context.member_id
        self.recovering = context.recovering
        self.send_now = context.send_now
        self._others = context.others
        self._majority = context.majority
        self._log = log = context.log
        self._raft = raft = context.raft
        self._random = context.random
        self._now_ms = context.now_ms
        self._send_durable = context.send_durable
        self._trust = context.trust
        self._entries = entries
        self._on_role = on_role
        self.rounds = QuorumRounds(self._others)
        self.replication = Replication(
            self._others, log=log, raft=raft, now_ms=self._now_ms, send=self.send_now,
            on_snapshot_needed=on_snapshot_needed,
        )  # fmt: skip
        self.core: Core = HardenedSyncObj(
            context, entries, host=self, applied_index=applied_index
        )
        if log[-1][1:] != (1, 0):
            self.recovering.note_history()
        self._elections = Elections(context, self.core, may_lead=may_lead)
        self.following = Following(
            context, self.core, send=self.send, accept_leader=self.accept_leader,
            on_agreement=self._maybe_prove,
        )  # fmt: skip
        self._last_tick_ms = now_ms = self._now_ms()
        self._asks_terms_from_ms = now_ms + ask_after_ms(raft.election_timeout_ms_max)
        self._leader_of_term = (0, "")
        """The last term whose leader this member knows, and that leader."""
        self._handlers = self._handlers_by_kind()

    def _handlers_by_kind(self) -> dict[type, Callable[[str, Any], None]]:
        elections = self._elections
        return {
            say.Append: self.following.on_append,
            say.Appended: self._on_appended,
            say.CommitNotice: self.following.on_commit_notice,
            say.Probe: self._on_probe,
            say.ProbeReply: self._on_probe_reply,
            say.VoteRequest: elections.on_vote_request,
            say.VoteGrant: elections.on_vote_grant,
            say.PreVoteRequest: elections.on_pre_vote_request,
            say.PreVoteGrant: elections.on_pre_vote_grant,
            say.TermNotice: self._on_term_notice,
            say.StandNow: elections.on_stand_now,
            say.TermQuestion: self._on_term_question,
            say.TermAnswer: self._on_term_answer,
            say.LogLost: self._on_log_lost,
        }

    # What the engine asks and does.

    @property
    def leader_id(self) -> str | None:
        """The leader that this member follows and has not lost sight of, or itself."""
        if self.core.role is Role.LEADER:
            return self.member_id
        return self.core.leader_id if self._elections.is_leader_in_sight else None

    def position(self) -> tuple[object, ...]:
        """Return role, term, leader, whether it is in sight, and commit index, for comparing."""
        *known, commit_index = position_of(self.core)
        return (*known, self._elections.is_leader_in_sight, commit_index)

    @property
    def last_index(self) -> int:
        """The index of the last entry of this log."""
        return int(self._log.last_index)

    @property
    def is_leader_ready(self) -> bool:
        """Whether this member leads and has applied the first entry of its term."""
        core = self.core
        return core.role is Role.LEADER and core.applied_index >= core.noop_index

    def contact_age_ms(self) -> int | None:
        """Return how long ago this member heard its leader or, leading, a quorum; None: never."""
        if self._others == ():
            return 0 if self.core.role is Role.LEADER else None
        return self._elections.contact_age_ms(self.replication.quorum_heard_ms())

    def lost_by(self) -> str:
        """Return what a loss of the leader, or of the quorum, that is noticed now is due to."""
        return self._elections.lost_by()

    @property
    def is_leader_of_others(self) -> bool:
        """Whether this member leads, and does not lead itself alone."""
        return self.core.role is Role.LEADER and self._others != ()

    def on_message(self, member_id: str, message: Message) -> None:
        """Act on a message about the log."""
        self._handlers[type(message)](member_id, message)

    def on_connected(self, member_id: str) -> None:
        """Send a follower again what may have been lost with its former connection."""
        self.replication.on_connection_changed(member_id)
        if self.core.role is Role.LEADER:
            self.replication.send_heartbeats(self.core.term, self.core.commit_index)

    def on_met(self, member_id: str, *, met_count: int) -> None:
        """What that member says counts now, or what this one says there; so both with so many."""
        if self.core.role is Role.LEADER:
            self.on_connected(member_id)
        else:
            self._elections.on_met(met_count)

    def on_older_copy(self, why: str) -> None:
        """This member has lost a part of what it promised; it no longer leads."""
        self.recovering.begin(why)
        if self.core.role is not Role.FOLLOWER:
            self.core.adopt_term(self.core.term + 1)

    def on_disconnected(self, member_id: str) -> None:
        """Expect no answer of this member; without a leader, an election comes soon."""
        self.replication.on_connection_changed(member_id)
        if self.core.role is not Role.LEADER and self.core.leader_id == member_id:
            self._elections.on_leader_disconnected(member_id)

    def tick(self) -> None:
        """Do what is due; the order of things in one pass of the loop is the engine's."""
        if not self._others and self._is_alone_and_dirty():
            # The library would count what is not durable yet (row 3).
            self._maybe_begin_round()
            return
        now_ms = self._now_ms()
        self._elections.standstill.note(now_ms)
        if self.core.role is Role.LEADER:
            self._update_commit_rule(now_ms)
            self.replication.begin_pass(self.core.term, self.core.commit_index)
        else:
            self._elections.tick(now_ms)
        self._last_tick_ms = now_ms
        self.core.tick()
        if self.core.role is Role.LEADER:
            for progress in self.replication.followers.values():
                progress.keep_committed(self.core.commit_index)
            if self.rounds.joining is not None:
                self._maybe_begin_round()

    def send_commit_index(self) -> None:
        """Send the followers what was committed, where nothing else carries it; after ``tick``."""
        if self.core.role is Role.LEADER and self._others:
            self.replication.send_commit_index(self.core.term, self.core.commit_index)

    def _is_alone_and_dirty(self) -> bool:
        return not self._others and bool(self._log.durable_index < self._log.last_index)

    def is_own_log_awaited(self) -> bool:
        """Whether a follower holds durably what may not be durable here."""
        durable_index = self._log.durable_index
        followers = self.replication.followers.values()
        return any(progress.match_index > durable_index for progress in followers)

    def has_more_to_do(self) -> bool:
        """Whether another pass would commit or apply something, as far as is known here."""
        core = self.core
        if core.applied_index < core.commit_index:
            return True
        if core.role is not Role.LEADER:
            return False
        if self.replication.is_cut_off:
            return True
        if core.commit_index >= self._log.durable_index:
            return False
        return self._quorum_index() >= max(core.commit_index + 1, core.noop_index)

    def may_begin_round(self) -> bool:
        """Whether callers wait for a quorum round that can begin now."""
        return self.rounds.has_joined and self.is_leader_ready

    def is_settled(self) -> bool:
        """Whether ``tick`` would find nothing to do but what is due by the clock."""
        if not self.recovering.is_proven or self.has_more_to_do():
            return False
        if self.core.role is not Role.LEADER:
            return True
        must_send = self.replication.must_notify(self.core.commit_index)
        return not must_send and not self.may_begin_round()

    def on_answering(self, member_id: str) -> None:
        """An answer leaves for this member: let it carry the commit index, if that is owed."""
        if self.core.role is Role.LEADER:
            self.replication.send_commit_index_to(member_id, self.core.term, self.core.commit_index)

    def due_ms(self) -> int:
        """When ``tick`` must be called at the latest."""
        if not self._others and self._is_alone_and_dirty():
            return self._now_ms() + self._raft.heartbeat_interval_ms
        if self.core.role is Role.LEADER:
            if not self._others:
                return self._now_ms() + _LONE_MS  # nobody is sent heartbeats
            notice_ms = self.replication.notice_due_ms
            heartbeat_ms = self.core.heartbeat_due_ms
            return heartbeat_ms if notice_ms is None else min(heartbeat_ms, notice_ms)
        return self._elections.due_ms()

    # What PySyncObj decides (the Host of ``core``).

    def send(self, member_id: str, message: Message) -> None:
        """Send once everything written to the log and the vote by now is durable."""
        self._send_durable(member_id, sealed(self.recovering.key, message))

    def broadcast_vote_request(self, request: say.VoteRequest) -> None:
        """Ask all others for their vote, once the own one is durable."""
        self._elections.broadcast(request)

    def send_heartbeats(self) -> None:
        """Send each follower an append, with entries if there are some."""
        if self._is_alone_and_dirty():
            self._log.sync()  # the first entry of a lone leader's term, which counts at once
        self.replication.send_heartbeats(self.core.term, self.core.commit_index)
        if self.rounds.is_waiting:
            self._send_probes()  # again: the first ones may be lost

    def send_entries(self) -> None:
        """Send each follower the entries that it was not sent yet."""
        self.replication.send_entries(self.core.term, self.core.commit_index)

    def on_role(self, role: Role) -> None:
        """Take note of the role that this member has from now on."""
        if role is Role.LEADER:
            self._leader_of_term = (self.core.term, self.member_id)
            self.replication.begin_term(self._now_ms())
        else:
            self.rounds.fail()
        self._elections.on_role(role)
        self._on_role(role)

    # A leader's messages.

    def accept_leader(self, member_id: str, term: int) -> bool:
        """Follow the leader of ``term``, or answer a stale one; return whether to go on."""
        core = self.core
        if not self.recovering.may_follow(member_id):
            self.recovering.note_other_leader()
            self._ask_for_terms()
            return False
        if term < core.term:
            self.send(member_id, say.TermNotice(core.term))
            return False
        led_term, known_id = self._leader_of_term
        if term == led_term and member_id != known_id:
            self._on_second_claim(member_id, term, known_id)
            return False
        self._leader_of_term = (term, member_id)
        if term > core.term or core.leader_id != member_id or core.role is not Role.FOLLOWER:
            core.hear_leader(member_id, term)
        else:
            core.postpone_election()
        self._elections.on_leader_heard(self._now_ms())
        return True

    def _on_second_claim(self, member_id: str, term: int, known_id: str) -> None:
        why = f"claims to lead in term {term}, as member {known_id} does"
        self._trust.distrust(member_id, why)
        if self.core.role is Role.LEADER:
            self.core.adopt_term(term + 1)

    def _maybe_prove(self, message: say.Append) -> None:
        """End recovery once everything that this leader had committed is here (rule 3 of it)."""
        if self.recovering.is_proven:
            return
        commit_index = self.core.commit_index
        term = self._log[commit_index - self._log[0][1]][2]
        if message.commit_index <= commit_index and term == message.term:
            if self.recovering.is_enough(commit_index):
                self.recovering.note_caught_up(Proof(term, commit_index))
            else:
                self._ask_for_terms()

    def _on_probe(self, member_id: str, message: say.Probe) -> None:
        if self.accept_leader(member_id, message.term):
            reply = say.ProbeReply(message.term, message.round_number)
            self.send(member_id, reply)

    # Replies to a leader.

    def is_mine(self, member_id: str, term: int) -> bool:
        """Whether a reply of ``term`` belongs to this member's leadership; notes it was heard."""
        core = self.core
        if term > core.term:
            self._on_term_notice(member_id, say.TermNotice(term))
            return False
        if term < core.term or core.role is not Role.LEADER:
            return False
        self.replication.followers[member_id].heard_ms = self._now_ms()
        return True

    def _on_appended(self, member_id: str, message: say.Appended) -> None:
        if self.is_mine(member_id, message.term):
            core = self.core
            self.replication.on_appended(member_id, message, core.term, core.commit_index)

    def _on_probe_reply(self, member_id: str, message: say.ProbeReply) -> None:
        if self.is_mine(member_id, message.term):
            self.rounds.on_reply(member_id, message.round_number)

    def _on_term_notice(self, _member_id: str, message: say.TermNotice) -> None:
        if message.term > self.core.term:
            self.core.adopt_term(message.term)

    # Terms and logs that may have been forgotten.

    def on_disbelieved(self) -> None:
        """A member said what is not believed, mostly a term that only others can confirm. Who
        stands for election hears theirs; ask them if this member may not."""
        if not self.recovering.may_campaign:
            self._ask_for_terms()

    def _ask_for_terms(self) -> None:
        now_ms = self._now_ms()
        if now_ms >= self._asks_terms_from_ms:
            self._asks_terms_from_ms = now_ms + self._raft.heartbeat_interval_ms
            number = self.recovering.ask(1 + self._random.getrandbits(32))
            for member_id in self._others:
                self.send_now(member_id, say.TermQuestion(number))

    def _on_term_question(self, member_id: str, message: say.TermQuestion) -> None:
        self._entries.owes_one = self.is_leader_ready
        if self.recovering.is_proven:
            answer = say.TermAnswer(message.number, self.core.term)
            self.send(member_id, answer)

    def _on_term_answer(self, member_id: str, message: say.TermAnswer) -> None:
        self._on_term_notice(member_id, say.TermNotice(message.term))
        self.recovering.on_answer(member_id, message.number)

    def _on_log_lost(self, member_id: str, message: say.LogLost) -> None:
        core, last_index = self.core, self._log[-1][1]
        is_its_leader = message.term == core.term and core.leader_id == member_id
        if not (is_its_leader and self.recovering.is_proven and last_index < message.last_index):
            return
        if not is_own(self.recovering.key, message):
            why = f"cannot show that entries up to {message.last_index} were acknowledged to it"
            self._trust.distrust(member_id, why)
        else:
            self.recovering.begin(
                f"entries {last_index + 1} to {message.last_index}, which it had acknowledged to "
                f"member {member_id}, are not here; was an old copy of its data put back?"
            )

    def _update_commit_rule(self, now_ms: int) -> None:
        """Pass what followers hold to the library, capped by what is durable here (row 3)."""
        durable_index = self._log.durable_index
        timeout_ms = self._raft.election_timeout_ms_min
        was_paused = now_ms - self._last_tick_ms > timeout_ms // 2
        replication = self.replication
        if was_paused:
            # This member did not read its sockets: give the answers time to be read.
            replication.excused_ms = max(replication.excused_ms, now_ms - timeout_ms // 2)
        for progress in replication.followers.values():
            heard_ms = max(progress.heard_ms or 0, replication.excused_ms)
            self.core.set_follower(
                progress.member_id, min(progress.match_index, durable_index), heard_ms
            )

    def _quorum_index(self) -> int:
        known = [progress.match_index for progress in self.replication.followers.values()]
        known.append(self._log.durable_index)
        return min(sorted(known)[-self._majority], int(self._log.durable_index))

    def _maybe_begin_round(self) -> None:
        if self.may_begin_round():
            self.rounds.begin(self.core.commit_index)
            self._send_probes()

    def _send_probes(self) -> None:
        for member_id in self._others:
            self.send_now(member_id, say.Probe(self.core.term, self.rounds.current))
