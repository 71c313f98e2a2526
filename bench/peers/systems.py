"""Clusters to measure: three members each of ours, etcd, ZooKeeper and Redis, on loopback.

Each syncs its log before it answers: ours and etcd always do, ZooKeeper with ``forceSync`` (its
default), Redis with ``appendfsync always``. Redis' replicas follow without being waited for, so it
promises less than the others. Only processes started here are ever signalled, by their id.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from tests.cluster.processes import ProcessCluster, member_environment
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parent.parent.parent
TOOLS = ROOT / ".bench-peers"
INSTALL = "bench/peers/install"
_READY_S = 60.0


class Missing(Exception):
    """A peer is not installed; the text says what installs it."""


class System:
    """Three members of one kind, started in ``directory``."""

    name: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self.directory = directory / self.name
        self.directory.mkdir(parents=True, exist_ok=True)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.endpoints: list[str] = []

    @classmethod
    def check(cls) -> None:
        """Raise Missing unless it can be started."""

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self.processes if each.poll() is None]

    def command(self, number: int) -> list[str]:
        """Return what starts the member of this number."""
        raise NotImplementedError

    def leader(self) -> int:
        """Return the number of the member that leads; raises OSError while none is known."""
        raise NotImplementedError

    def launch(self, number: int) -> None:
        """Start one member; does not wait for it."""
        with (self.directory / f"{number}.log").open("ab") as log:
            process = subprocess.Popen(
                self.command(number), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                cwd=self.directory, env=member_environment(),
            )  # fmt: skip
        if number < len(self.processes):
            self.processes[number] = process
        else:
            self.processes.append(process)

    def start(self) -> None:
        """Start all members and wait for a leader."""
        for number in range(3):
            self.launch(number)
        self.wait()

    def wait(self) -> int:
        """Wait until a member leads; return its number."""
        end = time.monotonic() + _READY_S
        while True:
            try:
                return self.leader()
            except (OSError, ValueError, LookupError) as error:
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.name} has no leader: {error}") from error
            time.sleep(0.05)

    def signal(self, number: int, signal_number: int) -> None:
        self.processes[number].send_signal(signal_number)

    def kill(self) -> None:
        """Kill all members at once and reap them."""
        for each in self.processes:
            each.kill()
        for each in self.processes:
            each.wait()

    def stop(self) -> None:
        """End all members and remove their data."""
        for each in self.processes:
            if each.poll() is None:
                each.send_signal(signal.SIGCONT)
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


ROOM = {
    "http": {"connections_per_address_max": 10_000},
    "limits": {"znodes_max": 1_200_000},
}
"""Rows with thousands of clients are one machine here; ZooKeeper's members have such a bound, too,
and its default is 60. Of the znodes allowed the last 5 % are kept, and one row has a million."""


class Ours(System):
    """Members of this checkout, with their default settings but for those bounds."""

    name = "ours"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.cluster = ProcessCluster(self.directory / "cluster", 3, ROOM)
        self.endpoints = self.cluster.urls

    def command(self, number: int) -> list[str]:
        return list(self.cluster.command(self.cluster.ids[number]))

    def leader(self) -> int:
        self.cluster.processes = dict(zip(self.cluster.ids, self.processes, strict=True))
        return self.cluster.ids.index(self.cluster.leader(0.5))


class Etcd(System):
    """etcd as the Go module proxy has it, else Debian's."""

    name = "etcd"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        ports = free_ports(6)
        self.endpoints = [f"127.0.0.1:{port}" for port in ports[:3]]
        self._peers = [f"http://127.0.0.1:{port}" for port in ports[3:]]

    @classmethod
    def program(cls) -> str | None:
        built = TOOLS / "etcd"
        return str(built) if built.exists() else shutil.which("etcd")

    @classmethod
    def check(cls) -> None:
        if cls.program() is None or not (TOOLS / "etcd_pb2.py").exists():
            raise Missing(f"etcd is not here: `{INSTALL}` (with Go), or Debian's etcd-server")

    def command(self, number: int) -> list[str]:
        every = ",".join(f"m{at}={url}" for at, url in enumerate(self._peers))
        client = f"http://{self.endpoints[number]}"
        return [
            str(self.program()), f"--name=m{number}", f"--data-dir={self.directory}/m{number}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={self._peers[number]}",
            f"--initial-advertise-peer-urls={self._peers[number]}",
            f"--initial-cluster={every}", "--initial-cluster-token=bench", "--log-level=error",
            "--quota-backend-bytes=4294967296",
        ]  # fmt: skip

    def leader(self) -> int:
        from bench.peers import etcd_client

        for number, endpoint in enumerate(self.endpoints):
            if self.processes[number].poll() is None and etcd_client.leads(endpoint):
                return number
        raise LookupError("none of them leads")


