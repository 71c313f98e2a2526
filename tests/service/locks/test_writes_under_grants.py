"""Writes on the condition that a grant holds: done, refused, late, repeated."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.errors import (
    CoordinatorError,
    LockLostError,
    OutcomeUnknownError,
)
from coordinator.service.locks.contenders import ELECTIONS, LOCKS
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    Create,
    Delete,
    HeldCondition,
    Multi,
    RequestId,
    SetData,
)
from tests.service.fake_cluster import cluster, settle, soon
from tests.service.locks.lock_scenes import (
    WITHOUT_LEASES,
    acquired,
    looked,
    opened,
    release,
)


async def test_a_write_under_a_grant_is_done_only_while_it_holds() -> None:
    """Decided in its own entry: the late write of a former holder is refused and does nothing."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        await world.leader.proposer.submit(Create("/data"), RequestContext(None, world.deadline()))
        held = await soon(acquired(world, session_id))
        own = (HeldCondition(LOCKS.directory("daily"), held.fencing_token),)

        async def write(data: bytes) -> None:
            await world.follower.proposer.submit(
                SetData("/data", data), RequestContext(None, world.deadline(), if_held=own)
            )

        await soon(write(b"1"))
        await release(world, held)
        later = await soon(acquired(world, session_id))
        with pytest.raises(LockLostError) as caught:
            await soon(write(b"2"))

        assert caught.value.definite
        assert caught.value.fencing_token == held.fencing_token
        assert list(caught.value.holder_tokens) == [later.fencing_token]
        found = (await soon(world.leader.get("/data", LINEARIZABLE, world.deadline()))).value
        assert found[0] == b"1"


async def test_a_late_write_is_in_the_audit_log_of_the_leader_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was to be written, and by the holder of which token; other refusals are not."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        await release(world, held)
        late = (HeldCondition(LOCKS.directory("daily"), held.fencing_token),)
        writes = Multi((SetData("/result", b"41"), *(Delete(f"/old/{n}") for n in range(7))))
        with caplog.at_level(logging.WARNING, "coordinator.audit"):
            for operation, if_held in ((SetData("/nothing", b""), ()), (writes, late)):
                with pytest.raises(CoordinatorError):
                    await soon(
                        world.follower.proposer.submit(
                            operation, RequestContext(None, world.deadline(), if_held=if_held)
                        )
                    )

        (message,) = caplog.messages
        assert "SetData '/result', Delete '/old/0'" in message
        assert message.count("Delete") == 4
        assert "and 3 more" in message
        assert f"expected 'daily' to be held with fencing token {held.fencing_token}" in message


async def test_a_conditional_write_whose_answer_was_lost_is_not_said_to_have_failed() -> None:
    """With a request number it is answered as the first time, though the grant has ended since."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("client", 1)
        held = await soon(acquired(world, session_id))
        own = (HeldCondition(LOCKS.directory("daily"), held.fencing_token),)
        lost = [True]
        world.fault = lambda _sender, _receiver, kind: (
            ("reply" if kind == "propose" and lost.pop(0) else None) if lost else None
        )
        task = asyncio.create_task(
            world.follower.proposer.submit(
                Create("/once"), RequestContext(request, world.deadline(), if_held=own)
            )
        )
        await settle()
        await release(world, held)
        await world.advance(200)

        assert (await soon(task)).outcome.refusal is None


async def test_an_idempotent_write_is_not_repeated_under_a_condition() -> None:
    """The first close may have ended the very grant; "refused" would not be the truth."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        lost = [True]
        world.fault = lambda _sender, _receiver, kind: (
            ("reply" if kind == "propose" and lost.pop(0) else None) if lost else None
        )
        closing = world.follower.close_session(
            session_id,
            None,
            world.deadline(),
            if_held=(HeldCondition(LOCKS.directory("daily"), held.fencing_token),),
        )

        with pytest.raises(OutcomeUnknownError):
            await soon(closing)


async def test_an_acquire_may_depend_on_another_grant() -> None:
    """One lock inside another: not granted once the outer one is lost."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        outer = await soon(acquired(world, session_id, "outer"))
        own = (HeldCondition(LOCKS.directory("outer"), outer.fencing_token),)
        inner = await soon(acquired(world, session_id, "inner", if_held=own))
        await release(world, outer)

        with pytest.raises(LockLostError):
            await soon(acquired(world, session_id, "other", if_held=own))
        assert (await looked(world, "other")).queue == ()
        with pytest.raises(LockLostError):
            await soon(
                world.leader.locks.release(
                    "inner", inner.grant_id, None, world.deadline(), if_held=own
                )
            )


async def test_a_write_may_depend_on_being_elected() -> None:
    """The epoch of an election is a fencing token like any other."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        won = await soon(
            world.leader.elections.campaign(
                "primary",
                session_id=session_id,
                request=None,
                value=b"",
                wait_deadline_ms=world.deadline(),
            )
        )
        own = (HeldCondition(ELECTIONS.directory("primary"), won.fencing_token),)
        await world.leader.proposer.submit(
            Create("/a"), RequestContext(None, world.deadline(), if_held=own)
        )
        await soon(world.leader.elections.release("primary", won.grant_id, None, world.deadline()))

        with pytest.raises(LockLostError):
            await world.leader.proposer.submit(
                Create("/b"), RequestContext(None, world.deadline(), if_held=own)
            )
