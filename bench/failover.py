"""How long writes pause when the leader is killed: kill -9, then the first acknowledged write.

One writer per surviving member writes without pause, each attempt with a fresh request number; the
pause is counted from the signal to the first write acknowledged afterwards by any of them. The
killed member is then started again and caught up before the next kill. With ``--stop`` the leader
is stopped (SIGSTOP) instead: its sockets stay open, as when a machine vanishes, and only the
election timeout tells.

    python -m bench.failover [--members 3] [--kills 20] [--stop]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import statistics
import tempfile
import time
from pathlib import Path

from bench.wire import Connection
from tests.cluster.processes import ProcessCluster

ATTEMPT_TIMEOUT_MS = 500


async def first_write_ms(cluster: ProcessCluster, killed: str, began: float) -> float:
    """Return how long after ``began`` a survivor acknowledged a write."""

    async def write(member_id: str) -> float:
        number = 0
        while True:
            with contextlib.suppress(OSError, ConnectionError, TimeoutError):
                connection = await Connection.open(cluster.url(member_id))
                while True:
                    number += 1
                    headers = (
                        f"Coordinator-Client-Id: {killed}-{member_id}-{began}\r\n"
                        f"Coordinator-Request-Number: {number}\r\n"
                        f"Coordinator-Timeout-Ms: {ATTEMPT_TIMEOUT_MS}\r\n"
                    ).encode()
                    reply = connection.request("PUT", "/v1/tree/failover", {"data": "x"}, headers)
                    status, _ = await asyncio.wait_for(reply, 2 * ATTEMPT_TIMEOUT_MS / 1000)
                    if status == 200:
                        connection.close()
                        return (time.perf_counter() - began) * 1000
            await asyncio.sleep(0.002)

    tasks = [asyncio.create_task(write(other)) for other in cluster.ids if other != killed]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return min(task.result() for task in done)


async def measure(members: int, kills: int, *, is_stopped: bool) -> list[float]:
    """Kill the leader ``kills`` times; return each pause in ms."""
    pauses: list[float] = []
    with tempfile.TemporaryDirectory(prefix="coordinator-failover-") as directory:
        cluster = ProcessCluster(Path(directory), members)
        try:
            cluster.start()
            cluster.wait_ready()
            connection = await Connection.open(cluster.urls[0])
            await connection.request("POST", "/v1/tree/failover", {"data": ""})
            connection.close()
            for _ in range(kills):
                leader = await asyncio.to_thread(cluster.leader)
                began = time.perf_counter()
                if is_stopped:
                    cluster.signal(leader, signal.SIGSTOP)
                else:
                    cluster.kill(leader)
                pauses.append(await first_write_ms(cluster, leader, began))
                if is_stopped:
                    cluster.signal(leader, signal.SIGCONT)
                else:
                    cluster.start(leader)
                await asyncio.to_thread(cluster.wait_ready)
        finally:
            cluster.stop()
    return pauses


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--stop", action="store_true")
    arguments = parser.parse_args()
    pauses = sorted(
        asyncio.run(measure(arguments.members, arguments.kills, is_stopped=arguments.stop))
    )
    how = "stopped" if arguments.stop else "killed"
    print(
        f"{arguments.members} members, leader {how} {len(pauses)} times; pause of writes in ms: "
        f"min {pauses[0]:.0f}, median {statistics.median(pauses):.0f}, "
        f"p90 {pauses[len(pauses) * 9 // 10]:.0f}, max {pauses[-1]:.0f}"
    )


if __name__ == "__main__":
    main()
