"""The known defects of stock PySyncObj, as exam questions to one member's ``Consensus``.

Each test hands one member messages and a clock, and looks at what it says and what its log is. The
numbers are the rows of the study of the engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pysyncobj.syncobj
import pytest

from coordinator.clock import ManualClock
from coordinator.errors import ShuttingDownError
from coordinator.node.config import RaftConfig
from coordinator.raft import hardening
from coordinator.raft.consensus import Consensus
from coordinator.raft.context import RaftContext
from coordinator.raft.engine import InvariantError, Replica, Role
from coordinator.raft.entries import NO_OP, REGULAR, Entries, Proposals
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from coordinator.raft.rejoin.recovering import Recovering
from coordinator.raft.rejoin.trust import Trust
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.ownership import Ownership
from tests.raft.storage.simulated_disk import SimulatedDisk

X = REGULAR + b"\x91\xc4\x01x"
"""An entry with the one command b"x"."""


class Applied:
    """A bench's replica: what is committed is noted as it is."""

    def __init__(self) -> None:
        self.commands: list[tuple[int, int, bytes]] = []

    def apply(self, index: int, term: int, command: bytes) -> None:
        self.commands.append((index, term, command))


class Founded:
    """An ownership whose cluster has its id."""

    cluster_id = b"12345678"


def entries_of(log: Journal, applied: Applied, now_ms: Callable[[], int] = lambda: 0) -> Entries:
    """Return the entries of a bench, applied as soon as they are committed."""
    raft = RaftConfig()
    entries = Entries(Proposals(raft, command_bytes_max=1_000), now_ms, lambda _: None)
    entries.open(
        cast("Replica", applied), log, cast("Ownership", Founded()),
        on_applied=lambda _: None, refusal=ShuttingDownError,
    )  # fmt: skip
    entries.proposals.begin_pass()
    return entries


class Bench:
    """One member, whose ears, mouth and clock are the test's."""

    def __init__(self, members: tuple[str, ...] = ("1", "2", "3"), *, is_new: bool = False) -> None:
        self.clock = ManualClock(10_000)
        self.disk = SimulatedDisk()
        self.disk.make_directory("data")
        self.recovering = Recovering(
            self.disk, directory="data", member_id="1", member_count=len(members), is_new=is_new
        )
        self.log = Journal("data", self.disk)
        self.log.add(NO_OP, 1, 0)
        self.log.sync()
        self.now: list[tuple[str, Message]] = []
        self.held: list[tuple[str, Message]] = []
        self.roles: list[Role] = []
        self.seals: list[bytes] = []
        """Of the acknowledgements that it gave, which are shown without."""
        self.distrusted: list[tuple[str, str]] = []
        self.applied = Applied()
        self.snapshots_needed: list[str] = []
        self.raft = RaftConfig()
        self.entries = entries_of(self.log, self.applied, self.clock.monotonic_ms)
        context = RaftContext(
            "1", tuple(each for each in members if each != "1"), log=self.log, raft=self.raft,
            random=Random(1), now_ms=self.clock.monotonic_ms,
            send_now=self.send_now, send_durable=self.send_durable,
            recovering=self.recovering, trust=cast("Trust", self),
        )  # fmt: skip
        self.consensus = Consensus(
            context, self.entries, on_role=self.roles.append,
            on_snapshot_needed=self.snapshots_needed.append, may_lead=lambda: True,
            applied_index=1,
        )  # fmt: skip
        self.core = self.consensus.core

    # What it says

    def send_now(self, member_id: str, message: Message) -> bool:
        self.now.append((member_id, message))
        return True

    def send_durable(self, member_id: str, message: Message) -> None:
        if isinstance(message, say.Appended):
            self.seals.append(message.seal)
            message = message._replace(seal=b"")
        self.held.append((member_id, message))

    def distrust(self, member_id: str, why: str) -> None:
        self.distrusted.append((member_id, why))

    is_refused = False

    # What tests do

    def receive(self, member_id: str, message: Message) -> list[tuple[str, Message]]:
        """Deliver; return what is said after the sync."""
        self.held.clear()
        self.now.clear()
        if isinstance(message, say.SnapshotPiece):
            self.consensus.accept_leader(member_id, message.term)
        else:
            self.consensus.on_message(member_id, message)
        return [*self.now, *self.held]

    def append(
        self,
        term: int,
        previous: tuple[int, int],
        terms: list[int],
        *,
        commit: int = 0,
        epoch: int = 1,
        leader: str = "2",
    ) -> list[tuple[str, Message]]:
        entries = [(entry_term, X) for entry_term in terms]
        return self.receive(
            leader,
            say.Append(
                term=term,
                epoch=epoch,
                commit_index=commit,
                prev_index=previous[0],
                prev_term=previous[1],
                entries=entries,
            ),
        )

    def terms(self) -> list[int]:
        return [term for _, _, term in self.log[:]]

    def lead(self) -> None:
        """Win an election by the rules; the followers hold nothing yet."""
        self.clock.advance(self.raft.election_timeout_ms_max + 1)
        self.consensus.tick()
        self.clock.advance(5)
        self.consensus.tick()
        self.receive("2", say.PreVoteGrant(self.core.term + 1))
        self.receive("2", say.VoteGrant(self.core.term))
        assert self.core.role is Role.LEADER

    def follower_holds(self, member_id: str, index: int) -> None:
        epoch = self.consensus.replication.followers[member_id].epoch
        seal = b"sealed by " + member_id.encode()
        said = say.Appended(
            term=self.core.term, epoch=epoch, next_index=index + 1, is_success=True, seal=seal
        )
        self.receive(member_id, said)


