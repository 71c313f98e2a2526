"""A tooz driver: locks, groups and leaders of OpenStack's interface, kept by this cluster.

::

    coordinator = tooz.coordination.get_coordinator("coordinator://10.0.0.7:7071", b"host-1")
    coordinator.start()
    with coordinator.get_lock(b"images") as lock:
        clean_up(token=lock.fencing_token)

1. Members, locks and leaderships are of the client's session, which keeps itself alive: no
   ``heartbeat`` is needed, and all of a process that dies goes with its lease.
2. A lock has a fencing token, which tooz does not know of: pass it on with each write.
   ``is_still_owner`` asks the cluster; its answer is the past when it is read.
3. A group is a znode, ``/tooz/<group>``, a member an ephemeral one below it, with its capabilities
   as msgpack. A member whose session was lost has left; ``run_watchers`` notices it.
4. What cannot be reached is ToozConnectionError; what may have been done, OperationTimedOut.
5. The URL may name several members, by commas; ``?session_timeout=`` is the lease in seconds, and
   ``?timeout=`` how long one call may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from coordinator.client import Client, connect
from coordinator.errors import (
    CoordinatorError,
    LockTimeoutError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.integrations.extras import missing_extra
from coordinator.recipes.election import Election
from coordinator.recipes.lock import Lock
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.rw_lock import RWLock
from coordinator.recipes.waits import FOREVER

try:
    import tooz as tooz_package
    from tooz import coordination, locking, utils
except ImportError as error:
    raise missing_extra("tooz", "tooz") from error

ROOT = "/tooz"
_PREFIX = "tooz:"
Scope = Callable[[], Any]


@contextmanager
def translated() -> Iterator[None]:
    """Raise tooz' errors for ours."""
    try:
        yield
    except UnavailableError as error:
        raise coordination.ToozConnectionError(error.message) from error
    except OutcomeUnknownError as error:
        raise coordination.OperationTimedOut(error.message) from error
    except CoordinatorError as error:
        raise tooz_package.ToozError(error.message) from error


class Settled(coordination.CoordAsyncResult):
    """The outcome of a call, which is made when the outcome is asked for."""

    def __init__(self, work: Scope) -> None:
        self._value: Any = None
        self._error: Exception | None = None
        try:
            with translated():
                self._value = work()
        except tooz_package.ToozError as error:
            self._error = error

    def get(self, timeout: float | None = None) -> Any:
        """Return the value, or raise; ``timeout`` has no meaning by now."""
        if self._error is not None:
            raise self._error
        return self._value

    def done(self) -> bool:
        """Always True."""
        return True


class DriverLock(locking.Lock):
    """The lock ``name``; ``fencing_token`` is that of its present grant, 0 without one."""

    def __init__(self, client: Client, name: bytes | str, by: str) -> None:
        super().__init__(name)
        self._client = client
        self._lock_name = _PREFIX + _segment(name)
        self._by = by
        self._held: list[Lock[Client]] = []
        """What was acquired and not released; shared ones may be several."""

    @property
    def acquired(self) -> bool:
        """Whether this object holds it, by the clock."""
        grant = self._grant()
        return grant is not None and not grant.is_lost

    @property
    def fencing_token(self) -> int:
        """Larger with each grant of the lock."""
        grant = self._grant()
        return 0 if grant is None else grant.fencing_token

    def acquire(
        self, blocking: bool | float = True, shared: bool = False, timeout: float | None = None
    ) -> bool:
        """Wait for it: ``blocking`` False tries once, a number is a timeout in seconds."""
        wait: Any = 0.0
        if blocking is True:
            wait = FOREVER if timeout is None else timeout
        elif blocking is not False:
            wait = blocking
        both = RWLock(self._client, self._lock_name, timeout=wait, owner="", label=self._by)
        one = both.read() if shared else both.write()
        with translated():
            try:
                one.acquire()
            except LockTimeoutError:
                return False
        self._held.append(one)
        return True

    def release(self) -> bool:
        """Release it; False if this object did not hold it any more."""
        latest = self._latest()
        if latest is None:
            return False
        with translated():
            was_held = latest.release()
        with suppress(ValueError):  # two threads released the same one
            self._held.remove(latest)  # not the last: another thread may have acquired since
        return was_held

    def is_still_owner(self) -> bool:
        """Ask the cluster whether the lock is still held."""
        grant = self._grant()
        if grant is None:
            return False
        with translated():
            return grant.is_held().is_held

    def break_(self) -> bool:
        """Release it by force, also where another client holds it; the audit log has it."""
        with translated():
            holders = self._client.lock(self._lock_name).holders
            for each in holders:
                self._client.revoke(
                    self._lock_name, by=self._by, reason="tooz: break_", grant_id=each.grant_id
                )
        return bool(holders)

    def _grant(self) -> Grant[Client] | None:
        latest = self._latest()
        return None if latest is None else latest.grant

    def _latest(self) -> Lock[Client] | None:
        held = tuple(self._held)  # as it is now: other threads acquire and release
        return held[-1] if held else None


