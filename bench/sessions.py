"""A crowd of sessions: how many open, stay open, and what they cost members that do nothing else.

Programs of 1,000 sessions each open theirs one after the other, all programs at a time, and send
their heartbeats in one request each third of the timeout. Then the leader is killed, and they go on
at another member. A session that a member reports as ended was lost.

    python -m bench.sessions [--sessions 50000] [--members 3] [--seconds 30] [--timeout 10]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.wire import Connection
from tests.cluster.processes import ProcessCluster

EACH = 1_000
"""Sessions of one program: of one client id, and in one request of heartbeats, are no more."""
PAUSE_S = 0.1
GIVE_UP_S = 60.0


class Program:
    """One connection at a time, and the sessions that it keeps open."""

    def __init__(self, urls: list[str], number: int, timeout_s: float) -> None:
        self._turns = itertools.cycle([*urls[number % len(urls) :], *urls[: number % len(urls)]])
        self._name = f"program-{number}"
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self.session_ids: list[str] = []
        self.ended: set[str] = set()
        self.took_s: list[float] = []

    async def _request(self, method: str, path: str, body: object, headers: bytes) -> bytes:
        """Ask one member after another until one does it; TimeoutError if none does for long."""
        end_s = time.monotonic() + GIVE_UP_S
        while time.monotonic() < end_s:
            try:
                if self._connection is None:
                    self._connection = await Connection.open(next(self._turns))
                asked = self._connection.request(method, path, body, headers)
                status, answer = await asyncio.wait_for(asked, self._timeout_s)
                if status in (200, 201):
                    return answer
                if status not in (429, 503, 504):
                    raise RuntimeError(f"{method} {path}: {status} {answer[:200]!r}")
            except (OSError, TimeoutError):
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
            await asyncio.sleep(PAUSE_S)
        raise TimeoutError(f"{method} {path}: no member did it within {GIVE_UP_S:g} s")

    async def open(self, count: int) -> None:
        """Open ``count`` sessions, and keep those alive that are open already."""
        next_s = time.monotonic() + self._timeout_s / 3
        for number in range(count):
            headers = (
                f"Coordinator-Client-Id: {self._name}\r\n"
                f"Coordinator-Request-Number: {number + 1}\r\n"
            ).encode()
            wish = {"timeout_ms": round(self._timeout_s * 1000), "label": self._name}
            answer = await self._request("POST", "/v1/sessions", wish, headers)
            self.session_ids.append(json.loads(answer)["session_id"])
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + self._timeout_s / 3
                await self.beat()

    async def beat(self) -> None:
        """Send the heartbeats of all in one request, until each was answered for."""
        left = self.session_ids
        began = time.monotonic()
        while left:
            asked = {"session_ids": left}
            answer = await self._request("POST", "/v1/sessions/heartbeats", asked, b"")
            found = json.loads(answer)
            self.ended.update(found["ended"])
            known = {each["session_id"] for each in found["sessions"]} | set(found["ended"])
            left = [each for each in left if each not in known]
        self.took_s.append(time.monotonic() - began)

    async def keep(self, is_over: Callable[[], bool]) -> None:
        """Send heartbeats until ``is_over``, each third of the timeout."""
        while not is_over():
            began = time.monotonic()
            await self.beat()
            await asyncio.sleep(max(self._timeout_s / 3 - (time.monotonic() - began), 0))


def processor_s(cluster: ProcessCluster) -> float:
    """Return the processor time of all members that run."""
    total = 0
    for process in cluster.processes.values():
        if process.poll() is None:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / 100


def memory_mib(cluster: ProcessCluster) -> list[int]:
    """Return the resident memory of each member."""
    found = []
    for process in cluster.processes.values():
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        found.append(next(int(each.split()[1]) // 1024 for each in lines if "VmRSS" in each))
    return found


def lost(programs: list[Program]) -> int:
    """Return how many sessions members reported as ended."""
    return sum(len(each.ended) for each in programs)


async def opened(programs: list[Program], sessions: int) -> str:
    """Open ``sessions`` and keep those that are open until all are; return how long that took."""
    left = len(programs)
    began = time.monotonic()

    async def one(program: Program, count: int) -> None:
        nonlocal left
        await program.open(count)
        left -= 1
        await program.keep(lambda: not left)

    counts = [min(EACH, sessions - at * EACH) for at in range(len(programs))]
    await asyncio.gather(*map(one, programs, counts))
    rate = sessions / (time.monotonic() - began)
    return f"{sessions:,} sessions opened, {rate:,.0f} a second; lost {lost(programs)}"


async def kept(cluster: ProcessCluster, programs: list[Program], seconds: float) -> str:
    """Keep all sessions for ``seconds``; return what that cost."""
    for each in programs:
        each.took_s.clear()
    began, used = time.monotonic(), processor_s(cluster)

    def is_over() -> bool:
        return time.monotonic() >= began + seconds

    await asyncio.gather(*[each.keep(is_over) for each in programs])
    took = time.monotonic() - began
    percent = 100 * (processor_s(cluster) - used) / took
    took_s = sorted(itertools.chain.from_iterable(each.took_s for each in programs))
    worst = took_s[-1]
    return (
        f"{percent:.0f} % of a core for all members; a request of heartbeats took "
        f"{statistics.median(took_s) * 1000:.0f} ms, at most {worst * 1000:.0f}; "
        f"lost {lost(programs)}"
    )


async def measure(sessions: int, members: int, seconds: float, timeout_s: float) -> None:
    settings = {
        "sessions": {
            "sessions_max": sessions + sessions // 10,
            "sessions_per_address_max": sessions,
        },
        "http": {"connections_per_address_max": 10_000},
    }
    with tempfile.TemporaryDirectory(prefix="coordinator-sessions-") as directory:
        cluster = ProcessCluster(Path(directory), members, settings)
        try:
            cluster.start()
            cluster.wait_ready()
            count = -(-sessions // EACH)
            programs = [Program(cluster.urls, number, timeout_s) for number in range(count)]
            print(await opened(programs, sessions), flush=True)
            print(f"kept: {await kept(cluster, programs, seconds)}", flush=True)
            print(f"MiB of the members: {memory_mib(cluster)}", flush=True)
            if members > 1:
                leader = cluster.leader()
                cluster.kill(leader)
                print(f"leader killed: {await kept(cluster, programs, seconds)}", flush=True)
            at = next(each for each in cluster.ids if cluster.is_running(each))
            status = cluster.status(at) or {}
            print(f"open at the end: {status.get('sessions'):,}", flush=True)
        finally:
            cluster.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.sessions", description=__doc__)
    parser.add_argument("--sessions", type=int, default=50_000)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--timeout", type=float, default=10.0, help="of each session, in seconds")
    arguments = parser.parse_args()
    asyncio.run(
        measure(arguments.sessions, arguments.members, arguments.seconds, arguments.timeout)
    )


if __name__ == "__main__":
    main()
