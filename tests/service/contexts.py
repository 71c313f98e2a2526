"""A member's shared parts around the few that a test of one part looks at."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from coordinator.node.config import Config
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.base.context import MemberContext
from coordinator.service.base.leadership import Leadership
from coordinator.service.base.metrics import Metrics
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.tasks import Tasks
from coordinator.service.base.timers import Timers


def context_of(
    clock: Any,
    replica: MachineReplica,
    *,
    engine: Any = None,
    config: Config | None = None,
    on_failure: Callable[[BaseException], None] = lambda error: None,
) -> MemberContext:
    """Return parts that nothing runs: the test moves the clock and calls the part itself."""
    return MemberContext(
        config=config or Config(),
        engine=engine or LoopbackEngine(),
        clock=clock,
        random=random.Random(0),
        metrics=Metrics(),
        replica=replica,
        timers=Timers(clock),
        tasks=Tasks(on_failure),
        leadership=Leadership(LoopbackEngine(), clock),
    )
