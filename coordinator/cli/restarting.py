"""Restarts of a command that has ended: when, and after which pause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

RestartWhen = Literal["never", "on-failure", "always"]


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """``when`` it is started again: at first after ``pause_s``, then after twice that, up to
    ``pause_s_max``; at most ``in_a_row`` times, each time within ``pause_s_max`` of its start."""

    when: RestartWhen = "never"
    pause_s: float = 1.0
    pause_s_max: float = 30.0
    in_a_row: int = 5

    def wants(self, exit_code: int) -> bool:
        """Whether a command that ended with this code is started again at all."""
        return self.when == "always" or (self.when == "on-failure" and exit_code != 0)


@dataclass(slots=True)
class Restarts:
    """The restarts of the command under one leadership."""

    policy: RestartPolicy
    count: int = field(default=0, init=False)

    def pause_s(self, ran_s: float) -> float | None:
        """Return after which pause it is started again; None: it has ended too often."""
        policy = self.policy
        if ran_s >= policy.pause_s_max:
            self.count = 0
        if self.count >= policy.in_a_row:
            return None
        self.count += 1
        doubled = min(self.count - 1, 60)
        return float(min(policy.pause_s_max, policy.pause_s * 2**doubled))
