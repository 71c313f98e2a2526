"""The parts of a hold that several grants of one owner share; see ``reentrant_lock``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coordinator.recipes.hold import Hold


class OwnersHold:
    """What the owners of one client hold: by lock and owner."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], tuple[Any, Shares]] = {}
        """The grant, and the shares of its hold."""
        self.obtaining: dict[tuple[str, str], asyncio.Event] = {}
        """Whose attempt is under way; set when it has come to its end."""

    def forget(self, key: tuple[str, str]) -> None:
        """This owner holds this lock no more."""
        self.held.pop(key, None)


class Shares:
    """How many grants of one owner share a hold; the last one gives it back."""

    def __init__(self, hold: Hold | Share, on_last: Callable[[], None]) -> None:
        self.hold = hold
        self.count = 0
        self._on_last = on_last

    def another(self) -> Share:
        """Return one more share of the hold."""
        self.count += 1
        return Share(self)

    def leave(self) -> bool:
        """Count one less; True for the last one, whose part it is to give the hold back."""
        self.count -= 1
        if self.count == 0:
            self._on_last()
        return self.count == 0


class Share:
    """One grant's part in a hold that several grants of one owner share; asked as the hold is."""

    is_counted = True

    def __init__(self, shares: Shares) -> None:
        self._hold = shares.hold
        self._shares = shares
        self._is_left = False
        self._is_last = False

    @property
    def is_released(self) -> bool:
        """Whether this part was given back."""
        return self._hold.is_released or (self._is_left and not self._is_last)

    @property
    def was_lost(self) -> bool:
        """Whether the hold was lost before it could be given back."""
        return self._hold.was_lost

    @property
    def reason(self) -> str:
        """Why this part is not held any more; empty while it is."""
        return "it was released" if self.is_released else self._hold.reason

    def remaining_safe_ms(self) -> int:
        """Return for how long no other client can be granted the lock, 0 when unknown."""
        return 0 if self.is_released else self._hold.remaining_safe_ms()

    def on_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` once when the hold is lost; returns how to stop that."""
        return self._hold.on_lost(callback)

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` when the hold is lost or given back."""
        self._hold.on_end(callback)

    def lose(self, reason: str) -> None:
        """Say that the hold is lost, for all its parts."""
        self._hold.lose(reason)

    def next_write_number(self) -> int:
        """Return a number that no other part has."""
        return self._hold.next_write_number()

    async def renew(self, timeout_ms: int) -> None:
        """Renew the lease of the session now; raises as ``Session.renew``."""
        await self._hold.renew(timeout_ms)

    async def give_back(self) -> bool:
        """Give this part back, and the hold with the last one."""
        if self.is_released:
            return False
        if not self._is_left:
            self._is_left = True
            self._is_last = self._shares.leave()
        return await self._hold.give_back() if self._is_last else True

    def keep_releasing(self) -> None:
        """Go on releasing in the background, if this was the last part."""
        if self._is_last:
            self._hold.keep_releasing()
