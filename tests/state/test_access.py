"""Access rights at apply: every class of command has its row, and what is covered is found."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.errors import AuthFailedError, NoAuthError
from coordinator.model.access import MEMBER, NOBODY, Caller, Rule, Verb
from coordinator.state.access.coverage import Coverage
from coordinator.state.access.guard import BY_MEMBERS, ROWS
from coordinator.state.commands import (
    Abandon,
    AddToken,
    Check,
    CloseSession,
    Command,
    Create,
    Delete,
    Downgrade,
    DropIdentity,
    DropRole,
    DropToken,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishGrants,
    FinishSession,
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
    Reap,
    Release,
    RenewCredential,
    Reopen,
    RequestId,
    Resize,
    Revoke,
    SetAccess,
    SetData,
    SetLevel,
    SetLimits,
    TakeOut,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from tests.state.values import changed

OPS = Caller("ops", credential="token:opstoken1", since=1)
EVERY_OPERATION = get_args(Operation)


class Room:
    """A machine with access on, and an operator."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.do(InitAccess("ops", token_id="opstoken1", digest=b"d" * 32), NOBODY)

    def do(
        self, operation: Operation, caller: Caller = OPS, request: RequestId | None = None
    ) -> Outcome:
        command = Command(operation, wall_ms=0, request=request, caller=caller)
        return self.machine.apply(command, self.machine.applied_index + 1, 1)

    def identity(self, name: str, *rules: Rule) -> Caller:
        """Make an identity with one role of these rules, and a token."""
        self.do(PutRole(name, rules)).unwrap()
        self.do(PutIdentity(name, (name,))).unwrap()
        self.do(AddToken(name, token_id=f"{name}token001", digest=b"d" * 32)).unwrap()
        token = self.machine.access.token(f"{name}token001")
        assert token is not None
        return token.caller


def test_every_class_of_command_has_its_row() -> None:
    """One that is in neither table would be an exception out of apply: say what it needs."""
    assert not BY_MEMBERS & set(ROWS), "what members alone propose is not for clients"
    assert {*EVERY_OPERATION, Read} == BY_MEMBERS | set(ROWS)


