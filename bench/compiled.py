"""The compiled build against the source as it is, in one run: the same work, the same results.

Two copies of the source, one of them compiled (three minutes of a core), take turns: a pair of
acquire and release in the state machine; 10,000 mixed commands, decoded and applied; simulated
worlds. Each figure is processor time, the least of the rounds. Digests of the states and of the
worlds' traces must agree, else this fails.

    python -m bench.compiled [--rounds 3] [--worlds 4] [--level 2]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.memory import KINDS, PAIRS, InState
from coordinator.node import build
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.machine import StateMachine
from tests.simulation.campaign import quiet
from tests.simulation.world import Settings, simulate
from tests.state.locks.lock_histories import lock_history
from tests.state.strategies import SMALL_LIMITS
from tests.state.znode_histories import znode_history

ROOT = Path(__file__).resolve().parent.parent
COMMANDS = 10_000
HISTORY = 100
PAIR_ROUNDS = 30
BUILDS = ("pure", "compiled")


def measure(worlds: int) -> dict[str, Any]:
    """Do the work once, in this process: what it took, and what came of it."""
    pairs = _pairs()
    commands, digest = _commands()
    quiet()
    began = time.process_time()
    verdicts = [simulate(seed, Settings(seconds=10.0)) for seed in range(worlds)]
    took_s = time.process_time() - began
    return {
        "build": build.described(),
        "pair_us": pairs * 1e6,
        "commands_ms": commands * 1e3,
        "worlds_per_minute": 60 * worlds / took_s if worlds else 0.0,
        "digests": [digest, *(each.trace_digest for each in verdicts)],
        "are_fine": all(each.is_fine for each in verdicts),
    }


def _pairs() -> float:
    """Return the seconds of one acquire and its release in the state machine."""
    state, (names, wish) = InState(), KINDS["lock"]
    least = float("inf")
    gc.disable()
    for _ in range(PAIR_ROUNDS):
        began = time.process_time()
        for _ in range(PAIRS):
            state.pair(names, wish)
        least = min(least, (time.process_time() - began) / PAIRS)
    gc.enable()
    return least


def _commands() -> tuple[float, str]:
    """Return the seconds that the commands of many histories took, and a digest of all states."""
    spent, applied, digests = 0.0, 0, []
    for seed in range(COMMANDS // HISTORY):
        draw = lock_history if seed % 2 else znode_history
        history = draw(random.Random(seed), SMALL_LIMITS, HISTORY)
        written = [encode_command(each) for each in history]
        machine = StateMachine(SMALL_LIMITS)
        began = time.process_time()
        for index, each in enumerate(written, 1):
            machine.apply(decode_command(each), index, 1)
        spent += time.process_time() - began
        applied += len(written)
        digests.append(machine.digest())
    return spent * COMMANDS / applied, "".join(digests)


def copies(directory: Path, level: int) -> None:
    """Lay out both builds under ``directory``."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in BUILDS:
        for path in listed.stdout.splitlines():
            if (ROOT / path).is_file():
                target = directory / name / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / path, target)
    print("compiling ...", file=sys.stderr, flush=True)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        cwd=directory / "compiled", check=True, capture_output=True,
        env={**os.environ, "COORDINATOR_COMPILED": "1", "COORDINATOR_COMPILED_LEVEL": str(level)},
    )  # fmt: skip


def compare(rounds: int, worlds: int, level: int) -> dict[str, list[dict[str, Any]]]:
    """Let both builds take turns; return what each round found."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in BUILDS}
    with tempfile.TemporaryDirectory(prefix="coordinator-compiled-") as name:
        copies(Path(name), level)
        for number in range(rounds):
            for each in BUILDS if number % 2 else reversed(BUILDS):
                home = Path(name) / each
                said = subprocess.run(
                    [sys.executable, "-m", "bench.compiled", "--here", f"--worlds={worlds}"],
                    cwd=home, env={**os.environ, "PYTHONPATH": str(home)},
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                found[each].append(json.loads(said.stdout.splitlines()[-1]))
                print(f"round {number + 1}: {each}", file=sys.stderr, flush=True)
    return found


def report(found: dict[str, list[dict[str, Any]]]) -> bool:
    """Print the table; say whether both came to the same."""
    pure, compiled = (found[each] for each in BUILDS)
    print(f"pure: {pure[0]['build']}; compiled: {compiled[0]['build']}\n")
    print("| work | in Python | compiled | ratio |\n|---|---|---|---|")
    for key, name in (
        ("pair_us", "acquire and release in the state machine, µs"),
        ("commands_ms", f"{COMMANDS:,} mixed commands decoded and applied, ms"),
    ):
        one, other = (min(each[key] for each in every) for every in (pure, compiled))
        print(f"| {name} | {one:,.1f} | {other:,.1f} | {one / other:.2f} |")
    one, other = (max(each["worlds_per_minute"] for each in every) for every in (pure, compiled))
    if one:
        print(f"| simulated worlds a minute of one core | {one:,.1f} | {other:,.1f} "
              f"| {other / one:.2f} |")  # fmt: skip
    digests = {tuple(each["digests"]) for each in (*pure, *compiled)}
    agree = len(digests) == 1 and all(each["are_fine"] for each in (*pure, *compiled))
    print(f"\n{len(pure[0]['digests']) - 1} worlds and {COMMANDS:,} commands: "
          + ("the same digests both ways" if agree else "THE DIGESTS DIFFER"))  # fmt: skip
    return agree


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compiled", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worlds", type=int, default=4, help="of 10 simulated seconds each")
    parser.add_argument("--level", type=int, default=2, help="of the C compiler's optimization")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments.worlds)))
        return 0
    return 0 if report(compare(arguments.rounds, arguments.worlds, arguments.level)) else 1


if __name__ == "__main__":
    sys.exit(main())
