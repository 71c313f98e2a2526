"""The limits of the state, as one member proposes, changes and shows them.

1. A new cluster's first command sets them, from the configuration of its first leader, and stamps
   the rules of its release. Before that a leader serves nothing else (``begin``).
2. From then on the configuration decides nothing. A member whose configuration differs reports it
   in its log and its status, and uses the limits of the cluster.
3. A change is a command like any other, and a line of ``coordinator.audit`` in the leader's log.
4. A limit that members could not serve (data larger than a body may be) is refused before it is
   proposed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from coordinator.errors import BadArgumentsError, CoordinatorError
from coordinator.model.access import LIMITS, NOBODY, Caller, Verb
from coordinator.model.limits import WHY_NO_MORE, proposed_bounds_of
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import Interest
from coordinator.service.reads.reads import ReadMode, ReadReply, Reads
from coordinator.service.writes.proposals import Proposer, RequestContext
from coordinator.state.commands import Command, SetLimits
from coordinator.state.limits import LimitsRecord
from coordinator.state.outcomes import LimitsSet, Outcome
from coordinator.state.rules import RULES, rules_at

logger = logging.getLogger("coordinator.service")
audit = logging.getLogger("coordinator.audit")

LOOK_EVERY_MS = 5_000
_TRY_AGAIN_MS = 200
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class LimitsChanged:
    """The result of a change: the limits after it, and (name, before, now) of each that changed."""

    record: LimitsRecord
    changes: tuple[tuple[str, int, int], ...]
    zxid: int
    index: int


class LimitsService:
    """The limits, as one member serves them.

    Args:
        rules: those of this release; a test passes those of another one.
    """

    interest: ClassVar[Interest] = frozenset({SetLimits})

    def __init__(
        self,
        context: MemberContext,
        *,
        proposer: Proposer,
        reads: Reads,
        rules: tuple[tuple[str, str], ...] = RULES,
    ) -> None:
        self._config = context.config
        self._engine = context.engine
        self._propose = context.propose
        self._clock = context.clock
        self._timers = context.timers
        self._tasks = context.tasks
        self._replica = context.replica
        self._leadership = context.leadership
        self._proposer = proposer
        self._reads = reads
        self._rules = rules
        self._proposed = context.config.first_limits
        self._term: int | None = None
        self._logged = ""

    # --- the first ones

    def begin(self, term: int, lead: Callable[[], None]) -> None:
        """Call ``lead`` as soon as the state has limits: at once, or when they are applied here.

        This member leads in ``term``, and its engine has applied everything of the terms before."""
        self._term = term
        if self._is_set():
            lead()
        else:
            self._tasks.spawn(self._set_first(term, lead), "set the first limits")

    def stop(self) -> None:
        """This member does not lead any more."""
        self._term = None

    async def _set_first(self, term: int, lead: Callable[[], None]) -> None:
        rules = rules_at(self._replica.machine.level, self._rules)
        operation = SetLimits(
            self._proposed.items(), 0, rules, f"the configuration of {self._name()}"
        )
        while self._term == term and not self._is_set():
            try:
                await self._propose(operation)
            except CoordinatorError as error:
                logger.info("the first limits could not be set yet: %r", error.message)
                await self._timers.sleep_until(self._clock.monotonic_ms() + _TRY_AGAIN_MS)
        if self._term == term and not self._leadership.is_stopping:
            lead()

    def _is_set(self) -> bool:
        return self._replica.machine.limits_record.version > 0

    def _name(self) -> str:
        return f"member {self._engine.member_id}"

    # --- asked for by people

    async def read(
        self, mode: ReadMode, deadline_ms: int, *, caller: Caller = NOBODY
    ) -> ReadReply[LimitsRecord]:
        """Return the limits that hold, and who set them."""
        age_ms = await self._reads.fresh(mode, deadline_ms)
        self._replica.machine.access.check(caller, Verb.READ, LIMITS)
        return self._reads.reply(self._replica.machine.limits_record, age_ms)

    async def change(
        self,
        values: tuple[tuple[str, int], ...],
        by: str,
        expected_version: int,
        context: RequestContext,
    ) -> LimitsChanged:
        """Set ``values``; what exists beyond them stays, and only growth is refused.

        Raises:
            BadArgumentsError: a limit is not known or cannot be that.
            BadVersionError: another client has changed them in between.
        """
        self._refuse_unfit(values)
        operation = SetLimits(values, expected_version, (), by)
        committed = await self._proposer.submit(operation, context)
        result = committed.result(LimitsSet)
        return LimitsChanged(
            self._replica.machine.limits_record,
            result.changes,
            committed.outcome.zxid,
            committed.index,
        )

    def _refuse_unfit(self, values: tuple[tuple[str, int], ...]) -> None:
        wanted = dict(values)
        self._replica.machine.limits.changed(values)  # as apply will judge it
        self._refuse_slow(values)
        body_bytes_max = self._config.http.body_bytes_max
        if wanted.get("data_bytes_max", 0) > body_bytes_max:
            raise BadArgumentsError(
                f"limit data_bytes_max: expected at most [http] body_bytes_max ({body_bytes_max}) "
                f"of {self._name()}, because a request must be able to carry the largest data; "
                "raise that on every member first",
                limit="data_bytes_max",
            )
        tick_ms = self._config.sessions.tick_ms
        if wanted.get("timeout_ms_min", tick_ms) < tick_ms:
            raise BadArgumentsError(
                f"limit timeout_ms_min: expected at least [sessions] tick_ms ({tick_ms}) of "
                f"{self._name()}, because leases are looked at once in a tick",
                limit="timeout_ms_min",
            )

    def _refuse_slow(self, values: tuple[tuple[str, int], ...]) -> None:
        """Refuse more than members propose; what holds already may be named again."""
        for name, value in values:
            low, high = proposed_bounds_of(name)
            if value > high and value != getattr(self._replica.machine.limits, name):
                raise BadArgumentsError(
                    f"limit {name}: expected a whole number from {low} to {high}, found {value}: "
                    f"{WHY_NO_MORE}",
                    limit=name,
                )

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Log on the leader who changed what."""
        result = outcome.result
        if type(result) is not LimitsSet or outcome.is_repeat or self._term is None:
            return
        operation = command.operation
        assert isinstance(operation, SetLimits), "only that has a LimitsSet"
        if result.version == 1:  # every new cluster begins so
            audit.info("this cluster begins with the limits of %r", operation.by)
            return
        audit.warning(
            "limits set to version %d by %r, identity %r, at index %d: %s",
            result.version,
            operation.by,
            command.caller.identity,
            self._replica.machine.applied_index,
            ", ".join([f"{name} {was} to {now}" for name, was, now in result.changes])
            or "as they were",
        )

    def on_restore(self) -> None:
        """Do nothing: the changes are in the state."""

    # --- what the configuration says

    def default_timeout_ms(self) -> int:
        """Return the timeout of a session that asks for none: within the limits that hold."""
        default_ms, limits = self._config.sessions.timeout_ms_default, self._replica.machine.limits
        return min(max(default_ms, limits.timeout_ms_min), limits.timeout_ms_max)

    def difference(self) -> str:
        """Describe how the configuration differs from the cluster's limits; "" if it does not."""
        if not self._is_set():
            return ""
        now = dict(self._replica.machine.limits.items())
        named = [
            f"{name} is {value} in it and {now[name]} in the cluster"
            for name, value in self._proposed.items()
            if now[name] != value
        ]
        if not named:
            return ""
        more = f", and {len(named) - _NAMED_MAX} more" if named[_NAMED_MAX:] else ""
        return (
            f"the configuration of {self._name()} has other limits than the cluster, whose limits "
            f"hold: {', '.join(named[:_NAMED_MAX])}{more}; change one of the two "
            "(coordinator limits set)"
        )

    def reserve_reached(self) -> dict[str, bool]:
        """Return for each limit with a reserve whether only the reserve is left."""
        return {name: now >= self._ordinary_max(name) for name, now, _ in self.filled()}

    def reserve_in_words(self) -> str:
        """Describe what has only its reserve left, and what to do; "" if nothing has."""
        machine, reached = self._replica.machine, []
        for name, now, of_what in self.filled():
            if now < self._ordinary_max(name):
                continue
            maximum = getattr(machine.limits, name)
            whose = "operators" if name == "sessions_max" else "locks and elections"
            kept = maximum - self._ordinary_max(name)
            left = f"the last {kept} are kept for {whose}" if kept else "none is kept back"
            reached.append(f"{now} of {maximum} {of_what} ({name}) are used, and {left}")
        if not reached:
            return ""
        address, count = machine.largest_address()
        if address and "sessions_max" in reached[0]:
            reached[0] += f"; {count} sessions are of the address {address}"
        return (
            f"{'; '.join(reached)}: end sessions (coordinator sessions close), delete what is not "
            "needed, or raise the limit (coordinator limits set)"
        )

    def filled(self) -> tuple[tuple[str, int, str], ...]:
        """Return each limit with a reserve, how much is there, and of what."""
        machine = self._replica.machine
        return (
            ("sessions_max", machine.session_count, "sessions"),
            ("znodes_max", machine.znode_count, "znodes"),
            ("state_bytes_max", machine.state_bytes, "bytes"),
        )

    def _ordinary_max(self, name: str) -> int:
        return self._replica.machine.limits.ordinary_max(name)

    def look(self, _now_ms: int) -> None:
        """Log once, when this member has caught up, that its configuration differs."""
        if not self._engine.status().is_ready:
            return
        difference = self.difference()
        if difference != self._logged:
            self._logged = difference
            if difference:
                logger.warning("%s", difference)
