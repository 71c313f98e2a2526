"""The refusals of operations on znodes, in words: what was expected, what was found."""

from __future__ import annotations

from coordinator.errors import BadArgumentsError, NotEmptyError, QuotaExceededError
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import CreateMode
from coordinator.state.locks.contender import QUEUE_ROOTS
from coordinator.state.znode import ZnodeRecord


def absent(path: str, czxid: int | None) -> str:
    """Say in words that a znode does not exist, and what was expected of it."""
    if czxid is None:
        return "it does not exist"
    if path.startswith(QUEUE_ROOTS):
        return f"the contender created at zxid {czxid} is gone, and a grant of it has ended"
    return f"expected the one created at zxid {czxid}, found that it does not exist"


def no_place(path: str, place: str, mode: CreateMode) -> BadArgumentsError:
    """Return the error for what would stay in a queue for ever."""
    return BadArgumentsError(
        f"create {path}: expected an ephemeral mode with a session at {place}, in the queue of a "
        f"lock or an election, found {mode.value}: it would block the queue for ever. Keep other "
        f"data outside /locks and /elections",
        path=path,
    )


def not_empty(path: str, znode: ZnodeRecord, verb: str) -> NotEmptyError:
    """Return the error for a znode that has children."""
    return NotEmptyError(
        f"{verb} {path}: expected no children, found {znode.num_children}",
        path=path,
        num_children=znode.num_children,
    )


def beyond_limit(
    path: str, limit: str, limits: MachineLimits, *, verb: str = "create"
) -> QuotaExceededError:
    """Return the error for what would exceed ``limit``."""
    maximum = getattr(limits, limit)
    return QuotaExceededError(
        f"{verb} {path}: it would exceed {limit}, which is {maximum}",
        path=path,
        limit=limit,
        maximum=maximum,
    )


def reserved_for_locks(
    path: str, limit: str, limits: MachineLimits, *, verb: str = "create"
) -> QuotaExceededError:
    """Return the error for what would use the part of ``limit`` kept for locks and elections."""
    maximum, ordinary_max = getattr(limits, limit), limits.ordinary_max(limit)
    return QuotaExceededError(
        f"{verb} {path}: it would exceed {ordinary_max}, and the last {maximum - ordinary_max} of "
        f"{limit} ({maximum}) are kept for locks and elections; delete what is not needed, or "
        "raise the limit",
        path=path,
        limit=limit,
        maximum=ordinary_max,
    )


def reserved_for_operators(
    path: str, limit: str, limits: MachineLimits, *, verb: str
) -> QuotaExceededError:
    """Return the error for what would use the part of ``limit`` kept for operators."""
    maximum, client_max = getattr(limits, limit), limits.client_max(limit)
    return QuotaExceededError(
        f"{verb} {path}: it would exceed {client_max}, and the last {maximum - client_max} of "
        f"{limit} ({maximum}) are kept for operators, who have admin on @limits; delete what is "
        "not needed, or let an operator raise the limit (coordinator limits set)",
        path=path,
        limit=limit,
        maximum=client_max,
    )
