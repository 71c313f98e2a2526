"""Partitions of work, each with one owner among the members of a group, and one fencing token.

::

    def work(owned: Owned) -> None:                # in a thread of its own for each partition
        while not owned.stopping.wait(1.0):
            process(owned.number, token=owned.fencing_token)

    Partitioner(client, "mails", 12).run(work)     # until stop(), or Ctrl-C

1. Who should own what is computed by each member alike from the names of the members that are up
   (rendezvous hashing with even shares): no two shares differ by more than one, and a member that
   comes or goes moves its own share and little else.
2. A partition is a lock, ``<name>/<number>``. Its new owner waits in the queue until the old one
   has returned from its work and released, or until the old one's lease has ended. So no two owners
   have a valid token at the same time, and tokens of a partition grow with each owner.
3. A member that lost its session stops all its work; it is registered again with the next one.
4. A thread that does not return keeps its partition until its client is closed: then it is asked to
   stop, and its partition is free at once. With asyncio the work is cancelled. Either may be paused
   and wake when another owns: pass the token.
5. With more members than partitions some own nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, overload

from coordinator.client import (
    AsyncClient,
    Client,
    ClientT,
    both,
    contained,
    expect_function,
    expect_result,
    returned,
)
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CoordinatorError,
    OutcomeUnknownError,
)
from coordinator.recipes.base.ephemeral import unique_name
from coordinator.recipes.base.names import checked_count, name_of
from coordinator.recipes.group import Group
from coordinator.recipes.groups.members import GroupStream
from coordinator.recipes.groups.membership import Membership
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import FOREVER

Work = Callable[[Any], Any]
PARTITIONS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Owned(Generic[ClientT]):
    """A partition that is owned here: what its work is given."""

    number: int
    grant: Grant[ClientT]
    stopping: threading.Event = field(default_factory=threading.Event)
    """Set when the work should end: the partition moves, or its grant is lost."""

    @property
    def fencing_token(self) -> int:
        """Larger than that of any earlier owner: pass it with every write."""
        return self.grant.fencing_token


class Serving(Generic[ClientT]):
    """Serves one partition whenever that is ``wanted``."""

    def __init__(self, client: ClientT, number: int, name: str, member: str, work: Work) -> None:
        self.client = client
        self.number = number
        self._name, self._member = name, member
        self._lock: Lock[ClientT] | None = None
        self._failures = 0
        self._work = work
        self._wanted, self._unwanted = asyncio.Event(), asyncio.Event()
        self._owned: Owned[ClientT] | None = None
        self._thread: threading.Thread | None = None
        """Of a sync client: what runs the work, or ran it last."""

    @property
    def is_owner(self) -> bool:
        """Whether its work runs here under a grant that may be relied upon."""
        owned = self._owned
        return owned is not None and not owned.grant.is_lost

    def want(self, is_wanted: bool) -> None:
        """Say whether it should be served here."""
        to_set, to_clear = self._wanted, self._unwanted
        if not is_wanted:
            to_set, to_clear = to_clear, to_set
        to_set.set()
        to_clear.clear()

    async def serve(self) -> None:
        """Serve it, again and again, until cancelled; cancelled, it stops and releases first."""
        while True:
            await self._wanted.wait()
            try:
                grant = await self._acquired()
                if grant is not None:
                    await self._own(Owned(self.number, grant))
            finally:
                if self._lock is not None:
                    await asyncio.shield(self._lock._release_until_known())

    def join(self) -> None:
        """Wait until its work has ended, in a thread of the program."""
        if self._thread is not None:
            self._thread.join()

    async def _acquired(self) -> Grant[ClientT] | None:
        """Return the grant; None if it is not wanted any more, or the cluster cannot be asked."""
        lock = self._lock = Lock(
            self.client,
            self._name,
            label=self._member[:200],
            owner="",
            timeout=FOREVER,
            when_unsure="continue",
        )
        acquiring = asyncio.create_task(lock._acquire())
        unwanted = asyncio.create_task(self._unwanted.wait())
        try:
            await asyncio.wait({acquiring, unwanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            unwanted.cancel()
            acquiring.cancel()
            await _ended(acquiring)
        if acquiring.cancelled():
            return None
        try:
            grant = acquiring.result()
        except ClientClosedError:
            raise
        except CoordinatorError:
            self._failures += 1
            await self.client.core.wait(self.client.core.retry_delay_ms(self._failures))
            return None  # the next round asks again, if it is wanted
        self._failures = 0
        return grant

    async def _own(self, owned: Owned[ClientT]) -> None:
        """Work until it is not wanted, or lost; return when the work has."""
        ending = asyncio.Event()

        def lose() -> None:
            owned.stopping.set()  # now: the session of a closed client is ended next
            ending.set()

        forget = owned.grant.hold.on_lost(lose)
        self._owned = owned
        working = asyncio.create_task(self._worked(owned))
        waits = [asyncio.create_task(each.wait()) for each in (ending, self._unwanted)]
        try:
            await asyncio.wait({working, *waits}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and working.exception() is None:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            owned.stopping.set()
            working.cancel()
            await _ended(working)
            self._owned = None
            forget()
            for each in waits:
                each.cancel()
        if not working.cancelled():
            working.result()

    async def _worked(self, owned: Owned[ClientT]) -> None:
        if isinstance(self.client, AsyncClient):
            await returned(self.client, self._work, owned)
            return
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        def settle(failure: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(failure)

        def in_thread() -> None:
            failure: BaseException | None = None
            try:
                expect_result(self._work, self._work(owned))
            except BaseException as error:  # the root of this thread
                failure = error
            with suppress(RuntimeError):  # the loop is closed: no task waits
                loop.call_soon_threadsafe(settle, failure)

        name = f"partition {self.number}"
        self._thread = threading.Thread(target=in_thread, name=name, daemon=True)
        self._thread.start()
        await _ended(ended)
        if (failure := ended.result()) is not None:
            raise contained(failure)


async def _ended(working: asyncio.Future[Any]) -> None:
    """Return when the work has; if this is cancelled, that is raised then."""
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait({working})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def owners_of(partitions: int, members: Iterable[str]) -> list[str]:
    """Return who should own each partition, by its number; empty without members.

    Of all pairs of a partition and a member the one with the highest hash comes first, and is taken
    if its partition is free and its member has room: an even share, and one more for as many as the
    division leaves over.
    """
    names = sorted(members)
    if not names:
        return []
    share, left_over = divmod(partitions, len(names))
    room = dict.fromkeys(names, share)
    owners: dict[int, str] = {}
    for _, number, name in sorted(
        [(_weight(number, name), number, name) for number in range(partitions) for name in names],
        reverse=True,
    ):
        is_one_more = room[name] == 0 and left_over > 0
        if number not in owners and (room[name] > 0 or is_one_more):
            owners[number] = name
            room[name] -= 1
            left_over -= is_one_more
    return [owners[number] for number in range(partitions)]


def _weight(number: int, name: str) -> bytes:
    return hashlib.sha256(f"{number}/{name}".encode()).digest()


class Partitioner(Generic[ClientT]):
    """One member that takes its share of the ``partitions`` 0, 1, 2 …, up to 1,000, of ``name``.

    Args:
        member: the name of this member; None draws one. A name that stays the same after a restart
            gets the same partitions again.
        metadata: what others see of this member; see ``Group``.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        partitions: int,
        *,
        member: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        self.client = client
        self.name = name_of(name)
        self.partitions = checked_count("partitions", partitions, PARTITIONS_MAX)
        self.group = Group(client, name)
        self._member = member
        self._metadata = metadata
        self._serving: dict[int, Serving[ClientT]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Event | None = None

    @overload
    def run(self: Partitioner[Client], work: Callable[[Owned[Client]], object]) -> None: ...
    @overload
    def run(
        self: Partitioner[AsyncClient], work: Callable[[Owned[AsyncClient]], Awaitable[object]]
    ) -> Coroutine[Any, Any, None]: ...

    def run(self: Any, work: Callable[[Any], Any]) -> Any:
        """Take part: run ``work(owned)`` for each partition for as long as it is owned here.

        With a Client each runs in a thread, which ends when ``owned.stopping`` is set; with an
        AsyncClient each is a task, which is cancelled. Work that returns is not begun again here.
        It returns or raises when all its threads have returned; but Ctrl-C waits for them for five
        seconds only. What still runs then keeps its partition while the client is open.

        Raises:
            NodeExistsError: another member of this name is there.
            ClientClosedError: the client was closed; its work was stopped, and has ended.
            UnavailableError, OutcomeUnknownError: this member could not be registered in time.
            BadArgumentsError: ``work`` cannot be run (with an AsyncClient it may be a
                coroutine function); or it returned a coroutine or a generator, which has not run.
            What the first work that fails raises; all others are stopped before.
        """
        expect_function(self.client, "Partitioner.run", work)
        if not isinstance(self.client, Client):
            return self.client.call(self._run(work))
        return self._run_threads(work)

    @both
    async def stop(self) -> None:
        """End ``run``: stop all work, release all partitions, leave. Idempotent.

        Raises:
            ClientClosedError: the client is closed, and ``run`` has ended.
        """
        if self._stopping is not None:
            self._stopping.set()

    @property
    def owned(self) -> tuple[int, ...]:
        """The partitions whose work runs here, and whose grant may be relied upon."""
        serving = list(self._serving.items())
        return tuple(sorted(number for number, each in serving if each.is_owner))

    @both
    async def owners(self) -> dict[int, tuple[str, int]]:
        """Return who owns each partition, and the fencing token: the past when it is read.

        Raises:
            UnavailableError: no member of the cluster answered in time.
        """
        core = self.client.core
        names = [self._lock_name(number) for number in range(self.partitions)]
        views = [await core.lock(name) for name in names]
        return {
            number: (view.holder.label, view.holder.fencing_token)
            for number, view in enumerate(views)
            if view.holder is not None
        }

    # --- inside

    def _lock_name(self, number: int) -> str:
        return f"{self.name}/{number}"

    def _run_threads(self: Any, work: Callable[[Owned[Client]], object]) -> None:
        try:
            return self.client.call(self._run(work))  # type: ignore[no-any-return]
        except OutcomeUnknownError:
            if self._stopping is None:
                raise  # it has ended in order
        # The client's loop ended before it did: wait here for what still works.
        for each in list(self._serving.values()):  # the loop may end one
            each.join()
        raise ClientClosedError(
            f"partitioner {self.name!r}: the client was closed while it ran; its work was asked to "
            f"stop then, and has ended"
        )

    async def _run(self, work: Callable[[Owned[ClientT]], Any]) -> None:
        core = self.client.core
        if self._stopping is not None:
            raise BadArgumentsError(f"partitioner {self.name!r}: expected one run, found a second")
        self._stopping = asyncio.Event()
        try:
            name = self._member or unique_name(core, await core.session())
            me = await self.group._join(name, metadata=self._metadata)
        except BaseException:
            self._stopping = None
            raise
        try:
            for number in range(self.partitions):
                self._serving[number] = Serving(
                    self.client, number, self._lock_name(number), name, work
                )
            self._tasks = [asyncio.create_task(each.serve()) for each in self._serving.values()]
            self._tasks.append(asyncio.create_task(self._follow(name)))
            self._tasks.append(asyncio.create_task(_event_set(self._stopping)))
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await asyncio.shield(self._ended(me))
        for task in self._tasks:
            if not task.cancelled():
                task.result()

    async def _ended(self, me: Membership[ClientT]) -> None:
        """Leave, so that others queue up; stop all work; release."""
        await me._leave()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._serving.clear()
        self._stopping = None

    async def _follow(self, name: str) -> None:
        """Say what is wanted here, after each change of the group."""
        async with GroupStream(self.client.core, self.group.path) as listings:
            async for members in listings:
                up = [each.name for each in members if each.state == "up"]
                owners = owners_of(self.partitions, up)
                for number, serving in self._serving.items():
                    serving.want(name in up and owners[number] == name)


async def _event_set(event: asyncio.Event) -> None:
    await event.wait()
