"""Requests about access rights, and their replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from coordinator.model.access import (
    DIGEST_BYTES,
    LABEL_CHARACTERS_MAX,
    QUOTA_LIMITS,
    QUOTA_MAX,
    ROLES_PER_IDENTITY_MAX,
    RULES_PER_ROLE_MAX,
    SUBJECT_CHARACTERS_MAX,
    SUBJECTS_PER_IDENTITY_MAX,
    IdentityView,
    Name,
    RoleView,
    Rule,
)
from coordinator.model.fields import LEFT_OUT, Count, described

NO_OWN_QUOTA = -1
"""In a body: the limit for all identities."""

TokenId = Annotated[
    str,
    Meta(max_length=32, examples=["k3v9x0q2m7"]),
    described("8 to 32 of a-z and 0-9; drawn by the member if it is not there"),
]
Digest = Annotated[
    bytes,
    Meta(max_length=DIGEST_BYTES),
    described("the SHA-256 of the token; without it the member draws the token and shows it once"),
]
Expiry = Annotated[Count, described("wall time in ms at which it expires; 0: never")]
Subject = Annotated[str, Meta(max_length=SUBJECT_CHARACTERS_MAX)]


QuotaChange = Annotated[
    dict[str, Annotated[int, Meta(ge=NO_OWN_QUOTA, le=QUOTA_MAX)]],
    Meta(
        max_length=len(QUOTA_LIMITS),
        examples=[{"znodes": 10_000, "bytes": NO_OWN_QUOTA}],
        description="by sessions, znodes, bytes and waiters; -1: what the limit for all says",
    ),
]


def quota_changes(quota: Mapping[str, int]) -> tuple[tuple[str, int | None], ...]:
    """Return what a body says of a quota as a command does."""
    return tuple([(what, None if n == NO_OWN_QUOTA else n) for what, n in quota.items()])


class InitAccessRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/access/init: the first identity, which may do everything."""

    identity: Name = "admin"
    token_id: TokenId = ""
    digest: Digest = b""
    expires_ms: Expiry = 0


class SetAccessRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /v1/access."""

    is_on: bool


class RoleRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /v1/access/roles/{role}: all its rules."""

    rules: Annotated[tuple[Rule, ...], Meta(max_length=RULES_PER_ROLE_MAX)] = ()


class IdentityRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PUT /v1/access/identities/{identity}; its tokens stay."""

    roles: Annotated[tuple[Name, ...], Meta(max_length=ROLES_PER_IDENTITY_MAX)] = ()
    subjects: Annotated[
        tuple[Subject, ...],
        Meta(max_length=SUBJECTS_PER_IDENTITY_MAX),
        described("cert: and a URI in a client's certificate"),
    ] = ()
    quota: QuotaChange = {}


class QuotaRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PATCH /v1/access/identities/{identity}/quota; what is not named stays."""

    quota: QuotaChange


class TokenRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/access/identities/{identity}/tokens."""

    token_id: TokenId = ""
    digest: Digest = b""
    expires_ms: Expiry = 0
    label: Annotated[str, Meta(max_length=LABEL_CHARACTERS_MAX)] = ""


class TokenReply(Struct, frozen=True):
    """A token that was added; ``token`` only if the member drew it, and never again."""

    identity: Name
    token_id: str
    expires_ms: Count
    zxid: Count
    token: Annotated[str, LEFT_OUT, described("the token itself; shown once")] = ""

    def __repr__(self) -> str:
        return f"TokenReply({self.identity!r}, {self.token_id!r})"  # not the token


class AccessView(Struct, frozen=True):
    """Whether rights are checked, and which revision of them."""

    is_on: bool
    revision: Count
    zxid: Annotated[Count, described("of the last change")]


class AccessReply(Struct, frozen=True):
    """The answer to a change of the rights."""

    was_changed: Annotated[bool, described("false: it was so already")]
    revision: Count
    zxid: Count


class RolePage(Struct, frozen=True):
    """Some of the roles, by name."""

    roles: tuple[RoleView, ...]
    next: Annotated[str | None, described("where the next page begins")] = None


class IdentityPage(Struct, frozen=True):
    """Some of the identities, by name."""

    identities: tuple[IdentityView, ...]
    next: Annotated[str | None, described("where the next page begins")] = None


class Use(Struct, frozen=True):
    """How much of a quota is used."""

    used: Count
    allowed: Count
    is_own: Annotated[bool, described("false: the limit ``..._per_identity_max`` says so")]


class QuotaView(Struct, frozen=True):
    """The quota of an identity, and how much of it is used."""

    identity: Name
    sessions: Use
    znodes: Use
    bytes: Use
    waiters: Use


class QuotaPage(Struct, frozen=True):
    """Some of the identities, by name, with their quotas."""

    quotas: tuple[QuotaView, ...]
    next: Annotated[str | None, described("where the next page begins")] = None


class Me(Struct, frozen=True):
    """Who the caller is, as its credential proves."""

    is_on: bool
    identity: Annotated[str, described("anonymous if no credential was shown")]
    credential: Annotated[str, described("its kind and its name; empty without one")]
    roles: tuple[RoleView, ...]


class RuleOfRole(Struct, frozen=True):
    """A rule, and the role that it is of."""

    role: str
    rule: Rule


class Verdict(Struct, frozen=True):
    """Whether an identity may do something, by which rules, or what is missing."""

    is_allowed: bool
    identity: str
    verb: str
    resource: str
    rules: Annotated[tuple[RuleOfRole, ...], described("those that allow it")]
    reason: Annotated[str, described("the same in words")]