class CoordinatorDriver(coordination.CoordinationDriverCachedRunWatchers):
    """What ``tooz.coordination.get_coordinator("coordinator://...")`` returns."""

    CHARACTERISTICS = (
        coordination.Characteristics.DISTRIBUTED_ACROSS_THREADS,
        coordination.Characteristics.DISTRIBUTED_ACROSS_PROCESSES,
        coordination.Characteristics.DISTRIBUTED_ACROSS_HOSTS,
        coordination.Characteristics.NON_TIMEOUT_BASED,
        coordination.Characteristics.LINEARIZABLE,
        coordination.Characteristics.SAME_VIEW_UNDER_PARTITIONS,
    )

    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(member_id, parsed_url, options)
        settings = utils.collapse(options)
        self._endpoints = [f"http://{each}" for each in parsed_url.netloc.split(",")]
        self._session_s = float(settings.get("session_timeout", 10))
        self._timeout_s = float(settings.get("timeout", 10))
        self._by = _segment(member_id)[:100]
        self._client: Client
        self._elections: dict[bytes, Election[Client]] = {}

    def _start(self) -> None:
        connector = connect(
            self._endpoints,
            session_timeout=self._session_s,
            timeout=self._timeout_s,
            label=self._by,
        )
        with translated():
            self._client = connector.open()
            try:
                self._client.exists(ROOT)  # a cluster that is not there is said now
            except CoordinatorError:
                self._client.close()
                raise

    def _stop(self) -> None:
        self._elections.clear()
        self._client.close()

    # --- groups

    def create_group(self, group_id: bytes) -> Settled:
        """Make the group's znode."""

        def work() -> None:
            try:
                self._client.create(_group(group_id), parents="persistent")
            except NodeExistsError:
                raise coordination.GroupAlreadyExist(group_id) from None

        return Settled(work)

    def delete_group(self, group_id: bytes) -> Settled:
        """Delete it, if it is empty."""

        def work() -> None:
            try:
                self._client.delete(_group(group_id))
            except NoNodeError:
                raise coordination.GroupNotCreated(group_id) from None
            except NotEmptyError:
                raise coordination.GroupNotEmpty(group_id) from None

        return Settled(work)

    def get_groups(self) -> Settled:
        """List all groups."""
        return Settled(lambda: list(self._below(ROOT)))

    def join_group(self, group_id: bytes, capabilities: Any = None) -> Settled:
        """Be a member for as long as the session lives."""

        def work() -> None:
            path, data = self._member(group_id, self._member_id), utils.dumps(capabilities or b"")
            try:
                self._client.create(path, data, mode="ephemeral")
            except NodeExistsError:
                raise coordination.MemberAlreadyExist(group_id, self._member_id) from None
            except NoNodeError:
                raise coordination.GroupNotCreated(group_id) from None
            self._joined_groups.add(group_id)

        return Settled(work)

    def leave_group(self, group_id: bytes) -> Settled:
        """Be no member any more."""

        def work() -> None:
            self._joined_groups.discard(group_id)
            try:
                self._client.delete(self._member(group_id, self._member_id))
            except NoNodeError:
                raise self._not_joined(group_id, self._member_id) from None

        return Settled(work)

    def get_members(self, group_id: bytes) -> Settled:
        """List who is in it."""

        def work() -> set[bytes]:
            if self._client.exists(_group(group_id)) is None:
                raise coordination.GroupNotCreated(group_id)
            return set(self._below(_group(group_id)))

        return Settled(work)

    def get_member_capabilities(self, group_id: bytes, member_id: bytes) -> Settled:
        """Return what a member can do."""

        def work() -> Any:
            try:
                return utils.loads(self._client.get(self._member(group_id, member_id)).data)
            except NoNodeError:
                raise self._not_joined(group_id, member_id) from None

        return Settled(work)

    def update_capabilities(self, group_id: bytes, capabilities: Any) -> Settled:
        """Say what this member can do now."""

        def work() -> None:
            try:
                self._client.set(self._member(group_id, self._member_id), utils.dumps(capabilities))
            except NoNodeError:
                raise self._not_joined(group_id, self._member_id) from None

        return Settled(work)

    # --- leaders

    def run_watchers(self, timeout: float | None = None) -> list[Any]:
        """Call back who came and went, and who was elected."""
        found: list[Any] = super().run_watchers(timeout)
        self.run_elect_coordinator()
        return found

    def run_elect_coordinator(self) -> None:
        """Try once to lead each group whose election is watched here."""
        for group_id in list(self._hooks_elected_leader):
            mine = self._elections.get(group_id)
            if mine is not None and mine.leadership is not None and not mine.leadership.is_lost:
                continue
            election = Election(
                self._client, _PREFIX + _segment(group_id), value=self._member_id, timeout=0
            )
            try:
                with translated():
                    election.campaign()
            except tooz_package.ToozError as error:
                if isinstance(error.__cause__, LockTimeoutError):
                    continue
                raise
            self._elections[group_id] = election
            event = coordination.LeaderElected(group_id, self._member_id)
            self._hooks_elected_leader[group_id].run(event)

    def get_leader(self, group_id: bytes) -> Settled:
        """Return the member that leads, None if none does."""

        def work() -> bytes | None:
            elected = self._client.election(_PREFIX + _segment(group_id)).elected
            return None if elected is None else elected.value

        return Settled(work)

    def stand_down_group_leader(self, group_id: bytes) -> bool:
        """Resign; False if this member did not lead."""
        election = self._elections.get(group_id)
        if election is None:
            return False
        with translated():
            has_resigned = election.resign()
        if self._elections.get(group_id) is election:  # not before: what failed may be tried again
            del self._elections[group_id]
        return has_resigned

    def get_lock(self, name: bytes) -> DriverLock:
        """Return a lock of this name."""
        return DriverLock(self._client, name, self._by)

    # --- inside

    def _member(self, group_id: bytes, member_id: bytes) -> str:
        return f"{_group(group_id)}/{_segment(member_id)}"

    def _below(self, path: str) -> Iterator[bytes]:
        after: str | None = None
        while True:
            try:
                page = self._client.children(path, after=after)
            except NoNodeError:
                return
            yield from map(unquote_to_bytes, page.names)
            if (after := page.next) is None:
                return

    def _not_joined(self, group_id: bytes, member_id: bytes) -> Exception:
        if self._client.exists(_group(group_id)) is None:
            gone: Exception = coordination.GroupNotCreated(group_id)
            return gone
        error: Exception = coordination.MemberNotJoined(group_id, member_id)
        return error


def _group(group_id: bytes | str) -> str:
    return f"{ROOT}/{_segment(group_id)}"


def _segment(name: bytes | str) -> str:
    return quote(name, safe="").replace(".", "%2E")
