"""One site of a commit log: it votes on transactions, and applies what is decided.

::

    def prepare(transaction: Transaction) -> bool | str:
        return True if ledger.reserve(transaction.key, transaction.value) else "no funds"

    def apply(transaction: Transaction) -> None:
        ledger.settle(transaction.key, transaction.is_committed, token=transaction.fencing_token)

    site = CommitSite(client, "payments", "bank")
    while True:
        site.attend(prepare, apply, timeout=10)

1. ``prepare`` and ``apply`` may be called again for the same transaction after a crash, so they
   must allow for that: the key says which it is. Tokens grow in the order of the log.
2. That a site prepares is recorded before ``prepare`` is called, so it always hears of the decision
   about what it has reserved, also if its vote was lost on the way.
3. After a vote of yes only the decision frees a site. While there is a coordinator it waits; when
   there is none, ``attend`` decides in its place by the rules of the log.
4. A site that is gone for good stops the log at 200 transactions that wait for it; ``write_off``
   ends that wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, overload

from coordinator.client import (
    AsyncClient,
    Client,
    ClientT,
    both,
    expect_function,
    returned,
    run_either,
    settled,
)
from coordinator.errors import LockTimeoutError, NoNodeError
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.names import name_of, segment_of
from coordinator.recipes.commit_log import SITE_CHARACTERS_MAX, CommitLog
from coordinator.recipes.sharing.commit_record import Transaction
from coordinator.recipes.sharing.commit_steps import CommitSteps
from coordinator.recipes.waits import Timeout, wait_ms_of

Vote = bool | str
"""True is yes; False, or a text with the reason, is no."""


class CommitSite(Generic[ClientT]):
    """The site ``site`` of the commit log ``name``.

    Raises:
        BadArgumentsError: a name is empty, too long, or no text.
    """

    def __init__(self, client: ClientT, name: str | int, site: str | int) -> None:
        segment_of(site, "site", SITE_CHARACTERS_MAX)
        self.client = client
        self.site = name_of(site, "site")
        self._steps = CommitSteps(client, name)
        self._log: CommitLog[Any] = CommitLog(client.core, name)
        self.name = self._steps.name

    @overload
    def attend(
        self: CommitSite[Client],
        prepare: Callable[[Transaction], Vote],
        apply: Callable[[Transaction], Any],
        timeout: Timeout,
    ) -> int: ...
    @overload
    def attend(
        self: CommitSite[AsyncClient],
        prepare: Callable[[Transaction], Awaitable[Vote]],
        apply: Callable[[Transaction], Awaitable[Any]],
        timeout: Timeout,
    ) -> Coroutine[Any, Any, int]: ...

    def attend(
        self: Any,
        prepare: Callable[[Transaction], Any],
        apply: Callable[[Transaction], Any],
        timeout: Timeout,
    ) -> Any:
        """Wait until this site has something to do, and do it; return how many steps, 0 if none.

        ``timeout``: seconds to wait; after them it decides what has no coordinator any more.

        Raises:
            UnavailableError, OutcomeUnknownError: no member answered; call it again.
            LockLostError: the same, while it decided.
            BadArgumentsError: one of the two cannot be run; or it returned a coroutine
                or a generator, which has not run, and the next call repeats the step.
            What ``prepare`` and ``apply`` raise; the step is repeated by the next call.
        """
        expect_function(self.client, "CommitSite.attend", prepare)
        expect_function(self.client, "CommitSite.attend", apply)
        return run_either(self.client, self._attend(prepare, apply, timeout))

    @both
    async def due(self, timeout: Timeout = 0) -> list[Transaction]:
        """Return what this site has to vote on or to apply, in order; wait for the first.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._due(timeout)

    @both
    async def prepare(self, transaction: Transaction) -> Transaction:
        """Record that this site is about to reserve what its vote promises; return what is now.

        Raises:
            NoNodeError: the log does not have the transaction any more: it was aborted.
            UnavailableError, OutcomeUnknownError: it was not recorded; it may have been.
        """
        return await self._steps.change(transaction, lambda it: it.prepares(self.site))

    @both
    async def vote(self, transaction: Transaction, is_yes: bool, reason: str = "") -> Transaction:
        """Vote once; return the transaction after it, which may be decided without this vote.

        Raises:
            NoNodeError: the log does not have the transaction any more: it was aborted.
            UnavailableError, OutcomeUnknownError: the vote does not count; it may.
        """
        return await self._steps.change(transaction, lambda it: it.votes(self.site, is_yes, reason))

    @both
    async def decision(self, transaction: Transaction, timeout: Timeout) -> Transaction | None:
        """Return the transaction once it is decided; None if it is not in time.

        Raises:
            NoNodeError: the log does not have it any more: this site has nothing to apply.
            UnavailableError: no member answered at the end of the time.
        """
        path = self._steps.path_of(transaction.key)

        async def look() -> Transaction | None:
            found = await self._steps.read(transaction.key)
            if found is None or found.number != transaction.number:
                raise NoNodeError(
                    f"{path}: expected transaction {transaction.number}, found it dropped: "
                    f"nothing is left to do here",
                    path=path,
                )
            return None if found.is_open else found

        return await until(self.client.core, path, "znode", look, wait_ms_of(timeout))

    @both
    async def applied(self, transaction: Transaction) -> Transaction:
        """Record that this site has done the decision; then the log may drop it. Idempotent.

        Raises:
            BadArgumentsError: nothing is decided.
            NoNodeError: it was recorded before, and dropped since.
            UnavailableError, OutcomeUnknownError: it was not recorded; it may have been.
        """
        return await self._steps.change(transaction, lambda it: it.applies(self.site))

    @both
    async def write_off(self) -> list[Transaction]:
        """Let the log not wait for this site any more: it is gone for good. Return what it left.

        What is decided, and not applied here as far as the log knows, counts as finished. Apply
        those, or make good for them, by hand. What is still open is decided first, unless a
        coordinator is at work on it.

        Raises:
            UnavailableError, OutcomeUnknownError: some may be written off; call it again.
            LockLostError: the same, while it decided.
        """
        with suppress(LockTimeoutError):
            await self._log.recover(0)
        left = [each for each in await self._mine() if each.writes_off(self.site) != each]
        gone = []
        for each in left:
            with suppress(NoNodeError):
                gone.append(await self._steps.change(each, lambda it: it.writes_off(self.site)))
        return gone

    # --- inside

    async def _attend(self: Any, prepare: Any, apply: Any, timeout: Timeout) -> int:
        due = await settled(self._work(timeout))
        for each in due:
            now = await settled(self._now(each))
            if now is not None and now.is_open:
                vote = await returned(self.client, prepare, now)
                reason = vote if isinstance(vote, str) else ""
                now = await settled(self.vote(now, vote is True, reason))
            if now is not None and not now.is_open and now.waits_for(self.site):
                await returned(self.client, apply, now)
                await settled(self._done(now))
        return len(due)

    @both
    async def _now(self, seen: Transaction) -> Transaction | None:
        """Record that this site begins its next step; None: another process of it was first."""
        try:
            return await self._steps.change(seen, lambda it: it.prepares(self.site))
        except NoNodeError:
            return None

    @both
    async def _done(self, seen: Transaction) -> None:
        """Record that this site has applied; another process of it may have been first."""
        with suppress(NoNodeError):
            await self._steps.change(seen, lambda it: it.applies(self.site))

    @both
    async def _work(self, timeout: Timeout) -> list[Transaction]:
        """Return what is due; if nothing is in time, decide what has no coordinator."""
        if due := await self._due(timeout):
            return due
        if any(each.is_open for each in await self._mine()):
            try:
                await self._log.recover(0)
            except LockTimeoutError:
                return []  # its coordinator is at work
        return await self._due(0)

    async def _due(self, timeout: Timeout) -> list[Transaction]:
        async def look() -> list[Transaction] | None:
            return [each for each in await self._mine() if each.waits_for(self.site)] or None

        wait_ms = wait_ms_of(timeout)
        found = await until(self.client.core, self._steps.path, "subtree", look, wait_ms)
        return found or []

    async def _mine(self) -> list[Transaction]:
        return [each for each in await self._steps.read_all() if self.site in each.sites]
