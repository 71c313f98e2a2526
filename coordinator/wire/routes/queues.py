"""The routes that locks and elections have in common: acquire, release, abandon."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from coordinator.model.acquire import Acquire
from coordinator.model.grants import AbandonReply, GrantReply, ReleaseReply
from coordinator.service.locks.attempts import AcquireOptions
from coordinator.service.locks.service import QueueService
from coordinator.state.commands import HeldCondition
from coordinator.wire.request import Answer, Answered, IncomingRequest
from coordinator.wire.routes.acquire import AcquireHandler, Entering, wait_deadline_ms
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.door import Door, checked_client_id
from coordinator.wire.routes.paths import name_at
from coordinator.wire.routes.queries import CONDITIONS, Query, parsed_integer

_NAME, _GRANT_ID = 2, 4
_CLIENT_ID, _NUMBER = 4, 5

Enter = Callable[[AcquireOptions], Awaitable[GrantReply]]
"""Waits for the grant, and returns it."""


class QueueRoutes:
    """The routes of one door's queues; subclasses say of locks or of elections."""

    def __init__(self, door: Door) -> None:
        self._door = door

    @property
    def _service(self) -> QueueService:
        raise NotImplementedError

    def _acquire(
        self,
        request: IncomingRequest,
        wanted: Acquire,
        if_held: tuple[HeldCondition, ...],
        enter: Enter,
    ) -> Awaitable[Answered]:
        """Answer with the grant, or why there is none."""
        door = self._door
        request_id = door.request_id(request)
        deadline_ms = wait_deadline_ms(door, request, wanted)

        def begin(entering: Entering) -> Awaitable[GrantReply]:
            return enter(
                {
                    "session_id": entering.session_id,
                    "opening": entering.opening,
                    "request": request_id,
                    "caller": request.caller,
                    "wait_deadline_ms": deadline_ms,
                    "is_try": wanted.timeout_ms == 0,
                    "if_held": if_held,
                    "own_request": None if entering.kept is None else entering.kept.request,
                    "on_entered": None if entering.kept is None else entering.kept.on_entered,
                    "on_queued": entering.on_queued,
                    "on_position": entering.on_position,
                    "leave_on_cancel": wanted.on_disconnect == "leave",
                }
            )

        def give_back(grant: GrantReply, deadline_ms: int) -> Awaitable[object]:
            # With a request number its client may hold this grant at another member.
            return self._service.release(
                grant.lock,
                grant.grant_id,
                None,
                deadline_ms,
                caller=request.caller,
                spares_repeated=request_id is not None,
            )

        handler = AcquireHandler(
            door, request, wanted, request_id=request_id, begin=begin, give_back=give_back
        )
        return handler.answer()

    async def release(self, request: IncomingRequest) -> Answer:
        """Release a grant, or leave the queue; again if need be, and never another client's."""
        door = self._door
        query = Query(request.query, CONDITIONS)
        grant_id = grant_id_in(request)
        await self._service.release(
            name_in(request),
            grant_id,
            door.request_id(request),
            door.deadline_ms(request),
            caller=request.caller,
            if_held=conditions(query),
        )
        return door.reply_now(request, ReleaseReply(grant_id))

    async def abandon(self, request: IncomingRequest) -> Answer:
        """Undo an attempt whose answer never came."""
        door = self._door
        query = Query(request.query, ("floor_index",))
        client_id = checked_client_id(name_at(request.target, _CLIENT_ID, "client_id"))
        number = parsed_integer(name_at(request.target, _NUMBER, "number"), "number", minimum=1)
        floor_index = query.integer("floor_index", minimum=0) or 0
        abandoned = await self._service.abandon(
            name_in(request),
            client_id,
            number,
            floor_index,
            door.deadline_ms(request),
            caller=request.caller,
        )
        return door.reply_now(request, AbandonReply(abandoned.deleted_path))


def name_in(request: IncomingRequest) -> str:
    """Return the name of the lock or election in the URL."""
    return name_at(request.target, _NAME, "name")


def grant_id_in(request: IncomingRequest) -> str:
    """Return the grant id in the URL."""
    return name_at(request.target, _GRANT_ID, "grant_id")
