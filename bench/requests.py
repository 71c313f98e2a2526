"""Processor time of one member for a request, from its frame of the stream to that of its answer.

In memory: no sockets, no disk, no other member. So little is left to chance that two revisions can
be told apart on a machine that does other work: they take turns, each in a process of its own, and
a figure is the least of many rounds of 64 requests that are under way at once.

    python -m bench.requests [--at . --at ../other] [--rounds 200] [--turns 3] [--frames] [--rights]

*put*: 100 bytes. *lock*: an acquire and its release of a lock that no other client wants.
``--frames`` counts calls of Python functions instead, which no other work on the machine moves
(compiled functions are not seen). ``--rights`` turns access rights on: every client shows a token.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

CLIENTS = 64
DATA = b"x" * 100


class Nobody:
    """Who would send the frames of an answer that goes on: the connection of one client."""

    address = "127.0.0.1"
    authorization: str | None = None
    full = ""
    is_local = True
    certificate_names = ()
    proved: object = None
    window_bytes = 1 << 20
    is_full = False

    @property
    def place(self) -> Nobody:
        """Where this client is: what is read of a place is said here, too."""
        return self


class Requests:
    """Requests of several clients to one member over the loopback engine."""

    def __init__(self, answering: Any) -> None:
        from coordinator.wire.stream.frames import FrameWriter

        self._answering = answering
        self._numbers: Counter[int] = Counter()
        self._out = FrameWriter()
        self._sessions: list[str] = []
        self._connections = [Nobody() for _ in range(CLIENTS)]

    async def ask(
        self, client: int, method: str, target: str, body: Any = None, *, is_numbered: bool = True
    ) -> Any:
        import msgspec

        from coordinator.wire.stream import frames
        from coordinator.wire.stream.request import StreamRequest

        self._numbers[client] += 1
        number = self._numbers[client]
        headers = {"accept": "application/msgpack, application/x-ndjson"}
        if is_numbered:
            headers["coordinator-client-id"] = f"c{client}"
            headers["coordinator-request-number"] = f"{number}"
        raw = None if body is None else msgspec.msgpack.encode(body)
        frame = frames.RequestFrame(number, method, target, headers, raw)
        request = StreamRequest(frame, self._connections[client])
        answer = await self._answering.answer(request)
        assert answer.status < 300, answer.body
        self._out.add(frames.AnswerFrame(number, answer.status, {}, answer.body or b""))
        self._out.take()
        return msgspec.msgpack.decode(answer.body)

    async def turn_rights_on(self) -> None:
        """Let every client show the token of an operator."""
        # Not numbered: a token that the member draws is shown once, so it is never asked for again.
        said = {"identity": "ops"}
        shown = await self.ask(0, "POST", "/v1/access/init", said, is_numbered=False)
        for each in self._connections:
            each.authorization = f"Bearer {shown['token']}"

    async def open(self) -> None:
        for client in range(CLIENTS):
            await self.ask(client, "POST", f"/v1/tree/put-{client}", {"data": DATA})
            opened = await self.ask(client, "POST", "/v1/sessions", {"timeout_ms": 600_000})
            self._sessions.append(opened["session_id"])

    async def put(self, client: int) -> None:
        await self.ask(client, "PUT", f"/v1/tree/put-{client}", {"data": DATA})

    async def lock(self, client: int) -> None:
        name = f"/v1/locks/lock-{client}"
        said = {"session_id": self._sessions[client], "on_disconnect": "stay", "timeout_ms": 10_000}
        taken = await self.ask(client, "POST", name, said)
        await self.ask(client, "DELETE", f"{name}/grants/{taken['grant']['grant_id']}")


async def counted(work: Awaitable[object]) -> float:
    """Do ``work``; return the calls of Python functions of each client, in place of seconds."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    await work
    sys.setprofile(None)
    return calls / 1e6


async def timed(work: Awaitable[object]) -> float:
    """Do ``work``; return the processor's seconds."""
    began_s = time.process_time()
    await work
    return time.process_time() - began_s


async def measure(
    rounds: int, spent: Callable[[Awaitable[object]], Awaitable[float]], *, has_rights: bool
) -> None:
    """Print the least processor µs of each kind, or calls of functions."""
    from coordinator.clock import SystemClock
    from coordinator.node.config import Config
    from coordinator.raft.loopback import LoopbackEngine
    from coordinator.service.member import Member
    from coordinator.wire.routes.answering import Answering
    from coordinator.wire.routes.door import Door
    from coordinator.wire.routes.table import all_routes

    clock, config = SystemClock(), Config()
    member = Member(config, LoopbackEngine(), clock, random=random.Random(1))
    await member.start()
    door = Door(member, config.http, clock)
    requests = Requests(Answering(door, all_routes(door, dict), "stream"))
    if has_rights:
        await requests.turn_rights_on()
    await requests.open()
    kinds: dict[str, Callable[[int], Awaitable[None]]] = {
        "put": requests.put, "lock": requests.lock,
    }  # fmt: skip
    least = dict.fromkeys(kinds, float("inf"))
    for _ in range(rounds):
        for kind, one in kinds.items():
            work = asyncio.gather(*(one(client) for client in range(CLIENTS)))
            least[kind] = min(least[kind], await spent(work))
    for kind, took_s in least.items():
        print(f"{kind} {took_s / CLIENTS * 1e6:.1f}")
    await member.stop()


def compare(roots: list[Path], rounds: int, turns: int, options: list[str]) -> None:
    """Let the revisions take turns, with these ``options``; print the least of each."""
    found: dict[Path, dict[str, float]] = defaultdict(dict)
    here = Path(__file__).resolve().parents[1]
    for _ in range(turns):
        for root in roots:
            command = [sys.executable, "-m", "bench.requests", "--measure", str(rounds)]
            command += options
            path = os.pathsep.join([str(root), str(here)])
            environment = os.environ | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=True
            )
            for line in done.stdout.splitlines():
                kind, took = line.split()
                found[root][kind] = min(found[root].get(kind, float("inf")), float(took))
    for root in roots:
        unit = "calls" if "--frames" in options else "µs"
        print(
            root.name, ", ".join(f"{kind} {took:.1f} {unit}" for kind, took in found[root].items())
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.requests", description=__doc__)
    parser.add_argument("--at", action="append", help="a checked-out revision; again for another")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--frames", action="store_true", help="count calls of Python functions")
    parser.add_argument("--rights", action="store_true", help="with access rights on")
    parser.add_argument("--measure", type=int, help="of the revision that is imported")
    arguments = parser.parse_args()
    if arguments.measure:
        spent = counted if arguments.frames else timed
        asyncio.run(measure(arguments.measure, spent, has_rights=arguments.rights))
        return
    roots = [Path(root).resolve() for root in arguments.at or ["."]]
    options = [f"--{each}" for each in ("frames", "rights") if getattr(arguments, each)]
    compare(roots, arguments.rounds, arguments.turns, options)


if __name__ == "__main__":
    main()
