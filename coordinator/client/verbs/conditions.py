"""The condition that any write may carry: only while this grant still holds.

::

    with Lock(client, "importer") as grant:
        client.set("/progress", b"row 1000", if_held=grant)

The cluster looks at it in the very command that writes, so there is no gap between looking and
writing. The write is refused with LockLostError when the grant has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from coordinator.errors import BadArgumentsError
from coordinator.model.acquire import IF_HELD_MAX
from coordinator.model.acquire import IfHeld as IfHeld


class HoldsLock(Protocol):
    """Anything that names a lock (or an election) and a fencing token, as a Grant does."""

    @property
    def lock(self) -> str:
        """The name of the lock or election."""
        ...

    @property
    def fencing_token(self) -> int:
        """The token of the grant."""
        ...

    @property
    def is_election(self) -> bool:
        """Whether it is a leadership."""
        ...


Conditions = HoldsLock | Sequence[HoldsLock] | None
"""One grant, or several that must all hold; ``IfHeld(lock, token)`` for one of another process."""


def conditions_of(if_held: Conditions) -> tuple[IfHeld, ...]:
    """Return what is sent for ``if_held``, none for None.

    Raises:
        BadArgumentsError: something else than grants, or too many.
    """
    if if_held is None:
        return ()
    given = tuple(if_held) if isinstance(if_held, Sequence) else (if_held,)
    if len(given) > IF_HELD_MAX:
        raise BadArgumentsError(
            f"if_held: expected at most {IF_HELD_MAX} grants, found {len(given)}"
        )
    return tuple(_condition(each) for each in given)


def _condition(grant: HoldsLock) -> IfHeld:
    try:
        lock, token, is_election = grant.lock, grant.fencing_token, grant.is_election
    except AttributeError:
        raise BadArgumentsError(
            f"if_held: expected a grant, or IfHeld(lock, fencing_token); found {grant!r}"
        ) from None
    return IfHeld(lock, token, is_election)
