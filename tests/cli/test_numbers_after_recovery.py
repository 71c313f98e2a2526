"""Numbers that must never come again, when a cluster is begun again: twice, from different data."""

from __future__ import annotations

import asyncio
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordinator import Election, Lock, Semaphore, WorkQueue
from coordinator.model.queue_order import sequence_of
from coordinator.node.recovery import begin_again
from coordinator.raft.rejoin.refounding import Position
from coordinator.service.base.replica import MachineReplica
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Delete,
    Enter,
    Kind,
    Multi,
    OpenSession,
    Operation,
    RequestId,
    SetLimits,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Created, Entered, MultiDone, Outcome
from tests.cli.test_recover import config_path as config_path
from tests.cli.test_recover import recover, served

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
_SEQUENTIAL = CreateMode.PERSISTENT_SEQUENTIAL


class History:
    """The state of a member, from its beginning or from a copy of another's; and its numbers."""

    def __init__(self, before: StateMachine | None = None) -> None:
        self.machine = StateMachine()
        if before is not None:
            self.machine.restore(before.snapshot())

    def do(self, operation: Operation, request: RequestId | None = None) -> Outcome:
        index = self.machine.applied_index + 1
        return self.machine.apply(Command(operation, index, request=request), index, 1)

    def live(self, session_id: str, times: int = 3) -> dict[str, set[int]]:
        """Use what gives numbers; return by the name of each counter what it gave."""
        found: dict[str, set[int]] = {"zxid": set()}
        self.do(OpenSession(session_id, 5_000))
        for queue in ("/q", f"/of-{session_id}"):
            self.do(Create(queue))
        for _ in range(times):
            for queue in ("/q", f"/of-{session_id}"):
                some = Multi((Create(f"{queue}/item-", mode=_SEQUENTIAL),) * 2)
                outcome = self.do(some)
                result = outcome.unwrap()
                assert isinstance(result, MultiDone)
                for each in result.results:
                    assert isinstance(each, Created)
                    self._note(found, queue, each.path)
                found["zxid"].add(outcome.zxid)
            entered = self.do(Enter(
                ("/locks/a",), "lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b""
            ))
            found["zxid"].add(entered.zxid)
            result = entered.unwrap()
            assert isinstance(result, Entered)
            self._note(found, "/locks/a", result.contenders[0].path)
        self.do(Delete(f"/of-{session_id}", is_recursive=True))
        return found

    def begin_again(self, wall_ms: int) -> None:
        at = Position(self.machine.applied_index, 1)
        begin_again(MachineReplica(self.machine), at, wall_ms, by="ops", reason="two disks")

    @staticmethod
    def _note(found: dict[str, set[int]], counter: str, path: str) -> None:
        number = sequence_of(path)
        assert number is not None
        found.setdefault(counter, set()).add(number)


def test_no_number_comes_again_from_whichever_data() -> None:
    """The second time from another member's data, or from a copy of before the first time, in which
    a parent has fewer numbers than it gave: all are above those of every time before."""
    first = History()
    first.live("s1")
    copies = [History(first.machine)]
    given = first.live("s2")
    copies.append(History(first.machine))
    chance = random.Random(1)
    for times in range(6):
        one = History(chance.choice(copies).machine)
        one.begin_again(NOW_MS + times * DAY_MS)
        copies.append(History(one.machine))
        now = one.live(f"again-{times}", times=2)
        copies.append(History(one.machine))
        for counter, numbers in now.items():
            before = given.setdefault(counter, set())
            assert min(numbers) > max(before, default=0), (counter, times)
            before |= numbers


@pytest.mark.parametrize("wall_ms", [0, NOW_MS - 365 * DAY_MS], ids=["no clock", "a year late"])
def test_a_clock_that_is_behind_brings_no_number_again(wall_ms: int) -> None:
    """Above all of the data that it begins from, and far from what others gave since."""
    first = History()
    first.live("s1")
    first.begin_again(NOW_MS)
    copy = History(first.machine)
    given = first.live("s2", times=5)

    copy.begin_again(wall_ms)
    found = copy.live("s3", times=20)

    for counter, numbers in found.items():
        assert not numbers & given.get(counter, set())
        assert min(numbers) > max(given.get(counter, {0})), counter


