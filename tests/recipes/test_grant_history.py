"""What stays of a grant: its end, its note, and the word to a holder that was put out."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import BadArgumentsError, LockLostError, NoNodeError, NotOwnerError
from coordinator.recipes import Election, Lock, MultiLock, TreeLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.lock_kinds import now


@in_memory
async def test_the_next_holder_learns_how_the_last_one_ended_and_how_far_it_came(
    world: MemoryCluster,
) -> None:
    """The note is there although its writer died."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as other:
        first = await Lock(client, "import").acquire()
        assert first.previous is None
        await first.note(b"row 500")
        await first.note(b"row 1000 \x00\xff")
        network.is_cut = True

        second = await Lock(other, "import", timeout=30).acquire()

        assert second.previous is not None
        assert second.previous.how == "expired"
        assert second.previous.note == b"row 1000 \x00\xff"
        assert second.previous.grant_id == first.grant_id
        await second.release()
        third = await Lock(other, "import").acquire()
        assert third.previous is not None
        assert (third.previous.how, third.previous.note) == ("released", b"")
        network.is_cut = False


@in_memory
async def test_a_note_needs_a_grant_that_holds(world: MemoryCluster) -> None:
    """Given back: refused. Too long, or of something that has no notes: refused."""
    async with world.client() as client:
        lock = Lock(client, "import")
        grant = await lock.acquire()
        with pytest.raises(BadArgumentsError, match="1024"):
            await grant.note(b"x" * 1_025)
        await lock.release()
        with pytest.raises(NotOwnerError):
            await grant.note(b"late")
        by_hand = await TreeLock(client, "by hand").acquire()
        with pytest.raises(BadArgumentsError):
            await by_hand.note(b"x")
        async with Election(client, "service") as leadership:
            with pytest.raises(BadArgumentsError):
                await leadership.note(b"x")


@in_memory
async def test_a_holder_that_is_put_out_by_force_is_told_with_its_next_heartbeat(
    world: MemoryCluster,
) -> None:
    """By whom and why; its body is cancelled within a third of its lease."""
    async with world.client(session_timeout=9) as client, world.client() as operator:
        began = now()

        async def put_out() -> None:
            await asyncio.sleep(1)
            revoked = await operator.revoke("daily", by="ops", reason="stuck since noon")
            assert revoked.fencing_token_min == revoked.grant.fencing_token + 1
            assert revoked.grant.how == "forced"

        words = "ops took it by force: stuck since noon"
        with pytest.raises(LockLostError, match=words):  # noqa: PT012
            async with Lock(client, "daily"), asyncio.TaskGroup() as group:
                group.create_task(put_out())
                await asyncio.sleep(600)

        assert now() - began < 5
        (await client.session()).check()


@in_memory
async def test_all_locks_of_a_multi_lock_are_taken_together(world: MemoryCluster) -> None:
    """Force on one of them ends them all, here and there."""
    async with world.client() as client, world.client() as operator:
        locks = MultiLock(client, "a", "b")
        one, other = await locks.acquire()
        await operator.revoke("b", by="ops", reason="test")
        await asyncio.sleep(5)

        assert one.is_lost
        assert other.is_lost
        assert await world.queue(client, "a") == []


@in_memory
async def test_a_contender_deleted_over_the_tree_is_a_loss_too(world: MemoryCluster) -> None:
    """The holder is told, whichever recipe it uses."""
    async with world.client() as client, world.client() as operator:
        for kind in (Lock, TreeLock):
            grant = await kind(client, "daily").acquire()
            await operator.delete(grant.path)
            await asyncio.sleep(5)

            with pytest.raises(LockLostError, match="deleted over the tree"):
                grant.check()


@in_memory
async def test_the_story_of_a_grant_can_be_read_later(world: MemoryCluster) -> None:
    """Who, on whose behalf, how it ended and who was next."""
    async with world.client() as client, world.client() as other:
        lock = Lock(client, "daily", label="report", trace_id="t-1", owner="me")
        first = await lock.acquire()
        await lock.release()
        second = await Lock(other, "daily").acquire()

        story = await other.grant("daily", first.grant_id)

        assert (story.grant.label, story.grant.trace_id) == ("report", "t-1")
        assert story.grant.owner == "me"
        assert story.grant.how == "released"
        assert story.next is not None
        assert story.next.grant_id == second.grant_id
        assert "it was released." in " ".join(story.sentences)
        with pytest.raises(NoNodeError):
            await other.grant("daily", "99-9999")


@in_memory
async def test_the_history_is_asked_by_lock_by_holder_and_by_end(world: MemoryCluster) -> None:
    """Page by page, the oldest first; what is held now is in it, with no end."""
    async with world.client() as client, world.client() as other:
        for number in range(5):
            async with Lock(client, f"lock {number % 2}"):
                pass
        held = await Lock(other, "lock 0").acquire()

        everything = [each async for each in client.grants()]
        zero = [each async for each in client.grants("lock 0")]
        theirs = [each async for each in client.grants(session_id=held.session_id)]
        open_ones = [each async for each in client.grants(how="")]
        of_token = [each async for each in client.grants(fencing_token=held.fencing_token)]

        assert len(everything) == 6
        assert [each.how for each in zero] == ["released"] * 3 + [""]
        assert [each.fencing_token for each in theirs] == [held.fencing_token]
        assert theirs == open_ones
        assert [each.grant_id for each in of_token] == [held.grant_id]
        assert [each async for each in client.grants(how="forced")] == []


@in_memory
async def test_force_needs_a_name_and_a_reason(world: MemoryCluster) -> None:
    """And a grant that holds."""
    async with world.client() as client:
        with pytest.raises(NotOwnerError):
            await client.revoke("nobody's", by="ops", reason="x")
        async with Lock(client, "daily"):
            with pytest.raises(BadArgumentsError):
                await client.revoke("daily", by=" ", reason="x")
            with pytest.raises(NotOwnerError):
                await client.revoke("daily", by="ops", reason="x", grant_id="77-777")
