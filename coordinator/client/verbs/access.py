"""The verbs of access rights: roles, identities, their tokens, and who may do what.

A token is drawn here. Only its digest is sent, so the cluster never has what would open its door.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from coordinator.client.calling.calls import Call, queried, target_of
from coordinator.client.verbs.verb_group import VerbGroup
from coordinator.model.access import IdentityView, RoleView, Rule, Verb
from coordinator.model.access_requests import (
    NO_OWN_QUOTA,
    AccessReply,
    AccessView,
    IdentityPage,
    IdentityRequest,
    InitAccessRequest,
    Me,
    QuotaPage,
    QuotaRequest,
    QuotaView,
    RolePage,
    RoleRequest,
    SetAccessRequest,
    TokenReply,
    TokenRequest,
    Verdict,
)
from coordinator.model.tokens import SECRET_BYTES, digest_of, drawn_id, token_id_in, token_of
from coordinator.wire.codec import reader

_ID_BYTES = 16


def new_token() -> tuple[str, str]:
    """Draw a token; return its id, and the whole of it."""
    token_id = drawn_id(secrets.token_bytes(_ID_BYTES))
    return token_id, token_of(token_id, secrets.token_bytes(SECRET_BYTES))


class AccessVerbs(VerbGroup):
    """The verbs that read and change access rights."""

    async def access(self) -> AccessView:
        """Return whether access rights are on.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._read(Call("GET", "/v1/access"), reader(AccessView))

    async def caller(self) -> Me:
        """Return who this client is to the cluster, and its roles.

        Raises:
            AuthFailedError: its token is not accepted.
            UnavailableError: no member answered in time.
        """
        return await self._read(Call("GET", "/v1/access/me"), reader(Me))

    async def roles(self) -> tuple[RoleView, ...]:
        """Return all roles with their rules, by name.

        Raises:
            UnavailableError: no member answered in time.
        """
        pages = self._pages("/v1/access/roles", (), reader(RolePage))
        return tuple([each async for page in pages for each in page.roles])

    async def identities(self) -> tuple[IdentityView, ...]:
        """Return all identities, their roles and the ids of their tokens, by name.

        Raises:
            UnavailableError: no member answered in time.
        """
        pages = self._pages("/v1/access/identities", (), reader(IdentityPage))
        return tuple([each async for page in pages for each in page.identities])

    async def can(self, identity: str, verb: Verb | str, resource: str) -> Verdict:
        """Return whether an identity may do something, by which rules, or what is missing.

        Raises:
            UnavailableError: no member answered in time.
        """
        query = [("identity", identity), ("verb", str(verb)), ("resource", resource)]
        return await self._read(Call("GET", "/v1/access/can" + queried(query)), reader(Verdict))

    async def init_access(self, identity: str = "admin", *, expires_ms: int = 0) -> TokenReply:
        """Turn access rights on, with a first identity that may do everything.

        Returns:
            Its token, which is nowhere else.

        Raises:
            NodeExistsError: they are on already.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        token_id, token = new_token()
        body = InitAccessRequest(identity, token_id, digest_of(token), expires_ms)
        return await self._write(Call("POST", "/v1/access/init", body), _with(token))

    async def set_access(self, is_on: bool) -> AccessReply:
        """Turn access rights off, so that everybody may do everything, or on again.

        Raises:
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        body = SetAccessRequest(is_on)
        return await self._write(Call("PUT", "/v1/access", body), reader(AccessReply))

    async def put_role(self, role: str, rules: Iterable[Rule]) -> AccessReply:
        """Make a role, or replace its rules.

        Raises:
            BadArgumentsError: a rule is none.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        call = Call("PUT", target_of("access", "roles", role), RoleRequest(tuple(rules)))
        return await self._write(call, reader(AccessReply))

    async def drop_role(self, role: str) -> AccessReply:
        """Forget a role that no identity has.

        Raises:
            NoNodeError: there is none of this name.
            NotEmptyError: an identity has it.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        call = Call("DELETE", target_of("access", "roles", role))
        return await self._write(call, reader(AccessReply))

    async def put_identity(
        self,
        identity: str,
        roles: Iterable[str] = (),
        subjects: Iterable[str] = (),
        *,
        quota: Mapping[str, int | None] | None = None,
    ) -> AccessReply:
        """Make an identity, or change its roles and what else proves it; its tokens stay.

        ``quota`` changes what it names, as ``set_quota`` does.

        Raises:
            NoNodeError: there is no such role.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        body = IdentityRequest(tuple(roles), tuple(subjects), _in_body(quota or {}))
        call = Call("PUT", target_of("access", "identities", identity), body)
        return await self._write(call, reader(AccessReply))

    async def set_quota(self, identity: str, quota: Mapping[str, int | None]) -> AccessReply:
        """Change how much an identity may have; what is not named stays.

        Args:
            quota: by ``sessions``, ``znodes``, ``bytes`` and ``waiters``; None: as much as the
                limit ``..._per_identity_max`` says.

        Raises:
            NoNodeError: there is no such identity.
            BadArgumentsError: a name or a number is none of a quota.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        target = target_of("access", "identities", identity, "quota")
        call = Call("PATCH", target, QuotaRequest(_in_body(quota)))
        return await self._write(call, reader(AccessReply))

    async def quota(self, identity: str) -> QuotaView:
        """Return how much an identity may have of what, and how much it has.

        Raises:
            NoNodeError: there is no such identity.
            UnavailableError: no member answered in time.
        """
        target = target_of("access", "identities", identity, "quota")
        return await self._read(Call("GET", target), reader(QuotaView))

    async def quotas(self) -> tuple[QuotaView, ...]:
        """Return the quotas of all identities, by name, and how much of them is used.

        Raises:
            UnavailableError: no member answered in time.
        """
        pages = self._pages("/v1/access/quotas", (), reader(QuotaPage))
        return tuple([each async for page in pages for each in page.quotas])

    async def drop_identity(self, identity: str) -> AccessReply:
        """Forget an identity: its credentials are worth nothing, and its sessions have ended.

        Raises:
            NoNodeError: there is none of this name.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        call = Call("DELETE", target_of("access", "identities", identity))
        return await self._write(call, reader(AccessReply))

    async def add_token(self, identity: str, *, expires_ms: int = 0, label: str = "") -> TokenReply:
        """Give an identity one more token.

        Args:
            expires_ms: wall time in ms at which it expires; 0 is never.
            label: for people.

        Returns:
            The token, which is nowhere else.

        Raises:
            NoNodeError: there is no such identity.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        token_id, token = new_token()
        body = TokenRequest(token_id, digest_of(token), expires_ms, label)
        call = Call("POST", target_of("access", "identities", identity, "tokens"), body)
        return await self._write(call, _with(token))

    async def drop_token(self, token_id: str) -> AccessReply:
        """Revoke a token at once, on all members; the sessions opened with it have ended.

        Args:
            token_id: its id, or the whole token, which is not sent.

        Raises:
            NoNodeError: there is none of this id.
            UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
        """
        # Who has the token itself may give that: it leaves this process in no path and no error.
        shown = token_id_in(token_id) or token_id
        call = Call("DELETE", target_of("access", "tokens", shown))
        return await self._write(call, reader(AccessReply))


def _with(token: str) -> Callable[[Any], TokenReply]:
    """Return what reads the answer to a request for a token, and puts in the token itself."""
    read = reader(TokenReply)

    def added(body: Any) -> TokenReply:
        reply = read(body)
        return TokenReply(reply.identity, reply.token_id, reply.expires_ms, reply.zxid, token)

    return added


def _in_body(quota: Mapping[str, int | None]) -> dict[str, int]:
    return {what: NO_OWN_QUOTA if value is None else value for what, value in quota.items()}
