"""Work that is done once for each key, however often and by however many clients it is asked for.

::

    once = Once(client)
    done = once.run(f"charge-{order}", lambda attempt: provider.charge(order, key=attempt.key))
    done.result          # what the work returned, the first time

    once.run(f"daily-report/{datetime.now(UTC).date()}", write_report)      # once a day

1. A lock for each key lets one caller work at a time. Another caller waits up to ``timeout``: it
   gets the result of the first when that is done, and LockTimeoutError ("in progress") if not.
2. The record has two states: "started", written before the work, and "done" with its result,
   after it. With one state a crash in between would lose the work or do it twice.
3. A caller that crashes in between leaves "started". The next caller repeats the work, with
   ``attempt.number`` above 1. The work has to allow for that: it gets ``key``, to hand to the store
   or provider it calls. With ``when_interrupted="raise"`` a person decides instead.
4. Both records are written only if the lock is held, in the same command. If it was lost in the
   meantime this is LockLostError, and the next attempt finds "started".
5. Records are forgotten ``keep`` seconds after they were written; then the key may run again.

The pattern is Stripe's idempotency key with the lock's fencing token in the record.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, overload

from coordinator.client import (
    AsyncClient,
    Client,
    ClientT,
    Create,
    Operation,
    SetData,
    both,
    expect_function,
    limit_ms_of,
    returned,
    run_either,
    settled,
    within,
)
from coordinator.errors import (
    BadArgumentsError,
    DataTooLargeError,
    LockTimeoutError,
    NoNodeError,
    OutcomeUnknownError,
)
from coordinator.recipes.base.maybe_there import as_it_is, drop, read
from coordinator.recipes.base.names import path_of
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.functions import finishing
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, is_seconds

ROOT = "/once"
KEEP_S_DEFAULT = 24 * 3600.0
_KEY_CHARACTERS_MAX = 150


class NotDone(Exception):
    """Raised by the work to say that this attempt certainly did nothing; ``run`` raises it on.

    The attempt is forgotten. The outcome of an earlier one stays unknown: its record is restored.
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of the work. ``number`` above 1: an earlier run began and did not end."""

    key: str
    number: int
    fencing_token: int
    """The token of the key's lock: pass it to a guard, so that an earlier run that wakes late is
    refused."""
    grant: Grant[Any] = field(repr=False, compare=False)
    """The grant of the key's lock: for ``if_held=``, and to learn that it was lost."""


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the work. ``result`` is a JSON value; ``is_first`` if this very call worked."""

    key: str
    result: Any
    attempts: int
    is_first: bool


@dataclass(frozen=True, slots=True)
class OnceRecord:
    state: Literal["started", "done"]
    attempt: int
    fencing_token: int
    result: Any = None

    def to_bytes(self) -> bytes:
        """Return the data of its znode."""
        document = {
            "state": self.state,
            "attempt": self.attempt,
            "fencing_token": self.fencing_token,
            "result": self.result,
        }
        return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()

    @classmethod
    def of(cls, path: str, data: bytes) -> OnceRecord:
        """Return the record that a znode's data is; raises BadArgumentsError if it is no record."""
        try:
            document = json.loads(data)
            token, result = document["fencing_token"], document["result"]
            record = cls(document["state"], document["attempt"], token, result)
        except (ValueError, KeyError, TypeError):
            record = None
        if record is None or record.state not in ("started", "done"):
            raise BadArgumentsError(f"{path}: expected a record of Once, found {data[:60]!r}")
        return record

    def end_of(self, key: str) -> Done:
        """Return what a later caller gets."""
        return Done(key, self.result, self.attempt, is_first=False)


async def read_record(core: AsyncClient, path: str) -> OnceRecord | None:
    """Return the record at ``path``, None if there is none."""
    znode = await read(core, path)
    return None if znode is None else OnceRecord.of(path, znode.data)


def created_or_set(path: str, is_there: bool, keep_ms: int | None, data: bytes) -> Operation:
    """Return what writes a record; it is forgotten after ``keep_ms``, None keeps it."""
    if is_there:
        return SetData(path, data)
    mode: Literal["persistent", "ttl"] = "persistent" if keep_ms is None else "ttl"
    return Create(path, data, mode=mode, ttl_ms=keep_ms, parents="container")