def test_a_parent_whose_numbers_ran_ahead_of_zxids_gives_none_again() -> None:
    """One command makes many; so the numbers have nothing to do with zxids."""
    first = History()
    first.do(Create("/q"))
    first.do(Multi((Create("/q/item-", mode=_SEQUENTIAL),) * 100))
    copy = History(first.machine)
    first.do(Multi((Create("/q/item-", mode=_SEQUENTIAL),) * 100))

    copy.begin_again(0)
    result = copy.do(Create("/q/item-", mode=_SEQUENTIAL)).unwrap()

    assert isinstance(result, Created)
    number = sequence_of(result.path)
    assert number is not None
    assert number > 10**12


def test_a_request_that_was_forgotten_is_not_done_again_for_a_client_of_before() -> None:
    """It says that it made none before an index that the data do not reach. So an index is no
    second time that of another entry."""
    lost, kept = History(), History()
    for _ in range(90):
        lost.do(Create("/lost"))
    floor = lost.machine.applied_index
    kept.begin_again(NOW_MS)
    request = RequestId("c1", 1, floor_index=floor)
    add = Create("/q-", mode=_SEQUENTIAL)
    assert kept.do(add, request).refusal is None

    kept.do(SetLimits((("clients_max", 1),)))
    for number in range(3):
        kept.do(Create(f"/other-{number}"), RequestId(f"other-{number}", 1, floor_index=floor))
    again = kept.do(add, request)

    assert again.refusal is not None
    assert again.refusal.code == "RequestForgotten"


def test_a_state_that_began_again_is_as_its_snapshot() -> None:
    """A member that begins from it gives the same numbers."""
    first = History()
    first.live("s1")
    first.begin_again(NOW_MS)
    restored = History(first.machine)

    assert restored.live("s2") == first.live("s2")
    assert restored.machine.digest() == first.machine.digest()


def test_what_programs_get_from_real_members_never_comes_again(
    config_path: Path, tmp_path: Path
) -> None:
    """Recovered from the data, and then from a copy that is older: the numbers of each recipe are
    above those of before, and ids of sessions are others."""
    data = tmp_path / "data"

    async def live(client: Any) -> dict[str, Any]:
        async with Lock(client, "l") as lock, Semaphore(client, "s", size=2) as slot:
            pass
        async with Election(client, "e") as leader:
            pass
        queue = WorkQueue(client, "w")
        names = await queue.put(b"one", b"two")
        delivery = await queue.take()
        await delivery.ack()
        made = await client.create(
            "/parent/n-", b"", mode="persistent_sequential", parents="persistent"
        )
        session = await client.session()
        return {
            "lock": lock.fencing_token,
            "slot": slot.fencing_token,
            "leader": leader.fencing_token,
            "delivery": delivery.fencing_token,
            "items": min(sequence_of(name) or 0 for name in names),
            "znode": sequence_of(made.path) or 0,
            "zxid": made.stat.czxid,
            "session": session.session_id,
        }

    given = [asyncio.run(served(config_path, live))]
    shutil.copytree(data, tmp_path / "older")
    given.append(asyncio.run(served(config_path, live)))
    for times in range(2):
        assert recover(config_path, "--yes", "--by", "o", "--reason", "disks").exit_code == 0
        given.append(asyncio.run(served(config_path, live)))
        if times == 0:
            data.rename(tmp_path / "left")
            shutil.copytree(tmp_path / "older", data)

    sessions = [each.pop("session") for each in given]
    assert len(set(sessions)) == len(sessions)
    for before, after in pairwise(given):
        for name, number in after.items():
            assert number > before[name], name
