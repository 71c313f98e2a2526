"""Waits of a client on the stream, in ms; for tasks and threads alike."""

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
PROOF_MS = 1_000
"""How long a server that let a deadline pass has to show that it is there."""
