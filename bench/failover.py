"""How long writes pause when the leader is killed: kill -9, then the first acknowledged write.

One writer per surviving member writes without pause, each attempt with a fresh request number; the
pause is counted from the signal to the first write acknowledged afterwards by any of them. The
killed member is then started again and caught up before the next kill. With ``--stop`` the leader
is stopped (SIGSTOP) instead: its sockets stay open, as when a machine vanishes, and only the
election timeout tells. With ``--term`` it is asked to end (SIGTERM) and hands its leadership over;
the pause is then the longest time between two acknowledged writes while it ends. With ``--clients``
the writers are our clients: of threads and of tasks, one of each beginning at each member; each
has its pauses.

    python -m bench.failover [--members 3] [--kills 20] [--stop | --term] [--clients]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import signal
import statistics
import tempfile
import time
from pathlib import Path

from bench.wire import Connection
from tests.cluster.processes import ProcessCluster
from tests.cluster.writers import Writers

ATTEMPT_TIMEOUT_MS = 500
_SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "ended": signal.SIGTERM}
_CLIENT_PAUSE_S_MAX = 6.0


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


async def longest_gap_ms(cluster: ProcessCluster, ending: str) -> float:
    """Ask member ``ending`` to end; return the longest time without a write, on any survivor."""
    acknowledged: list[float] = [time.perf_counter()]
    survivors = [other for other in cluster.ids if other != ending]
    connection = await Connection.open(cluster.url(survivors[0]))
    cluster.signal(ending, signal.SIGTERM)
    number = 0
    while cluster.is_running(ending):
        number += 1
        headers = (
            f"Coordinator-Client-Id: ending-{ending}-{acknowledged[0]}\r\n"
            f"Coordinator-Request-Number: {number}\r\n"
        ).encode()
        status, _ = await connection.request("PUT", "/v1/tree/failover", {"data": "x"}, headers)
        assert status == 200, f"a write was answered with {status}"
        acknowledged.append(time.perf_counter())
    connection.close()
    return max(1000 * (after - before) for before, after in itertools.pairwise(acknowledged))


async def client_pauses_ms(cluster: ProcessCluster, kills: int, how: str) -> list[float]:
    """End the leader ``kills`` times; return the pauses of our clients, that of each each time."""
    pauses: list[float] = []
    with Writers(cluster.urls) as writers:
        await asyncio.to_thread(writers.wait)
        for _ in range(kills):
            leader = await asyncio.to_thread(cluster.leader)
            began = time.monotonic()
            cluster.signal(leader, _SIGNALS[how])
            await asyncio.sleep(_CLIENT_PAUSE_S_MAX)
            pauses += [1000 * each for each in writers.pauses_s(began).values()]
            if how == "stopped":
                cluster.signal(leader, signal.SIGCONT)
            else:
                cluster.processes[leader].wait()
                cluster.start(leader)
            await asyncio.to_thread(cluster.wait_ready)
    return pauses


async def measure(members: int, kills: int, how: str, *, of_clients: bool) -> list[float]:
    """End the leader ``kills`` times; return each pause in ms."""
    pauses: list[float] = []
    with tempfile.TemporaryDirectory(prefix="coordinator-failover-") as directory:
        cluster = ProcessCluster(Path(directory), members)
        try:
            cluster.start()
            cluster.wait_ready()
            connection = await Connection.open(cluster.urls[0])
            await connection.request("POST", "/v1/tree/failover", {"data": ""})
            connection.close()
            if of_clients:
                return await client_pauses_ms(cluster, kills, how)
            for _ in range(kills):
                leader = await asyncio.to_thread(cluster.leader)
                began = time.perf_counter()
                if how == "ended":
                    pauses.append(await longest_gap_ms(cluster, leader))
                    cluster.start(leader)
                elif how == "stopped":
                    cluster.signal(leader, signal.SIGSTOP)
                    pauses.append(await first_write_ms(cluster, leader, began))
                    cluster.signal(leader, signal.SIGCONT)
                else:
                    cluster.kill(leader)
                    pauses.append(await first_write_ms(cluster, leader, began))
                    cluster.start(leader)
                await asyncio.to_thread(cluster.wait_ready)
        finally:
            cluster.stop()
    return pauses


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.failover", description=__doc__)
    parser.add_argument("--members", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--stop", dest="how", action="store_const", const="stopped")
    ways.add_argument("--term", dest="how", action="store_const", const="ended")
    parser.set_defaults(how="killed")
    parser.add_argument("--clients", action="store_true")
    arguments = parser.parse_args()
    kills, of_clients = arguments.kills, arguments.clients
    measured = measure(arguments.members, kills, arguments.how, of_clients=of_clients)
    pauses = sorted(asyncio.run(measured))
    print(
        f"{arguments.members} members, leader {arguments.how} {kills} times; {len(pauses)} "
        "pauses of writes in ms: "
        f"min {pauses[0]:.0f}, median {statistics.median(pauses):.0f}, "
        f"p90 {pauses[len(pauses) * 9 // 10]:.0f}, max {pauses[-1]:.0f}"
    )


if __name__ == "__main__":
    main()
