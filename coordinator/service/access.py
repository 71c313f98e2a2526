"""Authentication and access rights at one member: the table of the state, and this door.

1. A credential that is not known here may be known elsewhere: this member may lag behind. So it is
   looked for again after a read barrier, and refused only then. These rounds are bounded, however
   many strangers ask: one at a time for all who wait, ``_LOOK_EVERY_MS`` apart.
2. Digests are compared in constant time; a token is kept nowhere, and is in no error and no log.
3. Whether a token has expired is judged here, by the wall clock: apply reads no clock. What was
   begun under it and lasts (a watch, a wait for a lock) ends with it (``Expiry``).
4. A read checks the rights in the same step in which it reads, after its barrier. Writes are
   judged where they are applied. So nothing is done after the change that forbids it.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from coordinator.errors import (
    GONE_FIELD,
    AuthFailedError,
    ConnectionLostError,
    CoordinatorError,
    NoLeaderError,
    NoNodeError,
    RequestForgottenError,
)
from coordinator.model.access import (
    ACCESS,
    ANONYMOUS,
    BY_TOKEN,
    NOBODY,
    QUOTA_LIMITS,
    Caller,
    IdentityView,
    RoleView,
    Verb,
)
from coordinator.model.access_requests import (
    AccessView,
    IdentityPage,
    Me,
    QuotaPage,
    QuotaView,
    RolePage,
    RuleOfRole,
    Use,
    Verdict,
)
from coordinator.model.tokens import digest_of, token_id_in
from coordinator.service.base.context import MemberContext
from coordinator.service.base.places import is_operator
from coordinator.service.base.timers import Timer
from coordinator.service.reads.reads import LINEARIZABLE, ReadMode, ReadReply, Reads
from coordinator.state.access.table import AccessTable, Token
from coordinator.state.commands import RequestId

_LOOK_EVERY_MS = 100
_LOOK_DEADLINE_MS = 2_000
_UNKNOWN_MS = 1_000
"""For so long a credential that was looked for in vain is not looked for again."""
_UNKNOWN_MAX = 1_024
_UNCONFIRMED = "the credential is not known here, and no leader confirmed that it is not known"
CERTIFICATE = "cert:"
"""What the subject of a name in a certificate begins with."""


class Issuer(Protocol):
    """Others who vouch for callers, by tokens of their own. Neither call raises."""

    def subject_of(self, token: str) -> str | None:
        """Return whose ``token`` is, as far as it was verified; None if it proves nothing."""
        ...

    async def prepare(self, token: str) -> None:
        """Verify ``token``, and fetch what that needs; bounded in rate, not in time."""
        ...


class ConnectionProof(NamedTuple):
    """The proof, kept by a connection, that this header is this caller's in this revision."""

    authorization: str
    caller: Caller
    revision: int
    expires_ms: int

    def __repr__(self) -> str:
        return f"ConnectionProof({self.caller!r})"  # not the token


_SCHEME = "bearer"


def bearer(authorization: str | None) -> str | None:
    """Return the token in a header, None if there is none."""
    scheme, _, text = (authorization or "").partition(" ")
    return text.strip() if scheme.lower() == _SCHEME else None


def shown_token(table: AccessTable, text: str) -> Token | None:
    """Return the token that ``text`` proves, which may have expired; None if it proves none."""
    token_id = token_id_in(text)
    token = None if token_id is None else table.token(token_id)
    if token is None or not hmac.compare_digest(token.digest, digest_of(text)):
        return None
    return token


def has_expired(token: Token, wall_ms: int) -> bool:
    """Whether a token has, by this wall clock."""
    return bool(token.expires_ms) and wall_ms >= token.expires_ms


def refuse_expired(table: AccessTable, authorization: str | None, wall_ms: int) -> None:
    """Raise AuthFailedError that names the token, if one is shown that has expired: who shows it
    has owned it, so this says nothing new; and a stranger does not guess it."""
    token = shown_token(table, bearer(authorization) or "")
    if token is not None and has_expired(token, wall_ms):
        raise AuthFailedError(
            f"the token {token.token_id} of {token.caller.identity} has expired: show the next one",
            reason="expired",
            identity=token.caller.identity,
        )


