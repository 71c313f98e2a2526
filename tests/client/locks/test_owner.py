"""Each task and each thread is an owner of its own, whatever it is called."""

from __future__ import annotations

import asyncio
import threading

from coordinator import connect
from coordinator.client import Client
from coordinator.client.running.owner import current_owner
from tests.client.server_thread import serving


async def owner_here() -> str:
    return current_owner()


async def test_a_task_is_one_owner_for_as_long_as_it_runs() -> None:
    """Asked again, in a coroutine it awaits, or beside others: the same name."""
    first = current_owner()

    assert current_owner() == first
    assert await owner_here() == first
    assert first.startswith("task ")


async def test_tasks_of_one_name_are_two_owners() -> None:
    """Names are for people; a number that is given once tells the owners apart."""
    owners = [await asyncio.create_task(owner_here(), name="worker") for _ in range(50)]

    assert len(set(owners)) == 50
    assert all("worker" in owner for owner in owners)


def test_threads_one_after_the_other_are_different_owners() -> None:
    """The identifier of a thread that ended is given again; its name as an owner is not."""
    owners: list[str] = []
    for _ in range(20):
        thread = threading.Thread(target=lambda: owners.append(current_owner()), name="pooled")
        thread.start()
        thread.join()

    assert len(set(owners)) == 20
    assert owners[0].startswith("thread pooled #")


async def test_the_name_of_a_task_cannot_spoil_a_line() -> None:
    """What a program calls its tasks is shown as printable text of bounded length."""
    owner = await asyncio.create_task(owner_here(), name="a\nb\udce9" + "c" * 500)

    assert owner.isprintable()
    assert len(owner.encode("utf-8")) < 200


def asked_by(client: Client) -> str:
    return client.call(owner_here())


def test_a_sync_call_asks_in_the_name_of_its_thread() -> None:
    """The work is done in the client's own loop, but it is the caller who holds."""
    others: list[str] = []
    with serving() as url, connect(url) as client:
        mine = asked_by(client)
        thread = threading.Thread(target=lambda: others.append(asked_by(client)))
        thread.start()
        thread.join()

        assert mine == asked_by(client) == current_owner()
        assert others != [mine]
        assert others[0].startswith("thread ")
