"""A lock that its owner may acquire again: counted, and freed by the last release.

::

    def book(client):
        with ReentrantLock(client, "accounts") as grant: ...

    with ReentrantLock(client, "accounts"):
        book(client)                                  # the same task or thread: no waiting

1. The client counts, for each lock and owner, over all objects of this name. The owner is the
   asyncio task or the thread that acquires, unless the lock was made with another one.
   (``asyncio.wait_for`` acquires in a task of its own before Python 3.12: use ``timeout``.)
2. Acquiring again costs no request and returns a grant with the same token. Only the last release
   frees the lock.
3. Other owners wait for it as for a ``Lock`` of the same name.
4. Several tasks or threads with one owner count together, also when they acquire at once: the
   others wait for the attempt of the first. Each body releases the part that it was entered with,
   if it was not released by hand. ``release`` releases what was acquired by hand first, then the
   part of the innermost body.
5. Acquiring again after a loss raises LockLostError: the caller is not protected any more either,
   and has to leave its body first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Unpack

from coordinator.client import ClientT, both
from coordinator.client.locks import current_owner
from coordinator.errors import BadArgumentsError, LockTimeoutError, NotOwnerError
from coordinator.recipes.base.names import name_of
from coordinator.recipes.locks.contender import obtain
from coordinator.recipes.locks.context import Context, Holding
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.options import LockOptions, Options
from coordinator.recipes.waits import Timeout, wait_ms_of


@dataclass(slots=True, eq=False)
class _Taken(Generic[ClientT]):
    """What ``caller``, a task or thread, acquired by an object; a body has it until it is left."""

    caller: str
    holding: Holding[Grant[ClientT]]
    grant: Grant[ClientT]
    is_body: bool


class OwnersHold:
    """What the owners of one client hold: by lock and owner."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], CountedHold] = {}
        self.obtaining: dict[tuple[str, str], asyncio.Event] = {}
        """Whose attempt is under way; set when it has ended."""


class CountedHold:
    """The hold of an owner, which its grants share; ``on_last`` is called when all are released."""

    def __init__(self, first: Grant[Any], on_last: Callable[[], object]) -> None:
        self.first = first
        self.count = 0
        self.on_last = on_last


class CountedGrant(Grant[ClientT]):
    """One grant of a hold that several grants of one owner share; the last one releases it."""

    _is_counted = True

    def __init__(self, counted: CountedHold) -> None:
        self.__dict__ |= counted.first.__dict__
        self._counted = counted
        self._is_left = False
        self._is_last = False
        counted.count += 1

    @property
    def is_released(self) -> bool:
        """Whether this part was released, or the hold."""
        return self.hold.is_released or (self._is_left and not self._is_last)

    @property
    def _reason(self) -> str:
        return "it was released" if self.is_released else self.hold.reason

    def remaining_safe_ms(self) -> int:
        """Return for how many ms no other client can be granted the lock, 0 when unknown."""
        return 0 if self.is_released else self.hold.remaining_safe_ms()

    async def give_back(self) -> bool:
        """Release this part, and the hold with the last one."""
        if self.is_released:
            return False
        if not self._is_left:
            self._is_left = True
            self._counted.count -= 1
            self._is_last = self._counted.count == 0
            if self._is_last:
                self._counted.on_last()
        return await self.hold.give_back() if self._is_last else True

    def keep_releasing(self) -> None:
        """Go on releasing in the background, if this was the last part."""
        if self._is_last:
            super().keep_releasing()


