"""What scenes of locks share: sessions, grants, waiting for one, and looking."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.model.views import LockView
from coordinator.node.config import Config
from coordinator.service.member import Member
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.state.commands import Kind
from tests.service.fake_cluster import World, settle, soon

LOCK = "daily"
SHARED = AcquireRequest(kind=Kind.SHARED)
WITHOUT_LEASES = Config()
"""Sessions of 10 s: they outlive the tests that do not advance."""


async def opened(world: World, timeout_ms: int | None = None) -> str:
    session = await soon(world.leader.open_session(timeout_ms, "job", None, world.deadline()))
    return session.session_id


async def acquired(
    world: World,
    session_id: str,
    name: str | tuple[str, ...] = "daily",
    wish: AcquireRequest | None = None,
    *,
    at: Member | None = None,
    **options: Any,
) -> GrantReply:
    options.setdefault("request", None)
    options.setdefault("wait_deadline_ms", world.deadline())
    asked = wish or AcquireRequest()
    asked = replace(asked, label=asked.label or "worker")
    member = at or world.leader
    return await member.locks.acquire(name, session_id=session_id, wanted=asked, **options)


def acquiring(world: World, *arguments: Any, **options: Any) -> asyncio.Task[GrantReply]:
    return asyncio.create_task(acquired(world, *arguments, **options))


async def release(world: World, grant: GrantReply, *, at: Member | None = None) -> None:
    member = at or world.leader
    await soon(member.locks.release(grant.lock, grant.grant_id, None, world.deadline()))


def lagging(world: World) -> Member:
    """Return a follower that applies nothing from now on."""
    member_id = next(each for each in reversed(world.members) if each != world.leader_id)
    world.engines[member_id].is_applying = False
    return world.members[member_id]


async def answered_late(world: World, behind: Member, *, catches_up: bool) -> None:
    """Let two seconds pass, in which the member that lags catches up, or does not."""
    await settle()
    if catches_up:
        engine = world.engines[behind.labels()[0]]
        engine.is_applying = True
        engine.catch_up()
    for _ in range(20):
        await world.advance(100)


async def looked(world: World, name: str = "daily", *, at: Member | None = None) -> LockView:
    member = at or world.follower
    return (await soon(member.lock_views.query(name, LINEARIZABLE, world.deadline()))).value


async def queue_of(world: World, name: str = LOCK) -> list[str]:
    """Return the grant ids in the queue, the holder first."""
    view = (await soon(world.leader.lock_views.query(name, LINEARIZABLE, world.deadline()))).value
    holder = [] if view.holder is None else [view.holder.grant_id]
    return holder + [each.grant_id for each in view.queue]
