"""A request number that was used for another operation is refused, whichever two they are."""

from __future__ import annotations

from typing import get_args

import pytest

from coordinator.errors import BadArgumentsError
from coordinator.model.access import Rule, Verb
from coordinator.state.access.guard import BY_MEMBERS
from coordinator.state.access.operations import Change
from coordinator.state.commands import (
    Abandon,
    AddToken,
    Check,
    CloseSession,
    Create,
    CreateMode,
    Delete,
    Downgrade,
    DropIdentity,
    DropRole,
    DropToken,
    Enter,
    ExtendHold,
    Guarded,
    InitAccess,
    Kind,
    Multi,
    Note,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    Read,
    Release,
    RenewCredential,
    Resize,
    Revoke,
    SetAccess,
    SetData,
    SetLimits,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import (
    Abandoned,
    AccessChanged,
    Checked,
    Created,
    CredentialRenewed,
    DataSet,
    Deleted,
    Downgraded,
    Entered,
    GuardedDone,
    HoldExtended,
    LimitsSet,
    MultiDone,
    Noted,
    Outcome,
    ReadDone,
    Refusal,
    Released,
    Resized,
    Result,
    Revoked,
    SessionEnded,
    SessionOpened,
)
from coordinator.state.repeats import check_answers

STAT = StateMachine().stat("/")
assert STAT is not None
L, M = "/locks/a/lock-0000000001", "/locks/b/lock-0000000001"
SEQUENTIAL = CreateMode.PERSISTENT_SEQUENTIAL
EXCLUSIVE = Kind.EXCLUSIVE


def entered(*paths: str, is_entered: bool = True) -> Entered:
    return Entered(tuple([Created(each, STAT) for each in paths]), True, 0, is_entered)


ROWS: tuple[tuple[Operation, Result, tuple[Operation, ...]], ...] = (
    (Create("/a"), Created("/a", STAT), (Create("/b"), SetData("/a", b""))),
    (
        Create("/a/n-", mode=SEQUENTIAL),
        Created("/a/n-0000000007", STAT),
        (Create("/b/n-", mode=SEQUENTIAL), Create("/a/n-")),
    ),
    (SetData("/a", b""), DataSet("/a", STAT), (SetData("/b", b""), Delete("/a"))),
    (Delete("/a"), Deleted("/a"), (Delete("/b"), Check("/a"))),
    (Check("/a"), Checked("/a"), (Check("/b"), Delete("/a"))),
    (
        Multi((Create("/a"), Delete("/b"))),
        MultiDone((Created("/a", STAT), Deleted("/b"))),
        (
            Multi((Create("/a"),)),
            Multi((Create("/a"), Delete("/c"))),
            Multi((Delete("/b"), Create("/a"))),
            Multi((Create("/a"), Delete("/b"), Check("/b"))),
        ),
    ),
    (
        Guarded((), (Create("/a"),), (Read("/b"),)),
        GuardedDone(False, (ReadDone("/b", b"", STAT),)),
        (
            Guarded((), (Create("/a"),), (Read("/c"),)),
            Guarded((), (Read("/b"),), (Create("/a"),)),
            Multi((Create("/a"),)),
        ),
    ),
    (OpenSession("s1", 10_000), SessionOpened("s2", 10_000), (CloseSession("s2"),)),
    (CloseSession("s1"), SessionEnded("s1", True), (CloseSession("s2"), RenewCredential("s1"))),
    (RenewCredential("s1"), CredentialRenewed("s1"), (RenewCredential("s2"), CloseSession("s1"))),
    (Release(L, 7), Released(L, 7), (Release(M, 7), Release(L, 8), Downgrade(L, 7))),
    (Abandon("c", 1), Abandoned(L), (Release(L, 7),)),
    (Downgrade(L, 7), Downgraded(L, 7), (Downgrade(M, 7), Downgrade(L, 8), Release(L, 7))),
    (Note(L, 7, b"n"), Noted(L, 7), (Note(M, 7, b"n"), Note(L, 8, b"n"), Downgrade(L, 7))),
    (
        ExtendHold(L, 7, 5, 0),
        HoldExtended(L, 7, 10, 1),
        (ExtendHold(M, 7, 5, 0), ExtendHold(L, 8, 5, 0), Note(L, 7, b"n")),
    ),
    (
        Revoke(L, 7, "ann", ""),
        Revoked(L, 7, (L,), True),
        (Revoke(M, 7, "ann", ""), Revoke(L, 8, "ann", ""), Release(L, 7)),
    ),
    (
        Resize("/locks/a", 2),
        Resized("/locks/a", 2, 1),
        (Resize("/locks/a", 3), Resize("/locks/b", 2), SetData("/locks/a", b"")),
    ),
    (
        Enter(("/locks/a", "/locks/b"), "lock-", EXCLUSIVE, "s1", b""),
        entered(L, M),
        (
            Enter(("/locks/a",), "lock-", EXCLUSIVE, "s1", b""),
            Enter(("/locks/a", "/locks/c"), "lock-", EXCLUSIVE, "s1", b""),
            Enter(("/locks/a", "/locks/b"), "read-", Kind.SHARED, "s1", b""),
        ),
    ),
    (
        Enter(("/locks/a",), "lock-", EXCLUSIVE, "s1", b"", is_try=True),
        entered(is_entered=False),
        (Enter(("/locks/a",), "lock-", EXCLUSIVE, "s1", b""),),
    ),
    (
        SetLimits((("znodes_max", 7), ("sessions_max", 9))),
        LimitsSet(3, (("znodes_max", 5, 7),)),
        (SetLimits((("znodes_max", 8),)), SetLimits((("sessions_max", 7),))),
    ),
    (
        SetLimits((("znodes_max", 7),)),
        LimitsSet(3, (("znodes_max", 5, 7),)),
        (SetLimits((("znodes_max", 5),)),),
    ),
    (InitAccess("a", "t", b""), AccessChanged("init a", 1, True), (InitAccess("b", "t", b""),)),
    (SetAccess(True), AccessChanged("set on", 1, True), (SetAccess(False),)),
    (
        PutRole("a", (Rule("/x", (Verb.READ,)),)),
        AccessChanged("put role a", 1, True),
        (PutRole("b", ()), DropRole("a"), PutIdentity("a", ())),
    ),
    (DropRole("a"), AccessChanged("drop role a", 1, True), (DropRole("b"), PutRole("a", ()))),
    (PutIdentity("a", ()), AccessChanged("put identity a", 1, True), (PutIdentity("b", ()),)),
    (DropIdentity("a"), AccessChanged("drop identity a", 1, True), (DropIdentity("b"),)),
    (AddToken("a", "t1", b""), AccessChanged("add token t1", 1, True), (AddToken("a", "t2", b""),)),
    (DropToken("t1"), AccessChanged("drop token t1", 1, True), (DropToken("t2"),)),
)


def test_every_operation_of_clients_has_a_row() -> None:
    """A new one that is compared with nothing would be answered by any other."""
    assert {type(asked) for asked, _, _ in ROWS} == set(get_args(Operation)) - BY_MEMBERS
    assert {type(asked) for asked, _, _ in ROWS} >= set(get_args(Change))


@pytest.mark.parametrize(("asked", "result", "others"), ROWS)
def test_an_outcome_answers_its_operation_and_no_other(
    asked: Operation, result: Result, others: tuple[Operation, ...]
) -> None:
    """Those of another kind, and those that differ in what they are about."""
    outcome = Outcome(9, result, is_repeat=True)

    check_answers(asked, outcome)
    for other in (*others, *[each for each, _, _ in ROWS if type(each) is not type(asked)]):
        with pytest.raises(BadArgumentsError, match=f"returned {type(result).__name__}; nothing"):
            check_answers(other, outcome)
        check_answers(other, outcome._replace(is_repeat=False))  # its own, whatever it is


def test_places_of_another_kind_are_of_another_attempt() -> None:
    """In any of the queues."""
    both = Enter(("/locks/a", "/locks/b"), "lock-", EXCLUSIVE, "s1", b"")
    mixed = Outcome(9, entered(L, "/locks/b/read-0000000001"), is_repeat=True)

    with pytest.raises(BadArgumentsError):
        check_answers(both, mixed)


def test_a_refusal_is_compared_with_nothing() -> None:
    """It says what was refused, and that nothing happened."""
    refusal = Refusal("NoNode", "set /b: there is no such znode")

    check_answers(SetData("/a", b""), Outcome(9, None, refusal, is_repeat=True))
