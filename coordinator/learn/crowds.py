"""Stories of several clients at once, without frozen processes: herd, deadlock, double booking.

The clients are tasks of this process; the cluster and its zxids are real.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.client import AsyncClient, Change, connect
from coordinator.errors import DeadlockError, NodeExistsError, NoNodeError
from coordinator.learn.film import Guess
from coordinator.learn.scripts import Scripted, expect
from coordinator.learn.stage import UNTIL_S, Stage
from coordinator.model.events import EventType
from coordinator.recipes import Lock

WAITERS = 8
"""So many that the two ways differ clearly, and a reader can still count along."""
SEAT = "/learn/seat-1A"


async def herd(stage: Stage) -> None:
    """Everybody watches the holder, or only the one before: the wake-ups are counted."""
    together = WAITERS * (WAITERS - 1) // 2
    stage.recorder.step(
        "guess",
        f"{WAITERS} clients want one lock. First all of them watch the holder.",
        {("counts", "waiters"): WAITERS, ("counts", "herd"): 0, ("counts", "predecessor"): 0},
        question=Guess(
            "How many wake-ups does it take until each had its turn?",
            (f"{WAITERS - 1}", f"{together}", f"{WAITERS * WAITERS * WAITERS}"),
            1,
            f"Each release wakes all that still wait: {WAITERS - 1} + {WAITERS - 2} + … + 1.",
        ),
    )
    await _ensure(stage.client, "/learn/herd", "/learn/queue")
    all_at_once = _Wakes(stage, "herd")
    await asyncio.gather(*(all_at_once.in_a_herd(each) for each in range(1, WAITERS + 1)))
    stage.explain("Now each watches only the one before it.")
    one_by_one = _Wakes(stage, "predecessor")
    await asyncio.gather(*(one_by_one.in_a_queue(each) for each in range(1, WAITERS + 1)))
    expect(one_by_one.count == WAITERS - 1, f"{WAITERS - 1} wake-ups, found {one_by_one.count}")
    expect(all_at_once.count == together, f"{together} in a herd, found {all_at_once.count}")
    stage.explain(f"{all_at_once.count} wake-ups against {one_by_one.count}, and in a herd the "
                  "fastest wins, not the first. Lock asks the server to wait for it: one request, "
                  "one answer, in order.")  # fmt: skip


class _Wakes:
    """How often waiters were woken, and who is next."""

    def __init__(self, stage: Stage, way: str) -> None:
        self._stage = stage
        self._way = way
        self.count = 0
        self._left = WAITERS
        self._watchers: dict[int, set[int]] = {}
        """Which clients have watched a znode, by its czxid."""
        self._has_watcher = asyncio.Condition()

    async def in_a_herd(self, number: int) -> None:
        """Take the one znode, or wait until it is gone and try again."""
        client, path = self._stage.client, "/learn/herd/lock"
        while True:
            try:
                made = await client.create(path, mode="ephemeral")
            except NodeExistsError:
                await self._gone(path, number)
                continue
            mine = made.stat.czxid
            self._say(f"Client {number} got it", mine)
            self._left -= 1
            await self._until_all_watch(mine)
            await client.delete(path)
            return

    async def in_a_queue(self, number: int) -> None:
        """Enter the queue, and wait for the one before."""
        client = self._stage.client
        made = await client.create("/learn/queue/n-", mode="ephemeral_sequential")
        mine = made.path.rpartition("/")[2]
        while True:
            names = sorted((await client.children("/learn/queue")).names)
            before = [name for name in names if name < mine]
            if not before:
                self._say(f"Client {number} is the first, and has it", made.stat.czxid)
                await self._until(lambda: len(self._watchers) == WAITERS - 1)
                await client.delete(made.path)
                return
            await self._gone(f"/learn/queue/{before[-1]}", number)

    async def _gone(self, path: str, number: int) -> None:
        """Wait until the znode at ``path`` is deleted; count it.

        The holder keeps the lock until all others wait for it, as one does that works for
        longer than they need to ask. Without that, it could be gone before some have asked.
        """
        client = self._stage.client
        async with client.watch(path, kind="znode") as changes:
            found = await client.exists(path)
            if found is None:
                return
            async with self._has_watcher:
                self._watchers.setdefault(found.czxid, set()).add(number)
                self._has_watcher.notify_all()
            async for change in changes:
                if _deletes(change, found.czxid):
                    break
        self.count += 1
        self._stage.recorder.step(
            f"client {number}", f"Client {number} is woken (wake-up {self.count}).",
            {("counts", self._way): self.count},
        )  # fmt: skip

    async def _until_all_watch(self, czxid: int) -> None:
        await self._until(lambda: len(self._watchers.get(czxid, ())) == self._left)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with self._has_watcher:
            await self._has_watcher.wait_for(is_so)

    def _say(self, text: str, zxid: int) -> None:
        self._stage.recorder.step("cluster", text + ".", zxid=zxid)


def _deletes(change: Change, czxid: int) -> bool:
    return any(
        event.type is EventType.DELETED and event.czxid == czxid for event in change.events
    )


async def deadlock(stage: Stage) -> None:
    """A holds 1 and wants 2, B holds 2 and wants 1: the second request is refused at once."""
    endpoints = stage.place.endpoints
    async with (
        connect(endpoints, label="A") as client_a,
        connect(endpoints, label="B") as client_b,
    ):
        a1 = await Lock(client_a, "account-1", owner="A").acquire()
        b2 = await Lock(client_b, "account-2", owner="B").acquire()
        stage.recorder.step("A", f"A holds account-1, token {a1.fencing_token}.",
                            {("graph", "A holds"): "account-1"}, zxid=a1.fencing_token)  # fmt: skip
        stage.recorder.step("B", f"B holds account-2, token {b2.fencing_token}.",
                            {("graph", "B holds"): "account-2"}, zxid=b2.fencing_token)  # fmt: skip
        wanted = Lock(client_a, "account-2", owner="A")
        waiting = asyncio.create_task(wanted.acquire())
        await _queued(stage.client, "account-2")
        stage.recorder.step("A", "A waits for account-2.", {("graph", "A waits for"): "account-2"})
        stage.recorder.step(
            "guess", "B is about to ask for account-1.",
            question=Guess(
                "What happens?",
                ("Both wait for ever", "Both wait until a timeout", "B is refused at once"), 2,
                "The cluster knows who waits for whom, and looks before it queues.",
            ),
        )  # fmt: skip
        refused: DeadlockError | None = None
        try:
            await Lock(client_b, "account-1", owner="B").acquire()
        except DeadlockError as error:
            refused = error
        expect(refused is not None, "B to be refused")
        assert refused is not None
        stage.recorder.step("B", f"B is refused: {refused.message}",
                            {("graph", "refused"): refused.message})  # fmt: skip
        await b2.give_back()
        a2 = await waiting
        stage.recorder.step("A", f"B gives account-2 back and starts over; A has both, token "
                            f"{a2.fencing_token}.", {("graph", "B holds"): None,
                            ("graph", "A waits for"): None,
                            ("graph", "A holds"): "account-1, account-2"})  # fmt: skip
        await a2.give_back()
        await a1.give_back()
    stage.explain("The request that would close the circle is refused, with the circle in its "
                  "message. Taking locks in one order (MultiLock) avoids it.")  # fmt: skip


async def double_booking(stage: Stage) -> None:
    """Ann and Bob look at one seat, then book: twice without a lock, once with it."""
    client = stage.client
    await _ensure(client, "/learn")
    sold = await _sell(stage, is_locked=False)
    expect(sold == 2, f"two tickets without a lock, found {sold}")
    stage.explain("Two tickets, one seat: what Ann knew when she looked was the past when she "
                  "booked.")  # fmt: skip
    sold = await _sell(stage, is_locked=True)
    expect(sold == 1, f"one ticket under a lock, found {sold}")
    stage.explain("Under the lock Bob looks after Ann has booked. The lock is held around looking "
                  "and booking, not around booking alone.")  # fmt: skip


async def _sell(stage: Stage, *, is_locked: bool) -> int:
    client = stage.client
    try:
        await client.create(SEAT, b"free")
    except NodeExistsError:
        await client.set(SEAT, b"free")
    sold: list[str] = []
    both_looked = asyncio.Barrier(2)
    way = "under a lock" if is_locked else "without a lock"
    stage.recorder.step("cluster", f"Seat 1A is free. Ann and Bob want it, {way}.",
                        {("seat",): "free", ("tickets",): []})  # fmt: skip

    async def book(name: str) -> None:
        seen = (await client.get(SEAT)).data
        stage.recorder.step(name, f"{name} looks: {seen.decode()}.")
        if not is_locked:
            await both_looked.wait()
        if seen != b"free":
            stage.recorder.step(name, f"{name} reads that it is sold, and leaves.")
            return
        zxid = (await client.set(SEAT, f"sold to {name}".encode())).stat.mzxid
        sold.append(name)
        stage.recorder.step(name, f"{name} books, and has a ticket.",
                            {("seat",): f"sold to {name}", ("tickets",): list(sold)},
                            zxid=zxid)  # fmt: skip

    async def book_locked(name: str) -> None:
        async with Lock(client, "seat-1A", label=name, owner=name) as grant:
            text = f"{name} holds the lock, token {grant.fencing_token}."
            stage.recorder.step(name, text, {("lock", "holder"): name}, zxid=grant.fencing_token)
            await book(name)

    way_of = book_locked if is_locked else book
    await asyncio.gather(*(way_of(name) for name in ("Ann", "Bob")))
    return len(sold)


async def _queued(client: AsyncClient, lock: str) -> None:
    async with asyncio.timeout(UNTIL_S):
        while (await client.lock(lock)).queue_length == 0:  # noqa: ASYNC110 - asks the cluster
            await asyncio.sleep(0.02)


async def _ensure(client: AsyncClient, *paths: str) -> None:
    for path in paths:
        try:
            await client.create(path, parents="persistent")
        except NodeExistsError:
            pass
    for path in paths:
        await _empty(client, path)


async def _empty(client: AsyncClient, path: str) -> None:
    for name in (await client.children(path)).names:
        if name in ("herd", "queue", "seat-1A"):
            continue
        try:
            await client.delete(f"{path}/{name}", recursive=True)
        except NoNodeError:
            pass


CROWDS = {
    each.name: each
    for each in (
        Scripted("herd", "The herd against the predecessor's watch", herd, has_actors=False),
        Scripted("deadlock", "A deadlock over two locks", deadlock, has_actors=False),
        Scripted("double-booking", "Seat 1A, twice and once", double_booking, has_actors=False),
    )
}
"""Every script of this module, by name."""
