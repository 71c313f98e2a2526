"""No message of another member, no request and no command deposes a leader, however many of them
follow each other as fast as they may come.

A leader stays one as long as its heartbeats leave in time. So what is counted is passes of the loop
between the moment at which a heartbeat is due and the pass that sends it: a storm may not add one.
The loop's timer goes off up to a millisecond later; how many passes that is, is the machine's
matter, so they are not counted, and such a timer is set once or twice. Each pass is short, also
while thousands are handled one after the other (here), and for each route and command (the tests of
the wire); so a heartbeat is late by a few passes at most, and is read a few passes later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.service.comparing.digest_messages import FORMAT
from coordinator.service.comparing.divergence import DIGEST_KIND
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create, Delete, SetData
from coordinator.state.packing import pack
from tests.loop_meter import HELD_MS_MAX
from tests.members.crowd import fill
from tests.members.stage import RAFT, Stage, entry_of, staged, uncollected

pytestmark = pytest.mark.check

TIMER_S = 0.002
"""A timer set by a clock of whole milliseconds goes off so late at most."""
TIMERS_MAX = 2
"""One that was set before the heartbeat was due, one set anew because it went off too early."""
PASSES_LATE_MAX = 3
"""One in which it becomes due, one that finds that out, one that sends it."""
LARGEST = RAFT.frame_bytes_max - 64 * 1024 - 100
IDS = b"i" * 8
DEADLINE = (5_000).to_bytes(8, "big")
STORM_BYTES = 512 * 1024
"""Of short messages: some ten thousand, twice what one read brings."""
LARGE_ONES = 12
AT_ONCE_BYTES = 4 * 1024 * 1024


@dataclass
class Overdue:
    """How many passes of the leader's loop had ended before it sent a heartbeat that was due."""

    stage: Stage
    passes: int = 0
    most: int = 0
    sent_count: int = field(default=0)
    timers_s: set[float] = field(default_factory=set)
    """When the timers go off that were waited for since it is due."""

    def __post_init__(self) -> None:
        replication = self.stage.engine._consensus.replication  # type: ignore[union-attr]
        send = replication.send_heartbeats

        def counted(*said: int) -> None:
            self.sent_count += 1
            send(*said)
            self._wait_for_next()  # due again by now if the machine let this pass take so long

        replication.send_heartbeats = counted  # type: ignore[method-assign]
        self.stage.loop.loop.after_pass = self._after_pass

    def _after_pass(self) -> None:
        core = self.stage.core
        is_due = core.role is Role.LEADER and (
            self.stage.clock.monotonic_ms() > core.heartbeat_due_ms
        )
        if not is_due:
            self._wait_for_next()
        elif not self._is_timer_awaited():
            self.passes += 1
            self.most = max(self.most, self.passes)

    def _is_timer_awaited(self) -> bool:
        run_loop, now_s = self.stage.engine._run_loop, self.stage.loop.loop.time()
        timer = run_loop._timer
        if run_loop.is_woken or timer is None or not now_s < timer.when() <= now_s + TIMER_S:
            return False
        self.timers_s.add(timer.when())
        return len(self.timers_s) <= TIMERS_MAX

    def _wait_for_next(self) -> None:
        self.passes = 0
        self.timers_s.clear()

    def begin(self) -> None:
        self.most = self.sent_count = 0
        self._wait_for_next()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage"), member_count=3) as running:
        fill(running)
        with uncollected():
            yield running


@pytest.fixture(scope="module")
def overdue(stage: Stage) -> Overdue:
    return Overdue(stage)


Said = Callable[[Stage], say.Message]


def _request(kind: str, payload: bytes = b"") -> Said:
    return lambda _: say.MemberRequest(request_id=10**6, kind=kind, payload=payload)


def _of_now(make: Callable[[int], say.Message]) -> Said:
    return lambda stage: make(stage.core.term)


def _of_before(make: Callable[[int], say.Message]) -> Said:
    """Of a leader of before: of this term it would be a lie."""
    return lambda stage: make(stage.core.term - 1)


