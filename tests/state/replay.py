"""Replays a history in a process of its own: hex commands in, hex outcomes and the digest out."""

from __future__ import annotations

import sys

from coordinator.state.codec import decode_command
from coordinator.state.machine import StateMachine
from coordinator.state.outcome_codec import encode_outcome
from tests.state.strategies import SMALL_LIMITS


def main() -> None:
    for history in sys.stdin.read().split("\n\n"):
        machine = StateMachine(SMALL_LIMITS)
        for index, line in enumerate(history.split(), 1):
            outcome = machine.apply(decode_command(bytes.fromhex(line)), index, 1)
            print(encode_outcome(outcome).hex())
        print(machine.digest())
        print(b"".join(machine.snapshot()).hex())


if __name__ == "__main__":
    main()
