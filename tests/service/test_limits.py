"""The limits as members serve them: set first, changed by commands, said when they differ."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from coordinator.errors import (
    BadArgumentsError,
    BadVersionError,
    DataTooLargeError,
    NoLeaderError,
    QuotaExceededError,
    StorageError,
)
from coordinator.model.limits import NEW_CLUSTER, UNSET
from coordinator.node.config import Config, HttpConfig, SessionConfig
from coordinator.service.base.replica import MachineReplica
from coordinator.service.member import Member
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.service.writes.limits import LimitsChanged
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import ANY_VERSION, Command, Create, SetData, SetLimits
from coordinator.state.machine import StateMachine
from coordinator.state.rules import RULES
from tests.service.fake_cluster import World, cluster, settle, soon

SMALL = Config(
    sessions=SessionConfig(timeout_ms_default=2_000),
    first_limits=replace(NEW_CLUSTER, data_bytes_max=10),
)


async def write(world: World, data: bytes, *, in_ms: int = 1_000) -> None:
    await soon(
        world.leader.proposer.submit(
            SetData("/", data), RequestContext(None, world.deadline(in_ms))
        )
    )


async def change_at(
    member: Member, world: World, name: str, value: int, *, expected_version: int = ANY_VERSION
) -> LimitsChanged:
    asked = RequestContext(None, world.deadline())
    return await soon(member.limits.change(((name, value),), "ops", expected_version, asked))


# --- the first ones


async def test_the_first_command_of_a_new_cluster_sets_the_limits_of_the_first_leader() -> None:
    """They and the rules of its release are in the log before anything else."""
    async with cluster(config=SMALL, is_new=True) as world:
        with pytest.raises(DataTooLargeError):
            await write(world, b"x" * 11)

        first = decode_command(world.log[0][1]).operation
        assert isinstance(first, SetLimits)
        assert dict(first.values)["data_bytes_max"] == 10
        assert (first.expected_version, first.rules) == (0, RULES)
        for member in world.members.values():
            read = await soon(member.limits.read(LINEARIZABLE, world.deadline()))
            assert (read.value.limits.data_bytes_max, read.value.version) == (10, 1)
            assert read.value.changed_by == "the configuration of member 1"


async def test_a_leader_serves_nothing_before_the_limits_are_set() -> None:
    """A write that comes before them waits; here they never come."""
    async with cluster(config=SMALL, is_new=True, leader_id=None) as world:
        world.has_quorum = False
        world.elect("1")
        await settle()

        for member in world.members.values():
            create = member.proposer.submit(
                Create("/a"), RequestContext(None, world.deadline(1_000))
            )
            writing = asyncio.ensure_future(create)
            await world.advance(1_500)
            with pytest.raises(NoLeaderError):
                await soon(writing)
        assert world.log == []


async def test_a_second_leader_sets_what_the_first_could_not() -> None:
    """The first ones are tried again by whoever leads next; they are set once."""
    async with cluster(config=SMALL, is_new=True, leader_id=None) as world:
        world.has_quorum = False
        world.elect("1")
        await settle()
        world.has_quorum = True
        world.elect("2")
        await write(world, b"x")
        world.elect("1")
        await write(world, b"y")

        firsts = [decode_command(command).operation for _, command, _ in world.log]
        assert [isinstance(each, SetLimits) for each in firsts] == [True, False, False]


# --- the trial: a changed limit rewrites history


async def test_a_member_that_comes_back_with_other_limits_decides_as_it_did() -> None:
    """What was refused did not happen, what was acknowledged stays, the zxid never goes back."""
    async with cluster(1, config=SMALL) as world:
        with pytest.raises(DataTooLargeError):
            await write(world, b"x" * 11)
        await write(world, b"short")
        await change_at(world.leader, world, "data_bytes_max", 1_000)
        await write(world, b"x" * 11)
        log, before = list(world.log), world.leader.labels()

    for data_bytes_max in (1, 10, 1_048_576):
        first = replace(NEW_CLUSTER, data_bytes_max=data_bytes_max)
        config = Config(sessions=SMALL.sessions, first_limits=first)
        async with cluster(1, config=config, is_new=True, leader_id=None) as world:
            world.log.extend(log)
            world.engines["1"].catch_up()
            world.elect("1")

            assert world.leader.labels() == before
            read = await soon(world.leader.get("/", LINEARIZABLE, world.deadline()))
            assert read.value[0] == b"x" * 11


async def test_a_limit_raised_while_one_member_was_away_holds_for_it_too() -> None:
    """All have the same children afterwards: 8, 8 and 20 was what the trial saw."""
    config = Config(sessions=SMALL.sessions, first_limits=replace(NEW_CLUSTER, znodes_max=8))
    async with cluster(config=config) as world:
        away = world.engines["3"]
        away.is_applying = False
        refused = 0
        for number in range(20):
            if number == 12:
                await change_at(world.members["2"], world, "znodes_max", 100)
            try:
                await soon(
                    world.leader.proposer.submit(
                        Create(f"/{number}"), RequestContext(None, world.deadline())
                    )
                )
            except QuotaExceededError:
                refused += 1
        assert refused == 5
        away.is_applying = True
        away.catch_up()

        assert {each.status().znodes for each in world.members.values()} == {16}


# --- changes


async def test_the_first_limits_are_no_change(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody has set anything in a new cluster; it said "sessions_max 10000 to 1500"."""
    with caplog.at_level(logging.INFO, "coordinator.audit"):
        async with cluster(is_new=True) as world:
            await world.advance(1_000)

    said = [each.getMessage() for each in caplog.records if "limits" in each.getMessage()]
    assert said == ["this cluster begins with the limits of 'the configuration of member 1'"]


