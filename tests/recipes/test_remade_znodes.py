"""What a recipe has read is another znode of the same name when it writes: nothing is done to it.

Every command that a recipe sends, with every znode that it names, one at a time (``remaking``).
"""

from __future__ import annotations

import ast
import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError
from coordinator.recipes import (
    Election,
    Latch,
    ManualLock,
    Once,
    TreeLock,
    WorkQueue,
)
from tests.client.memory_cluster import cluster
from tests.client.virtual_time import run
from tests.recipes.remaking import Named, RemakingEngine
from tests.recipes.test_broken_recipes import VERBS
from tests.recipes.test_cancelled_recipes import WAITS

RECIPES = Path(__file__).resolve().parents[2] / "coordinator" / "recipes"
Scenario = Callable[[AsyncClient], Awaitable[Any]]


async def settled(client: AsyncClient) -> None:
    """A person says what became of work that did not come to its end."""

    async def interrupted(_: object) -> None:
        raise KeyError("it dies")

    once = Once(client)
    try:
        await once.run("key", interrupted)
    except KeyError:
        assert (await once.settle("key", "done")).result == "done"


async def planned(client: AsyncClient) -> None:
    """The alarm of a hold by hand is set, and moved."""
    lock = ManualLock(client, "deploys")
    held = await lock.acquire("to see", timeout=5)
    held = await lock.renew_to(held.fencing_token, 60)
    await lock.extend_by(held.fencing_token, 60)
    await lock.release(held.fencing_token)


async def dead_and_alive(client: AsyncClient) -> None:
    """Items become dead letters, rejected or at their last attempt, and are delivered again."""
    queue = WorkQueue(client, "mails", attempts_max=1)
    await queue.put(b"a", b"b")
    rejected, returned = await queue.take(), await queue.take()
    assert rejected is not None
    assert returned is not None
    await rejected.reject("no")
    await returned.nack("no")
    for letter in await queue.dead():
        await queue.revive(letter.name)
    tired = WorkQueue(client, "mails", attempts_max=2)
    taken = await tired.take()
    assert taken is not None
    await taken.nack("once more")
    assert await queue.take() is not None, "the other one"
    assert await queue.take() is None, "one attempt is enough for this queue"


async def counted_down(client: AsyncClient) -> None:
    """A latch is counted down, and used again."""
    latch = Latch(client, "start", 2)
    await latch.count_down()
    await latch.count_down(part="b")
    await latch.reset()
    await latch.count_down()


async def by_znodes(client: AsyncClient) -> None:
    """A lock by znodes alone is tried, waited for, and released."""
    async with TreeLock(client, "a", timeout=0):
        waiting = asyncio.create_task(TreeLock(client, "a", timeout=5).acquire())
        try:
            await asyncio.sleep(0.1)
        except BaseException:
            waiting.cancel()
            raise
    await (await waiting).release()


async def asked_to_hand_over(client: AsyncClient) -> None:
    """The elected is asked to hand over, twice."""
    async with Election(client, "web"):
        for _ in range(2):
            await Election(client, "web").ask(by="ann", reason="to see")


def prepared(name: str) -> Scenario:
    verb = VERBS[name]

    async def scenario(client: AsyncClient) -> None:
        given = await verb.prepare(client, "k") if verb.prepare is not None else None
        await verb.act(client, "k", given)

    return scenario


VERBS_ALONE = (
    "Barrier.close", "Barrier.open", "Condition", "Delivery.nack", "DoubleBarrier", "Flag",
    "RWLock", "ReentrantLock", "Semaphore",
)  # fmt: skip
SCENARIOS: dict[str, Scenario] = {
    **WAITS,
    **{f"only {name}": prepared(name) for name in VERBS_ALONE},
    "Once.settle": settled,
    "ManualLock.extend_by": planned,
    "dead letters": dead_and_alive,
    "Latch.reset": counted_down,
    "TreeLock": by_znodes,
    "Election.ask": asked_to_hand_over,
}

LAST = "whatever is there now: the last one to write is right"
UNDER_A_LOCK = "under its lock, whose holder alone writes it"
ALLOWED = {
    "SetData /schedules/clock": "a note of the time, which says only that it is not earlier",
    "SetData if held /schedules/jobs": UNDER_A_LOCK,
    "SetData if held /once": UNDER_A_LOCK,
    "SetData if held /values": UNDER_A_LOCK,
    "Delete /schedules/jobs": LAST,
    "Delete /once": LAST,
    "Delete /barriers": LAST,
    "Delete /latches": LAST,
    "Check /latches": "a count names no round",
    "Check+SetData /candidacies": LAST,
    "Delete /locks": "the place of a TreeLock, whose number never comes again",
    "SetData if held /worked": "the scenario's own",
}
"""What is done to whatever has the name now, by verbs and root, and why that is right."""
NOT_REACHED = {
    ("manual_lock.py", "multi"): "takes back a hold that came to a caller who was cancelled",
    ("latch.py", "multi"): "forgets more counts than one command does, whichever they are",
}
"""Calls that send a command, and that no scenario gets to."""


async def tried(name: str, at: Named | None = None) -> RemakingEngine:
    """Run a scenario; only errors of the client and of the scenario itself may end it early."""
    engine = RemakingEngine(at)
    async with cluster(engine=engine) as world, world.client() as client:
        await client.create("/worked")
        await client.create("/known")
        try:
            async with asyncio.timeout(100):
                await SCENARIOS[name](client)
        except (CoordinatorError, TimeoutError):
            if at is None:
                raise
        except Exception as error:
            inside = traceback.extract_tb(error.__traceback__)[-1].filename
            if at is None or "/tests/" not in inside:
                raise
        except asyncio.CancelledError:
            pass  # a scenario that cancels its own tasks
    return engine


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_command_does_anything_to_another_znode_of_the_same_name(name: str) -> None:
    """Deleted and made again before the command, with the same data and version; or another has
    been granted the lock under which the command is."""
    first = run(tried(name))
    remade = 0
    for at in first.named:
        engine = run(tried(name, at))
        remade += engine.was_remade
        if engine.went_through:
            parts = at.path.split("/")[: 3 if at.path.startswith("/schedules") else 2]
            assert f"{'+'.join(at.verbs)} {'/'.join(parts)}" in ALLOWED, at
    assert remade or not first.named


@pytest.mark.check
def test_every_call_that_sends_a_command_is_tried() -> None:
    """In some scenario: a new one in a recipe needs one."""
    reached: set[tuple[str, int]] = set()

    def on_line(frame: FrameType, _event: str, _argument: Any) -> Any:
        reached.add((Path(frame.f_code.co_filename).name, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        return on_line if RECIPES in Path(frame.f_code.co_filename).parents else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        for name in SCENARIOS:
            run(tried(name))
    finally:
        sys.settrace(before)
    left = {
        (path.name, call.func.attr)
        for path in RECIPES.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("guarded", "multi")
        and not reached & {(path.name, line) for line in range(call.lineno, call.end_lineno + 1)}
    }
    assert left == set(NOT_REACHED)
