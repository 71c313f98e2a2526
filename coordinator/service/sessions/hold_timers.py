"""The timers of a leader: ends of bounded holds, and of the lock-delays of closed queues.

1. Only a ready leader counts, on its monotonic clock. On becoming one it starts every bound again
   in full: after a change of leader a hold may last longer, never less (as with leases).
2. The end is a command that carries the leader's term; the log decides a race with a release.
3. What is left of a hold goes with each acknowledged heartbeat of its session. The holder counts it
   from when the heartbeat was sent, so it gives up before this leader, and before any later one.
4. All bounds start in slices, between which the loop does other things. Until all have, nothing is
   said of what is left of any (``is_starting``).
5. What was proposed and not decided is proposed again until it is, or until the lead is lost.
6. An extension moves the end. The proposal of an end says how many extensions it knows of, so one
   that the log puts behind a further extension is void: what was answered is never undone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import chain, repeat
from typing import ClassVar, Final

from coordinator.errors import OutcomeUnknownError, UnavailableError
from coordinator.model.events import EventType
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import QUEUES, Interest
from coordinator.service.base.timers import Timer
from coordinator.state.commands import Command, EndHold, ExtendHold, Reopen
from coordinator.state.large_map import LargeMap
from coordinator.state.locks.contender import Closing, ContenderRecord
from coordinator.state.outcomes import HoldExtended, Outcome
from coordinator.waiting import in_turns, let_go

logger = logging.getLogger("coordinator.service")

_AGAIN_MS: Final = 100
_STARTED_AT_ONCE = 1_000


@dataclass(slots=True)
class _Bound:
    """One end: of a hold of ``session_id``, or (None) of the delay of a closed queue."""

    path: str
    czxid: int
    session_id: str | None
    deadline_ms: int
    extensions: int = 0
    """How often the hold was extended, as far as this deadline knows."""
    timer: Timer | None = None


class HoldTimers:
    """The bounds of every hold and every closed queue, while this member leads."""

    interest: ClassVar[Interest] = QUEUES

    def __init__(self, context: MemberContext) -> None:
        self._propose = context.propose
        self._clock = context.clock
        self._timers = context.timers
        self._replica = context.replica
        self._tasks = context.tasks
        self._metrics = context.metrics
        self._bounds = LargeMap[str, _Bound]()
        self._of_session: dict[str, dict[str, None]] = {}
        self._term: int | None = None
        self._starting: object | None = None
        """What marks the start of all bounds that is under way."""

    @property
    def is_starting(self) -> bool:
        """Whether some bounds may have no time here yet."""
        return self._starting is not None

    def start(self, term: int) -> None:
        """This member leads and is ready: every bound begins again, in full."""
        self.stop()
        self._term = term
        locks = self._replica.machine.locks
        self._starting = mark = object()
        in_turns(
            chain(locks.contender_paths(), [each.path for each in locks.closings()], (None,)),
            lambda path: self._start_at(path, mark),
            _STARTED_AT_ONCE,
        )

    def stop(self) -> None:
        """This member does not lead any more, so it ends no hold."""
        self._term = self._starting = None
        of_session, self._of_session = self._of_session, {}
        let_go(of_session)
        for part in self._bounds.given_up():
            in_turns(repeat(part, len(part)), _cancel_last, _STARTED_AT_ONCE)

    def holds_of(self, session_id: str, now_ms: int) -> dict[str, int]:
        """Return what is left of each bounded hold of a session, by path, in ms."""
        return {
            path: max(0, self._bounds[path].deadline_ms - now_ms)
            for path in self._of_session.get(session_id, ())
        }

    def remaining_ms(self, path: str) -> int | None:
        """Return what is left of the hold or the delay ``path``; None if it has no bound here."""
        bound = self._bounds.get(path)
        return None if bound is None else max(0, bound.deadline_ms - self._clock.monotonic_ms())

    # --- reported by the replica

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Set a timer for each bounded hold that began, and drop those of holds that ended."""
        if self._term is None or outcome.is_repeat:
            return
        if isinstance(command.operation, ExtendHold) and isinstance(outcome.result, HoldExtended):
            self._extend(command.operation, outcome.result)
        locks = self._replica.machine.locks
        for event in outcome.events:
            if event.type is EventType.DELETED:
                self._forget(event.path)
            elif event.type is EventType.CREATED:
                closing = locks.closing(event.path)
                if closing is not None:
                    self._start_delay(closing)
        for path in outcome.granted:
            holder = locks.record(path)
            if holder is not None and holder.max_hold_ms:
                self._start_hold(holder)

    def on_restore(self) -> None:
        """Stop: a member that installs a snapshot does not lead."""
        self.stop()

    # --- the bounds

    def _start_at(self, path: str | None, mark: object) -> None:
        """Start the bound of ``path``, if it has one; None: all have started."""
        if self._starting is not mark or path in self._bounds:
            return
        if path is None:
            self._starting = None
            return
        locks = self._replica.machine.locks
        holder, closing = locks.record(path), locks.closing(path)
        if holder is not None and holder.max_hold_ms and holder.granted_zxid is not None:
            self._start_hold(holder)
        elif closing is not None:
            self._start_delay(closing)

    def _start_hold(self, holder: ContenderRecord) -> None:
        path, session_id = holder.path, holder.session_id
        assert session_id is not None, "a bound is asked for by a session"
        deadline_ms = self._clock.monotonic_ms() + holder.max_hold_ms
        bound = self._bounds[path] = _Bound(
            path, holder.czxid, session_id, deadline_ms, holder.extensions
        )
        self._of_session.setdefault(session_id, {})[path] = None
        if path == (holder.group or (path,))[0]:  # several locks end as one, by one command
            self._end_at(bound, deadline_ms)

    def _extend(self, operation: ExtendHold, done: HoldExtended) -> None:
        """Move the end; of a bound that has not started yet all is in the state."""
        from_now_ms = self._clock.monotonic_ms() + operation.to_ms
        extended = self._replica.machine.locks.record(done.path)
        assert extended is not None, "what was extended holds"
        for path in extended.group or (done.path,):
            bound = self._bounds.get(path)
            if bound is None:
                continue
            bound.extensions = done.extensions
            bound.deadline_ms = max(bound.deadline_ms + operation.by_ms, from_now_ms)
            if bound.timer is not None:
                self._end_at(bound, bound.deadline_ms)

    def _start_delay(self, closing: Closing) -> None:
        deadline_ms = self._clock.monotonic_ms() + closing.delay_ms
        bound = _Bound(closing.path, closing.czxid, None, deadline_ms)
        self._bounds[closing.path] = bound
        self._end_at(bound, deadline_ms)

    def _forget(self, path: str) -> None:
        bound = self._bounds.pop(path, None)
        if bound is None:
            return
        _cancel(bound)
        if bound.session_id is not None:
            paths = self._of_session[bound.session_id]
            del paths[path]
            if not paths:
                del self._of_session[bound.session_id]

    def _end_at(self, bound: _Bound, at_ms: int) -> None:
        _cancel(bound)
        bound.timer = self._timers.at(at_ms, lambda: self._due(bound))

    def _due(self, bound: _Bound) -> None:
        if self._term is not None and self._bounds.get(bound.path) is bound:
            self._tasks.spawn(self._end(bound, self._term), f"end {bound.path}")

    async def _end(self, bound: _Bound, term: int) -> None:
        if self._clock.monotonic_ms() < bound.deadline_ms:
            return  # extended after it was due: another timer runs
        is_hold = bound.session_id is not None
        end = (
            EndHold(bound.path, bound.czxid, term, bound.extensions)
            if is_hold
            else Reopen(bound.path, bound.czxid, term)
        )
        try:
            await self._propose(end)
        except (UnavailableError, OutcomeUnknownError):
            pass  # looked at again below: it has ended, or is proposed again
        if self._term != term:
            return
        if self._bounds.get(bound.path) is bound:
            self._end_at(bound, max(bound.deadline_ms, self._clock.monotonic_ms() + _AGAIN_MS))
        elif is_hold:
            self._metrics.holds_ended.inc()
            logger.info("the hold %r ended: its max_hold_ms was over", bound.path)


def _cancel_last(bounds: dict[str, _Bound]) -> None:
    """Cancel and free one of those that count no more."""
    _, bound = bounds.popitem()
    _cancel(bound)


def _cancel(bound: _Bound) -> None:
    if bound.timer is not None:
        bound.timer.cancel()
