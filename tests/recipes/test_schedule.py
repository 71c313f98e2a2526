"""Schedules: which interval a time is in, at changes of the clock too, and every bad word."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from coordinator.errors import BadArgumentsError
from coordinator.recipes.jobs.schedule import Schedule


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def utc(*times_ms: int) -> list[str]:
    return [datetime.fromtimestamp(each / 1000, UTC).strftime("%m-%d %H:%M") for each in times_ms]


def first(schedule: Schedule, after: str, count: int) -> list[str]:
    return utc(*itertools.islice(schedule.after(ms(after)), count))


@pytest.mark.parametrize(
    ("words", "at", "latest", "following"),
    [
        ({"every": "15m"}, "2026-11-23T10:07:00Z", "11-23 10:00", "11-23 10:15"),
        ({"every": timedelta(hours=6)}, "2026-11-23T10:07:00Z", "11-23 06:00", "11-23 12:00"),
        ({"every": "1d"}, "2026-11-23T10:07:00Z", "11-23 00:00", "11-24 00:00"),
        ({"every": "1w"}, "2026-11-25T10:07:00Z", "11-23 00:00", "11-30 00:00"),
        ({"every": "1w", "at": "sun 23:30"}, "2026-11-25T10:07:00Z", "11-22 23:30", "11-29 23:30"),
        (
            {"every": "1mo", "at": "last 02:00"},
            "2026-11-25T00:00:00Z",
            "10-31 02:00",
            "11-30 02:00",
        ),
        ({"cron": "0 2 * * MON-FRI"}, "2026-11-22T10:00:00Z", "11-20 02:00", "11-23 02:00"),
        ({"cron": "@monthly"}, "2026-11-22T10:00:00Z", "11-01 00:00", "12-01 00:00"),
        ({"cron": "0 0 29 2 *"}, "2027-11-22T10:00:00Z", "02-29 00:00", "02-29 00:00"),
        ({"cron": "*/5 * * * *"}, "2026-11-22T10:05:00Z", "11-22 10:05", "11-22 10:10"),
    ],
)
def test_a_time_is_in_one_interval(words: Any, at: str, latest: str, following: str) -> None:
    """Its start is at or before the time, and the next start after it."""
    schedule = Schedule.of(**words)

    assert utc(schedule.latest(ms(at))) == [latest]
    assert utc(schedule.next(ms(at)) or 0) == [following]
    assert Schedule.of_json(schedule.to_json()) == schedule


def test_where_the_clock_is_put_forward_a_time_that_is_left_out_comes_right_after() -> None:
    """On 29 March 2026 there is no 02:30 in Berlin; the day has its interval all the same."""
    schedule = Schedule.of("1d", at="02:30", tz="Europe/Berlin")

    assert first(schedule, "2026-03-28T00:00:00Z", 3) == [
        "03-28 01:30", "03-29 01:00", "03-30 00:30",
    ]  # fmt: skip


def test_where_the_clock_is_put_back_a_time_that_comes_twice_counts_once() -> None:
    """On 25 October 2026 it is 02:30 twice in Berlin; between the two nothing begins."""
    schedule = Schedule.of("1d", at="02:30", tz="Europe/Berlin")

    assert first(schedule, "2026-10-24T12:00:00Z", 2) == ["10-25 00:30", "10-26 01:30"]
    assert utc(schedule.next(ms("2026-10-25T01:10:00Z")) or 0) == ["10-26 01:30"]
    assert utc(schedule.latest(ms("2026-10-25T01:45:00Z"))) == ["10-25 00:30"]


def test_two_times_in_one_gap_are_one_interval() -> None:
    """02:00 and 02:30 both come at 03:00."""
    schedule = Schedule.of(cron="0,30 2 * * *", tz="Europe/Berlin")

    assert first(schedule, "2026-03-28T12:00:00Z", 2) == ["03-29 01:00", "03-30 00:00"]


ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe",
    "Asia/Beirut", "Pacific/Apia", "Asia/Kathmandu",
)  # fmt: skip
CRONS = (
    "0 2 * * *", "30 2 * * *", "0 0 * * *", "30 1 * * SUN", "5 * * * *", "*/20 * * * *",
    "0 1-4 * * *", "0 */6 * * *", "* 2 * * *",
)  # fmt: skip


QUICK = {("Europe/Berlin", "30 2 * * *"), ("America/Sao_Paulo", "*/20 * * * *")}
PAIRS = [
    pytest.param(zone, cron, marks=[] if (zone, cron) in QUICK else [pytest.mark.check])
    for zone in ZONES
    for cron in CRONS
    # Where the clock changes by half an hour, cronsim leaves out one of those that go by hours.
    if zone != "Australia/Lord_Howe" or "*" not in cron.split()[0] + cron.split()[1]
]


@pytest.mark.parametrize(("zone", "cron"), PAIRS)
def test_every_way_to_an_interval_leads_to_the_same_one(zone: str, cron: str) -> None:
    """From wherever one looks, the starts are the same and in order, at changes of clocks too."""
    schedule = Schedule.of(cron=cron, tz=zone)
    for change in changes_of(zone):
        begin, end = change - 30 * 3_600_000, change + 30 * 3_600_000
        starts = list(itertools.takewhile(lambda each, end=end: each < end, schedule.after(begin)))
        assert starts == sorted(set(starts))
        for at_ms in range(begin + 26 * 3_600_000, begin + 34 * 3_600_000, 37 * 60_000):
            later = [each for each in starts if each > at_ms]
            assert schedule.next(at_ms) == (later[0] if later else schedule.next(end - 1))
            earlier = [each for each in starts if each <= at_ms]
            if earlier:
                assert schedule.latest(at_ms) == earlier[-1]


def changes_of(zone: str) -> list[int]:
    """Return when the clocks of a zone changed in a few years, or any two times."""
    found, hour = [], timedelta(hours=1)
    for year in (2017,):
        at, key = datetime(year, 1, 1, tzinfo=UTC), ZoneInfo(zone)
        while at.year == year:
            if at.astimezone(key).utcoffset() != (at + 24 * hour).astimezone(key).utcoffset():
                while at.astimezone(key).utcoffset() == (at + hour).astimezone(key).utcoffset():
                    at += hour
                found.append(int((at + hour).timestamp() * 1000))
            at += 24 * hour
    return found[:3] or [ms("2026-02-28T23:00:00Z"), ms("2026-12-31T23:00:00Z")]


BAD = [
    ({}, "expected every= or cron=, found neither"),
    ({"every": "1d", "cron": "0 2 * * *"}, "expected every= or cron=, found both"),
    ({"every": "1x"}, "every: expected a length as 90s, 15m or 6h, or 1d, 1w or 1mo.*found '1x'"),
    ({"every": "0s"}, "found '0s'"),
    ({"every": "-5m"}, "found '-5m'"),
    ({"every": "1D"}, "found '1D'"),
    ({"every": "٣m"}, "every: expected a length"),
    ({"every": ""}, "found ''"),
    ({"every": 60}, "found 60"),
    ({"every": True}, "found True"),
    ({"every": timedelta(0)}, "from 1s to 366 days"),
    ({"every": timedelta(milliseconds=1500)}, "from 1s to 366 days"),
    ({"every": timedelta(days=367)}, "from 1s to 366 days"),
    ({"every": "2d"}, "for several days, weeks or months say cron="),
    ({"every": "0 2 * * *"}, "for a cron expression say cron="),
    ({"every": "15m", "at": "02:00"}, "at: goes with every='1d'"),
    ({"every": "15m", "tz": "UTC"}, "tz: goes with every='1d'"),
    ({"cron": "0 2 * * *", "at": "02:00"}, "at: goes with every="),
    ({"every": "1d", "at": "24:00"}, "at: expected a time as 02:00.*found '24:00'"),
    ({"every": "1d", "at": "2:00"}, "at: expected a time as 02:00"),
    ({"every": "1d", "at": "mon 02:00"}, "at: expected a time as 02:00"),
    ({"every": "1d", "at": ""}, "at: expected a time"),
    ({"every": "1d", "at": 2}, "at: expected a time"),
    ({"every": "1w", "at": "02:00"}, "at: expected a day and a time as 'mon 02:00'"),
    ({"every": "1w", "at": "monday 02:00"}, "at: expected a day and a time"),
    ({"every": "1mo", "at": "31 02:00"}, r"1 to 28\) or 'last 02:00'"),
    ({"every": "1mo", "at": "first 02:00"}, "at: expected a day that every month has"),
    ({"every": "1d", "tz": "Europe/Berlinn"}, "tz: expected a time zone of the IANA database"),
    ({"every": "1d", "tz": "../../etc/passwd"}, "tz: expected a time zone"),
    ({"every": "1d", "tz": "Europe"}, "tz: expected a time zone"),
    ({"every": "1d", "tz": ""}, "tz: expected a time zone"),
    ({"every": "1d", "tz": 1}, "tz: expected a time zone"),
    ({"cron": "0 2 * *"}, "cron: expected five fields"),
    ({"cron": "0 0 2 * * *"}, "cron: expected five fields"),
    ({"cron": "@reboot"}, "or one of @hourly"),
    ({"cron": ""}, "cron: expected five fields"),
    ({"cron": 5}, "cron: expected five fields.*found 5"),
    ({"cron": "60 2 * * *"}, r"cron: expected minute \(0-59\), found '60' in '60 2 \* \* \*'"),
    ({"cron": "0 24 * * *"}, r"cron: expected hour \(0-23\), found '24'"),
    ({"cron": "0 2 0 * *"}, r"day of month \(1-31, L, LW\), found '0'"),
    ({"cron": "0 2 * 13 *"}, r"month \(1-12, JAN-DEC\), found '13'"),
    ({"cron": "0 2 * * 8"}, r"day of week \(0-7, SUN-SAT\), found '8'"),
    ({"cron": "0 2 * * MOO"}, "day of week"),
    ({"cron": "0 2 * * 1#5/2"}, "day of week"),
    ({"cron": "*/0 2 * * *"}, r"found '\*/0'"),
    ({"cron": "5-1 2 * * *"}, "found '5-1'"),
    ({"cron": "0 0 30 2 *"}, "that some day fits, found '0 0 30 2 .*': no day does"),
    ({"cron": "0 0 31 4,6,9,11 *"}, "no day does"),
    ({"cron": "0 2 * * *", "tz": "Mars/Base"}, "tz: expected a time zone"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_a_bad_word_is_named_with_what_was_expected(words: Any, message: str) -> None:
    """Which argument, what was expected, what was found."""
    with pytest.raises(BadArgumentsError, match=message):
        Schedule.of(**words)


@pytest.mark.parametrize(
    "said", [None, {}, {"text": "x"}, 7, {**Schedule.of("1h").to_json(), "length_ms": 0}]
)
def test_what_is_no_schedule_is_refused(said: Any) -> None:
    """Data of another kind in a ledger."""
    with pytest.raises(BadArgumentsError):
        Schedule.of_json(said)


def test_it_ends_with_the_calendar() -> None:
    """In the last days of the year 9999 there is a last interval, and no error."""
    last = 253_402_214_400_000  # 9999-12-31

    for schedule in (Schedule.of("1d"), Schedule.of("24h")):
        assert list(schedule.after(last + 1)) == []
