"""Quotas by identity: what counts, what is refused, and what is kept for operators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.model.access import NO_QUOTA, NOBODY, Caller, Quota, Rule, Verb
from coordinator.model.limits import UNSET
from coordinator.state.commands import (
    AddToken,
    Command,
    Create,
    CreateMode,
    Delete,
    DropIdentity,
    Enter,
    ExpireSession,
    InitAccess,
    Kind,
    Multi,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    SetAccess,
    SetData,
    SetLimits,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, Refusal
from coordinator.state.tree import state_bytes_of

OPS = Caller("ops", credential="token:opstoken1", since=1)
LOCK = ("/locks/a",)
EVERYTHING = (Rule("/", (Verb.READ, Verb.WRITE, Verb.LOCK)), Rule("@sessions", (Verb.ADMIN,)))


class Room:
    """A machine with access on, an operator, and two identities that may write and lock."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.do(InitAccess("ops", token_id="opstoken1", digest=b"d" * 32), NOBODY)
        self.do(PutRole("all", EVERYTHING))
        self.web, self.pay = self.identity("web"), self.identity("pay")

    def identity(self, name: str) -> Caller:
        self.do(PutIdentity(name, ("all",))).unwrap()
        self.do(AddToken(name, token_id=f"{name}token001", digest=b"d" * 32)).unwrap()
        token = self.machine.access.token(f"{name}token001")
        assert token is not None
        return token.caller

    def do(self, operation: Operation, caller: Caller = OPS) -> Outcome:
        command = Command(operation, wall_ms=0, request=None, caller=caller)
        return self.machine.apply(command, self.machine.applied_index + 1, 1)

    def quota(self, name: str, **values: int | None) -> Outcome:
        return self.do(PutIdentity(name, roles=None, subjects=None, quota=tuple(values.items())))

    def refused(self, operation: Operation, caller: Caller) -> Refusal:
        before = self.machine.digest()
        outcome = self.do(operation, caller)
        assert outcome.refusal is not None, "expected a refusal"
        assert outcome.refusal.code == "QuotaExceeded"
        assert self.machine.digest() == before, "a refused command changes nothing"
        return outcome.refusal

    def used(self, name: str) -> tuple[int, ...]:
        quotas = self.machine.quotas
        return tuple(
            [quotas.used(name, what) for what in ("sessions", "znodes", "bytes", "waiters")]
        )

    def enter(self, session_id: str, caller: Caller, *queues: str) -> Outcome:
        return self.do(_enter(session_id, *(queues or LOCK)), caller)


