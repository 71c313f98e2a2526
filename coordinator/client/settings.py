"""The arguments of ``connect``, for all parts of one client."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.client.probing import HealthProbe
from coordinator.client.securing import ClientTls


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Times in milliseconds; see ``connect`` for what they mean."""

    timeout_ms: int
    session_timeout_ms: int
    label: str
    lease_margin_ratio: float
    probe: HealthProbe | None = None
    operator: str = ""
    tls: ClientTls | None = None