ENTRIES = [(1, b"e" * 1_000)] * 1_000
STORMS: dict[type, dict[str, Said]] = {
    say.Ping: {"": lambda _: say.Ping()},
    say.Append: {
        "empty": _of_before(
            lambda term: say.Append(
                term=term, epoch=0, commit_index=0, prev_index=1, prev_term=1, entries=[]
            )
        ),
        "full": _of_before(
            lambda term: say.Append(
                term=term, epoch=0, commit_index=0, prev_index=1, prev_term=1, entries=ENTRIES
            )
        ),
        "large": _of_before(
            lambda term: say.Append(
                term=term,
                epoch=0,
                commit_index=0,
                prev_index=1,
                prev_term=1,
                entries=[(1, entry_of([b"x" * LARGEST]))],
            )
        ),
    },
    say.Appended: {
        "": _of_now(lambda term: say.Appended(term=term, epoch=0, next_index=2, is_success=True)),
        "refused": _of_now(
            lambda term: say.Appended(term=term, epoch=0, next_index=2, is_success=False)
        ),
    },
    say.CommitNotice: {"": _of_before(lambda term: say.CommitNotice(term, 1))},
    say.Probe: {"": _of_before(lambda term: say.Probe(term, 1))},
    say.ProbeReply: {"": _of_now(lambda term: say.ProbeReply(term, 0))},
    say.VoteRequest: {
        "": _of_now(lambda term: say.VoteRequest(term=term, last_index=1, last_term=1))
    },
    say.VoteGrant: {"": _of_now(say.VoteGrant)},
    say.PreVoteRequest: {
        "": _of_now(
            lambda term: say.PreVoteRequest(term=term + 1, last_index=10**9, last_term=term)
        )
    },
    say.PreVoteGrant: {"": _of_now(lambda term: say.PreVoteGrant(term + 1))},
    say.TermNotice: {"": _of_now(say.TermNotice)},
    say.TermQuestion: {"": lambda _: say.TermQuestion(1)},
    say.TermAnswer: {"": _of_now(lambda term: say.TermAnswer(1, term))},
    say.LogLost: {"": _of_before(lambda term: say.LogLost(term, 1))},
    say.StandNow: {"": _of_before(say.StandNow)},
    say.Incarnation: {"": lambda stage: stage.peer.incarnation._replace(is_asking=True)},
    say.IncarnationSeen: {"": lambda _: say.IncarnationSeen(1)},
    say.IncarnationLost: {
        "": lambda _: say.IncarnationLost(
            number=9,
            incarnation_id=IDS,
            life_id=IDS,
            proof_term=1,
            proof_index=2,
            seal=IDS * 2,
        )
    },
    say.Doubt: {"": lambda _: say.Doubt("3", IDS)},
    say.Vouch: {"": lambda _: say.Vouch("3", IDS)},
    say.SnapshotPiece: {
        "large": _of_before(
            lambda term: say.SnapshotPiece(
                term=term,
                snapshot_index=9,
                total_bytes=10**9,
                sha256=IDS * 4,
                offset=0,
                data=b"d" * LARGEST,
            )
        )
    },
    say.SnapshotReply: {
        "": _of_now(
            lambda term: say.SnapshotReply(
                term=term, snapshot_index=1, next_offset=0, is_installed=False
            )
        )
    },
    say.MemberRequest: {
        "of no kind": _request("none"),
        "large, of no kind": _request("none", b"p" * LARGEST),
        "heartbeats": _request("heartbeat", b'["s1"]'),
        "heartbeat of one with all holds": _request("heartbeat", b'["s0"]'),
        "remaining_times": _request("promises", b'{"sessions": ["s1"], "paths": ["/locks"]}'),
        "read indexes": _request("raft.read_index"),
        "digests": lambda stage: say.MemberRequest(
            request_id=10**6,
            kind=DIGEST_KIND,
            payload=pack((FORMAT, stage.core.term, (stage.last[0], (0, 0, "", 0)), 8)),
        ),
        "proposals": _request("propose", DEADLINE + encode_command(Command(Delete("/none"), 1))),
        "the largest proposals": _request(
            "propose",
            DEADLINE + encode_command(Command(SetData("/wide", b"x" * LARGEST), 1)),
        ),
    },
    say.Reply: {
        "to nothing": lambda _: say.Reply(
            request_id=10**9, status=say.REPLY_OK, code="", payload=b""
        ),
        "large, to nothing": lambda _: say.Reply(
            request_id=10**9, status=say.REPLY_OK, code="", payload=b"p" * LARGEST
        ),
    },
}
CASES = [(kind, name) for kind, rows in STORMS.items() for name in rows]


