"""The reasons why contenders of one command leave, as the history of their grants records them."""

from __future__ import annotations

from typing import Final

from coordinator.state.commands import (
    NOBODY,
    Abandon,
    CloseSession,
    Command,
    EndHold,
    ExpireSession,
    Multi,
    Release,
    Revoke,
)
from coordinator.state.limits import BY_CHARACTERS_MAX
from coordinator.state.locks.contender import Departure, Ending

_DELETED: Final = Ending.DELETED
_ENDINGS: Final[dict[type, Ending]] = {
    Release: Ending.RELEASED,
    CloseSession: Ending.CLOSED,
    ExpireSession: Ending.EXPIRED,
    Abandon: Ending.ABANDONED,
    Revoke: Ending.FORCED,
    EndHold: Ending.MAX_HOLD,
}
"""How grants end that a command ends; by all other commands they end by a deletion."""


def departure_of(command: Command, term: int) -> Departure:
    """Say how, in the ``term`` of its entry, ``command`` ends the grants that it ends."""
    operation = command.operation
    how, by, reason, silent_ms = _ENDINGS.get(type(operation), _DELETED), "", "", 0
    if type(operation) is Revoke or type(operation) is Multi:
        by, reason = operation.by, operation.reason
    if type(operation) is not Revoke and not by and command.caller is not NOBODY:
        by = command.caller.identity[:BY_CHARACTERS_MAX]
    if type(operation) is ExpireSession:
        silent_ms = operation.silent_ms
    if type(operation) is CloseSession and operation.failure:
        how, reason = Ending.FAILED, operation.failure
    return Departure(how, term, by, reason, silent_ms)


def revocation_by(command: Command, term: int) -> Departure:
    """Say how sessions end whose credential ``command`` takes away."""
    by = command.caller.identity[:BY_CHARACTERS_MAX]
    return Departure(Ending.FORCED, term, by, "the credential of its session was revoked")
