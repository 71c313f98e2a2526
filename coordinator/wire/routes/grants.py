"""/v1/grants: the history of grants, in pages or as one export, and the story of one of them."""

from __future__ import annotations

from dataclasses import replace

from msgspec.structs import asdict

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.history import ENDS, GrantLine, GrantPage
from coordinator.service.locks.contenders import ELECTIONS, LOCKS
from coordinator.service.locks.history import GrantsWanted
from coordinator.wire import messages
from coordinator.wire.codec import to_body
from coordinator.wire.request import Answer, Answered, IncomingRequest, wants
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.paths import name_at
from coordinator.wire.routes.queries import READ_MODES, Query
from coordinator.wire.routes.route import Route
from coordinator.wire.strict_json import shortened

LIMIT_DEFAULT = 1_000
LIMIT_MAX = 10_000
PAGE_MAX = 1_000
"""A page of a greater limit is shorter than asked for, and goes on behind its ``next``."""
_EXPORT_PAGE = 500

_LOCK, _GRANT_ID = 2, 3
_INTEGERS = ("fencing_token", "since_ms", "until_ms")
_QUERY = frozenset(
    {*READ_MODES, *_INTEGERS, "lock", "election", "session_id", "how", "after", "limit"}
)


class GrantRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of grants and their history."""
        return (
            Route("GET", "/v1/grants", self.list, "list_grants"),
            Route("GET", "/v1/grants/{lock}/{grant_id}", self.story, "get_grant"),
            Route("GET", "/v1/deadlocks", self.deadlocks, "list_deadlocks"),
        )

    async def list(self, request: IncomingRequest) -> Answered:
        """Return the grants that the query asks for, those held now among them."""
        door = self._door
        query = Query(request.query, _QUERY)
        wanted = _wanted(query)
        if wants(request, messages.NDJSON_TYPE):
            return await self._export(request, query, wanted)
        page = replace(wanted, limit=min(wanted.limit, PAGE_MAX))
        read = await door.member.grant_history.page(
            page, query.read_mode(), door.deadline_ms(request), caller=request.caller
        )
        body = to_body(GrantPage((), read.value.next))
        return await door.reply_listed(
            request, body, {"grants": (read.value.grants, to_body)}, read
        )

    async def _export(
        self, request: IncomingRequest, query: Query, wanted: GrantsWanted
    ) -> Answered:
        """Send everything that is asked for, a grant on each line, page by page."""
        door = self._door
        door.refuse_body(request)
        left = wanted.limit if "limit" in query else None
        stream = door.lines(request)
        try:
            while left is None or left > 0:
                limit = _EXPORT_PAGE if left is None else min(left, _EXPORT_PAGE)
                read = await door.member.grant_history.page(
                    replace(wanted, limit=limit),
                    query.read_mode(),
                    door.deadline_ms(request),
                    caller=request.caller,
                )
                for each in read.value.grants:
                    await stream.send(to_body(GrantLine(**asdict(each)), stream.encoding))
                if left is not None:
                    left -= len(read.value.grants)
                if read.value.next is None:
                    break
                wanted = replace(wanted, after=read.value.next)
        except CoordinatorError as error:
            if not stream.is_open:
                raise
            await stream.send_error(error)
        if not stream.is_open:
            await stream.keep_alive()  # nothing was found: a blank line, and the headers with it
        await stream.end()
        return stream

    async def story(self, request: IncomingRequest) -> Answer:
        """Return what became of one grant, and who was granted next."""
        door = self._door
        query = Query(request.query, {*READ_MODES, "election"})
        read = await door.member.grant_history.story(
            ELECTIONS if query.flag("election") else LOCKS,
            name_at(request.target, _LOCK, "lock"),
            name_at(request.target, _GRANT_ID, "grant_id"),
            query.read_mode(),
            door.deadline_ms(request),
            caller=request.caller,
        )
        return door.reply_read(request, read.value, read)

    async def deadlocks(self, request: IncomingRequest) -> Answer:
        """Return the latest requests that were refused for a deadlock."""
        Query(request.query)
        return self._door.reply_now(request, self._door.member.deadlocks.latest(request.caller))


def _wanted(query: Query) -> GrantsWanted:
    lock, election = query.text("lock"), query.text("election")
    if lock is not None and election is not None:
        raise BadArgumentsError("query: expected lock or election, found both")
    directory = None
    if lock is not None:
        directory = LOCKS.directory(lock)
    elif election is not None:
        directory = ELECTIONS.directory(election)
    how = query.text("how")
    if how is not None and how not in ("", *ENDS):
        raise BadArgumentsError(
            f"query.how: expected one of {', '.join(ENDS)}, or nothing for what is held, "
            f"found {shortened(ascii(how))}"
        )
    limit = query.integer("limit", minimum=1, maximum=LIMIT_MAX)
    token, since_ms, until_ms = (query.integer(name, minimum=0) for name in _INTEGERS)
    return GrantsWanted(
        directory=directory,
        session_id=query.text("session_id"),
        fencing_token=token,
        since_ms=since_ms,
        until_ms=until_ms,
        how=how,
        after=query.integer("after", minimum=0) or 0,
        limit=LIMIT_DEFAULT if limit is None else limit,
    )
