"""Commands on access rights in traces: what a line of one says (``trace_runner``).

::

    > init ops token=opstoken1
    > access off                                  (or on)
    > role web /app=read,write /locks/web*=lock   > droprole web
    > identity x roles=web,ops subjects=cert:x    > dropidentity x
    > token x id=xtoken001 expires=9 label=new    > droptoken xtoken001
    > quota x znodes=9 bytes=none                  (none: what the limit for all says)
    > renew s1 as=x:xtoken002:9
    > takeout /locks/a/lock-0000000001,/locks/a/lock-0000000002
"""

from __future__ import annotations

from coordinator.model.access import BY_TOKEN, NOBODY, QUOTA_LIMITS, Caller, Rule, Verb
from coordinator.state.commands import (
    AddToken,
    DropIdentity,
    DropRole,
    DropToken,
    InitAccess,
    Operation,
    PutIdentity,
    PutRole,
    RenewCredential,
    SetAccess,
    TakeOut,
)

VERBS = frozenset(
    {
        "init", "access", "role", "droprole", "identity", "dropidentity", "token", "droptoken",
        "renew", "takeout", "quota",
    }
)  # fmt: skip


def caller_of(text: str) -> Caller:
    """Return the caller that ``name``, or ``name:token id:zxid``, says."""
    name, token_id, since = [*text.split(":"), "", ""][:3]
    if not text:
        return NOBODY
    return (
        Caller(name, credential=BY_TOKEN + token_id, since=int(since)) if token_id else Caller(name)
    )


def digest_of(token_id: str) -> bytes:
    """Return 32 bytes that stand for the digest of a token."""
    return token_id.encode().ljust(32, b".")


def access_operation(verb: str, first: str, options: dict[str, str]) -> Operation:
    """Return the operation that a line describes; takes what it uses out of ``options``."""

    def several(name: str) -> tuple[str, ...]:
        return tuple([each for each in options.pop(name, "").split(",") if each])

    match verb:
        case "init":
            token_id = options.pop("token")
            return InitAccess(first, token_id=token_id, digest=digest_of(token_id))
        case "access":
            return SetAccess(is_on=first == "on")
        case "role":
            rules = [
                Rule(prefix, tuple([Verb(each) for each in verbs.split(",")]))
                for prefix, verbs in options.items()
                if prefix[:1] in ("/", "@")
            ]
            for rule in rules:
                options.pop(rule.prefix)
            return PutRole(first, tuple(rules))
        case "droprole":
            return DropRole(first)
        case "identity":
            return PutIdentity(first, roles=several("roles"), subjects=several("subjects"))
        case "quota":
            named = [each for each in options if each in QUOTA_LIMITS]
            values = [(each, options.pop(each)) for each in named]
            return PutIdentity(
                first,
                roles=None,
                subjects=None,
                quota=tuple(
                    [(what, None if text == "none" else int(text)) for what, text in values]
                ),
            )
        case "dropidentity":
            return DropIdentity(first)
        case "token":
            token_id, expires_ms = options.pop("id"), int(options.pop("expires", "0"))
            label = options.pop("label", "")
            return AddToken(
                identity=first,
                token_id=token_id,
                digest=digest_of(token_id),
                expires_ms=expires_ms,
                label=label,
            )
        case "droptoken":
            return DropToken(first)
        case "takeout":
            return TakeOut(tuple(first.split(",")))
    assert verb == "renew", verb
    return RenewCredential(first)
