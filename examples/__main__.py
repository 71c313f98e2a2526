"""``python -m examples``: lists the stories in an order to read them in, and runs them."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from types import ModuleType

from coordinator.testing import local_cluster
from examples.stage import Stage

INCARNATIONS = {
    "Why a lock": (
        "one_job_two_workers", "one_seat", "stock_without_a_lock", "report_or_leave",
        "daily_report", "at_most_at_least_once",
    ),
    "A holder that does not know that it lost": (
        "ghost_writer", "job_42", "equal_tokens", "before_the_first_write", "two_holders",
        "garbage_collection", "someone_elses_lock", "zombie_server", "conflicting_results",
        "three_replicas",
    ),
    "Time, partitions and lost heartbeats": (
        "wall_clock_steps", "clock_drift", "cluster_split", "partition_longer_than_session",
        "renewal_fails", "partition_while_holding", "health_probe", "rate_limit_goes_on",
        "bank_account_stops",
    ),
    "Waiting, several locks, speed": (
        "fifty_waiters", "wait_or_hold", "granularity", "deadlock", "transfers", "token_bucket",
        "compare_and_set_or_lock",
    ),
    "Once, and what a lock cannot do": (
        "second_net", "ambiguous_payment", "marked_done", "payment_across_five_sites",
        "partitioned_jobs", "work_until_done", "four_things",
    ),
    "Which programs and values there are": (
        "told_of_each_change", "settings_all_or_none", "find_a_service", "who_can_do_it",
    ),
    "Instead of a lock": (
        "instead_actor", "instead_event_log",
    ),
}  # fmt: skip
"""The order to read them in."""


def stories() -> list[str]:
    """Return the names of all stories, in the order to read them in."""
    return [name for names in INCARNATIONS.values() for name in names]


def list_all() -> None:
    """Print every story under its incarnation, with its first line."""
    for title, names in INCARNATIONS.items():
        print(f"{title}:")
        for name in names:
            about = (_module(name).__doc__ or "").partition("\n")[0]
            print(f"  {name:<32} {about}")
    print("\nRun one: python -m examples one_seat. All: python -m examples all. Faster: --pace 0.2")


def main() -> int:
    """List the stories, or run those that are named."""
    parser = argparse.ArgumentParser(prog="python -m examples", description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="STORY", help="one_seat, for example; or: all")
    parser.add_argument("--pace", type=float, default=1.0, help="0.2 runs five times as fast")
    options = parser.parse_args()
    if not options.names:
        list_all()
        return 0
    chosen = []
    for word in options.names:
        found = [name for name in stories() if word == "all" or name.startswith(word.lower())]
        if not found:
            print(f"no story begins with {word!r}; list them: python -m examples", file=sys.stderr)
            return 2
        chosen += found
    for name in chosen:
        module = _module(name)
        print(f"\n=== {name}: {(module.__doc__ or '').partition(chr(10))[0]}", flush=True)
        with local_cluster(members=3) as cluster:
            module.story(Stage(cluster, options.pace))
    return 0


def _module(name: str) -> ModuleType:
    return import_module(f"examples.{name}")


if __name__ == "__main__":
    sys.exit(main())
