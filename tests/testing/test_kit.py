"""The test kit itself: both faces, the fixtures, and that nothing is left behind."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

from coordinator.client import Client
from coordinator.errors import BadArgumentsError, NoNodeError
from coordinator.recipes import Lock
from coordinator.testing import AdjustableClock, Fault, LocalCluster, local_cluster

ROOT = Path(__file__).resolve().parents[2]


def left_overs() -> tuple[int, set[str]]:
    gc.collect()
    for each in threading.enumerate():
        if each.name == "sync":  # told to end, it does so by itself
            each.join(5)
    return len(os.listdir("/proc/self/fd")), {each.name for each in threading.enumerate()}


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors under /proc")
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, no descriptor, no file: after a good end, and after one in the midst of faults."""
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with local_cluster() as cluster:  # whatever a first time loads and keeps
        pass
    before = left_overs()

    with local_cluster() as cluster, cluster.connect() as client:
        Lock(client, "report").acquire()
        cluster.kill()
        cluster.cut_off("1")
        cluster.freeze_heartbeats(client)

    assert left_overs() == before
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_fails_closes_the_cluster_and_is_not_hidden() -> None:
    """The test's own failure is what is reported."""
    with pytest.raises(ZeroDivisionError), local_cluster() as cluster:
        raise ZeroDivisionError

    with pytest.raises(BadArgumentsError, match="closed"):
        _ = cluster.leader


async def test_the_asyncio_face() -> None:
    """``async with`` throughout; starting and stopping leave the loop free."""
    async with (
        local_cluster(members=1) as cluster,
        cluster.connect() as client,
        Lock(client, "report") as grant,
    ):
        assert await grant.verify() > 0


def test_the_fixtures_client(coordinator_client: Client) -> None:
    """A client without further ado."""
    with Lock(coordinator_client, "report") as grant:
        assert grant.fencing_token > 0


@pytest.mark.parametrize("time", ["first", "second"])
def test_the_shared_cluster_is_empty_each_time(
    shared_coordinator_cluster: LocalCluster, time: str
) -> None:
    """Whatever an earlier test did to it and left in it is gone."""
    cluster = shared_coordinator_cluster
    with cluster.connect(timeout=0.5) as client:
        with pytest.raises(NoNodeError):
            client.get("/left")
        assert Lock(client, "report").try_acquire() is not None
        label = f"{socket.gethostname()} pid {os.getpid()}"
        assert [each.label for each in client.sessions()] == [label]

        client.create("/left")
        cluster.kill()
        cluster.cut_off(client)  # left like this for the second time


@pytest.mark.check
def test_the_plugin_serves_users_tests_without_imports(tmp_path: Path) -> None:
    """As installed: pytest finds the fixtures by the entry point of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (plugin,) = project["entry-points"]["pytest11"].values()
    (tmp_path / "test_mine.py").write_text(
        "from coordinator.recipes import Lock\n\n\n"
        "def test_mine(coordinator_cluster):\n"
        "    with coordinator_cluster.connect() as client, Lock(client, 'a') as grant:\n"
        "        coordinator_cluster.kill()\n"
        "        assert grant.verify() > 0\n"
    )

    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-W",
            "error::ResourceWarning",
            "-m",
            "pytest",
            "-q",
            "-p",
            plugin,
        ],
        cwd=tmp_path,
        # Named above, so that it is the same whether or not the package is installed here.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_plugin_loads_nothing_before_it_is_asked() -> None:
    """Everybody who has the package installed starts pytest with it."""
    code = (
        "import coordinator.testing.plugin, sys;"
        "heavy = {'aiohttp', 'pysyncobj', 'coordinator.node.server'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def test_a_fault_ends_once() -> None:
    """By ``end`` or by its ``with``, whichever comes first."""
    ended: list[str] = []
    with Fault(lambda: ended.append("it")) as fault:
        assert fault.is_in_effect
        fault.end()

    assert ended == ["it"]
    assert not fault.is_in_effect


class _Hand:
    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return 5_000_000 + self.now_ms


def test_an_adjustable_clock_never_goes_back() -> None:
    """Rates change from now on; steps are the wall clock's alone."""
    hand = _Hand()
    clock = AdjustableClock(hand)
    hand.now_ms += 100
    assert clock.monotonic_ms() == 1_100

    clock.set_rate(0.5)
    hand.now_ms += 100
    assert clock.monotonic_ms() == 1_150

    clock.set_rate(2)
    clock.step_wall(-3_600_000)
    hand.now_ms += 100
    assert clock.monotonic_ms() == 1_350
    assert clock.wall_ms() == 5_001_300 - 3_600_000

    clock.set_right()
    hand.now_ms += 100
    assert clock.monotonic_ms() == 1_450
    assert clock.wall_ms() == 5_001_400
    with pytest.raises(ValueError, match="above 0"):
        clock.set_rate(0)