class ReentrantLock(Context[Grant[ClientT], ClientT]):
    """A way to the lock ``name`` for all owners of a client; see ``Lock`` for the options.

    Unlike a ``Lock`` one object may be used by many tasks and threads. When the owner holds the
    lock already, the options of its first acquisition count.
    """

    def __init__(self, client: ClientT, name: str | int, **options: Unpack[LockOptions]) -> None:
        self.client = client
        self.name = name_of(name)
        self._options = Options.of(client, **options)
        if self._options.owner == "":
            raise BadArgumentsError(
                f"ReentrantLock {self.name!r}: expected an owner with a name, found none; only "
                f"who has a name can be known again"
            )
        self._wait_ms = self._options.wait_ms
        self._queue = client.core.lock_queue(self.name)
        self._counts = client.core.shared(OwnersHold)
        self._taken: dict[str, list[_Taken[ClientT]]] = {}
        """By owner, what was acquired by this object and not yet released, the last one last."""

    @property
    def count(self) -> int:
        """How often the caller holds the lock, by any object of this client; 0 once it is lost."""
        held = self._counts.held.get((self.name, self._options.owner_now()))
        return 0 if held is None or held.first.is_lost else held.count

    async def _acquire(
        self, blocking: bool = True, timeout: Timeout | None = None
    ) -> Grant[ClientT]:
        """Wait for the lock, or count once more, and return the grant.

        Raises:
            LockLostError: this owner held the lock, and has lost it.
            NotOwnerError, and all that ``Lock.acquire`` raises.
        """
        return (await self._take(self._options.wait(blocking, timeout), is_body=False)).grant

    async def _try_acquire(self, *, timeout: Timeout = 0) -> Grant[ClientT] | None:
        """Return the grant, None when it was not granted within ``timeout`` (0: try once).

        Raises:
            All that ``acquire`` raises but LockTimeoutError.
        """
        try:
            return (await self._take(wait_ms_of(timeout), is_body=False)).grant
        except LockTimeoutError:
            return None

    async def _release(self) -> bool:
        """Release a part that this owner acquired by this object (rule 4).

        False when it was not held any more. The last release of all frees the lock.

        Raises:
            NotOwnerError: this owner acquired nothing by this object.
            OutcomeUnknownError, UnavailableError: it may be tried again.
        """
        taken = self._next_to_release()
        was_held = await taken.holding.release()
        if not taken.is_body:
            self._forget(taken)
        return was_held

    async def _undo_acquire(self, held: Grant[Any] | None) -> None:
        for each in self._taken_with(held):
            if each.is_body:
                await each.holding.undo_acquire(held)
            else:
                await self._undo_take(each)

    acquire = both(_acquire, undo=_undo_acquire)
    try_acquire = both(_try_acquire, undo=_undo_acquire)
    release = both(_release)

    async def _enter(self) -> Grant[ClientT]:
        return (await self._take(self._wait_ms, is_body=True)).grant

    async def _undo_enter(self, held: Grant[ClientT]) -> None:
        for each in self._taken_with(held):
            await self._undo_take(each)

    def _interrupt_on_loss(self) -> None:
        self._own(is_body=True)[-1].holding.interrupt_on_loss()

    async def _take(self, wait_ms: int | None, *, is_body: bool) -> _Taken[ClientT]:
        owner = self._options.owner_now()
        emptied = None if is_body else self._emptied_body(owner)
        if emptied is not None:
            emptied.grant = await emptied.holding.acquire(wait_ms)
            return emptied

        async def obtain_once(wait_ms: int | None) -> Grant[ClientT]:
            return await self._obtain(owner, wait_ms)

        when_unsure = self._options.when_unsure
        holding = Holding(f"lock {self.name!r}", obtain_once, when_unsure=when_unsure)
        grant = await holding.enter(wait_ms)
        self._forget_released()
        taken = _Taken(current_owner(), holding, grant, is_body)
        self._taken.setdefault(owner, []).append(taken)
        return taken

    async def _leave(self, error: BaseException | None) -> None:
        taken = self._own(is_body=True)[-1]
        self._forget(taken)
        await taken.holding.leave(error)

    async def _undo_take(self, taken: _Taken[ClientT]) -> None:
        self._forget(taken)
        await taken.holding.undo_enter(taken.grant)

    async def _obtain(self, owner: str, wait_ms: int | None) -> Grant[ClientT]:
        counts, key = self._counts, (self.name, owner)
        while (others := counts.obtaining.get(key)) is not None:
            wait_ms = await self._left_after(others, wait_ms)
        held = counts.held.get(key)
        if held is None or held.first.is_released:
            mine = counts.obtaining[key] = asyncio.Event()
            try:
                request, guards = self._options.request(owner), self._options.guards_to_raise
                (grant,) = await obtain(self.client, self._queue, request, wait_ms, guards)
            finally:
                del counts.obtaining[key]
                mine.set()
            held = counts.held[key] = CountedHold(grant, lambda: counts.held.pop(key, None))
        else:
            held.first.check()
        return CountedGrant(held)

    async def _left_after(self, others: asyncio.Event, wait_ms: int | None) -> int | None:
        """Wait for the end of another attempt of this owner; return what is left of ``wait_ms``."""
        clock = self.client.clock
        began_ms = clock.monotonic_ms()
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                await others.wait()
        except TimeoutError:
            raise LockTimeoutError(
                f"lock {self.name!r}: not granted in time to this owner, in whose name another "
                f"task or thread waits for it already"
            ) from None
        return None if wait_ms is None else max(0, wait_ms - (clock.monotonic_ms() - began_ms))

    def _emptied_body(self, owner: str) -> _Taken[ClientT] | None:
        """Return the caller's innermost body if its part was given back."""
        caller = current_owner()
        own = [e for e in self._taken.get(owner, ()) if e.is_body and e.caller == caller]
        return own[-1] if own and own[-1].grant.is_released else None

    def _next_to_release(self) -> _Taken[ClientT]:
        """Return what was acquired by hand last, and is held, or else the innermost body."""
        own = self._own()
        by_hand = [each for each in own if not each.is_body and not each.grant.is_released]
        return (by_hand or [each for each in own if each.is_body] or own)[-1]

    def _own(self, *, is_body: bool = False) -> list[_Taken[ClientT]]:
        """Return what the caller acquired, or else its owner; ``is_body``: the bodies alone."""
        owner = self._options.owner_now()
        taken = [each for each in self._taken.get(owner, ()) if each.is_body or not is_body]
        if not taken:
            others = ", ".join(sorted(self._taken)) or "nobody"
            raise NotOwnerError(
                f"lock {self.name!r}: expected {owner} to hold it by this object, found that "
                f"{others} does; the task or thread that acquires also releases (or give both "
                f"one name with owner=). Before Python 3.12 asyncio.wait_for acquires in a task of "
                f"its own: use timeout="
            )
        caller = current_owner()
        return [each for each in taken if each.caller == caller] or taken

    def _taken_with(self, grant: Grant[ClientT] | None) -> list[_Taken[ClientT]]:
        """Return what was acquired with ``grant``, by whichever owner."""
        return [each for own in self._taken.values() for each in own if each.grant is grant]

    def _forget(self, taken: _Taken[ClientT]) -> None:
        self._forget_all(lambda each: each is taken)

    def _forget_released(self) -> None:
        """Forget grants that were released directly, except those of bodies."""
        self._forget_all(lambda each: each.grant.is_released and not each.is_body)

    def _forget_all(self, is_over: Callable[[_Taken[ClientT]], bool]) -> None:
        for owner, taken in list(self._taken.items()):
            rest = [each for each in taken if not is_over(each)]
            if rest:
                self._taken[owner] = rest
            else:
                del self._taken[owner]
