"""The queues at their limits: long ones, and everything in them that could grow."""

from __future__ import annotations

import pytest

from coordinator.model import queue_order as contention
from coordinator.model.access import NOBODY
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    CloseSession,
    Command,
    Create,
    CreateMode,
    Enter,
    HeldCondition,
    Kind,
    Multi,
    Note,
    OpenSession,
    Operation,
    Release,
    RequestId,
    Revoke,
    SetData,
    SetLimits,
)
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered, Outcome

A = ("/locks/a",)


class Room:
    """A machine with one open session, and an entry for each command."""

    def __init__(self, limits: MachineLimits | None = None) -> None:
        self.machine = StateMachine(limits or MachineLimits())
        self.apply(OpenSession("s1", 10_000))

    def apply(self, operation: Operation, *if_held: HeldCondition) -> Outcome:
        index = self.machine.applied_index + 1
        return self.machine.apply(
            Command(operation, wall_ms=index, request=None, caller=NOBODY, if_held=if_held),
            index,
            1,
        )

    def enter(self, *directories: str, data: bytes = b"") -> tuple[str, int]:
        enter = Enter(
            directories or A, prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=data
        )
        result = self.apply(enter).unwrap()
        assert isinstance(result, Entered)
        return result.contenders[0].path, result.contenders[0].stat.czxid


def test_each_release_in_a_queue_of_a_thousand_grants_to_one() -> None:
    """One departure tells of one grant, to the next in the queue."""
    room = Room()
    contenders = [room.enter() for _ in range(1_000)]
    following = [path for path, _ in contenders[1:]]

    granted = [room.apply(Release(*each)).granted for each in contenders]

    assert granted == [*((path,) for path in following), ()]


def test_a_departure_from_the_middle_grants_nobody() -> None:
    """Positions move up, and who holds goes on."""
    room = Room()
    contenders = [room.enter() for _ in range(5)]

    outcome = room.apply(Release(*contenders[2]))

    assert outcome.granted == ()
    positions = [room.machine.locks.standing(path).position for path, _ in contenders]
    assert positions == [0, 1, -1, 2, 3]


def test_a_group_has_its_limit() -> None:
    """Sixty-four queues may be entered as one, and not one more."""
    room = Room()
    directories = [f"/locks/l{number:02d}" for number in range(65)]

    allowed = room.apply(
        Enter(
            tuple(directories[:64]), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""
        )
    )
    refused = room.apply(
        Enter(tuple(directories), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"")
    )

    assert len(allowed.granted) == 64
    assert refused.refusal is not None
    assert refused.refusal.code == "BadArguments"


def test_a_group_refused_halfway_leaves_nothing() -> None:
    """The second of two places finds no room: the first one is not made either."""
    room = Room(MachineLimits(znodes_max=4))
    before = room.machine.digest()

    outcome = room.apply(
        Enter(
            ("/locks/a", "/locks/b"), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""
        )
    )

    assert outcome.refusal is not None
    assert outcome.refusal.code == "QuotaExceeded"
    assert room.machine.digest() == before
    assert room.enter() == ("/locks/a/lock-0000000000", 2)


def test_what_is_long_is_refused_or_not_kept() -> None:
    """Notes, reasons and names have limits; data that is too long is not kept with the grant."""
    room = Room()
    path, czxid = room.enter(data=b"x" * 10_000)

    for operation in (
        Note(path, czxid=czxid, note=b"x" * 1_025),
        Revoke(path, czxid=czxid, by="x" * 257, reason=""),
        Revoke(path, czxid=czxid, by="", reason="x" * 513),
        CloseSession("s1", "x" * 513),
        Enter(A, prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"", owner="x" * 129),
        Enter(A, prefix="x" * 33, kind=Kind.EXCLUSIVE, session_id="s1", data=b""),
    ):
        refusal = room.apply(operation).refusal
        assert refusal is not None
        assert refusal.code == "BadArguments"

    assert [each.data for each in room.machine.locks.history(GrantQuery())] == [b""]


def test_the_history_has_a_limit_of_bytes() -> None:
    """However many grants there may be, together they stay within their bytes."""
    room = Room(MachineLimits(grant_history_bytes_max=10_000))
    for _ in range(20):
        room.apply(Release(*room.enter(data=b"x" * 2_000)))

    history = room.machine.locks.history(GrantQuery())

    assert [each.number for each in history] == [18, 19, 20]


@pytest.mark.parametrize("count", [1, 64])
def test_conditions_are_checked_before_anything_else(count: int) -> None:
    """A fenced write is refused for its token before its path is looked at, and does nothing."""
    room = Room()
    _, token = room.enter()
    held = [HeldCondition("/locks/a", token)] * count

    done = room.apply(Create("/x"), *held)
    refused = room.apply(SetData("/nowhere", b""), *held[1:], HeldCondition("/locks/a", token + 1))

    assert done.refusal is None
    assert refused.refusal is not None
    assert refused.refusal.code == "LockLost"
    assert refused.refusal.fields["holder_tokens"] == (token,)


def test_too_many_conditions_are_refused() -> None:
    """Sixty-four grants guard one write, and not one more."""
    room = Room()
    _, token = room.enter()

    refused = room.apply(Create("/x"), *[HeldCondition("/locks/a", token)] * 65)

    assert refused.refusal is not None
    assert refused.refusal.code == "BadArguments"


def test_a_write_may_be_the_release_of_the_lock_that_guards_it() -> None:
    """The condition is about the state before the command, in the same entry."""
    room = Room()
    path, token = room.enter()
    room.enter()

    outcome = room.apply(Release(path, token), HeldCondition("/locks/a", token))

    assert outcome.granted == ("/locks/a/lock-0000000001",)


