"""What holds of the counts by identity in every history: they are what a recount finds.

The recount goes through the znodes, contenders and sessions, and asks no index.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.model.access import ANONYMOUS, QUOTA_LIMITS, Rule, Verb
from coordinator.state.commands import Command, Multi, Operation, PutIdentity, PutRole
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from coordinator.state.tree import state_bytes_of
from tests.met import Met
from tests.state.access_history import NAMES, AccessHistory
from tests.state.drawn_history import Action
from tests.state.strategies import SMALL_LIMITS

thorough = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
FEW = range(12)
MANY = range(12, 250)


def recounted(machine: StateMachine) -> dict[str, Counter[str]]:
    """Return how much each identity has, by what it is of."""
    found: dict[str, Counter[str]] = {what: Counter() for what in QUOTA_LIMITS}
    for path, znode in machine._tree.capture_znodes()[0].items():
        if znode.identity:
            found["znodes"][znode.identity] += 1
            found["bytes"][znode.identity] += state_bytes_of(path, znode.data)
    for path in machine.locks.contender_paths():
        record = machine.locks.record(path)
        assert record is not None
        znode = machine._tree.find(path)
        assert znode is not None
        assert record.identity == znode.identity
        if record.identity and not record.is_holder:
            found["waiters"][record.identity] += 1
    for session in machine._sessions:
        if session.caller.identity:
            found["sessions"][session.caller.identity] += 1
    return found


def kept(machine: StateMachine) -> dict[str, dict[str, int]]:
    """Return the same from the indexes."""
    used = dict(machine._tree.uses())
    return {
        "sessions": dict(machine._sessions.counts_by_identity()),
        "znodes": {name: count for name, (count, _) in used.items()},
        "bytes": {name: size for name, (_, size) in used.items()},
        "waiters": dict(machine._locks.waiting),
    }


class QuotaHistory(AccessHistory):
    """Access rights that are on, and small quotas that come and go."""

    def weighted(self) -> list[tuple[Action, int]]:
        rest = [(each, weight) for each, weight in super().weighted() if weight < 30]
        return [*rest, (self._put_quota, 40), (self.open_session, 20)]

    def _put_quota(self) -> Operation:
        chance = self.chance
        changes: list[tuple[str, int | None]] = []
        for what in chance.sample(sorted(QUOTA_LIMITS), 2):
            value = chance.randrange(5) * (600 if what == "bytes" else 1)
            changes.append((what, value if chance.randrange(3) else None))
        return PutIdentity(
            chance.choice((*NAMES, ANONYMOUS)), roles=None, subjects=None, quota=tuple(changes)
        )

    def _put_role(self) -> Operation:
        """Take a right away more rarely: it is to be refused for its quota."""
        if self.chance.randrange(3):
            return PutRole(self.chance.choice(NAMES), (Rule("/", tuple(Verb)),))
        return super()._put_role()


def history(seed: int) -> list[Command]:
    found = QuotaHistory(random.Random(seed), SMALL_LIMITS)
    for _ in range(80):
        found.draw()
    return found.commands


def steps(seed: int) -> Iterator[tuple[StateMachine, Command, Outcome]]:
    """Yield the machine after each command; what is refused changes no count."""
    machine = StateMachine(SMALL_LIMITS)
    for index, command in enumerate(history(seed), 1):
        before = kept(machine)
        outcome = machine.apply(command, index, 1)
        if outcome.refusal is not None:
            assert kept(machine) == before
        yield machine, command, outcome


def _check(seeds: range, met: Met) -> None:
    for seed in seeds:
        for machine, command, outcome in steps(seed):
            assert kept(machine) == {k: dict(v) for k, v in recounted(machine).items()}
            if outcome.refusal is not None and "that it may have" in outcome.refusal.message:
                limit = str(outcome.refusal.fields["limit"])
                met[limit.removeprefix("quota.")] += 1
                met["of several"] += isinstance(command.operation, Multi)


def test_the_counts_are_those_of_the_state_after_every_command() -> None:
    """Whatever was created, written, granted, ended, revoked, refused or taken out."""
    _check(FEW, Met())


@pytest.mark.check
def test_the_counts_hold_in_many_histories_that_meet_every_quota() -> None:
    """A thousand commands under quotas that come and go, each of which refuses something."""
    met = Met()
    _check(MANY, met)
    met.check(sessions=5, znodes=20, bytes=10, waiters=3, of_several=3)


@thorough
@given(st.integers(0, 1_000), st.integers(0, 90))
def test_a_restored_state_has_the_same_counts(seed: int, cut: int) -> None:
    """And the same quotas; it decides alike from there on."""
    straight, restored = StateMachine(SMALL_LIMITS), StateMachine(SMALL_LIMITS)
    for index, command in enumerate(history(seed), 1):
        assert restored.apply(command, index, 1) == straight.apply(command, index, 1)
        if index == cut:
            fresh = StateMachine(SMALL_LIMITS)
            fresh.restore(restored.snapshot())
            restored = fresh
    assert kept(restored) == kept(straight)
    assert restored.digest() == straight.digest()
