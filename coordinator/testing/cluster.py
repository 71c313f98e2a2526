"""A real cluster in this process, and the faults that a test may inject.

::

    with local_cluster() as cluster, cluster.connect() as client:
        with Lock(client, "report") as grant:
            cluster.expire(client)
            ...

1. The members are complete: engine, log on disk, member links and doors on real loopback sockets.
   They run in one event loop in a thread of their own.
2. Every method may be called from any thread, and from a coroutine; its effect is complete when it
   returns. ``stop``, ``kill``, ``restart`` and ``heal`` take some tenths of a second; if that is
   too long for an event loop, use ``await asyncio.to_thread(cluster.restart, "1")``.
3. Faults of a client need a client made by ``connect`` of this cluster. A fault lasts until it is
   ended, its ``with`` is left, or ``heal`` ends all faults.
4. At the end nothing remains: no thread, no socket, no file.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from coordinator.client import AsyncClient, Client, Request, Session
from coordinator.clock import SystemClock
from coordinator.errors import BadArgumentsError, OutcomeUnknownError, UnavailableError
from coordinator.node.config import ClusterConfig, MemberAddress
from coordinator.node.secret_file import ensure_secret
from coordinator.recipes import Grant
from coordinator.testing.client_wire import Deed, Wire
from coordinator.testing.faults import Fault
from coordinator.testing.local_access import LocalAccess
from coordinator.testing.local_certificates import LocalCertificates
from coordinator.testing.local_member import LocalMember
from coordinator.testing.member_links import Links
from coordinator.testing.ports import LOOPBACK, ReservedPorts
from coordinator.testing.wired import WiredConnector

T = TypeVar("T")
AnyClient = Client | AsyncClient

_NAME = "local"
_READY_S = 30.0
_CALL_S = 60.0
_LOOK_S = 0.005
_MEMBERS_MAX = 9


class LocalCluster:
    """A running cluster; made by ``local_cluster``.

    ``members`` are their ids, "1" and so on. ``endpoints`` are their URLs, separated by commas, as
    ``coordinator.connect`` and ``COORDINATOR_ENDPOINTS`` take them.

    Every method that takes a member or a client raises BadArgumentsError if it is none of this
    cluster, or the cluster is closed. What waits for a leader or for members raises
    UnavailableError if there is none for half a minute.
    """

    def __init__(
        self,
        members: int,
        directory: Path | None,
        *,
        is_synced: bool,
        tls: bool = False,
        access: bool = False,
    ) -> None:
        if not 1 <= members <= _MEMBERS_MAX:
            raise BadArgumentsError(
                f"local_cluster: expected 1 to {_MEMBERS_MAX} members, found {members}"
            )
        self.members = tuple(str(number) for number in range(1, members + 1))
        self._directory = directory
        self._is_synced = is_synced
        self.certificates = LocalCertificates(_NAME) if tls else None
        """The CA, its file and those of clients, of a cluster with TLS."""
        self.access = LocalAccess() if access else None
        """The administrator's token, and others, of a cluster with access rights."""
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._ports: ReservedPorts | None = None
        self._links = Links()
        self._members: dict[str, LocalMember] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._wires: weakref.WeakKeyDictionary[AsyncClient, Wire] = weakref.WeakKeyDictionary()
        self._faults: list[Fault] = []

    # --- what it is

    @property
    def urls(self) -> tuple[str, ...]:
        """Where clients reach each member."""
        return tuple(self.url(member_id) for member_id in self.members)

    @property
    def endpoints(self) -> str:
        """The URLs of all members, separated by commas, as ``connect`` takes them."""
        return ",".join(self.urls)

    def url(self, member_id: str) -> str:
        """Return where clients reach one member."""
        return self._member(member_id).url

    @property
    def leader(self) -> str:
        """The id of the leader; waits while there is none."""
        return self._run(self._wait_for_leader())

    @property
    def followers(self) -> tuple[str, ...]:
        """The running members that do not lead."""
        leader = self.leader
        return tuple(each for each in self.running if each != leader)

    @property
    def running(self) -> tuple[str, ...]:
        """The members that run."""
        return tuple(each for each in self.members if self._members[each].is_running)

    def connect(self, **options: Any) -> WiredConnector:
        """Return a connector, for ``with`` and ``async with``, as ``coordinator.connect`` does.

        It takes the same options, except for ``clock``, which is a switch; ``transport`` is the
        name of one, since the switches are within it.
        """
        if self.certificates is not None:
            options = {"ca_file": self.certificates.ca_file, **options}
        if self.access is not None and self.access.admin_token and "token_file" not in options:
            options = {"token": self.access.admin_token, **options}
        return WiredConnector(self.urls, self._wires, options)

    # --- faults of one client

    def freeze_heartbeats(self, client: AnyClient) -> Fault:
        """Hold this client's heartbeats back; everything else of it goes through."""
        return self._keep(self._wire(client).freeze_heartbeats())

    def drop_reply(
        self, client: AnyClient, of: Deed | Callable[[Request], bool] = "write"
    ) -> Fault:
        """Lose the reply of this client's next "acquire", "release" or "write", after the deed.

        Args:
            client: one that ``connect`` of this cluster made.
            of: which reply; or a function that says of a request whether it is the one.

        Returns:
            The fault, which ends by itself when it has happened.
        """
        return self._keep(self._wire(client).drop_reply(of))

    def cut_off(self, who: AnyClient | str, *members: str) -> Fault:
        """Cut a client, or a member, off from these members; from all others if none is named.

        A member that is cut off from the others still hears its clients.

        Args:
            who: a client, or the id of a member.
            members: ids of members.
        """
        if not isinstance(who, str):
            urls = frozenset(self.url(each) for each in members) if members else None
            return self._keep(self._wire(who).cut(urls))
        others = members or tuple(each for each in self.members if each != who)
        return self.partition((who,), others)

    def partition(self, *groups: Sequence[str]) -> Fault:
        """Cut every link between members of different groups.

        Args:
            groups: ids of members; a member of no group keeps its links.
        """
        for group in groups:
            for member_id in group:
                self._member(member_id)

        async def cut() -> list[object]:
            pairs = [(left, right) for at, left in enumerate(groups) for right in groups[at + 1 :]]
            return [self._links.cut(left, right) for left, right in pairs]

        keys = self._run(cut())

        async def mend() -> None:
            for key in keys:
                self._links.mend(key)

        return self._keep(Fault(lambda: self._run(mend())))

    def expire(self, whose: AnyClient | Session | Grant[Any] | str) -> None:
        """End a session now, at the cluster, as if its client had been silent for too long.

        The client is not notified: it finds out as in production.

        Args:
            whose: a session, its id, a grant of it, or a client with a session.

        Raises:
            BadArgumentsError: the client has no session, or the session is not open.
        """
        if isinstance(whose, str):
            session_id = whose
        elif isinstance(whose, Client | AsyncClient):
            opened = self._wire(whose).session_id
            if opened is None:
                raise BadArgumentsError("expire: expected a client with a session, found none")
            session_id = opened
        else:
            session_id = whose.session_id
        self._run(self._expire(session_id))

    def pause(self, client: AnyClient, ms: int) -> None:
        """Stop the client for ``ms``, as a garbage collector stops a process; returns after it.

        Its event loop and the calling thread stand still, its clock goes on. For an asyncio
        client, call it in the client's own loop (without ``to_thread``).
        """
        loop = client.core.loop
        if _running_loop() is loop:
            _stand_still(ms)
            return
        done = threading.Event()

        def stop() -> None:
            _stand_still(ms)
            done.set()

        loop.call_soon_threadsafe(stop)
        done.wait(_CALL_S + ms / 1000)

    # --- clocks

    def step_clock(self, who: AnyClient | str, by_ms: int) -> None:
        """Step the wall clock of a client or a member, as NTP would; either sign."""
        self._clock(who).step_wall(by_ms)

    def set_clock_rate(self, who: AnyClient | str, rate: float) -> None:
        """Let the monotonic clock of a client or a member run fast (1.01) or slow (0.99).

        Raises:
            ValueError: the rate is not above 0.
        """
        self._clock(who).set_rate(rate)

    # --- members

    def kill(self, member_id: str | None = None) -> str:
        """End a member as ``kill -9`` does, None: the leader; returns its id. Its disk stays."""
        victim = self.leader if member_id is None else member_id
        self._run(self._member(victim).kill())
        return victim

    def stop(self, member_id: str | None = None) -> str:
        """Stop a member in good order, None: the leader; returns its id."""
        chosen = self.leader if member_id is None else member_id
        self._run(self._member(chosen).stop())
        return chosen

    def restart(self, member_id: str) -> None:
        """Start a member again on what is on its disk (after a kill, if it runs); wait for it."""
        member = self._member(member_id)

        async def again() -> None:
            await member.kill()
            await member.start()
            await self._until(lambda: _is_ready(member), f"member {member_id} is not ready")

        self._run(again())

    def heal(self) -> None:
        """End all faults, set all clocks right, start stopped members, wait for all."""
        faults, self._faults = self._faults, []
        for fault in faults:
            fault.end()
        clocks = [each.clock for each in self._members.values()]
        for clock in (*clocks, *(each.clock for each in self._wires.values())):
            clock.set_right()
        self._run(self._start_all())

    def clear(self) -> None:
        """``heal``, then end every session and delete every znode; zxids and tokens go on."""
        self.heal()
        with self.connect() as client:
            own = client.session().session_id
            for each in client.sessions():
                if each.session_id != own:
                    with suppress(BadArgumentsError):  # it has ended by itself meanwhile
                        self.expire(each.session_id)
            for name in client.children("/").names:
                client.delete(f"/{name}", recursive=True)

    # --- life

    def start(self) -> None:
        """Start the members and wait until all of them are ready; ``local_cluster`` does it."""
        if self._directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="coordinator-")
            directory = Path(self._temporary.name)
        else:
            directory = self._directory
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._main, args=(started,), name="coordinator cluster", daemon=True
        )
        self._thread.start()
        started.wait(_CALL_S)
        try:
            self._make_members(directory)
            self._run(self._start_all())
            if self.access is not None:
                with self.connect() as client:
                    self.access.begin(client)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop everything and leave nothing; idempotent."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            try:
                self._run(self._stop_all())
            finally:
                self._loop = self._thread = None
                loop.call_soon_threadsafe(loop.stop)
                thread.join(_CALL_S)
        if self._ports is not None:
            self._ports.release()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _main(self, started: threading.Event) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            self._loop = loop = runner.get_loop()
            loop.call_soon(started.set)
            loop.run_forever()

    def _make_members(self, directory: Path) -> None:
        self._ports = ReservedPorts(2 * len(self.members))
        doors, links = self._ports.ports[::2], self._ports.ports[1::2]
        secret_file = directory / "cluster-secret"
        directory.mkdir(parents=True, exist_ok=True)
        ensure_secret(secret_file)
        tls, scheme = self.certificates, "http"
        if tls is not None:
            tls.write(directory / "certs")
            scheme = "https"
        cluster = ClusterConfig(
            name=_NAME,
            secret_file=str(secret_file),
            tls_ca_file=None if tls is None else tls.ca_file,
            members=tuple(
                MemberAddress(member_id, f"{scheme}://{LOOPBACK}:{door}", LOOPBACK, link)
                for member_id, door, link in zip(self.members, doors, links, strict=True)
            ),
        )
        for member_id in self.members:
            data_dir = str(directory / f"member-{member_id}")
            shown = None if tls is None else tls.member(member_id, LOOPBACK)
            self._members[member_id] = LocalMember(
                cluster, member_id, data_dir, self._links, is_synced=self._is_synced, shown=shown
            )

    async def _start_all(self) -> None:
        members = list(self._members.values())
        await asyncio.gather(*(each.start() for each in members))
        await self._until(lambda: all(_is_ready(each) for each in members), "not all are ready")

    async def _stop_all(self) -> None:
        # No leadership is handed over on the way: everybody goes.
        await asyncio.gather(*(each.kill() for each in self._members.values()))

    # --- within

    async def _wait_for_leader(self) -> str:
        await self._until(lambda: self._leader_now() is not None, "no member leads")
        leader = self._leader_now()
        assert leader is not None, "just seen"
        return leader

    def _leader_now(self) -> str | None:
        """Return who leads by the highest term that is known, and is ready for it."""
        found = (0, "")
        for member_id, member in self._members.items():
            status = member.status
            if status is not None and status.role == "leader" and status.is_ready:
                found = max(found, (status.term, member_id))
        return found[1] or None

    async def _expire(self, session_id: str) -> None:
        async with asyncio.timeout(_READY_S):
            while True:
                leader = self._members[await self._wait_for_leader()]
                with suppress(UnavailableError, OutcomeUnknownError):  # another leader: ask again
                    silent_ms = await leader.silence_ms_of(session_id)
                    if silent_ms is None:
                        raise BadArgumentsError(f"expire: no open session {session_id}")
                    await leader.expire(session_id, silent_ms)
                    if await leader.silence_ms_of(session_id) is None:
                        return
                await asyncio.sleep(_LOOK_S)

    async def _until(self, is_so: Callable[[], bool], otherwise: str) -> None:
        # Bound by looks, not by a clock: on a busy machine each of them takes longer.
        for _ in range(round(_READY_S / _LOOK_S)):
            if is_so():
                return
            await asyncio.sleep(_LOOK_S)
        raise UnavailableError(f"local cluster: {otherwise} within {_READY_S:g} s of looking")

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the cluster's loop and wait for it."""
        if self._loop is None:
            work.close()
            raise BadArgumentsError("local cluster: expected a running one, found it closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_S)

    def _keep(self, fault: Fault) -> Fault:
        self._faults = [each for each in self._faults if each.is_in_effect]
        self._faults.append(fault)
        return fault

    def _member(self, member_id: str) -> LocalMember:
        if member_id not in self._members:
            raise BadArgumentsError(
                f"expected one of the members {', '.join(self.members)}, found {member_id!r}"
            )
        return self._members[member_id]

    def _wire(self, client: AnyClient) -> Wire:
        wire = self._wires.get(client.core)
        if wire is None:
            raise BadArgumentsError(
                "expected a client made by cluster.connect(), found one that this cluster "
                "has no switches for"
            )
        return wire

    def _clock(self, who: AnyClient | str) -> Any:
        return self._member(who).clock if isinstance(who, str) else self._wire(who).clock


def _is_ready(member: LocalMember) -> bool:
    status = member.status
    return status is not None and status.is_ready


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _stand_still(ms: int) -> None:
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + ms
    while (rest_ms := end_ms - clock.monotonic_ms()) > 0:
        threading.Event().wait(rest_ms / 1000)
