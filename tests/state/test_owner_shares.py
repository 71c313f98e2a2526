"""Whose remembered requests go first: one identity never pushes out those of another."""

from __future__ import annotations

import random

import pytest

from coordinator.model.access import NOBODY, Caller, Rule, Verb
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    AddToken,
    CloseSession,
    Command,
    Create,
    Guarded,
    InitAccess,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    Read,
    RequestId,
    SetAccess,
    SetData,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from tests.amount import drawn

OPS = Caller("ops", credential="token:opstoken1", since=1)
DIGEST = b"d" * 32
READ = Guarded((), (Read("/big"),))
FAR = 1_000_000
"""A floor index with which every client is new."""


class Shared:
    """A machine with access rights, and identities that may write everywhere."""

    def __init__(self, **limits: int) -> None:
        self.machine = StateMachine(MachineLimits(remembered_percent_max=10, **limits))
        self.index = 0
        self.do(InitAccess("ops", token_id="opstoken1", digest=DIGEST), NOBODY)
        self.do(PutRole("all", (Rule("/", (Verb.ADMIN,)),)))
        self.app, self.pay, self.web = [self.identity(name) for name in ("app", "pay", "web")]
        self.do(Create("/big", b"x" * 4_000))

    def identity(self, name: str) -> Caller:
        self.do(PutIdentity(name, ("all",))).unwrap()
        self.do(AddToken(name, token_id=f"{name}token001", digest=DIGEST)).unwrap()
        token = self.machine.access.token(f"{name}token001")
        assert token is not None
        return token.caller

    def do(
        self, operation: Operation, caller: Caller = OPS, client_id: str = "", number: int = 1
    ) -> Outcome:
        self.index += 1
        request = RequestId(client_id, number=number, floor_index=FAR) if client_id else None
        command = Command(operation, wall_ms=0, request=request, caller=caller)
        return self.machine.apply(command, self.index, 1)

    def session(self, session_id: str, caller: Caller) -> None:
        """Open one whose id is that of a client, too."""
        self.do(OpenSession(session_id, 10_000), caller).unwrap()

    def is_known(self, client_id: str, caller: Caller) -> bool:
        """Whether the first request of a client would be answered again."""
        return (
            self.machine._requests.has_seen(RequestId(client_id, 1))
            and self.do(SetData("/big", b""), caller, client_id).is_repeat
        )


def test_one_identity_with_very_many_clients_loses_its_own() -> None:
    """Its oldest; who wrote once, long before, still gets the first answer again."""
    shared = Shared(clients_max=20)
    for each in range(2):
        shared.do(SetData("/big", b""), shared.pay, f"pay{each}")
    for each in range(100):
        shared.do(SetData("/big", b""), shared.app, f"app{each}")

    assert len(shared.machine._requests) == 20
    assert all(shared.is_known(f"pay{each}", shared.pay) for each in range(2))
    assert [shared.is_known(f"app{each}", shared.app) for each in (81, 82)] == [False, True]


@pytest.mark.parametrize("is_bound", [False, True])
def test_one_identity_with_very_large_outcomes_loses_its_own(is_bound: bool) -> None:
    """Of clients with sessions and of those without; the others' sessions keep theirs, too."""
    shared = Shared(remembered_bytes_max=60_000)
    shared.session("pays", shared.pay)
    for client_id in ("pay", "pays"):
        shared.do(READ, shared.pay, client_id)
    for each in range(40):
        if is_bound:
            shared.session(f"app{each}", shared.app)
        assert shared.do(READ, shared.app, f"app{each}").refusal is None
        assert shared.machine.remembered_bytes <= 60_000

    assert shared.machine.remembered_bytes > 50_000
    assert shared.is_known("pay", shared.pay)
    assert shared.is_known("pays", shared.pay)
    assert shared.is_known("app39", shared.app)
    assert not shared.is_known("app10", shared.app)


def test_one_client_with_very_large_outcomes_loses_its_own() -> None:
    """Of the client that is answered only its last outcome stays for sure."""
    shared = Shared(remembered_bytes_max=60_000)
    for each in range(3):
        shared.do(READ, shared.pay, f"pay{each}")
    for number in range(1, 41):
        assert shared.do(READ, shared.app, "app", number).refusal is None
        assert shared.machine.remembered_bytes <= 60_000

    assert all(shared.is_known(f"pay{each}", shared.pay) for each in range(3))
    assert shared.do(SetData("/big", b""), shared.app, "app", 40).is_repeat


@pytest.mark.parametrize("by", ["number", "bytes"])
def test_what_belongs_to_nobody_goes_first_in_its_turn(by: str) -> None:
    """A cluster whose rights were off: what those clients left holds nobody to its share."""
    limits = {"clients_max": 20} if by == "number" else {"remembered_bytes_max": 60_000}
    shared = Shared(**limits)
    shared.do(SetAccess(is_on=False))
    for each in range(20):
        shared.do(READ, NOBODY, f"anybody{each}")
    shared.do(SetAccess(is_on=True))
    for each in range(10):
        shared.do(READ, shared.app, f"app{each}")

    assert all(shared.is_known(f"app{each}", shared.app) for each in range(10))


def test_who_has_most_of_several_with_more_than_their_share_goes_first() -> None:
    """Until they are alike; who has no more than its share loses nothing."""
    shared = Shared(clients_max=20)
    shared.do(SetData("/big", b""), shared.web, "web0")
    for name, caller, count in (("app", shared.app, 19), ("pay", shared.pay, 50)):
        for each in range(count):
            shared.do(SetData("/big", b""), caller, f"{name}{each}")

    known = [shared.is_known(f"app{each}", shared.app) for each in range(19)]

    assert sum(known) in (9, 10)
    assert known == sorted(known), "its oldest went first"
    assert shared.is_known("web0", shared.web)


def test_nobody_loses_more_than_before_when_all_have_their_share() -> None:
    """Then the oldest of all goes, whoever has it."""
    shared = Shared(clients_max=40)
    callers = [shared.identity(f"team{each}") for each in range(14)]
    for each in range(70):
        shared.do(SetData("/big", b""), callers[each % 14], f"c{each}")

    assert [shared.is_known(f"c{each}", callers[each % 14]) for each in (29, 30)] == [False, True]


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(drawn(8)))
def test_a_restored_state_lets_go_of_the_same(seed: int) -> None:
    """What follows from the table is the same on a member that has read a snapshot."""
    chance = random.Random(seed)
    straight = Shared(clients_max=8, remembered_bytes_max=40_000)
    restored = Shared(clients_max=8, remembered_bytes_max=40_000)
    both = (straight, restored)
    callers = (straight.app, straight.pay, NOBODY)
    for step in range(400):
        number = chance.randrange(24)
        caller, client_id = callers[number % 3], f"c{number}"
        operation: Operation = chance.choice((READ, SetData("/big", b"x" * 4_000)))
        request: tuple[str, int] = (client_id, step)
        kind = chance.random()
        if kind < 0.1:
            operation, request = OpenSession(client_id, 10_000), ("", 1)
        elif kind < 0.15:
            operation, request = CloseSession(client_id), ("", 1)
        outcomes = [each.do(operation, caller, *request) for each in both]

        assert outcomes[0] == outcomes[1]
        if chance.random() < 0.05:
            restored.machine.restore(list(restored.machine.snapshot()))
        assert restored.machine.digest() == straight.machine.digest()
