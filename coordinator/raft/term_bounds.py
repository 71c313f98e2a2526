"""The bounds of terms that another member may name. Pure.

A term that was accepted once is stored and never decreases, so one lie would never end: no
election can follow the highest possible number. Terms grow by one with an election; a member that
missed half a century of constant elections is ``TERM_JUMP_MAX`` behind.

1. No message may name a term that is more than that above the member's own, or above ``TERM_MAX``:
   half of what the codec, the log and the term file can hold, so that an election can follow.
2. A higher term is accepted if as many other members name it as can take a vote away
   (``rejoin/incarnations``, rule 2): then it is the term of the cluster, however it got there.
   Otherwise a member with a replaced disk, in term 0, could never follow a cluster that once
   accepted a lie.
3. An entry is not newer than the leader that sends it, nor a log newer than its candidate; entries
   are in the order of their terms. So the term stored with an entry is bounded as well.
"""

from __future__ import annotations

from typing import Any

from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message

TERM_JUMP_MAX = 2**32
TERM_MAX = 2**62

NOT_BOUNDED = ((say.IncarnationLost, "proof_term"),)
"""Messages whose terms this member named itself, or that have none; nothing is stored."""


def _term_fields(kind: Any) -> tuple[int, ...]:
    return tuple(
        at
        for at, name in enumerate(kind._fields)
        if name.endswith("term") and (kind, name) not in NOT_BOUNDED
    )


FIELDS: dict[type, tuple[int, ...]] = {
    each.type: _term_fields(each.type) for each in say.KINDS
}
"""The positions of the fields that are terms, by kind of message."""


class NamedTerms:
    """The terms beyond its bound that a member received, and from which members."""

    def __init__(self, member_count: int) -> None:
        self._needed = max(2, member_count - member_count // 2)
        self._by_member: dict[str, int] = {}

    def note(self, member_id: str, term: int) -> None:
        """Remember that a member has named a term this high."""
        self._by_member[member_id] = max(self._by_member.get(member_id, 0), min(term, TERM_MAX))

    @property
    def highest_believed(self) -> int:
        """The highest term that enough members named, or exceeded; 0 if there is none."""
        named = sorted(self._by_member.values(), reverse=True)
        return named[self._needed - 1] if len(named) >= self._needed else 0


def highest_term(message: Message) -> int:
    """Return the highest term that ``message`` names; 0 where it names none."""
    fields: Any = message
    return max((fields[at] for at in FIELDS[type(message)]), default=0)


def why_not_believed(message: Message, own_term: int) -> str:
    """Return what is wrong with the terms in ``message``, "" if nothing is."""
    limit = min(own_term + TERM_JUMP_MAX, TERM_MAX)
    for at in FIELDS[type(message)]:
        term: Any = message[at]
        if term > limit:
            return (
                f"names term {term} where this one is in term {own_term}: no cluster gets there"
                " by elections"
            )
    if isinstance(message, say.Append):
        return _why_not_in_order(message)
    if isinstance(message, say.VoteRequest | say.PreVoteRequest):
        return _why_not_its_log(message)
    return ""


def _why_not_its_log(request: say.VoteRequest | say.PreVoteRequest) -> str:
    if request.last_term <= request.term:
        return ""
    return f"stands for term {request.term} with an entry of term {request.last_term}"


def _why_not_in_order(append: say.Append) -> str:
    before = append.prev_term
    for term, _ in append.entries:
        if term < before:
            return f"sends an entry of term {term} after one of term {before}"
        before = term
    if before > append.term:
        return f"sends, as the leader of term {append.term}, an entry of term {before}"
    return ""
