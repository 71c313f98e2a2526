"""An item of a work queue in the hands of one worker; see ``coordinator.recipes.work_queue``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from coordinator.client import Check, ClientT, Create, Delete, Operation, SetData, both
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    OutcomeUnknownError,
    RequestError,
    SessionError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes.base.ended_by_with import EndedByWith
from coordinator.recipes.base.ephemeral import Ephemeral
from coordinator.recipes.waits import is_seconds

CLAIM = "claim"
DELAY = "delay"
_MARK = "queue_item"
_REASON_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What is kept of an item: its body, how often it was delivered, and why that was not all."""

    body: bytes
    attempts: int = 0
    reason: str = ""

    def to_bytes(self) -> bytes:
        """Return the data of its znode."""
        document = {_MARK: 1, "attempts": self.attempts, "reason": self.reason}
        return json.dumps(document).encode() + b"\n" + self.body

    @classmethod
    def of(cls, data: bytes) -> WorkItem:
        """Return the item that a znode's data is."""
        line, _, body = data.partition(b"\n")
        try:
            document = json.loads(line)
            if document[_MARK] == 1:
                return cls(body, int(document["attempts"]), str(document["reason"]))
        except (ValueError, KeyError, TypeError):
            pass
        return cls(data)

    def because(self, reason: str) -> WorkItem:
        """Return the same with another reason."""
        return replace(self, reason=reason[:_REASON_CHARACTERS_MAX])


def delayed(path: str, delay_ms: int) -> tuple[Operation, ...]:
    """Return what hides the item at ``path`` for so long: a child that the leader takes away."""
    if delay_ms == 0:
        return ()
    return (Create(f"{path}/{DELAY}", b"", "ttl", ttl_ms=delay_ms),)


def delay_ms_of(delay: float) -> int:
    """Return a delay in ms.

    Raises:
        BadArgumentsError: it is no number of seconds.
    """
    if not is_seconds(delay):
        raise BadArgumentsError(f"delay: expected seconds from 0, found {delay!r}")
    return int(delay * 1000)


def to_dead(path: str, item: WorkItem) -> tuple[Operation, ...]:
    """Return what moves the item at ``path`` to the dead letters."""
    directory, _, name = path.rpartition("/")
    dead = f"{directory.rpartition('/')[0]}/dead/{name}"
    return (Create(dead, item.to_bytes(), parents="persistent"), Delete(path))


