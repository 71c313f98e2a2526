"""/v1/locks: acquire one or several (the wait is in the server), release, abandon, look at."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from msgspec.structs import replace

from coordinator.model.acquire import Acquire
from coordinator.model.grants import GrantReply
from coordinator.model.views import LockList
from coordinator.service.locks.attempts import AcquireOptions
from coordinator.service.locks.contenders import LOCKS
from coordinator.service.locks.service import LockService
from coordinator.state.commands import HeldCondition
from coordinator.wire.codec import to_body
from coordinator.wire.lock_requests import read_acquire, read_acquire_several
from coordinator.wire.request import Answer, Answered, IncomingRequest
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.queries import CONDITIONS, READ_MODES, Query
from coordinator.wire.routes.queues import QueueRoutes, name_in
from coordinator.wire.routes.route import Route

LIST_LIMIT_MAX = 10_000
PAGE_MAX = 1_000
"""A page of a greater limit is shorter than asked for, and goes on behind its ``next``."""


class LockRoutes(QueueRoutes):
    """The routes of one door."""

    @property
    def _service(self) -> LockService:
        return self._door.member.locks

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of locks."""
        one = "/v1/locks/{name}"
        return (
            Route("GET", "/v1/locks", self.list, "list_locks"),
            Route("POST", "/v1/locks", self.acquire_several, "acquire_locks"),
            Route("GET", one, self.look, "get_lock"),
            Route("POST", one, self.acquire, "acquire_lock"),
            Route("DELETE", f"{one}/grants/{{grant_id}}", self.release, "release_lock"),
            Route(
                "DELETE",
                f"{one}/attempts/{{client_id}}/{{number}}",
                self.abandon,
                "abandon_lock_attempt",
            ),
        )

    async def acquire(self, request: IncomingRequest) -> Answered:
        """Wait in the queue until the lock is granted, or the time is up."""
        query = Query(request.query, CONDITIONS)
        name = name_in(request)
        body = await self._door.body(request)
        wanted = read_acquire(body)
        return await self._answer(request, name, wanted, conditions(query, body))

    async def acquire_several(self, request: IncomingRequest) -> Answered:
        """Wait until all of the locks are granted at once, or the time is up."""
        query = Query(request.query, CONDITIONS)
        body = await self._door.body(request)
        wanted = read_acquire_several(body)
        LOCKS.directories(wanted.names)  # before a session is opened for it
        return await self._answer(request, wanted.names, wanted, conditions(query, body))

    def _answer(
        self,
        request: IncomingRequest,
        name: str | Sequence[str],
        wanted: Acquire,
        if_held: tuple[HeldCondition, ...],
    ) -> Awaitable[Answered]:
        def enter(how: AcquireOptions) -> Awaitable[GrantReply]:
            return self._service.acquire(name, wanted=wanted, **how)

        return self._acquire(request, wanted, if_held, enter)

    async def look(self, request: IncomingRequest) -> Answer:
        """Return who holds and who waits; with a token only whether it is a current one."""
        door = self._door
        query = Query(request.query, {*READ_MODES, "fencing_token", "session_id"})
        read = await door.member.lock_views.query(
            name_in(request),
            query.read_mode(),
            door.deadline_ms(request),
            fencing_token=query.integer("fencing_token", minimum=0),
            session_id=query.text("session_id"),
            caller=request.caller,
        )
        view = read.value
        lists = {"holders": (view.holders, to_body), "queue": (view.queue, to_body)}
        body = to_body(replace(view, holders=(), queue=()), door.reply_encoding(request))
        return await door.reply_listed(request, body, lists, read)

    async def list(self, request: IncomingRequest) -> Answer:
        """Return a page of the locks that anybody holds."""
        door = self._door
        query = Query(request.query, {*READ_MODES, "after", "limit", "held_ms_min"})
        limit = query.integer("limit", minimum=1, maximum=LIST_LIMIT_MAX)
        held_ms_min = query.integer("held_ms_min", minimum=0)
        read = await door.member.lock_views.list_locks(
            query.read_mode(),
            door.deadline_ms(request),
            after=query.text("after"),
            limit=PAGE_MAX if limit is None else min(limit, PAGE_MAX),
            held_ms_min=held_ms_min or 0,
            caller=request.caller,
        )
        page = read.value
        body = to_body(LockList((), page.next))
        return await door.reply_listed(request, body, {"locks": (page.locks, to_body)}, read)
