"""The encoding of the table of access rights as rows."""

from __future__ import annotations

from typing import Final

from coordinator.model.access import QUOTA_LIMITS, Caller, Quota, Rule, Verb
from coordinator.state.access.table import IdentityRecord, RoleRecord, Token
from coordinator.state.shapes import (
    BYTES,
    INT,
    MAYBE_INT,
    ROW,
    STR,
    Row,
    shape,
    texts_of,
)

_VERBS: Final = tuple(Verb)
_VERB_NUMBER: Final = {verb: number for number, verb in enumerate(_VERBS)}
_rule_shape: Final = shape("rule", STR, ROW)
_caller_shape: Final = shape("caller", STR, STR, INT)
_role_shape: Final = shape("role", STR, ROW)
_identity_shape: Final = shape("identity", STR, INT, ROW, ROW, ROW, ROW)
_own_quota_shape: Final = shape("quota", MAYBE_INT, MAYBE_INT, MAYBE_INT, MAYBE_INT)
_subject_shape: Final = shape("subject", STR, INT)
_token_shape: Final = shape("token", STR, BYTES, INT, STR, INT, INT)


def caller_of(row: Row) -> Caller:
    """Return the caller of a row; raises ValueError."""
    return tuple.__new__(Caller, _caller_shape(row))


def _rule_rows(rules: tuple[Rule, ...]) -> Row:
    return tuple(
        [(each.prefix, tuple([_VERB_NUMBER[verb] for verb in each.verbs])) for each in rules]
    )


def _rules_of(rows: Row) -> tuple[Rule, ...]:
    return tuple([Rule(prefix, _verbs_of(numbers)) for prefix, numbers in map(_rule_shape, rows)])


def _verbs_of(numbers: Row) -> tuple[Verb, ...]:
    for each in numbers:
        if type(each) is not int or not 0 <= each < len(_VERBS):
            raise ValueError("expected numbers of verbs, found another")
    return tuple([_VERBS[each] for each in numbers])


def role_row(role: RoleRecord) -> Row:
    """Return a role as a row."""
    return (role.name, _rule_rows(role.rules))


def role_of(row: Row) -> RoleRecord:
    """Return the role of a row; raises ValueError."""
    name, rules = _role_shape(row)
    return RoleRecord(name, _rules_of(rules))


def identity_row(identity: IdentityRecord) -> Row:
    """Return an identity with its credentials as a row."""
    tokens = tuple(
        [
            (each.token_id, each.digest, each.expires_ms, each.label, each.since, each.added_ms)
            for each in identity.tokens
        ]
    )
    quota = tuple([getattr(identity.quota, what) for what in QUOTA_LIMITS])
    return (identity.name, identity.created_zxid, identity.roles, identity.subjects, tokens, quota)


def identity_of(row: Row) -> IdentityRecord:
    """Return the identity of a row; raises ValueError."""
    name, created_zxid, roles, subjects, tokens, quota = _identity_shape(row)
    return IdentityRecord(
        name,
        created_zxid,
        texts_of(roles),
        tuple([(subject, since) for subject, since in map(_subject_shape, subjects)]),
        tuple(
            [
                Token(token_id, name, digest, expires_ms, label, since, added_ms)
                for token_id, digest, expires_ms, label, since, added_ms in map(
                    _token_shape, tokens
                )
            ]
        ),
        Quota(*_own_quota_shape(quota)),
    )
