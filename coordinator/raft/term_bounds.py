"""Which terms that another member names are believed. Pure.

A term that was believed once is stored and can never go down again, so one lie about it would last
for ever: no election follows the highest number that there is. Terms grow by one with an election;
a member that was away for half a century of elections without a pause is ``TERM_JUMP_MAX`` behind.

1. No message names a term of more than that above the own one, nor one above ``TERM_MAX``: half of
   what the codec, the log and the term file can hold, so that an election can always follow.
2. An entry is not newer than the leader that sends it, nor a log than its candidate; entries come
   in the order of their terms. So what is stored with an entry is bounded as well.
"""

from __future__ import annotations

from typing import Any

from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message

TERM_JUMP_MAX = 2**32
TERM_MAX = 2**62

NOT_BOUNDED = ((say.ChapterLost, "proof_term"),)
"""What they name is what this member showed itself, or none at all; it is stored nowhere."""


def _term_fields(kind: Any) -> tuple[int, ...]:
    return tuple(
        at
        for at, name in enumerate(kind._fields)
        if name.endswith("term") and (kind, name) not in NOT_BOUNDED
    )


FIELDS: dict[type, tuple[int, ...]] = {kind: _term_fields(kind) for kind in say.kinds()}
"""By kind of message: the places of the fields that are terms."""


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
