"""The intervals of a job: a length, a day, week or month of a time zone, or a cron expression.

::

    Schedule.of("15m")                                     # lengths are counted from 1970, UTC
    Schedule.of("1d", at="02:00", tz="Europe/Berlin")      # 1d, 1w ("mon 02:00"), 1mo ("1 02:00")
    Schedule.of(cron="0 2 * * MON-FRI", tz="Europe/Berlin")

1. An interval begins at one time of the schedule and ends at the next. Its name is its start.
2. Without ``tz`` it is UTC, never the machine's zone: all machines must name the same interval.
3. Where the clock is put forward over a time it comes right after the gap; where it is put back,
   a time that comes twice counts once (as Debian's cron does; ``* * * * *`` and the like go on).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo

from cronsim import CronSim

from coordinator.errors import BadArgumentsError
from coordinator.recipes.schedule_words import (
    FIRST_AT,
    checked_cron,
    cron_of_day,
    in_units,
    length_ms_of,
    zone_of,
)

TIME_MS_MAX = 253_370_764_800_000
"""The year 9999."""
# How far to look back for the start of an interval: most are found in the first.
_BACK = [timedelta(**{unit: by}) for unit, by in (("hours", 1), ("days", 1), ("days", 8))]
_BACK += [timedelta(days=by) for by in (32, 370, 10 * 366, 51 * 366)]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When the intervals of a job begin; made by ``of``. Times are in ms since 1970, UTC."""

    text: str
    """The schedule as it was given, in one line."""
    length_ms: int
    """0 if ``cron`` says when."""
    cron: str
    tz: str

    @classmethod
    def of(
        cls,
        every: str | timedelta | None = None,
        *,
        at: str | None = None,
        tz: str | None = None,
        cron: str | None = None,
    ) -> Schedule:
        """Return the schedule of these words; one of ``every`` and ``cron``.

        Raises:
            BadArgumentsError: a word is not one, or the words do not go together.
        """
        if (every is None) == (cron is None):
            found = "neither" if every is None else "both"
            raise BadArgumentsError(f"schedule: expected every= or cron=, found {found}")
        if cron is not None:
            if at is not None:
                raise BadArgumentsError(f"at: goes with every=; cron= says when, found {at!r}")
            zone = zone_of(tz)
            return cls(f"cron {cron} {zone.key}", 0, checked_cron(cron, zone), zone.key)
        if isinstance(every, str) and every in FIRST_AT:
            zone = zone_of(tz)
            first_at = FIRST_AT[every] if at is None else at
            text = f"every {every} at {first_at} {zone.key}"
            return cls(text, 0, cron_of_day(every, first_at, zone), zone.key)
        length_ms = length_ms_of(every)
        for what, given in (("at", at), ("tz", tz)):
            if given is not None:
                raise BadArgumentsError(
                    f"{what}: goes with every='1d', '1w' or '1mo' and with cron=; a length is "
                    f"counted from 1970 in UTC, found {given!r} with every={every!r}"
                )
        return cls(f"every {in_units(length_ms)}", length_ms, "", "UTC")

    def to_json(self) -> dict[str, Any]:
        """Return what ``of_json`` reads."""
        return {
            "text": self.text, "length_ms": self.length_ms, "cron": self.cron, "tz": self.tz,
        }  # fmt: skip

    @classmethod
    def of_json(cls, document: Any) -> Schedule:
        """Return the schedule that ``to_json`` wrote.

        Raises:
            BadArgumentsError: it is none, or cannot be read here.
        """
        try:
            schedule = cls(
                document["text"], document["length_ms"], document["cron"], document["tz"]
            )
        except (TypeError, KeyError):
            raise BadArgumentsError(f"expected a schedule, found {document!r:.80}") from None
        if not all(isinstance(each, str) for each in (schedule.text, schedule.cron, schedule.tz)):
            raise BadArgumentsError(f"expected a schedule, found {document!r:.80}")
        if schedule.cron:
            checked_cron(schedule.cron, zone_of(schedule.tz))
        elif not isinstance(schedule.length_ms, int) or schedule.length_ms < 1:
            raise BadArgumentsError(f"expected a schedule, found {document!r:.80}")
        return schedule

    def latest(self, at_ms: int) -> int:
        """Return the start of the interval that ``at_ms`` is in; 0 before the first."""
        if self.length_ms:
            return at_ms - at_ms % self.length_ms
        for back in _BACK:
            before = max(0, at_ms - back // timedelta(milliseconds=1))
            last = max(takewhile(lambda start: start <= at_ms, self._from(before)), default=0)
            if last or not before:
                return last
        return 0

    def after(self, at_ms: int) -> Iterator[int]:
        """Yield the starts after ``at_ms``, in their order; it ends with the year 9999 at last."""
        last = at_ms
        starts = self._from(at_ms) if not self.length_ms else self._lengths(at_ms)
        for start in starts:
            if start > last:  # of two that fall into one gap, one counts
                last = start
                yield start

    def next(self, at_ms: int) -> int | None:
        """Return the first start after ``at_ms``, None if there is none."""
        return next(self.after(at_ms), None)

    def _lengths(self, at_ms: int) -> Iterator[int]:
        return iter(range(self.latest(at_ms) + self.length_ms, TIME_MS_MAX, self.length_ms))

    def _from(self, at_ms: int) -> Iterator[int]:
        begin = datetime.fromtimestamp(at_ms // 1000, UTC).astimezone(ZoneInfo(self.tz))
        try:
            for each in CronSim(self.cron, begin):
                yield int(each.timestamp()) * 1000
        except OverflowError:  # the year 9999
            return
