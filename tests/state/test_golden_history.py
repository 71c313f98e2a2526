"""What a fixed history comes to never changes: a log that was written is read for ever.

``golden_history.bin`` holds commands as a log holds them; ``golden_history.txt`` says what they
came to, a line for each hundred. The commands are data, so a change of how histories are drawn
changes nothing here. Whoever makes a line differ has changed what ``apply`` decides: members of two
releases would differ. Keep the former decision for states of the former level, and raise
``levels.NEWEST``; then ``--rewrite`` adds nothing to the history and renews the lines. Only the
last line, of the states at the ends, also changes with the format of snapshots.
"""

from __future__ import annotations

import random
from hashlib import blake2b
from pathlib import Path

import msgpack
import pytest

from coordinator.model.limits import MachineLimits
from coordinator.state import levels
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.machine import StateMachine
from coordinator.state.outcome_codec import encode_outcome
from tests.state.drawn_history import TERM
from tests.state.znode_histories import mixed_history

HERE = Path(__file__).parent
HISTORY = HERE / "golden_history.bin"
LINES = HERE / "golden_history.txt"
LIMITS = MachineLimits(
    data_bytes_max=64, path_bytes_max=64, path_depth_max=6, children_max=12, znodes_max=60,
    ephemerals_per_session_max=12, operations_per_multi_max=8, sessions_max=8, request_window=8,
    clients_max=4, released_grants_max=8, grant_history_max=16, recursive_delete_max=20,
)  # fmt: skip
STEP = 100


def drawn() -> bytes:
    """Return a history to begin with: many short ones, each with the sessions it opens."""
    histories = [mixed_history(random.Random(seed), LIMITS, 50) for seed in range(30)]
    return bytes(msgpack.packb([[encode_command(one) for one in each] for each in histories]))


def lines_of(history: bytes) -> list[str]:
    """Apply it; return what each hundred commands came to, and the states at the ends."""
    lines = [f"level {levels.NEWEST}"]
    sum_, states, count = blake2b(digest_size=16), blake2b(digest_size=16), 0
    for commands in msgpack.unpackb(history):
        machine = StateMachine(LIMITS)
        for index, command in enumerate(commands, 1):
            sum_.update(encode_outcome(machine.apply(decode_command(command), index, TERM)))
            count += 1
            if count % STEP == 0:
                lines.append(f"outcomes {count} {sum_.hexdigest()}")
        states.update(machine.digest().encode())
    return [*lines, f"all {count} {sum_.hexdigest()}", f"states {states.hexdigest()}"]


def test_a_history_comes_to_what_it_always_came_to(pytestconfig: pytest.Config) -> None:
    """Every outcome and every final state, to the byte."""
    if pytestconfig.getoption("--rewrite"):
        if not HISTORY.exists():
            HISTORY.write_bytes(drawn())
        LINES.write_text("\n".join(lines_of(HISTORY.read_bytes())) + "\n")
        pytest.skip("rewritten")

    found = lines_of(HISTORY.read_bytes())

    assert LINES.read_text().splitlines() == found
