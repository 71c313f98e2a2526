"""The state of a member that has as much of everything as its messages can be about."""

from __future__ import annotations

from coordinator.model.limits import NEW_CLUSTER
from coordinator.state.commands import Create, Enter, Kind, OpenSession, Revoke
from tests.members.stage import Stage

SESSIONS = NEW_CLUSTER.sessions_max
HOLDS_OF_ONE = NEW_CLUSTER.ephemerals_per_session_max
"""Bounded holds of the session ``s0``."""
HOLDERS = 10_000
"""Sessions with one bounded hold, from ``s1`` on."""
LOSERS = 100
"""Of those, with as many grants taken from them as a session is told of, each."""
LOST_OF_ONE = 100
_AN_HOUR_MS = 3_600_000


def fill(stage: Stage) -> None:
    """Make it so, as a follower of a cluster that has had a leader, and so an id."""
    stage.lead()
    stage.follow()
    stage.have_applied([Create("/locks"), Create("/wide")])
    stage.have_applied(
        [OpenSession(f"s{n}", timeout_ms=_AN_HOUR_MS, label="") for n in range(SESSIONS)]
    )
    stage.have_applied([_hold("s0", f"of-one-{n:05}") for n in range(HOLDS_OF_ONE)])
    stage.have_applied([_hold(f"s{n}", f"of-{n:05}") for n in range(1, HOLDERS + 1)])
    zxid = stage.member._replica.machine.zxid
    losses = [(loser, number) for loser in range(1, LOSERS + 1) for number in range(LOST_OF_ONE)]
    stage.have_applied([_hold(f"s{loser}", f"lost-{loser}-{number}") for loser, number in losses])
    stage.have_applied(
        [
            Revoke(
                f"/locks/lost-{loser}-{number}/lock-0000000000",
                czxid=zxid + at,
                by="b" * 100,
                reason="r" * 100,
            )
            for at, (loser, number) in enumerate(losses, 1)
        ]
    )


def _hold(session_id: str, name: str) -> Enter:
    return Enter(
        (f"/locks/{name}",),
        prefix="lock-",
        kind=Kind.EXCLUSIVE,
        session_id=session_id,
        data=b"{}",
        max_hold_ms=_AN_HOUR_MS,
    )
