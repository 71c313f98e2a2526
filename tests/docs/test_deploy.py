"""The unit and the compose file in ``examples/deploy``: checked by the programs that read them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from coordinator.cli.electing import elect
from coordinator.cli.parent_death import dying_with_parent
from coordinator.cli.serving import serve
from coordinator.testing.cluster import LocalCluster
from tests.patience import patient
from tests.ports import free_ports

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
UNIT = (DEPLOY / "report.service").read_text(encoding="utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


def commands() -> dict[str, list[str]]:
    """Return what each of them runs, from ``elect`` on."""
    line = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", UNIT, re.MULTILINE)
    assert line is not None
    return {
        "unit": shlex.split(line[1].replace("\\\n", " "))[1:],
        "compose": re.findall(r"^      - (\S+)$", COMPOSE, re.MULTILINE)[1:],
    }


@pytest.mark.parametrize("where", ["unit", "compose"])
def test_its_options_are_those_of_elect(where: str) -> None:
    """Each is one of today's, and its value is one that it takes."""
    verb, *arguments = commands()[where]
    context = elect.make_context(verb, arguments, resilient_parsing=False)
    assert context.params["name"] == "report"
    assert context.params["command"] == ("/opt/report/bin/report",)
    assert context.params["restart_when"] == "always"
    assert context.params["door"][1] == 8099


class Host:
    """One host that runs what a file of ours says, with the names of this machine in it."""

    def __init__(self, where: str, directory: Path, endpoints: str) -> None:
        self.port = free_ports(1)[0]
        self.directory = directory
        directory.mkdir()
        program = directory / "report"
        program.write_text(f"#!/bin/sh\necho $COORDINATOR_FENCING_TOKEN >> {directory}/runs\n"
                           "exec sleep 600\n")  # fmt: skip
        program.chmod(0o755)
        (directory / "run" / "report").mkdir(parents=True)
        here = {"%t": f"{directory}/run", "%H": directory.name, "/opt/report/bin/report": program,
                "0.0.0.0:8099": f"127.0.0.1:{self.port}",
                "127.0.0.1:8099": f"127.0.0.1:{self.port}"}  # fmt: skip
        self.words = commands()[where]
        for said, instead in here.items():
            self.words = [each.replace(said, str(instead)) for each in self.words]
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notices.bind(str(directory / "notify"))
        self.notices.settimeout(patient(20))
        self._environ = {**os.environ, "COORDINATOR_ENDPOINTS": endpoints,
                         "NOTIFY_SOCKET": str(directory / "notify"),
                         "WATCHDOG_USEC": "2000000"}  # fmt: skip
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        """Start it, as its manager does."""
        command = [sys.executable, "-m", "coordinator", *self.words]
        self.process = subprocess.Popen(
            command, env=self._environ, preexec_fn=dying_with_parent()
        )

    def until(self, said: bytes) -> None:
        """Wait for a notice to its manager."""
        while said not in self.notices.recv(1_000):
            pass

    def epochs(self) -> list[int]:
        """The token of each run of the service here."""
        runs = self.directory / "runs"
        return [int(each) for each in runs.read_text().split()] if runs.exists() else []

    def answer(self, path: str) -> int:
        """What a load balancer hears; 0 without an answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return int(reply.status)
        except HTTPError as refusal:
            return refusal.code
        except OSError:
            return 0

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(patient(20))
        self.notices.close()


Hosts = Callable[[str, str], Host]


@pytest.fixture
def hosts(tmp_path: Path, shared_coordinator_cluster: LocalCluster) -> Iterator[Hosts]:
    """Starts hosts, by what is run and their name, and ends them."""
    made: list[Host] = []

    def host(where: str, name: str) -> Host:
        made.append(Host(where, tmp_path / name, shared_coordinator_cluster.endpoints))
        return made[-1]

    yield host
    for each in made:
        each.end()


def soon(is_so: Callable[[], object]) -> None:
    """Wait until it is so."""
    ends = time.monotonic() + patient(30)
    while not is_so():
        assert time.monotonic() < ends, "not in time"
        time.sleep(0.05)


linux = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")


@linux
@pytest.mark.check
def test_the_unit_runs_and_leads_on_after_a_crash(hosts: Hosts) -> None:
    """As systemd runs it: notified, watched, killed, started again, and stopped."""
    host = hosts("unit", "host-1")
    host.until(b"STATUS=elected")
    soon(host.epochs)
    assert (host.directory / "run/report/ready").read_text().strip() == str(host.epochs()[0])
    assert (host.answer("/live"), host.answer("/ready")) == (200, 200)
    host.until(b"WATCHDOG=1")

    standing_by = hosts("unit", "host-2")
    standing_by.until(b"READY=1")
    assert standing_by.answer("/ready") == 503
    host.process.send_signal(signal.SIGKILL)
    host.process.wait()
    host.start()
    soon(lambda: len(host.epochs()) == 2)
    assert host.epochs()[0] < host.epochs()[1]
    assert standing_by.epochs() == [], "it was resumed before the lease had ended"

    host.process.terminate()
    host.until(b"STOPPING=1")
    soon(standing_by.epochs)
    assert standing_by.epochs()[0] > host.epochs()[-1]


@linux
@pytest.mark.check
def test_one_of_the_replicas_of_the_compose_file_is_ready(hosts: Hosts) -> None:
    """The load balancer finds one; when it is stopped, another. All of them are alive."""
    replicas = [hosts("compose", f"replica-{number}") for number in range(3)]
    soon(lambda: [each.answer("/ready") for each in replicas].count(200) == 1)
    soon(lambda: all(each.answer("/live") == 200 for each in replicas))
    leading = next(each for each in replicas if each.answer("/ready") == 200)
    others = [each for each in replicas if each is not leading]

    leading.process.terminate()
    leading.process.wait(patient(20))
    soon(lambda: [each.answer("/ready") for each in others].count(200) == 1)
    soon(lambda: any(each.epochs() for each in others))
    assert leading.answer("/live") == 0
    runs = [token for each in others for token in each.epochs()]
    assert all(token > leading.epochs()[-1] for token in runs)


def test_a_member_is_served_from_where_it_is_installed() -> None:
    """The unit of docs/install.md: its command is one of today's."""
    text = (DEPLOY / "coordinator@.service").read_text("utf-8")
    for option, what in (("", "config_path"), ("Pre", "checked_path")):
        command = rf"^ExecStart{option}=/opt/coordinator/bin/coordinator serve (.*)$"
        line = re.search(command, text, re.MULTILINE)
        assert line is not None
        context = serve.make_context("serve", shlex.split(line[1]), resilient_parsing=False)
        assert context.params[what] == Path("/etc/coordinator/%i.toml")
    assert "User=coordinator\n" in text


