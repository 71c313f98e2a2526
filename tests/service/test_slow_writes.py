"""The log of slow writes: which part of it took so long, and no flood while all are slow."""

from __future__ import annotations

import asyncio
import logging

import pytest

from coordinator.clock import ManualClock
from coordinator.model.access import Caller
from coordinator.service.writes.proposals import RequestContext
from coordinator.service.writes.slow_writes import LINES_MAX, WINDOW_MS, SlowWrites
from coordinator.state.commands import Command, Create, RequestId
from tests.service.fake_cluster import cluster, settle, soon

WRITE = Command(
    Create("/a"),
    0,
    request=RequestId("c", 7),
    caller=Caller("pay\nworker", credential="token:1", since=1),
)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "coordinator.slow"]


def test_a_slow_write_is_logged_with_its_parts(caplog: pytest.LogCaptureFixture) -> None:
    """What, whose, how long in all, and where; what clients write is quoted."""
    slow = SlowWrites(ManualClock(), 1_000)
    slow.look(WRITE, 5_000, 5_010, 6_490, 6_510)
    slow.look(WRITE, 5_000, 5_010, 5_900, 5_999)

    assert lines(caplog) == [
        "Create of identity 'pay\\nworker' took 1510 ms: leader 10 ms, order 1480 ms, apply 20 ms;"
        " request 7"
    ]


def test_what_did_not_happen_took_no_time(caplog: pytest.LogCaptureFixture) -> None:
    """No leader until the deadline; or the deadline came while it was under way."""
    slow = SlowWrites(ManualClock(), 1_000)
    slow.look(WRITE, 5_000, 0, 0, 15_000)
    slow.look(WRITE, 5_000, 5_200, 0, 15_000)

    unled, unordered = lines(caplog)
    assert "leader 10000 ms, order 0 ms, apply 0 ms" in unled
    assert "leader 200 ms, order 9800 ms, apply 0 ms" in unordered


def test_zero_logs_none(caplog: pytest.LogCaptureFixture) -> None:
    """As the setting says."""
    SlowWrites(ManualClock(), 0).look(WRITE, 0, 0, 0, 100_000)
    assert lines(caplog) == []


def test_many_slow_writes_do_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """On an overloaded member each is slow; the next window says how many were left out."""
    slow = SlowWrites(ManualClock(), 1_000)
    for number in range(500):
        slow.look(WRITE, 20_000, 20_001, 21_000, 21_000 + number)
    assert len(lines(caplog)) == LINES_MAX

    slow.look(WRITE, 20_000, 20_001, 21_000, 21_000 + WINDOW_MS)
    assert lines(caplog)[LINES_MAX] == "480 more slow writes were not logged"


async def test_a_member_without_a_leader_says_where_the_time_went(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The write waits for two seconds until somebody leads, then is quick."""
    caplog.set_level(logging.INFO)
    async with cluster() as world:
        world.elect(None)
        write = asyncio.ensure_future(
            world.members["1"].proposer.submit(
                Create("/a"), RequestContext(None, world.deadline())
            )
        )
        await settle()
        await world.advance(2_000)
        world.elect("1")
        await soon(write)

    (line,) = lines(caplog)
    assert line.startswith("Create of identity '' took 2")
    assert "order 0 ms, apply 0 ms" in line
