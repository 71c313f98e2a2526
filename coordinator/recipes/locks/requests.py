"""A request to the holder of a lock to give it up, its answer, and how the holder listens.

A request is a znode of the session that asks, ``/revoke-requests/<lock>/<token>/<name>``; the
holder writes its answer into it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from coordinator.client import AsyncClient, Callback, Check, SetData
from coordinator.errors import (
    ClientClosedError,
    CompactedError,
    CoordinatorError,
    NoNodeError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.base.names import WHO_CHARACTERS_MAX, WHY_CHARACTERS_MAX, checked_text

ROOT = "/revoke-requests"
AGREED, REFUSED = "agreed", "refused"
_AT_ONCE = 100
"""How many requests are looked at; later ones when these have gone."""


def directory_of(holder_path: str, fencing_token: int) -> str:
    """Return where the holder of the contender ``/locks/<lock>/...`` is asked."""
    return f"{ROOT}/{holder_path.split('/')[2]}/{fencing_token}"


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """What the znode says; times in ms, ``answer`` is "" until there is one."""

    by: str
    reason: str
    within_ms: int
    answer: str = ""
    answer_reason: str = ""

    def to_bytes(self) -> bytes:
        """Return what the znode holds."""
        values = [self.by, self.reason, self.within_ms, self.answer, self.answer_reason]
        return json.dumps(values).encode()

    @classmethod
    def of(cls, data: bytes) -> RequestRecord | None:
        """Return what ``data`` says, None if it is no request."""
        try:
            by, reason, within_ms, answer, why = json.loads(data)
            values = cls(str(by)[:WHO_CHARACTERS_MAX], str(reason)[:WHY_CHARACTERS_MAX],
                       int(within_ms), str(answer), str(why)[:WHY_CHARACTERS_MAX])  # fmt: skip
        except (ValueError, TypeError, RecursionError):
            return None
        return values


class RevokeRequest:
    """A request to give a lock up: by whom, why, and for how long an answer is waited for.

    ``agree`` promises to release the lock; releasing it is the holder's to do. ``refuse`` keeps it.
    Neither waits, and both may be called from any thread. The last answer counts.
    """

    def __init__(self, core: AsyncClient, path: str, czxid: int, record: RequestRecord) -> None:
        self.by = record.by
        self.reason = record.reason
        self._core = core
        self._path = path
        self._czxid = czxid
        self._record = record
        self._ends_ms = core.clock.monotonic_ms() + record.within_ms
        self._written = record
        self._writing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<RevokeRequest by {self.by!r}: {self.reason!r}, {self._record.answer or 'open'}>"

    def remaining_ms(self) -> int:
        """Return for how long an answer is still waited for, about: 0 when it is too late."""
        return max(0, self._ends_ms - self._core.clock.monotonic_ms())

    def agree(self, reason: str = "") -> None:
        """Say that the lock will be released; release it then.

        Raises:
            BadArgumentsError: the reason is too long.
            ClientClosedError: in a forked child, which cannot answer.
        """
        self._answer(AGREED, reason)

    def refuse(self, reason: str = "") -> None:
        """Say that the lock is kept, and why.

        Raises:
            BadArgumentsError: the reason is too long.
            ClientClosedError: in a forked child, which cannot answer.
        """
        self._answer(REFUSED, reason)

    def _answer(self, answer: str, reason: str) -> None:
        self._core.own_loop.process.check()
        why = checked_text("reason", reason, WHY_CHARACTERS_MAX)
        self._record = replace(self._record, answer=answer, answer_reason=why)
        self._core.own_loop.soon(self._begin_to_write)

    def _begin_to_write(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = self._core.background.start(self._write(), f"answer {self._path}")

    async def _write(self) -> None:
        failures = 0
        while self._written != (record := self._record) and self.remaining_ms() > 0:
            same, write = Check(self._path, expected_czxid=self._czxid), record.to_bytes()
            try:
                await self._core.guarded([same], then=[SetData(self._path, write)])
            except (UnavailableError, OutcomeUnknownError):
                failures += 1
                await self._core.wait(self._core.retry_delay_ms(failures))
            except CoordinatorError:
                return  # closed, or no right to answer: the request stays without one
            else:
                self._written = record


OnAsked = Callable[[RevokeRequest], Awaitable[None] | None]


class RequestListener:
    """Calls ``on_asked(request)`` for each request to give up what ``path`` holds.

    Each request once, in the client's event loop, for as long as the lock is held. While no member
    can be reached it tries again. ``start`` and ``stop`` may be called from any thread, and do not
    wait.
    """

    def __init__(self, core: AsyncClient, path: str, fencing_token: int, on_asked: OnAsked) -> None:
        self._core = core
        self._directory = directory_of(path, fencing_token)
        self._on_asked = Callback(core.own_loop, f"on_asked at {self._directory}", on_asked)
        self._seen: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin to listen."""
        self._core.own_loop.soon(self._start)

    def stop(self) -> None:
        """Call no more; a call that has begun goes on, and may release the lock."""
        self._is_stopped = True
        self._on_asked.stop()
        self._core.own_loop.soon(self._cancel)

    def _start(self) -> None:
        if self._task is None and not self._is_stopped:
            self._task = asyncio.create_task(self._listen(), name=f"listen at {self._directory}")

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _listen(self) -> None:
        core, failures = self._core, 0
        while True:
            try:
                async with core.watch(self._directory, kind="children") as changes:
                    await self._look()
                    failures = 0
                    async for _ in changes:
                        await self._look()
            except ClientClosedError:
                return
            except CompactedError:
                continue
            except (UnavailableError, OutcomeUnknownError):
                failures += 1
                await core.wait(core.retry_delay_ms(failures))
            except CoordinatorError as error:  # no right to look
                self._report(error)
                return

    async def _look(self) -> None:
        try:
            names = (await self._core.children(self._directory, limit=_AT_ONCE)).names
        except NoNodeError:
            names = ()
        self._seen.intersection_update(names)
        for name in names:
            if name in self._seen:
                continue
            path = f"{self._directory}/{name}"
            if (znode := await read(self._core, path)) is None:
                continue
            self._seen.add(name)
            record = RequestRecord.of(znode.data)
            if record is not None and not record.answer and not self._is_stopped:
                self._on_asked(RevokeRequest(self._core, path, znode.stat.czxid, record))

    def _report(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"cannot listen at {self._directory}", "exception": error}
        )
