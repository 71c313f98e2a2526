"""The hand-over of a leadership to a named candidate, in one command of the log.

The command deletes the place of the elected, and the places of those who wait before the successor.
So the successor holds under the very zxid under which the elected ends: no gap, no overlap, and its
epoch is higher, because it entered later. Those who were passed over enter
again, behind it, with higher epochs still.

The elected may do this. Others ask for it: the request is a znode beside the election, for the
elected with this epoch and no other, which it reads when it can stop its work (``Election.asked``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from coordinator.client import (
    AsyncClient,
    Candidate,
    Check,
    Create,
    Delete,
    ElectionView,
    IfHeld,
    Operation,
    SetData,
)
from coordinator.errors import (
    BadArgumentsError,
    BadVersionError,
    LockLostError,
    NoNodeError,
    NotOwnerError,
    UnavailableError,
)
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.base.names import path_of

ROOT = "/candidacies"
"""Beside the elections: what is said of their candidates, below the name of each."""
REQUEST = "asked"
_TRIES_MAX = 10
_REQUEST_CHARACTERS_MAX = 200
_REQUEST_TTL_MS = 3_600_000
"""After this the election is over, or does not listen; nothing else removes a request."""

Choice = Callable[[Sequence[Candidate]], Candidate]
"""Chooses of those who wait, in their order; raises BadArgumentsError if it finds none."""


@dataclass(frozen=True, slots=True)
class SuccessionRequest:
    """A request that the elected of ``epoch`` hand over, to ``to`` if it is not empty."""

    epoch: int
    to: str = ""
    by: str = ""
    reason: str = ""
    zxid: int = field(default=0, compare=False)
    """When it was written: the same words may be said again. 0: it was not."""

    def to_bytes(self) -> bytes:
        """Return it as the data of a znode."""
        document = {"epoch": self.epoch, "to": self.to, "by": self.by, "reason": self.reason}
        return json.dumps(document).encode()

    @classmethod
    def of(cls, data: bytes) -> SuccessionRequest | None:
        """Return what was written; None if it is something else."""
        try:
            document = json.loads(data)
            to, by, reason = [
                str(document.get(key, ""))[:_REQUEST_CHARACTERS_MAX] for key in _TEXTS
            ]
            return cls(int(document["epoch"]), to, by, reason)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None


_TEXTS = ("to", "by", "reason")


def directory_of(name: str) -> str:
    """Return the path below which candidates of the election ``name`` say something."""
    return path_of(ROOT, name)


def named(to: str) -> Choice:
    """Choose the candidate whose grant id, session id or label is ``to``."""

    def choose(waiting: Sequence[Candidate]) -> Candidate:
        found = [each for each in waiting if to in (each.grant_id, each.session_id)]
        found = found or [each for each in waiting if each.label == to]
        if len(found) == 1:
            return found[0]
        there = ", ".join(each.label or each.grant_id for each in waiting[:10]) or "nobody"
        raise BadArgumentsError(
            f"hand over: expected one waiting candidate with the label or grant id {to!r}, "
            f"found {len(found)}; {there} waits"
        )

    return choose


def of_session(session_id: str) -> Choice:
    """Choose the first candidate of a session."""

    def choose(waiting: Sequence[Candidate]) -> Candidate:
        for each in waiting:
            if each.session_id == session_id:
                return each
        raise BadArgumentsError(
            f"hand over: expected a candidate of session {session_id} that waits, found none"
        )

    return choose


def first(waiting: Sequence[Candidate]) -> Candidate:
    """Choose who has waited longest."""
    if not waiting:
        raise BadArgumentsError("hand over: expected a candidate that waits, found none")
    return waiting[0]


async def succeed(
    core: AsyncClient,
    name: str,
    epoch: int,
    choose: Choice,
    *,
    session_id: str = "",
    by: str = "",
    reason: str = "",
) -> Candidate:
    """End the leadership of ``epoch`` and begin that of the chosen candidate, in one command.

    With ``session_id`` only if it is the elected's: epochs of two clusters may be equal.
    ``by`` and ``reason`` are recorded with the leadership that ends.

    Raises:
        BadArgumentsError: there is no such candidate; nothing was changed.
        NotOwnerError: ``epoch`` is not elected (any more).
        NoAuthError: a place is another identity's; only an operator moves those.
        UnavailableError, OutcomeUnknownError: nothing was changed; it may have been.
    """
    for _ in range(_TRIES_MAX):
        view = await core.election(name)
        elected = _still(view, name, epoch)
        if session_id not in ("", elected.session_id):
            raise NotOwnerError(
                f"election {name!r}: expected session {session_id} to have epoch {epoch}, "
                f"found another"
            )
        successor = choose(view.candidates)
        passed_over = [each for each in view.candidates if each.position < successor.position]
        ended = [Delete(each.path, expected_czxid=each.epoch) for each in (*passed_over, elected)]
        there = Check(successor.path, expected_czxid=successor.epoch)
        operations: list[Operation] = [there, *ended]
        try:
            held = IfHeld(name, epoch, is_election=True)
            await core.multi(operations, if_held=held, by=by, reason=reason)
        except (NoNodeError, BadVersionError):
            continue  # one of them has left since
        except LockLostError as error:
            raise NotOwnerError(error.message) from None
        return successor
    raise UnavailableError(
        f"election {name!r}: not handed over, because its candidates changed {_TRIES_MAX} times "
        f"meanwhile; try again"
    )


def _still(view: ElectionView, name: str, epoch: int) -> Candidate:
    elected = view.elected
    if elected is None or elected.epoch != epoch:
        found = "nobody is" if elected is None else f"epoch {elected.epoch} is"
        raise NotOwnerError(f"election {name!r}: expected epoch {epoch} to be elected, {found}")
    return elected


async def read_request(core: AsyncClient, name: str, epoch: int) -> SuccessionRequest | None:
    """Return what the elected of ``epoch`` is asked to do; None if nothing."""
    znode = await read(core, f"{directory_of(name)}/{REQUEST}")
    request = None if znode is None else SuccessionRequest.of(znode.data)
    if znode is None or request is None or request.epoch != epoch:
        return None
    return replace(request, zxid=znode.stat.mzxid)


async def write_request(core: AsyncClient, name: str, request: SuccessionRequest) -> None:
    """Write it, in place of an earlier one.

    Raises:
        UnavailableError, OutcomeUnknownError: it was not written; it may have been.
    """
    path, data = f"{directory_of(name)}/{REQUEST}", request.to_bytes()
    await core.guarded(
        [Check(path, exists=True)],
        then=[SetData(path, data)],
        otherwise=[Create(path, data, "ttl", ttl_ms=_REQUEST_TTL_MS, parents="container")],
    )
