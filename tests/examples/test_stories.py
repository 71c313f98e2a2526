"""Every story in ``examples`` is told, and comes out as it says."""

from __future__ import annotations

import os
import pkgutil
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import examples
from coordinator.testing import LocalCluster
from examples.__main__ import stories
from examples.stage import Stage

pytestmark = [pytest.mark.check, pytest.mark.usefixtures("unhurried_tries")]

ROOT = Path(__file__).resolve().parents[2]
PACE = 0.1

# What each must have said, in this order: regular expressions, each found behind the last one.
SAID: dict[str, tuple[str, ...]] = {
    "instead_actor": (r"old owner is refused", r"The account has 60"),
    "instead_event_log": (r"2 seats are given", r"same plan from the log: True"),
    "health_probe": (
        r"Without a probe",
        r"B waits in vain",
        r"With a probe",
        r"A stops by itself: .*health probe failed 3 times in a row: index is gone",
        r"B indexes, with token \d+",
        r"The history says: failed, health probe failed",
    ),
    "zombie_server": (
        r"Server 1 serves the region in epoch \d+, writes, and is frozen",
        r"everybody reads that server 2 serves",
        r"Server 1 wakes and writes: region-7: token \d+ is stale, \d+ has been seen",
        r"Then it learns of it: grant \S+ is not held",
        r"The region is by server 2",
    ),
    "three_replicas": (
        r"Replica 1 runs, the others stand by",
        r"it is at 10\.0\.0\.1:80",
        r"hands over to replica 3: now it is at 10\.0\.0\.3:80",
        r"steps by an hour: 3 runs",
        r"replica [12] runs",
        r"each higher",
    ),
    "marked_done": (
        r"unit 7 is added",
        r"marked as done already: skipped",
        r"the total is 40\b",
    ),
    "second_net": (
        r"it booked nothing",
        r"books: receipt of order-1",
        r"asked 2 times and charged 1 time",
    ),
    "four_things": (
        r"the file: the late write was refused: StaleTokenError",
        r"the row: the late write was refused: StaleTokenError",
        r"the queue: the late write was refused: LockLostError",
        r"the configuration: the late write was refused: LockLostError",
        r"All of them are by: new\n",
    ),
    "one_job_two_workers": (
        r"job 41 ran 2 times",
        r"worker \d has it|done before I came",
        r"job 42 ran 1 time",
    ),
    "ghost_writer": (
        r"Without fencing tokens",
        r"writes 'by A': taken",
        r"B's work is lost",
        r"With fencing tokens",
        r"writes 'by A': refused: report: token \d+ is stale, \d+ has been seen",
        r"The report is B's",
    ),
    "job_42": (
        r"B's work is lost",
        *[r"token 7 is stale, 8 has been seen", r"job-42 is B's"] * 2,
    ),
    "equal_tokens": (
        r"B's work is lost",
        *(r"token 33 is stale, 34 has been seen", r"B writes 'second of B': taken"),
        *(r"token 33 is stale, 34 has been seen", r"is 'second of B'"),
        *(r"token 42 is stale, 43 has been seen", r"B writes 'second of B': taken"),
    ),
    "before_the_first_write": (
        r"nothing ever stops A",
        r"raise_on_acquire=False",
        r"nothing was there to refuse A",
        r"token 33 is stale, 34 has been seen",
        r"The report is 'empty'",
    ),
    "one_seat": (r"Two tickets, one seat", r"sold out", r"1 ticket, one seat"),
    "daily_report": (
        r"node 1: crashed",
        r"reported, with token \d+, in attempt 2",
        r"node 5, 20 s late: it is done for today",
        r"Reports of that day: 1",
        r"daily-report +every 1d at 00:00 Europe/Berlin .* ok ",
    ),
    "report_or_leave": (r"another node is processing", r"reported, and stored it with token"),
    "at_most_at_least_once": (
        r"at_most_once, quiet night: sent 1 times",
        r"at_most_once, bad night: sent 0 times",
        r"at_least_once, quiet night: sent 1 times",
        r"at_least_once, bad night: sent 2 times",
        r"at_most_once, bad night: \S+ did not come to the end of \S+Z",
    ),
    "wall_clock_steps": (r"Two holders", *[r"Ada holds, Bob is refused"] * 3, r"token \d+"),
    "clock_drift": (
        r"0\.99: it stops before",
        r"1\.01: it stops before",
        r"0\.25.*: it stops only after",
        r"Each time its late write was refused",
    ),
    "two_holders": (
        r"balance is 150; 180 were paid in",
        r"adds 50: refused: account: token \d+ is stale",
        r"A is in again, token \d+, and reads 130",
        r"balance is 180; 180 were paid in",
    ),
    "cluster_split": (
        *(r"1 \+ 2", r"grants nothing", r"no quorum", r"how old it is", r"goes on", r"reads v2"),
        *(r"2 \+ 3", r"grants nothing", r"no quorum", r"how old it is", r"goes on", r"reads v2"),
    ),
    "partition_longer_than_session": (
        r"next holds",
        r"is told that it lost the lock: LockLostError",
        r"is current: False",
    ),
    "garbage_collection": (
        r"without the token: the data is by A",
        r"with the token: refused\. The data is by B",
        r"gives the lock back.*: False",
        r"B still holds: True",
    ),
    "deadlock": (
        r"A waited in vain|B waited in vain",
        r"each thread or task is an owner",
        r"[AB] is told of a circle of 2 over [12], [12]: gives way",
        r"[AB] has both",
        r"1 of 2 went through",
    ),
    "transfers": (r"5 transfers each way.*all are done", r"A has 100, B has 100"),
    "fifty_waiters": (r"diagnose checkout", r"Wait dominates: the lock is the bottleneck"),
    "wait_or_hold": (
        r"stock:shoes: Wait dominates",
        r"video:42: (?i:never contended)",
        r"wait times of the class stock: True",
        r"hold times of the class stock: True",
    ),
    "renewal_fails": (r"the work goes on", r"The work was cancelled: .*no heartbeat"),
    "someone_elses_lock": (
        r"B's lock is gone",
        r"was it still A's\? False",
        r"B holds: True\. Waiting: C\.",
        r"now C holds",
    ),
    "partition_while_holding": (r"cannot release", r"The waiter goes on", r"lost = True"),
    "conflicting_results": (
        r"worker 1 wakes and writes 41: refused",
        r"The result is 42",
        r"worker 1, token \d+, from [\d:]{8}, zxid \d+, until [\d:]{8}, zxid \d+: expired",
        r"worker 2, token \d+, from [\d:]{8}, zxid \d+, until [\d:]{8}, zxid \d+: released",
        r"why-lost job-7.*\n.*worker 1",
        # What it tells of the silence is no longer than the grant itself.
        r"ended at \S+, after (\d+ ms|\d\.\d s): .* of its session for (\d+ ms|\d\.\d s) and",
        r"audit log:\n  refused.*SetData '/results/job-7'.*'job-7' to be held with fencing token",
    ),
    "payment_across_five_sites": (
        r"Five sites: paid",
        r"three left: paid",
        r"two left: not paid",
        r"Charged: A, B\.",
    ),
    "partitioned_jobs": (
        r"Two workers: w1 6, w2 6",
        r"A third joins: w1 4, w2 4, w3 4; moved between the living: 5 of 12",
        r"The third dies: w1 6, w2 6; moved between the living: 1 of 12",
        r"higher token",
    ),
    "work_until_done": (
        r"mail to Ann, and acknowledges",
        r"the one to Bob, token \d+, and dies",
        r"Worker 2 sends the one to Cy",
        r"worker 2 gets the mail to Bob, attempt 2, token \d+",
        r"Left: 0 mails, 0 dead",
    ),
    "told_of_each_change": (
        r"20 prices written, 20 told, each once and in order: True",
        r"older than told 0 times",
    ),
    "settings_all_or_none": (
        r"a node reads db-2 with the password of db-1",
        r"3 nodes have seen 0 halves",
        r"the last one is 6: True",
        r"without its password is refused: db: expected values that",
        r"still have version 6, db-6",
    ),
    "find_a_service": (
        r"requests go nowhere",
        r"Two servers join: 10\.0\.0\.1:80, 10\.0\.0\.2:80",
        r"Its session ends: 10\.0\.0\.1:80\.",
        r"Server 1 drains: nowhere",
        r"Server 3 takes over: 10\.0\.0\.3:80",
        r"Server 1 has left; registered: 3\.",
    ),
    "who_can_do_it": (
        r"To paint: ann, bob",
        r"To print: bob",
        r"Ann learns to print: ann, bob",
        r"ann is alone",
        r"back by himself, token \d+ then, \d+ now: True",
    ),
    "token_bucket": (r"each request: 20 of 40", r"bucket: 20 of 40"),
    "compare_and_set_or_lock": (
        r"own profile, by_compare_and_set: 18 updates, 0 tries in vain; half within \d+ ms",
        r"own profile, by_lock: 18 updates, 0 tries in vain; half within \d+ ms",
        r"same stock, by_compare_and_set: 18 updates, [1-9]\d* tries in vain; half within \d+ ms",
        r"same stock, by_lock: 18 updates, 0 tries in vain; half within \d+ ms",
    ),
    "stock_without_a_lock": (r"8 sold of 5", r"5 sold of 5, 0 left"),
    "granularity": (
        r"lock for the table: 1 at work at most",
        r"lock for each record: [2-8] at work",
    ),
    "ambiguous_payment": (
        r"charged 0 times\. The payment is lost",
        *[r"charged 1 time\b"] * 3,
    ),
    "rate_limit_goes_on": (
        r"going on, unsure",
        r"8 of 8 through.*lost = True",
        r"The audit: token \d+, expired; unsure: continue",
    ),
    "bank_account_stops": (r"stopped by ourselves", r"before: True.*now: False"),
}

