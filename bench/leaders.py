"""Whether leaders stay while the machine is busy: ours beside etcd and ZooKeeper, in the same run.

Three members of each run at once, and a client of each, in a process of its own: it keeps a session
of 10 s and writes every 0.2 s. Beside them run as many processes that only count, or one that syncs
64 KiB blocks without end on the same disk. What counts: by how much the term (the epoch) has grown,
sessions that were lost, the slowest write, and the 99th percentile.

    python -m bench.leaders [--seconds 600] [--loads busy-8,busy-32,sync]
                            [--systems ours,etcd,zookeeper] [--directory /var/tmp]

A peer that is not installed is named with the command that installs it, and left out.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.peers.systems import SYSTEMS, System, asked, missing
from coordinator import connect
from coordinator.recipes.lock import Lock

SESSION_S = 10.0
EVERY_S = 0.2
ANSWER_S = 30.0
NAMES = ("ours", "etcd", "zookeeper")
VALUE = b"x" * 100
_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))"
_SYNC = """
import os, sys
parent, block, at = os.getppid(), os.urandom(65_536), 0
with open(sys.argv[1], "wb", buffering=0) as file:
    while os.getppid() == parent:
        file.seek(at % 2**26)
        file.write(block)
        os.fdatasync(file.fileno())
        at += len(block)