@dataclass(slots=True, repr=False)
class Delivery(EndedByWith[ClientT]):
    """An item in the hands of one worker, until ``ack``, ``nack`` or the end of its session.

    ``with`` acknowledges at its end, or returns the item with the exception as the reason. A caller
    that is cancelled in one of these verbs leaves it to the background, until it is known.
    """

    client: ClientT
    path: str
    item: WorkItem
    attempts_max: int
    _claim: Ephemeral
    _unsure: str = ""
    """The verb whose answer was not seen."""
    _is_settled: bool = False
    _going_on: asyncio.Task[None] | None = None
    """A verb that goes on, or has gone on, without its caller."""

    def __repr__(self) -> str:
        return f"Delivery({self.path}, attempt {self.attempt}, token {self.fencing_token})"

    @property
    def name(self) -> str:
        """The item's name, the same in each of its deliveries."""
        return self.path.rpartition("/")[2]

    @property
    def body(self) -> bytes:
        """What was put."""
        return self.item.body

    @property
    def attempt(self) -> int:
        """1 for the first delivery; above, an earlier one was not acknowledged: see what it did."""
        return self.item.attempts

    @property
    def fencing_token(self) -> int:
        """Larger than that of any earlier delivery of the item: pass it with every write."""
        return self._claim.czxid

    @property
    def is_lost(self) -> bool:
        """Whether another worker may have the item by now; asks the clock alone."""
        return self._claim.session.is_lost

    def check(self) -> None:
        """Ask the clock whether the item is certainly ours now.

        Raises:
            SessionExpiredError: it is not.
        """
        self._claim.session.check()

    async def _ack(self, operations: Sequence[Operation] = ()) -> bool:
        """Remove the item, and do ``operations`` in the same command; False: it is not ours.

        Then nothing was done: another worker has it, or will.

        Raises:
            OutcomeUnknownError: it may have been done; may be tried again.
            UnavailableError: nothing was done; may be tried again.
            RequestError: one of ``operations`` was refused; nothing was done.
        """
        return await self._settle("ack", [Delete(self.path), *operations])

    ack = both(_ack)

    async def _nack(self, reason: str = "", *, delay: float = 0.0) -> bool:
        """Return the item, to be delivered again after ``delay`` seconds; False: it is not ours.

        After the last attempt it becomes a dead letter.

        Raises:
            UnavailableError, OutcomeUnknownError: as ``ack``.
            BadArgumentsError: ``delay`` is no number of seconds.
        """
        wait_ms, item = delay_ms_of(delay), self.item.because(reason)
        if self.attempt >= self.attempts_max:
            return await self._settle("nack", to_dead(self.path, item))
        return await self._settle(
            "nack", [SetData(self.path, item.to_bytes()), *delayed(self.path, wait_ms)]
        )

    nack = both(_nack)

    @both
    async def reject(self, reason: str) -> bool:
        """Make the item a dead letter now; False: it is not ours.

        Raises:
            UnavailableError, OutcomeUnknownError: as ``ack``.
        """
        return await self._settle("reject", to_dead(self.path, self.item.because(reason)))

    def _keep_giving_back(self) -> None:
        """Return the item in the background, as if it had not been delivered."""
        before = replace(self.item, attempts=self.item.attempts - 1)
        self._go_on("give back", [SetData(self.path, before.to_bytes())])

    async def _settle(self, verb: str, operations: Sequence[Operation]) -> bool:
        try:
            if self._going_on is not None:
                await asyncio.wait({self._going_on})
            is_ours = await self._settle_once(verb, operations)
        except asyncio.CancelledError:
            self._unsure = self._unsure or verb
            self._go_on(verb, operations)  # its caller will not try again
            raise
        self._is_settled = self._is_settled or is_ours
        return is_ours

    def _go_on(self, verb: str, operations: Sequence[Operation]) -> None:
        if self._going_on is None:
            settling = self._settle_until_known(verb, operations)
            self._going_on = self.client.core.background.start(settling, f"{verb} {self.path}")

    async def _settle_until_known(self, verb: str, operations: Sequence[Operation]) -> None:
        core, failures = self.client.core, 0
        while not self.is_lost:
            try:
                await self._settle_once(verb, operations)
            except RequestError:
                if not operations:
                    return
                # One of them was refused, nothing was done: the item is delivered again.
                self._unsure, verb, operations = "give back", "give back", ()
            except (ClientClosedError, SessionError):
                return
            except (UnavailableError, OutcomeUnknownError):
                failures += 1
                await core.wait(core.retry_delay_ms(failures))
            else:
                return

    async def _settle_once(self, verb: str, operations: Sequence[Operation]) -> bool:
        claim = self._claim
        try:
            reply = await self.client.core.guarded(
                [Check(claim.path, expected_czxid=claim.czxid)],
                then=[Delete(claim.path, expected_czxid=claim.czxid), *operations],
            )
        except OutcomeUnknownError:
            self._unsure = self._unsure or verb
            raise
        if reply.branch == "then":
            return True
        if self._unsure != verb or self._is_settled:
            return False
        if self.is_lost:
            raise OutcomeUnknownError(
                f"{self.path}: the answer to an earlier {verb} was not seen, and the session "
                f"has ended since: it was done, or the item is delivered again"
            )
        return True  # only we remove the claim while our session lives

    # --- with

    @property
    def _is_over(self) -> bool:
        return self._is_settled or self._going_on is not None

    async def _end(self, error: BaseException | None) -> None:
        try:
            if error is None:
                is_ours = await self._ack()
            else:
                is_ours = await self._nack(f"{type(error).__name__}: {error}")
        except CoordinatorError:
            if error is None:
                raise
            return  # the exception of the body is what is to be seen
        if not is_ours and error is None:
            raise SessionExpiredError(
                f"{self.path}: expected to hold the item at the end of the work, found that it is "
                f"not ours any more; it is delivered again",
                session_id=self._claim.session.session_id,
            )