STORIES = [
    each.name
    for each in pkgutil.iter_modules(examples.__path__)
    if hasattr(import_module(f"examples.{each.name}"), "story")
]


@pytest.mark.parametrize("name", STORIES)
def test_a_story_comes_out_as_it_says(
    name: str, shared_coordinator_cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told ten times as fast."""
    story = import_module(f"examples.{name}")

    story.story(Stage(shared_coordinator_cluster, PACE))

    output = capsys.readouterr().out
    at = 0
    for expected in SAID[name]:
        found = re.compile(expected).search(output, at)
        assert found, f"not said (any more): {expected}\n{output}"
        at = found.end()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """``python -m examples`` as a reader runs it."""
    return subprocess.run(
        [sys.executable, "-m", "examples", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_story_says_what_it_is_about() -> None:
    """The list has every story once, in an order to read them in, with its first line."""
    done = run()

    assert done.returncode == 0, done.stderr
    assert sorted(stories()) == sorted(STORIES)
    for name in STORIES:
        assert len(re.findall(rf"^  {name} +\S", done.stdout, re.MULTILINE)) == 1, name


def test_a_story_is_run_by_the_beginning_of_its_name() -> None:
    """``stock_without`` is enough; several go one after the other."""
    done = run("--pace", "0.1", "report_or_leave", "stock_without")

    assert done.returncode == 0, done.stderr
    assert re.search(r"report_or_leave.*another node is processing", done.stdout, re.DOTALL)
    assert re.search(r"stock_without_a_lock.*5 sold of 5", done.stdout, re.DOTALL)


def test_a_story_that_is_not_there_is_said_so() -> None:
    """It names what was asked for and how to see what there is; nothing runs."""
    done = run("report_or_leave", "no_such_story")

    assert done.returncode == 2
    assert "no_such_story" in done.stderr
    assert "python -m examples" in done.stderr
    assert done.stdout == ""


BUSY = re.compile(
    r"the first leader of a cluster is elected by all|no tick for "
    r"|member \d: its disk is (slow|well)"
)
"""How the warnings begin that members log where the machine keeps them waiting."""


def test_a_story_is_told_by_itself() -> None:
    """As a reader runs it: one command, and exit code 0."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.report_or_leave", "--pace", "0.1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "error::ResourceWarning"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "another node is processing" in done.stdout
    assert [each for each in done.stderr.splitlines() if not BUSY.match(each)] == []