def _enter(session_id: str, *queues: str) -> Enter:
    return Enter(queues, prefix="lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b"")


def test_a_znode_counts_against_who_created_it_whoever_writes_it() -> None:
    """Its bytes follow every write, and go when anybody deletes it."""
    room = Room()
    room.do(Create("/a", b"12345"), room.web).unwrap()
    assert room.used("web") == (0, 1, state_bytes_of("/a", b"12345"), 0)

    room.do(SetData("/a", b"1"), room.pay).unwrap()
    assert room.used("web") == (0, 1, state_bytes_of("/a", b"1"), 0)
    assert room.used("pay") == (0, 0, 0, 0)

    room.do(Delete("/a"), OPS).unwrap()
    assert room.used("web") == (0, 0, 0, 0)


def test_a_refusal_says_which_quota_and_how_much_of_it_is_used() -> None:
    """And what to do about it; of a multi it says at which operation."""
    room = Room()
    room.quota("web", znodes=2).unwrap()
    room.do(Create("/a"), room.web).unwrap()

    refusal = room.refused(Multi((Create("/b"), Create("/c"))), room.web)

    assert refusal.message == (
        "create /c: identity web has 2 of the 2 znodes that it may have (quota.znodes), and this "
        "needs 1 more; delete what is not needed, or let an administrator allow more (coordinator "
        "access quota set web --znodes N)"
    )
    assert dict(refusal.fields) == {
        "limit": "quota.znodes", "identity": "web", "used": 2, "maximum": 2, "operation_index": 1,
    }  # fmt: skip
    room.do(Multi((Delete("/a"), Create("/b"), Create("/c"))), room.web).unwrap()


def test_growth_counts_against_the_creator_and_shrinking_is_free() -> None:
    """A quota of bytes bounds what is written, also by another identity."""
    room = Room()
    room.do(Create("/a", b"12345"), room.web).unwrap()
    room.quota("web", bytes=state_bytes_of("/a", b"12345")).unwrap()

    refusal = room.refused(SetData("/a", b"123456"), room.pay)
    assert refusal.fields["identity"] == "web"
    room.refused(Create("/b"), room.web)
    room.do(SetData("/a", b"54321"), room.pay).unwrap()
    room.quota("web", bytes=1).unwrap()
    room.do(SetData("/a", b"1"), room.web).unwrap()


def test_who_waits_is_counted_until_it_is_granted_or_gone() -> None:
    """By each place, those of a multi-lock as well; a holder is no waiter."""
    room = Room()
    for session_id, caller in (("s1", room.pay), ("s2", room.web), ("s3", room.web)):
        room.do(OpenSession(session_id, 10_000), caller).unwrap()
    room.quota("web", waiters=2).unwrap()
    room.enter("s1", room.pay).unwrap()
    room.enter("s2", room.web).unwrap()
    assert room.used("web")[3] == 1
    refusal = room.refused(_enter("s3", "/locks/a", "/locks/b"), room.web)
    assert refusal.fields["used"] == 1

    room.do(ExpireSession("s1", 1), NOBODY).unwrap()
    assert room.used("web")[3] == 0, "it holds"
    room.enter("s3", room.web, "/locks/a", "/locks/b").unwrap()
    assert room.used("web")[3] == 2
    room.do(ExpireSession("s3", 1), NOBODY).unwrap()
    assert room.used("web")[3] == 0


def test_a_quota_of_sessions_holds_in_place_of_the_limit() -> None:
    """A smaller or a greater one; an operator, who names himself, is beyond it."""
    room = Room()
    room.do(SetLimits((("sessions_per_identity_max", 1),)))
    room.quota("web", sessions=2).unwrap()
    room.do(OpenSession("s1", 10_000), room.web).unwrap()
    room.do(OpenSession("s2", 10_000), room.web).unwrap()
    assert room.refused(OpenSession("s3", 10_000), room.web).fields["limit"] == "quota.sessions"
    room.do(OpenSession("s3", 10_000, by="ann"), room.web).unwrap()

    room.do(OpenSession("s4", 10_000), room.pay).unwrap()
    refusal = room.refused(OpenSession("s5", 10_000), room.pay)
    assert refusal.fields["limit"] == "sessions_per_identity_max"


def test_the_limit_for_all_holds_for_who_has_no_quota() -> None:
    """Callers without a credential are one identity, too."""
    room = Room()
    room.do(PutIdentity("anonymous", ("all",))).unwrap()
    room.do(SetLimits((("znodes_per_identity_max", 1),)))
    for caller, name in ((room.web, "web"), (NOBODY, "anonymous")):
        room.do(Create(f"/{name}"), caller).unwrap()
        refusal = room.refused(Create(f"/{name}2"), caller)
        assert refusal.fields["limit"] == "znodes_per_identity_max"
        assert refusal.fields["identity"] == name
        room.quota(name, znodes=2).unwrap()
        room.do(Create(f"/{name}2"), caller).unwrap()


def test_nothing_counts_while_access_rights_are_off() -> None:
    """What was counted before stays counted, and is found when they are on again."""
    room = Room()
    room.do(Create("/a"), room.web).unwrap()
    room.quota("web", znodes=1).unwrap()
    room.do(SetAccess(is_on=False)).unwrap()
    room.do(Create("/b"), room.web).unwrap()
    room.do(SetData("/a", b"more"), room.web).unwrap()
    assert room.used("web") == (0, 1, state_bytes_of("/a", b"more"), 0)

    room.do(SetAccess(is_on=True)).unwrap()
    room.refused(Create("/c"), room.web)


def test_who_is_made_again_has_what_was_created_under_the_name() -> None:
    """Or a dropped identity would be a way round its quota."""
    room = Room()
    room.do(Create("/a"), room.web).unwrap()
    room.do(DropIdentity("web")).unwrap()
    assert room.used("web")[1] == 1
    web = room.identity("web")
    found = room.machine.access.identity("web")
    assert found is not None
    assert found.quota == NO_QUOTA, "that of another incarnation"
    room.quota("web", znodes=1).unwrap()
    room.refused(Create("/b"), web)


def test_a_change_of_the_quota_leaves_the_rest_alone() -> None:
    """Roles, subjects and tokens stay, and so do quotas that are not named."""
    room = Room()
    room.quota("web", znodes=5, bytes=9_000).unwrap()
    before = room.machine.access.identity("web")
    room.quota("web", znodes=None, waiters=3).unwrap()
    after = room.machine.access.identity("web")
    assert before is not None
    assert after is not None
    assert after.quota == Quota(bytes=9_000, waiters=3)
    assert (after.roles, after.tokens) == (before.roles, before.tokens)
    assert not room.quota("web", waiters=3).unwrap().was_changed  # type: ignore[union-attr]
    room.do(PutIdentity("web", ("all",))).unwrap()
    assert room.machine.access.identity("web") == after


@pytest.mark.parametrize(
    "changes",
    [
        (("shoes", 1),), (("znodes", -1),), (("znodes", 2**40 + 1),),
        (("znodes", 1), ("znodes", 2)),
    ],
)  # fmt: skip
def test_what_is_no_quota_is_refused(changes: tuple[tuple[str, int], ...]) -> None:
    """By apply, whatever the door lets through."""
    room = Room()
    outcome = room.do(PutIdentity("web", roles=None, subjects=None, quota=changes))
    assert outcome.refusal is not None
    assert outcome.refusal.code == "BadArguments"
    assert room.quota("nobody", znodes=1).refusal.code == "NoNode"  # type: ignore[union-attr]
    room.do(PutIdentity("anonymous", ("all",))).unwrap()
    assert room.quota("anonymous", sessions=1).refusal.code == "BadArguments"  # type: ignore[union-attr]


def test_the_last_of_the_znodes_and_bytes_are_for_operators() -> None:
    """Clients fill what is theirs, also by locks; an operator still acts, and makes room."""
    room = Room()
    limits = replace(UNSET, znodes_max=20, ordinary_percent_max=80, client_percent_max=90)
    room.do(SetLimits(tuple([each for each in limits.items() if each not in UNSET.items()])))
    room.do(OpenSession("s1", 10_000), room.web).unwrap()
    room.enter("s1", room.web).unwrap()
    number = 0
    while (outcome := room.do(Create(f"/n{number}"), room.web)).refusal is None:
        number += 1
    assert "kept for locks" in outcome.refusal.message
    while (outcome := room.enter("s1", room.web)).refusal is None:
        pass
    assert "kept for operators, who have admin on @limits" in outcome.refusal.message
    assert room.machine.znode_count == 18

    room.do(OpenSession("s2", 10_000, by="ann"), OPS).unwrap()
    room.enter("s2", OPS, "/locks/z").unwrap()
    assert room.machine.znode_count == 20
    assert room.do(Create("/more", b""), OPS).refusal is not None, "all is all"


def test_the_last_bytes_are_for_operators() -> None:
    """As the last znodes are: of a create, and of a write that grows."""
    room = Room()
    room.do(Create("/a"), room.web).unwrap()
    bytes_max = room.machine.state_bytes + 4_000
    room.do(SetLimits((("state_bytes_max", bytes_max), ("client_percent_max", 50))))
    grown = b"x" * (bytes_max // 2)
    for caller, is_refused in ((room.web, True), (OPS, False)):
        outcome = room.do(SetData("/a", grown), caller)
        assert (outcome.refusal is not None) == is_refused
    room.refused(Create("/b"), room.web)
    room.do(Create("/b"), OPS).unwrap()


def test_a_delay_after_a_lost_lock_is_nobodys() -> None:
    """The cluster makes it, and no quota stands in its way."""
    room = Room()
    room.do(OpenSession("s1", 10_000), room.web).unwrap()
    enter = Enter(
        LOCK, prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"", lock_delay_ms=1_000
    )
    room.do(enter, room.web).unwrap()
    before = room.used("web")[1]
    room.quota("web", znodes=0).unwrap()
    room.do(ExpireSession("s1", 1), NOBODY).unwrap()
    assert room.machine.children("/locks/a") == ["delay-0000000000"]
    assert room.used("web")[1] == before - 1


def test_a_place_by_hand_is_counted() -> None:
    """Only who has admin there can make it; it is not refused, and it goes like any other."""
    room = Room()
    room.do(OpenSession("s1", 10_000), OPS).unwrap()
    by_hand = Create(
        "/locks/a/lock-",
        data=b"",
        mode=CreateMode.EPHEMERAL_SEQUENTIAL,
        session_id="s1",
        parents=CreateMode.CONTAINER,
    )
    room.do(by_hand, OPS).unwrap()
    room.do(by_hand, OPS).unwrap()
    assert room.used("ops")[3] == 1
    room.do(ExpireSession("s1", 1), NOBODY).unwrap()
    assert room.used("ops")[3] == 0
