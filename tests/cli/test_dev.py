"""``coordinator dev`` and ``serve``: real members in real processes, on ports that are free."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from coordinator.cli.dev_layout import Layout, greeting, write_files
from coordinator.cli.main import cli
from coordinator.node.config import RaftConfig
from coordinator.node.config_file import load
from coordinator.tls import certificates
from tests.cli.supervising import eventually, is_alive
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 60.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc")


class Dev:
    """``coordinator dev`` as a process."""

    def __init__(self, directory: Path, members: int) -> None:
        self.directory = directory
        self.members = members
        self.client_port = free_ports(members)[0]
        self.member_port = free_ports(members)[0]
        self.process: subprocess.Popen[str] | None = None
        self._output = directory.with_name("output")

    @property
    def output(self) -> str:
        return self._output.read_text()

    @property
    def endpoints(self) -> str:
        return ",".join(f"http://127.0.0.1:{self.client_port + n}" for n in range(self.members))

    def arguments(self) -> list[str]:
        ports = ["--client-port", str(self.client_port), "--member-port", str(self.member_port)]
        return ["dev", "--members", str(self.members), "--data", str(self.directory), *ports]

    def start(self) -> None:
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coordinator", *self.arguments()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                cwd=ROOT,
            )

    def start_ready(self) -> None:
        self.start()
        assert self.process is not None
        process = self.process
        eventually(lambda: "Ready" in self.output or process.poll() is not None, "it is ready")
        assert process.poll() is None, self.output

    def stop(self, number: int = signal.SIGINT) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def member_pids(self) -> list[int]:
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def call(self, *arguments: str) -> str:
        result = CliRunner().invoke(
            cli, list(arguments), env={"COORDINATOR_ENDPOINTS": self.endpoints}
        )
        assert result.exit_code == 0, result.output + self.output
        return result.stdout


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Dev]:
    yield from _dev(tmp_path, 3)


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Dev]:
    yield from _dev(tmp_path, 1)


def _dev(directory: Path, members: int) -> Iterator[Dev]:
    dev = Dev(directory / "data", members)
    yield dev
    if dev.process is not None and dev.process.poll() is None:
        dev.process.kill()
        dev.process.wait()


@pytest.mark.check
def test_three_members_and_their_data_live_on(three: Dev) -> None:
    """A cluster with one command: a lock in it, Ctrl-C, and the next run has the data."""
    three.start_ready()
    tokens = three.directory.with_name("tokens")
    take = ("lock", "x", "--shell", "--", f"echo $COORDINATOR_FENCING_TOKEN >> {tokens}")
    three.call("create", "/kept", "yes")
    three.call(*take)
    stopped = three.stop()
    three.start_ready()

    kept = three.call("get", "/kept")
    three.call(*take)

    first, second = map(int, tokens.read_text().split())
    assert stopped == 0
    assert kept == "yes"
    assert first < second
    assert three.stop(signal.SIGTERM) == 0


def test_the_greeting_says_all_one_needs(three: Dev) -> None:
    """URLs, how to take a lock with the command and with curl, where the data is, how to stop."""
    three.start_ready()

    for port in range(three.client_port, three.client_port + 3):
        assert f"http://127.0.0.1:{port}" in three.output
    for words in ("lock demo --", "curl -X POST", "Data, logs", "Ctrl-C", "status", "/console"):
        assert words in three.output


@pytest.mark.check
def test_a_member_that_ends_is_reported_and_the_others_go_on(three: Dev) -> None:
    """kill -9 of one member: it is named with its signal and log, and the cluster works on."""
    three.start_ready()
    three.call("create", "/before", "1")
    victim = three.member_pids()[1]

    os.kill(victim, signal.SIGKILL)
    eventually(lambda: "members still running: 1, 3" in three.output, "it is reported")

    assert "MEMBER 2 was killed by signal 9" in three.output
    assert three.call("get", "/before") == "1"
    assert three.stop() == 0


def test_members_die_with_a_killed_parent(three: Dev) -> None:
    """kill -9 of coordinator dev leaves no member running."""
    three.start_ready()
    pids = three.member_pids()

    three.stop(signal.SIGKILL)

    eventually(lambda: not any(map(is_alive, pids)), "no member is left")


def test_one_member_is_one_process(single: Dev) -> None:
    """--members 1 serves from its own process and keeps its data too."""
    single.start_ready()
    single.call("create", "/kept", "yes")
    pids = single.member_pids()
    stopped = single.stop(signal.SIGTERM)
    single.start_ready()

    assert pids == []
    assert stopped == 0
    assert single.call("get", "/kept") == "yes"
    assert single.stop() == 0


def ask(url: str, body: object = None, **headers: str) -> Any:
    """Ask by GET, or by POST if there is a body; return what can be read."""
    data = None if body is None else json.dumps(body).encode()
    headers["Content-Type"] = "application/json"
    return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=DEADLINE_S)


@pytest.mark.check
def test_a_story_plays_on_it(single: Dev) -> None:
    """The status says where; with the key from there a story begins, and comes out. Its members
    are not killed, and once access rights are on none is offered."""
    single.start_ready()
    status = f"{single.endpoints}/v1/status"
    with ask(status) as reply:
        server, _, key = json.load(reply)["learn_url"].partition("/learn#key=")
    own = {"Learn-Key": key}
    with ask(f"{server}/learn/live/stage", **own) as reply:
        assert json.load(reply)["has_members"] is False
    ask(f"{server}/learn/live/deeds", {"do": "play", "script": "double-booking"}, **own).close()
    with ask(f"{server}/learn/live/steps", **own) as steps:
        text = ""
        while not text.startswith("The end."):
            text = json.loads(steps.readline().strip() or b"{}").get("text", "")
            assert "ended before its end" not in text

    with ask(f"{single.endpoints}/v1/access/init", {"identity": "root"}) as reply:
        token = json.load(reply)["token"]
    with ask(status, Authorization=f"Bearer {token}") as reply:
        assert json.load(reply)["learn_url"] == ""


def test_a_taken_port_is_named_before_anything_starts(three: Dev) -> None:
    """The message has the port and the option to choose others; no member was started."""
    with socket.create_server(("127.0.0.1", three.member_port + 2)):
        result = CliRunner().invoke(cli, three.arguments())

    assert result.exit_code == 2
    assert f"port {three.member_port + 2}" in result.stderr
    assert "--member-port" in result.stderr
    assert not list(three.directory.rglob("*.log"))


def test_ports_of_clients_and_members_must_differ(tmp_path: Path) -> None:
    """Overlapping ranges are refused, naming both options."""
    first = free_ports(4)[0]
    ports = ["--client-port", str(first), "--member-port", str(first + 1)]

    result = CliRunner().invoke(cli, ["dev", "--members", "3", "--data", str(tmp_path), *ports])

    assert result.exit_code == 2
    assert re.search(r"--client-port and --member-port", result.stderr)


def test_the_written_files_are_right(tmp_path: Path) -> None:
    """What dev writes is what serve can read; all members agree and keep their data beside it."""
    layout = Layout(tmp_path, members=5, client_port=20_001, member_port=20_101)
    write_files(layout)

    configs = [load(layout.file(member), {}) for member in layout.ids]

    assert len({config.cluster for config in configs}) == 1
    assert [config.http.bind_port for config in configs] == list(range(20_001, 20_006))
    assert configs[2].member.data_dir == str(tmp_path / "member-3")
    assert configs[0].raft.election_timeout_ms_min > RaftConfig().election_timeout_ms_max
    assert configs[0].http.learn_url is None
    url = "http://127.0.0.1:9/learn#key=k"
    write_files(replace(layout, learn_url=url))
    assert load(layout.file(5), {}).http.learn_url == url


def test_with_tls_certificates_are_written_too(tmp_path: Path) -> None:
    """Members and doors can show them, and clients trust the CA that is named."""
    layout = Layout(tmp_path, members=3, client_port=20_001, member_port=20_101, has_tls=True)
    write_files(layout)

    for member in layout.ids:
        config = load(layout.file(member), {})
        assert certificates.of_member(config) is not None
        assert certificates.of_door(config.http) is not None
        assert config.cluster.members[member - 1].client_url == layout.url(member)
    assert f"COORDINATOR_CA_FILE={layout.ca_file}" in greeting(layout)
    assert "curl --cacert" in greeting(layout)
