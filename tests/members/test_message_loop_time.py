"""No message of another member holds the loop for more than 20 ms while it is handled, at its
largest: read from the socket, unsealed, decoded, acted on, with all that follows from it.

One row for each kind of message, by what costs most; a kind without a row fails. Requests and
replies carry what the service says (``test_request_loop_time``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from coordinator.errors import CoordinatorError
from coordinator.node.config import HttpConfig
from coordinator.raft.entries import NO_OP
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import APPEND_ENTRIES_MAX
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.snapshot_store import SnapshotStore
from coordinator.service.reads.reads import ReadMode
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create, SetData
from tests.loop_meter import HELD_MS_MAX
from tests.members.crowd import fill
from tests.members.stage import RAFT, Stage, entry_of, staged, uncollected

ENTRY_BYTES = RAFT.append_batch_bytes // APPEND_ENTRIES_MAX
LARGEST = RAFT.frame_bytes_max - 64 * 1024 - 100
"""Of a command."""
WAITING = HttpConfig().connections_max
IDS = b"i" * 8
_NUMBERS = count()

Row = Callable[[Stage], Callable[[], None]]
"""Prepares what a message is about; returns what says it."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("stage"), member_count=3) as running:
        running.peers[1].acknowledges = False  # member 3 lags behind
        fill(running)
        with uncollected():
            yield running


# --- what is said to a follower


def _small_entries(how_many: int) -> list[bytes]:
    data = b"x" * (ENTRY_BYTES - 100)
    return [
        entry_of([encode_command(Command(Create(f"/wide/e{next(_NUMBERS)}", data), 1))])
        for _ in range(how_many)
    ]


def _full_append(stage: Stage) -> Callable[[], None]:
    stage.follow()
    entries = _small_entries(APPEND_ENTRIES_MAX)
    return lambda: stage.append(entries)


def _append_of_one(stage: Stage) -> Callable[[], None]:
    stage.follow()
    entry = entry_of([encode_command(Command(SetData("/wide", b"x" * LARGEST), 1))])
    return lambda: stage.append([entry])


def _append_of_groups(stage: Stage) -> Callable[[], None]:
    """As many commands as may be under way."""
    stage.follow()
    commands = [
        encode_command(Command(Create(f"/wide/g{next(_NUMBERS)}"), 1))
        for _ in range(RAFT.proposals_in_flight_max)
    ]
    return lambda: stage.append([entry_of(commands)])


def _conflicting_append(stage: Stage) -> Callable[[], None]:
    """It cuts as much as a deposed leader may have written alone, and appends as much."""
    stage.follow()
    index, term = stage.last
    for _ in range(4):
        stage.append([entry_of([]) * 1] * APPEND_ENTRIES_MAX, is_committed=False)
        stage.settle()
    now = stage.core.term + 1
    entries = [(now, each) for each in _small_entries(APPEND_ENTRIES_MAX)]
    return lambda: stage.say(
        say.Append(
            term=now,
            epoch=0,
            commit_index=index + len(entries),
            prev_index=index,
            prev_term=term,
            entries=entries,
        )
    )


def _append_far_ahead(stage: Stage) -> Callable[[], None]:
    """Its previous entry is of another term: all of this one's may differ."""
    stage.follow()
    for _ in range(8):
        stage.append([entry_of([])] * APPEND_ENTRIES_MAX, is_committed=False)
        stage.settle()
    index, _ = stage.last
    now = stage.core.term + 1
    return lambda: stage.say(
        say.Append(term=now, epoch=0, commit_index=0, prev_index=index, prev_term=now, entries=[])
    )


def _commit_of_many(stage: Stage) -> Callable[[], None]:
    stage.follow()
    for _ in range(4):
        stage.append(_small_entries(APPEND_ENTRIES_MAX), is_committed=False)
        stage.settle()
    index, _ = stage.last
    return lambda: stage.say(say.CommitNotice(stage.core.term, index))


def _to_follower(*messages: Callable[[Stage], say.Message]) -> Row:
    def prepared(stage: Stage) -> Callable[[], None]:
        stage.follow()
        said = [each(stage) for each in messages]
        return lambda: stage.say(*said)

    return prepared