class AccessService:
    """The access rights, as one member serves them.

    ``issuer`` verifies tokens that are not the cluster's own; None: they prove nothing."""

    def __init__(
        self, context: MemberContext, reads: Reads, *, issuer: Issuer | None = None
    ) -> None:
        self._issuer = issuer
        self.replica = context.replica
        self.clock = context.clock
        self.timers = context.timers
        self._tasks = context.tasks
        self._reads = reads
        self._looking: asyncio.Task[CoordinatorError | None] | None = None
        self._has_begun = False
        """Whether its barrier has, so that it may not cover who comes now."""
        self._look_ms = 0
        """When the next round may begin."""
        self._off_until_ms = 0
        """Until when it counts that rights were found to be off."""
        self._unknown: dict[bytes, tuple[int, int, int]] = {}
        """What was looked for in vain, by digest: in which revision, until when it counts, and
        since when it has been known nowhere."""

    @property
    def _table(self) -> AccessTable:
        return self.replica.machine.access

    @property
    def is_on(self) -> bool:
        """Whether rights are checked, as far as this member has come."""
        return self.replica.has_rights

    # --- who asks

    async def caller(
        self, authorization: str | None, names: Sequence[str], deadline_ms: int
    ) -> Caller:
        """Return who shows this header, or a certificate with these names.

        Raises:
            AuthFailedError: it proves no identity, and rights are checked; or nothing was shown,
                and callers without a credential may do nothing.
            NoLeaderError: it is not known here, and no leader confirmed that it is known nowhere.
        """
        arrived_ms = self.clock.monotonic_ms()
        found = self._known(authorization, names)
        token = bearer(authorization)
        if found is None and self._issuer and token and self._subject(authorization) is None:
            try:
                async with self.timers.deadline(deadline_ms):
                    await self._issuer.prepare(token)
            except TimeoutError:
                raise NoLeaderError(
                    "the token could not be verified in time: others that prove nothing are before"
                    " it, or its issuer does not answer"
                ) from None
            found = self._known(authorization, names)
        gone: dict[str, int] = {}
        if found is None:
            text = "\n".join([authorization or "", *names])
            shown = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
            if not self._is_known_as_unknown(shown):
                await self._look(deadline_ms)
                found = self._known(authorization, names)
                if found is None:
                    self._note_unknown(shown, arrived_ms)
            since_ms = self._unknown.get(shown, (0, 0, arrived_ms))[2]
            gone = self._gone(authorization, names, arrived_ms - since_ms)
        table = self._table
        if found is not None and found.credential:
            return found
        if not table.is_on:
            return NOBODY
        if found is None and (subject := self._subject(authorization)) is not None:
            raise AuthFailedError(
                f"the token is of {subject}, and no identity has this subject "
                "(coordinator access identity put NAME --subject SUBJECT)",
                subject=subject,
                **gone,
            )
        if found is None and authorization is not None:
            refuse_expired(table, authorization, self.clock.wall_ms())
            raise AuthFailedError(
                "the token is not known, or was revoked: expected "
                "'Authorization: Bearer co_...' with one of an identity of this cluster",
                **gone,
            )
        if not table.has_rules(NOBODY):
            raise AuthFailedError(
                "a credential is needed: access rights are on, and nothing is allowed without one; "
                "give the client a token (token_file, COORDINATOR_TOKEN_FILE)",
                **gone,
            )
        return NOBODY

    def proof(self, authorization: str, caller: Caller) -> ConnectionProof | None:
        """Return what spares the next request with this header its proof; None if nothing does."""
        table = self._table
        if not caller.credential.startswith(BY_TOKEN):
            return None
        token = table.token(caller.credential.removeprefix(BY_TOKEN))
        if token is None or token.caller != caller:
            return None
        return ConnectionProof(authorization, caller, table.revision, token.expires_ms)

    def holds(self, proof: ConnectionProof) -> bool:
        """Say whether it counts still: the rights are the same, and the token has not expired."""
        if proof.revision != self._table.revision:
            return False
        return not proof.expires_ms or self.clock.wall_ms() < proof.expires_ms

    async def is_off(self, deadline_ms: int) -> bool:
        """Say whether rights are off in the cluster; a member that has just started may lag.

        Raises:
            NoLeaderError: they are off here, and no leader confirmed that they are off elsewhere.
        """
        if not self._table.is_on and self.clock.monotonic_ms() >= self._off_until_ms:
            await self._look(deadline_ms)
            self._off_until_ms = self.clock.monotonic_ms() + _UNKNOWN_MS
        return not self._table.is_on

    def identity(self, names: Sequence[str]) -> str:
        """Return whose certificate has these names, as far as this member knows; "" if unknown."""
        found = self._known(None, names)
        return "" if found is None else found.identity

    def identity_of_token(self, authorization: str) -> str:
        """Return whose token of the cluster this is, as far as this member knows; "" if unknown.
        Tokens of issuers are not looked at, which takes longer."""
        if token_id_in(bearer(authorization) or "") is None:
            return ""
        found = self._known(authorization, ())
        return "" if found is None else found.identity

    def _known(self, authorization: str | None, names: Sequence[str]) -> Caller | None:
        """Return who shows this, as far as this member has applied; None if nothing proves it."""
        table = self._table
        if authorization is not None:
            text = bearer(authorization)
            token_id = None if text is None else token_id_in(text)
            if text is None or token_id is None:
                subject = self._subject(authorization)
                return None if subject is None else table.by_subject(subject)
            token = shown_token(table, text)
            if token is None or has_expired(token, self.clock.wall_ms()):
                return None
            return token.caller
        for name in names:
            found = table.by_subject(CERTIFICATE + name)
            if found is not None:
                return found
        return None if names else NOBODY

    def _subject(self, authorization: str | None) -> str | None:
        """Return for whom an issuer vouches with this token, None if it is none of an issuer."""
        text = None if self._issuer is None else bearer(authorization)
        if text is None or self._issuer is None or token_id_in(text) is not None:
            return None
        return self._issuer.subject_of(text)

    def _gone(self, authorization: str | None, names: Sequence[str], for_ms: int) -> dict[str, int]:
        """Return the field that says for how long a credential has been known nowhere, if it is.

        One that has expired, or that no issuer vouches for at present, is not gone: sessions that
        it opened go on, and its holder may show the next."""
        token_id = token_id_in(bearer(authorization) or "")
        if token_id is not None:
            is_gone = self._table.token(token_id) is None
        elif authorization is not None:
            is_gone = self._subject(authorization) is not None
        else:
            is_gone = bool(names)
        return {GONE_FIELD: for_ms} if is_gone else {}

    def _is_known_as_unknown(self, shown: bytes) -> bool:
        revision, until_ms, _ = self._unknown.get(shown, (-1, 0, 0))
        return revision == self._table.revision and self.clock.monotonic_ms() < until_ms

    def _note_unknown(self, shown: bytes, since_ms: int) -> None:
        if len(self._unknown) >= _UNKNOWN_MAX:
            self._unknown.clear()
        until_ms = self.clock.monotonic_ms() + _UNKNOWN_MS
        self._unknown[shown] = self._table.revision, until_ms, since_ms

    async def _look(self, deadline_ms: int) -> None:
        """Return when this member has seen all that was done before now, or cannot."""
        # A round that began before us says nothing of us: wait for it, then for one more.
        is_ours, error = False, None
        while not is_ours:
            is_ours = self._looking is None or not self._has_begun
            if self._looking is None:
                self._looking = self._tasks.spawn(self._round(), "look for a credential")
            looking = self._looking
            try:
                async with self.timers.deadline(deadline_ms):
                    await asyncio.wait({looking})
            except TimeoutError:
                raise NoLeaderError(_UNCONFIRMED) from None
            error = NoLeaderError(_UNCONFIRMED) if looking.cancelled() else looking.result()
        if error is not None:
            raise error.with_traceback(None)

    async def _round(self) -> CoordinatorError | None:
        try:
            await self.timers.sleep_until(self._look_ms)
            self._has_begun, now_ms = True, self.clock.monotonic_ms()
            self._look_ms = now_ms + _LOOK_EVERY_MS
            await self._reads.fresh(LINEARIZABLE, now_ms + _LOOK_DEADLINE_MS)
        except CoordinatorError as error:
            return error
        finally:
            self._looking, self._has_begun = None, False
        return None

    def left_ms(self, caller: Caller) -> int | None:
        """Return for how long the token counts that proved who calls; None: no end is known."""
        expires_ms = self._table.expires_ms(caller)
        return expires_ms - self.clock.wall_ms() if expires_ms else None

    def refuse_repeat(self, request: RequestId, error: AuthFailedError) -> None:
        """Refuse a repetition under a token that has expired as apply does.

        Raises:
            RequestForgottenError: its number was seen before, and what it did may stand.
        """
        if self.replica.machine.has_seen(request):
            raise RequestForgottenError(
                f"request {request.number} of client {request.client_id}: it may have been done, "
                f"and what it came to is not told any more: {error.message}",
                client_id=request.client_id,
                number=request.number,
            ) from None

    # --- what they may do

    def check(self, caller: Caller, verb: Verb, resource: str) -> None:
        """Check a right on the state that is applied here; ``AccessTable.check`` says how."""
        self._table.check(caller, verb, resource)

    def allows(self, caller: Caller, verb: Verb, resource: str) -> bool:
        """Say whether ``check`` passes."""
        return self._table.allows(caller, verb, resource)

    def is_operator(self, caller: Caller) -> bool:
        """Say whether the last places of this member are also for ``caller``."""
        return is_operator(self._table, caller)

    # --- asked for by people

    async def view(self, mode: ReadMode, deadline_ms: int) -> ReadReply[AccessView]:
        """Return whether rights are checked."""
        age_ms = await self._reads.fresh(mode, deadline_ms)
        table = self._table
        return self._reads.reply(AccessView(table.is_on, table.revision, table.zxid), age_ms)

    async def me(self, caller: Caller, deadline_ms: int) -> ReadReply[Me]:
        """Return who ``caller`` is."""
        age_ms = await self._reads.fresh(LINEARIZABLE, deadline_ms)
        table = self._table
        table.rights_of(caller)  # its credential may be gone by now
        name = caller.identity or ANONYMOUS
        found = table.identity(name)
        roles = [table.role(each) for each in (() if found is None else found.roles)]
        me = Me(table.is_on, name, caller.credential, tuple([each for each in roles if each]))
        return self._reads.reply(me, age_ms)

    async def roles(
        self, caller: Caller, mode: ReadMode, deadline_ms: int, *, after: str, limit: int
    ) -> ReadReply[RolePage]:
        """Return at most ``limit`` roles behind ``after``, by name."""
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        self.check(caller, Verb.READ, ACCESS)
        found: list[RoleView] = self._table.roles(after, limit + 1)
        last = found[limit - 1].name if len(found) > limit else None
        return self._reads.reply(RolePage(tuple(found[:limit]), last), age_ms)

    async def identities(
        self, caller: Caller, mode: ReadMode, deadline_ms: int, *, after: str, limit: int
    ) -> ReadReply[IdentityPage]:
        """Return at most ``limit`` identities behind ``after``, by name."""
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        self.check(caller, Verb.READ, ACCESS)
        found: list[IdentityView] = self._table.identities(after, limit + 1)
        last = found[limit - 1].name if len(found) > limit else None
        return self._reads.reply(IdentityPage(tuple(found[:limit]), last), age_ms)

    async def quotas(
        self, caller: Caller, mode: ReadMode, deadline_ms: int, *, after: str, limit: int
    ) -> ReadReply[QuotaPage]:
        """Return the quotas of at most ``limit`` identities behind ``after``, by name."""
        age_ms = await self._reads.fresh_for_list(mode, deadline_ms)
        self.check(caller, Verb.READ, ACCESS)
        names = [each.name for each in self._table.identities(after, limit + 1)]
        last = names[limit - 1] if len(names) > limit else None
        page = QuotaPage(tuple([self._quota(each) for each in names[:limit]]), last)
        return self._reads.reply(page, age_ms)

    async def quota(
        self, caller: Caller, identity: str, mode: ReadMode, deadline_ms: int
    ) -> ReadReply[QuotaView]:
        """Return the quota of an identity, of one's own without a right.

        Raises:
            NoNodeError: there is no such identity, and nothing of it is left.
        """
        age_ms = await self._reads.fresh(mode, deadline_ms)
        table = self._table
        table.rights_of(caller)
        if identity != (caller.identity or ANONYMOUS):
            self.check(caller, Verb.READ, ACCESS)
        view = self._quota(identity)
        is_used = any(use.used for use in (view.sessions, view.znodes, view.waiters))
        if not is_used and table.find_identity(identity) is None:
            raise NoNodeError(f"quota of {identity}: there is no such identity")
        return self._reads.reply(view, age_ms)

    def _quota(self, identity: str) -> QuotaView:
        quotas = self.replica.machine.quotas
        uses = []
        for what in QUOTA_LIMITS:
            allowed, limit = quotas.allowed(identity, what)
            uses.append(Use(quotas.used(identity, what), allowed, limit != QUOTA_LIMITS[what]))
        return QuotaView(identity, *uses)

    async def explain(
        self, caller: Caller, identity: str, verb: Verb, resource: str, deadline_ms: int
    ) -> ReadReply[Verdict]:
        """Return whether ``identity`` may ``verb`` what ``resource`` names, and by which rules."""
        age_ms = await self._reads.fresh(LINEARIZABLE, deadline_ms)
        table = self._table
        table.rights_of(caller)
        if identity != (caller.identity or ANONYMOUS):
            self.check(caller, Verb.READ, ACCESS)
        rules = tuple([RuleOfRole(*each) for each in table.explain(identity, verb, resource)])
        reason = _reason(table, identity, verb, resource, rules)
        is_allowed = bool(rules) or not table.is_on
        verdict = Verdict(is_allowed, identity, verb.value, resource, rules, reason)
        return self._reads.reply(verdict, age_ms)


