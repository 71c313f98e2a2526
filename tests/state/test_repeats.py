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
    Put,
    PutIdentity,
    PutRole,
    Read,
    Release,
    RenewCredential,
    Resize,
    Revoke,
    SetAccess,
    SetData,
    SetLevel,
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
    LevelSet,
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
from tests.state.values import changed

STAT = StateMachine().stat("/")
assert STAT is not None
L, M = "/locks/a/lock-0000000001", "/locks/b/lock-0000000001"
SEQUENTIAL = CreateMode.PERSISTENT_SEQUENTIAL
EXCLUSIVE = Kind.EXCLUSIVE


def entered(*paths: str, is_entered: bool = True) -> Entered:
    return Entered(
        tuple([Created(each, STAT) for each in paths]),
        is_granted=True,
        position=0,
        is_entered=is_entered,
    )


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
        Put("/p", b"x"),
        GuardedDone(True, (Created("/p", STAT),)),
        (Put("/b", b"x"), Create("/p"), SetData("/p", b"x"), Guarded((), then=(Delete("/p"),))),
    ),
    (
        Put("/p", b"x"),
        GuardedDone(False, (DataSet("/p", STAT),)),
        (Put("/b", b"x"), SetData("/p", b"x"), Multi((SetData("/p", b"x"),))),
    ),
    (
        Guarded((), then=(Create("/a"),), otherwise=(Read("/b"),)),
        GuardedDone(False, (ReadDone("/b", data=b"", stat=STAT),)),
        (
            Guarded((), then=(Create("/a"),), otherwise=(Read("/c"),)),
            Guarded((), then=(Read("/b"),), otherwise=(Create("/a"),)),
            Multi((Create("/a"),)),
        ),
    ),
    (OpenSession("s1", 10_000), SessionOpened("s2", 10_000), (CloseSession("s2"),)),
    (CloseSession("s1"), SessionEnded("s1", True), (CloseSession("s2"), RenewCredential("s1"))),
    (RenewCredential("s1"), CredentialRenewed("s1"), (RenewCredential("s2"), CloseSession("s1"))),
    (Release(L, 7), Released(L, 7), (Release(M, 7), Release(L, 8), Downgrade(L, 7))),
    (Abandon("c", 1), Abandoned(L), (Release(L, 7),)),
    (Downgrade(L, 7), Downgraded(L, 7), (Downgrade(M, 7), Downgrade(L, 8), Release(L, 7))),
    (
        Note(L, czxid=7, note=b"n"),
        Noted(L, 7),
        (Note(M, czxid=7, note=b"n"), Note(L, czxid=8, note=b"n"), Downgrade(L, 7)),
    ),
    (
        ExtendHold(L, czxid=7, by_ms=5, to_ms=0),
        HoldExtended(L, czxid=7, max_hold_ms=10, extensions=1),
        (
            ExtendHold(M, czxid=7, by_ms=5, to_ms=0),
            ExtendHold(L, czxid=8, by_ms=5, to_ms=0),
            Note(L, czxid=7, note=b"n"),
        ),
    ),
    (
        Revoke(L, czxid=7, by="ann", reason=""),
        Revoked(L, czxid=7, paths=(L,), was_holder=True),
        (
            Revoke(M, czxid=7, by="ann", reason=""),
            Revoke(L, czxid=8, by="ann", reason=""),
            Release(L, 7),
        ),
    ),
    (
        Resize("/locks/a", 2),
        Resized("/locks/a", size=2, size_before=1),
        (Resize("/locks/a", 3), Resize("/locks/b", 2), SetData("/locks/a", b"")),
    ),
    (
        Enter(("/locks/a", "/locks/b"), prefix="lock-", kind=EXCLUSIVE, session_id="s1", data=b""),
        entered(L, M),
        (
            Enter(("/locks/a",), prefix="lock-", kind=EXCLUSIVE, session_id="s1", data=b""),
            Enter(
                ("/locks/a", "/locks/c"), prefix="lock-", kind=EXCLUSIVE, session_id="s1", data=b""
            ),
            Enter(
                ("/locks/a", "/locks/b"),
                prefix="read-",
                kind=Kind.SHARED,
                session_id="s1",
                data=b"",
            ),
        ),
    ),
    (
        Enter(
            ("/locks/a",), prefix="lock-", kind=EXCLUSIVE, session_id="s1", data=b"", is_try=True
        ),
        entered(is_entered=False),
        (Enter(("/locks/a",), prefix="lock-", kind=EXCLUSIVE, session_id="s1", data=b""),),
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
    (SetLevel(2, by="ops"), LevelSet(2, was_changed=True), (SetLevel(3),)),
    (
        InitAccess("a", token_id="t", digest=b""),
        AccessChanged("init a", revision=1, was_changed=True),
        (InitAccess("b", token_id="t", digest=b""),),
    ),
    (SetAccess(True), AccessChanged("set on", revision=1, was_changed=True), (SetAccess(False),)),
    (
        PutRole("a", (Rule("/x", (Verb.READ,)),)),
        AccessChanged("put role a", revision=1, was_changed=True),
        (PutRole("b", ()), DropRole("a"), PutIdentity("a", ())),
    ),
    (
        DropRole("a"),
        AccessChanged("drop role a", revision=1, was_changed=True),
        (DropRole("b"), PutRole("a", ())),
    ),
    (
        PutIdentity("a", ()),
        AccessChanged("put identity a", revision=1, was_changed=True),
        (PutIdentity("b", ()),),
    ),
    (
        DropIdentity("a"),
        AccessChanged("drop identity a", revision=1, was_changed=True),
        (DropIdentity("b"),),
    ),
    (
        AddToken("a", token_id="t1", digest=b""),
        AccessChanged("add token t1", revision=1, was_changed=True),
        (AddToken("a", token_id="t2", digest=b""),),
    ),
    (
        DropToken("t1"),
        AccessChanged("drop token t1", revision=1, was_changed=True),
        (DropToken("t2"),),
    ),
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
        check_answers(other, changed(outcome, is_repeat=False))  # its own, whatever it is


def test_places_of_another_kind_are_of_another_attempt() -> None:
    """In any of the queues."""
    both = Enter(
        ("/locks/a", "/locks/b"), prefix="lock-", kind=EXCLUSIVE, session_id="s1", data=b""
    )
    mixed = Outcome(9, entered(L, "/locks/b/read-0000000001"), is_repeat=True)

    with pytest.raises(BadArgumentsError):
        check_answers(both, mixed)


def test_a_refusal_is_compared_with_nothing() -> None:
    """It says what was refused, and that nothing happened."""
    refusal = Refusal("NoNode", "set /b: there is no such znode")

    check_answers(SetData("/a", b""), Outcome(zxid=9, result=None, refusal=refusal, is_repeat=True))
