"""Processor time of locks at one member in memory: no network, no disk, so little noise.

For each kind of lock: µs for an acquire and a release, in the service and in the state machine; and
ms for a query of a history of 10,000 grants. Each figure is the least of many short rounds, and
the kinds take turns, so figures of one run compare well also on a machine that does other work.

    python -m bench.memory [--rounds 40]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import time
from collections.abc import Callable

from msgspec.structs import replace

from coordinator.clock import SystemClock
from coordinator.model.acquire import AcquireRequest
from coordinator.node.config import Config
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.locks.holder_info import holder_data
from coordinator.service.member import Member
from coordinator.state.commands import Command, Enter, Kind, OpenSession, Release, RequestId
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered

PAIRS = 40
GRANTS = 10_000
LOCKS = 1_000
DEADLINE_MS = 10_000

ASKED = AcquireRequest(label="bench", host="here", pid=1)

KINDS: dict[str, tuple[tuple[str, ...], AcquireRequest]] = {
    "lock": (("a",), ASKED),
    "shared": (("b",), replace(ASKED, kind=Kind.SHARED)),
    "slot": (("c",), replace(ASKED, kind=Kind.SLOT, size=10)),
    "two": (("d", "e"), ASKED),
}
PREFIXES = {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}


class InService:
    """Pairs as a client of this member would make them, past the door."""

    def __init__(self, member: Member, session_id: str) -> None:
        self._member = member
        self._session_id = session_id
        self._clock = SystemClock()
        self._number = 0

    def _request(self) -> RequestId:
        self._number += 1
        return RequestId("bench", self._number)

    async def pairs(self, names: tuple[str, ...], wish: AcquireRequest) -> None:
        locks = self._member.locks
        for _ in range(PAIRS):
            deadline_ms = self._clock.monotonic_ms() + DEADLINE_MS
            grant = await locks.acquire(
                names[0] if len(names) == 1 else names,
                session_id=self._session_id,
                request=self._request(),
                wait_deadline_ms=deadline_ms,
                wanted=wish,
            )
            await locks.release(grant.lock, grant.grant_id, self._request(), deadline_ms)


class InState:
    """The commands of pairs, applied."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self._number = 0
        self._data = holder_data(ASKED)
        self.apply(OpenSession("s", 10_000))

    def apply(self, operation: Enter | Release | OpenSession) -> object:
        self._number += 1
        request = RequestId("bench", self._number)
        outcome = self.machine.apply(Command(operation, self._number, request), self._number, 1)
        return outcome.unwrap()

    def pair(self, names: tuple[str, ...], wish: AcquireRequest) -> None:
        directories = tuple([f"/locks/{name}" for name in names])
        kind = Kind(wish.kind)
        entered = self.apply(
            Enter(directories, PREFIXES[kind], kind, "s", self._data, size=wish.size)
        )
        assert isinstance(entered, Entered), "an enter comes to an Entered"
        created = entered.contenders[0]
        self.apply(Release(created.path, created.stat.czxid))


def least(found: float | None, began: float) -> float:
    took = time.process_time() - began
    return took if found is None else min(found, took)


async def measure_pairs(rounds: int) -> None:
    clock = SystemClock()
    member = Member(Config(), LoopbackEngine(), clock, random=random.Random(1))
    await member.start()
    deadline_ms = clock.monotonic_ms() + DEADLINE_MS
    session = await member.open_session(600_000, "bench", None, deadline_ms)
    service, state = InService(member, session.session_id), InState()
    in_service: dict[str, float] = {}
    in_state: dict[str, float] = {}
    turns = list(KINDS.items())
    for _ in range(rounds):
        turns.append(turns.pop(0))  # who comes first finds the processor's caches cold
        for kind, (names, wish) in turns:
            began = time.process_time()
            await service.pairs(names, wish)
            in_service[kind] = least(in_service.get(kind), began)
            began = time.process_time()
            for _ in range(PAIRS):
                state.pair(names, wish)
            in_state[kind] = least(in_state.get(kind), began)
    await member.stop()
    print("| kind | µs a pair in the service | to lock | in the state | to lock |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        took = in_service[kind]
        whole, applied = took / PAIRS * 1e6, in_state[kind] / PAIRS * 1e6
        to_whole, to_applied = took / in_service["lock"], in_state[kind] / in_state["lock"]
        print(f"| {kind} | {whole:.0f} | {to_whole:.2f} | {applied:.0f} | {to_applied:.2f} |")


def measure_history(rounds: int) -> None:
    state = InState()
    for number in range(GRANTS):
        state.pair((f"lock-{number % LOCKS}",), ASKED)
    locks = state.machine.locks
    token = locks.history(GrantQuery(limit=1))[0].czxid
    queries: dict[str, Callable[[], object]] = {
        "one lock": lambda: locks.history(GrantQuery("/locks/lock-7")),
        "one token of all": lambda: locks.history(GrantQuery(token=token)),
        "a page of 1,000 of all": lambda: locks.history(GrantQuery()),
    }
    print(f"\n| query of {GRANTS:,} grants of {LOCKS:,} locks | ms |\n|---|---|")
    for name, query in queries.items():
        found: float | None = None
        for _ in range(rounds):
            began = time.process_time()
            query()
            found = least(found, began)
        print(f"| {name} | {(found or 0.0) * 1000:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.memory", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    gc.disable()
    asyncio.run(measure_pairs(rounds))
    measure_history(rounds)


if __name__ == "__main__":
    main()