LOCK, SEMAPHORE = "/locks/held/lock-0000000000", "/locks/sem"
EXAMPLES: dict[type, Operation] = {
    type(each): each
    for each in (
        Create("/new"),
        SetData("/x", b"y"),
        Put("/x", b"y"),
        Delete("/x"),
        Check("/x"),
        Multi((Read("/x"),)),
        Guarded((), then=(), otherwise=(Delete("/x"),)),
        OpenSession("s9", 10_000),
        CloseSession("s1"),
        RenewCredential("s1"),
        Enter(("/locks/new",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""),
        Downgrade(LOCK, 0),
        Note(LOCK, czxid=0, note=b"note"),
        ExtendHold(LOCK, czxid=0, by_ms=0, to_ms=60_000),
        Release(LOCK, 0),
        Abandon("c1", 1),
        Resize(SEMAPHORE, 9),
        Revoke(LOCK, czxid=0, by="me", reason="mine"),
        SetLimits((("znodes_max", 9_000),)),
        SetLevel(1),
        InitAccess("me", token_id="metoken001", digest=b"d" * 32),
        SetAccess(is_on=False),
        PutRole("mine", (Rule("/", (Verb.ADMIN,)),)),
        DropRole("free"),
        PutIdentity("none", ("admin",)),
        DropIdentity("none"),
        AddToken("ops", token_id="metoken001", digest=b"d" * 32),
        DropToken("nonetoken001"),
        ExpireSession("s1", 1),
        FinishSession("s1", 1),
        Reap("/x", mzxid=1, pzxid=1, term=1),
        EndHold(LOCK, czxid=0, term=1),
        Reopen(LOCK, czxid=0, term=1),
        FinishGrants(),
        TakeOut((LOCK,)),
    )
}
"""Of each class one that does something, if it is not refused."""


def furnished() -> tuple[Room, Caller]:
    """Return a room with something for each example, and a caller without any rule."""
    room = Room()
    nobody = room.identity("none")
    room.do(PutRole("free", ())).unwrap()
    room.do(Create("/x")).unwrap()
    room.do(OpenSession("s1", 10_000)).unwrap()
    room.do(
        Enter((SEMAPHORE,), prefix="slot-", kind=Kind.SLOT, session_id="s1", data=b"", size=2)
    ).unwrap()
    enter = Enter(
        ("/locks/held",),
        prefix="lock-",
        kind=Kind.EXCLUSIVE,
        session_id="s1",
        data=b"",
        max_hold_ms=9_000,
    )
    room.do(enter, request=RequestId("c1", 1)).unwrap()
    return room, nobody


def fitting(room: Room, operation: Operation) -> Operation:
    """Return it with the token of the lock that is held."""
    held = room.machine.locks.record(LOCK)
    assert held is not None
    if isinstance(operation, Downgrade | Note | ExtendHold | Release | Revoke | EndHold):
        return changed(operation, czxid=held.czxid)
    return operation


@pytest.mark.parametrize("kind", EVERY_OPERATION, ids=lambda kind: kind.__name__)
def test_without_a_right_no_command_does_anything(kind: type) -> None:
    """Of a stranger, of an identity without a rule, and under a credential that is gone; an
    operator does all of it. A new class of command needs its example here."""
    room, nobody = furnished()
    operation = fitting(room, EXAMPLES[kind])
    before = room.machine.digest()

    for caller in (NOBODY, nobody, Caller("ops", credential="token:opstoken1", since=99)):
        if kind not in BY_MEMBERS or caller != NOBODY:
            refusal = room.do(operation, caller).refusal
            assert refusal is not None
            is_gone = caller.since == 99 and kind not in BY_MEMBERS
            assert refusal.code == ("AuthFailed" if is_gone else "NoAuth")
            assert room.machine.digest() == before

    outcome = room.do(operation, NOBODY if kind in BY_MEMBERS else OPS)
    assert outcome.refusal is None or kind is InitAccess, outcome


prefixes = st.sampled_from(
    ["/", "/a", "/a/b", "/a/b*", "/a*", "/ab", "/a/*", "/b/c", "@", "@limits", "/a/b/c", "/locks"]
)
resources = st.sampled_from(
    ["/", "/a", "/a/b", "/a/bc", "/ab", "/abc/d", "/a/b/c", "/b", "/b/c/d", "@limits", "@access",
     "/locks/x", "/locksmith"]
)  # fmt: skip


def covers(prefix: str, resource: str) -> bool:
    """The rule as it is explained to people."""
    if prefix == "@":
        return resource.startswith("@")
    if prefix.endswith("*"):
        return resource.startswith(prefix[:-1])
    if prefix.startswith("@") or resource.startswith("@"):
        return prefix == resource
    return resource == prefix or resource.startswith(prefix.rstrip("/") + "/")


@given(st.lists(prefixes, max_size=5), resources)
def test_the_index_finds_what_some_prefix_covers(found: list[str], resource: str) -> None:
    """One search says what going through all rules would."""
    coverage = Coverage(found)

    assert coverage.covers(resource) == any(covers(each, resource) for each in found)


@given(st.lists(prefixes, max_size=5), resources, st.sampled_from(["/x", "/b", "/c/d"]))
def test_what_covers_a_path_covers_all_below(found: list[str], path: str, more: str) -> None:
    """So a right to delete a znode is one to its subtree; and lists show the way to what is."""
    coverage = Coverage(found)
    below = path.rstrip("/") + more

    if path.startswith("/"):
        assert coverage.covers(below) or not coverage.covers(path)
        assert coverage.leads_to(path) or not coverage.covers(below)


@given(st.lists(prefixes, max_size=5), st.sampled_from(["/", "/a", "/b"]))
def test_the_ways_to_what_is_covered_are_the_names_that_lists_show(
    found: list[str], path: str
) -> None:
    """So a list need not look at the other names, and its next page begins at none of them."""
    coverage = Coverage(found)
    ways = coverage.ways(path)

    for name in ("a", "ab", "b", "bc", "c", "locks", "x"):
        child = path.rstrip("/") + "/" + name
        shown = any(name.startswith(way) if is_wide else name == way for way, is_wide in ways)
        assert shown == (coverage.covers(child) or coverage.leads_to(child))


def test_a_name_that_a_sequential_znode_could_get_is_covered_or_refused() -> None:
    """``covers_all`` is true only if no name that begins so is outside."""
    assert not Coverage(["/a/n-"]).covers_all("/a/n-")
    assert Coverage(["/a"]).covers_all("/a/n-")
    assert Coverage(["/a/n*"]).covers_all("/a/n-")
    assert not Coverage(["/a/n-0*"]).covers_all("/a/n-")


def test_what_is_read_of_the_table() -> None:
    """The reads that doors decide by: check, allows, sees, explain, and who a token is."""
    room = Room()
    web = room.identity("web", Rule("/team/web", (Verb.READ,)), Rule("/locks/w*", (Verb.LOCK,)))
    access = room.machine.access
    room.do(OpenSession("s1", 10_000), web).unwrap()
    room.do(OpenSession("s2", 10_000)).unwrap()

    access.check(web, Verb.READ, "/team/web/a")
    with pytest.raises(NoAuthError, match="needs write on /team/web: no role of identity 'web'"):
        access.check(web, Verb.WRITE, "/team/web")
    assert access.allows(web, Verb.LOCK, "/locks/web:7")
    assert not access.allows(NOBODY, Verb.READ, "/team/web")
    assert access.sees(web, "/team")
    assert access.sees(web, "/")
    assert not access.sees(web, "/other")
    assert not access.sees(web, "/team/other")
    assert access.explain("web", Verb.READ, "/team/web/a") == (
        ("web", Rule("/team/web", (Verb.READ,))),
    )
    assert [each.name for each in access.identities()] == ["ops", "web"]
    assert access.allows(MEMBER, Verb.ADMIN, "/anything")
    revision = access.revision

    room.do(DropToken("webtoken001")).unwrap()

    assert access.revision > revision
    assert not access.is_current(web)
    assert not access.sees(web, "/team")
    assert room.machine.session("s1") is None
    assert [each.session_id for each in room.machine.sessions()] == ["s2"], "s1 has ended"
    with pytest.raises(AuthFailedError, match="was revoked"):
        access.check(web, Verb.READ, "/team/web")


def test_with_access_off_no_rule_is_looked_at() -> None:
    """A command costs what it cost: one question whether access is on."""
    machine = StateMachine()
    machine.apply(Command(Create("/a"), 0), 1, 1)
    machine.apply(Command(OpenSession("s1", 10_000), 0), 2, 1)
    machine.apply(Command(SetData("/a", b"x"), 0), 3, 1)

    assert machine.access._rights_of == {}
