"""Access rights: who may do what, and who asks.

1. A *role* has rules. A *rule* gives verbs at a prefix. An *identity* (a program, a person) has
   roles, and *credentials* that prove it: tokens, and the names in certificates or in tokens of
   others (subjects). Rules only add; what none gives is refused.
2. A prefix ``/a/b`` covers that znode and all below it; ``/a/b*`` covers every path that begins
   with that text; ``/`` covers all paths. Things of the cluster are named with ``@``: ``@limits``
   is one of them, ``@`` covers all. What covers a path covers all below it.
3. ``admin`` at a prefix includes the other verbs there. No other verb includes another.
4. A view never shows the digest of a token.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from coordinator.model.fields import Count, Positive, described


class Verb(StrEnum):
    """What a rule allows; ``ADMIN`` includes the others."""

    READ = "read"
    WRITE = "write"
    LOCK = "lock"
    WATCH = "watch"
    ADMIN = "admin"


ALL_THINGS = "@"
ACCESS, LIMITS, MEMBERS = "@access", "@limits", "@members"
METRICS, SESSIONS, STATUS = "@metrics", "@sessions", "@status"

ANONYMOUS = "anonymous"
"""The identity of callers who show no credential: it has roles if an operator gives it some."""
ADMIN_ROLE = "admin"
"""The role of the one who turns access rights on: everything."""
BY_TOKEN = "token:"  # noqa: S105 - a word, no secret
"""What the credential of a token begins with; behind it is the token's id."""

NAME_CHARACTERS_MAX = 64
SUBJECT_CHARACTERS_MAX = 512
LABEL_CHARACTERS_MAX = 100
PREFIX_BYTES_MAX = 1_024
RULES_PER_ROLE_MAX = 100
RULES_MAX = 10_000
"""The rules of all roles together."""
ROLES_MAX = 1_000
ROLES_PER_IDENTITY_MAX = 16
IDENTITIES_MAX = 10_000
TOKENS_PER_IDENTITY_MAX = 8
QUOTA_MAX = 1 << 40
"""The greatest quota of anything: as many bytes as a state may ever have."""
SUBJECTS_PER_IDENTITY_MAX = 8
DIGEST_BYTES = 32

Name = Annotated[
    str,
    Meta(
        max_length=NAME_CHARACTERS_MAX,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        examples=["payments-worker"],
    ),
]
Prefix = Annotated[
    str,
    Meta(max_length=PREFIX_BYTES_MAX, examples=["/locks/payments"]),
    described("a path, with * at its end a text that paths begin with, or a thing such as @limits"),
]


class Caller(NamedTuple):
    """Who asks, as it was proved; a command carries it.

    ``credential`` is what proved it: ``token:`` and the id of a token, or a subject. ``since`` is
    the zxid at which the credential came to be, so that one that was dropped and made again is
    another. "" is nobody: the anonymous caller.
    """

    identity: str = ""
    credential: str = ""
    since: int = 0


NOBODY = Caller()
MEMBER = Caller("@member")
"""A member itself, where it completes what a client has begun. No identity has such a name."""


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """What may be done where."""

    prefix: Prefix
    verbs: Annotated[tuple[Verb, ...], Meta(min_length=1, max_length=len(Verb))]


class RoleView(Struct, frozen=True):
    """A role and its rules."""

    name: Name
    rules: tuple[Rule, ...]


class TokenView(Struct, frozen=True):
    """A token of an identity, without what would prove anything."""

    token_id: str
    expires_ms: Annotated[Count, described("wall time of its end; 0: it does not expire")]
    added_ms: Count
    label: str


QuotaValue = Annotated[int, Meta(ge=0, le=QUOTA_MAX)]
OwnQuota = Annotated[
    QuotaValue | None, described("null: what the limit ``..._per_identity_max`` says")
]


class Quota(Struct, frozen=True, forbid_unknown_fields=True):
    """How much one identity may have; what is not said here is said by the limits."""

    sessions: OwnQuota = None
    znodes: OwnQuota = None
    bytes: OwnQuota = None
    waiters: OwnQuota = None


NO_QUOTA = Quota()
QUOTA_LIMITS = {
    "sessions": "sessions_per_identity_max",
    "znodes": "znodes_per_identity_max",
    "bytes": "bytes_per_identity_max",
    "waiters": "waiters_per_identity_max",
}
"""What a quota is of, and the limit that holds for an identity without a quota of its own."""


class IdentityView(Struct, frozen=True):
    """An identity: its roles, what proves it, and its quota."""

    name: Name
    roles: tuple[Name, ...]
    subjects: Annotated[tuple[str, ...], described("names in certificates, subjects of tokens")]
    tokens: tuple[TokenView, ...]
    created_zxid: Positive
    quota: Quota = NO_QUOTA
