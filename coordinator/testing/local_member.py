"""One member of a local cluster, which starts, stops, is killed and starts again."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from random import Random

from coordinator.errors import SessionExpiredError
from coordinator.model.limits import NEW_CLUSTER
from coordinator.model.status import Status
from coordinator.node.config import (
    ClusterConfig,
    Config,
    HttpConfig,
    MemberConfig,
    RaftConfig,
    SessionConfig,
)
from coordinator.node.server import Server, facts_to_agree_on
from coordinator.raft.network.transport import TcpTransport
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.storage.disk import DiskFile, OsDisk, OsFile
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, ExpireSession
from coordinator.testing.clocks import AdjustableClock
from coordinator.testing.member_links import LinkEnd, Links
from coordinator.tls.certificates import of_member

SESSION_TIMEOUT_MS_MIN = 200
"""Tests may have sessions shorter than a cluster in earnest would allow."""
_TICK_MS = 20
_SHUTDOWN_GRACE_MS = 200
_READ_MS_MAX = 5_000
_IN_PLACE_MS_MAX = 5.0
"""As members have it by default. What is not synced at all is never a slow disk."""


class LocalMember:
    """All of it is used in the cluster's loop, but for ``clock``."""

    def __init__(
        self,
        cluster: ClusterConfig,
        member_id: str,
        data_dir: str,
        links: Links,
        *,
        is_synced: bool,
        shown: tuple[str, str] | None = None,
    ) -> None:
        self.member_id = member_id
        self.clock = AdjustableClock()
        address = next(each for each in cluster.members if each.member_id == member_id)
        self.url = address.client_url
        cert_file, key_file = shown or (None, None)
        self._config = Config(
            member=MemberConfig(
                member_id=member_id,
                data_dir=data_dir,
                tls_cert_file=cert_file,
                tls_key_file=key_file,
            ),
            cluster=cluster,
            http=HttpConfig(
                bind_port=int(self.url.rpartition(":")[2]),
                shutdown_grace_ms=_SHUTDOWN_GRACE_MS,
                tls_cert_file=cert_file,
                tls_key_file=key_file,
            ),
            raft=RaftConfig(),
            sessions=SessionConfig(tick_ms=_TICK_MS),
            first_limits=replace(NEW_CLUSTER, timeout_ms_min=SESSION_TIMEOUT_MS_MIN),
        )
        self._links = links
        self._is_synced = is_synced
        self._server: Server | None = None
        self._engine: PySyncObjEngine | None = None
        self._end: LinkEnd | None = None

    @property
    def is_running(self) -> bool:
        """Whether the member has been started and not stopped."""
        return self._server is not None

    @property
    def status(self) -> Status | None:
        """The status of the member, None while it does not run."""
        return None if self._server is None else self._server.member.status()

    async def start(self) -> None:
        """Load what is on disk and listen; does nothing if it runs."""
        if self._server is not None:
            return
        config = self._config
        random = Random()  # noqa: S311 - of election timeouts
        transport = TcpTransport(
            config.cluster, config.member, config.raft, clock=self.clock, random=random,
            tls=of_member(config),
        )  # fmt: skip
        self._end = self._links.end_of(self.member_id, transport)
        self._engine = PySyncObjEngine(
            config.cluster,
            config.member,
            config.raft,
            clock=self.clock,
            disk=OsDisk() if self._is_synced else _UnsyncedDisk(),
            random=random,
            transport=self._end,
            facts=facts_to_agree_on(),
            sync_in_place_ms_max=_IN_PLACE_MS_MAX if self._is_synced else math.inf,
        )
        server = Server(config, engine=self._engine, clock=self.clock)
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop in good order, handing the leadership over."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def kill(self) -> None:
        """End as ``kill -9`` ends a process: nothing more leaves it, its connections break."""
        server, self._server = self._server, None
        if server is None:
            return
        assert self._end is not None, "a running member has an end"
        await self._end.vanish()
        await server.abort()

    async def silence_ms_of(self, session_id: str) -> int | None:
        """Return how long an open session may have been silent, None if it is not open.

        That is its timeout, or its age while it is younger: the history of grants stays true.
        """
        assert self._server is not None, "a leader runs"
        deadline_ms = self.clock.monotonic_ms() + _READ_MS_MAX
        try:
            reply = await self._server.member.sessions.one(session_id, LINEARIZABLE, deadline_ms)
        except SessionExpiredError:
            return None
        age_ms = max(0, self.clock.wall_ms() - reply.value.opened_ms)
        return min(reply.value.timeout_ms, age_ms)

    async def expire(self, session_id: str, silent_ms: int) -> None:
        """As leader, end a session as if nothing had been heard of it for ``silent_ms``."""
        assert self._engine is not None, "a leader runs"
        expiry = ExpireSession(session_id, self._engine.term, silent_ms)
        command = Command(expiry, self.clock.wall_ms())
        await self._engine.propose(encode_command(command))


class _UnsyncedFile(OsFile):
    descriptor = None

    def sync(self) -> None:
        """Leave it to the system: a test's data need not outlive a power cut."""


class _UnsyncedDisk(OsDisk):
    """Files without their syncs, which is what makes a disk slow."""

    def create(self, path: str) -> DiskFile:
        return _UnsyncedFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def open_append(self, path: str) -> DiskFile:
        return _UnsyncedFile(path, os.O_RDWR | os.O_APPEND)

    def sync_directory(self, path: str) -> None:
        """Leave it to the system."""
