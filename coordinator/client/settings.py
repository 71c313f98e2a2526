"""The arguments of ``connect``, for all parts of one client."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.client.probing import HealthProbe
from coordinator.client.securing import ClientTls
from coordinator.errors import BadArgumentsError

TIMEOUT_S_MAX = 1e9


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
    given_label: str = ""
    """The label that a program gave this client: that of its grants, candidacies and jobs, too."""

    @classmethod
    def of(
        cls,
        timeout_s: float,
        session_timeout_s: float,
        label: str | None,
        lease_margin_ratio: float,
        probe: HealthProbe | Callable[[], object] | None,
    ) -> ClientSettings:
        """Return what these arguments of ``connect`` say.

        Raises:
            BadArgumentsError: one of them is out of its range.
        """
        _check_times(timeout_s, session_timeout_s, lease_margin_ratio)
        return cls(
            timeout_ms=max(1, round(timeout_s * 1000)),
            session_timeout_ms=max(1, round(session_timeout_s * 1000)),
            label=label if label is not None else f"pid {os.getpid()}",
            given_label=label or "",
            lease_margin_ratio=lease_margin_ratio,
            probe=probe if probe is None or isinstance(probe, HealthProbe) else HealthProbe(probe),
        )


def _check_times(timeout: float, session_timeout: float, lease_margin_ratio: float) -> None:
    # Said this way round, NaN is refused as well.
    if not (0 < timeout <= TIMEOUT_S_MAX and 0 < session_timeout <= TIMEOUT_S_MAX):
        raise BadArgumentsError(
            f"connect: expected timeouts above 0 s, up to {TIMEOUT_S_MAX:g} s, found {timeout} and"
            f" {session_timeout}"
        )
    if not 0.0 <= lease_margin_ratio < 0.5:
        raise BadArgumentsError(
            f"connect: expected lease_margin_ratio from 0 to 0.5, found {lease_margin_ratio}"
        )