def _snapshot(stage: Stage) -> Callable[[], None]:
    """Its pieces, one after the other, and its installation at the end."""
    stage.follow()
    directory = Path(stage.config.member.data_dir).parent / f"taken-{next(_NUMBERS)}"
    store = SnapshotStore(str(directory), OsDisk(), piece_bytes=RAFT.snapshot_piece_bytes)
    index, term = stage.last[0] + 1_000, stage.core.term
    writer = store.begin_write((NO_OP, index, term), (NO_OP, index - 1, term))
    for piece in stage.member._replica.machine.snapshot():
        writer.write(piece)
    info = writer.finish()
    data = Path(info.path).read_bytes()

    def send() -> None:
        for offset in range(0, len(data), RAFT.snapshot_piece_bytes):
            piece = data[offset : offset + RAFT.snapshot_piece_bytes]
            stage.say(
                say.SnapshotPiece(
                    term=term,
                    snapshot_index=index,
                    total_bytes=len(data),
                    sha256=info.sha256,
                    offset=offset,
                    data=piece,
                )
            )
            is_last = offset + len(piece) == len(data)
            following = 0 if is_last else offset + len(piece)
            expected = say.SnapshotReply(
                term=term, snapshot_index=index, next_offset=following, is_installed=is_last
            )
            stage.until(lambda expected=expected: stage.has_replied(expected))  # type: ignore[misc]

    return send


# --- what is said to a leader


def _with_proposals(stage: Stage) -> None:
    """Have clients of the leader wait for as many proposals as there may be."""
    stage.peer.acknowledges = False

    async def ask() -> None:
        deadline_ms = stage.clock.monotonic_ms() + 5_000
        for _ in range(RAFT.proposals_in_flight_max):
            operation = Create(f"/wide/p{next(_NUMBERS)}")
            waiting = stage.member.proposer.submit(operation, RequestContext(None, deadline_ms))
            stage.member._tasks.spawn(_given_up(waiting), "a client")

    stage.loop.run(ask())
    stage.until(lambda: stage.engine._entries.proposals.in_flight == RAFT.proposals_in_flight_max)


async def _given_up(waiting: object) -> None:
    try:
        await waiting  # type: ignore[misc]
    except CoordinatorError:
        pass


def _acknowledgement(stage: Stage) -> Callable[[], None]:
    stage.lead()
    _with_proposals(stage)
    said = stage.peer.heard[say.Append]
    assert isinstance(said, say.Append)
    reply = say.Appended(
        term=said.term, epoch=said.epoch, next_index=stage.last[0] + 1, is_success=True
    )

    def acknowledge() -> None:
        stage.peer.acknowledges = True
        stage.say(reply)

    return acknowledge


def _refusal(stage: Stage) -> Callable[[], None]:
    """The follower lacks so much that the leader sends all that may be under way."""
    stage.follow()
    large = [entry_of([encode_command(Command(SetData("/wide", b"x" * LARGEST), 1))])]
    full = [entry_of([encode_command(Command(SetData("/wide", b"x" * (1024**2 - 99)), 1))])]
    first, _ = stage.last
    for entry in (*[full] * 3, large):
        stage.append(entry)
        stage.settle()
    stage.lead()
    lagging = stage.peers[1]
    said = lagging.heard[say.Append]
    assert isinstance(said, say.Append)
    refusal = say.Appended(term=said.term, epoch=said.epoch, next_index=first + 1, is_success=False)
    return lambda: stage.say(refusal, peer=lagging)


def _with_readers(stage: Stage) -> None:
    """Have as many readers as there may be connections wait for the leader's confirmation."""

    async def ask() -> None:
        deadline_ms = stage.clock.monotonic_ms() + 5_000
        for _ in range(WAITING):
            waiting = stage.member.get("/wide", ReadMode(), deadline_ms)
            stage.member._tasks.spawn(_given_up(waiting), "a client")

    stage.loop.run(ask())


def _confirmation(stage: Stage) -> Callable[[], None]:
    stage.lead()
    for each in stage.peers:
        each.confirms = False
    _with_readers(stage)
    stage.until(lambda: stage.engine._consensus.rounds.is_waiting)  # type: ignore[union-attr]

    def confirm() -> None:
        for each in stage.peers:
            each.confirms = True
        probe = stage.peer.heard[say.Probe]
        assert isinstance(probe, say.Probe)
        stage.say(say.ProbeReply(probe.term, probe.round_number))

    return confirm


def _vote(stage: Stage) -> Callable[[], None]:
    """It makes a leader, of all the sessions there may be and of the clients that wait for one."""
    stage.follow()
    for each in stage.peers:
        each.votes = False
    stage.say(say.StandNow(stage.core.term))
    stage.until(lambda: stage.core.role.value == "candidate")
    _with_readers(stage)
    term = stage.core.term

    def vote() -> None:
        for each in stage.peers:
            each.votes = True
        stage.say(say.VoteGrant(term))
        stage.until(lambda: stage.member._leadership.is_leader)

    return vote