def test_row_3_a_leader_does_not_count_its_own_entry_before_it_is_durable() -> None:
    """One follower's acknowledgement does not commit what is not on the leader's disk."""
    bench = Bench()
    bench.lead()
    bench.follower_holds("2", 2)

    bench.consensus.tick()
    before = bench.core.commit_index
    bench.log.sync()
    bench.consensus.tick()

    assert (before, bench.core.commit_index) == (1, 2)


def test_row_3_a_lone_member_syncs_before_it_counts() -> None:
    """With nobody else to hold it, an entry is committed only once it is synced."""
    bench = Bench(("1",))
    bench.clock.advance(1_000)
    bench.consensus.tick()
    bench.clock.advance(5)
    bench.consensus.tick()
    bench.entries.owes_one = True

    bench.consensus.tick()
    bench.consensus.tick()
    before = bench.core.commit_index
    bench.log.sync()
    bench.consensus.tick()

    assert (before, bench.core.commit_index) == (2, 3)


def test_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    """A majority that holds it may still lose it to another leader (Raft paper, figure 8)."""
    bench = Bench()
    bench.append(1, (1, 0), [1, 1])
    bench.lead()
    bench.log.sync()
    first_of_term = bench.core.noop_index

    bench.follower_holds("2", first_of_term - 1)
    bench.consensus.tick()
    before = bench.core.commit_index
    bench.follower_holds("2", first_of_term)
    bench.consensus.tick()

    assert bench.terms() == [0, 1, 1, bench.core.term]
    assert (before, bench.core.commit_index) == (1, first_of_term)


def test_row_4_an_overlapping_append_cuts_nothing_that_was_acknowledged() -> None:
    """An old append, or a heartbeat with an old position, leaves the log as it is."""
    bench = Bench()
    bench.append(1, (1, 0), [1, 1, 1, 1])

    late = bench.append(1, (1, 0), [1, 1])
    heartbeat = bench.append(1, (1, 0), [])

    assert bench.terms() == [0, 1, 1, 1, 1]
    assert late == [("2", say.Appended(term=1, epoch=1, next_index=4, is_success=True))]
    assert heartbeat == [("2", say.Appended(term=1, epoch=1, next_index=2, is_success=True))], (
        "only what was compared is confirmed"
    )


def test_a_conflicting_suffix_is_replaced() -> None:
    """Entries of an older leader that conflict are cut, from the first that differs."""
    bench = Bench()
    bench.append(1, (1, 0), [1, 1, 1])

    replies = bench.append(2, (2, 1), [2], leader="3")

    assert bench.terms() == [0, 1, 2]
    assert replies == [("3", say.Appended(term=2, epoch=1, next_index=4, is_success=True))]


