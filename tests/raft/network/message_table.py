"""One example of every kind of message between members; a kind without one fails the tests."""

from __future__ import annotations

from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message

EXAMPLES: tuple[Message, ...] = (
    say.Ping(),
    say.Append(
        term=1,
        epoch=2,
        commit_index=3,
        prev_index=4,
        prev_term=1,
        entries=((1, b"\x00a"), (1, b"\x01")),
    ),
    say.Appended(term=1, epoch=2, next_index=3, is_success=True),
    say.CommitNotice(1, 2),
    say.Probe(1, 2),
    say.ProbeReply(1, 2),
    say.VoteRequest(term=2, last_index=2, last_term=1),
    say.VoteGrant(1),
    say.PreVoteRequest(term=2, last_index=2, last_term=1),
    say.PreVoteGrant(1),
    say.TermNotice(7),
    say.SnapshotPiece(term=1, snapshot_index=2, total_bytes=3, sha256=b"s", offset=4, data=b"data"),
    say.SnapshotReply(term=1, snapshot_index=2, next_offset=3, is_installed=False),
    say.MemberRequest(request_id=1, kind="kind", payload=b"payload"),
    say.Reply(request_id=1, status=0, code="", payload=b"payload"),
    say.TermQuestion(9),
    say.TermAnswer(9, 7),
    say.LogLost(1, 2),
    say.StandNow(1),
    say.Incarnation(
        number=1,
        ids=b"i" * 8,
        life_id=b"l" * 8,
        is_proven=True,
        is_asking=True,
        proof_term=1,
        proof_index=2,
    ),
    say.IncarnationSeen(1),
    say.IncarnationLost(
        number=1, incarnation_id=b"i" * 8, life_id=b"l" * 8, proof_term=1, proof_index=2
    ),
    say.Doubt("3", b"l" * 8),
    say.Vouch("3", b"l" * 8),
)


def kinds() -> set[type]:
    """Return every kind that there is."""
    return {each.type for each in say.KINDS}
