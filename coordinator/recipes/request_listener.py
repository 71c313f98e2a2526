"""Listening, as the holder of a lock, to clients that ask for it: for as long as it is held.

1. Each request is handed out once, in the client's event loop.
2. What cannot be reached is tried again. A callback that fails keeps no other from being called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.client import AsyncClient, Callback
from coordinator.errors import (
    ClientClosedError,
    CompactedError,
    CoordinatorError,
    NoNodeError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes.maybe_there import read
from coordinator.recipes.revoke_request import RequestRecord, RevokeRequest, directory_of

OnAsked = Callable[[RevokeRequest], Awaitable[None] | None]
_AT_ONCE = 100
"""How many requests are looked at; later ones when these have gone."""


class RequestListener:
    """Calls ``on_asked(request)`` for each request to give up what ``path`` holds.

    ``start`` and ``stop`` may be called from any thread, and do not wait.
    """

    def __init__(self, core: AsyncClient, path: str, fencing_token: int, on_asked: OnAsked) -> None:
        self._core = core
        self._directory = directory_of(path, fencing_token)
        self._on_asked = Callback(core.home, f"on_asked at {self._directory}", on_asked)
        self._seen: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin to listen."""
        self._core.home.soon(self._start)

    def stop(self) -> None:
        """Call nobody any more; a call that has begun goes on, and may release the lock."""
        self._is_stopped = True
        self._on_asked.stop()
        self._core.home.soon(self._cancel)

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
            {"message": f"nobody listens at {self._directory}", "exception": error}
        )
