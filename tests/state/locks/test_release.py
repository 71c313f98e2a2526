"""Release and abandon where histories seldom go: odd paths, plain znodes, paths used again."""

from __future__ import annotations

from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    Abandon,
    Command,
    Create,
    CreateMode,
    Delete,
    Enter,
    Kind,
    OpenSession,
    Operation,
    Release,
    RequestId,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Abandoned, Outcome

HAND_MADE = Create(
    "/locks/a/x0000000001",
    data=b"",
    mode=CreateMode.EPHEMERAL,
    session_id="s1",
    ttl_ms=None,
    parents=CreateMode.CONTAINER,
)


class Room:
    """A machine with two sessions, and an entry for each command."""

    def __init__(self, **limits: int) -> None:
        self.machine = StateMachine(MachineLimits(**limits))
        for session_id in ("s1", "s2"):
            self.do(OpenSession(session_id, 10_000))

    def do(self, operation: Operation, request: RequestId | None = None) -> Outcome:
        index = self.machine.applied_index + 1
        return self.machine.apply(Command(operation, wall_ms=0, request=request), index, 1)

    def czxid(self, path: str) -> int:
        stat = self.machine.stat(path)
        assert stat is not None
        return stat.czxid


def code(outcome: Outcome) -> str | None:
    return None if outcome.refusal is None else outcome.refusal.code


def test_a_release_of_what_is_no_path_says_so() -> None:
    """The path is looked at first: it is no contender that is gone."""
    assert code(Room().do(Release("locks/a", 1))) == "BadArguments"


def test_a_plain_znode_is_released_like_a_contender() -> None:
    """Also by who would spare a repeated request: nobody holds a plain znode."""
    room = Room()
    for spares_repeated in (False, True):
        room.do(Create("/plain"))
        release = Release("/plain", czxid=room.czxid("/plain"), spares_repeated=spares_repeated)

        assert code(room.do(release)) is None
        assert room.machine.stat("/plain") is None
        assert code(room.do(release)) is None, "released before: it succeeds again"


def test_every_path_of_a_multi_lock_is_released_again() -> None:
    """Whichever of its paths was named, a repetition may name another."""
    room = Room()
    entered = room.do(
        Enter(
            ("/locks/a", "/locks/b"), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""
        )
    )
    first, second = entered.granted
    token = room.czxid(first)
    room.do(Release(first, token))

    assert [code(room.do(Release(path, token))) for path in (second, first)] == [None, None]


def test_an_abandoned_request_spares_only_the_holder_that_it_made() -> None:
    """Another znode that has its path by now, and holds, is none of its business."""
    room = Room()
    room.do(HAND_MADE, RequestId("c1", 1))
    room.do(Delete(HAND_MADE.path))
    room.do(HAND_MADE)
    held = room.czxid(HAND_MADE.path)

    outcome = room.do(Abandon("c1", 1, spares_holder=True))

    assert outcome.result == Abandoned(None)
    assert room.czxid(HAND_MADE.path) == held


def test_what_a_session_abandoned_is_remembered_as_long_as_the_session() -> None:
    """Other clients come and go; the number stays spent."""
    room = Room(clients_max=1)
    room.do(Abandon("s1", 1))
    for number in range(5):
        room.do(Create(f"/n{number}"), RequestId(f"c{number}", number=1, floor_index=1_000))

    late = room.do(Create("/late"), RequestId("s1", 1))

    assert late.is_repeat
    assert code(late) == "BadArguments"


def test_a_holder_whose_request_was_repeated_is_spared() -> None:
    """Who repeated it may know of the grant; one whose request came once is given back."""
    room = Room()
    enter = Enter(("/locks/a",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"")
    (path,) = room.do(enter, RequestId("c1", 1)).granted
    release = Release(path, room.czxid(path), spares_repeated=True)
    room.do(enter, RequestId("c1", 1))

    assert code(room.do(release)) == "BadArguments"
    assert room.czxid(path) == release.czxid
    assert code(room.do(Release(path, release.czxid))) is None

    (second,) = room.do(enter, RequestId("c1", 2)).granted
    once = Release(second, room.czxid(second), spares_repeated=True)
    assert code(room.do(once)) is None


def test_a_snapshot_knows_whose_request_was_repeated() -> None:
    """Who starts from it spares that holder as well."""
    room = Room()
    enter = Enter(("/locks/a",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"")
    (path,) = room.do(enter, RequestId("c1", 1)).granted
    room.do(enter, RequestId("c1", 1))
    restored = Room()
    restored.machine = StateMachine()
    restored.machine.restore(room.machine.snapshot())

    release = Release(path, room.czxid(path), spares_repeated=True)
    assert code(restored.do(release)) == "BadArguments"
