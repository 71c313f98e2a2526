"""The table of access rights: roles, identities with their credentials, and the one decision.

1. While access is off, everybody may do everything; roles and identities can be prepared.
2. A credential (``token:`` and an id, or a subject) belongs to one identity. A caller is current
   while its credential is there, of that identity and since that zxid: what was dropped and made
   again is another. Whether a token has expired is judged by clocks, so not here.
3. The anonymous caller shows no credential. It has the rules of the identity ``anonymous``.
4. ``check`` is the one decision. It is one look-up of the caller's rules, made when first needed,
   and one search in them (``coverage``). The table changes by ``operations`` only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from coordinator.errors import AuthFailedError, NoAuthError
from coordinator.model.access import (
    ACCESS,
    ALL_THINGS,
    ANONYMOUS,
    BY_TOKEN,
    MEMBER,
    NO_QUOTA,
    NOBODY,
    QUOTA_LIMITS,
    Caller,
    IdentityView,
    Quota,
    RoleView,
    Rule,
    TokenView,
    Verb,
)
from coordinator.state.access.coverage import Coverage, IdentityRights
from coordinator.state.emptying import emptied

_RIGHTS_KEPT_MAX: Final = 1_000
_SHOWN_CHARACTERS_MAX: Final = 200
_COVERING_ACCESS: Final = (ACCESS, ALL_THINGS)
_OF_MEMBER: Final = IdentityRights(
    MEMBER.identity, "", (Rule("/", tuple(Verb)), Rule("@", tuple(Verb)))
)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is kept: by its digest alone. ``expires_ms`` 0: it does not expire."""

    token_id: str
    identity: str
    digest: bytes
    expires_ms: int
    label: str
    since: int
    added_ms: int

    @property
    def caller(self) -> Caller:
        """Who shows this token."""
        return Caller(self.identity, BY_TOKEN + self.token_id, self.since)


@dataclass(frozen=True, slots=True)
class RoleRecord:
    """A role."""

    name: str
    rules: tuple[Rule, ...]

    @property
    def administers(self) -> bool:
        """Whether it may change access rights."""
        return any(
            Verb.ADMIN in each.verbs and each.prefix in _COVERING_ACCESS for each in self.rules
        )

    def row(self) -> tuple[Any, ...]:
        """Return all fields, as they are written down."""
        return (self.name, tuple([(each.prefix, each.verbs) for each in self.rules]))


@dataclass(frozen=True, slots=True)
class IdentityRecord:
    """An identity. ``subjects`` are the names that others vouch for, each with the zxid since."""

    name: str
    created_zxid: int
    roles: tuple[str, ...] = ()
    subjects: tuple[tuple[str, int], ...] = ()
    tokens: tuple[Token, ...] = ()
    quota: Quota = NO_QUOTA

    def callers(self) -> Iterator[Caller]:
        """Iterate over all callers that are this identity, one for each credential."""
        for subject, since in self.subjects:
            yield Caller(self.name, subject, since)
        for token in self.tokens:
            yield token.caller

    def row(self) -> tuple[Any, ...]:
        """Return all fields, as they are written down."""
        tokens = tuple(
            [
                (each.token_id, each.digest, each.expires_ms, each.label, each.since, each.added_ms)
                for each in self.tokens
            ]
        )
        quota = tuple([getattr(self.quota, what) for what in QUOTA_LIMITS])
        return (self.name, self.created_zxid, self.roles, self.subjects, tokens, quota)


@dataclass(frozen=True, slots=True)
class AccessCapture:
    """The table at one moment."""

    is_on: bool = False
    revision: int = 0
    zxid: int = 0
    roles: tuple[RoleRecord, ...] = ()
    identities: tuple[IdentityRecord, ...] = ()


