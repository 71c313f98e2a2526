"""``python -m tests.mutation MODULE``: do the tests see every small change of a pure module?

    python -m tests.mutation                                  # which modules there are
    python -m tests.mutation coordinator/state/dedup.py       # all mutants of one
    python -m tests.mutation coordinator/state/dedup.py --every 4 --start 1   # a quarter of them

Survivors are listed; those in ``tests/mutation/harmless.txt`` change nothing that anybody could
see, as it says there of each. Ends with 1 when fewer than 95 % of those that matter are killed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.mutation.trial import try_all

HARMLESS = Path(__file__).with_name("harmless.txt")
LEAST_KILLED = 0.95
STATE = "tests/state"
LOCKS = "tests/state/locks"
TESTS = {
    "coordinator/state/locks/queues.py": [
        f"{LOCKS}/test_queues.py", f"{LOCKS}/test_later_grants.py", f"{STATE}/test_snapshot.py",
        f"{STATE}/test_limits.py", f"{STATE}/test_traces.py", f"{LOCKS}/test_lock_rule.py",
        f"{STATE}/test_slices.py", f"{LOCKS}/test_lock_laws.py", f"{STATE}/test_laws.py",
    ],
    "coordinator/state/locks/queue.py": [
        f"{LOCKS}/test_queues.py", f"{STATE}/test_traces.py", f"{STATE}/test_slices.py",
        f"{LOCKS}/test_lock_laws.py",
    ],
    "coordinator/state/locks/newcomers.py": [
        f"{LOCKS}/test_newcomers.py", f"{LOCKS}/test_queues.py", f"{STATE}/test_traces.py",
    ],
    "coordinator/state/dedup.py": [
        f"{STATE}/test_dedup.py", f"{STATE}/test_traces.py", f"{STATE}/test_laws.py",
    ],
    "coordinator/state/repeats.py": [f"{STATE}/test_repeats.py"],
    "coordinator/state/recency_map.py": [f"{STATE}/test_recency_map.py"],
    "coordinator/state/locks/release.py": [
        f"{LOCKS}/test_release.py", f"{STATE}/test_traces.py", f"{LOCKS}/test_lock_laws.py",
    ],
    "coordinator/state/locks/deadlock.py": [
        f"{LOCKS}/test_deadlock.py", f"{LOCKS}/test_deadlock_rules.py", f"{STATE}/test_traces.py",
    ],
    "coordinator/state/locks/contender.py": [
        f"{LOCKS}/test_contender_names.py", "tests/bounds/test_bounds.py",
        f"{LOCKS}/test_queues.py", f"{STATE}/test_traces.py",
        f"{LOCKS}/test_lock_laws.py",
    ],
    "coordinator/state/tree.py": [
        f"{STATE}/test_tree_edges.py", f"{STATE}/test_traces.py", f"{STATE}/test_slices.py",
        f"{STATE}/test_laws.py",
    ],
    "coordinator/state/sessions.py": [
        f"{STATE}/test_session_shares.py", f"{STATE}/test_session_ends.py",
        "tests/bounds/test_bounds.py", f"{STATE}/test_traces.py",
        f"{STATE}/test_laws.py",
    ],
    "coordinator/state/multi.py": [
        "tests/bounds/test_bounds.py", f"{STATE}/test_traces.py", f"{STATE}/test_laws.py",
    ],
    "coordinator/model/queue_order.py": [
        "tests/model/test_queue_order.py", "tests/model/test_queue_order_edges.py",
        f"{LOCKS}/test_lock_laws.py",
    ],
    "coordinator/service/sessions/leases.py": [
        "tests/service/test_lease_rules.py", "tests/service/test_lease_starts.py",
        "tests/service/test_leases.py",
    ],
}  # fmt: skip
"""The fast tests that hold each module, those that find most first."""


def harmless_keys(module: str) -> set[str]:
    """Return the keys of the mutants of a module that are known to change nothing."""
    found = set()
    for line in HARMLESS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{module} | "):
            found.add(line.split(" | ")[1])
    return found


def main() -> int:
    arguments = _arguments()
    if not arguments.module:
        print("\n".join(TESTS))
        return 0
    module = arguments.module
    part = slice(arguments.start, None, arguments.every)
    forking = try_all(module, TESTS[module], part)
    if forking.problem:
        print(forking.problem)
        return 1
    known = harmless_keys(module)
    trials = forking.trials
    killed = [each for each in trials if each.verdict.startswith("killed")]
    harmless = [each for each in trials if each.verdict == "survived" and each.mutant.key in known]
    broken = [each for each in trials if each.verdict == "broken"]
    matter = len(trials) - len(harmless) - len(broken)
    share = len(killed) / max(matter, 1)
    cpu_s = sum(each.cpu_s for each in trials)
    print(
        f"{module}: {len(trials)} mutants, {len(killed)} killed, {len(harmless)} harmless, "
        f"{len(broken)} not tried; {share:.1%} of those that matter; {cpu_s:.0f} s of the processor"
    )
    for each in trials:
        if each.verdict == "survived" and each.mutant.key not in known:
            print(f"survived: {module}:{each.mutant.line} | {each.mutant.key}")
    return 0 if share >= LEAST_KILLED else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("module", nargs="?", choices=TESTS, help="its path")
    parser.add_argument("--every", type=int, default=1, help="try one in so many")
    parser.add_argument("--start", type=int, default=0, help="begin with this one")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
