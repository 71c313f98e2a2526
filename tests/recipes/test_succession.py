"""Who is elected next: hand-over to a named candidate, weights, candidacy again and again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coordinator.client import AsyncClient
from coordinator.client.calling.transport import Request
from coordinator.errors import BadArgumentsError, LockTimeoutError, NotOwnerError
from coordinator.recipes import Election, Grant
from coordinator.recipes.elections.succession import read_request
from tests.client.memory_cluster import MemoryCluster, in_memory

Waiting = dict[str, tuple[Election[AsyncClient], "asyncio.Task[Grant[AsyncClient]]"]]


@asynccontextmanager
async def candidates(
    world: MemoryCluster, *names: str, weights: tuple[int | None, ...] = ()
) -> AsyncIterator[Waiting]:
    """Candidates with these labels, one after the other; each campaigns in a task."""
    found: Waiting = {}
    clients = [world.client(label=name) for name in names]
    try:
        for number, (name, client) in enumerate(zip(names, clients, strict=True)):
            weight = weights[number] if weights else None
            election = Election(await client.__aenter__(), "service", weight=weight)
            found[name] = (election, asyncio.create_task(election.campaign()))
            await asyncio.sleep(0.2)
        yield found
    finally:
        for _, task in found.values():
            task.cancel()
        for client in clients:
            await client.__aexit__(None, None, None)


async def elected_in(election: Election[AsyncClient]) -> str:
    elected = (await election.who()).elected
    return "" if elected is None else elected.label


@in_memory
async def test_a_named_candidate_follows_in_the_same_command(world: MemoryCluster) -> None:
    """The end and the beginning have one zxid; who was passed over still waits, behind."""
    async with candidates(world, *"abcd") as them, world.client() as observer:
        a, task = them["a"]
        first = await task
        successor = await a.hand_over("c")

        assert successor.label == "c"
        c = await asyncio.wait_for(them["c"][1], 1)
        assert c.epoch == successor.epoch > first.epoch
        assert first.is_released
        assert not c.is_lost
        await asyncio.sleep(1)
        view = await a.who()
        assert [each.label for each in view.candidates] == ["d", "b"]
        history = [each async for each in observer.grants("service", is_election=True)]
        ended = next(each for each in history if each.fencing_token == first.epoch)
        begun = next(each for each in history if each.fencing_token == c.epoch)
        assert ended.ended_zxid == begun.granted_zxid
        assert await them["c"][0].resign()
        assert (await them["d"][1]).epoch > c.epoch


@in_memory
async def test_who_is_not_there_follows_nobody(world: MemoryCluster) -> None:
    """The elected stays so; only it can hand over."""
    async with candidates(world, *"ab") as them:
        a, task = them["a"]
        leadership = await task
        with pytest.raises(BadArgumentsError, match="b waits"):
            await a.hand_over("c")
        assert await leadership.verify() > 0
        with pytest.raises(NotOwnerError):
            await them["b"][0].hand_over()
        assert (await a.hand_over()).label == "b"  # without a name: the next one
        with pytest.raises(NotOwnerError):
            await a.hand_over()


@in_memory
async def test_one_that_resigns_already_hands_nothing_over(world: MemoryCluster) -> None:
    """Another task was first; what came of it is said, and nobody is named."""
    async with candidates(world, *"ab") as them:
        a, task = them["a"]
        await task
        resigning = asyncio.create_task(a.resign())
        for _ in range(3):  # its request is under way
            await asyncio.sleep(0)
        with pytest.raises(NotOwnerError):
            await a.hand_over("b")
        assert await resigning


@in_memory
async def test_a_wish_that_is_said_again_is_another_one(world: MemoryCluster) -> None:
    """Equal words at another time: whoever refused the first looks again."""
    async with candidates(world, *"a") as them, world.client() as client:
        leadership = await them["a"][1]
        requests = []
        for _ in range(2):
            await Election(client, "service").ask("b", by="ann")
            requests.append(await read_request(client, "service", leadership.epoch))
        first, second = requests
        assert first is not None
        assert second is not None
        assert first == second
        assert 0 < first.zxid < second.zxid


@in_memory
async def test_of_two_with_one_label_none_is_chosen(world: MemoryCluster) -> None:
    """A grant id says which."""
    async with candidates(world, "a", "b", "b") as them:
        a, task = them["a"]
        await task
        with pytest.raises(BadArgumentsError, match="found 2"):
            await a.hand_over("b")
        last = (await a.who()).candidates[-1]
        assert (await a.hand_over(last.grant_id)).epoch == last.epoch


@in_memory
async def test_an_unknown_hand_over_is_resolved_by_asking_again(world: MemoryCluster) -> None:
    """Its answer is lost: the retry gets the first outcome."""
    network = world.network()
    async with world.client(network, label="a") as client, candidates(world, *"bc") as them:
        await them["b"][1]
        a = Election(client, "service")
        waiting = asyncio.create_task(a.campaign())
        await asyncio.sleep(0.2)
        await them["b"][0].hand_over("a")
        await waiting
        network.lose_one_reply("POST", "/v1/multi")
        assert (await a.hand_over("c")).label == "c"
        assert await elected_in(a) == "c"


@in_memory
async def test_who_leaves_in_the_instant_of_the_hand_over_is_not_said_to_follow(
    world: MemoryCluster,
) -> None:
    """It waited when the elected looked; nothing is handed over to whom nobody chose."""
    network = world.network()
    async with world.client(network, label="a") as client:
        a = Election(client, "service")
        leadership = await a.campaign()
        async with candidates(world, *"bc") as them:

            async def leave(request: Request) -> None:
                if "/v1/multi" in request.target:
                    them["b"][1].cancel()
                    await asyncio.sleep(1)

            network.before = leave
            with pytest.raises(BadArgumentsError, match="found 0; c waits"):
                await a.hand_over("b")

            assert await elected_in(a) == "a"
            assert not leadership.is_lost


@in_memory
async def test_the_heaviest_that_waits_is_elected(world: MemoryCluster) -> None:
    """Also when a lighter one waited longer; none has seen the other's turn."""
    async with candidates(world, *"abcd", weights=(1, 2, 7, 7)) as them:
        first = await them["a"][1]
        await them["a"][0].resign()
        done, _ = await asyncio.wait([them["b"][1], them["c"][1]], timeout=5)
        assert done == {them["c"][1]}
        assert them["c"][1].result().epoch > first.epoch
        await asyncio.sleep(1)
        view = await them["a"][0].who()
        assert [each.label for each in view.candidates] == ["d", "b"]
        children = await world_children(them["a"][0])
        assert len(children) == 2  # the weights of those who wait


