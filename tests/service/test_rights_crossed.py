"""Rights that change while one look at them serves many streams.

Streams that get the same share what was made of a change, and what it says; a look at the rights is
taken once for all of them. Here rights and data change in any order, in the same pass, between the
portions in which a change is handed out, and while streams have not read. Whatever a stream yields,
its caller has the right to at that moment; and what it has had the right to all the time, it gets.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from coordinator.errors import CoordinatorError
from coordinator.model.access import Caller, Rule, Verb
from coordinator.model.events import Change, EventType
from coordinator.service.watches.watch_stream import Wanted, WatchStream
from coordinator.state.commands import Create, Multi, Operation, PutIdentity, PutRole, SetData
from tests.met import Met
from tests.service.fake_cluster import World, cluster, settle
from tests.service.rights import with_rights, write
from tests.service.test_watch_values import watching

ROOTS = ("/a", "/b", "/c")
WHO = ("ann", "bob", "eve")
VALUES = Wanted(has_values=True)
WANTED = (
    VALUES, VALUES, Wanted(), Wanted(prefix="/"), Wanted(only=frozenset(EventType)),
)  # fmt: skip
"""Each has a part of a change of its own, so that one goes out in portions."""


class Reader:
    """A stream of one caller, read now and then; judges each item at the moment that it comes."""

    def __init__(
        self, world: World, caller: Caller, wanted: Wanted, draw: random.Random, met: Met
    ) -> None:
        self.world, self.caller, self.wanted, self._draw = world, caller, wanted, draw
        self.seen: list[tuple[int, str]] = []
        self.met = met

    async def run(self) -> None:
        while True:
            try:
                stream = watching(self.world.leader, wanted=self.wanted, caller=self.caller)
                await self._read(stream)
            except CoordinatorError:  # its rights have changed; or it may see nothing now
                self.met["ended"] += 1
                await asyncio.sleep(0)

    async def _read(self, stream: WatchStream) -> None:
        async for item in stream:
            if isinstance(item, Change):
                self._judge(item)
            for _ in range(self._draw.choice((0, 0, 1, 5, 20))):
                await asyncio.sleep(0)

    def _judge(self, change: Change) -> None:
        allows = self.world.leader._replica.machine.access.allows
        for event in change.events:
            assert allows(self.caller, Verb.WATCH, event.path), (change.zxid, event.path)
            self.seen.append((change.zxid, event.path))
            self.met["events"] += 1
            if event.data is not None or event.previous_data is not None:
                assert allows(self.caller, Verb.READ, event.path), (change.zxid, event.path)
                self.met["values"] += 1
            else:
                self.met["withheld"] += event.is_withheld


def rules(draw: random.Random) -> tuple[Rule, ...]:
    """Return rights to some of the roots; always something to watch at /a."""
    found = [Rule("/a", (Verb.WATCH, *draw.choice(((), (Verb.READ,)))))]
    for root in ROOTS[1:]:
        verbs = draw.choice(((), (Verb.WATCH,), (Verb.WATCH, Verb.READ)))
        found += [Rule(root, verbs)] if verbs else []
    return tuple(found)


def operations(draw: random.Random, number: int) -> Iterator[Operation]:
    """Yield what happens in one burst, without a pass of the loop between."""
    for _ in range(draw.randint(1, 8)):
        if draw.random() < 0.4:
            yield PutRole(f"of {draw.choice(WHO)}".replace(" ", "-"), rules(draw))
        else:
            paths = [draw.choice(ROOTS) for _ in range(draw.choice((1, 100, 300)))]
            yield Multi(tuple(SetData(path, b"%d" % number) for path in paths))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(each, marks=pytest.mark.check) for each in range(2, 10))]
)
async def test_what_a_stream_yields_its_caller_may_see_at_that_moment(seed: int) -> None:
    """Streams with values and without, of callers that share a role, and of others."""
    draw, met = random.Random(seed), Met()
    async with cluster(1) as world:
        await with_rights(world, Rule("/a", (Verb.WATCH,)))
        await write(world, *[Create(each) for each in ROOTS])
        readers = []
        for who in WHO:
            await write(world, PutRole(f"of-{who}", rules(draw)))
            await write(world, PutIdentity(who, roles=(f"of-{who}",), subjects=(f"cert:{who}",)))
            caller = world.leader._replica.machine.access.by_subject(f"cert:{who}")
            assert caller is not None
            for wanted in WANTED:
                own = random.Random(f"{seed}/{len(readers)}")
                readers.append(Reader(world, caller, wanted, own, met))
        reading = [asyncio.create_task(each.run()) for each in readers]
        await settle()
        try:
            for number in range(40):
                submits = [write(world, each) for each in operations(draw, number)]
                await asyncio.gather(*submits)
                for _ in range(draw.choice((0, 0, 1, 3, 30))):
                    await asyncio.sleep(0)
            await write(world, Create("/a/last"))
            plain = [each for each in readers if not each.wanted.has_values]
            for _ in range(20_000):
                for task in reading:
                    if task.done():
                        task.result()
                if all(each.seen and each.seen[-1][1] == "/a/last" for each in plain):
                    break
                await asyncio.sleep(0)
            else:
                raise AssertionError(f"left out: {[each.seen[-1:] for each in plain]}")
        finally:
            for each in reading:
                each.cancel()
            done = await asyncio.gather(*reading, return_exceptions=True)
        failures = [each for each in done if isinstance(each, AssertionError)]
        assert not failures, failures[0]
    met.check(events=1_000, values=200, withheld=50, ended=5)
