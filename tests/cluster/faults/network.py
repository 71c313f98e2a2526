"""Clusters whose members each have a network namespace, so that their links can be cut and slowed.

Everything is made inside the namespaces of ``__main__``, which end with it. Members are started
with ``nsenter``, not ``ip netns exec``: that one copies mounts and keeps disks alive.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.faults.world import SETTINGS, Skipped
from tests.cluster.processes import ProcessCluster
from tests.patience import patient

INSIDE = "COORDINATOR_FAULTS_INSIDE"
"""In the environment once we run in namespaces of our own."""
CLIENTS = "10.99.0.254"
_NETWORK = "10.99.0.0/24"
_QUEUE = 7
_numbers = itertools.count()


class NetworkCluster(ProcessCluster):
    """Member N has 10.99.0.N; the test, with its clients, has 10.99.0.254."""

    def __init__(self, directory: Path, members: int) -> None:
        require_namespaces("ip", "iptables", "nsenter")
        self._bridge = f"cfb{next(_numbers)}"
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._delays: list[subprocess.Popen[bytes]] = []
        super().__init__(
            directory, members, SETTINGS, hosts=[f"10.99.0.{n}" for n in range(1, members + 1)]
        )
        try:
            self._connect()
        except BaseException:
            self.stop()
            raise

    def command(self, member_id: str) -> Sequence[str]:
        return [*self._enter(member_id), *super().command(member_id)]

    def stop(self) -> None:
        self.undelay()
        super().stop()
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    # --- faults

    def cut(self, source: str, target: str) -> None:
        """Drop everything that ``source`` (a member, or CLIENTS) sends to member ``target``."""
        self._iptables(target, "-A", "INPUT", "-s", self.hosts.get(source, source), "-j", "DROP")

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def vanish(self, member_id: str) -> None:
        """Drop everything to and from the member, as when its host goes without a word."""
        self._iptables(member_id, "-A", "INPUT", "-s", _NETWORK, "-j", "DROP")
        self._iptables(member_id, "-A", "OUTPUT", "-d", _NETWORK, "-j", "DROP")

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Undo one cut, or everything done to the network by rules."""
        if source is not None and target is not None:
            address = self.hosts.get(source, source)
            self._iptables(target, "-D", "INPUT", "-s", address, "-j", "DROP")
            return
        for each in self.ids:
            self._iptables(each, "-F")

    def lose(self, share: float) -> None:
        """Lose this share of all packets that members get from anybody."""
        for each in self.ids:
            self._iptables(
                each, "-A", "INPUT", "-s", _NETWORK, "-m", "statistic", "--mode", "random",
                "--probability", str(share), "-j", "DROP",
            )  # fmt: skip

    def delay(self, low_ms: int, high_ms: int, reordered: float) -> None:
        """Let packets between members wait in a queue of ours, each for its own time."""
        for each in self.ids:
            members = ",".join(self.hosts.values())
            self._iptables(
                each, "-A", "INPUT", "-s", members, "-j", "NFQUEUE", "--queue-num", str(_QUEUE),
                "--queue-bypass",
            )  # fmt: skip
            arguments = (str(_QUEUE), str(low_ms), str(high_ms), str(reordered))
            script = str(Path(__file__).with_name("delay.py"))
            command = [*self._enter(each), sys.executable, script, *arguments]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            self._delays.append(process)
            assert process.stdout is not None
            if process.stdout.readline() != b"bound\n":
                raise Skipped("packets can not be queued to user space here (NFQUEUE)")

    def undelay(self) -> None:
        for process in self._delays:
            process.kill()
            process.communicate()
        self._delays.clear()

    def limit(self, member_id: str, rate: str) -> None:
        """Let member ``member_id`` get at most ``rate``, for example ``1mbit``."""
        interface = f"{self._bridge}p{member_id}"
        _run("tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate", rate,
             "burst", "16kb", "latency", "400ms")  # fmt: skip

    def unlimit(self, member_id: str) -> None:
        _run("tc", "qdisc", "del", "dev", f"{self._bridge}p{member_id}", "root")

    # --- making it

    def _connect(self) -> None:
        _run("ip", "link", "add", self._bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{CLIENTS}/24", "dev", self._bridge)
        _run("ip", "link", "set", self._bridge, "up")
        ours = os.readlink("/proc/self/ns/net")
        for each in self.ids:
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            self._holders[each] = holder
            end = time.monotonic() + patient(10)
            while os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
                assert time.monotonic() < end, "a network namespace is there"
                time.sleep(0.005)
            near, far = f"{self._bridge}p{each}", f"{self._bridge}m{each}"
            _run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            _run("ip", "link", "set", near, "master", self._bridge, "up")
            _run("ip", "link", "set", far, "netns", str(holder.pid))
            _run(*self._enter(each), "ip", "addr", "add", f"{self.hosts[each]}/24", "dev", far)
            _run(*self._enter(each), "ip", "link", "set", far, "up")
            _run(*self._enter(each), "ip", "link", "set", "lo", "up")

    def _enter(self, member_id: str) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._holders[member_id].pid}/ns/net", "--"]

    def _iptables(self, member_id: str, *arguments: str) -> None:
        _run(*self._enter(member_id), "iptables", "-w", *arguments)


def require_namespaces(*programs: str) -> None:
    """Raise Skipped unless we are root in namespaces of our own and have these programs."""
    if not os.environ.get(INSIDE):
        raise Skipped("needs root and leave to make namespaces (unshare --net --mount)")
    missing = [each for each in programs if shutil.which(each) is None]
    if missing:
        raise Skipped(f"needs {', '.join(missing)}: `tests/install faults` installs it on Debian")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f"`{' '.join(command[-8:])}` does not work here: {done.stderr.strip()}")
