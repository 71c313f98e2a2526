"""The time for which a session lives, as the bound of what its caller does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from coordinator.client.running.process import OwnLoop
from coordinator.errors import SessionExpiredError


class LivingSession(Protocol):
    """A session, as far as its end is concerned."""

    session_id: str
    own_loop: OwnLoop

    @property
    def reason(self) -> str:
        """Why it ended."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether its end was announced to its callbacks."""
        ...

    def on_change(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call ``callback`` at each change; returns how to stop that."""
        ...


class Lifetime:
    """``with`` it, in a task: that is cancelled when the session ends, and the body raises
    SessionExpiredError then; modelled on asyncio.Timeout."""

    __slots__ = ("_cancelling", "_is_cut", "_is_over", "_session", "_stop", "_task")

    def __init__(self, session: LivingSession) -> None:
        self._session = session
        self._is_cut = False
        self._is_over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "its body waits in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._stop = self._session.on_change(self._on_state)
        if self._session.has_ended:
            self._cut_soon()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._is_over = True
        self._stop()
        if not self._is_cut:
            return
        is_ours = self._task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            session = self._session
            ended = SessionExpiredError(session.reason, session_id=session.session_id)
            raise ended from error

    def _on_state(self, _state: object) -> None:
        if self._session.has_ended:
            self._cut_soon()

    def _cut_soon(self) -> None:
        # Not at once: it may be the task itself that has found the session at its end.
        self._session.own_loop.loop.call_soon(self._cut)

    def _cut(self) -> None:
        if not self._is_over and not self._is_cut:
            self._is_cut = True
            self._task.cancel()
