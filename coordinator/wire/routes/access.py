"""/v1/access: who the caller is, the roles, the identities and their tokens; and to turn it on.

A token is drawn by the client that asks for it; it sends the digest only. For a person with curl
the member draws it, and shows it once; then the request has no number, because a repeated one could
not be answered with the same token.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from coordinator.errors import BadArgumentsError
from coordinator.model.access import DIGEST_BYTES, Verb
from coordinator.model.access_requests import (
    AccessReply,
    IdentityPage,
    IdentityRequest,
    InitAccessRequest,
    QuotaPage,
    QuotaRequest,
    RolePage,
    RoleRequest,
    SetAccessRequest,
    TokenReply,
    TokenRequest,
    quota_changes,
)
from coordinator.model.tokens import SECRET_BYTES, digest_of, drawn_id, token_id_in, token_of
from coordinator.service.reads.reads import ReadReply
from coordinator.service.writes.proposals import Committed, RequestContext
from coordinator.state.commands import (
    AddToken,
    DropIdentity,
    DropRole,
    DropToken,
    InitAccess,
    Operation,
    PutIdentity,
    PutRole,
    SetAccess,
)
from coordinator.state.outcomes import AccessChanged
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.if_held import IF_HELD
from coordinator.wire.request import Answer, IncomingRequest
from coordinator.wire.routes.bodies import SMALL, BodyBounds
from coordinator.wire.routes.conditions import conditions
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.paths import name_at
from coordinator.wire.routes.queries import CONDITIONS, READ_MODES, Query
from coordinator.wire.routes.route import Route
from coordinator.wire.strict_json import shortened

PAGE_MAX = 100
_NAME = 3
_RULES = BodyBounds(256 * 1024, 5_000)
_ID_BYTES = 16
_CAN_QUERY = ("identity", "verb", "resource")
_PAGE_QUERY = frozenset({*READ_MODES, "after", "limit"})

Body = TypeVar("Body")


class AccessRoutes:
    """The routes of one door."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def routes(self) -> tuple[Route, ...]:
        """Return the routes of access rights."""
        base = "/v1/access"
        role, identity = f"{base}/roles/{{role}}", f"{base}/identities/{{identity}}"
        return (
            Route("GET", base, self.view, "get_access"),
            Route("PUT", base, self.turn, "set_access"),
            Route("POST", f"{base}/init", self.init, "init_access"),
            Route("GET", f"{base}/me", self.me, "get_caller"),
            Route("GET", f"{base}/can", self.explain, "explain_access"),
            Route("GET", f"{base}/roles", self.roles, "list_roles"),
            Route("PUT", role, self.put_role, "put_role"),
            Route("DELETE", role, self.drop_role, "drop_role"),
            Route("GET", f"{base}/identities", self.identities, "list_identities"),
            Route("PUT", identity, self.put_identity, "put_identity"),
            Route("DELETE", identity, self.drop_identity, "drop_identity"),
            Route("GET", f"{base}/quotas", self.quotas, "list_quotas"),
            Route("GET", f"{identity}/quota", self.quota, "get_quota"),
            Route("PATCH", f"{identity}/quota", self.set_quota, "set_quota"),
            Route("POST", f"{identity}/tokens", self.add_token, "add_token"),
            Route("DELETE", f"{base}/tokens/{{token_id}}", self.drop_token, "drop_token"),
        )

    # --- what there is

    async def view(self, request: IncomingRequest) -> Answer:
        """Return whether rights are checked."""
        door = self._door
        mode = Query(request.query, READ_MODES).read_mode()
        read = await door.member.access.view(mode, door.deadline_ms(request))
        return door.reply_read(request, read.value, read)

    async def me(self, request: IncomingRequest) -> Answer:
        """Return who the caller is."""
        door = self._door
        Query(request.query)
        read = await door.member.access.me(request.caller, door.deadline_ms(request))
        return door.reply_read(request, read.value, read)

    async def explain(self, request: IncomingRequest) -> Answer:
        """Return whether an identity may do something, and by which rules."""
        door = self._door
        query = Query(request.query, _CAN_QUERY)
        identity, verb, resource = (_needed(query, each) for each in _CAN_QUERY)
        if verb not in set(Verb):
            raise BadArgumentsError(
                f"query.verb: expected one of {', '.join(Verb)}, found {shortened(ascii(verb))}"
            )
        read = await door.member.access.explain(
            request.caller, identity, Verb(verb), resource, door.deadline_ms(request)
        )
        return door.reply_read(request, read.value, read)

    async def roles(self, request: IncomingRequest) -> Answer:
        """Return a page of the roles."""
        return await self._page(request, self._door.member.access.roles, RolePage, "roles")

    async def identities(self, request: IncomingRequest) -> Answer:
        """Return a page of the identities; of their tokens never more than ids."""
        look = self._door.member.access.identities
        return await self._page(request, look, IdentityPage, "identities")

    async def quotas(self, request: IncomingRequest) -> Answer:
        """Return a page of the identities' quotas, and how much of them is used."""
        return await self._page(request, self._door.member.access.quotas, QuotaPage, "quotas")

    async def _page(
        self,
        request: IncomingRequest,
        look: Callable[..., Awaitable[ReadReply[Any]]],
        page: Callable[[tuple[()], Any], Any],
        name: str,
    ) -> Answer:
        """Return what ``look`` finds, as a ``page`` whose field ``name`` is encoded in slices."""
        door = self._door
        query = Query(request.query, _PAGE_QUERY)
        read = await look(
            request.caller,
            query.read_mode(),
            door.deadline_ms(request),
            after=query.text("after") or "",
            limit=query.integer("limit", minimum=1, maximum=PAGE_MAX) or PAGE_MAX,
        )
        lists = {name: (getattr(read.value, name), to_body)}
        return await door.reply_listed(request, to_body(page((), read.value.next)), lists, read)

    async def quota(self, request: IncomingRequest) -> Answer:
        """Return the quota of an identity, and how much of it is used."""
        door = self._door
        read = await door.member.access.quota(
            request.caller,
            _name(request, "identity"),
            Query(request.query, READ_MODES).read_mode(),
            door.deadline_ms(request),
        )
        return door.reply_read(request, read.value, read)

    # --- changes

    async def init(self, request: IncomingRequest) -> Answer:
        """Turn access rights on; the first identity may do everything."""
        body, context = await self._read(request, InitAccessRequest)
        token = self._token(request, body.token_id, body.digest)
        operation = InitAccess(body.identity, token.token_id, token.digest, body.expires_ms)
        committed = await self._submit(operation, context)
        return self._added(request, committed, body.identity, token, body.expires_ms)

    async def turn(self, request: IncomingRequest) -> Answer:
        """Turn access rights off, or on again."""
        body, context = await self._read(request, SetAccessRequest)
        return self._changed(request, await self._submit(SetAccess(body.is_on), context))

    async def put_role(self, request: IncomingRequest) -> Answer:
        """Make a role, or put other rules in place of its own."""
        body, context = await self._read(request, RoleRequest, _RULES)
        operation = PutRole(_name(request, "role"), body.rules)
        return self._changed(request, await self._submit(operation, context))

    async def drop_role(self, request: IncomingRequest) -> Answer:
        """Forget a role that no identity has."""
        operation = DropRole(_name(request, "role"))
        return self._changed(request, await self._submit(operation, self._deleting(request)))

    async def put_identity(self, request: IncomingRequest) -> Answer:
        """Make an identity, or change its roles and subjects."""
        body, context = await self._read(request, IdentityRequest)
        operation = PutIdentity(
            _name(request, "identity"), body.roles, body.subjects, quota_changes(body.quota)
        )
        return self._changed(request, await self._submit(operation, context))

    async def set_quota(self, request: IncomingRequest) -> Answer:
        """Change the quota of an identity; its roles and subjects stay."""
        body, context = await self._read(request, QuotaRequest)
        name = _name(request, "identity")
        operation = PutIdentity(name, None, None, quota_changes(body.quota))
        return self._changed(request, await self._submit(operation, context))

    async def drop_identity(self, request: IncomingRequest) -> Answer:
        """Forget an identity, its credentials and its sessions."""
        operation = DropIdentity(_name(request, "identity"))
        return self._changed(request, await self._submit(operation, self._deleting(request)))

    async def add_token(self, request: IncomingRequest) -> Answer:
        """Give an identity one more token."""
        body, context = await self._read(request, TokenRequest)
        token, identity = (
            self._token(request, body.token_id, body.digest),
            _name(request, "identity"),
        )
        operation = AddToken(identity, token.token_id, token.digest, body.expires_ms, body.label)
        committed = await self._submit(operation, context)
        return self._added(request, committed, identity, token, body.expires_ms)

    async def drop_token(self, request: IncomingRequest) -> Answer:
        """Revoke a token: the sessions that were opened with it end."""
        token_id = _name(request, "token_id")
        if (found := token_id_in(token_id)) is not None:
            raise BadArgumentsError(
                f"expected the id of a token, found a whole token, of id {found}; paths are not"
                " secret: revoke it by its id"
            )
        operation = DropToken(token_id)
        return self._changed(request, await self._submit(operation, self._deleting(request)))

    # --- what they share

    async def _read(
        self, request: IncomingRequest, kind: type[Body], bounds: BodyBounds = SMALL
    ) -> tuple[Body, RequestContext]:
        query = Query(request.query, CONDITIONS)
        body = await self._door.body(request, bounds)
        return from_body(kind, body, beside=IF_HELD), self._context(request, query, body)

    def _deleting(self, request: IncomingRequest) -> RequestContext:
        return self._context(request, Query(request.query, CONDITIONS), None)

    def _context(self, request: IncomingRequest, query: Query, body: object) -> RequestContext:
        door = self._door
        return RequestContext(
            door.request_id(request),
            door.deadline_ms(request),
            caller=request.caller,
            if_held=conditions(query, body),
        )

    async def _submit(self, operation: Operation, context: RequestContext) -> Committed:
        return await self._door.member.proposer.submit(operation, context)

    def _token(self, request: IncomingRequest, token_id: str, digest: bytes) -> Drawn:
        """Return the token that is brought by its digest, or a new one."""
        if digest:
            if len(digest) != DIGEST_BYTES or not token_id:
                raise BadArgumentsError(
                    f"body: expected token_id and digest ({DIGEST_BYTES} bytes, the SHA-256 of the "
                    f"token) or neither, found a digest of {len(digest)} bytes"
                )
            return Drawn(token_id, digest, "")
        if token_id or self._door.request_id(request) is not None:
            raise BadArgumentsError(
                "body.digest: expected the digest of a token with a token_id, or with a request "
                "number (a token that the member draws is shown once), found none"
            )
        token_id = drawn_id(secrets.token_bytes(_ID_BYTES))
        token = token_of(token_id, secrets.token_bytes(SECRET_BYTES))
        return Drawn(token_id, digest_of(token), token)

    def _added(
        self,
        request: IncomingRequest,
        committed: Committed,
        identity: str,
        token: Drawn,
        expires_ms: int,
    ) -> Answer:
        zxid = committed.outcome.zxid
        reply = TokenReply(identity, token.token_id, expires_ms, zxid, token.token)
        headers = {"Cache-Control": "no-store"}
        return self._door.reply(
            request, reply, zxid=zxid, index=committed.index, status=201, headers=headers
        )

    def _changed(self, request: IncomingRequest, committed: Committed) -> Answer:
        done = committed.result(AccessChanged)
        zxid = committed.outcome.zxid
        reply = AccessReply(done.was_changed, done.revision, zxid)
        return self._door.reply(request, reply, zxid=zxid, index=committed.index)


class Drawn(NamedTuple):
    """A token to be added; its text only if it was drawn here."""

    token_id: str
    digest: bytes
    token: str

    def __repr__(self) -> str:
        return f"Drawn({self.token_id!r})"  # not the token


def _name(request: IncomingRequest, what: str) -> str:
    return name_at(request.target, _NAME, what)


def _needed(query: Query, name: str) -> str:
    text = query.text(name)
    if not text:
        raise BadArgumentsError(f"query.{name}: expected it, found nothing")
    return text