@pytest.mark.parametrize("parents", [CreateMode.PERSISTENT, CreateMode.CONTAINER])
@pytest.mark.parametrize("number", [0, 7])
def test_a_parent_made_on_the_way_stands_in_no_queue(parents: CreateMode, number: int) -> None:
    """An implied ancestor that is a contender by its name overtakes nobody, and blocks nobody."""
    room = Room()
    first, second = room.enter(), room.enter()
    room.apply(Release(*first))

    refused = room.apply(Create(f"/locks/a/x{number:010d}/child", parents=parents))

    assert refused.refusal is not None
    assert refused.refusal.code == "BadArguments"
    assert [each.path for each in room.machine.locks.contenders(A[0])] == [second[0]]
    restored = StateMachine()
    restored.restore(room.machine.snapshot())
    assert restored.digest() == room.machine.digest()


def test_one_contender_by_hand_for_each_queue_and_command() -> None:
    """Two in one command would have one token; the next command may make the next."""
    room = Room()

    def made(number: int) -> Create:
        path = f"{A[0]}/x{number:010d}"
        return Create(
            path,
            data=b"",
            mode=CreateMode.EPHEMERAL,
            session_id="s1",
            ttl_ms=None,
            parents=CreateMode.CONTAINER,
        )

    next_one = Create(f"{A[0]}/x", data=b"", mode=CreateMode.EPHEMERAL_SEQUENTIAL, session_id="s1")
    room.apply(Create(A[0], parents=CreateMode.CONTAINER))
    both = room.apply(Multi((made(1), made(2))))
    sequential = room.apply(Multi((next_one, next_one)))
    after_each_other = [room.apply(made(number)).refusal for number in (1, 2, 3)]

    for refused in (both, sequential):
        assert refused.refusal is not None
        assert refused.refusal.code == "BadArguments"
    assert after_each_other == [None, None, None]


def test_other_names_in_a_queue_take_no_number() -> None:
    """What is nobody's place leaves the counter of contenders alone."""
    room = Room()
    beside = Create(
        f"{A[0]}/beside",
        data=b"",
        mode=CreateMode.EPHEMERAL,
        session_id="s1",
        ttl_ms=None,
        parents=CreateMode.CONTAINER,
    )

    assert room.apply(beside).refusal is None

    assert room.enter()[0] == f"{A[0]}/lock-0000000000"


def test_a_lower_limit_cuts_the_history_from_then_on() -> None:
    """The queues follow the limits that a command sets."""
    room = Room()
    for _ in range(5):
        room.apply(Release(*room.enter()))
    room.apply(SetLimits((("grant_history_max", 2),)))

    room.apply(Release(*room.enter()))

    assert len(room.machine.locks.history(GrantQuery())) == 2


@pytest.mark.parametrize("size", [None, 1, 2])
def test_a_semaphore_that_nobody_gave_a_size_has_one_place(size: int | None) -> None:
    """Slots made by hand hold one after the other, as the recipe over plain znodes says."""
    room = Room()
    if size is not None:
        room.apply(Enter(A, prefix="slot-", kind=Kind.SLOT, session_id="s1", data=b"", size=size))
    slot = Create(
        "/locks/a/slot-",
        data=b"",
        mode=CreateMode.EPHEMERAL_SEQUENTIAL,
        session_id="s1",
        ttl_ms=None,
        parents=CreateMode.CONTAINER,
    )
    for _ in range(3):
        room.apply(slot)

    names = room.machine.children("/locks/a") or []
    held = [each.name for each in room.machine.locks.holders("/locks/a")]

    assert held == contention.holders(names, size or 1)
    assert len(held) == (size or 1)


def test_a_repetition_marks_no_other_contender_of_its_path() -> None:
    """Another one of the same name may stand there since; its release is its own affair."""
    room = Room()
    request = RequestId("c1", 1)
    enter = Command(
        Enter(A, prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""),
        wall_ms=0,
        request=request,
    )
    first = room.machine.apply(enter, room.machine.applied_index + 1, 1).unwrap()
    assert isinstance(first, Entered)
    path = first.contenders[0].path
    room.apply(Release(path, first.contenders[0].stat.czxid))
    room.apply(Create(path, data=b"", mode=CreateMode.EPHEMERAL, session_id="s1"))
    (other,) = room.machine.locks.holders("/locks/a")
    assert (other.path, other.is_repeated) == (path, False)

    again = room.machine.apply(enter, room.machine.applied_index + 1, 1)

    assert again.is_repeat
    assert room.machine.locks.holders("/locks/a") == (other,)
    assert room.apply(Release(path, other.czxid, spares_repeated=True)).refusal is None


def test_a_condition_takes_the_token_of_who_holds_and_of_nobody_else() -> None:
    """Not of who waits, nor a number between; the refusal names who holds."""
    room = Room()
    shared = [
        Enter(A, prefix="read-", kind=Kind.SHARED, session_id="s1", data=b"") for _ in range(3)
    ]
    entered = [room.apply(each).unwrap() for each in shared]
    tokens = [each.contenders[0].stat.czxid for each in entered if isinstance(each, Entered)]
    _, waiting = room.enter()
    write = SetData("/", b"")

    taken = {
        token
        for token in range(waiting + 3)
        if room.apply(write, HeldCondition(A[0], token)).refusal is None
    }
    refusal = room.apply(write, HeldCondition(A[0], waiting)).refusal

    assert taken == set(tokens)
    assert refusal is not None
    assert dict(refusal.fields)["holder_tokens"] == tuple(tokens)
    assert room.machine.locks.with_token(A[0], waiting + 1) is None
