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

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim

from coordinator.errors import BadArgumentsError

_LENGTH_MS_MAX = 366 * 86_400_000
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_LENGTH = re.compile(r"([1-9][0-9]{0,8})(s|m|h)", re.ASCII)
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
FIRST_AT = {"1d": "00:00", "1w": "mon 00:00", "1mo": "1 00:00"}
_EVERY = "a length as 90s, 15m or 6h, or 1d, 1w or 1mo"
_FIELDS = (
    "minute (0-59)", "hour (0-23)", "day of month (1-31, L, LW)", "month (1-12, JAN-DEC)",
    "day of week (0-7, SUN-SAT)",
)  # fmt: skip
_MACROS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}  # fmt: skip
TIME_MS_MAX = 253_370_764_800_000
"""The year 9999."""
_BACK = [timedelta(hours=1), *(timedelta(days=by) for by in (1, 8, 32, 370, 10 * 366, 51 * 366))]
"""How far to look back for the start of an interval: most are found in the first."""


def zone_of(tz: str | None) -> ZoneInfo:
    """Return the time zone of this name, UTC for None; raises BadArgumentsError for none."""
    try:
        return ZoneInfo("UTC" if tz is None else tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise BadArgumentsError(
            f"tz: expected a time zone of the IANA database, as 'Europe/Berlin', found {tz!r:.60}"
        ) from None


def length_ms_of(every: Any) -> int:
    """Return how long ``every`` is; raises BadArgumentsError unless it is 1 s to 366 days."""
    if isinstance(every, timedelta):
        length_ms, rest = divmod(every, timedelta(milliseconds=1))
        is_whole = not rest and length_ms % 1000 == 0
    else:
        found = _LENGTH.fullmatch(every) if isinstance(every, str) else None
        length_ms = 0 if found is None else int(found[1]) * _UNIT_MS[found[2]]
        is_whole = found is not None
    if not is_whole or not 1_000 <= length_ms <= _LENGTH_MS_MAX:
        raise BadArgumentsError(
            f"every: expected {_EVERY}, from 1s to 366 days; found {every!r:.60}{_hint(every)}"
        )
    return length_ms


def _hint(every: Any) -> str:
    if isinstance(every, str) and re.fullmatch(r"[0-9]+(d|w|mo)", every):
        return "; for several days, weeks or months say cron=, or a length in hours"
    if isinstance(every, str) and len(every.split()) in (5, 6):
        return "; for a cron expression say cron="
    return ""


def in_units(length_ms: int) -> str:
    """Return a length as it is written: in hours, minutes or seconds, the largest that fits."""
    unit = next(each for each in ("h", "m", "s") if length_ms % _UNIT_MS[each] == 0)
    return f"{length_ms // _UNIT_MS[unit]}{unit}"


def cron_of_day(every: str, at: Any, zone: ZoneInfo) -> str:
    """Return the cron expression of a time of each day, week or month."""
    words = at.lower().split() if isinstance(at, str) else []
    time = _TIME.fullmatch(words[-1]) if words else None
    day, month_day, week_day = " ".join(words[:-1]), "*", "*"
    is_day = not day
    if every == "1w":
        is_day, week_day = day in _DAYS, day.upper()
    elif every == "1mo":
        is_day = day == "last" or (day.isdecimal() and day.isascii() and 1 <= int(day) <= 28)
        month_day = "L" if day == "last" else day
    if time is None or not is_day:
        expected = {
            "1d": "a time as 02:00",
            "1w": "a day and a time as 'mon 02:00'",
            "1mo": "a day that every month has and a time, as '1 02:00' (1 to 28) or 'last 02:00'",
        }[every]
        raise BadArgumentsError(f"at: expected {expected} with every={every!r}, found {at!r:.60}")
    return checked_cron(f"{int(time[2])} {int(time[1])} {month_day} * {week_day}", zone)


def checked_cron(cron: Any, zone: ZoneInfo) -> str:
    """Return an expression of five fields; raises BadArgumentsError naming the field at fault."""
    whole = _MACROS.get(cron.strip().lower(), cron) if isinstance(cron, str) else ""
    fields = whole.split()
    if len(fields) != len(_FIELDS) or len(whole) > 300:
        raise BadArgumentsError(
            f"cron: expected five fields (minute, hour, day of month, month, day of week), or one "
            f"of {', '.join(_MACROS)}; found {cron!r:.80}"
        )
    begin = datetime(2024, 1, 1, tzinfo=zone)
    for place, field in enumerate(fields):
        alone = ["*"] * len(_FIELDS)
        alone[place] = field
        try:
            CronSim(" ".join(alone), begin)
        except Exception:  # CronSimError, and others of words that it did not expect
            raise BadArgumentsError(
                f"cron: expected {_FIELDS[place]}, found {field!r} in {cron!r:.80}"
            ) from None
    expression = " ".join(fields)
    try:
        next(CronSim(expression, begin))
    except Exception:  # as above, and StopIteration
        raise BadArgumentsError(
            f"cron: expected an expression that some day fits, found {cron!r:.80}: no day does"
        ) from None
    return expression


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
            BadArgumentsError: a word is not valid, or the words do not go together.
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
            BadArgumentsError: it is no schedule, or cannot be read here.
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
