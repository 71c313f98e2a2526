"""Limits are part of the state: set by commands, carried by snapshots, the same in every replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MethodType

import pytest

from coordinator.model.limits import (
    NAMES,
    NEW_CLUSTER,
    PROPOSED_MAX,
    UNSET,
    MachineLimits,
    bounds_of,
    proposed_bounds_of,
)
from coordinator.node.config import SESSION_LIMITS
from coordinator.node.config_file import load
from coordinator.node.config_rules import bounds_of as bounds_of_config
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Enter,
    Kind,
    OpenSession,
    Operation,
    Release,
    RequestId,
    SetData,
    SetLimits,
)
from coordinator.state.limits import DROPPED_AT_ONCE
from coordinator.state.machine import StateMachine
from tests.state.alterations import attributes_of


def replayed(log: list[Operation], *, snapshot_at: int = 0) -> StateMachine:
    """Return a machine that has applied ``log``, as a member does that is started now."""
    machine = StateMachine()
    for index, operation in enumerate(log, 1):
        if index == snapshot_at:
            pieces, machine = machine.snapshot(), StateMachine()
            machine.restore(pieces)
        machine.apply(Command(operation, wall_ms=index, request=RequestId("c1", index)), index, 1)
    return machine


def test_the_configuration_proposes_each_limit() -> None:
    """A changed value of either section arrives under its name."""
    variables = {"COORDINATOR_LIMITS_REQUEST_WINDOW": "7", "COORDINATOR_SESSIONS_SESSIONS_MAX": "3"}

    config = load(None, variables)

    assert config.first_limits == replace(NEW_CLUSTER, request_window=7, sessions_max=3)


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_is_at_least_one(name: str) -> None:
    """A machine that can hold nothing is a mistake of whoever built it."""
    with pytest.raises(AssertionError, match=name):
        MachineLimits(**{name: 0})


@pytest.mark.parametrize("name", NAMES)
def test_what_the_configuration_may_propose_a_command_may_set(name: str) -> None:
    """The two tables of bounds agree; a command of before may have set more."""
    section = "sessions" if name in SESSION_LIMITS else "limits"
    low, high = bounds_of(name)

    assert bounds_of_config(section, name) == proposed_bounds_of(name)
    assert proposed_bounds_of(name) == (low, min(high, PROPOSED_MAX.get(name, high)))


def test_a_log_that_has_set_more_than_is_proposed_now_is_read_as_it_was() -> None:
    """What a member proposes is no matter of the state."""
    machine = StateMachine()
    values = tuple([(name, bounds_of(name)[1]) for name in PROPOSED_MAX])

    machine.apply(
        Command(SetLimits(values, expected_version=0, rules=(), by="ops"), 5), 1, 1
    ).unwrap()

    assert {name: getattr(machine.limits, name) for name in PROPOSED_MAX} == dict(values)


def test_the_limits_before_any_was_set_never_change() -> None:
    """Logs from before are read under these, in every release. A new limit is added, and is what
    the release before it did; a value here is not changed: change ``NEW_CLUSTER``."""
    assert (
        MachineLimits(
            data_bytes_max=1_048_576,
            path_bytes_max=1_024,
            path_depth_max=64,
            children_max=100_000,
            znodes_max=1_000_000,
            state_bytes_max=1_073_741_824,
            operations_per_multi_max=1_000,
            ephemerals_per_session_max=20_000,
            recursive_delete_max=10_000,
            request_window=128,
            clients_max=20_000,
            remembered_bytes_max=268_435_456,
            released_grants_max=4_096,
            grant_history_max=10_000,
            grant_history_bytes_max=16_777_216,
            remembered_percent_max=100,
            timeout_ms_min=1_000,
            timeout_ms_max=3_600_000,
            sessions_max=50_000,
            sessions_per_address_max=1_000_000_000,
            sessions_per_client_max=1_000_000_000,
            ordinary_percent_max=100,
        )
        == UNSET
    )


def lock_directory(number: int) -> str:
    return f"/locks/{number}"


GROWTH: dict[str, Callable[[int], list[Operation]]] = {
    "data_bytes_max": lambda n: [SetData("/", b"x" * 20 * n)],
    "path_bytes_max": lambda n: [Create("/" + "x" * (90 + n))],
    "path_depth_max": lambda n: [Create("/a/b/c/d/e" + str(n), parents=CreateMode.PERSISTENT)],
    "children_max": lambda n: [Create(f"/{n}{each}") for each in range(3)],
    "znodes_max": lambda n: [Create(f"/{n}{each}") for each in range(3)],
    "state_bytes_max": lambda n: [Create(f"/{n}{each}") for each in range(3)],
    "sessions_max": lambda n: [OpenSession(f"s{n}{each}", 5_000) for each in range(3)],
    "timeout_ms_max": lambda n: [OpenSession(f"s{n}", 7_000)],
    "ephemerals_per_session_max": lambda n: [
        OpenSession(f"s{n}", 5_000),
        *[
            Create(f"/{n}{each}", mode=CreateMode.EPHEMERAL, session_id=f"s{n}")
            for each in range(3)
        ],
    ],
}
LOW = {
    "path_bytes_max": 64, "path_depth_max": 4, "timeout_ms_max": 6_000, "data_bytes_max": 10,
    "state_bytes_max": 600,
}  # fmt: skip


@pytest.mark.parametrize("name", GROWTH)
def test_a_limit_counts_from_its_place_in_the_log(name: str) -> None:
    """What was refused never happened and what was done stays, whatever is set later."""
    low, high = LOW.get(name, 2), getattr(UNSET, name)
    log: list[Operation] = [SetLimits(((name, low),), 0)]
    log += GROWTH[name](1)
    refused = replayed(log)
    log += [SetLimits(((name, high),)), *GROWTH[name](2), SetLimits(((name, low),))]
    done = replayed(log)

    assert refused.zxid < done.zxid, "the one refused, the other not"
    for place in range(1, len(log) + 1):
        again = replayed(log, snapshot_at=place)
        assert (again.digest(), again.zxid) == (done.digest(), done.zxid)
    assert replayed(log[: len(GROWTH[name](1)) + 1]).digest() == refused.digest()


def test_every_limit_is_in_a_snapshot() -> None:
    """A member that begins with a snapshot knows all limits, their version and who set them."""
    machine = StateMachine()
    values = tuple([(name, min(7_000, bounds_of(name)[1])) for name in NAMES])
    machine.apply(
        Command(SetLimits(values, expected_version=0, rules=(("rule", "1"),), by="ops"), 5), 1, 1
    )

    restored = StateMachine()
    restored.restore(machine.snapshot())

    assert restored.limits_record == machine.limits_record
    assert restored.limits_record.rules == (("rule", "1"),)
    assert restored.limits_record.changed_by == "ops"
    assert restored.limits.items() == values


def test_only_the_first_command_stamps_the_rules() -> None:
    """The stamp tells of the release that began the state; nobody changes it afterwards."""
    machine = StateMachine()
    for number in (1, 2):
        machine.apply(
            Command(
                SetLimits(
                    (("znodes_max", number),), expected_version=-1, rules=(("rule", str(number)),)
                ),
                0,
            ),
            number,
            1,
        )

    assert machine.limits_record.rules == (("rule", "1"),)
    assert machine.limits.znodes_max == 2


def test_a_lower_limit_cuts_what_is_remembered_little_by_little() -> None:
    """No command drops more than ``DROPPED_AT_ONCE`` clients, sessions, releases or grants."""
    machine = StateMachine()
    machine.apply(Command(OpenSession("s1", 5_000), 0), 1, 1)
    count = DROPPED_AT_ONCE + 100
    for number in range(count):
        request = RequestId(f"c{number}", 1)
        enter = Enter(("/locks/a",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"")
        outcome = machine.apply(Command(enter, wall_ms=0, request=request), 2 * number + 2, 1)
        release = Release(f"/locks/a/lock-{number:010d}", outcome.zxid)
        assert machine.apply(Command(release, 0), 2 * number + 3, 1).refusal is None
    low = (("clients_max", 2), ("released_grants_max", 2), ("grant_history_max", 2))
    machine.apply(Command(SetLimits(low), 0), 9_000, 1)
    assert (len(machine._requests), len(machine.locks.ended())) == (count, count)

    machine.apply(Command(Create("/a"), wall_ms=0, request=RequestId("c", 1)), 9_001, 1)
    left = count + 1 - DROPPED_AT_ONCE
    assert (len(machine._requests), len(machine.locks.ended())) == (left, count)
    restored = StateMachine()
    restored.restore(machine.snapshot())
    machine.apply(Command(Create("/b"), wall_ms=0, request=RequestId("c", 2)), 9_002, 1)
    restored.apply(Command(Create("/b"), wall_ms=0, request=RequestId("c", 2)), 9_002, 1)
    assert len(machine._requests) == 2
    assert restored.digest() == machine.digest()


def kept_limits(machine: StateMachine) -> dict[str, object]:
    """Find every limit that a part of the machine keeps, by the way to it."""
    found: dict[str, object] = {}
    seen: set[int] = set()

    def walk(way: str, part: object) -> None:
        if id(part) in seen:
            return
        seen.add(id(part))
        for name in attributes_of(part):
            value = getattr(part, name)
            if isinstance(value, MachineLimits) or (isinstance(value, int) and "_max" in name):
                found[f"{way}.{name}"] = value
            elif type(value).__module__.startswith("coordinator.state"):
                walk(f"{way}.{name}", value)
            for each in value.values() if isinstance(value, dict) else ():
                if isinstance(each, MethodType):  # what handles one kind of command
                    walk(f"{way}.{name}[{type(each.__self__).__name__}]", each.__self__)

    walk("machine", machine)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_part_follows_a_limit_that_is_set(name: str) -> None:
    """As if the machine had been made with it, in each part that keeps a limit; restored, too."""
    value = getattr(UNSET, name)
    low, high = bounds_of(name)
    value = value // 2 if value // 2 >= low else min(value + 1, high)
    made = StateMachine(replace(UNSET, **{name: value}))
    changed = replayed([SetLimits(((name, value),), 0)])
    restored = StateMachine()

    restored.restore(changed.snapshot())

    assert kept_limits(changed) == kept_limits(restored) == kept_limits(made)
    assert kept_limits(made) != kept_limits(StateMachine())
    assert len(kept_limits(made)) >= 8