def _to_leader(message: Callable[[Stage], say.Message]) -> Row:
    def prepared(stage: Stage) -> Callable[[], None]:
        stage.lead()
        _with_proposals(stage)
        said = message(stage)

        def act() -> None:
            stage.peer.acknowledges = True
            stage.say(said)

        return act

    return prepared


def _deposition(stage: Stage) -> Callable[[], None]:
    """Everybody who waits for the leader has to look for another one."""
    stage.lead()
    _with_proposals(stage)
    _with_readers(stage)
    term = stage.core.term + 1

    def depose() -> None:
        stage.peer.acknowledges = True
        stage.say(say.TermNotice(term))
        stage.until(lambda: not stage.member._leadership.is_leader)

    return depose


def _next_piece(stage: Stage) -> Callable[[], None]:
    """The leader sends a snapshot: one reply, one piece."""
    stage.lead()
    return lambda: stage.say(
        say.SnapshotReply(term=stage.core.term, snapshot_index=5, next_offset=0, is_installed=False)
    )


ROWS: dict[type, dict[str, Row]] = {
    say.Ping: {"alone": _to_follower(lambda _: say.Ping())},
    say.Append: {
        "many entries": _full_append,
        "one entry": _append_of_one,
        "many commands": _append_of_groups,
        "conflicting": _conflicting_append,
        "of another term": _append_far_ahead,
    },
    say.Appended: {"commits": _acknowledgement, "refuses": _refusal},
    say.CommitNotice: {"of many": _commit_of_many},
    say.Probe: {"alone": _to_follower(lambda stage: say.Probe(stage.core.term, 1))},
    say.ProbeReply: {"readers": _confirmation},
    say.VoteRequest: {
        "alone": _to_follower(lambda stage: say.VoteRequest(stage.core.term + 1, *stage.last)),
        "to a leader": _to_leader(lambda stage: say.VoteRequest(stage.core.term + 1, *stage.last)),
    },
    say.VoteGrant: {"elects": _vote},
    say.PreVoteRequest: {
        "alone": _to_follower(lambda stage: say.PreVoteRequest(stage.core.term + 1, *stage.last))
    },
    say.PreVoteGrant: {"alone": _to_follower(lambda stage: say.PreVoteGrant(stage.core.term + 1))},
    say.TermNotice: {"deposes": _deposition},
    say.TermQuestion: {"alone": _to_leader(lambda _: say.TermQuestion(1))},
    say.TermAnswer: {"alone": _to_follower(lambda stage: say.TermAnswer(1, stage.core.term))},
    say.LogLost: {"alone": _to_follower(lambda stage: say.LogLost(stage.core.term, 1))},
    say.StandNow: {"alone": _to_follower(lambda stage: say.StandNow(stage.core.term - 1))},
    say.Incarnation: {
        "of all ids": _to_follower(lambda stage: stage.peer.incarnation._replace(is_asking=True))
    },
    say.IncarnationSeen: {"alone": _to_follower(lambda _: say.IncarnationSeen(1))},
    say.IncarnationLost: {
        "alone": _to_follower(
            lambda _: say.IncarnationLost(
                number=9, incarnation_id=IDS, life_id=IDS, proof_term=1, proof_index=2, seal=IDS * 2
            )
        )
    },
    say.Doubt: {"alone": _to_follower(lambda _: say.Doubt("2", IDS))},
    say.Vouch: {"alone": _to_follower(lambda _: say.Vouch("2", IDS))},
    say.SnapshotPiece: {"all": _snapshot},
    say.SnapshotReply: {"alone": _next_piece},
    say.MemberRequest: {
        "of no kind": _to_follower(
            lambda _: say.MemberRequest(request_id=1, kind="none", payload=b"p" * LARGEST)
        )
    },
    say.Reply: {
        "to nothing": _to_follower(
            lambda _: say.Reply(
                request_id=10**9, status=say.REPLY_OK, code="", payload=b"p" * LARGEST
            )
        )
    },
}


def test_every_kind_of_message_has_a_row() -> None:
    """A new kind says what costs most."""
    assert set(ROWS) == {each.type for each in say.KINDS}


CASES = [(kind, name) for kind, rows in ROWS.items() for name in rows]


@pytest.mark.check
@pytest.mark.parametrize(
    ("kind", "name"), CASES, ids=[f"{kind.__name__}-{name}" for kind, name in CASES]
)
def test_no_message_holds_the_loop(stage: Stage, kind: type, name: str) -> None:
    """The least of some repetitions: 20 ms."""

    def act(_repetition: int) -> None:
        say_it = ROWS[kind][name](stage)
        stage.begin()
        say_it()

    held_ms = stage.measured(act)
    assert held_ms <= HELD_MS_MAX, f"{kind.__name__} ({name}) holds the loop for {held_ms:.1f} ms"
