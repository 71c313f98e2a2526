"""No snapshot that replaces a large state holds the loop, nor does the end of the former state.

A row for each part of the state that others look at, and one for all the rest. Reading a
snapshot is another thread's work; what the loop does is to take over what was read, to have
everybody look at it, and to free what was there before.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator.clock import SystemClock
from coordinator.model.events import WatchSelector
from coordinator.model.limits import NEW_CLUSTER
from coordinator.node.config import Config, MemberLimits
from coordinator.raft.engine import Replace
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.state.commands import (
    Command,
    Create,
    Enter,
    Kind,
    Multi,
    OpenSession,
    Operation,
    Release,
    RequestId,
    SetData,
    SetLimits,
)
from coordinator.state.machine import StateMachine
from tests.loop_meter import HELD_MS_MAX, Metered, metered

pytestmark = pytest.mark.check

Do = Callable[..., object]


def _sessions(do: Do) -> None:
    for number in range(NEW_CLUSTER.sessions_max):
        do(
            OpenSession(
                f"s{number}", timeout_ms=60_000, label="l" * 100, address=f"10.0.{number % 9}.1"
            )
        )


def _enter(do: Do, directory: str, kind: Kind, session_id: str) -> Release:
    prefix = "read-" if kind is Kind.SHARED else "lock-"
    entered = do(Enter((directory,), prefix=prefix, kind=kind, session_id=session_id, data=b"{}"))
    path, stat = entered.contenders[0].path, entered.contenders[0].stat  # type: ignore[attr-defined]
    return Release(path, stat.czxid)


def _queue(do: Do) -> None:
    for number in range(NEW_CLUSTER.children_max):
        if number % NEW_CLUSTER.ephemerals_per_session_max == 0:
            do(OpenSession(f"s{number}", timeout_ms=60_000, label=""))
            session_id = f"s{number}"
        _enter(do, "/locks/shared", Kind.SHARED, session_id)


def _many_values(do: Do) -> None:
    """Of everything else some: to free it all in one step would take some 40 ms."""
    for parent in range(100):
        names = [f"/d{parent}/c{number:04}" for number in range(990)]
        do(Multi((Create(f"/d{parent}"), *[Create(name, b"x") for name in names])))
    do(OpenSession("s", timeout_ms=60_000, label=""))
    for number in range(NEW_CLUSTER.ephemerals_per_session_max):
        _enter(do, f"/locks/l{number}", Kind.EXCLUSIVE, "s")
    do(OpenSession("t", timeout_ms=60_000, label=""))
    for number in range(30_000):
        do(_enter(do, f"/locks/m{number % 7}", Kind.EXCLUSIVE, "t"))
    do(Create("/a"))
    for number in range(2 * NEW_CLUSTER.clients_max):
        request = RequestId(
            f"client-{number % NEW_CLUSTER.clients_max}", number=1 + number // 20_000, floor_index=0
        )
        do(SetData("/a", b"x"), request)


def _nothing(do: Do) -> None:
    do(Create("/a"))


PARTS = {
    "sessions": _sessions,
    "one queue": _queue,
    "many values": _many_values,
    "watch streams": _nothing,
}


def _fill(machine: StateMachine, fill: Callable[[Do], None]) -> None:
    def do(operation: Operation, request: RequestId | None = None) -> object:
        command = Command(operation, 1, request=request)
        return machine.apply(command, machine.applied_index, 1).unwrap()

    limits = replace(
        NEW_CLUSTER, grant_history_max=200_000, grant_history_bytes_max=1 << 30,
        sessions_per_client_max=1_000_000, ordinary_percent_max=100,
    )  # fmt: skip
    do(SetLimits(limits.items(), expected_version=0, rules=(), by="ops"))
    fill(do)


class Restored:
    """A member whose state is replaced by the same one, which makes no difference here."""

    def __init__(self, loop: Metered, fill: Callable[[Do], None], *, watched: int) -> None:
        self.loop = loop
        self._watched = watched
        self.member = Member(Config(), LoopbackEngine(), SystemClock())
        _fill(self.member._replica.machine, fill)
        self._snapshot = list(self.member._replica.snapshot())
        loop.run(self.member.start())
        loop.run(self._look())

    def replace(self, _repetition: int) -> None:
        """Return when the former state is gone."""
        replica = self.member._replica
        former = weakref.ref(replica.machine._tree)
        self.loop.run(self._watch())
        replace_state = replica.prepare_restore(iter(self._snapshot))
        self.loop.loop.longest_ms = 0.0
        self.loop.run(self._do(replace_state))
        deadline = time.monotonic() + 60
        while former() is not None or self.member.watches._streams:
            assert time.monotonic() < deadline, "the former state is kept"
            time.sleep(0.01)

    def leave(self, _repetition: int) -> None:
        """Read the snapshot, and find that it is not needed; return when it is gone."""
        read = [self.member._replica.prepare_restore(iter(self._snapshot))]
        self.loop.loop.longest_ms = 0.0
        self.loop.run(self._leave(read))

    async def _leave(self, read: list[Replace]) -> None:
        read.pop()(is_needed=False)
        for _ in range(3_000):
            await asyncio.sleep(0)

    async def _look(self) -> None:
        """Have everybody see the first state, as a start does."""
        for listener in self.member._replica._listeners:
            listener.on_restore()
        for _ in range(3_000):
            await asyncio.sleep(0)

    async def _watch(self) -> None:
        for _ in range(self._watched):
            self.member.watches.watch([WatchSelector("/a")])

    async def _do(self, replace_state: Replace) -> None:
        replace_state()


@pytest.mark.parametrize("part", PARTS)
def test_no_snapshot_holds_the_loop(part: str) -> None:
    """By the processor's clock, the least of some repetitions: 20 ms."""
    with metered() as loop:
        watched = MemberLimits().watch_streams_max if part == "watch streams" else 0
        restored = Restored(loop, PARTS[part], watched=watched)

        held_ms = loop.held_ms(restored.replace)

        loop.run(restored.member.stop())

    assert held_ms <= HELD_MS_MAX, f"{part} hold the loop for {held_ms:.1f} ms"


def test_a_snapshot_that_is_not_needed_does_not_hold_the_loop() -> None:
    """The member has come further while another thread read it: it is freed in pieces, too."""
    with metered() as loop:
        restored = Restored(loop, _many_values, watched=0)

        held_ms = loop.held_ms(restored.leave)

        loop.run(restored.member.stop())

    assert held_ms <= HELD_MS_MAX, f"it holds the loop for {held_ms:.1f} ms"
