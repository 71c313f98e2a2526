"""Operations on access rights: on and off, roles, identities and their tokens.

1. A refused operation changes nothing: everything is checked before the table is changed.
2. While access is on, some identity can still change it: what would take the last identity with a
   token and ``admin`` on ``@access`` is refused. A subject is not enough: its issuer may be gone,
   or may not be asked (TLS is off, no issuer is set), and nothing here says so.
3. Tables are bounded (``model.access``), so that each step stays short.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from coordinator.errors import (
    BadArgumentsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
)
from coordinator.model.access import (
    ADMIN_ROLE,
    ANONYMOUS,
    DIGEST_BYTES,
    IDENTITIES_MAX,
    LABEL_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    PREFIX_BYTES_MAX,
    QUOTA_LIMITS,
    QUOTA_MAX,
    ROLES_MAX,
    ROLES_PER_IDENTITY_MAX,
    RULES_MAX,
    RULES_PER_ROLE_MAX,
    SUBJECT_CHARACTERS_MAX,
    SUBJECTS_PER_IDENTITY_MAX,
    TOKENS_PER_IDENTITY_MAX,
    Caller,
    Quota,
    Rule,
    Verb,
)
from coordinator.state import paths
from coordinator.state.access.table import AccessTable, IdentityRecord, RoleRecord, Token
from coordinator.state.commands import (
    AddToken,
    DropIdentity,
    DropRole,
    DropToken,
    InitAccess,
    PutIdentity,
    PutRole,
    QuotaChanges,
    SetAccess,
)
from coordinator.state.locks.contender import Departure
from coordinator.state.outcomes import AccessChanged
from coordinator.state.sessions import SessionTable
from coordinator.state.tree import Tree

NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
TOKEN_ID: Final = re.compile(r"[0-9a-z]{8,32}")
SUBJECT: Final = re.compile(rf"(?:cert|oidc):[!-~]{{1,{SUBJECT_CHARACTERS_MAX}}}")
PREFIX: Final = re.compile(r"@[a-z]*|/[^\x00-\x1f\x7f-\x9f\ud800-\udfff]*")
_SHOWN_MAX: Final = 40
_SHOWN_NAMES_MAX: Final = 4
_ALL: Final = (Rule("/", tuple(Verb)), Rule("@", tuple(Verb)))

Change = (
    InitAccess | SetAccess | PutRole | DropRole | PutIdentity | DropIdentity | AddToken | DropToken
)


class AccessOperations:
    """Runs these operations in the transaction of one command."""

    def __init__(self, table: AccessTable, tree: Tree, sessions: SessionTable) -> None:
        self._table = table
        self._tree = tree
        self._sessions = sessions

    def run(self, operation: Change, departure: Departure) -> AccessChanged:
        """Run one operation; ``departure`` is how sessions end whose credential it takes away.

        Raises its refusal.
        """
        return _RUNNERS[type(operation)](self, operation, departure)

    # --- on and off

    def init(self, operation: InitAccess, _departure: Departure) -> AccessChanged:
        """Turn access on, with a first identity that may do everything."""
        table, name = self._table, operation.identity
        if table.is_on:
            raise NodeExistsError("init access: expected it to be off, found that it is on")
        _check_name("identity", name)
        if name == ANONYMOUS:
            raise _no_credential()
        token = self._token(name, operation.token_id, operation.digest, operation.expires_ms, "")
        before = table.find_identity(name)
        identity = before or self._new_identity(name)
        others = [each for each in identity.roles if each != ADMIN_ROLE]
        identity = replace(identity, roles=(*others, ADMIN_ROLE), tokens=(*identity.tokens, token))
        _check_count("roles of an identity", len(identity.roles), ROLES_PER_IDENTITY_MAX)
        _check_count("tokens of an identity", len(identity.tokens), TOKENS_PER_IDENTITY_MAX)
        role = RoleRecord(ADMIN_ROLE, _ALL)
        self._check_role_fits(role)
        table.put_role(role)
        table.put_identity(identity)
        table.turn(is_on=True)
        return self._changed(operation)

    def set(self, operation: SetAccess, _departure: Departure) -> AccessChanged:
        """Turn access on or off."""
        if operation.is_on is self._table.is_on:
            return self._unchanged(operation)
        if operation.is_on and not _is_administered(
            self._table.every_role(), self._table.every_identity()
        ):
            raise _nobody_left("turn access on")
        self._table.turn(operation.is_on)
        return self._changed(operation)

    # --- roles

    def put_role(self, operation: PutRole, _departure: Departure) -> AccessChanged:
        """Make a role, or change it."""
        table, name = self._table, operation.name
        _check_name("role", name)
        _check_count("rules of a role", len(operation.rules), RULES_PER_ROLE_MAX)
        for rule in operation.rules:
            _check_rule(name, rule)
        role, before = RoleRecord(name, operation.rules), table.find_role(name)
        if role == before:
            return self._unchanged(operation)
        self._check_role_fits(role)
        if table.is_on and before is not None and before.administers and not role.administers:
            roles = [role if each.name == name else each for each in table.every_role()]
            if not _is_administered(roles, table.every_identity()):
                raise _nobody_left(f"put role {name}")
        table.put_role(role)
        return self._changed(operation)

    def _check_role_fits(self, role: RoleRecord) -> None:
        table, before = self._table, self._table.find_role(role.name)
        _check_count("roles", table.role_count + (before is None), ROLES_MAX)
        more = len(role.rules) - (0 if before is None else len(before.rules))
        _check_count("rules of all roles", table.rule_count + more, RULES_MAX)

    def drop_role(self, operation: DropRole, _departure: Departure) -> AccessChanged:
        """Forget a role that nobody has."""
        table, name = self._table, operation.name
        if table.find_role(name) is None:
            raise NoNodeError(f"drop role {name[:_SHOWN_MAX]!a}: there is no such role")
        having = [each.name for each in table.every_identity() if name in each.roles]
        if having:
            shown = ", ".join(having[:_SHOWN_NAMES_MAX])
            more = " and others" if len(having) > _SHOWN_NAMES_MAX else ""
            raise NotEmptyError(
                f"drop role {name}: expected that no identity has it, found {shown}{more}",
                role=name,
            )
        table.drop_role(name)
        return self._changed(operation)

    # --- identities

    def put_identity(self, operation: PutIdentity, departure: Departure) -> AccessChanged:
        """Make an identity, or change its roles and subjects."""
        table, name = self._table, operation.name
        _check_name("identity", name)
        if operation.roles is not None:
            self._check_roles(name, operation.roles)
        if operation.subjects is not None:
            _check_count(
                "subjects of an identity", len(operation.subjects), SUBJECTS_PER_IDENTITY_MAX
            )
            _check_once(f"put identity {name}", "subject", operation.subjects)
        before = table.find_identity(name)
        if before is None:
            if operation.roles is None or operation.subjects is None:
                raise NoNodeError(f"put identity {name}: there is no such identity; make it first")
            before = self._new_identity(name)
        roles = before.roles if operation.roles is None else operation.roles
        subjects = before.subjects
        if operation.subjects is not None:
            subjects = self._subjects(before, operation.subjects)
        quota = _quota_after(before, operation.quota) if operation.quota else before.quota
        identity = replace(before, roles=roles, subjects=subjects, quota=quota)
        if table.find_identity(name) == identity:
            return self._unchanged(operation)
        self._check_administered(name, identity, f"put identity {name}")
        self._revoke(table.put_identity(identity), departure)
        return self._changed(operation)

    def _check_roles(self, name: str, roles: tuple[str, ...]) -> None:
        _check_count("roles of an identity", len(roles), ROLES_PER_IDENTITY_MAX)
        _check_once(f"put identity {name}", "role", roles)
        for role in roles:
            if self._table.find_role(role) is None:
                raise NoNodeError(
                    f"put identity {name}: there is no role {role[:_SHOWN_MAX]!a}; make it first"
                )

    def _new_identity(self, name: str) -> IdentityRecord:
        _check_count("identities", self._table.identity_count + 1, IDENTITIES_MAX)
        return IdentityRecord(name, self._tree.zxid)

    def _subjects(
        self, before: IdentityRecord, named: tuple[str, ...]
    ) -> tuple[tuple[str, int], ...]:
        """Return its subjects; one that it had already is the one that it was."""
        name = before.name
        if named and name == ANONYMOUS:
            raise _no_credential()
        since = dict(before.subjects)
        for subject in named:
            if SUBJECT.fullmatch(subject) is None:
                raise BadArgumentsError(
                    "subject: expected cert: or oidc: and 1 to "
                    f"{SUBJECT_CHARACTERS_MAX} printable ASCII characters, "
                    f"found {subject[:_SHOWN_MAX]!a}"
                )
            owner = self._table.by_subject(subject)
            if owner is not None and owner.identity != name:
                raise NodeExistsError(
                    f"put identity {name}: the subject {subject[:_SHOWN_MAX]!a} is "
                    f"that of identity {owner.identity}"
                )
        zxid = self._tree.zxid
        return tuple([(each, since.get(each, zxid)) for each in named])

    def drop_identity(self, operation: DropIdentity, departure: Departure) -> AccessChanged:
        """Forget an identity and its credentials."""
        name = operation.name
        if self._table.find_identity(name) is None:
            raise NoNodeError(f"drop identity {name[:_SHOWN_MAX]!a}: there is no such identity")
        self._check_administered(name, None, f"drop identity {name}")
        self._revoke(self._table.drop_identity(name), departure)
        return self._changed(operation)

    # --- tokens

    def add_token(self, operation: AddToken, _departure: Departure) -> AccessChanged:
        """Give an identity one more token."""
        name = operation.identity
        identity = self._table.find_identity(name)
        if identity is None:
            raise NoNodeError(f"add token: there is no identity {name[:_SHOWN_MAX]!a}")
        if name == ANONYMOUS:
            raise _no_credential()
        _check_count("tokens of an identity", len(identity.tokens) + 1, TOKENS_PER_IDENTITY_MAX)
        token = self._token(
            name, operation.token_id, operation.digest, operation.expires_ms, operation.label
        )
        self._table.put_identity(replace(identity, tokens=(*identity.tokens, token)))
        return self._changed(operation)

    def _token(
        self, identity: str, token_id: str, digest: bytes, expires_ms: int, label: str
    ) -> Token:
        if TOKEN_ID.fullmatch(token_id) is None:
            raise BadArgumentsError(
                "token id: expected 8 to 32 digits and small letters, "
                f"found {token_id[:_SHOWN_MAX]!a}"
            )
        if len(digest) != DIGEST_BYTES:
            raise BadArgumentsError(
                f"token {token_id}: expected a digest of {DIGEST_BYTES} bytes, found {len(digest)}"
            )
        if expires_ms < 0:
            raise BadArgumentsError(
                f"token {token_id}: expected a time of its end from 0, found {expires_ms}"
            )
        _check_count("characters of a label", len(label), LABEL_CHARACTERS_MAX)
        if self._table.token(token_id) is not None:
            raise NodeExistsError(f"token {token_id}: there is one of this id already")
        tree = self._tree
        return Token(token_id, identity, digest, expires_ms, label, tree.zxid, tree.wall_ms)

    def drop_token(self, operation: DropToken, departure: Departure) -> AccessChanged:
        """Revoke a token."""
        token_id = operation.token_id
        token = self._table.token(token_id)
        if token is None:
            raise NoNodeError(f"drop token {token_id[:_SHOWN_MAX]!a}: there is no such token")
        identity = self._table.find_identity(token.identity)
        assert identity is not None, "a token is one of an identity"
        kept = tuple([each for each in identity.tokens if each.token_id != token_id])
        changed = replace(identity, tokens=kept)
        self._check_administered(identity.name, changed, f"drop token {token_id}")
        self._revoke(self._table.put_identity(changed), departure)
        return self._changed(operation)

    # --- together

    def _check_administered(self, name: str, changed: IdentityRecord | None, what: str) -> None:
        """Refuse a change after which nobody could change access rights any more."""
        table = self._table
        if not table.is_on:
            return
        after = [changed if each.name == name else each for each in table.every_identity()]
        if not _is_administered(table.every_role(), [each for each in after if each is not None]):
            raise _nobody_left(what)

    def _revoke(self, gone: tuple[Caller, ...], departure: Departure) -> None:
        for caller in gone:
            self._sessions.revoke(caller, departure)

    def _changed(self, operation: Change) -> AccessChanged:
        self._table.settle(self._tree.zxid)
        return AccessChanged(described(operation), self._table.revision, was_changed=True)

    def _unchanged(self, operation: Change) -> AccessChanged:
        return AccessChanged(described(operation), self._table.revision, was_changed=False)


# Not bound to the object: a cycle would keep the whole state after a snapshot has replaced it.
_RUNNERS: Final[dict[type, Callable[[AccessOperations, Any, Departure], AccessChanged]]] = {
    InitAccess: AccessOperations.init,
    SetAccess: AccessOperations.set,
    PutRole: AccessOperations.put_role,
    DropRole: AccessOperations.drop_role,
    PutIdentity: AccessOperations.put_identity,
    DropIdentity: AccessOperations.drop_identity,
    AddToken: AccessOperations.add_token,
    DropToken: AccessOperations.drop_token,
}
CHANGES: Final = tuple(_RUNNERS)
"""The classes of these operations."""


def described(operation: Change) -> str:
    """Return what an operation does in a few words: those of its result."""
    match operation:
        case InitAccess(identity):
            return f"init {identity}"
        case SetAccess(is_on):
            return "set on" if is_on else "set off"
        case PutRole(name):
            return f"put role {name}"
        case DropRole(name):
            return f"drop role {name}"
        case PutIdentity(name):
            return f"put identity {name}"
        case DropIdentity(name):
            return f"drop identity {name}"
        case AddToken(_, token_id):
            return f"add token {token_id}"
        case DropToken(token_id):
            return f"drop token {token_id}"


def _is_administered(roles: Iterable[RoleRecord], identities: Iterable[IdentityRecord]) -> bool:
    administering = {each.name for each in roles if each.administers}
    return any(each.tokens and not administering.isdisjoint(each.roles) for each in identities)


def _check_name(what: str, name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise BadArgumentsError(
            f"{what}: expected a name of 1 to {NAME_CHARACTERS_MAX} letters, digits and . _ -, "
            f"beginning with a letter or digit, found {name[:_SHOWN_MAX]!a}"
        )


def _quota_after(identity: IdentityRecord, changes: QuotaChanges) -> Quota:
    """Return the quota of an identity after these changes; raises BadArguments."""
    found = {what: getattr(identity.quota, what) for what in QUOTA_LIMITS}
    _check_once(f"put identity {identity.name}", "quota", tuple([what for what, _ in changes]))
    for what, value in changes:
        if what not in found:
            raise BadArgumentsError(
                f"quota: expected one of {', '.join(found)}, found {what[:_SHOWN_MAX]!a}"
            )
        if value is not None and not 0 <= value <= QUOTA_MAX:
            raise BadArgumentsError(
                f"quota of {what}: expected a whole number from 0 to {QUOTA_MAX}, found {value}"
            )
        if what == "sessions" and value is not None and identity.name == ANONYMOUS:
            raise BadArgumentsError(
                f"quota of sessions: those of {ANONYMOUS} are not counted together; "
                "sessions_per_address_max bounds them by address"
            )
        found[what] = value
    return Quota(**found)


def _check_rule(role: str, rule: Rule) -> None:
    prefix, verbs = rule.prefix, rule.verbs
    base = prefix[:-1] if prefix.endswith("*") else prefix
    is_path = prefix.startswith("/")
    is_text = base is not prefix
    if (
        PREFIX.fullmatch(prefix) is None
        or paths.utf8_length(prefix) > PREFIX_BYTES_MAX
        or (is_path and "//" in prefix)
        or (is_path and not is_text and prefix != paths.ROOT and prefix.endswith("/"))
    ):
        raise BadArgumentsError(
            f"role {role}: expected a prefix such as /a/b, /a/b* or @limits, of at most "
            f"{PREFIX_BYTES_MAX} bytes, found {prefix[:_SHOWN_MAX]!a}",
            role=role,
        )
    if not verbs or len(set(verbs)) != len(verbs):
        raise BadArgumentsError(
            f"role {role}: expected verbs for {prefix[:_SHOWN_MAX]}, each once, found "
            f"{', '.join([each.value for each in verbs[:_SHOWN_NAMES_MAX]]) or 'none'}",
            role=role,
        )


def _check_once(what: str, noun: str, texts: tuple[str, ...]) -> None:
    if len(set(texts)) != len(texts):
        raise BadArgumentsError(f"{what}: expected each {noun} once, found one twice")


def _check_count(what: str, count: int, maximum: int) -> None:
    if count > maximum:
        raise QuotaExceededError(
            f"{what}: expected at most {maximum}, found {count}", limit=what, maximum=maximum
        )


def _no_credential() -> BadArgumentsError:
    return BadArgumentsError(
        f"the identity {ANONYMOUS} is that of callers without a credential, so it has none"
    )


def _nobody_left(what: str) -> BadArgumentsError:
    return BadArgumentsError(
        f"{what}: nobody could change access rights any more; give admin on @access to another "
        "identity that has a token, first (a certificate name or OIDC subject does not count)"
    )
