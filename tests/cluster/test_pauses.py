"""SIGSTOP: of a lock's holder, and of the leader, beyond the leases of the sessions."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator import connect
from coordinator.cli.output import EXIT_LOST
from coordinator.clock import SystemClock
from coordinator.recipes import Lock
from tests.cluster.conftest import MakeCluster, StartScript
from tests.cluster.fenced_store import FencedStore
from tests.cluster.load import Load, LoadOptions
from tests.cluster.scripts import REPOSITORY
from tests.cluster.verdicts import judge, judge_end
from tests.patience import patient

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and needs prctl"),
]


def test_a_paused_holder_learns_of_its_loss_before_it_goes_on(
    make_cluster: MakeCluster, start_script: StartScript
) -> None:
    """Stopped beyond its lease: the next is granted, and the first check after waking raises.

    What it wrote without looking, in the step in which it was stopped, the fence refuses.
    """
    cluster = make_cluster()
    with FencedStore() as store:
        arguments = ("tests.cluster.holder", cluster.endpoints, "paused", "1.5", store.address)
        first = start_script("-m", *arguments)
        first_token = first.wait_for("granted")["token"]
        first.wait_for("step")

        first.signal(signal.SIGSTOP)
        second = start_script("-m", *arguments)
        second_token = second.wait_for("granted")["token"]
        granted_at_ms = second.wait_for("step")["at_ms"]
        first.signal(signal.SIGCONT)
        end = first.wait_for("lost")

    assert second_token > first_token
    late = [line for line in first.lines
            if line["event"] == "step" and line["at_ms"] > granted_at_ms]  # fmt: skip
    assert late == [], "no step of the first after the second was granted"
    assert store.tokens == sorted(store.tokens), "no write of the first after the second's"
    assert end["refused"] <= 1


def test_a_paused_command_wrapper_has_its_command_killed(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """``coordinator lock`` stopped beyond its lease: the command is dead before the next grant."""
    cluster = make_cluster()
    heartbeat = tmp_path / "heartbeat"
    program = (
        "import os, sys, time, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True:\n"
        "    stamp = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000\n"
        "    open(sys.argv[1] + '.new', 'w').write(str(stamp))\n"
        "    os.replace(sys.argv[1] + '.new', sys.argv[1])\n"
        "    time.sleep(0.005)\n"
    )
    wrapper = subprocess.Popen(
        [sys.executable, "-m", "coordinator", "lock", "job", "--ttl", "2", "--",
         sys.executable, "-c", program, str(heartbeat)],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=REPOSITORY,
        env={**os.environ, "COORDINATOR_ENDPOINTS": cluster.endpoints},
    )  # fmt: skip
    try:
        _until(lambda: heartbeat.exists())
        wrapper.send_signal(signal.SIGSTOP)
        with (
            connect(cluster.endpoints, timeout=15) as client,
            Lock(client, "job", timeout=60),
        ):
            granted_ms = SystemClock().monotonic_ms()
            last_ms = int(heartbeat.read_text())
        wrapper.send_signal(signal.SIGCONT)
        code = wrapper.wait(timeout=60)
    finally:
        wrapper.kill()
        wrapper.communicate()

    print(f"the command was dead {granted_ms - last_ms} ms before the next grant")
    assert last_ms < granted_ms
    assert int(heartbeat.read_text()) == last_ms, "it never ran again"
    assert code == EXIT_LOST


@pytest.mark.timeout(240)
async def test_a_paused_leader_ends_no_session_that_was_renewed_elsewhere(
    make_cluster: MakeCluster,
) -> None:
    """The leader stops beyond all leases and wakes: no early expiry, no stale read (etcd 15247)."""
    cluster = make_cluster()
    load = Load(cluster.urls, seed=1, options=LoadOptions(session_s=6.0, watchers=2))
    await load.start()
    await asyncio.sleep(1)
    leader = await asyncio.to_thread(cluster.leader)

    paused_at = time.monotonic()
    cluster.signal(leader, signal.SIGSTOP)
    pause_s = await load.wait_write(paused_at, 40)
    sessions_before = load.sessions_lost
    await asyncio.sleep(max(0.0, paused_at + 8.0 - time.monotonic()))
    cluster.signal(leader, signal.SIGCONT)
    await asyncio.sleep(3)
    lost_after = load.sessions_lost - sessions_before
    await load.stop()

    print(
        f"writes again {pause_s:.2f} s after the leader stopped; {len(load.held)} grants; "
        f"sessions lost {load.sessions_lost} ({lost_after} after the new leader was there)"
    )
    assert judge(load) + await judge_end(cluster, load) == []
    assert cluster.tracebacks() == []


def _until(is_so: Callable[[], bool], timeout_s: float = 60.0) -> None:
    end = time.monotonic() + patient(timeout_s)
    while not is_so():
        assert time.monotonic() < end, "in time"
        time.sleep(0.01)
