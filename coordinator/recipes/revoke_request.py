"""A request to the holder of a lock to give it up, and its answer.

A request is a znode of the session that asks, ``/revoke-requests/<lock>/<token>/<name>``; the
holder writes its answer into it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace

from coordinator.client import AsyncClient, Check, SetData
from coordinator.errors import CoordinatorError, OutcomeUnknownError, UnavailableError
from coordinator.recipes.base.names import WHO_CHARACTERS_MAX, WHY_CHARACTERS_MAX, checked_text

ROOT = "/revoke-requests"
AGREED, REFUSED = "agreed", "refused"


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
        self._core.home.process.check()
        why = checked_text("reason", reason, WHY_CHARACTERS_MAX)
        self._record = replace(self._record, answer=answer, answer_reason=why)
        self._core.home.soon(self._begin_to_write)

    def _begin_to_write(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = self._core.chores.start(self._write(), f"answer {self._path}")

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
                return  # closed, or no right to answer: who asked learns of no answer
            else:
                self._written = record
