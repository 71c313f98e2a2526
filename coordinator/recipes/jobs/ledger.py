"""The ledger of a job: which intervals are settled, and the state of the latest runs.

One znode for each job, with a child for each of the latest runs, named by the start of its
interval. Whether an interval is due is decided by ``settled_ms`` alone, so old runs may be removed.
All here is pure: times are given, and nothing is written.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any, Generic, Literal, get_args

from coordinator.client import ClientT, Operation
from coordinator.errors import BadArgumentsError
from coordinator.recipes.base.names import checked_count
from coordinator.recipes.jobs.schedule import TIME_MS_MAX, Schedule
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import is_seconds

CatchUp = Literal["skip", "last", "all"]
Guarantee = Literal["at_least_once", "at_most_once"]
State = Literal["started", "done", "failed", "lost"]
"""``lost``: its process died, and no other repeated it; it may have been done."""

TOGETHER_MAX = 500
"""Missed intervals that one call makes up for, and that are counted as skipped at once."""
_HISTORY_MAX = 500
_GRACE_S = 3_600.0
_NUMBERS = (
    "settled_ms", "open_ms", "time_ms", "skipped", "failures", "jumps", "jump_at_ms", "jump_by_ms",
)  # fmt: skip
_OF_RUN = ("state", "attempt", "fencing_token", "by", "started_ms", "result", "reason")


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do about missed intervals, crashes and failures; see ``Job``.

    Raises:
        BadArgumentsError: a value is not allowed.
    """

    catch_up: CatchUp = "last"
    guarantee: Guarantee = "at_least_once"
    attempts_max: int = 3
    grace: float = _GRACE_S
    history: int = 30

    def __post_init__(self) -> None:
        for what, given, words in (
            ("catch_up", self.catch_up, get_args(CatchUp)),
            ("guarantee", self.guarantee, get_args(Guarantee)),
        ):
            if given not in words:
                expected = " or ".join(map(repr, words))
                raise BadArgumentsError(f"{what}: expected {expected}, found {given!r:.60}")
        for what, number, most in (
            ("attempts_max", self.attempts_max, 1_000_000),
            ("history", self.history, _HISTORY_MAX),
        ):
            checked_count(what, number, most)
        if not is_seconds(self.grace):
            raise BadArgumentsError(f"grace: expected seconds from 0, found {self.grace!r:.60}")

    @property
    def is_at_most_once(self) -> bool:
        """Whether an attempt is never repeated."""
        return self.guarantee == "at_most_once"


@dataclass(frozen=True, slots=True)
class Plan:
    """The intervals to run now, oldest first, and how many are left out before the first."""

    starts: tuple[int, ...] = ()
    skipped: int = 0
    settled_ms: int | None = None
    """Where that leaves the ledger if none is run; None: as it is."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is known of a job; times are in ms since 1970, UTC."""

    schedule: Schedule
    catch_up: CatchUp = "last"
    guarantee: Guarantee = "at_least_once"
    settled_ms: int | None = None
    """Every interval that begins then or before is settled; None before the first run."""
    open_ms: int | None = None
    """The interval whose run was started and has not ended."""
    failed_ms: int | None = None
    """The interval whose latest run failed and is to be repeated; None when there is none."""
    time_ms: int = 0
    """The latest time by which something was decided. It never goes back."""
    skipped: int = 0
    failures: int = 0
    """Attempts since the last success that failed or were lost."""
    jumps: int = 0
    jump_at_ms: int = 0
    jump_by_ms: int = 0
    """The last jump of the leader's time that a client noticed."""

    def plan(self, policy: Policy, now_ms: int) -> Plan:
        """Return what is due at ``now_ms``."""
        current = self.schedule.latest(now_ms)
        if current == 0:
            return Plan()
        if self.settled_ms is None:
            missed: tuple[int, ...] = ()
        elif current <= self.settled_ms:
            return Plan()
        else:
            until_now = takewhile(lambda each: each <= now_ms, self.schedule.after(self.settled_ms))
            missed = tuple(islice(until_now, TOGETHER_MAX))
        if policy.catch_up == "all" and missed:
            return Plan(missed)
        skipped = len([each for each in missed if each < current])
        is_late = now_ms - current > policy.grace * 1000
        is_begun = current in (self.open_ms, self.failed_ms)
        if policy.catch_up == "skip" and is_late and not is_begun:
            return Plan((), skipped + 1, current)
        return Plan((current,), skipped)

    def at(self, now_ms: int) -> Ledger:
        """Return it with a later time."""
        return replace(self, time_ms=max(self.time_ms, now_ms))

    def without(self, plan: Plan, first_ms: int | None) -> Ledger:
        """Return it with the skipped intervals of ``plan`` settled, up to the one that begins now.

        Settled is what was before ``first_ms``, so that a repeat counts nothing twice."""
        settled_ms = plan.settled_ms if first_ms is None else first_ms - 1
        if plan.skipped == 0 or settled_ms is None:
            return self
        return replace(self, skipped=self.skipped + plan.skipped, settled_ms=settled_ms)

    def next_ms(self, now_ms: int) -> int | None:
        """Return when the next interval begins that is not settled at ``now_ms``."""
        return self.schedule.next(max(now_ms, self.settled_ms or 0))

    def to_bytes(self) -> bytes:
        """Return the data of the job's znode.

        ``next_ms`` is there for those who know no schedules, such as the console: nothing of ours
        reads it back. It lies in the past once an interval is due that was not run."""
        document = {name: getattr(self, name) for name in (*_NUMBERS, "failed_ms")}
        document["next_ms"] = self.next_ms(self.time_ms)
        document |= {"catch_up": self.catch_up, "guarantee": self.guarantee}
        return _bytes_of({"schedule": self.schedule.to_json(), **document})

    @classmethod
    def of(cls, path: str, data: bytes) -> Ledger:
        """Return what ``to_bytes`` wrote.

        Raises:
            BadArgumentsError: the znode ``path`` is no ledger, or its schedule cannot be read here.
        """
        document = _document(path, data, "ledger of a job")
        try:
            numbers = {name: document[name] for name in _NUMBERS}
            numbers["failed_ms"] = document.get("failed_ms")
            least = {"jump_by_ms": -TIME_MS_MAX}
            for name, each in numbers.items():
                if each is not None and not _is_number(each, least.get(name, 0)):
                    raise TypeError
            schedule = Schedule.of_json(document["schedule"])
            return cls(schedule, document["catch_up"], document["guarantee"], **numbers)
        except (KeyError, TypeError):
            raise _not(path, data, "ledger of a job") from None


