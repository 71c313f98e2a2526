"""A client's id and request numbers, in the hands of another identity: of no use, and no harm.

For each class of command, each way to have an id, each other who may come to know it, whatever
became of the rights meanwhile: the other gets nothing of the first outcome, does nothing, and takes
no number away. A new class of command needs its example (``test_access``).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.model.access import ANONYMOUS, NOBODY, Caller, Rule, Verb
from coordinator.state.access.guard import BY_MEMBERS
from coordinator.state.commands import (
    Abandon,
    AddToken,
    CloseSession,
    Create,
    DropIdentity,
    DropToken,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    RequestId,
    SetAccess,
    SetData,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from tests.state.test_access import EXAMPLES, Room, fitting, furnished
from tests.state.values import changed

ALL = (Rule("/", tuple(Verb)), Rule("@", tuple(Verb)))
KINDS = [kind for kind in EXAMPLES if kind not in BY_MEMBERS]
DRAWN, BOUND = "a drawn one", "that of its session"
IDS = {DRAWN: "c9", BOUND: "s7"}


def example(room: Room, kind: type) -> Operation:
    """Return the example of a class, but one that leaves the rights on."""
    operation = fitting(room, EXAMPLES[kind])
    return changed(operation, is_on=True) if isinstance(operation, SetAccess) else operation


def anonymous(room: Room) -> Caller:
    room.do(PutRole("everybody", ALL)).unwrap()
    room.do(PutIdentity(ANONYMOUS, ("everybody",), subjects=())).unwrap()
    return NOBODY


OTHERS: dict[str, Callable[[Room], Caller]] = {
    "an equal": lambda room: room.identity("bee", *ALL),
    "one whose name begins so": lambda room: room.identity("ops2", *ALL),
    "one whose name it begins with": lambda room: room.identity("op", *ALL),
    "one without a rule": lambda room: room.identity("bee"),
    "nobody, who may do all": anonymous,
    "nobody": lambda _: NOBODY,
}


def turned(room: Room, *, is_on: bool) -> None:
    room.do(SetAccess(is_on)).unwrap()


def off_and_on(room: Room) -> None:
    turned(room, is_on=False)
    turned(room, is_on=True)


def restored(room: Room) -> None:
    machine = StateMachine()
    machine.restore(room.machine.snapshot())
    room.machine = machine


MEANWHILE: dict[str, Callable[[Room], None]] = {
    "nothing": lambda _: None,
    "rights were off and on": off_and_on,
    "the state was restored": restored,
}


def with_its_id(room: Room, how: str) -> str:
    """Open the session whose id a client has, if it has that."""
    if how == BOUND:
        room.do(OpenSession("s7", 10_000)).unwrap()
    return IDS[how]


def says_nothing(room: Room, outcome: Outcome, digest: str) -> bool:
    """Whether another was refused for the sake of the id, and nothing was done."""
    return (
        outcome.result is None
        and outcome.refusal is not None
        and outcome.refusal.code == "NoAuth"
        and "another identity" in outcome.refusal.message
        and room.machine.digest() == digest
    )


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_another_identity_has_nothing_of_a_request_number(kind: type, who: str) -> None:
    """Neither of one that was used nor of the next, by the same command or another."""
    for how in IDS:
        for meanwhile in MEANWHILE:
            is_tried(kind, who, how, meanwhile)


def is_tried(kind: type, who: str, how: str, meanwhile: str) -> None:
    room, _ = furnished()
    other = OTHERS[who](room)
    client_id, operation = with_its_id(room, how), example(room, kind)
    first = room.do(operation, request=RequestId(client_id, 1))
    MEANWHILE[meanwhile](room)

    digest = room.machine.digest()
    for asked in (operation, Create("/by-another")):
        for number in (1, 2, 900):
            assert says_nothing(room, room.do(asked, other, RequestId(client_id, number)), digest)
    for number in (1, 2):
        assert says_nothing(room, room.do(Abandon(client_id, number), other), digest)

    again = room.do(operation, request=RequestId(client_id, 1))
    assert (again.result, again.refusal) == (first.result, first.refusal)
    following = room.do(SetData("/x", b"2"), request=RequestId(client_id, 2))
    assert following.refusal is None or kind.__name__ in ("CloseSession", "Delete", "Guarded")
    assert not following.is_repeat


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("meanwhile", MEANWHILE)
def test_the_id_of_a_session_is_its_clients_before_the_first_request(
    who: str, meanwhile: str
) -> None:
    """Nobody can use up the numbers of a client that has only opened its session."""
    room, _ = furnished()
    other, client_id = OTHERS[who](room), with_its_id(room, BOUND)
    MEANWHILE[meanwhile](room)

    digest = room.machine.digest()
    assert says_nothing(room, room.do(Create("/n"), other, RequestId(client_id, 1)), digest)
    done = room.do(Create("/n"), request=RequestId(client_id, 1))
    assert done.refusal is None
    assert not done.is_repeat


@pytest.mark.parametrize("how", IDS)
@pytest.mark.parametrize("who", OTHERS)
def test_what_was_first_used_while_rights_were_off_is_its_clients(who: str, how: str) -> None:
    """If it showed its credential then; rights are on again when another comes."""
    room, _ = furnished()
    other = OTHERS[who](room)
    turned(room, is_on=False)
    client_id = with_its_id(room, how)
    first = room.do(Create("/n"), request=RequestId(client_id, 1))
    turned(room, is_on=True)

    digest = room.machine.digest()
    for number in (1, 2):
        outcome = room.do(Create("/n"), other, RequestId(client_id, number))
        assert says_nothing(room, outcome, digest)
    assert room.do(Create("/n"), request=RequestId(client_id, 1)).result == first.result


@pytest.mark.parametrize("who", OTHERS)
@pytest.mark.parametrize("end", ["revoked", "revoked and rights off and on", "ended"])
def test_an_id_whose_session_ends_is_nobodys(who: str, end: str) -> None:
    """Not while its end is worked off, and not afterwards; no command runs under it."""
    room, _ = furnished()
    other, ann = OTHERS[who](room), room.identity("ann", *ALL)
    room.do(OpenSession("s7", 10_000), ann).unwrap()
    room.do(Create("/n"), ann, RequestId("s7", 1)).unwrap()
    room.do(DropToken(ann.credential.partition(":")[2])).unwrap()
    if "off" in end:
        off_and_on(room)
    if end == "ended":
        room.do(CloseSession("s7")).unwrap()

    digest = room.machine.digest()
    for number in (1, 2):
        outcome = room.do(Create("/m"), other, RequestId("s7", number))
        assert outcome.result is None
        assert outcome.refusal is not None
        assert outcome.refusal.code in ("NoAuth", "SessionExpired")
        assert room.machine.digest() == digest


@pytest.mark.parametrize("how", IDS)
def test_an_identity_that_was_made_again_is_another(how: str) -> None:
    """Under the same name, with a token of the same id."""
    room, _ = furnished()
    ann = room.identity("ann", *ALL)
    client_id = IDS[how]
    if how == BOUND:
        room.do(OpenSession("s7", 10_000), ann).unwrap()
    room.do(Create("/n"), ann, RequestId(client_id, 1)).unwrap()
    room.do(DropIdentity("ann")).unwrap()
    second = room.identity("ann", *ALL)
    assert second != ann

    digest = room.machine.digest()
    for number in (1, 2):
        outcome = room.do(Create("/n"), second, RequestId(client_id, number))
        assert says_nothing(room, outcome, digest)


@pytest.mark.parametrize("how", IDS)
def test_the_next_token_of_an_identity_has_what_the_one_before_had(how: str) -> None:
    """Nobody gets less: the repeat under it is answered, and the next number is its own."""
    room, _ = furnished()
    ann = room.identity("ann", *ALL)
    client_id = IDS[how]
    if how == BOUND:
        room.do(OpenSession("s7", 10_000), ann).unwrap()
    first = room.do(Create("/n"), ann, RequestId(client_id, 1))
    room.do(AddToken("ann", token_id="anntoken002", digest=b"d" * 32)).unwrap()
    token = room.machine.access.token("anntoken002")
    assert token is not None

    again = room.do(Create("/n"), token.caller, RequestId(client_id, 1))
    following = room.do(Create("/m"), token.caller, RequestId(client_id, 2))

    assert (again.is_repeat, again.result) == (True, first.result)
    assert following.refusal is None
