"""A two-phase commit log: a transaction is done at all of its sites or at none.

::

    log = CommitLog(client, "payments")
    paid = log.run("order-7", ["shop", "bank"], {"amount": 5})     # waits for the votes
    if paid.is_committed: ...                                      # else paid.reason says why not

    site = CommitSite(client, "payments", "bank")                  # in the program of each site
    while True:
        site.attend(prepare, apply, timeout=10)

1. One coordinator at a time holds the log's lock. It records the transaction, waits for the votes,
   and writes the decision, each in a command that depends on the lock. Committed is what every
   site has voted yes for; the votes are compared in the command that decides.
2. Presumed abort: where a coordinator is gone, the next one decides what it left open, in order and
   with a higher token, before it begins its own: committed if all votes are there, else aborted.
3. A decision is written, never concluded from silence, and does not change. A call that does not
   know it raises OutcomeUnknownError; ``look`` says it as soon as there is one, and so does a
   repeated ``run`` of the same key.
4. A site that has voted yes may neither commit nor abort alone. It can always ask, and if there
   is no coordinator, it is the one that comes next (``attend``, ``recover``).
5. Finished transactions are dropped, oldest first, when there are more than ``keep``. What a site
   still has to apply is never dropped; at 200 of those the log takes no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic

from coordinator.client import ClientT, both
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    LockLostError,
    NoNodeError,
    OutcomeUnknownError,
    RequestError,
    UnavailableError,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.names import checked_count, name_of, segment_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.sharing.commit_record import SITES_MAX, Transaction
from coordinator.recipes.sharing.commit_steps import CommitSteps
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, wait_ms_of

KEEP_MAX = 500
SITE_CHARACTERS_MAX = 100


class CommitLog(Generic[ClientT]):
    """The commit log ``name``.

    Args:
        timeout: seconds to wait while another coordinator is at work; 0 asks once.
        keep: how many finished transactions are remembered, 1 to 500.

    Raises:
        BadArgumentsError: an argument is out of its range.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        keep: int = 100,
    ) -> None:
        wait_ms_of(timeout)
        self.client = client
        self._keep = checked_count("keep", keep, KEEP_MAX)
        self._timeout = timeout
        self._steps = CommitSteps(client, name)
        self.name = self._steps.name

    async def _run(
        self, key: str | int, sites: Sequence[str], value: Any = None, *, timeout: Timeout = 10.0
    ) -> Transaction:
        """Do the transaction ``key`` at all ``sites`` (1 to 16), or at none; return the decision.

        ``value``: a JSON value of at most 4 KiB, for the sites. ``timeout``: seconds to wait for
        the votes; then it is aborted. Of a key that the log has, it returns that decision; one that
        it has dropped begins again.

        Raises:
            LockTimeoutError: another coordinator is at work; this call began nothing.
            ThrottledError, UnavailableError: this call began nothing.
            LockLostError: the lock was lost before anything was begun.
            OutcomeUnknownError: it may be open, committed or aborted; ``look`` says which.
            BadArgumentsError: an argument is out of its range, or the key has other sites or
                another value; this call began nothing.
        """
        path, wait_ms = self._steps.path_of(key), wait_ms_of(timeout)
        new = Transaction(name_of(key, "key"), "open", _asked(sites), value, 0)
        new = Transaction.of(path, new.to_bytes(), 0, 0)  # as it will be read
        sent: list[Transaction] = []
        decided: list[Transaction] = []

        async def work(grant: Grant[Any]) -> None:
            await self._begin(new, grant, sent)
            sent.append(new)
            voted = await self._votes(new.key, wait_ms)
            token = grant.fencing_token
            decided.append(await self._steps.change(voted, lambda it: it.decides(token), grant))

        try:
            await self._locked(work)
        except CoordinatorError as error:
            if decided:
                return decided[0]  # what failed came after it
            if not sent:
                raise
            raise OutcomeUnknownError(
                f"{new.key}: it is not known whether it is open, committed or aborted "
                f"({type(error).__name__}); look({new.key!r}) says which",
                key=new.key,
            ) from error
        return decided[0]

    run = both(_run, has_own_time=True)

    @both
    async def recover(self, timeout: Timeout | None = None) -> list[Transaction]:
        """Decide what coordinators that are gone left open; return those, in order.

        ``timeout``: seconds to wait for the lock; None is the log's.

        Raises:
            LockTimeoutError: a coordinator is at work; this call decided nothing.
            LockLostError, UnavailableError, OutcomeUnknownError: some may be decided.
        """
        open_before: list[Transaction] = []

        async def work(grant: Grant[Any]) -> None:
            before = await self._steps.read_all()
            known = {each.number: each for each in await self._decide_open(grant)}
            open_before.extend(known[each.number] for each in before if each.is_open)

        await self._locked(work, timeout)
        return open_before

    @both
    async def look(self, key: str | int) -> Transaction | None:
        """Return the transaction as it is now; None when the log does not have it.

        None says nothing about what was done: it was never begun, or it was finished and dropped.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._steps.read(key)

    @both
    async def transactions(self) -> list[Transaction]:
        """Return all that the log has, in the order in which they began: the past when read.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self._steps.read_all()

    # --- inside

    async def _locked(
        self, work: Callable[[Grant[Any]], Any], timeout: Timeout | None = None
    ) -> None:
        wait = self._timeout if timeout is None else timeout
        lock = Lock(self.client.core, f"commit-log:{self.name}", timeout=wait, owner="")
        has_entered = False
        try:
            async with lock as grant:
                has_entered = True
                await work(grant)
        except OutcomeUnknownError as error:
            if has_entered:
                raise
            raise UnavailableError(
                f"{self.name}: the lock was not acquired, nothing was begun: {error.message}"
            ) from error

    async def _begin(self, new: Transaction, grant: Grant[Any], sent: list[Transaction]) -> None:
        """Write ``new``, unless the log has it; ``sent`` is empty while it is certainly not."""
        known = await self._decide_open(grant, but=new.key)
        found = next((each for each in known if each.key == new.key), None)
        if found is None:
            mine = replace(new, fencing_token=grant.fencing_token)
            sent.append(mine)
            try:
                await self._steps.begin(mine, known, self._keep, grant)
            except (RequestError, LockLostError, UnavailableError):
                sent.clear()  # certainly not begun
                raise
        elif (set(found.sites), found.value) != (set(new.sites), new.value):
            raise BadArgumentsError(
                f"{new.key}: expected the sites and the value it began with, "
                f"{list(found.sites)} and {found.value!r:.60}, found others"
            )

    async def _decide_open(self, grant: Grant[Any], but: str | None = None) -> list[Transaction]:
        """Decide what is open, in order, except ``but``; return all transactions after that."""
        after = []
        token, why = grant.fencing_token, "its coordinator was gone before the vote of"
        for each in await self._steps.read_all():
            if each.is_open and each.key != but:
                each = await self._steps.change(each, lambda it: it.decides(token, why), grant)
            after.append(each)
        return after

    async def _votes(self, key: str, wait_ms: int | None) -> Transaction:
        """Wait until the votes are there, or the time is up; return the transaction."""

        async def look() -> Transaction | None:
            found = await self._there(key)
            return found if found.is_voted or not found.is_open else None

        path = self._steps.path_of(key)
        voted = await until(self.client.core, path, "znode", look, wait_ms)
        return voted or await self._there(key)

    async def _there(self, key: str) -> Transaction:
        found = await self._steps.read(key)
        if found is None:
            path = self._steps.path_of(key)
            raise NoNodeError(f"{path}: expected a transaction, found none", path=path)
        return found


def _asked(sites: Sequence[str]) -> dict[str, Any]:
    if isinstance(sites, str) or not 1 <= len(sites) <= SITES_MAX:
        raise BadArgumentsError(f"sites: expected 1 to {SITES_MAX} names, found {sites!r:.60}")
    for site in sites:
        segment_of(site, "site", SITE_CHARACTERS_MAX)
    if len(set(sites)) != len(sites):
        raise BadArgumentsError(f"sites: expected each once, found {list(sites)!r:.200}")
    return {name_of(site, "site"): "asked" for site in sites}
