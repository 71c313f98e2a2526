"""One example of every kind of message between members; a kind without one fails the tests."""

from __future__ import annotations

from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message

EXAMPLES: tuple[Message, ...] = (
    say.Ping(),
    say.Append(1, 2, 3, 4, 1, ((1, b"\x00a"), (1, b"\x01"))),
    say.Appended(1, 2, 3, True),
    say.CommitNotice(1, 2),
    say.Probe(1, 2),
    say.ProbeReply(1, 2),
    say.VoteRequest(2, 2, 1),
    say.VoteGrant(1),
    say.PreVoteRequest(2, 2, 1),
    say.PreVoteGrant(1),
    say.TermNotice(7),
    say.SnapshotPiece(term=1, snapshot_index=2, total_bytes=3, sha256=b"s", offset=4, data=b"data"),
    say.SnapshotReply(1, 2, 3, False),
    say.MemberRequest(1, "kind", b"payload"),
    say.Reply(1, 0, "", b"payload"),
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
    return set(say.kinds())
