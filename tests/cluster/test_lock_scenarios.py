"""One bad moment each, for the kinds of locks that have more than one holder, place or end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.recipes import RWLock, Semaphore
from tests.cluster.processes import ProcessCluster
from tests.cluster.wire import Answer, Wire

pytestmark = pytest.mark.check


class Door:
    """Raw requests at all members, in a session that needs no heartbeats for so long."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self.wires = [Wire(url) for url in cluster.urls]
        self.name = f"{random.SystemRandom().getrandbits(48):x}"
        self._number = 0

    async def session(self, timeout_ms: int = 60_000) -> str:
        answer = await self.wires[0].request("POST", "/v1/sessions", {"timeout_ms": timeout_ms})
        assert answer.status == 201, answer
        return str(answer.body["session_id"])

    def request_headers(self) -> dict[str, str]:
        """Return the headers of a request that may be sent again."""
        self._number += 1
        return {
            "Coordinator-Client-Id": self.name,
            "Coordinator-Request-Number": str(self._number),
        }

    async def acquire(self, at: int, lock: str | list[str], session_id: str, **said: Any) -> Answer:
        headers = said.pop("headers", None)
        ask = {"session_id": session_id, "on_disconnect": "stay", "timeout_ms": 8_000, **said}
        if isinstance(lock, list):
            path, ask["names"] = "/v1/locks", lock
        else:
            path = f"/v1/locks/{lock}"
        return await self.wires[at].request("POST", path, ask, headers=headers, timeout_s=12.0)

    async def until_answered(self, lock: Any, session_id: str, **said: Any) -> Answer:
        """Send it again under its number, to one member after the other, until one answers."""
        for attempt in range(60):
            answer = await self.acquire(attempt % 3, lock, session_id, **said)
            if answer.fate == "answered":
                return answer
            await asyncio.sleep(0.1)
        raise TimeoutError(f"no answer: {answer}")

    async def release(self, at: int, grant: dict[str, Any]) -> Answer:
        path = f"/v1/locks/{grant['lock']}/grants/{grant['grant_id']}"
        return await self.wires[at].request("DELETE", path)

    async def look(self, lock: str) -> dict[str, Any]:
        for attempt in range(60):
            answer = await self.wires[attempt % 3].request("GET", f"/v1/locks/{lock}")
            if answer.status == 200:
                return dict(answer.body)
            await asyncio.sleep(0.1)
        raise TimeoutError(f"no answer: {answer}")

    async def until_queued(self, lock: str) -> None:
        """Wait until somebody waits for the lock."""
        for _ in range(3_000):
            if (await self.look(lock))["queue"]:
                return
            await asyncio.sleep(0.01)
        raise TimeoutError(f"nobody waits for {lock}")

    def close(self) -> None:
        for wire in self.wires:
            wire.close()


@asynccontextmanager
async def door_of(cluster: ProcessCluster) -> AsyncIterator[Door]:
    door = Door(cluster)
    try:
        yield door
    finally:
        door.close()


async def kill_leader(cluster: ProcessCluster, after_s: float = 0.0) -> str:
    leader = await asyncio.to_thread(cluster.leader)
    await asyncio.sleep(after_s)
    cluster.kill(leader)
    return leader


async def restart(cluster: ProcessCluster, *members: str) -> None:
    cluster.start(*members)
    await cluster.wait_ready_async(*members)


async def standing(client: AsyncClient, name: str, root: str = "/locks") -> list[str]:
    return list((await client.children(f"{root}/{name}")).names)


# --- a leader dies


