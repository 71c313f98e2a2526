"""A session whose credential was revoked, before its end is worked off: under any state of rights.

It counts as ended from the command on that revoked it. Whatever is asked in its name, by whichever
class of command, does nothing; what it waits for is granted to others. That rights are turned off,
or off and on, or the state restored from a snapshot, brings nothing of it back.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.model.access import NOBODY, Caller
from coordinator.model.znodes import CreateMode
from coordinator.state.commands import (
    CloseSession,
    Command,
    Create,
    DropIdentity,
    DropToken,
    Enter,
    HeldCondition,
    Kind,
    OpenSession,
    Operation,
    PutIdentity,
    Release,
    SetData,
)
from tests.state.test_access import EXAMPLES, Room, fitting, furnished
from tests.state.test_others_request_numbers import ALL, KINDS, off_and_on, restored, turned

SUBJECT = "cert:coordinator://main/ann"
REVOKED: dict[str, Operation] = {
    "its token": DropToken("anntoken001"),
    "its identity": DropIdentity("ann"),
    "its subject": PutIdentity("ann", None, subjects=()),
}
AFTERWARDS: dict[str, Callable[[Room], None]] = {
    "on": lambda _: None,
    "off": lambda room: turned(room, is_on=False),
    "off and on": off_and_on,
    "restored": restored,
    "off and restored": lambda room: (turned(room, is_on=False), restored(room))[1],
}


class Scene:
    """Ann holds a lock and waits for another, bee waits for the first and holds the second."""

    def __init__(self, what: str) -> None:
        self.room, _ = furnished()
        ann, self.bee = self.room.identity("ann", *ALL), self.room.identity("bee", *ALL)
        self.room.do(PutIdentity("ann", None, subjects=(SUBJECT,))).unwrap()
        by_subject = self.room.machine.access.by_subject(SUBJECT)
        assert by_subject is not None
        self.ann: Caller = by_subject if what == "its subject" else ann
        for name, caller in (("sa", self.ann), ("sb", self.bee)):
            self.room.do(OpenSession(name, 10_000), caller).unwrap()
        self.enter("sa", self.ann, "/locks/a")
        self.enter("sb", self.bee, "/locks/b")
        self.enter("sb", self.bee, "/locks/a")
        self.enter("sa", self.ann, "/locks/b")

    def enter(self, session_id: str, caller: Caller, directory: str) -> None:
        operation = Enter(
            (directory,), prefix="lock-", kind=Kind.EXCLUSIVE, session_id=session_id, data=b""
        )
        assert self.room.do(operation, caller).refusal is None

    def path(self, directory: str, number: int) -> str:
        return f"{directory}/lock-{number:010d}"

    def holds(self, path: str) -> bool:
        record = self.room.machine.locks.record(path)
        return record is not None and record.is_holder


@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize("what", REVOKED)
def test_nothing_is_done_in_the_name_of_a_revoked_session(what: str, afterwards: str) -> None:
    """Under its credential no command at all; by others nothing that would be its own."""
    scene = Scene(what)
    room, directory = scene.room, "/locks/a"
    held = room.machine.locks.record(scene.path(directory, 0))
    assert held is not None
    room.do(REVOKED[what]).unwrap()
    AFTERWARDS[afterwards](room)
    digest = room.machine.digest()

    for kind in KINDS:
        refusal = room.do(fitting(room, EXAMPLES[kind]), scene.ann).refusal
        assert refusal is not None
        assert refusal.code == "AuthFailed", kind
    others = [scene.bee, *([] if room.machine.access.is_on else [NOBODY])]
    for caller in others:
        for operation in (
            Create("/mine", mode=CreateMode.EPHEMERAL, session_id="sa"),
            Enter(("/locks/c",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="sa", data=b""),
        ):
            refusal = room.do(operation, caller).refusal
            assert refusal is not None
            assert refusal.code == "SessionExpired"
    condition = (HeldCondition(directory, held.czxid),)
    late = Command(SetData("/x", b"late"), wall_ms=0, caller=scene.bee, if_held=condition)
    refusal = room.machine.apply(late, room.machine.applied_index + 1, 1).refusal
    assert refusal is not None
    assert refusal.code == "LockLost"
    assert room.machine.digest() == digest
    assert room.machine.session("sa") is None
    assert [each.session_id for each in room.machine.sessions()] == ["s1", "sb"]


@pytest.mark.parametrize("afterwards", AFTERWARDS)
@pytest.mark.parametrize("what", REVOKED)
def test_what_a_revoked_session_waits_for_goes_to_others(what: str, afterwards: str) -> None:
    """Although its place is still in the queue; and its own grant, when its end is worked off."""
    scene = Scene(what)
    room = scene.room
    scene.enter("sb", scene.bee, "/locks/b")
    room.do(REVOKED[what]).unwrap()
    AFTERWARDS[afterwards](room)

    released = room.machine.locks.record(scene.path("/locks/b", 0))
    assert released is not None
    room.do(Release(released.path, released.czxid), scene.bee).unwrap()
    assert not scene.holds(scene.path("/locks/b", 1))
    assert scene.holds(scene.path("/locks/b", 2))

    assert room.machine.revoked_sessions(9) == ["sa"]
    room.do(CloseSession("sa", at_once=1)).unwrap()
    assert room.machine.revoked_sessions(9) == []
    assert scene.holds(scene.path("/locks/a", 1))
    assert room.machine.session("sb") is not None
