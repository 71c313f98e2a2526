"""Whose sessions count against which bound: of an address, of a client id, and of all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.model.access import NOBODY, Caller
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import CloseSession, Command, OpenSession, Operation
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome

TWO_EACH = MachineLimits(sessions_per_address_max=2, sessions_per_client_max=2)


class Room:
    """A machine, and one that is restored from a snapshot before each command."""

    def __init__(self, limits: MachineLimits = TWO_EACH) -> None:
        self.limits = limits
        self.machine, self.restored = StateMachine(limits), StateMachine(limits)

    def do(self, operation: Operation, caller: Caller = NOBODY) -> Outcome:
        index = self.machine.applied_index + 1
        again = StateMachine(self.limits)
        again.restore(self.restored.snapshot())
        self.restored = again
        command = Command(operation, 0, caller=caller)
        outcome = self.machine.apply(command, index, 1)
        assert self.restored.apply(command, index, 1) == outcome
        assert self.restored.digest() == self.machine.digest()
        return outcome

    def refusal(self, session_id: str, caller: Caller = NOBODY, **origin: str) -> str:
        """Open a session; return the limit or the error that refuses it, "" when it is open."""
        before = self.machine.session_count
        refusal = self.do(OpenSession(session_id, 10_000, **origin), caller).refusal
        assert self.machine.session_count == before + (refusal is None)
        if refusal is None:
            return ""
        assert [each.session_id for each in self.machine.sessions()].count(session_id) <= 1
        return str(refusal.fields.get("limit", refusal.code))


@pytest.mark.parametrize("named", ["address", "client_id"])
@pytest.mark.parametrize("bad", ["x" * 65, "a b", "tab\t", "\x7f", "é", "10.0.0.7\n"])
def test_an_origin_that_cannot_be_is_refused(named: str, bad: str) -> None:
    """It would be counted, kept and told; nothing is opened, and the id can be used."""
    room = Room()

    assert room.refusal("s1", **{named: bad}) == "BadArguments"
    assert room.refusal("s1", **{named: "x" * 64}) == ""


@pytest.mark.parametrize("named", ["address", "client_id"])
def test_each_origin_has_a_share_of_its_own(named: str) -> None:
    """Two of one; the third is refused by the limit's name, and another one goes on."""
    room = Room()

    found = [room.refusal(f"s{number}", **{named: "one"}) for number in range(3)]
    others = [room.refusal(f"t{number}", **{named: "two"}) for number in range(3)]

    limit = {"address": "sessions_per_address_max", "client_id": "sessions_per_client_max"}[named]
    assert found == others == ["", "", limit]


@pytest.mark.parametrize("named", ["address", "client_id"])
def test_who_names_no_origin_counts_against_nobody(named: str) -> None:
    """Any number of them, also when the other of the two is named."""
    other = {"address": "client_id", "client_id": "address"}[named]
    room = Room()

    found = [room.refusal(f"s{number}") for number in range(5)]
    found += [room.refusal(f"t{number}", **{other: f"one{number}"}) for number in range(5)]

    assert found == [""] * 10


def test_a_bound_of_one_leaves_who_names_none_alone() -> None:
    """However small the shares are: who says nothing has none to use up."""
    room = Room(replace(TWO_EACH, sessions_per_address_max=1, sessions_per_client_max=1))

    assert [room.refusal(f"s{number}") for number in range(3)] == ["", "", ""]
    assert room.refusal("t1", address="one", client_id="c1") == ""
    assert room.refusal("t2", address="one", client_id="c2") == "sessions_per_address_max"
    assert room.refusal("t2", address="two", client_id="c1") == "sessions_per_client_max"
    assert room.refusal("t2", address="two", client_id="c2") == ""


@pytest.mark.parametrize("named", ["address", "client_id"])
def test_an_ended_session_gives_its_share_back_once(named: str) -> None:
    """As often as one ends, one more is opened; a second end of the same one gives nothing."""
    room = Room()
    for number in range(4):
        opened = [room.refusal(f"s{number}{letter}", **{named: "one"}) for letter in "abc"]
        assert [bool(each) for each in opened] == [False, False, True]
        for letter in "aab":
            room.do(CloseSession(f"s{number}{letter}"))

    assert room.machine.session_count == 0


def test_an_identity_has_a_share_whatever_its_addresses() -> None:
    """Who proves nobody counts against none; and an end gives the share back once."""
    room = Room(replace(TWO_EACH, sessions_per_identity_max=2))
    pay, other = Caller("pay"), Caller("other")

    found = [room.refusal(f"s{number}", pay, address=f"a{number}") for number in range(3)]
    others = [room.refusal(f"t{number}") for number in range(3)]
    others += [room.refusal("o1", other), room.refusal("o2", other)]
    for _ in range(2):
        room.do(CloseSession("s1"), pay)

    assert found == ["", "", "sessions_per_identity_max"]
    assert others == [""] * 5
    assert room.refusal("s3", pay) == ""
    assert room.refusal("s4", pay) == "sessions_per_identity_max"


def test_an_operator_is_bounded_by_all_sessions_alone() -> None:
    """Neither by a share nor by the reserve; what it opens counts, for others and for all."""
    room = Room(replace(TWO_EACH, sessions_max=6, ordinary_percent_max=50))
    origin = {"address": "one", "client_id": "c1"}

    operators = [room.refusal(f"o{number}", by="ann", **origin) for number in range(3)]
    ordinary = room.refusal("s1")
    more = [room.refusal(f"p{number}", by="ann", **origin) for number in range(4)]
    room.do(CloseSession("p0"))
    reserve = room.refusal("s1", address="two")
    for session_id in ("p1", "p2", "o0"):
        room.do(CloseSession(session_id))

    assert operators == ["", "", ""]
    assert ordinary == "sessions_max", "half are kept for operators, whoever uses the others"
    assert more == ["", "", "", "sessions_max"]
    assert reserve == "sessions_max"
    assert room.refusal("s1", **origin) == "sessions_per_address_max"
    assert room.refusal("s1", address="two") == ""


@pytest.mark.parametrize(("percent", "ordinary"), [(95, 19), (100, 20), (50, 10), (94, 19), (1, 1)])
def test_the_reserve_is_what_the_percentage_leaves(percent: int, ordinary: int) -> None:
    """Of twenty: rounded for those who are no operators, so one of them always finds room."""
    room = Room(MachineLimits(sessions_max=20, ordinary_percent_max=percent))

    opened = [room.refusal(f"s{number}") for number in range(20)].count("")
    operators = [room.refusal(f"o{number}", by="ann") for number in range(20)].count("")

    assert (opened, operators) == (ordinary, 20 - ordinary)


def test_the_largest_address_is_known_as_sessions_come_and_go() -> None:
    """Also by a member that was restored; nobody is the largest where none is named."""
    room = Room(MachineLimits())

    def largest() -> tuple[str, int]:
        found = room.machine.largest_address()
        again = StateMachine()
        again.restore(room.machine.snapshot())
        assert again.largest_address() == found
        return found

    room.refusal("s0")
    assert largest() == ("", 0)
    for number in range(3):
        room.refusal(f"s{number + 1}", address="one" if number else "two")
    assert largest() == ("one", 2)
    for session_id in ("s2", "s3"):
        room.do(CloseSession(session_id))
    assert largest() == ("two", 1)
    room.do(CloseSession("s1"))
    assert largest() == ("", 0)
