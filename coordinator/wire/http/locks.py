"""/v1/locks: acquire (the wait is in the server), release, abandon, look at."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from coordinator.service.locks import ContenderView, HolderInfo
from coordinator.wire.http.attempts import Attempt, Contest, attempt_id, wait_deadline_ms
from coordinator.wire.http.door import Door
from coordinator.wire.http.paths import name_at
from coordinator.wire.http.queries import READ_MODES, Query
from coordinator.wire.http.routes import Route
from coordinator.wire.messages import acquire
from coordinator.wire.messages import locks as shapes

LIST_LIMIT_DEFAULT = 1_000
LIST_LIMIT_MAX = 10_000

_NAME, _GRANT_ID = 2, 4


class LockRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        one = "/v1/locks/{name}"
        return (
            Route("GET", "/v1/locks", self.list, "list_locks"),
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

    async def acquire(self, request: web.Request) -> web.StreamResponse:
        """Wait in the queue until the lock is granted, or the time is up."""
        door = self._door
        Query(request.rel_url.raw_query_string)
        name = _name(request)
        asked = acquire.Acquire.from_body(await door.body(request))
        request_id = door.request_id(request)
        deadline_ms = wait_deadline_ms(door, request, asked)

        async def begin(
            session_id: str, on_position: Callable[[int], None] | None
        ) -> acquire.Grant:
            grant = await door.member.locks.acquire(
                name,
                session_id=session_id,
                request=request_id,
                holder=HolderInfo(asked.label, asked.host, asked.pid, asked.trace_id),
                wait_deadline_ms=deadline_ms,
                is_try=asked.timeout_ms == 0,
                on_position=on_position,
                leave_on_cancel=asked.on_disconnect == "leave",
            )
            return acquire.Grant(
                grant_id=grant.grant_id,
                lock=grant.lock,
                fencing_token=grant.fencing_token,
                session_id=grant.session_id,
                path=grant.path,
                zxid=grant.zxid,
            )

        async def give_back(grant: acquire.Grant) -> object:
            return await door.member.locks.release(
                name, grant.grant_id, None, door.cleanup_deadline_ms()
            )

        return await Attempt(door, request, asked, Contest(begin, give_back)).answer()

    async def release(self, request: web.Request) -> web.Response:
        """Release a grant; again if need be, and never somebody else's."""
        door = self._door
        Query(request.rel_url.raw_query_string)
        grant_id = name_at(request.path_qs, _GRANT_ID, "grant_id")
        await door.member.locks.release(
            _name(request), grant_id, door.request_id(request), door.deadline_ms(request)
        )
        return door.reply_now(request, acquire.ReleaseReply(grant_id).to_body())

    async def abandon(self, request: web.Request) -> web.Response:
        """Undo an attempt whose answer never came."""
        door = self._door
        client_id, number, floor_index = attempt_id(request)
        abandoned = await door.member.locks.abandon(
            _name(request), client_id, number, floor_index, door.deadline_ms(request)
        )
        return door.reply_now(request, acquire.AbandonReply(abandoned.deleted_path).to_body())

    async def look(self, request: web.Request) -> web.Response:
        """Return who holds and who waits; with a token also whether it is the current one."""
        door = self._door
        query = Query(request.rel_url.raw_query_string, {*READ_MODES, "fencing_token"})
        token = query.integer("fencing_token", minimum=0)
        name = _name(request)
        read = await door.member.locks.query(name, query.read_mode(), door.deadline_ms(request))
        view = read.value
        body = shapes.LockView(
            lock=name,
            holder=None if view.holder is None else _contender(view.holder),
            queue=tuple(_contender(each) for each in view.queue),
            zxid=read.zxid,
            is_current=None
            if token is None
            else view.holder is not None and view.holder.fencing_token == token,
        ).to_body()
        return door.reply_read(request, body, read)

    async def list(self, request: web.Request) -> web.Response:
        """Return a page of the locks that anybody holds or waits for."""
        door = self._door
        query = Query(
            request.rel_url.raw_query_string, {*READ_MODES, "after", "limit", "held_ms_min"}
        )
        limit = query.integer("limit", minimum=1, maximum=LIST_LIMIT_MAX)
        held_ms_min = query.integer("held_ms_min", minimum=0)
        read = await door.member.locks.list_locks(
            query.read_mode(),
            door.deadline_ms(request),
            after=query.text("after"),
            limit=LIST_LIMIT_DEFAULT if limit is None else limit,
            held_ms_min=held_ms_min or 0,
        )
        page = read.value
        body = shapes.LockList(
            locks=tuple(
                shapes.LockSummary(
                    lock=each.lock,
                    holder=None if each.holder is None else _contender(each.holder),
                    queue_length=each.queue_length,
                    held_ms=each.held_ms,
                )
                for each in page.locks
            ),
            next=page.next,
        ).to_body()
        return door.reply_read(request, body, read)


def _name(request: web.Request) -> str:
    return name_at(request.path_qs, _NAME, "name")


def _contender(view: ContenderView) -> shapes.Contender:
    return shapes.Contender(
        grant_id=view.grant_id,
        fencing_token=view.fencing_token,
        session_id=view.session_id,
        path=view.path,
        position=view.position,
        since_ms=view.since_ms,
        label=view.label,
        host=view.host,
        pid=view.pid,
        trace_id=view.trace_id,
    )