def test_what_is_committed_never_changes() -> None:
    """Row 16: a leader that contradicts a committed entry stops the member, loudly."""
    bench = Bench()
    bench.append(1, (1, 0), [1, 1], commit=3)

    with pytest.raises(InvariantError):
        bench.append(2, (1, 0), [2, 2], leader="3")


def test_row_5_a_reply_does_not_rewind_what_is_sent_next() -> None:
    """While a pipeline is under way, an early success does not make the leader send again."""
    bench = Bench()
    bench.lead()
    for _ in range(3):
        bench.entries.owes_one = True
        bench.consensus.tick()
    progress = bench.consensus.replication.followers["2"]
    assert progress.next_index == 6

    bench.follower_holds("2", 3)

    assert (progress.match_index, progress.next_index) == (3, 6)
    assert not [one for one in bench.now if isinstance(one[1], say.Append) and one[1].entries]


def test_row_6_of_a_refused_pipeline_only_the_first_refusal_counts() -> None:
    """Refusals of an earlier epoch are dropped, so one conflict causes one new attempt."""
    bench = Bench()
    bench.lead()
    epoch = bench.consensus.replication.followers["2"].epoch
    refusal = say.Appended(term=1, epoch=epoch, next_index=2, is_success=False)

    first = bench.receive("2", refusal)
    others = [bench.receive("2", refusal) for _ in range(10)]

    assert len(first) == 1
    assert others == [[]] * 10


def test_row_7_a_stale_refusal_does_not_go_below_what_is_acknowledged() -> None:
    """A refusal that arrives after a success moves nothing back beyond it."""
    bench = Bench()
    bench.lead()
    bench.follower_holds("2", 2)
    progress = bench.consensus.replication.followers["2"]

    bench.receive("2", say.Appended(term=1, epoch=progress.epoch, next_index=2, is_success=False))

    assert (progress.match_index, progress.next_index) == (2, 3)


def test_row_8_replies_of_an_older_term_commit_nothing() -> None:
    """What was acknowledged to an earlier leadership does not count for this one."""
    bench = Bench()
    bench.lead()
    bench.receive("3", say.TermNotice(5))
    bench.lead()
    bench.log.sync()
    progress = bench.consensus.replication.followers["2"]

    bench.receive(
        "2",
        say.Appended(
            term=1, epoch=progress.epoch, next_index=bench.log.last_index + 1, is_success=True
        ),
    )
    bench.consensus.tick()

    assert bench.core.term == 6
    assert (progress.match_index, bench.core.commit_index) == (0, 1)


def test_row_9_a_message_without_entries_commits_nothing_unverified() -> None:
    """A leader's commit index reaches only as far as this log is known to agree with its own."""
    bench = Bench()
    bench.append(1, (1, 0), [1, 1, 1])

    bench.append(2, (1, 0), [], commit=4, leader="3")
    bench.receive("3", say.CommitNotice(2, 4))
    bench.receive("3", say.Probe(2, 0))
    bench.consensus.tick()

    assert bench.core.commit_index == 1
    assert bench.applied.commands == []


def test_row_13_the_commit_index_is_not_read_from_disk() -> None:
    """A restarted member knows of no commit beyond its snapshot until a leader tells."""
    bench = Bench()
    bench.append(1, (1, 0), [1, 1], commit=3)
    bench.log.sync()
    assert bench.core.commit_index == 3

    assert bench.log.getRaftCommitIndex() == 1


def test_row_19_who_hears_a_leader_grants_no_vote_and_no_pre_vote() -> None:
    """A hopeless or hasty candidate does not depose a healthy leader, nor move the term."""
    bench = Bench()
    bench.append(1, (1, 0), [1])

    replies = [
        *bench.receive("3", say.PreVoteRequest(term=9, last_index=99, last_term=9)),
        *bench.receive("3", say.VoteRequest(term=9, last_index=99, last_term=9)),
    ]

    assert replies == []
    assert bench.core.term == 1


def test_row_19_nobody_campaigns_without_a_majority_of_pre_votes() -> None:
    """Without grants the term stays, however often the timer ends."""
    bench = Bench()

    for _ in range(20):
        bench.clock.advance(500)
        bench.consensus.tick()

    assert bench.core.term == 0
    assert bench.core.role is Role.FOLLOWER


