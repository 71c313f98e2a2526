"""The label of a client is that of all that it holds, wants and runs, unless that has one."""

from __future__ import annotations

from coordinator.recipes import (
    Election,
    Job,
    Jobs,
    Lock,
    MultiLock,
    Once,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
)
from tests.client.memory_cluster import MemoryCluster, in_memory


@in_memory
async def test_grants_have_the_label_of_their_client(world: MemoryCluster) -> None:
    """Of each kind of lock, for holder, waiter and history."""
    async with world.client(label="billing") as client, world.client() as other:
        for number, lock in enumerate(
            (
                Lock(client, 0),
                ReentrantLock(client, 1),
                RWLock(client, 2).read(),
                Semaphore(client, 3, 2),
                MultiLock(client, 4, "b"),
                TreeLock(client, 5),
            )
        ):
            async with lock:
                assert [each.label for each in (await other.lock(str(number))).holders] == [
                    "billing"
                ]
            own = Lock(client, number, label="invoices")
            async with own:
                assert (await other.lock(str(number))).holders[0].label == "invoices"
        async with Lock(other, "unnamed"):
            assert (await client.lock("unnamed")).holders[0].label == ""
        assert [each.label async for each in other.grants("0")] == ["billing", "invoices"]


@in_memory
async def test_candidates_and_jobs_have_the_label_of_their_client(world: MemoryCluster) -> None:
    """So has what runs once for a key, while it runs."""
    async with world.client(label="billing") as client, world.client() as other:
        async with Election(client, "service"):
            elected = (await Election(other, "service").who()).elected
            assert elected is not None
            assert elected.label == "billing"

        async def work(_: object) -> None:
            seen.append((await other.lock("once:a")).holders[0].label)

        seen: list[str] = []
        await Once(client).run("a", work)
        assert seen == ["billing"]

        async def report(_: object) -> None:
            """Nothing is to be done."""

        await Job(client, "report", every="1h").run(report)
        await Job(client, "other report", every="1h", label="host 7").run(report)
        for name, by in (("report", "billing"), ("other report", "host 7")):
            job = await Jobs(other).look(name)
            assert job is not None
            assert [each.by for each in job.runs] == [by]
