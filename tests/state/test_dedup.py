"""The exactly-once table beyond the traces: sizes, captures, clients that come and go."""

from __future__ import annotations

import pytest

from coordinator.errors import OutcomeUnknownError, RequestForgottenError
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    Check,
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    Enter,
    Guarded,
    Kind,
    Multi,
    OpenSession,
    Operation,
    Read,
    RequestId,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Created, Outcome


class Member:
    """A machine that is given one command for each entry."""

    def __init__(self, **limits: int) -> None:
        self.machine = StateMachine(MachineLimits(**limits))
        self.index = 0

    def apply(
        self, operation: Operation, client_id: str = "", number: int = 1, floor_index: int = 0
    ) -> Outcome:
        self.index += 1
        request = (
            RequestId(client_id, number=number, floor_index=floor_index) if client_id else None
        )
        return self.machine.apply(Command(operation, wall_ms=0, request=request), self.index, 1)


def code_of(outcome: Outcome) -> str:
    return "" if outcome.refusal is None else outcome.refusal.code


def test_a_lost_reply_of_acquire_gets_the_same_grant() -> None:
    """The retry of an acquire has the same path, token and place; there is one contender."""
    member = Member()
    member.apply(OpenSession("s1", 5000))
    acquire = Create(
        "/locks/a/lock-",
        data=b"",
        mode=CreateMode.EPHEMERAL_SEQUENTIAL,
        session_id="s1",
        ttl_ms=None,
        parents=CreateMode.CONTAINER,
    )

    first = member.apply(acquire, "c1", 7)
    retries = [member.apply(acquire, "c1", 7) for _ in range(3)]

    assert isinstance(first.result, Created)
    assert [each.result for each in retries] == [first.result] * 3
    assert all(each.is_repeat and not each.events for each in retries)
    assert member.machine.children("/locks/a") == ["lock-0000000000"]


def test_forgotten_is_indefinite() -> None:
    """What the table cannot answer is said to be unknown, never failed."""
    member = Member(request_window=1)
    member.apply(Create("/a"), "c1", 1)
    member.apply(Create("/b"), "c1", 2)

    outcome = member.apply(Create("/a"), "c1", 1)

    assert outcome.refusal is not None
    error = outcome.refusal.to_error()
    assert isinstance(error, RequestForgottenError)
    assert isinstance(error, OutcomeUnknownError)
    assert error.definite is False


def test_clients_beyond_the_limit_are_forgotten_by_last_use() -> None:
    """The least recently used client goes first; using one, also by a repeat, keeps it."""
    member = Member(clients_max=3)
    for client_id in ("c1", "c2", "c3"):
        member.apply(Create(f"/{client_id}"), client_id)
    member.apply(Create("/c1"), "c1")
    member.apply(Create("/c4"), "c4")

    answers = {each: code_of(member.apply(Create("/x"), each)) for each in ("c1", "c3", "c4", "c2")}

    assert answers == {"c1": "", "c3": "", "c4": "", "c2": "RequestForgotten"}
    assert len(member.machine._requests) == 3


def test_a_new_client_is_served_when_it_is_surely_new() -> None:
    """A floor index at or behind every forgotten client's last use proves a client new."""
    member = Member(clients_max=1)
    member.apply(Create("/a"), "c1")
    member.apply(Create("/b"), "c2")
    forgotten_at = 1

    for floor_index, expected in ((0, "RequestForgotten"), (forgotten_at, "")):
        outcome = member.apply(Create(f"/n{floor_index}"), "new", 1, floor_index)

        assert code_of(outcome) == expected


def test_bound_clients_do_not_count_and_end_with_their_session() -> None:
    """Clients of open sessions are remembered beside the others, as long as their session."""
    member = Member(clients_max=1)
    for session_id in ("s1", "s2", "s3"):
        member.apply(OpenSession(session_id, 5000))
        member.apply(Create(f"/{session_id}"), session_id)
    member.apply(Create("/c1"), "c1")

    assert len(member.machine._requests) == 4
    assert all(member.apply(Create("/x"), each).is_repeat for each in ("s1", "s2", "s3", "c1"))

    member.apply(CloseSession("s1"))

    assert code_of(member.apply(Create("/y"), "s1", 2)) == "SessionExpired"
    assert len(member.machine._requests) == 3


def test_sessions_ended_long_ago_are_forgotten_honestly() -> None:
    """A client of a session that ended beyond memory is not taken for a new one."""
    member = Member(clients_max=1)
    for session_id in ("s1", "s2"):
        member.apply(OpenSession(session_id, 5000))
        member.apply(Create(f"/{session_id}"), session_id)
        member.apply(CloseSession(session_id))

    assert code_of(member.apply(Create("/x"), "s2", 2)) == "SessionExpired"
    assert code_of(member.apply(Create("/x"), "s1", 2)) == "RequestForgotten"
    assert code_of(member.apply(Create("/s1"), "s1", 1)) == "RequestForgotten"


def test_remembered_bytes_are_bounded_by_what_outcomes_hold() -> None:
    """Large reads in outcomes push out other clients, and never more than the limit stays."""
    member = Member(remembered_bytes_max=20_000, data_bytes_max=4_000)
    member.apply(Create("/big", b"x" * 4_000))
    read = Guarded((), (Read("/big"),))
    for number in range(1, 40):
        outcome = member.apply(read, f"c{number % 8}", number, 1_000_000)

        assert outcome.refusal is None
        assert member.machine.remembered_bytes <= 20_000

    assert member.apply(read, "c7", 39, 1_000_000).is_repeat