@pytest.mark.parametrize(
    "after_ms",
    [3, *(pytest.param(each, marks=pytest.mark.slow) for each in (0, 1, 2, 5, 8, 12))],
)
async def test_several_locks_are_entered_once_when_the_leader_dies_in_between(
    cluster: ProcessCluster, after_ms: int
) -> None:
    """Killed about when it commits: asked again elsewhere it is one grant, and whole."""
    names = [f"many-{after_ms}-{letter}" for letter in "abc"]
    async with door_of(cluster) as door:
        session_id = await door.session()
        leader = await asyncio.to_thread(cluster.leader)
        follower = next(at for at, each in enumerate(cluster.ids) if each != leader)
        headers = door.request_headers()
        killing = asyncio.create_task(kill_leader(cluster, after_ms / 1000))
        first = await door.acquire(follower, names, session_id, headers=headers)
        leader = await killing
        again = await door.until_answered(names, session_id, headers=headers)
        await restart(cluster, leader)
        views = [await door.look(name) for name in names]
        released = await door.release(1, again.body["grant"])
        after = [await door.look(name) for name in names]

    assert again.status == 200, (first, again)
    if first.status == 200:
        assert first.body["grant"]["grant_id"] == again.body["grant"]["grant_id"]
    token = again.body["grant"]["fencing_token"]
    assert [[each["fencing_token"] for each in view["holders"]] for view in views] == [[token]] * 3
    assert [view["queue"] for view in views] == [[], [], []]
    assert released.body["released"] is True
    assert [view["holders"] for view in after] == [[], [], []]


async def test_the_same_acquire_at_three_members_at_once_is_one_grant(
    cluster: ProcessCluster,
) -> None:
    """Sent to all members at the same moment, under one number: one place in the queue."""
    async with door_of(cluster) as door:
        session_id = await door.session()
        for kind in ("exclusive", "shared", "slot"):
            headers, name = door.request_headers(), f"same-{kind}"
            said = {"kind": kind, "headers": headers} | ({"size": 2} if kind == "slot" else {})
            answers = await asyncio.gather(
                *(door.acquire(at, name, session_id, **said) for at in range(3))
            )
            view = await door.look(name)

            assert len({answer.body["grant"]["grant_id"] for answer in answers}) == 1, answers
            assert len(view["holders"]) == 1
            assert view["queue"] == []
            await door.release(2, answers[0].body["grant"])


async def test_a_downgrade_survives_the_death_of_the_leader(cluster: ProcessCluster) -> None:
    """It is done once, whoever answers: the reader behind comes in, the writer does not."""
    async with (
        connect(cluster.endpoints, timeout=15, session_timeout=20) as client,
        connect(cluster.endpoints, timeout=15, session_timeout=20) as other,
    ):
        writing = RWLock(client, "down").write()
        grant = await writing.acquire()
        read = asyncio.create_task(RWLock(other, "down", timeout=20, owner="r").read().acquire())
        await _until_queued(other, "down", 2)
        write = asyncio.create_task(RWLock(other, "down", timeout=20, owner="w").write().acquire())
        await _until_queued(other, "down", 3)

        killing = asyncio.create_task(kill_leader(cluster))
        await grant.downgrade()
        leader = await killing
        reader = await read
        await grant.verify()
        is_writer_in = write.done()
        view = await client.lock("down")
        await grant.release()
        await reader.release()
        writer = await write
        await writer.release()
        await restart(cluster, leader)

    assert not is_writer_in
    assert [each.kind for each in view.holders] == ["shared", "shared"]
    assert view.holders[0].fencing_token == grant.fencing_token
    assert writer.fencing_token > reader.fencing_token > grant.fencing_token


async def _until_queued(client: AsyncClient, name: str, count: int) -> None:
    for _ in range(1_000):
        view = await client.lock(name)
        if len(view.holders) + len(view.queue) >= count:
            return
        await asyncio.sleep(0.01)
    raise TimeoutError(f"{name} has no {count} contenders: {view}")


# --- semaphores


async def test_a_smaller_semaphore_takes_nobodys_slot(cluster: ProcessCluster) -> None:
    """Three hold when it shrinks to one: all three go on, and the next waits for all of them."""
    async with connect(cluster.endpoints, timeout=15, session_timeout=20) as client:
        holders = [Semaphore(client, "shrunk", 3, owner=f"h{number}") for number in range(3)]
        grants = [await each.acquire() for each in holders]
        assert await holders[0].resize(1) == 1
        waiting = asyncio.create_task(Semaphore(client, "shrunk", 3, owner="w").acquire(timeout=20))
        await _until_queued(client, "shrunk", 4)

        held = []
        for grant in grants:
            assert not waiting.done()
            held.append((await grant.is_held()).is_held)
            await grant.release()
        last = await asyncio.wait_for(waiting, 10)
        refused = await Semaphore(client, "shrunk", 3, owner="x").try_acquire()
        await last.release()

    assert held == [True, True, True]
    assert refused is None, "one of one, whatever size is named"


