"""The audit log of one member: a bounded queue, and a thread that writes what is in it.

1. ``note`` never waits: the member goes on whatever becomes of the disk. An event for which there
   is no room is counted, in the next line (``left_out``) and in the metrics; if there is no next
   line, one is written that says only this.
2. Refusals are what strangers can cause, so they are bounded: those of one caller are folded
   (``folding``), and all by their rate, and to half of the queue. They cannot crowd out what was
   changed; the lines of strangers are in files of their own (``files``).
3. If a line cannot be written it is counted as left out, the member's log says why, and the target
   is opened again. The chain goes on from what is there.
4. A change that has a line is not written again when the member replays its log.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from coordinator.audit.chain import CONTINUED, Chain, ChainHead, Newest
from coordinator.audit.event import FIGURES, AuditEvent, Source
from coordinator.audit.folding import Folding
from coordinator.audit.targets import Found, Target
from coordinator.clock import Clock
from coordinator.errors import ConfigError
from coordinator.node.config import AuditConfig

logger = logging.getLogger("coordinator.service")

LEFT_OUT = "audit.left_out"
ROTATED = "audit.rotated"
_SYNC_EVERY_S = 1.0
_STOP_DEADLINE_S = 5.0
_TRY_AGAIN_MS = 1_000
_BURST_S = 4


@dataclass(frozen=True, slots=True)
class _Stop:
    """The last thing in the queue."""


class AuditLog:
    """Writes events to one target; ``start`` before the first, ``stop`` after the last."""

    def __init__(
        self,
        target: Target,
        config: AuditConfig,
        clock: Clock,
        *,
        cluster: str,
        member_id: str,
        name: str = "the audit log",
    ) -> None:
        self._name = name
        self._target = target
        self._config = config
        self._clock = clock
        self._cluster = cluster
        self._member_id = member_id
        self._chain = Chain(cluster, member_id)
        self._before = Newest()
        """The newest change that had a line when this life of the member began. In one life each
        change comes once, and several may come at the same index and zxid."""
        self._noted: tuple[int | None, int | None] = (None, None)
        self._ordinal = 0
        """Index and zxid of the change that was noted last, and its ordinal."""
        self._folding = Folding(clock)
        self._queue: queue.Queue[AuditEvent | _Stop] = queue.Queue(config.queue_events_max)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._unsaid = 0
        self._left_out = 0
        self._written = 0
        self._failed = 0
        self._tokens = float(self._burst)
        self._filled_ms = 0
        self._is_open = False
        self._try_again_ms = 0

    @property
    def is_kept(self) -> bool:
        """Whether events are written: they are."""
        return True

    @property
    def is_running(self) -> bool:
        """Whether what is noted will be written."""
        return self._thread is not None

    @property
    def _burst(self) -> int:
        return _BURST_S * self._config.refusals_per_second_max

    def start(self) -> None:
        """Continue the chain that is there, and begin to write.

        Raises:
            ConfigError: the target cannot be used, and why.
        """
        try:
            found = self._target.open()
        except OSError as error:
            raise ConfigError(
                f"audit.{self._config.target}: cannot be written: {error}", key="target"
            ) from error
        self._filled_ms = self._clock.monotonic_ms()
        self._before = found.newest
        self._continue(found)
        if found.head.number:
            logger.info("%s goes on behind line %s", self._name, found.head)
        self._thread = threading.Thread(target=self._write_all, name="audit", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is in the queue, as far as that takes a few seconds. Idempotent."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            self._queue.put(_Stop(), timeout=_STOP_DEADLINE_S)
        except queue.Full:
            pass
        thread.join(_STOP_DEADLINE_S)
        if thread.is_alive():
            logger.error("%s could not be finished in time", self._name)
            return
        self._target.close()
        logger.info("%s ends with line %s", self._name, self._chain.head)

    def note(self, event: AuditEvent) -> None:
        """Queue ``event`` to be written, or count it."""
        is_refusal = event.source is Source.REQUEST and event.outcome == "refused"
        if self._folding.takes(event):
            return
        if is_refusal and not self._has_room_for_a_refusal():
            self._leave_out()
            return
        if event.source is Source.APPLIED:
            place = event.index, event.zxid
            self._ordinal = self._ordinal + 1 if place == self._noted else 0
            self._noted = place
            if self._ordinal:
                event = replace(event, ordinal=self._ordinal)
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            self._leave_out()

    def _has_room_for_a_refusal(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        earned = (now_ms - self._filled_ms) * self._config.refusals_per_second_max / 1_000
        self._tokens, self._filled_ms = min(self._burst, self._tokens + earned), now_ms
        if self._tokens < 1 or 2 * self._queue.qsize() >= self._config.queue_events_max:
            return False
        self._tokens -= 1
        return True

    def _leave_out(self) -> None:
        with self._lock:
            self._unsaid += 1
            self._left_out += 1

    def figures(self) -> Mapping[str, float]:
        """Return how many lines were written, left out, and could not be written."""
        return dict(zip(FIGURES, (self._written, self._left_out, self._failed), strict=True))

    @property
    def head(self) -> ChainHead:
        """The end of the chain, as far as it is written."""
        return self._chain.head

    # --- in the thread

    def _write_all(self) -> None:
        is_synced = True
        while True:
            try:
                event = self._queue.get(timeout=_SYNC_EVERY_S)
            except queue.Empty:
                event = None
            if isinstance(event, _Stop):
                break
            for folded in self._folding.due():
                self._write(folded)
                is_synced = False
            if event is not None:
                self._write(event)
                is_synced = False
                if not self._queue.empty():
                    continue
            elif self._unsaid:
                self._write(self._own(LEFT_OUT))
                is_synced = False
            if not is_synced:
                is_synced = self._sync()
        for folded in self._folding.due(is_end=True):
            self._write(folded)
        if self._unsaid:
            self._write(self._own(LEFT_OUT))
        self._sync()

    def _write(self, event: AuditEvent) -> None:
        if self._before.covers(event):
            return
        with self._lock:
            unsaid, self._unsaid = self._unsaid, 0
        try:
            self._reopen()
            rotation = self._target.maybe_rotate()
            if rotation is not None:
                detail = {"former": rotation.kept_as, "deleted": rotation.deleted}
                self._put(self._own(ROTATED, **detail), 0)
            self._put(event, unsaid)
        except (OSError, ConfigError) as error:
            self._on_failure(error, unsaid, event)

    def _put(self, event: AuditEvent, left_out: int) -> None:
        head, newest = self._chain.head, self._chain.newest
        try:
            self._target.write(self._chain.line(event, left_out))
        except OSError:
            self._chain = Chain(self._cluster, self._member_id, head, newest)
            raise
        self._written += 1

    def _own(self, name: str, **detail: object) -> AuditEvent:
        return AuditEvent(
            event=name, source=Source.MEMBER, time_ms=self._clock.wall_ms(), detail=detail
        )

    def _reopen(self) -> None:
        if self._is_open:
            return
        if self._clock.monotonic_ms() < self._try_again_ms:
            raise OSError("it is tried again once a second")
        self._continue(self._target.open())

    def _continue(self, found: Found) -> None:
        """Go on behind what was found."""
        head = self._chain.head if not found.head.number else found.head
        newest = found.newest if found.head.number else self._chain.newest
        self._chain = Chain(self._cluster, self._member_id, head, newest)
        self._is_open = True
        if found.torn_bytes:
            self._put(
                self._own(CONTINUED, torn_bytes=found.torn_bytes, torn_sha256=found.torn_sha256),
                0,
            )

    def _on_failure(self, error: Exception, unsaid: int, event: AuditEvent | None) -> None:
        is_lost = event is not None and event.event != LEFT_OUT
        with self._lock:
            self._unsaid += unsaid + is_lost
            self._left_out += is_lost
        self._failed += 1
        if self._is_open:
            logger.error("%s cannot be written: %r; events are left out", self._name, str(error))
        self._is_open = False
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._try_again_ms:
            self._try_again_ms = now_ms + _TRY_AGAIN_MS

    def _sync(self) -> bool:
        if self._is_open:
            try:
                self._target.sync()
            except OSError as error:
                self._on_failure(error, 0, None)
                return False
        return True