def test_one_client_may_go_beyond_the_bytes_but_only_alone() -> None:
    """The client being answered keeps its window even when it alone is over the limit."""
    member = Member(remembered_bytes_max=2_000, request_window=5)
    member.apply(OpenSession("s1", 5000))
    for number in range(1, 11):
        member.apply(Create(f"/n{number}"), "s1", number)
    for number in range(6, 11):
        assert member.apply(Create("/x"), "s1", number).is_repeat

    member.apply(Create("/other"), "c1")

    assert code_of(member.apply(Create("/x"), "s1", 10)) == "RequestForgotten"
    assert member.apply(Create("/more"), "s1", 11).refusal is None


def test_the_window_slides_over_gaps() -> None:
    """Numbers may jump far ahead at no cost; everything below the window is then unknown."""
    member = Member(request_window=4)
    for number in (1, 2, 3, 2**40, 2**40 - 3, 2**63):
        assert member.apply(Create(f"/n{number}"), "c1", number).refusal is None

    for number in (1, 2**40, 2**63 - 4):
        assert code_of(member.apply(Create("/x"), "c1", number)) == "RequestForgotten"
    assert member.apply(Create("/x"), "c1", 2**63).is_repeat
    assert member.apply(Create("/late"), "c1", 2**63 - 3).refusal is None


def test_a_client_keeps_its_memory_when_a_session_of_its_id_opens() -> None:
    """What it did before is not run again because it is bound to a session now."""
    member = Member()
    member.apply(Create("/before"), "t", 1)
    member.apply(OpenSession("t", 5_000))

    again = member.apply(Create("/before"), "t", 1)

    assert again.is_repeat
    assert code_of(again) == ""
    member.apply(CloseSession("t"))
    assert member.machine.remembered_bytes == 0


def test_nothing_is_remembered_at_first() -> None:
    """The estimate begins at nothing, and comes back to it."""
    member = Member(clients_max=1)
    assert member.machine.remembered_bytes == 0

    member.apply(OpenSession("s", 5_000))
    member.apply(Create("/a"), "s", 1)
    assert member.machine.remembered_bytes > 0
    member.apply(CloseSession("s"), "s", 2)

    assert member.machine.remembered_bytes == 0


PLAIN = 768
"""What one outcome without data counts, by the fixed estimate: 512 and 256 for its result."""


def remembered(member: Member, operation: Operation) -> int:
    """Return what the outcome of one more operation adds to what is remembered."""
    before = member.machine.remembered_bytes
    member.apply(operation, "sized", member.index + 1)
    return member.machine.remembered_bytes - before


def test_the_estimate_is_the_same_everywhere() -> None:
    """It decides what is forgotten, so it is part of the rules: a refusal, one result, several."""
    member = Member()
    member.apply(Create("/a", b"12345"))

    assert remembered(member, Delete("/none")) == PLAIN
    assert remembered(member, Create("/b")) == PLAIN
    assert remembered(member, Multi((Read("/a"), Check("/b")))) == PLAIN + 256 + 4 + 5
    assert remembered(member, Guarded((), (Read("/a"),))) == PLAIN + 2 + 5
    member.apply(OpenSession("s", 5_000))
    enter = Enter(
        ("/locks/a", "/locks/b"), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s", data=b""
    )
    assert remembered(member, enter) == PLAIN + 256 + 2 * len("/locks/a/lock-0000000000")


@pytest.mark.parametrize(("bytes_max", "is_known"), [(2 * PLAIN, True), (2 * PLAIN - 1, False)])
def test_free_clients_are_forgotten_beyond_the_last_byte(bytes_max: int, is_known: bool) -> None:
    """What fits exactly stays; one byte less and the least recently used client goes."""
    member = Member(remembered_bytes_max=bytes_max)
    member.apply(Create("/a"), "c1")
    member.apply(Create("/b"), "c2")

    assert member.machine.remembered_bytes == (2 if is_known else 1) * PLAIN
    assert member.apply(Create("/a"), "c1").is_repeat == is_known


@pytest.mark.parametrize(("bytes_max", "is_known"), [(2 * PLAIN, True), (2 * PLAIN - 1, False)])
def test_bound_clients_give_up_outcomes_beyond_the_last_byte(
    bytes_max: int, is_known: bool
) -> None:
    """The client stays, and is told honestly that its outcome is forgotten."""
    member = Member(remembered_bytes_max=bytes_max)
    for session_id in ("s1", "s2"):
        member.apply(OpenSession(session_id, 5_000))
    member.apply(Create("/a"), "s1")
    member.apply(Create("/b"), "s2")

    assert member.machine.remembered_bytes == (2 if is_known else 1) * PLAIN
    again = member.apply(Create("/a"), "s1")
    assert code_of(again) == ("" if is_known else "RequestForgotten")


def test_a_session_takes_the_memory_of_its_name_with_it() -> None:
    """Also what a client of that id did before, and nothing since."""
    member = Member()
    member.apply(Create("/before"), "t")
    member.apply(OpenSession("t", 5_000))
    member.apply(CloseSession("t"))

    assert member.machine.remembered_bytes == 0
    assert code_of(member.apply(Create("/before"), "t")) == "SessionExpired"