# --- deadlocks


async def test_a_circle_closed_at_two_members_at_once_has_one_victim(
    cluster: ProcessCluster,
) -> None:
    """Each holds one and asks for the other's, at the same instant: one is refused, one waits."""
    async with door_of(cluster) as door:
        sessions = [await door.session(), await door.session()]
        for turn in range(10):
            names = [f"left-{turn}", f"right-{turn}"]
            held = [
                (await door.acquire(at, names[at], sessions[at], owner=f"o{at}")).body["grant"]
                for at in (0, 1)
            ]
            asked = [
                asyncio.create_task(
                    door.acquire(at + 1, names[1 - at], sessions[at], owner=f"o{at}")
                )
                for at in (0, 1)
            ]
            done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
            (refused,) = done
            (other,) = waiting
            victim = asked.index(refused)
            await door.release(2, held[victim])
            granted = await other

            assert refused.result().code == "Deadlock", refused.result()
            assert refused.result().body["definite"] is True
            cycle = refused.result().body["cycle"]
            assert {each["owner"] for each in cycle} == {"o0", "o1"}
            assert granted.status == 200
            await door.release(0, granted.body["grant"])
            await door.release(0, held[1 - victim])


async def test_a_circle_through_readers_slots_and_several_locks_is_refused(
    cluster: ProcessCluster,
) -> None:
    """reader -> slot -> several -> writer: who closes it is told the circle, and leaves nothing."""
    async with door_of(cluster) as door:
        one, two, three = [await door.session() for _ in range(3)]
        grants = [
            await door.acquire(0, "ring-rw", one, owner="reader", kind="shared"),
            await door.acquire(1, "ring-slots", two, owner="slot", kind="slot", size=1),
            await door.acquire(2, ["ring-m1", "ring-m2"], three, owner="several"),
        ]
        waiting = [
            asyncio.create_task(
                door.acquire(1, "ring-slots", one, owner="reader", kind="slot", size=1)
            ),
            asyncio.create_task(door.acquire(2, "ring-m2", two, owner="slot")),
        ]
        for name in ("ring-slots", "ring-m2"):
            await door.until_queued(name)
        refused = await door.acquire(0, ["ring-m3", "ring-rw"], three, owner="several")
        not_by_name = await door.acquire(0, "ring-rw", three, owner="other", timeout_ms=200)
        view = await door.look("ring-m3")
        for grant in grants:
            await door.release(0, grant.body["grant"])
        later = [(await each).body["grant"] for each in waiting]
        for grant_of in later:
            await door.release(1, grant_of)

    assert refused.code == "Deadlock"
    assert [each["owner"] for each in refused.body["cycle"]].count("several") == 1
    assert {each["owner"] for each in refused.body["cycle"]} == {"reader", "slot", "several"}
    assert not_by_name.code == "LockTimeout", "another owner only waits"
    assert (view["holders"], view["queue"]) == ([], [])


async def test_owners_of_two_sessions_are_two_even_with_one_name(cluster: ProcessCluster) -> None:
    """The same owner in two sessions: it waits for itself and is granted, and closes no circle."""
    async with door_of(cluster) as door:
        one, two = await door.session(), await door.session()
        first = await door.acquire(0, "namesake", one, owner="import 7")
        again = await door.acquire(1, "namesake", one, owner="import 7", timeout_ms=100)
        second = asyncio.create_task(door.acquire(1, "namesake", two, owner="import 7"))
        await door.until_queued("namesake")
        await door.release(2, first.body["grant"])
        granted = await second
        await door.release(2, granted.body["grant"])

    assert again.code == "Deadlock"
    assert granted.status == 200
