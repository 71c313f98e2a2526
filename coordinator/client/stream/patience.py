"""Waits of a client on the stream, in ms."""

from __future__ import annotations

CONNECT_MS_MAX = 2_000
WELCOME_MS_MAX = 2_000
HTTP_MS = 60_000
"""For how long a member that answered in HTTP is not asked for the stream again."""
MAYBE_HTTP_MS = 5_000
"""The same for one that closed, or said nothing."""
LEADER_AGAIN_MS = 1_000
"""A leader that failed is not preferred again before."""
FULL_MS = 30_000
"""For so long a leader is not preferred again that has no room for another connection: its place is
left to clients that have no other member."""
QUIET_MS = 2_000
"""After so much silence a server whose lines are waited for is asked whether it is there."""
SILENCE_MS_MAX = 7_000
"""A server that has not answered for so long is taken for dead."""
ASK_MS = 500
"""After so much silence a server that owes the first of an answer is asked the same."""
ANSWER_MS = 500
"""What waits for a server that was asked goes elsewhere if it has said nothing for so long."""
BYTES_PER_MS_MIN = 128
"""A network may be as slow as this: so much more patience needs what is on its way to a server."""
REPLACED_MS = 200
"""The same for a leader that another member says is replaced; it is then taken for dead."""
_AT_ONCE_BYTES = 64 * 1024
PROOF_MS = 1_000
"""A server that let a deadline pass, or a PING, is taken for dead if it goes on to say nothing."""


def answer_ms(unheard_bytes: int) -> int:
    """Return how long a server that was asked has to be heard, behind so much that was sent."""
    return ANSWER_MS + max(0, unheard_bytes - _AT_ONCE_BYTES) // BYTES_PER_MS_MIN
