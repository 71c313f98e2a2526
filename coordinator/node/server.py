"""The server: builds a whole member from a Config, starts it and stops it.

1. Start: first the log (entries on disk are applied), then the door. A member that cannot trust its
   disk, or whose address is taken, never listens.
2. Stop: first the door closes (waits and streams end, short requests finish within the grace), then
   the member leaves the cluster, then its files are closed.
3. A member that fails (its disk, an invariant, a background task) stops loudly and at once: its
   door has a short grace, and ``run`` raises the failure after closing everything it can.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from coordinator.audit.event import AuditEvent, Source
from coordinator.audit.opening import open_audit
from coordinator.clock import Clock, SystemClock
from coordinator.errors import CoordinatorError, StorageError
from coordinator.node import build, log_lines
from coordinator.node.backup_schedule import BackupSchedule
from coordinator.node.config import Config, MemberAddress
from coordinator.node.config_rules import what_is_off
from coordinator.node.garbage import SmallSteps
from coordinator.node.service_manager import ServiceManager
from coordinator.oidc.opening import check_issuer, open_issuer
from coordinator.raft.engine import Engine
from coordinator.raft.loopback import LoopbackEngine
from coordinator.raft.network.agreement import Fact, Levels
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.rejoin.refounding import read_note
from coordinator.raft.storage.disk import OsDisk
from coordinator.service.member import Member
from coordinator.service.reporting.status import product_version
from coordinator.state import levels
from coordinator.state.rules import digest_at
from coordinator.tls.certificates import Certificates

if TYPE_CHECKING:
    from coordinator.wire.http.server import HttpServer

logger = logging.getLogger("coordinator.server")
audit = logging.getLogger("coordinator.audit")

_STOP_DEADLINE_S = 10.0
_THREADS_DEADLINE_S = 1.0
_FAILED_GRACE_S = 0.5
"""The grace of a member that has failed: it answers nothing useful and must end."""
_DESCRIPTORS_KEPT = 256
"""For the log, the snapshots, the other members, and connections that are being refused."""


class Server:
    """One member with its door.

    Args:
        config: of this member.
        engine: orders the commands; None: PySyncObj's Raft with the log of ``config`` on disk.
        clock: None: the clock of this machine.
    """

    def __init__(
        self, config: Config, *, engine: Engine | None = None, clock: Clock | None = None
    ) -> None:
        self._config = config = _with_members(config)
        self._clock = clock or SystemClock()
        self._certificates = Certificates(config, self._clock, has_members=engine is None)
        self._engine = engine or PySyncObjEngine(
            config.cluster,
            config.member,
            config.raft,
            clock=self._clock,
            facts=facts_to_agree_on(),
            levels=lambda: Levels(levels.OLDEST, levels.NEWEST, self.member.level),
            release=product_version(),
            tls=self._certificates.member,
        )
        self._audit = open_audit(config, self._clock)
        self.member = Member(
            config, self._engine, self._clock,
            audit=self._audit, issuer=open_issuer(config.oidc, self._clock),
        )  # fmt: skip
        self.member.warnings, self.member.off = self._warnings, what_is_off(config)
        self.member.metrics.add_facts_by(
            "certificate_expiry_timestamp_seconds",
            "When a certificate in use expires, by whom it is shown to.",
            "shown_to",
            self._certificates.expire_s,
        )
        self.member.examinations.expire_s = self._certificates.expire_s
        self._backups = BackupSchedule(self.member, config, self._clock)
        self._http: HttpServer | None = None
        self._has_failed: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self.member.on_failure(self._fail)

    def _warnings(self) -> tuple[str, ...]:
        of_raft = self._engine.warnings() if isinstance(self._engine, PySyncObjEngine) else ()
        found = (*self._certificates.warnings(), *of_raft)
        return tuple(f"member {self._engine.member_id}: {each}" for each in found)

    @classmethod
    def in_memory(cls, config: Config, *, clock: Clock | None = None) -> Server:
        """Return a server of one member that keeps its data in memory only."""
        return cls(config, engine=LoopbackEngine(config.member.member_id), clock=clock)

    @property
    def url(self) -> str:
        """Where clients on this machine reach it, once started."""
        assert self._http is not None, "started before it is asked where"
        return self._http.url

    @property
    def summary(self) -> str:
        """What the member says of itself, in one line."""
        return log_lines.escaped(self.member.status().summary)

    def log_fields(self) -> dict[str, object]:
        """Return what each JSON line of the log says of this member, in any thread."""
        member_id, zxid, _ = self.member.labels()
        return {
            "cluster": self._config.cluster.name,
            "member": member_id,
            "term": self._engine.term,
            "zxid": zxid,
        }

    @property
    def failure(self) -> BaseException | None:
        """Why the member must stop; None while it runs well."""
        return self._failure

    async def start(self) -> None:
        """Load the data, join the cluster, listen. On an error stop everything that was started.

        Raises:
            ConfigError: the address is taken, the members or the timing cannot be.
            StorageError: what is on disk cannot be trusted.
        """
        self._has_failed = asyncio.Event()
        if self._failure is not None:
            self._has_failed.set()
        check_issuer(self._config.oidc)
        note = read_note(OsDisk(), self._config.member.data_dir)
        if note:
            audit.warning("this cluster was begun again from one member's data: %s", note)
        if self._audit is not None:
            self._audit.start()
            self._note("member.started", release=build.described(), begun_again=note)
        try:
            await self.member.start()
            self._http = await self._door()
            await self._http.start()
        except BaseException:
            await self.stop()
            raise
        self._certificates.begin()
        self._backups.begin()
        member_id = self._config.member.member_id
        bound = self._config.http.bind_host
        where = (
            self.url if bound in self.url else f"{self.url}, bound to {bound or 'every address'}"
        )
        logger.info("member %s listens on %s (%s)", member_id, where, build.described())

    async def _door(self) -> HttpServer:
        """Return the door, not open yet. It is loaded in a thread, while members elect a leader."""
        await asyncio.to_thread(import_module, "coordinator.wire.http.server")
        from coordinator.wire.http.served import served
        from coordinator.wire.http.server import HttpServer

        config = self._config
        return HttpServer(
            served(self.member, config.http, self._clock),
            config.http,
            client_urls=[member.client_url for member in config.cluster.members],
            tls=self._certificates.door,
        )

    async def stop(self) -> None:
        """Close the door, then leave the cluster. Idempotent."""
        self._certificates.end()
        await self._backups.end()
        has_failed = self._failure is not None
        if self._http is not None:
            await self._http.stop(break_after_s=_FAILED_GRACE_S if has_failed else None)
        await self.member.stop()
        if self._audit is not None and self._audit.is_running:
            self._note("member.stopped", failure=str(self._failure or ""))
            await asyncio.to_thread(self._audit.stop)

    async def abort(self) -> None:
        """End at once, like a killed process: connections break, requests get no answer.

        The data on disk stay as they are. For tests.
        """
        await self._backups.end()
        if self._http is not None:
            self._http.abort()
        await self.member.stop()
        if self._http is not None:
            await self._http.stop()
        if self._audit is not None:  # its file is for the next life
            await asyncio.to_thread(self._audit.stop)

    def _note(self, event: str, **detail: object) -> None:
        """Note in the audit log what happens to this member."""
        members = [each.member_id for each in self._config.cluster.members]
        self.member.audit.note(
            AuditEvent(
                event=event,
                source=Source.MEMBER,
                time_ms=self._clock.wall_ms(),
                detail={**detail, "members": members},
            )
        )

    async def failed(self) -> BaseException:
        """Wait until the member must stop, and return why."""
        assert self._has_failed is not None, "started before it is waited for"
        await self._has_failed.wait()
        assert self._failure is not None, "set before the event"
        return self._failure

    def reload_certificates(self) -> None:
        """Read the files of certificates again, whether they have changed or not."""
        self._certificates.reload()

    def _fail(self, error: BaseException) -> None:
        logger.critical("member %s must stop: %s", self._config.member.member_id, error)
        self._failure = error
        if self._has_failed is not None:
            self._has_failed.set()


def facts_to_agree_on() -> tuple[Fact, ...]:
    """Return what a member shows the others, beside the list of them; one that differs is refused.

    By the rules of each level it shows that its release decides as theirs: two releases in which a
    constant differs would come to different outcomes of one log.

    The engine adds who the members are and how long their votes count."""
    return tuple(
        Fact(f"the rules of level {level}", digest_at(level), "run the same release on all members")
        for level in range(levels.OLDEST, levels.NEWEST + 1)
    )


def run(config: Config) -> None:
    """Run one member until SIGTERM or SIGINT; a second signal ends the process at once.

    Raises:
        ConfigError, StorageError: it could not start, or had to stop.
    """
    log_lines.configure(config.log.level, config.log.format)
    # A dump of the memory would hold the secret, and the data of all.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(_serve(_within_descriptors(config)))


async def _serve(config: Config) -> None:
    asked_to_stop = asyncio.Event()
    collector = SmallSteps()
    server = Server(config)
    log_lines.add_fields(server.log_fields)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, number, asked_to_stop)
    if not os.isatty(0):  # who is hung up on in a terminal ends with it
        loop.add_signal_handler(signal.SIGHUP, server.reload_certificates)
    manager = ServiceManager(os.environ)
    await server.start()
    collector.begin()  # what was loaded and restored is put aside
    manager.say(server.summary, "READY=1")
    watched = asyncio.create_task(
        manager.keep_alive(lambda: server.summary), name="answer the service manager"
    )
    asked = asyncio.create_task(asked_to_stop.wait(), name="wait for a signal")
    failed = asyncio.create_task(server.failed(), name="wait for a failure")
    await asyncio.wait({asked, failed}, return_when=asyncio.FIRST_COMPLETED)
    for task in (asked, failed, watched):
        task.cancel()
    logger.info("member %s stops", config.member.member_id)
    manager.say("stops", "STOPPING=1")
    try:
        async with asyncio.timeout(_STOP_DEADLINE_S + config.http.shutdown_grace_ms / 1_000):
            await server.stop()
    except TimeoutError:
        logger.error("member %s did not stop in time; its log is safe", config.member.member_id)
    failure = server.failure
    await _end_threads(exit_status=0 if failure is None else 1)
    if isinstance(failure, CoordinatorError):
        raise failure
    if failure is not None:
        raise StorageError(f"the member had to stop: {failure!r}") from failure


def _within_descriptors(config: Config) -> Config:
    """Return ``config`` with no more connections than there are file descriptors to spare.

    Clients must never take the descriptors that the log and the other members need: a member
    that cannot open its next file has to stop.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = config.http.connections_max + _DESCRIPTORS_KEPT
    is_endless = soft == resource.RLIM_INFINITY
    if not is_endless and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if is_endless or soft >= wanted:
        return config
    allowed = max(soft - _DESCRIPTORS_KEPT, soft // 2)
    logger.warning(
        "http.connections_max: %d is more than the limit of %d open files allows; taking %d",
        config.http.connections_max, soft, allowed,
    )  # fmt: skip
    return replace(config, http=replace(config.http, connections_max=allowed))


async def _end_threads(*, exit_status: int) -> None:
    """Wait for the threads of the loop, but not long: a name look-up may take long.

    Python would wait for such a thread at its exit (20 s were seen), long after the member has
    stopped and its files are closed, too long for an operator who stops it."""
    ending = asyncio.create_task(
        asyncio.get_running_loop().shutdown_default_executor(), name="end the loop's threads"
    )
    # Not cancelled when it takes too long: that would wait for the threads, too.
    _, unfinished = await asyncio.wait({ending}, timeout=_THREADS_DEADLINE_S)
    if unfinished:
        logger.warning("a look-up of a name still runs; ending without it")
        logging.shutdown()
        os._exit(exit_status)


def _on_signal(number: int, asked_to_stop: asyncio.Event) -> None:
    if asked_to_stop.is_set():
        # Nothing acknowledged is lost: it was synced before it was acknowledged.
        os._exit(128 + number)
    asked_to_stop.set()


def _with_members(config: Config) -> Config:
    """Return ``config`` with this member alone as the cluster, if it names no members."""
    if config.cluster.members:
        return config
    http = config.http
    alone = MemberAddress(
        member_id=config.member.member_id,
        client_url=f"{'https' if http.has_tls else 'http'}://{http.bind_host}:{http.bind_port}",
        member_host="127.0.0.1",
        member_port=0,  # never listened on: there are no other members
    )
    return replace(config, cluster=replace(config.cluster, members=(alone,)))