async def test_a_change_is_for_all_and_in_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    """Any member takes it; who did it is kept, and said once, by the leader."""
    async with cluster() as world:
        with caplog.at_level(logging.WARNING, "coordinator.audit"):
            done = await change_at(world.follower, world, "sessions_max", 7, expected_version=1)
        assert done.record.version == 2

        logged = [each.getMessage() for each in caplog.records if each.name == "coordinator.audit"]
        assert logged == [
            "limits set to version 2 by 'ops', identity '', at index 2: sessions_max 50000 to 7"
        ]
        with pytest.raises(BadVersionError):
            await change_at(world.follower, world, "sessions_max", 8, expected_version=1)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("data_bytes_max", 1_572_865, "body_bytes_max"),
        ("timeout_ms_min", 99, "tick_ms"),
        ("path_depth_max", 3, "from 4 to 1024"),
        ("children_max", 300_001, "from 1 to 300000, found 300001: with more, one step"),
        ("recursive_delete_max", 1_501, "from 1 to 1500"),
        ("grants_per_command_max", 2_001, "from 1 to 2000"),
        ("deadlock_search_max", 1_501, "from 1 to 1500"),
        ("grant_history_max", 200_001, "from 1 to 200000"),
        ("no_such", 3, "expected one of data_bytes_max"),
    ],
)
async def test_what_cannot_be_is_refused_and_not_proposed(name: str, value: int, said: str) -> None:
    """The message names the limit, what was expected and what was found."""
    async with cluster(config=Config(http=HttpConfig())) as world:
        with pytest.raises(BadArgumentsError, match=said):
            await change_at(world.follower, world, name, value)

        assert not world.log[1:]


async def test_the_default_timeout_of_sessions_stays_within_the_limits() -> None:
    """Who asks for no timeout is not refused because a limit was lowered below the default."""
    async with cluster() as world:
        await change_at(world.follower, world, "timeout_ms_max", 1_500)

        opened = await soon(world.follower.open_session(None, "", None, world.deadline()))

        assert opened.timeout_ms == 1_500


# --- a configuration that differs


async def test_a_member_says_in_what_its_configuration_differs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In one line of the log and in its status; it goes on with the limits of the cluster."""
    async with cluster(1, config=SMALL) as world:
        assert world.leader.status().limits_differ == ""
        await change_at(world.leader, world, "data_bytes_max", 20)

        with caplog.at_level(logging.WARNING, "coordinator.service"):
            await world.advance(5_000)

        expected = (
            "the configuration of member 1 has other limits than the cluster, whose limits hold: "
            "data_bytes_max is 10 in it and 20 in the cluster; change one of the two "
            "(coordinator limits set)"
        )
        assert world.leader.status().limits_differ == expected
        assert [
            each.getMessage() for each in caplog.records if each.name == "coordinator.service"
        ] == [expected]


# --- what a member refuses to replay


def test_a_state_of_other_rules_stops_the_member() -> None:
    """A release in which a constant differs does not replay the log of one before."""
    first = encode_command(Command(SetLimits(UNSET.items(), expected_version=0, rules=RULES), 0))
    other = tuple(
        [(name, "0" if name == "paths.sequence_digits" else value) for name, value in RULES]
    )

    with pytest.raises(StorageError, match="sequence_digits is 0 in this release, and was 10"):
        MachineReplica(StateMachine(), rules=other).apply(1, 1, first)

    begun = MachineReplica(StateMachine())
    begun.apply(1, 1, first)
    restored = MachineReplica(StateMachine(), rules=other)
    with pytest.raises(StorageError, match="run the release that began it"):
        restored.restore(begun.snapshot())