async def world_children(election: Election[AsyncClient]) -> tuple[str, ...]:
    return (await election.client.children("/candidacies/service")).names


@in_memory
async def test_a_weight_of_nothing_is_never_elected(world: MemoryCluster) -> None:
    """It may look, and ask others."""
    async with world.client() as client:
        never = Election(client, "service", weight=0)
        with pytest.raises(BadArgumentsError, match="never elected"):
            await never.campaign()
        assert (await never.who()).elected is None
        for wrong in (-1, 1_001, 1.5, True, "1"):
            with pytest.raises(BadArgumentsError, match="weight"):
                Election(client, "service", weight=wrong)  # type: ignore[arg-type]


@in_memory
async def test_a_light_one_that_has_no_time_leaves_nothing(world: MemoryCluster) -> None:
    """One deadline over all its entries."""
    async with candidates(world, *"ab", weights=(5, 9)) as them:
        await them["a"][1]
        light = Election(them["a"][0].client, "service", weight=1, timeout=3)
        campaign = asyncio.create_task(light.campaign())
        await asyncio.sleep(1)
        await them["a"][0].hand_over("b")
        with pytest.raises(LockTimeoutError):
            await campaign
        await asyncio.sleep(1)
        assert (await them["a"][0].who()).candidates == ()
        assert await world_children(light) == ()


@in_memory
async def test_the_elected_hears_that_another_should_be(world: MemoryCluster) -> None:
    """By name, from anybody; or because a heavier one waits."""
    network = world.network()
    async with (
        candidates(world, *"ab", weights=(5, 5)) as them,
        world.client() as operator,
        world.client(network) as slow,
    ):
        a, task = them["a"]
        leadership = await task
        listening = asyncio.create_task(a.asked(give_way=True))
        await asyncio.sleep(1)
        assert await a.asked(0, give_way=True) is None
        assert await Election(operator, "service").ask("b", by="ops", reason="a new disk") == (
            leadership.epoch
        )
        request = await asyncio.wait_for(listening, 1)
        assert request is not None
        assert (request.to, request.by, request.epoch) == ("b", "ops", leadership.epoch)
        await a.hand_over(request.to)
        b = await them["b"][1]
        assert b.epoch > leadership.epoch
        assert await them["b"][0].asked(0) is None  # it was asked of another epoch
        listening = asyncio.create_task(them["b"][0].asked(give_way=True))
        await asyncio.sleep(1)
        network.delays_s = lambda request: 0.3  # between its weight and its place
        heavy = Election(slow, "service", weight=6)
        campaign = asyncio.create_task(heavy.campaign())
        request = await asyncio.wait_for(listening, 3)
        assert request is not None
        assert "weighs more" in request.reason
        await them["b"][0].hand_over(request.to)
        assert (await campaign).epoch > b.epoch
        ends = [
            (each.fencing_token, each.how, each.by, each.reason)
            async for each in operator.grants("service", is_election=True)
            if each.how
        ]
        assert (leadership.epoch, "deleted", "ops", "a new disk") in ends
        assert (b.epoch, "deleted", "", "it weighs more") in ends


@in_memory
async def test_run_contends_again_after_each_loss(world: MemoryCluster) -> None:
    """And ends with the work's own result, or failure."""
    network = world.network()
    epochs: list[int] = []
    async with world.client(network, session_timeout=4) as client:
        election = Election(client, "service")

        async def work(leadership: Grant[AsyncClient]) -> str:
            epochs.append(leadership.epoch)
            if len(epochs) == 1:
                network.is_cut = True
                asyncio.get_running_loop().call_later(10, setattr, network, "is_cut", False)
                await asyncio.sleep(100)
            if len(epochs) == 2:
                await election.resign()
                return "early"
            return "done"

        assert await election.run(work) == "done"
        assert epochs == sorted(set(epochs))
        assert len(epochs) == 3

        async def failing(leadership: Grant[AsyncClient]) -> None:
            raise LockTimeoutError("the work's own")

        async def unavailable(leadership: Grant[AsyncClient]) -> None:
            raise NotOwnerError("the work's own")

        for fails, kind in ((failing, LockTimeoutError), (unavailable, NotOwnerError)):
            with pytest.raises(kind, match="own"):
                await election.run(fails)
            assert election.leadership is None
