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
    say.SnapshotPiece(1, 2, 3, b"s", 4, b"data"),
    say.SnapshotReply(1, 2, 3, False),
    say.MemberRequest(1, "kind", b"payload"),
    say.Reply(1, 0, "", b"payload"),
    say.TermQuestion(9),
    say.TermAnswer(9, 7),
    say.LogLost(1, 2),
    say.StandNow(1),
    say.Incarnation(1, b"i" * 8, b"l" * 8, True, True, 1, 2),
    say.IncarnationSeen(1),
    say.IncarnationLost(1, b"i" * 8, b"l" * 8, 1, 2),
    say.Doubt("3", b"l" * 8),
    say.Vouch("3", b"l" * 8),
)


def kinds() -> set[type]:
    """Return every kind that there is."""
    return set(say.kinds())
