"""The answers of a member that was found to differ: nothing that rests on its state.

It learns of it at any moment, also while it answers. So this is looked at last, when an answer is
whole, and again before each line of a stream.

1. A read becomes ``ShuttingDown``: it is asked again elsewhere.
2. Any other request becomes ``ConnectionLost``: what it came to here, done or refused, may not be
   what it came to on the members that are right. Those know, by its request number.
3. What says by itself that this member could not answer stays as it is.
4. What the member says of itself (health, status, metrics) is said on.
"""

from __future__ import annotations

from coordinator.errors import (
    ConnectionLostError,
    CoordinatorError,
    ShuttingDownError,
    UnavailableError,
)
from coordinator.service.member import Member
from coordinator.wire.request import Answer, Answered, IncomingRequest
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.route import Route

_READS = ("GET", "HEAD")
_FAILED = 500


def instead_of(
    member: Member, method: str, status: int, error: CoordinatorError | None
) -> CoordinatorError | None:
    """Return what a member that differs answers instead of this status, or error; None: that."""
    difference = member.difference
    if not difference or status >= _FAILED or isinstance(error, UnavailableError):
        return None
    if method in _READS:
        return ShuttingDownError(f"{difference}; try another one")
    return ConnectionLostError(
        f"{difference}; what was asked may have been done: repeat it at another member with the "
        "same request number"
    )


def silenced(
    door: Door,
    request: IncomingRequest,
    route: Route,
    answered: Answered,
    error: CoordinatorError | None,
) -> tuple[Answered, CoordinatorError | None]:
    """Return the answer and its error, as a member that differs gives them.

    The lines of a stream were judged one by one."""
    if route.is_of_member or not isinstance(answered, Answer):
        return answered, error
    instead = instead_of(door.member, request.method, answered.status, error)
    if instead is None:
        return answered, error
    return door.problem(instead, encoding=request.encoding), instead