def test_row_19_a_shorter_log_gets_no_pre_vote() -> None:
    """A candidate whose log lacks what is here is not encouraged."""
    bench = Bench()
    bench.append(1, (1, 0), [1])
    bench.clock.advance(2_000)

    assert bench.receive("3", say.PreVoteRequest(term=2, last_index=1, last_term=0)) == []
    assert bench.receive("3", say.PreVoteRequest(term=2, last_index=2, last_term=1)) == [
        ("3", say.PreVoteGrant(2))
    ]


def test_row_20_a_stale_leader_is_told() -> None:
    """Messages of an older term are answered with the newer one, which ends that leadership."""
    bench = Bench()
    bench.append(5, (1, 0), [5])

    assert bench.append(4, (1, 0), [4], leader="3") == [("3", say.TermNotice(5))]
    assert bench.receive("3", say.Probe(4, 1)) == [("3", say.TermNotice(5))]
    leader = Bench()
    leader.lead()
    leader.receive("2", say.TermNotice(7))
    assert (leader.core.role, leader.core.term) == (Role.FOLLOWER, 7)


def test_row_21_a_leader_that_hears_nothing_steps_down_within_an_election_timeout() -> None:
    """Ticks with silence lead to a follower after election_timeout_ms_min."""
    bench = Bench()
    bench.lead()

    for _ in range(bench.raft.election_timeout_ms_min // 50 + 1):
        bench.clock.advance(50)
        bench.consensus.tick()

    assert bench.core.role is Role.FOLLOWER


def test_row_22_a_paused_member_reads_before_it_campaigns() -> None:
    """After a long pause the first pass does not campaign, and a waiting heartbeat ends it."""
    bench = Bench()
    bench.append(1, (1, 0), [1])
    bench.clock.advance(60_000)
    bench.now.clear()

    bench.consensus.tick()
    replies = list(bench.now)
    bench.append(1, (2, 1), [])
    bench.clock.advance(5)
    bench.now.clear()
    bench.consensus.tick()

    assert replies == []
    assert bench.now == []


def test_row_23_a_vote_counts_once() -> None:
    """The same member's grant, twice, is no majority of five."""
    bench = Bench(("1", "2", "3", "4", "5"))
    bench.clock.advance(1_000)
    bench.consensus.tick()
    bench.clock.advance(5)
    bench.consensus.tick()
    for voter in ("2", "3"):
        bench.receive(voter, say.PreVoteGrant(1))
    assert bench.core.role is Role.CANDIDATE

    bench.receive("2", say.VoteGrant(1))
    bench.receive("2", say.VoteGrant(1))
    before = bench.core.role
    bench.receive("3", say.VoteGrant(1))

    assert (before, bench.core.role) == (Role.CANDIDATE, Role.LEADER)


def test_row_23_a_grant_is_said_again_to_the_same_candidate_only() -> None:
    """A lost grant is repeated on request; nobody else gets the vote of that term."""
    bench = Bench()
    request = say.VoteRequest(term=3, last_index=1, last_term=0)

    first = bench.receive("2", request)
    again = bench.receive("2", request)
    other = bench.receive("3", request)

    assert first == again == [("2", say.VoteGrant(3))]
    assert other == []


def test_row_24_a_read_needs_a_round_of_its_own_term_after_the_first_commit() -> None:
    """A fresh leader begins no round before the first entry of its term is applied."""
    bench = Bench()
    bench.lead()

    assert not bench.consensus.is_leader_ready
    bench.log.sync()
    bench.follower_holds("2", 2)
    bench.consensus.tick()
    assert not bench.consensus.is_leader_ready
    bench.core.apply()
    assert bench.consensus.is_leader_ready


@pytest.mark.parametrize("sync_ms", [0, 6])
def test_the_time_of_applying_is_counted_from_its_own_beginning(sync_ms: int) -> None:
    """A sync before it takes none of it: else one command a pass is all that a slow disk leaves."""
    bench = Bench()
    bench.append(1, (1, 0), [1] * 4, commit=5)
    bench.consensus.tick()
    bench.clock.advance(sync_ms)
    bench.log.sync()

    bench.core.apply()

    assert bench.core.applied_index == 5


@pytest.mark.parametrize("claim", ["append", "probe", "snapshot"])
def test_a_leader_that_hears_of_a_second_one_leads_no_more_in_that_term(claim: str) -> None:
    """It raises an alarm, takes nothing of it, and goes on in another term."""
    bench = Bench()
    bench.lead()
    message = {
        "append": say.Append(
            term=1, epoch=1, commit_index=0, prev_index=1, prev_term=0, entries=[(1, X)]
        ),
        "probe": say.Probe(1, 1),
        "snapshot": say.SnapshotPiece(
            term=1, snapshot_index=9, total_bytes=1, sha256=b"", offset=0, data=b""
        ),
    }[claim]

    assert bench.receive("2", message) == []

    assert bench.distrusted == [("2", "claims to lead in term 1, as member 1 does")]
    assert (bench.core.role, bench.core.term) == (Role.FOLLOWER, 2)
    assert bench.terms() == [0, 1]


def test_a_follower_believes_the_first_leader_of_a_term() -> None:
    """A second one in the same term is dropped; one of a later term is followed."""
    bench = Bench()
    bench.append(1, (1, 0), [1])

    assert bench.append(1, (1, 0), [1, 1], leader="3") == []
    assert bench.distrusted == [("3", "claims to lead in term 1, as member 2 does")]
    assert bench.core.leader_id == "2"
    assert bench.append(2, (2, 1), [2], leader="3") == [
        ("3", say.Appended(term=2, epoch=1, next_index=4, is_success=True))
    ]


def test_who_has_led_in_a_term_follows_nobody_in_it() -> None:
    """A leader that lost sight of its followers remembers whose term it was."""
    bench = Bench()
    bench.lead()
    while bench.core.role is Role.LEADER:
        bench.clock.advance(50)
        bench.consensus.tick()
    assert (bench.core.role, bench.core.term) == (Role.FOLLOWER, 1)

    assert bench.append(1, (1, 0), [1], leader="3") == []
    assert bench.distrusted == [("3", "claims to lead in term 1, as member 1 does")]


def test_of_two_who_ask_at_once_the_lower_id_goes_first() -> None:
    """Simultaneous pre-votes with equal logs do not split the votes."""
    bench = Bench()
    bench.clock.advance(1_000)
    bench.consensus.tick()
    bench.clock.advance(5)
    bench.consensus.tick()
    assert ("2", say.PreVoteRequest(term=1, last_index=1, last_term=0)) in bench.now

    assert bench.receive("2", say.PreVoteRequest(term=1, last_index=1, last_term=0)) == []


def test_the_library_is_the_one_that_was_studied() -> None:
    """The hash of the library's source is checked at import; another source is refused."""
    folder = Path(pysyncobj.syncobj.__file__).parent

    assert hardening.hash_library(folder) == hardening.LIBRARY_SHA256
    assert len(hashlib.sha256().hexdigest()) == len(hardening.LIBRARY_SHA256)


def test_another_source_of_the_library_has_another_hash(tmp_path: Path) -> None:
    """One changed byte in any of the files is noticed."""
    folder = Path(pysyncobj.syncobj.__file__).parent
    for name in hardening.LIBRARY_FILES:
        (tmp_path / f"{name}.py").write_bytes((folder / f"{name}.py").read_bytes())
    with (tmp_path / "node.py").open("ab") as file:
        file.write(b"\n")

    assert hardening.hash_library(tmp_path) != hardening.LIBRARY_SHA256


def test_what_was_acknowledged_to_an_earlier_leadership_counts_for_nothing_in_a_later_one() -> None:
    """The follower's entries there were cut since; its old position is above the new entry."""
    bench = Bench()
    bench.lead()
    for _ in range(4):
        bench.entries.owes_one = True
        bench.consensus.tick()
    acknowledged = bench.log.last_index
    bench.follower_holds("2", acknowledged)
    first_term = bench.core.term
    bench.append(first_term + 1, (1, 0), [first_term + 1], leader="3")
    assert bench.log.last_index == 2
    bench.lead()
    bench.log.sync()

    bench.consensus.tick()

    assert bench.core.noop_index < acknowledged
    assert bench.core.commit_index == 1
    assert {each.match_index for each in bench.consensus.replication.followers.values()} == {0}
    bench.follower_holds("2", bench.core.noop_index)
    bench.consensus.tick()
    assert bench.core.commit_index == bench.core.noop_index
