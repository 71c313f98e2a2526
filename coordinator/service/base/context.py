"""The parts of one member that all others share: settings, log, state, clock, tasks."""

from __future__ import annotations

import random
from collections.abc import Awaitable
from dataclasses import dataclass, field

from coordinator.clock import Clock
from coordinator.node.config import Config
from coordinator.raft.engine import Applied, Engine
from coordinator.service.base.leadership import Leadership
from coordinator.service.base.metrics import Metrics
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.tasks import Tasks
from coordinator.service.base.timers import Timers
from coordinator.service.base.turns import Turns
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Operation


@dataclass(frozen=True, slots=True)
class MemberContext:
    """One member's; the same for its whole life.

    Args:
        engine: orders the commands.
        clock: decides every wait, lease and deadline.
        random: draws session ids, and names of contenders.
        replica: applies the commands to the state machine, and notifies its listeners.
        turns: of its clients, while several ask.
        tasks: the background tasks, whose failure stops the member.
    """

    config: Config
    engine: Engine
    clock: Clock
    random: random.Random
    metrics: Metrics
    replica: MachineReplica
    timers: Timers
    tasks: Tasks
    leadership: Leadership
    turns: Turns = field(default_factory=Turns)

    def propose(self, operation: Operation) -> Awaitable[Applied]:
        """Propose ``operation`` for this member itself, which leads, with the present time.

        Raises what ``Engine.propose`` raises; a refusal is in the result."""
        return self.engine.propose(encode_command(Command(operation, self.clock.wall_ms())))
