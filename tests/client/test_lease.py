"""How long a session may be relied upon: arithmetic, without a clock."""

from __future__ import annotations

import pytest

from coordinator.client.sessions.lease import Lease, margin_ms


def test_the_lease_counts_from_when_the_heartbeat_was_sent() -> None:
    """However late the acknowledgement, the safe time ends by the time of sending."""
    lease = Lease(sent_ms=1_000, timeout_ms=10_000, margin_ms=250).renewed(4_000)

    assert lease.safe_until_ms == 13_750
    assert lease.remaining_ms(13_749) == 1
    assert lease.remaining_ms(13_750) == 0
    assert lease.remaining_ms(99_999) == 0


def test_an_old_acknowledgement_never_shortens_the_lease() -> None:
    """Heartbeats answered out of order leave the latest one standing."""
    lease = Lease(sent_ms=5_000, timeout_ms=10_000, margin_ms=250)

    assert lease.renewed(4_000).safe_until_ms == lease.safe_until_ms


def test_there_are_three_heartbeats_in_each_lease() -> None:
    """The interval is a third of the timeout."""
    assert Lease(sent_ms=0, timeout_ms=9_000, margin_ms=225).interval_ms == 3_000


@pytest.mark.parametrize("timeout_ms", [1_000, 2_000, 5_000, 10_000, 60_000, 3_600_000])
@pytest.mark.parametrize("client_rate", [0.99, 1.0, 1.01])
@pytest.mark.parametrize("server_rate", [0.99, 1.0, 1.01])
def test_the_client_gives_up_before_the_server_although_their_clocks_drift(
    timeout_ms: int, client_rate: float, server_rate: float
) -> None:
    """With clocks 1 % fast or slow on either side the safe time ends first."""
    lease = Lease(sent_ms=0, timeout_ms=timeout_ms, margin_ms=margin_ms(timeout_ms))

    client_gives_up_after_true_ms = lease.safe_until_ms / client_rate
    server_expires_after_true_ms = timeout_ms / server_rate

    assert client_gives_up_after_true_ms < server_expires_after_true_ms


def test_the_margin_can_be_set() -> None:
    """The drift factor is the caller's to choose, with a floor."""
    assert margin_ms(10_000) == 250
    assert margin_ms(10_000, 0.1) == 1_000
    assert margin_ms(1_000) == 50