class Notices:
    """Reads what a service says to its manager."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(patient(30))

    def until(self, said: str) -> str:
        """Wait for a notice that has this in it, and return it."""
        while said not in (notice := self._socket.recv(4_000).decode()):
            pass
        return notice

    def silent_for(self, seconds: float) -> bool:
        """Say whether nothing more comes for so long, once what has come is read."""
        self._socket.setblocking(False)
        try:
            while self._socket.recv(4_000):
                pass
        except BlockingIOError:
            pass
        self._socket.settimeout(seconds)
        try:
            self._socket.recv(4_000)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._socket.close()


@linux
@pytest.mark.check
def test_a_member_notifies_its_manager(tmp_path: Path) -> None:
    """Ready when it serves, with its status; a sign of life while it runs, none while it hangs."""
    port = free_ports(1)[0]
    config = tmp_path / "member.toml"
    config.write_text(f'[member]\ndata_dir = "data"\n[http]\nbind_port = {port}\n')
    notices = Notices(tmp_path)
    environ = {**os.environ, "NOTIFY_SOCKET": str(notices.path), "WATCHDOG_USEC": "400000"}
    member = subprocess.Popen(
        [sys.executable, "-m", "coordinator", "serve", "--config", str(config)],
        env=environ, preexec_fn=dying_with_parent(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert "STATUS=" in notices.until("READY=1")
        with urlopen(f"http://127.0.0.1:{port}/health/live", timeout=10) as reply:
            assert reply.status == 200
        notices.until("WATCHDOG=1")
        notices.until("STATUS=member 1 leads in term ")
        member.send_signal(signal.SIGSTOP)
        assert notices.silent_for(2.0)
        member.send_signal(signal.SIGCONT)
        notices._socket.settimeout(patient(30))
        notices.until("WATCHDOG=1")
    finally:
        member.terminate()
    notices.until("STOPPING=1")
    assert member.wait(patient(30)) == 0
    notices.close()


@pytest.mark.check
def test_a_member_of_the_unit_can_do_little(tmp_path: Path) -> None:
    """As systemd itself scores it: 10 is everything, below 2 is called OK."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed here")
    unit = tmp_path / "coordinator@member.service"
    unit.write_text((DEPLOY / "coordinator@.service").read_text("utf-8"))
    done = subprocess.run(
        [program, "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr


@pytest.mark.check
@pytest.mark.parametrize("name", ["report", "coordinator@"])
def test_systemd_accepts_the_unit(name: str, tmp_path: Path) -> None:
    """With the programs where it says that they are."""
    text = (DEPLOY / f"{name}.service").read_text("utf-8")
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed here")
    assert "/opt/coordinator/bin/coordinator" in text
    there = tmp_path / "coordinator"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    unit = tmp_path / f"{name.replace('@', '@member')}.service"
    unit.write_text(text.replace("/opt/coordinator/bin/coordinator", str(there)))
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    about_us = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert about_us == []


@pytest.mark.check
def test_compose_accepts_the_file() -> None:
    """Its own program reads it."""
    program = shutil.which("docker")
    if program is None:
        pytest.skip("docker is not installed here")
    there = subprocess.run([program, "compose", "version"], capture_output=True, timeout=60)
    if there.returncode != 0:
        pytest.skip("docker has no compose here")
    done = subprocess.run(
        [program, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
