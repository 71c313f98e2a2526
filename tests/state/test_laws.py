"""The laws of the pure core (coordinator.state.machine), each as a property of random histories."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from coordinator.model.access import MEMBER
from coordinator.model.events import EventType
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import (
    Abandon,
    CloseSession,
    Command,
    Create,
    CreateMode,
    ExpireSession,
    FinishSession,
    RequestId,
)
from coordinator.state.large_map import LargeMap
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine
from coordinator.state.outcome_codec import encode_outcome
from coordinator.state.outcomes import Created, Entered, GuardedDone, MultiDone, Outcome, Stat
from coordinator.state.paths import split
from coordinator.state.tree import Tree
from coordinator.state.znode_changes import with_child
from tests.amount import histories as histories_of
from tests.state.exercised import Observed, about
from tests.state.strategies import SMALL_LIMITS, apply_all, commands, histories
from tests.state.values import changed

ROOT = Path(__file__).resolve().parent.parent.parent
DELAY_BYTES = 64
"""What closes a queue stands where a contender stood, and its name may be this much longer."""

thorough = histories_of(60, derandomize=True, suppress_health_check=list(HealthCheck))
"""The same histories in each run: what they must have held (``about``) is no matter of luck. Those
of ``tests/fuzz/test_machine.py`` are others each time."""


def machine_after(history: list[Command]) -> StateMachine:
    machine = Observed(SMALL_LIMITS)
    apply_all(machine, history)
    return machine


def all_znodes(machine: StateMachine, path: str = "/") -> dict[str, tuple[bytes, Stat]]:
    """Read the whole tree through the public reads, the way a client would walk it."""
    found = machine.get(path)
    assert found is not None
    znodes = {path: found}
    for name in machine.children(path) or []:
        znodes.update(all_znodes(machine, path.rstrip("/") + "/" + name))
    return znodes


def truth(machine: StateMachine) -> tuple[object, ...]:
    """Everything that is true, without what is remembered for retries."""
    revoked = machine.revoked_sessions(1_000)
    sessions = (tuple(machine.sessions()), machine.leaving_sessions(), revoked)
    return machine.zxid, all_znodes(machine), sessions, all_locks(machine), access_of(machine)


def access_of(machine: StateMachine) -> tuple[object, ...]:
    """Read all access rights through the public reads."""
    access = machine.access
    return access.is_on, access.revision, access.zxid, access.roles(), access.identities()


def all_locks(machine: StateMachine) -> tuple[object, ...]:
    """Read all queues and their history through the public reads."""
    locks = machine.locks
    directories = sorted({*locks.directories(), *(path for path in all_znodes(machine))})
    return (
        [(each, once(locks.contenders(each)), once(locks.holders(each))) for each in directories],
        [(each, locks.size(each), locks.closed(each)) for each in directories],
        locks.history(GrantQuery()),
    )


def once(contenders: tuple[ContenderRecord, ...]) -> list[ContenderRecord]:
    """Return them without the mark that their requests were repeated."""
    return [changed(each, is_repeated=False) for each in contenders]


@about(changed=60, refused=60, repeats=15)
@thorough
@given(histories)
def test_law_1_total(history: list[Command]) -> None:
    """Any command comes to an outcome with a result or a refusal, and none raises."""
    machine = Observed(SMALL_LIMITS)

    outcomes = apply_all(machine, history)

    assert all((each.result is None) != (each.refusal is None) for each in outcomes)


@about(changed=30, refused=60)
@thorough
@given(histories, st.randoms(use_true_random=False))
def test_law_1_total_for_mutated_commands(history: list[Command], chance: random.Random) -> None:
    """Bytes that were damaged either do not decode, as a ValueError, or come to an outcome."""
    machine = Observed(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        damaged = bytearray(encode_command(command))
        for _ in range(chance.choice([0, 0, 1, 3])):  # most stay as they are, or nothing is there
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            decoded = decode_command(bytes(damaged))
        except ValueError:
            continue

        outcome = machine.apply(decoded, index, 1)

        assert (outcome.result is None) != (outcome.refusal is None)
        assert encode_outcome(outcome)
        assert machine.digest()


@about(changed=120, rolled_back=2)
@thorough
@given(histories, commands)
def test_law_2_all_or_nothing(history: list[Command], command: Command) -> None:
    """A refused command changes no znode, no session, no zxid, and has no events.

    An ephemeral that a refused multi deletes first enters again, as the last one of its session: on
    every member, and in a snapshot (``test_derived_indexes_equal_rebuilt_ones``)."""
    machine = machine_after(history)
    before, digest_before = truth(machine), machine.digest()
    tree_before = sorted_ephemerals(indexes(machine))

    outcome = machine.apply(command, len(history) + 1, 1)
    assume(outcome.refusal is not None)

    assert truth(machine) == before
    assert outcome.events == ()
    assert sorted_ephemerals(indexes(machine)) == tree_before
    if command.request is None:
        assert machine.digest() == digest_before


@pytest.mark.histories
def test_law_3_deterministic_in_other_processes() -> None:
    """Processes with other hash seeds come to the same outcomes, digests and snapshot bytes."""
    collected: list[list[Command]] = []

    @histories_of(40, database=None, suppress_health_check=list(HealthCheck))
    @given(histories)
    def collect(history: list[Command]) -> None:
        collected.append(history)

    collect()
    text = "\n\n".join(
        "\n".join(encode_command(command).hex() for command in history) for history in collected
    )

    printed = {
        seed: subprocess.run(
            [sys.executable, "-m", "tests.state.replay"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=60,
        ).stdout
        for seed in ("0", "1", "4242")
    }

    assert len(set(printed.values())) == 1
    expected = []
    for history in collected:
        machine = Observed(SMALL_LIMITS)
        expected += [encode_outcome(each).hex() for each in apply_all(machine, history)]
        expected.append(machine.digest())
        expected.append(b"".join(machine.snapshot()).hex())
    assert printed["0"].split() == expected


@about(changed=120, repeats=40, Multi_changed=6)
@thorough
@given(histories, st.data())
def test_law_4_snapshots_are_transparent(history: list[Command], chance: st.DataObject) -> None:
    """A machine that went through a snapshot at any point does as one that did not."""
    cut = chance.draw(st.integers(0, len(history)))
    straight = Observed(SMALL_LIMITS)
    apply_all(straight, history[:cut])
    digest, remembered, derived = (
        straight.digest(),
        straight.remembered_bytes,
        deepcopy(indexes(straight)),
    )
    pieces = straight.snapshot()  # of this moment, though it is encoded when it is drawn
    expected = apply_all(straight, history[cut:], first=cut + 1)

    after = Observed(SMALL_LIMITS)
    after.restore(pieces)

    assert after.digest() == digest
    assert after.applied_index == cut
    assert after.remembered_bytes == remembered
    assert indexes(after) == derived
    assert apply_all(after, history[cut:], first=cut + 1) == expected
    assert after.digest() == straight.digest()
    assert b"".join(after.snapshot()) == b"".join(straight.snapshot())
    rebuilt = Observed(SMALL_LIMITS)
    rebuilt.restore(straight.snapshot())
    assert rebuilt.remembered_bytes == straight.remembered_bytes
    assert rebuilt.limits == straight.limits


@about(changed=60, refused=60, repeats=15, SetData_changed=3)
@thorough
@given(histories)
def test_law_5_zxid_grows_by_one_for_each_change(history: list[Command]) -> None:
    """The zxid grows by exactly one with each change of tree, sessions, locks or rights, else
    not."""
    machine = Observed(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        before = truth(machine)

        outcome = machine.apply(command, index, 1)

        is_changed = bool(outcome.events) or truth(machine)[1:] != before[1:]
        assert machine.zxid == machine_zxid(before) + is_changed
        if not outcome.is_repeat:
            assert outcome.zxid == machine.zxid


def machine_zxid(state: tuple[object, ...]) -> int:
    zxid = state[0]
    assert isinstance(zxid, int)
    return zxid


@about(changed=60, Delete_changed=3, Multi_changed=2)
@thorough
@given(histories)
def test_law_6_events_tell_the_whole_change_in_order(history: list[Command]) -> None:
    """Replaying the events alone gives the same znodes: parents come first, children go first."""
    machine = Observed(SMALL_LIMITS)
    known: dict[str, tuple[int, int]] = {"/": (0, 0)}
    for index, command in enumerate(history, 1):
        for event in machine.apply(command, index, 1).events:
            if event.type is EventType.CREATED:
                assert event.path not in known
                assert split(event.path)[0] in known
            elif event.type is EventType.DELETED:
                assert known.pop(event.path) == (event.czxid, event.version)
                assert not any(split(path)[0] == event.path for path in known if path != "/")
                continue
            known[event.path] = (event.czxid, event.version)

        found = all_znodes(machine).items()
        assert known == {path: (stat.czxid, stat.version) for path, (_, stat) in found}


def check_ephemerals(machine: StateMachine) -> None:
    """Every ephemeral znode is one of a session that knows it: open, or leaving and not through."""
    leaving = machine.leaving_sessions()
    is_open = {each.session_id for each in machine.sessions()} | {*machine.revoked_sessions(1_000)}
    owned: dict[str, set[str]] = {each: set() for each in (*is_open, *leaving)}
    for path, (_, stat) in all_znodes(machine).items():
        if stat.ephemeral_owner is not None:
            owned[stat.ephemeral_owner].add(path)
            assert stat.num_children == 0
    assert owned == {each: set(machine.ephemerals_of(each)) for each in owned}
    assert is_open.isdisjoint(leaving)


@about(CloseSession_changed=10)
@thorough
@given(histories)
def test_law_7_ephemerals_belong_to_sessions(history: list[Command]) -> None:
    """Each has one session, which knows it; ending that takes all, or is gone on with."""
    machine = Observed(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        machine.apply(command, index, 1)

        check_ephemerals(machine)

    for session_id in machine.leaving_sessions():
        while machine.ephemerals_of(session_id):
            count = len(machine.ephemerals_of(session_id))
            machine.apply(Command(FinishSession(session_id, 1), 0), len(history) + 1, 1)
            assert len(machine.ephemerals_of(session_id)) < count
    for session in machine.sessions():
        zxid, expected = machine.zxid, set(machine.ephemerals_of(session.session_id))

        close = Command(CloseSession(session.session_id), wall_ms=0, request=None, caller=MEMBER)
        ended = machine.apply(close, len(history) + 1, 1)

        gone = {event.path for event in ended.events}
        assert gone >= expected
        if not machine.access.is_on:  # or who has lost the right to what would now be granted
            assert gone == expected
        assert machine.zxid == zxid + 1


@about(Create_changed=10, Enter_changed=10, Delete_changed=3)
@thorough
@given(histories)
def test_law_8_sequence_numbers_never_repeat(history: list[Command]) -> None:
    """No two sequential znodes of one parent path ever get the same number."""
    machine = Observed(SMALL_LIMITS)
    seen: set[tuple[str, int]] = set()
    for index, command in enumerate(history, 1):
        if index % 7 == 0:
            restored = Observed(SMALL_LIMITS)
            restored.restore(machine.snapshot())
            machine = restored
        outcome = machine.apply(command, index, 1)
        if outcome.is_repeat or outcome.result is None:
            continue
        for created in created_by(outcome):
            parent, name = split(created[0])
            number = (parent, int(name[-10:]))
            assert number not in seen
            seen.add(number)


def created_by(outcome: Outcome) -> list[tuple[str, Stat]]:
    """Return the sequential znodes that the outcome tells of."""
    result = outcome.result
    results: tuple[object, ...] = (result,)
    if isinstance(result, MultiDone | GuardedDone):
        results = result.results
    elif isinstance(result, Entered):
        results = result.contenders
    return [
        (each.path, each.stat)
        for each in results
        if isinstance(each, Created) and CreateMode(each.stat.mode).is_sequential
    ]


def is_of_a_stranger(outcome: Outcome) -> bool:
    """Whether its caller may not use the client id (any more): then nothing is remembered of it,
    and what its owner was answered stays."""
    refusal = outcome.refusal
    return refusal is not None and (
        refusal.code in ("AuthFailed", "RequestForgotten")
        or "it is that of another identity" in refusal.message
    )


@about(repeats=60, changed=60)
@thorough
@given(histories)
def test_law_9_a_repeated_request_gets_its_first_outcome(history: list[Command]) -> None:
    """Repeating a request at once, or after other commands, changes nothing and tells the same."""
    machine = Observed(SMALL_LIMITS)
    first: dict[tuple[str, int], Outcome] = {}
    for index, command in enumerate(history, 1):
        outcome = machine.apply(command, index, 1)
        if command.request is None:
            continue
        key = (command.request.client_id, command.request.number)
        if outcome.is_repeat and key in first:
            abandoned = outcome.refusal is not None and outcome.refusal.fields.get("is_abandoned")
            assert abandoned or changed(outcome, is_repeat=False) == first[key]
        elif not outcome.is_repeat and not is_of_a_stranger(outcome):
            first[key] = changed(outcome, events=(), granted=())
        before = truth(machine)

        again = machine.apply(command, index, 1)

        is_closing = isinstance(command.operation, CloseSession | ExpireSession)
        if not is_closing:
            assert again.result == outcome.result
            assert refusal_code(again) == refusal_code(outcome)
        assert again.events == again.granted == ()
        assert truth(machine) == before


def refusal_code(outcome: Outcome) -> str | None:
    return None if outcome.refusal is None else outcome.refusal.code


@about(changed=120, refused=120)
@thorough
@given(histories, st.integers(0, 2**40))
def test_law_10_no_clock_decides(history: list[Command], wall_ms: int) -> None:
    """With any wall times the same things happen; only ctime, mtime and opened_ms differ."""
    timeless = Observed(SMALL_LIMITS)
    timed = Observed(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        expected = timed.apply(command, index, 1)

        found = timeless.apply(changed(command, wall_ms=wall_ms), index, 1)

        assert found.events == expected.events
        assert found.granted == expected.granted
        assert found.zxid == expected.zxid
        assert refusal_code(found) == refusal_code(expected)


def indexes(machine: StateMachine) -> dict[str, object]:
    """Read everything that is kept beside the znodes, for comparison with a rebuilt one."""
    table = machine._locks
    return {
        "ephemerals": {
            each.session_id: machine.ephemerals_of(each.session_id) for each in machine.sessions()
        },
        "idle": sorted(filter(None, map(machine.idle, machine.idle_paths()))),
        "data_bytes": machine.data_bytes,
        "state_bytes": machine.state_bytes,
        "count": machine.znode_count,
        "queues": {
            directory: (table.queues[directory].contenders, table.queues[directory].held,
                        table.queues[directory].closings)
            for directory in sorted(table.queues)
        },
        "records": [machine.locks.record(path) for path in sorted(table.contenders)],
        "owners": {key: sorted(paths) for key, paths in table.owners.items()},
        "closings": sorted(table.closings.values()),
    }  # fmt: skip


def sorted_ephemerals(found: dict[str, object]) -> dict[str, object]:
    """Return the indexes with the ephemerals of each session in the order of their paths."""
    owned = found["ephemerals"]
    assert isinstance(owned, dict)
    return {**found, "ephemerals": {each: sorted(paths) for each, paths in owned.items()}}


@about(changed=60, rolled_back=1)
@thorough
@given(histories)
def test_derived_indexes_equal_rebuilt_ones(history: list[Command]) -> None:
    """Ephemerals, idle znodes, sorted names and byte counts are what the znodes alone give."""
    machine = machine_after(history)
    restored = Observed(SMALL_LIMITS)

    restored.restore(machine.snapshot())

    assert indexes(restored) == indexes(machine)
    assert all_znodes(restored) == all_znodes(machine)
    for path in all_znodes(machine):
        names = machine.children(path)
        assert names == sorted(names or [])


@about(changed=60, refused=60)
@thorough
@given(histories)
def test_limits_hold(history: list[Command]) -> None:
    """Whatever is asked, nothing grows beyond its limit."""
    machine = Observed(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        machine.apply(command, index, 1)

        assert machine.znode_count <= SMALL_LIMITS.znodes_max
        closed = sum(path.rpartition("/")[2].startswith("delay-") for path in all_znodes(machine))
        assert machine.state_bytes <= SMALL_LIMITS.state_bytes_max + closed * DELAY_BYTES
        assert len(machine.locks.history(GrantQuery())) <= (
            SMALL_LIMITS.grant_history_max + SMALL_LIMITS.znodes_max
        )
        assert machine.session_count <= SMALL_LIMITS.sessions_max
        assert len(machine._requests) <= SMALL_LIMITS.clients_max + machine.session_count
        for path, (value, stat) in all_znodes(machine).items():
            assert len(value) <= SMALL_LIMITS.data_bytes_max
            assert len(path.encode()) <= SMALL_LIMITS.path_bytes_max
            assert stat.num_children <= SMALL_LIMITS.children_max


@thorough
@given(histories, st.integers(1, 8))
def test_an_abandoned_request_never_runs_afterwards(history: list[Command], number: int) -> None:
    """After Abandon the request is refused, or was known to have run and left nothing."""
    machine = machine_after(history)
    index = len(history) + 1
    abandon = Command(Abandon("c1", number=number, floor_index=1_000), 0)
    late = Create("/late", data=b"", mode=CreateMode.EPHEMERAL, session_id="s9")
    abandoned = machine.apply(abandon, index, 1)
    assume(abandoned.refusal is None)
    before = truth(machine)

    outcome = machine.apply(
        Command(late, wall_ms=0, request=RequestId("c1", number=number, floor_index=1_000)),
        index,
        1,
    )

    assert outcome.is_repeat
    assert truth(machine) == before


def test_a_tree_is_refused_when_its_znodes_do_not_fit() -> None:
    """Znodes without their parent, or counting children they do not have, are no tree."""
    tree = Tree()
    root = tree.find("/")
    assert root is not None
    orphan = [("/", root), ("/a/b", root)]
    miscounted = [("/", with_child(root, 1, 1, 0))]
    uncounted = [("/", root), ("/a", root)]

    for znodes in (orphan, miscounted, uncounted, []):
        try:
            Tree.of(LargeMap(znodes), 0)
        except ValueError:
            continue
        raise AssertionError(f"taken: {znodes}")