async def write_record(
    core: AsyncClient, path: str, keep_ms: int | None, data: bytes, grant: Grant[Any] | None
) -> None:
    """Write it if the grant holds; it is forgotten after ``keep_ms``, None keeps it."""
    try:
        await core.set(path, data, if_held=grant)
    except NoNodeError:
        mode: Literal["persistent", "ttl"] = "persistent" if keep_ms is None else "ttl"
        await core.create(path, data, mode=mode, ttl_ms=keep_ms, parents="container", if_held=grant)


class Once(Generic[ClientT]):
    """Runs work once for each key.

    Args:
        timeout: seconds to wait while another caller works on the same key; 0 asks once.
        keep: for how many seconds a record is remembered after it was written; None: always.
        when_interrupted: what to do about work that was begun and not known to be done: "repeat"
            it, or "raise" OutcomeUnknownError until ``settle`` or ``forget`` is called.
    """

    def __init__(
        self,
        client: ClientT,
        *,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        keep: float | None = KEEP_S_DEFAULT,
        when_interrupted: Literal["repeat", "raise"] = "repeat",
    ) -> None:
        if keep is not None and not (is_seconds(keep) and keep >= 1):
            raise BadArgumentsError(f"keep: expected seconds from 1, or None; found {keep!r}")
        if when_interrupted not in ("repeat", "raise"):
            raise BadArgumentsError(
                f"when_interrupted: expected 'repeat' or 'raise', found {when_interrupted!r}"
            )
        self.client = client
        self._timeout = timeout
        self._keep_ms = None if keep is None else int(keep * 1000)
        self._when_interrupted = when_interrupted

    @overload
    def run(self: Once[Client], key: str, work: Callable[[Attempt], Any]) -> Done: ...
    @overload
    def run(
        self: Once[AsyncClient], key: str, work: Callable[[Attempt], Awaitable[Any]]
    ) -> Coroutine[Any, Any, Done]: ...

    def run(self: Any, key: str, work: Callable[[Attempt], Any]) -> Any:
        """Return the end of the work of ``key``; do the work now if it is not done.

        ``work(attempt)`` returns a JSON value; with an AsyncClient it may be a coroutine function.

        Raises:
            LockTimeoutError: another caller is still working; the work did not run here.
            LockLostError: the lock was lost while the work ran; the next call repeats it.
            OutcomeUnknownError: with "raise", an earlier run did not end.
            BadArgumentsError: the result could not be kept; the work is recorded as done. Or the
                key is too long, or the work cannot be run, or returned a coroutine or a generator,
                which has not run; then nothing is recorded.
            All else that ``Lock.acquire`` raises, and what the work raises.
        """
        expect_function(self.client, "Once.run", work)
        return run_either(self.client, self._run(key, work))

    @both
    async def look(self, key: str) -> Done | None:
        """Return the end of the work of ``key``, None if it is not known to be done.

        Raises:
            BadArgumentsError: the key is too long, or its znode is no record of ``Once``.
            UnavailableError: no member answered in time.
        """
        record = await read_record(self.client.core, _path_of(key))
        return None if record is None or record.state != "done" else record.end_of(key)

    @both
    async def forget(self, key: str) -> bool:
        """Remove the record, so that the key may run again; False when there was none.

        Raises:
            BadArgumentsError: the key is too long.
            UnavailableError, OutcomeUnknownError: it was not removed; it may have been.
        """
        return await drop(self.client.core, _path_of(key))

    @both
    async def settle(self, key: str, result: Any = None) -> Done:
        """Record that the work of ``key`` was done, as a person found out; return the end.

        Raises:
            BadArgumentsError: the key is too long, or its znode is no record of ``Once``.
            UnavailableError, OutcomeUnknownError: it was not recorded; it may have been.
        """
        core, path = self.client.core, _path_of(key)
        while True:
            znode = await read(core, path)
            before = OnceRecord("started", 1, 0)
            if znode is not None:
                before = OnceRecord.of(path, znode.data)
            if before.state == "done":
                return before.end_of(key)
            settled = replace(before, state="done", result=result)
            write = created_or_set(path, znode is not None, self._keep_ms, settled.to_bytes())
            # Only if the attempt has not ended since: its own result is the true one.
            reply = await core.guarded([as_it_is(path, znode)], then=[write])
            if reply.branch == "then":
                return settled.end_of(key)

    # --- the steps

    async def _run(self: Any, key: str, work: Callable[[Attempt], Any]) -> Done:
        with ExitStack() as before_work:
            before_work.enter_context(within(self.client.clock, limit_ms_of(self._timeout)))
            known: Done | None = await settled(self.look(key))
            return known or await self._run_now(key, work, before_work)

    async def _run_now(
        self: Any, key: str, work: Callable[[Attempt], Any], before_work: ExitStack
    ) -> Done:
        known: Done | None
        lock = Lock(self.client, f"once:{key}", timeout=self._timeout)
        try:
            async with finishing(lock, is_recorded=True) as grant:
                begun = await settled(self._begin(key, grant))
                before_work.close()
                if isinstance(begun, Done):
                    return begun
                attempt, before = begun
                try:
                    result = await returned(self.client, work, attempt)
                except (NotDone, BadArgumentsError) as error:
                    if isinstance(error, NotDone) or error.fields.get("has_run") is False:
                        await settled(self._take_back(key, before, grant))
                    raise
                known = await settled(self._finish(attempt, grant, result))
        except LockTimeoutError:
            known = await settled(self.look(key))
            if known is None:
                raise
        assert known is not None, "the work was done, here or elsewhere"
        return known

    @both
    async def _begin(self, key: str, grant: Grant[Any]) -> tuple[Attempt, OnceRecord | None] | Done:
        """Return the attempt to make now, and the record of the one before; or the end."""
        record = await read_record(self.client.core, _path_of(key))
        if record is not None and record.state == "done":
            return record.end_of(key)
        number = 1
        if record is not None:
            if self._when_interrupted == "raise":
                raise OutcomeUnknownError(
                    f"{key}: attempt {record.attempt} began with fencing token "
                    f"{record.fencing_token} and is not known to be done; find out, then call "
                    f"settle({key!r}, result) or forget({key!r})",
                    key=key,
                    attempt=record.attempt,
                )
            number = record.attempt + 1
        started = OnceRecord("started", number, grant.fencing_token)
        await self._write(key, started, grant)
        return Attempt(key, number, grant.fencing_token, grant), record

    @both
    async def _finish(self, attempt: Attempt, grant: Grant[Any], result: Any) -> Done:
        try:
            record = OnceRecord("done", attempt.number, attempt.fencing_token, result)
            await self._write(attempt.key, record, grant)
        except (TypeError, ValueError, RecursionError, DataTooLargeError) as error:
            bare = OnceRecord("done", attempt.number, attempt.fencing_token)
            await self._write(attempt.key, bare, grant)
            raise BadArgumentsError(
                f"{attempt.key}: the work was done, and is recorded as done without its result, "
                f"which could not be kept: {error}"
            ) from error
        return Done(attempt.key, result, attempt.number, is_first=True)

    @both
    async def _take_back(self, key: str, before: OnceRecord | None, grant: Grant[Any]) -> None:
        if before is None:
            await drop(self.client.core, _path_of(key), if_held=grant)
        else:
            await self._write(key, before, grant)

    async def _write(self, key: str, record: OnceRecord, grant: Grant[Any] | None) -> None:
        core, data = self.client.core, record.to_bytes()
        await write_record(core, _path_of(key), self._keep_ms, data, grant)


def _path_of(key: str) -> str:
    if not isinstance(key, str):
        raise BadArgumentsError(
            f"key: expected 1 to {_KEY_CHARACTERS_MAX} characters of text, found {key!r:.60}"
        )
    return path_of(ROOT, key, "key", _KEY_CHARACTERS_MAX)