class AccessTable:
    """Roles, identities, and what they may do."""

    def __init__(self, capture: AccessCapture | None = None) -> None:
        found = AccessCapture() if capture is None else capture
        self.is_on = found.is_on
        self.revision = found.revision
        """Grows with each change."""
        self.zxid = found.zxid
        """The zxid of the last change."""
        self.is_changed = False
        """Whether this command changed something here."""
        self._roles: dict[str, RoleRecord] = {each.name: each for each in found.roles}
        self._identities: dict[str, IdentityRecord] = {each.name: each for each in found.identities}
        self._callers: dict[str, Caller] = {}
        self._tokens: dict[str, Token] = {}
        self._rule_count = sum([len(each.rules) for each in found.roles])
        self._rights_of: dict[str, IdentityRights] = {}
        self._current: dict[Caller, IdentityRights] = {}
        """The callers that were found to be current, until something changes here."""
        for identity in found.identities:
            self._enter(identity)
        if len(self._identities) != len(found.identities) or len(self._roles) != len(found.roles):
            raise ValueError("access: a role or an identity is there twice")
        if any(role not in self._roles for each in found.identities for role in each.roles):
            raise ValueError("access: an identity has a role that is not there")

    # --- who asks

    def token(self, token_id: str) -> Token | None:
        """Return a token, None if there is none of this id."""
        return self._tokens.get(token_id)

    def expires_ms(self, caller: Caller) -> int:
        """Return when the token of a caller ends, by the wall clock; 0 if it does not."""
        token = self._tokens.get(caller.credential.removeprefix(BY_TOKEN))
        return 0 if token is None or token.caller != caller else token.expires_ms

    def by_subject(self, subject: str) -> Caller | None:
        """Return the caller whom this name in a certificate, or subject of a token, proves."""
        return self._callers.get(subject)

    def is_current(self, caller: Caller) -> bool:
        """Whether the caller's credential is still there."""
        if caller.credential:
            return self._callers.get(caller.credential) == caller
        return caller in (NOBODY, MEMBER)

    # --- the decision

    def check(self, caller: Caller, verb: Verb, resource: str) -> None:
        """Check that ``caller`` may ``verb`` what ``resource`` names.

        Raises:
            AuthFailedError: its credential is gone.
            NoAuthError: no rule allows it; the message says which is missing.
        """
        if self.is_on:
            rights = self.rights_of(caller)
            if not rights.of(verb).covers(resource):
                raise no_auth(rights, verb, resource)

    def allows(self, caller: Caller, verb: Verb, resource: str) -> bool:
        """Whether ``check`` passes."""
        if not self.is_on:
            return True
        return self.is_current(caller) and self._of(caller).of(verb).covers(resource)

    def may(self, caller: Caller, verb: Verb, resource: str) -> bool:
        """Whether the rules of a caller allow it whose credential was checked before."""
        return self._of(caller).of(verb).covers(resource)

    def sees(self, caller: Caller, path: str, verb: Verb = Verb.READ) -> bool:
        """Whether a list shows ``path``: ``verb`` is allowed there, or on something below it."""
        if not self.is_on:
            return True
        if not self.is_current(caller):
            return False
        coverage = self._of(caller).of(verb)
        return coverage.covers(path) or coverage.leads_to(path)

    def ways(self, caller: Caller, path: str, verbs: Iterable[Verb]) -> list[tuple[str, bool]]:
        """Return which children of ``path`` a list shows to a current caller: names, or with True
        all that begin so; in order, and none of them within another."""
        if not self.is_on:
            return [("", True)]
        rights, found = self._of(caller), list[tuple[str, bool]]()
        every = {way for verb in verbs for way in rights.of(verb).ways(path)}
        for name, is_beginning in sorted(every, key=lambda each: (each[0], not each[1])):
            last, is_wide = found[-1] if found else ("", False)
            if not ((is_wide and name.startswith(last)) or (found and name == last)):
                found.append((name, is_beginning))
        return found

    def scope(self, caller: Caller, verbs: Iterable[Verb]) -> tuple[object, ...]:
        """Return where the caller has these verbs: equal while nothing changes there."""
        if not self.is_on:
            return ()
        if not self.is_current(caller):
            return (None,)
        return tuple([self._of(caller).of(verb).scope for verb in verbs])

    def has_rules(self, caller: Caller) -> bool:
        """Whether the caller may do anything at all."""
        return not self.is_on or (self.is_current(caller) and self._of(caller).has_rules)

    def rights_of(self, caller: Caller) -> IdentityRights:
        """Return what a caller may do; raises AuthFailedError if its credential is gone."""
        found = self._current.get(caller)
        if found is None:
            if not self.is_current(caller):
                raise gone(caller)
            if len(self._current) >= _RIGHTS_KEPT_MAX:
                self._current.clear()
            found = self._current[caller] = self._of(caller)
        return found

    def owner(self, caller: Caller) -> str:
        """Return the name under which a current caller owns the ids of clients."""
        if not self.is_on and not caller.credential:
            return ""
        found = self._current.get(caller)
        return (self._of(caller) if found is None else found).owner

    def _of(self, caller: Caller) -> IdentityRights:
        found = self._rights_of.get(caller.identity)
        return self._compiled(caller) if found is None else found

    def _compiled(self, caller: Caller) -> IdentityRights:
        if caller == MEMBER:
            return _OF_MEMBER
        name = caller.identity or ANONYMOUS
        identity = self._identities.get(name)
        rules: list[Rule] = []
        for role in () if identity is None else identity.roles:
            rules.extend(self._roles[role].rules)
        owner = name if identity is None or name == ANONYMOUS else f"{name} {identity.created_zxid}"
        rights = IdentityRights(name, owner, rules)
        if len(self._rights_of) >= _RIGHTS_KEPT_MAX:
            self._rights_of.clear()
        self._rights_of[caller.identity] = rights
        return rights

    def explain(self, identity: str, verb: Verb, resource: str) -> tuple[tuple[str, Rule], ...]:
        """Return the rules, each with its role, by which ``identity`` may ``verb`` there."""
        found = self._identities.get(identity)
        return tuple(
            [
                (name, rule)
                for name in (() if found is None else found.roles)
                for rule in self._roles[name].rules
                if (verb in rule.verbs or Verb.ADMIN in rule.verbs)
                and Coverage((rule.prefix,)).covers(resource)
            ]
        )

    # --- what is there

    @property
    def role_count(self) -> int:
        """How many roles there are."""
        return len(self._roles)

    @property
    def rule_count(self) -> int:
        """How many rules all roles have together."""
        return self._rule_count

    @property
    def identity_count(self) -> int:
        """How many identities there are."""
        return len(self._identities)

    def find_role(self, name: str) -> RoleRecord | None:
        """Return a role as it is kept."""
        return self._roles.get(name)

    def find_identity(self, name: str) -> IdentityRecord | None:
        """Return an identity as it is kept."""
        return self._identities.get(name)

    def every_role(self) -> Iterator[RoleRecord]:
        """Iterate over the roles, in the order in which they were made."""
        return iter(self._roles.values())

    def every_identity(self) -> Iterator[IdentityRecord]:
        """Iterate over the identities, in the order in which they were made."""
        return iter(self._identities.values())

    def role(self, name: str) -> RoleView | None:
        """Return a role, None if there is none."""
        found = self._roles.get(name)
        return None if found is None else RoleView(found.name, found.rules)

    def identity(self, name: str) -> IdentityView | None:
        """Return an identity, None if there is none."""
        found = self._identities.get(name)
        return None if found is None else _view(found)

    def roles(self, after: str = "", limit: int | None = None) -> list[RoleView]:
        """Return the roles by name, at most ``limit`` of those behind ``after``."""
        names = sorted([each for each in self._roles if each > after])
        return [RoleView(each, self._roles[each].rules) for each in names[:limit]]

    def identities(self, after: str = "", limit: int | None = None) -> list[IdentityView]:
        """Return the identities by name, at most ``limit`` of those behind ``after``."""
        names = sorted([each for each in self._identities if each > after])
        return [_view(self._identities[each]) for each in names[:limit]]

    # --- changes, by the operations

    def put_role(self, role: RoleRecord) -> None:
        """Make a role, or put it in place of the one of its name."""
        before = self._roles.get(role.name)
        self._rule_count += len(role.rules) - (0 if before is None else len(before.rules))
        self._roles[role.name] = role
        self._change()

    def drop_role(self, name: str) -> None:
        """Forget a role that no identity has."""
        self._rule_count -= len(self._roles.pop(name).rules)
        self._change()

    def put_identity(self, identity: IdentityRecord) -> tuple[Caller, ...]:
        """Make an identity, or change it; return the callers whose credentials are gone."""
        before = self._leave(identity.name)
        self._identities[identity.name] = identity
        self._enter(identity)
        self._change()
        return tuple([each for each in before if not self.is_current(each)])

    def drop_identity(self, name: str) -> tuple[Caller, ...]:
        """Forget an identity; return the callers whose credentials are gone."""
        before = self._leave(name)
        del self._identities[name]
        self._change()
        return before

    def turn(self, is_on: bool) -> None:
        """Turn access rights on or off."""
        self.is_on = is_on
        self._change()

    def settle(self, zxid: int) -> None:
        """Note at which zxid this command's changes were made."""
        self.revision += 1
        self.zxid = zxid

    def _change(self) -> None:
        self.is_changed = True
        self._rights_of.clear()
        self._current.clear()

    def _enter(self, identity: IdentityRecord) -> None:
        for caller in identity.callers():
            if caller.credential in self._callers:
                raise ValueError(f"access: {caller.credential!a} is there twice")
            self._callers[caller.credential] = caller
        for token in identity.tokens:
            self._tokens[token.token_id] = token

    def _leave(self, name: str) -> tuple[Caller, ...]:
        identity = self._identities.get(name)
        if identity is None:
            return ()
        for token in identity.tokens:
            del self._tokens[token.token_id]
        callers = tuple(identity.callers())
        for caller in callers:
            del self._callers[caller.credential]
        return callers

    # --- capture

    def capture(self) -> AccessCapture:
        """Return the table as it is now, for a snapshot written later."""
        return AccessCapture(
            self.is_on, self.revision, self.zxid,
            tuple(self._roles.values()), tuple(self._identities.values()),
        )  # fmt: skip

    def counts(self) -> tuple[int, ...]:
        """Return whether it is on, the counters, and how much is in each table."""
        return (
            int(self.is_on), self.revision, self.zxid, len(self._roles), self._rule_count,
            len(self._identities), len(self._callers), len(self._tokens),
        )  # fmt: skip

    def roles_latest_first(self) -> Iterator[tuple[str, RoleRecord]]:
        """Iterate over names and roles, in the reverse order of their making."""
        return reversed(self._roles.items())

    def identities_latest_first(self) -> Iterator[tuple[str, IdentityRecord]]:
        """Iterate over names and identities, in the reverse order of their making."""
        return reversed(self._identities.items())

    def marks(self, identity: IdentityRecord) -> tuple[bool, ...]:
        """Say of each credential of an identity whether it is found by its name."""
        return tuple(
            [self.is_current(each) for each in identity.callers()]
            + [self._tokens.get(each.token_id) is each for each in identity.tokens]
        )

    def emptied(self) -> Iterator[None]:
        """Empty a table that is no longer used, by one value at each step."""
        yield from emptied(self._rights_of, self._current, self._callers, self._tokens)
        yield from emptied(self._identities, self._roles)


def _view(record: IdentityRecord) -> IdentityView:
    return IdentityView(
        record.name,
        record.roles,
        tuple([subject for subject, _ in record.subjects]),
        tuple(
            [
                TokenView(each.token_id, each.expires_ms, each.added_ms, each.label)
                for each in record.tokens
            ]
        ),
        record.created_zxid,
        record.quota,
    )


def no_auth(rights: IdentityRights, verb: Verb, resource: str, why: str = "") -> NoAuthError:
    """Return the refusal of a caller without the right: it says which rule is missing."""
    shown = resource if resource.isprintable() else ascii(resource)
    if len(shown) > _SHOWN_CHARACTERS_MAX:
        shown = shown[: _SHOWN_CHARACTERS_MAX - 3] + "..."
    return NoAuthError(
        f"{why}needs {verb.value} on {shown}: no role of identity {rights.identity!r} has it",
        identity=rights.identity,
        verb=verb.value,
        resource=shown,
    )


def gone(caller: Caller) -> AuthFailedError:
    """Return the refusal of a caller whose credential is not there any more."""
    return AuthFailedError(
        f"the credential {caller.credential!a} of identity {caller.identity!r} was revoked",
        identity=caller.identity,
        credential=caller.credential,
    )