def _reason(
    table: AccessTable, identity: str, verb: Verb, resource: str, rules: tuple[RuleOfRole, ...]
) -> str:
    if rules:
        first = rules[0]
        verbs = ", ".join([each.value for each in first.rule.verbs])
        reason = f"the role {first.role!r} gives {verbs} on {first.rule.prefix}"
    elif table.identity(identity) is None:
        reason = f"there is no identity {identity!r}"
    else:
        reason = f"no role of identity {identity!r} gives {verb.value} on {resource}"
    return reason if table.is_on else f"access rights are off, so all is allowed ({reason})"


_EXPIRY_LOOK_MS: Final = 60_000


class Expiry:
    """``with`` it: has ``end`` called when the token expires by which ``caller`` began what runs
    inside. Clocks may be set, so it looks again from time to time."""

    def __init__(self, service: AccessService, caller: Caller, end: Callable[[], None]) -> None:
        self._service = service
        self._caller = caller
        self._end = end
        self._timer: Timer | None = None
        self.is_over = False

    def __enter__(self) -> Expiry:
        if self._caller.credential:
            self._look()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def check(self) -> None:
        """Raise ConnectionLostError, which says what to do, if it is over."""
        if self.is_over:
            raise expired()

    def _look(self) -> None:
        left_ms = self._service.left_ms(self._caller)
        if left_ms is None:
            return
        if left_ms <= 0:
            self.is_over = True
            self._end()
            return
        service = self._service
        at_ms = service.clock.monotonic_ms() + min(left_ms, _EXPIRY_LOOK_MS)
        self._timer = service.timers.at(at_ms, self._look)


def expired() -> ConnectionLostError:
    """Return how what was begun under a token ends with it: a client goes on with the next."""
    return ConnectionLostError(
        "the token under which this was begun has expired: begin it again with the next"
    )
