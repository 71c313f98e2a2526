"""A pool of things that one may use at a time: licences, ports, devices, accounts.

::

    gpus = Pool(client, "gpus", ["gpu-0", "gpu-1", "gpu-2"])
    with gpus.borrow(timeout=60) as gpu:
        train(gpu.resource, token=gpu.fencing_token)

1. A semaphore with a slot for each resource lets borrowers in, in the order in which they came. A
   borrower then claims a free resource, an ephemeral znode; there is always one.
2. A claim is one resource's alone, and its czxid the fencing token: tokens of a resource grow with
   each borrower, so unlike those of a semaphore they may go to a guard of that resource.
3. Claim and slot belong to one session and end with it, in one command. Given back, the claim goes
   first: a slot is never free before its resource.
4. All clients name the same resources. With fewer, the others are not used here; with more, the
   semaphore's size is that of the first client until ``resize`` (see ``Semaphore``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Generic

from coordinator.client import (
    LAST_MS,
    AsyncClient,
    Check,
    ClientT,
    Create,
    Session,
    both,
)
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    LockTimeoutError,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.ended_by_with import EndedByWith
from coordinator.recipes.base.ephemeral import Ephemeral, make, remove
from coordinator.recipes.base.maybe_there import listed, names_below
from coordinator.recipes.base.names import name_of, path_of, segment_of
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.semaphore import SIZE_MAX, Semaphore
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout

ROOT = "/pools"


class Pool(Generic[ClientT]):
    """The pool ``name`` of ``resources``, 1 to 10,000 names."""

    def __init__(self, client: ClientT, name: str | int, resources: Sequence[str]) -> None:
        self.client = client
        self.name = name_of(name)
        self.resources = tuple(resources)
        is_list = not isinstance(resources, str) and 1 <= len(self.resources) <= SIZE_MAX
        if not is_list or len(set(self.resources)) < len(self.resources):
            raise BadArgumentsError(
                f"resources: expected 1 to {SIZE_MAX} names, each once, found {resources!r:.60}"
            )
        self._path = path_of(ROOT, name, characters_max=150)
        self._segments = {segment_of(each, "resource"): each for each in self.resources}

    async def _undo_borrow(self, borrowed: Borrowed[Any]) -> None:
        await borrowed._give_back()

    async def _borrow(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> Borrowed[ClientT]:
        """Wait for a resource; it is ours until it is given back, or the session ends.

        Raises:
            LockTimeoutError: none was free in time; nothing is left behind.
            LockLostError, SessionExpiredError: it was lost on the way; nothing is held.
            UnavailableError, OutcomeUnknownError: no member answered; nothing is held for long.
        """
        core = self.client.core
        slot = Semaphore(
            self.client, f"pool:{self.name}", len(self.resources), owner="", timeout=timeout
        )
        grant = await slot._acquire()
        made: list[Ephemeral] = []
        try:
            session = await core.session(core.time_left_ms() / 1000)
            # A resource is free: the one who had the slot before has given it back.
            left_ms = max(0, core.time_left_ms() - LAST_MS)
            looking = until(
                core, self._path, "children", lambda: self._claim(session, made), left_ms
            )
            found = await session.while_alive(looking)
            grant.check()
            if not made:
                raise LockTimeoutError(
                    f"pool {self.name!r}: expected a free resource of {len(self.resources)}, found "
                    f"none in time; other clients may name other resources"
                )
        except BaseException:
            core.background.start(_given_back(core, made, slot), f"give back {self._path}")
            raise
        claim = found or made[-1]
        return Borrowed(self.client, self._segments[claim.name], claim, slot)

    borrow = both(_borrow, undo=_undo_borrow)

    @both
    async def borrowed(self) -> dict[str, int]:
        """Return what is borrowed, with its fencing token: the past when it is read.

        Raises:
            UnavailableError: no member answered in time.
        """
        held = await listed(self.client.core, self._path)
        return {self._segments.get(name, name): stat.czxid for name, stat in held}

    async def _claim(self, session: Session, made: list[Ephemeral]) -> Ephemeral | None:
        """Claim a free resource; None if there is none, which a change will end."""
        core = self.client.core
        taken = set(await names_below(core, self._path))
        for segment in self._segments:
            if segment in taken:
                continue
            path = f"{self._path}/{segment}"
            create = Create(path, b"", "ephemeral", session.session_id, parents="container")
            claim = await make(core, session, path, [Check(path, exists=False)], [create])
            if claim is not None:
                made.append(claim)
                return claim
        return None


class Borrowed(EndedByWith[ClientT]):
    """A resource in use; ``with`` gives it back, and raises LockLostError if it was lost before."""

    def __init__(
        self, client: ClientT, resource: str, claim: Ephemeral, slot: Semaphore[ClientT]
    ) -> None:
        self.client = client
        self.resource = resource
        self._claim = claim
        self._slot = slot
        self._is_given_back = False

    def __repr__(self) -> str:
        return f"Borrowed({self.resource!r}, token {self.fencing_token})"

    @property
    def fencing_token(self) -> int:
        """Larger than that of any earlier borrower of this resource."""
        return self._claim.czxid

    @property
    def grant(self) -> Grant[ClientT] | None:
        """The place among the borrowers, without which nothing is borrowed; None once given back.

        Its token is not the resource's."""
        return self._slot.grant

    @property
    def is_lost(self) -> bool:
        """Whether another may have it by now; asks the clock alone."""
        grant = self._slot.grant
        return grant is None or grant.is_lost or self._claim.session.is_lost

    def check(self) -> None:
        """Ask the clock whether it is certainly ours.

        Raises:
            SessionExpiredError, LockLostError: it is not.
        """
        self._claim.session.check()
        if self.is_lost:
            raise self._loss()

    def _loss(self) -> LockLostError:
        return LockLostError(f"{self._claim.path}: expected to be borrowed, found it is not")

    async def _give_back(self) -> bool:
        """Give it back; False if it was not ours any more. Goes on in the background if it must.

        Raises:
            UnavailableError, OutcomeUnknownError: never: see above.
        """
        self._is_given_back = True
        core, was_ours = self.client.core, not self.is_lost
        giving = core.background.start(
            _given_back(core, [self._claim], self._slot), f"give back {self._claim.path}"
        )
        await asyncio.wait({giving}, timeout=core.settings.timeout_ms / 1000)
        return was_ours

    give_back = both(_give_back)

    # --- with

    @property
    def _is_over(self) -> bool:
        return self._is_given_back

    async def _end(self, error: BaseException | None) -> None:
        if not await self._give_back() and error is None:
            raise self._loss()


async def _given_back(core: AsyncClient, made: list[Ephemeral], slot: Semaphore[Any]) -> None:
    """Remove the claim, then release the slot, each until that is known."""
    for claim in made:
        await remove(core, claim)
    await slot._release_until_known()