def test_every_kind_of_message_has_a_storm() -> None:
    """A new kind says what comes in thousands."""
    assert set(STORMS) == {each.type for each in say.KINDS}


def test_a_few_passes_are_far_below_the_time_of_an_election() -> None:
    """A heartbeat is due, late at the leader and late at the follower before one stands."""
    raft = RaftConfig()

    late_ms = 2 * PASSES_LATE_MAX * HELD_MS_MAX

    assert raft.heartbeat_interval_ms + late_ms < raft.election_timeout_ms_min


@pytest.mark.parametrize(
    ("kind", "name"), CASES, ids=[f"{kind.__name__}-{name}" for kind, name in CASES]
)
def test_no_storm_deposes_a_leader(stage: Stage, overdue: Overdue, kind: type, name: str) -> None:
    """Its heartbeats leave between the messages, as many as come, and no pass is long."""
    stage.lead()
    term, said = stage.core.term, STORMS[kind][name](stage)
    payload_bytes = len(say.NEWEST.encode(said)) + 20
    count = max(LARGE_ONES, STORM_BYTES // payload_bytes)
    stage.peer.is_deaf = True

    def storm(_repetition: int) -> None:
        overdue.begin()
        stage.with_peers(poured(stage, said, count, payload_bytes))

    try:
        held_ms = stage.measured(storm)
    finally:
        stage.peer.is_deaf = False

    assert (stage.core.role, stage.core.term) == (Role.LEADER, term)
    assert overdue.most <= PASSES_LATE_MAX
    assert held_ms <= HELD_MS_MAX, f"{kind.__name__} ({name}) holds the loop for {held_ms:.1f} ms"


async def poured(stage: Stage, said: say.Message, count: int, payload_bytes: int) -> None:
    """Say it so often, as fast as the line takes it."""
    at_once = max(1, AT_ONCE_BYTES // payload_bytes)
    for begun in range(0, count, at_once):
        for _ in range(min(at_once, count - begun)):
            stage.peer.send(said)
        while stage.peer.unsent_bytes > AT_ONCE_BYTES:  # noqa: ASYNC110
            await asyncio.sleep(0)


def test_no_storm_of_clients_deposes_a_leader(stage: Stage, overdue: Overdue) -> None:
    """As many writes as may be under way, of all that may wait together, again and again."""
    stage.lead()
    term = stage.core.term
    each = b"x" * (RAFT.proposals_bytes_max // RAFT.proposals_in_flight_max - 200)

    async def write() -> None:
        for number in range(3):
            deadline_ms = stage.clock.monotonic_ms() + 10_000
            operations = [SetData("/wide", each) for _ in range(RAFT.proposals_in_flight_max - 1)]
            await asyncio.gather(
                stage.member.proposer.submit(
                    Create(f"/wide/storm-{number}"), RequestContext(None, deadline_ms)
                ),
                *(
                    stage.member.proposer.submit(operation, RequestContext(None, deadline_ms))
                    for operation in operations
                ),
                return_exceptions=True,
            )

    overdue.begin()
    stage.loop.run(write())
    stage.settle()

    assert (stage.core.role, stage.core.term) == (Role.LEADER, term)
    assert overdue.most <= PASSES_LATE_MAX
