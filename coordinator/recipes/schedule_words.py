"""The words of a schedule: checked, with an error that names the word at fault.

The cron expressions are those of cronsim: each word is tried alone, because its errors name only
the field.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
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