class ZooKeeper(System):
    """Apache ZooKeeper from Maven Central, in its default JVM settings with 1 GiB of heap."""

    name = "zookeeper"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        ports = free_ports(9)
        self.endpoints = [f"127.0.0.1:{port}" for port in ports[:3]]
        servers = [f"server.{at + 1}=127.0.0.1:{ports[3 + at]}:{ports[6 + at]}" for at in range(3)]
        for number in range(3):
            home = self.directory / f"m{number}"
            home.mkdir()
            (home / "myid").write_text(str(number + 1))
            lines = [
                "tickTime=2000", "initLimit=10", "syncLimit=5", f"dataDir={home}",
                "clientPortAddress=127.0.0.1", f"clientPort={ports[number]}", "maxClientCnxns=0",
                "admin.enableServer=false", "4lw.commands.whitelist=*", *servers,
            ]  # fmt: skip
            (home / "zoo.cfg").write_text("\n".join(lines) + "\n")

    @classmethod
    def check(cls) -> None:
        if not list((TOOLS / "zookeeper").glob("zookeeper-3*.jar")) or not shutil.which("java"):
            raise Missing(f"ZooKeeper is not here: `{INSTALL}` (with Java and Maven)")

    def command(self, number: int) -> list[str]:
        return [
            "java", "-Xmx1g", "-cp", f"{TOOLS}/zookeeper/*",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self.directory / f"m{number}" / "zoo.cfg"),
        ]  # fmt: skip

    def leader(self) -> int:
        for number, endpoint in enumerate(self.endpoints):
            if self.processes[number].poll() is None and "Mode: leader" in asked(endpoint, "srvr"):
                return number
        raise LookupError("none of them leads")


class Redis(System):
    """One Redis that syncs each write, and two replicas that it does not wait for."""

    name = "redis"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.endpoints = [f"127.0.0.1:{port}" for port in free_ports(3)]

    @classmethod
    def check(cls) -> None:
        if not shutil.which("redis-server"):
            raise Missing("Redis is not here: apt-get install redis-server")

    def command(self, number: int) -> list[str]:
        home = self.directory / f"m{number}"
        home.mkdir(exist_ok=True)
        port = self.endpoints[number].rpartition(":")[2]
        master = self.endpoints[0].split(":")
        return [
            "redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", str(home),
            "--appendonly", "yes", "--appendfsync", "always", "--save", "",
            *(["--replicaof", *master] if number else []),
        ]  # fmt: skip

    def leader(self) -> int:
        if "role:master" not in asked(self.endpoints[0], "INFO replication\r\nQUIT"):
            raise LookupError("the master does not answer")
        return 0


def asked(endpoint: str, words: str) -> str:
    """Send a line and return what is answered until the connection ends, or a second is over."""
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=1.0) as connection:
        connection.sendall(words.encode() + b"\r\n")
        found = b""
        while part := connection.recv(65_536):
            found += part
    return found.decode(errors="replace")


SYSTEMS: dict[str, Callable[[Path], System]] = {
    each.name: each for each in (Ours, Etcd, ZooKeeper, Redis)
}


def missing() -> dict[str, str]:
    """Return the systems that can not be measured here, with what installs them."""
    found: dict[str, str] = {}
    for each in (Ours, Etcd, ZooKeeper, Redis):
        try:
            each.check()
        except Missing as error:
            found[each.name] = str(error)
    for module, name in (("kazoo", "zookeeper"), ("grpc", "etcd"), ("redis", "redis")):
        try:
            __import__(module)
        except ImportError:
            found[name] = f"{name}'s client {module} is not here: `{INSTALL}`"
    return found


def main() -> None:
    """Say what is missing."""
    for text in missing().values():
        print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