@dataclass(frozen=True, slots=True)
class JobRun:
    """The run of one interval; ``ended_ms`` is 0 for a run that has not ended.

    ``by`` is who ran it last; ``reason`` why it failed; ``result`` a JSON value."""

    start_ms: int
    state: State
    attempt: int
    fencing_token: int
    by: str
    started_ms: int
    ended_ms: int = 0
    result: Any = None
    reason: str = ""

    @property
    def interval(self) -> str:
        """The start of the interval, as a text."""
        return time_text(self.start_ms)

    def to_bytes(self) -> bytes:
        """Return the data of the run's znode; raises ValueError or the like for a bad result."""
        return _bytes_of({name: getattr(self, name) for name in _OF_RUN})

    @classmethod
    def of(cls, path: str, data: bytes, mtime_ms: int) -> JobRun:
        """Return what ``to_bytes`` wrote; raises BadArgumentsError."""
        document = _document(path, data, "run of a job")
        try:
            run = cls(int(path.rpartition("/")[2]), **{name: document[name] for name in _OF_RUN})
            numbers = (run.start_ms, run.attempt, run.fencing_token, run.started_ms)
            is_text = isinstance(run.by, str) and isinstance(run.reason, str)
            if not (all(map(_is_number, numbers)) and is_text and run.state in get_args(State)):
                raise TypeError
        except (KeyError, TypeError, ValueError):
            raise _not(path, data, "run of a job") from None
        return run if run.state == "started" else replace(run, ended_ms=mtime_ms)


def time_text(time_ms: int) -> str:
    """Return a time as ISO 8601, in UTC, to the second."""
    return datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_number(value: Any, least: int = 0) -> bool:
    """Whether it is a time in ms, or a count; others may have written it."""
    return isinstance(value, int) and least <= value < TIME_MS_MAX


def _bytes_of(document: dict[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _document(path: str, data: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise _not(path, data, what)
    return document


def _not(path: str, data: bytes, what: str) -> BadArgumentsError:
    return BadArgumentsError(f"{path}: expected the {what}, found {data[:60]!r}")


@dataclass(slots=True, eq=False)
class Run(Generic[ClientT]):
    """A run that was started: the work's argument.

    ``attempt`` above 1: an earlier attempt failed, or did not end. ``grant`` is that of
    the job's lock: pass its token with writes to other stores, and ``if_held=run.grant`` with
    writes to this one; ``run.grant.previous`` has the note that the holder before left.
    """

    job: str
    start_ms: int
    end_ms: int | None
    """The start of the next interval."""
    attempt: int
    grant: Grant[ClientT]
    ledger: Ledger
    """The ledger when the run began; for the recipe."""
    record: JobRun
    """What is written of the run so far; for the recipe."""
    operations: list[Operation] = field(default_factory=list)

    @property
    def fencing_token(self) -> int:
        """Grows with each run: pass it to a guard, so that a run that wakes late is refused."""
        return self.grant.fencing_token

    @property
    def interval(self) -> str:
        """The start of the interval as a text: ``2026-03-29T00:00:00Z``."""
        return time_text(self.start_ms)

    @property
    def key(self) -> str:
        """A name for this job and interval, the same in each attempt: for a store that knows keys.

        With it, at least once becomes once."""
        return f"{self.job}/{self.interval}"

    def also(self, *operations: Operation) -> None:
        """Do these in the one command that records the run as done: all of it, or nothing."""
        self.operations += operations


@dataclass(frozen=True, slots=True)
class JobReply:
    """The result of a call of ``run``.

    ``ran``: this call ran what is in ``runs``. ``done``: nothing was due. ``busy``: another client
    is at it. ``next_ms`` is when the next interval begins, None if never, or not known (``busy``).
    ``jump_ms``: how far the leader's time jumped since this client read it before.
    """

    state: Literal["ran", "done", "busy"]
    runs: tuple[JobRun, ...] = ()
    next_ms: int | None = None
    jump_ms: int = 0

    @property
    def result(self) -> Any:
        """What the last run of this call returned, None if there was none."""
        return self.runs[-1].result if self.runs else None
