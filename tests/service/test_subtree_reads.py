"""A subtree is read in pages: what may be read and watched, and past what may not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from coordinator.errors import (
    CoordinatorError,
    NoAuthError,
)
from coordinator.model.access import Caller, Rule, Verb
from coordinator.model.limits import MachineLimits
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.service.reads.subtree_reads import subtree_page
from coordinator.state.commands import (
    Command,
    Create,
    Delete,
    Multi,
    PutIdentity,
    PutRole,
)
from coordinator.state.machine import StateMachine
from tests.service.fake_cluster import World, cluster
from tests.service.rights import with_rights, write


async def test_a_subtree_is_read_in_pages() -> None:
    """Whatever the pages, and with znodes that have gone since: each once, parents first."""
    draw = random.Random(5)
    async with cluster(1) as world:
        for _ in range(60):
            parent = draw.choice(sorted(_every(world)))
            name = draw.choice(("a", "b-1", "c", "\u00e9", "b", "z.z"))
            try:
                await write(world, Create(f"{parent.rstrip('/')}/{name}", name.encode()))
            except CoordinatorError:
                pass
        machine = world.leader._replica.machine
        for path in ("/", "/a", "/b", "/none"):
            whole, _ = subtree_page(machine, path, None, 1_000, Caller())
            there = {
                each for each in _every(world) if f"{each}/".startswith(path.rstrip("/") + "/")
            }
            assert {each.path for each in whole} == there
            assert len(whole) == len(there)
            for limit in (1, 2, 3, 7):
                found, after = [], None
                while True:
                    page, after = subtree_page(machine, path, after, limit, Caller())
                    found += page
                    if after is None:
                        break
                assert found == list(whole)
            paths = [each.path for each in whole]
            assert all(
                paths.index(each.rpartition("/")[0] or "/") < number
                for number, each in enumerate(paths)
                if each != path and each != "/"
            )
        page, after = subtree_page(machine, "/", None, 3, Caller())
        assert after is not None
        await write(world, Delete(after, is_recursive=True))
        rest, _ = subtree_page(machine, "/", after, 1_000, Caller())
        assert {each.path for each in (*page, *rest)} - {after} == _every(world) - {after}


async def test_a_subtree_shows_what_may_be_read_and_watched() -> None:
    """Not what leads there, nor how much else there is; who may see nothing is refused."""
    both = (Verb.READ, Verb.WATCH)
    async with cluster(1) as world:
        for name in ("a", "a/x", "b", "b/y", "c", "c/z", "d"):
            await write(world, Create(f"/{name}"))
        caller = await with_rights(
            world, Rule("/a/x", both), Rule("/b", both), Rule("/c", (Verb.READ,))
        )

        found = await world.leader.subtrees.page("/", LINEARIZABLE, world.deadline(), caller=caller)
        assert [each.path for each in found.value.znodes] == ["/a/x", "/b", "/b/y"]
        partial = {"/": True, "/a": True, "/a/x": False, "/b": False, "/c": True}
        for path, is_partial in partial.items():
            page = await world.leader.subtrees.page(
                path, LINEARIZABLE, world.deadline(), caller=caller
            )
            assert page.value.is_partial is is_partial, path
        with pytest.raises(NoAuthError):
            await world.leader.subtrees.page("/d", LINEARIZABLE, world.deadline(), caller=caller)
        alone = await world.leader.subtrees.page(
            "/b", LINEARIZABLE, world.deadline(), limit=0, caller=caller
        )
        assert alone.value.znodes == ()
        assert alone.value.next is None
        assert alone.value.zxid == world.leader._replica.machine.zxid


def _every(world: World) -> set[str]:
    znodes, hold = world.leader._replica.machine._tree.capture_znodes()
    found = set(znodes)
    del hold
    return found


def test_a_subtree_is_as_deep_as_paths_may_be() -> None:
    """Its depth is a limit that operators set, up to 1,024."""
    limits = replace(MachineLimits(), path_bytes_max=4_096, path_depth_max=1_024)
    machine, path = StateMachine(limits), ""
    for number in range(1_024):
        path += "/a"
        machine.apply(Command(Create(path), wall_ms=0, request=None), number + 1, 1)

    top, last = subtree_page(machine, "/", None, 1_000, Caller())
    rest, end = subtree_page(machine, "/", last, 1_000, Caller())

    assert [each.path.count("a") for each in (*top, *rest)] == list(range(1_025))
    assert end is None


async def test_a_subtree_is_read_past_many_ways_that_lead_nowhere() -> None:
    """A page ends where it has looked at much, and the next one goes on behind that."""
    both = (Verb.READ, Verb.WATCH)
    names = [f"/n{number:04}" for number in range(1_200)]
    async with cluster(1) as world:
        for at in range(0, len(names), 400):
            await write(world, Multi(tuple([Create(each) for each in names[at : at + 400]])))
        await write(world, Create(f"{names[-1]}/there", b"x"))
        caller = await with_rights(world)
        roles = [f"role{number}" for number in range(12)]
        for number, role in enumerate(roles):
            some = names[number * 100 : number * 100 + 100]
            await write(world, PutRole(role, tuple([Rule(f"{e}/there", both) for e in some])))
        await write(world, PutIdentity("reader", roles=tuple(roles), subjects=("cert:reader",)))
        machine = world.leader._replica.machine

        found, after = [], None
        for _ in range(5):
            page, after = subtree_page(machine, "/", after, 1_000, caller)
            found += [each.path for each in page]
            if after is None:
                break

    assert (found, after) == ([f"{names[-1]}/there"], None)
