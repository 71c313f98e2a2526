"""``coordinator`` as it is, but for one thing: told by SIGUSR1, its memory becomes another one.

    python tests/cluster/rotting_member.py serve --config FILE

Only a test starts it. What changes is the data of one znode, in the live state and not in the log:
what a fault of the memory, or a command that is not deterministic, would leave behind.
"""

from __future__ import annotations

import signal
from typing import Any

from msgspec.structs import replace

from coordinator.cli.main import main
from coordinator.state.machine import StateMachine

PATH = "/kept"
ROTTEN = b"rotten"

_machines: list[StateMachine] = []
_begin = StateMachine.__init__


def _remembered(machine: StateMachine, *arguments: Any, **named: Any) -> None:
    _begin(machine, *arguments, **named)
    _machines.append(machine)


def _rot(_number: int, _frame: object) -> None:
    for machine in _machines:
        znodes = machine._tree._znodes
        if PATH in znodes:
            znodes[PATH] = replace(znodes[PATH], data=ROTTEN)


if __name__ == "__main__":
    StateMachine.__init__ = _remembered  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, _rot)
    main()