"""


# --- the clients, each in a process of its own


class SessionClient(Protocol):
    """A client with a session, as it is measured."""

    def write(self) -> None:
        """Write once; raises when that fails."""

    def is_lost(self) -> bool:
        """Whether the session was lost since the last call; there is another one then."""

    def close(self) -> None:
        """End it."""


class OursClient:
    """A lock is held: it is lost with the session."""

    def __init__(self, endpoints: str) -> None:
        self._client: Any = connect(endpoints, session_timeout=SESSION_S, timeout=ANSWER_S)
        self._client.create("/leaders", VALUE)
        self._grant = self._hold()

    def _hold(self) -> Any:
        return Lock(self._client, "leaders-session", timeout=ANSWER_S).acquire()

    def write(self) -> None:
        self._client.set("/leaders", VALUE)

    def is_lost(self) -> bool:
        if not self._grant.is_lost:
            return False
        self._grant = self._hold()
        return True

    def close(self) -> None:
        self._client.close()


class EtcdClient:
    """A lease that a thread keeps alive, three times in its time."""

    def __init__(self, endpoints: str) -> None:
        import grpc

        from bench.peers import etcd_client as etcd

        self._etcd, pb = etcd, etcd.pb
        self._channel = grpc.insecure_channel("ipv4:" + endpoints)
        self._put = etcd.unary(self._channel, etcd.PUT)
        self._request = pb.PutRequest(key=b"leaders", value=VALUE)
        self._put(self._request)
        self._keep_alive = self._channel.stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=pb.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=pb.LeaseKeepAliveResponse.FromString,
        )
        self._lost = threading.Semaphore(0)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        import grpc

        pb, lease, deadline = self._etcd.pb, 0, 0.0
        while not self._is_closed.wait(SESSION_S / 3 if lease else 0.0):
            try:
                if not lease:
                    grant = self._etcd.unary(self._channel, self._etcd.LEASE)
                    lease = grant(pb.LeaseGrantRequest(TTL=int(SESSION_S))).ID
                    deadline = time.monotonic() + SESSION_S
                    continue
                sent = time.monotonic()
                asked_of = self._keep_alive(iter([pb.LeaseKeepAliveRequest(ID=lease)]), timeout=3.0)
                if next(asked_of).TTL > 0:
                    deadline = sent + SESSION_S
                    continue
                deadline = 0.0
            except grpc.RpcError:
                pass
            if lease and time.monotonic() > deadline:
                lease = 0
                self._lost.release()

    def write(self) -> None:
        self._put(self._request, timeout=ANSWER_S)

    def is_lost(self) -> bool:
        return self._lost.acquire(blocking=False)

    def close(self) -> None:
        self._is_closed.set()
        self._channel.close()


class KazooClient:
    """Its own session, whose loss it says."""

    def __init__(self, endpoints: str) -> None:
        from kazoo.client import KazooClient as Client
        from kazoo.client import KazooState

        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._client: Any = Client(hosts=endpoints, timeout=SESSION_S)
        self._lost = threading.Semaphore(0)

        def listen(state: Any) -> None:
            if state == KazooState.LOST and not self._is_closed:
                self._lost.release()

        self._is_closed = False
        self._client.add_listener(listen)
        self._client.start(timeout=ANSWER_S)
        self._client.create("/leaders", VALUE)

    def write(self) -> None:
        self._client.set_async("/leaders", VALUE).get(timeout=ANSWER_S)

    def is_lost(self) -> bool:
        return self._lost.acquire(blocking=False)

    def close(self) -> None:
        self._is_closed = True
        self._client.stop()


CLIENTS: dict[str, Callable[[str], SessionClient]] = {
    "ours": OursClient, "etcd": EtcdClient, "zookeeper": KazooClient,
}  # fmt: skip


def work(name: str, endpoints: str, seconds: float) -> None:
    """Write until the time is over; print what it came to."""
    took_ms: list[float] = []
    failed = lost = 0
    with closing(CLIENTS[name](endpoints)) as client:
        print("ready", flush=True)
        next_s = time.monotonic()
        end_s = next_s + seconds
        while next_s < end_s:
            began_s = time.monotonic()
            try:
                client.write()
            except Exception:
                failed += 1
            took_ms.append((time.monotonic() - began_s) * 1_000)
            lost += client.is_lost()
            next_s = max(next_s + EVERY_S, time.monotonic())
            time.sleep(max(0.0, next_s - time.monotonic()))
        print(json.dumps({"took_ms": took_ms, "failed": failed, "lost": lost}), flush=True)


# --- terms


def term_of(system: System) -> int:
    """Return the highest term, or epoch, that a member names; one that is silent names none."""
    found = [0]
    for endpoint in system.endpoints:
        try:
            found.append(TERMS[system.name](endpoint))
        except (OSError, ValueError, LookupError):
            continue
    return max(found)


def _our_term(endpoint: str) -> int:
    with urllib.request.urlopen(f"{endpoint}/v1/status", timeout=5) as reply:  # noqa: S310
        return int(json.load(reply)["term"])


def _etcd_term(endpoint: str) -> int:
    from bench.peers import etcd_client

    return etcd_client.term_at(endpoint)


def _epoch(endpoint: str) -> int:
    zxid = re.search(r"Zxid: 0x([0-9a-f]+)", asked(endpoint, "srvr"))
    if zxid is None:
        raise LookupError("it names no zxid")
    return int(zxid[1], 16) >> 32


TERMS: dict[str, Callable[[str], int]] = {
    "ours": _our_term, "etcd": _etcd_term, "zookeeper": _epoch,
}  # fmt: skip


# --- one load


@dataclass(slots=True)
class Found:
    """What one system did beside a load."""

    changes: int
    took_ms: list[float] = field(default_factory=list)
    failed: int = 0
    lost: int = 0

    def row(self, load: str, name: str) -> str:
        took = sorted(self.took_ms)
        p99 = took[int(0.99 * (len(took) - 1))]
        return (f"| {load} | {name} | {self.changes} | {self.lost} | {len(took)} | {self.failed} "
                f"| {p99:,.0f} | {took[-1]:,.0f} |")  # fmt: skip


@contextmanager
def loaded(load: str, directory: Path) -> Iterator[None]:
    """Have the load run."""
    kind, _, count = load.partition("-")
    commands = {
        "none": [],
        "busy": [[sys.executable, "-c", _BUSY]] * int(count or 1),
        "sync": [[sys.executable, "-c", _SYNC, str(directory / "synced")]],
    }[kind]
    running = [subprocess.Popen(each) for each in commands]
    try:
        yield
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.wait()


def measured(systems: list[System], load: str, directory: Path, seconds: float) -> dict[str, Found]:
    """Let the client of each system work beside ``load``."""
    running: dict[str, subprocess.Popen[str]] = {}
    try:
        for system in systems:
            said = ["--work", system.name, ",".join(system.endpoints), str(seconds)]
            running[system.name] = subprocess.Popen(
                [sys.executable, "-m", "bench.leaders", *said], stdout=subprocess.PIPE, text=True
            )
        for name, each in running.items():
            if _line(name, each) != "ready":
                raise RuntimeError(f"the client of {name} did not begin; see above")
        before = {each.name: term_of(each) for each in systems}
        with loaded(load, directory):
            said_by = {name: json.loads(_line(name, each)) for name, each in running.items()}
        return {
            each.name: Found(term_of(each) - before[each.name], **said_by[each.name])
            for each in systems
        }
    finally:
        for each in running.values():
            each.kill()
            each.wait()


def _line(name: str, process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"the client of {name} has ended; see above")
    return line.strip()


def measure(wanted: argparse.Namespace) -> None:
    """Print a row for each system beside each load."""
    absent = missing()
    names = [each for each in wanted.systems.split(",") if each not in absent]
    for name in wanted.systems.split(","):
        if name in absent:
            print(absent[name], file=sys.stderr)
    print("| beside | system | changes of leader | sessions lost | writes | failed | p99 ms "
          "| slowest ms |", flush=True)  # fmt: skip
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for load in wanted.loads.split(","):
        with ExitStack() as stack:
            made = tempfile.TemporaryDirectory(prefix="coordinator-leaders-", dir=wanted.directory)
            directory = Path(stack.enter_context(made))
            systems = [SYSTEMS[name](directory) for name in names]
            for each in systems:
                stack.callback(each.stop)
                each.start()
            found = measured(systems, load, directory, wanted.seconds)
            for name, each_found in found.items():
                print(each_found.row(load, name), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.leaders", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=600.0, help="beside each load")
    parser.add_argument("--loads", default="busy-8,busy-32,sync", help="none, busy-N, sync")
    parser.add_argument("--systems", default=",".join(NAMES))
    parser.add_argument("--directory", help="of the members' data, and of what is synced")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.work:
        name, endpoints, seconds = wanted.work
        work(name, endpoints, float(seconds))
    else:
        measure(wanted)


if __name__ == "__main__":
    main()
