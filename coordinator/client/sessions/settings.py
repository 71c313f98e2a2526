"""The arguments of ``connect``, for all parts of one client."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeGuard

from coordinator.client.calling.securing import ClientTls
from coordinator.client.sessions.probing import HealthProbe
from coordinator.errors import BadArgumentsError

TIMEOUT_S_MAX = 1e9
SESSION_TIMEOUT_S_MAX = 30 * 24 * 3_600.0
"""What limits of a cluster may allow at most (``timeout_ms_max``: an hour unless it is set)."""


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
        timeout_ms = _ms_of("timeout", timeout_s, TIMEOUT_S_MAX)
        session_timeout_ms = _ms_of("session_timeout", session_timeout_s, SESSION_TIMEOUT_S_MAX)
        if not (_is_number(lease_margin_ratio) and 0.0 <= lease_margin_ratio < 0.5):
            raise BadArgumentsError(
                f"connect: expected lease_margin_ratio from 0 to 0.5, found {lease_margin_ratio!r}"
            )
        return cls(
            timeout_ms=timeout_ms,
            session_timeout_ms=session_timeout_ms,
            label=label if label is not None else f"{socket.gethostname()} pid {os.getpid()}",
            given_label=label or "",
            lease_margin_ratio=lease_margin_ratio,
            probe=probe if probe is None or isinstance(probe, HealthProbe) else HealthProbe(probe),
        )


def _ms_of(what: str, seconds: object, most_s: float) -> int:
    # Said this way round, NaN is refused as well.
    if not (_is_number(seconds) and 0 < seconds <= most_s):
        raise BadArgumentsError(
            f"connect: expected {what} in seconds, above 0, up to {most_s:g}; found {seconds!r:.60}"
        )
    return max(1, round(seconds * 1000))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
