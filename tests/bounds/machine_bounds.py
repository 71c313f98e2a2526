"""Every bound of the state machine: the limits of its state, and the constants of its rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

from msgspec import structs

from coordinator.model.access import NOBODY, Caller
from coordinator.model.limits import BOUNDS as LIMIT_BOUNDS
from coordinator.model.limits import MachineLimits
from coordinator.state import sessions
from coordinator.state.commands import (
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    Enter,
    HeldCondition,
    Kind,
    Multi,
    Note,
    OpenSession,
    Operation,
    Read,
    Release,
    RequestId,
    Resize,
    Revoke,
    SetData,
    SetLimits,
)
from coordinator.state.limits import RULES_MAX
from coordinator.state.locks import contender as places
from coordinator.state.locks import operations as operations
from coordinator.state.locks.grant_history import GrantQuery
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome

LOCK = "/locks/a"


class Bound(NamedTuple):
    """``accepts(n)`` says whether n is taken; ``is_least`` bounds refuse what is below."""

    name: str
    value: int
    accepts: Callable[[int], bool]
    is_least: bool = False


class Room:
    """A machine with the given limits and one session."""

    def __init__(self, **limits: int) -> None:
        self.machine = StateMachine(replace(MachineLimits(), **limits))
        self.do(OpenSession("s1", 10_000))

    def do(
        self, operation: Operation, request: RequestId | None = None, *if_held: HeldCondition
    ) -> Outcome:
        index = self.machine.applied_index + 1
        return self.machine.apply(
            Command(operation, wall_ms=0, request=request, caller=NOBODY, if_held=if_held), index, 1
        )

    def takes(self, operation: Operation, *if_held: HeldCondition) -> bool:
        return self.do(operation, None, *if_held).refusal is None

    def holder(self, directory: str = LOCK) -> tuple[str, int]:
        self.do(enter(directory))
        contender = self.machine.locks.holders(directory)[0]
        return contender.path, contender.czxid


def enter(*directories: str, **changed: Any) -> Enter:
    wish = Enter(
        directories or (LOCK,), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""
    )
    return structs.replace(wish, **changed)


def many(count: int, **limits: int) -> Room:
    """Return a room with ``count`` znodes below the root."""
    room = Room(**limits)
    for number in range(count):
        room.do(Create(f"/n{number}"))
    return room


def accepts_depth(depth: int) -> bool:
    return Room(path_depth_max=5).takes(Create("/x" * depth, parents=CreateMode.PERSISTENT))


def accepts_last_of(limit: str, make: Callable[[int], Operation]) -> Callable[[int], bool]:
    """Say whether the ``count``-th of several is taken under a limit of 5."""

    def accepts(count: int) -> bool:
        room = Room(**{limit: 5})
        return [room.takes(make(number)) for number in range(count)][-1]

    return accepts


def accepts_sessions(count: int) -> bool:
    room = Room(sessions_max=5)
    return [room.takes(OpenSession(f"t{number}", 10_000)) for number in range(count - 1)][-1]


def accepts_session_of(**origin: str) -> Callable[[int], bool]:
    """Say whether the ``count``-th session of one address, or of one client, is opened."""

    def accepts(count: int) -> bool:
        room = Room(sessions_per_address_max=5, sessions_per_client_max=5)
        return [room.takes(OpenSession(f"t{number}", 10_000, **origin)) for number in range(count)][
            -1
        ]

    return accepts


def accepts_session_of_an_identity(count: int) -> bool:
    machine = Room(sessions_per_identity_max=5).machine
    for number in range(count):
        opening = Command(OpenSession(f"t{number}", 10_000), 0, caller=Caller("pay"))
        outcome = machine.apply(opening, machine.applied_index + 1, 1)
    return outcome.refusal is None


def accepts_ordinary(make: Callable[[int], Operation], **limits: int) -> Callable[[int], bool]:
    """Say whether the ``count``-th is there when half of each limit is a reserve."""

    def accepts(count: int) -> bool:
        room = Room(ordinary_percent_max=50, **limits)
        return [room.takes(make(number)) for number in range(1, count)][-1]

    return accepts


def accepts_state_bytes(count: int) -> bool:
    """``count`` bytes are what three znodes of 512 and their paths take: /, /ab and its data."""
    room = Room(state_bytes_max=2_000)
    room.do(Create("/a"))
    free = 2_000 - room.machine.state_bytes
    return room.takes(SetData("/a", b"x" * (free + count - 2_000)))


def remembers(count: int) -> bool:
    """Say whether the first of ``count`` requests still gets its outcome."""
    room = Room(request_window=5)
    for number in range(1, count + 1):
        room.do(SetData("/", b""), RequestId("c", number))
    return room.do(SetData("/", b""), RequestId("c", 1)).is_repeat


def remembers_client(count: int) -> bool:
    room = Room(clients_max=5)
    for number in range(count):
        room.do(SetData("/", b""), RequestId(f"c{number}", number=1, floor_index=1_000))
    return room.do(SetData("/", b""), RequestId("c0", number=1, floor_index=1_000)).is_repeat


def remembers_release(count: int) -> bool:
    """Say whether the first of ``count`` released contenders is known as released."""
    room, released = Room(released_grants_max=5), []
    for _ in range(count):
        released.append(room.holder())
        room.do(Release(*released[-1]))
    return room.takes(Release(*released[0]))


def keeps_grant(count: int) -> bool:
    room = Room(grant_history_max=5)
    for _ in range(count):
        room.do(Release(*room.holder()))
    return room.machine.locks.history(GrantQuery())[0].number == 1


def grants(count: int) -> bool:
    """Say whether so many who wait to share a lock are granted by one command."""
    room = Room(grants_per_command_max=5)
    path, czxid = room.holder()
    for _ in range(count):
        room.do(
            Enter(
                (path.rpartition("/")[0],),
                prefix="read-",
                kind=Kind.SHARED,
                session_id="s1",
                data=b"",
            )
        )
    room.do(Release(path, czxid))
    return not room.machine.locks.has_ungranted


def searches(count: int) -> bool:
    """Say whether an attempt is let in that has to know of so many who stand before it."""
    room = Room(deadlock_search_max=5)
    room.do(enter("/locks/own", owner="me"))
    for each in ("/locks/a", "/locks/beside"):
        room.do(enter(each, owner="ahead"))
    for each in ("/locks/own", "/locks/else"):
        room.do(enter(each, owner="behind"))
    for number in range(count - 1):
        room.do(enter("/locks/a", owner=f"o{number}"))
    return room.takes(enter("/locks/a", owner="me"))


def deletes_places(count: int) -> bool:
    """Say whether so many places go at once, of two multi-locks and a lock beside them."""
    room = Room(recursive_delete_max=5)
    rest = tuple([f"/locks/a{number}" for number in range(count - 3)])
    room.do(
        Enter(
            ("/locks/a0", *rest[1:]), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b""
        )
    )
    room.do(
        Enter(
            ("/locks/a0", "/locks/z"),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id="s1",
            data=b"",
        )
    )
    return room.takes(Delete("/locks/a0", is_recursive=True))


def deletes(count: int) -> bool:
    """Say whether a subtree of ``count`` znodes is deleted at once."""
    room = Room(recursive_delete_max=5)
    room.do(Create("/top"))
    for number in range(count - 1):
        room.do(Create(f"/top/{number}"))
    return room.takes(Delete("/top", is_recursive=True))


def accepts_conditions(count: int) -> bool:
    room = Room()
    _, token = room.holder()
    return room.takes(Create("/x"), *[HeldCondition(LOCK, token)] * count)


def accepts_size(size: int) -> bool:
    room = Room()
    slot = enter(prefix="slot-", kind=Kind.SLOT, size=size)
    entered = room.takes(slot)
    room.do(structs.replace(slot, size=1))
    assert room.takes(Resize(LOCK, size)) == entered, "both ways to say it have one bound"
    return entered


def accepts_number(number: int) -> bool:
    mode = CreateMode.EPHEMERAL
    made = Create(
        f"{LOCK}/x{number:010d}",
        data=b"",
        mode=mode,
        session_id="s1",
        ttl_ms=None,
        parents=CreateMode.CONTAINER,
    )
    return Room().takes(made)


def accepts_text(field: str) -> Callable[[int], bool]:
    def accepts(length: int) -> bool:
        room = Room()
        path, czxid = room.holder()
        texts = {"by": "", "reason": "", field: "x" * length}
        revoked = room.takes(Revoke(path, czxid, **texts))
        if field == "reason":
            assert Room().takes(CloseSession("s1", "x" * length)) == revoked
        return revoked

    return accepts


def accepts_note(length: int) -> bool:
    room = Room()
    return room.takes(Note(*room.holder(), b"x" * length))


def keeps_data(length: int) -> bool:
    room = Room()
    room.do(enter(data=b"x" * length))
    return len(room.machine.locks.holders(LOCK)[0].data) == length


def reads_together(count: int) -> bool:
    """Say whether reads of ``count`` bytes together are answered."""
    room = Room(data_bytes_max=100)
    room.do(Create("/a", b"x" * 50))
    room.do(Create("/b", b"x" * (count - 50)))
    return room.takes(Multi((Read("/a"), Read("/b"))))


def of_limits() -> Iterator[Bound]:
    """One bound for each field of ``MachineLimits`` that refuses or forgets by count."""
    named = "MachineLimits."
    yield Bound(f"{named}data_bytes_max", 5, lambda n: Room(data_bytes_max=5).takes(
        Create("/a", b"x" * n)))  # fmt: skip
    yield Bound(f"{named}data_bytes_max", 100, reads_together)
    yield Bound(f"{named}path_bytes_max", 64, lambda n: Room(path_bytes_max=64).takes(
        Create("/" + "x" * (n - 1))))  # fmt: skip
    yield Bound(f"{named}path_depth_max", 5, accepts_depth)
    yield Bound(f"{named}children_max", 5, accepts_last_of(
        "children_max", lambda n: Create(f"/n{n}")))  # fmt: skip
    yield Bound(f"{named}znodes_max", 5, lambda n: many(n - 2, znodes_max=5).takes(
        Create("/last")))  # fmt: skip
    yield Bound(f"{named}state_bytes_max", 2_000, accepts_state_bytes)
    yield Bound(f"{named}operations_per_multi_max", 5, lambda n: Room(
        operations_per_multi_max=5).takes(Multi((SetData("/", b""),) * n)))  # fmt: skip
    yield Bound(
        f"{named}ephemerals_per_session_max",
        5,
        accepts_last_of(
            "ephemerals_per_session_max",
            lambda n: Create(f"/e{n}", data=b"", mode=CreateMode.EPHEMERAL, session_id="s1"),
        ),
    )
    yield Bound(f"{named}ephemerals_per_session_max", 5, accepts_last_of(
        "ephemerals_per_session_max", lambda n: enter(f"/locks/l{n}")))  # fmt: skip
    yield Bound(f"{named}recursive_delete_max", 5, deletes)
    yield Bound(f"{named}recursive_delete_max", 5, deletes_places)
    yield Bound(f"{named}grants_per_command_max", 5, grants)
    yield Bound(f"{named}deadlock_search_max", 5, searches)
    yield Bound(f"{named}request_window", 5, remembers)
    yield Bound(f"{named}clients_max", 5, remembers_client)
    yield Bound(f"{named}released_grants_max", 5, remembers_release)
    yield Bound(f"{named}grant_history_max", 5, keeps_grant)
    yield Bound(f"{named}sessions_max", 5, accepts_sessions)
    yield Bound(f"{named}sessions_per_address_max", 5, accepts_session_of(address="10.0.0.7"))
    yield Bound(f"{named}sessions_per_client_max", 5, accepts_session_of(client_id="c1"))
    yield Bound(f"{named}sessions_per_identity_max", 5, accepts_session_of_an_identity)
    yield Bound(f"{named}ordinary_percent_max", 5, accepts_ordinary(
        lambda n: OpenSession(f"t{n}", 10_000), sessions_max=10))  # fmt: skip
    yield Bound(f"{named}ordinary_percent_max", 5, accepts_ordinary(
        lambda n: Create(f"/n{n}"), znodes_max=10))  # fmt: skip
    yield Bound("sessions.BY_CHARACTERS_MAX", sessions.BY_CHARACTERS_MAX, lambda n: Room().takes(
        OpenSession("t", 10_000, by="b" * n)))  # fmt: skip
    yield Bound(f"{named}timeout_ms_max", 3_600_000, lambda n: Room().takes(OpenSession("t", n)))
    yield Bound(
        f"{named}timeout_ms_min", 1_000, lambda n: Room().takes(OpenSession("t", n)), is_least=True
    )


def of_rules() -> Iterator[Bound]:
    """One bound for each constant of the rules of locks and sessions."""
    named, module = "operations.", operations
    yield Bound(f"{named}GROUP_MAX", module.GROUP_MAX, lambda n: Room().takes(
        enter(*[f"/locks/l{number:03d}" for number in range(n)])))  # fmt: skip
    yield Bound(f"{named}PREFIX_CHARACTERS_MAX", module.PREFIX_CHARACTERS_MAX, lambda n: Room(
        ).takes(enter(prefix="x" * n)))  # fmt: skip
    yield Bound(f"{named}OWNER_CHARACTERS_MAX", module.OWNER_CHARACTERS_MAX, lambda n: Room(
        ).takes(enter(owner="o" * n)))  # fmt: skip
    yield Bound(f"{named}BY_CHARACTERS_MAX", module.BY_CHARACTERS_MAX, accepts_text("by"))
    yield Bound(
        f"{named}REASON_CHARACTERS_MAX", module.REASON_CHARACTERS_MAX, accepts_text("reason")
    )
    yield Bound(f"{named}NOTE_BYTES_MAX", module.NOTE_BYTES_MAX, accepts_note)
    yield Bound(f"{named}LOCK_DELAY_MS_MAX", module.LOCK_DELAY_MS_MAX, lambda n: Room().takes(
        enter(lock_delay_ms=n)))  # fmt: skip
    yield Bound("operations: least lock-delay", 0, lambda n: Room().takes(
        enter(lock_delay_ms=n)), is_least=True)  # fmt: skip
    yield Bound(f"{named}MAX_HOLD_MS_MAX", module.MAX_HOLD_MS_MAX, lambda n: Room().takes(
        enter(max_hold_ms=n)))  # fmt: skip
    yield Bound("operations: least hold", 0, lambda n: Room().takes(
        enter(max_hold_ms=n)), is_least=True)  # fmt: skip
    yield Bound(f"{named}SIZE_MAX", module.SIZE_MAX, accepts_size)
    yield Bound("operations: least size", 1, accepts_size, is_least=True)
    yield Bound(f"{named}CONDITIONS_MAX", module.CONDITIONS_MAX, accepts_conditions)
    yield Bound("contender.HAND_MADE_NUMBER_MAX", places.HAND_MADE_NUMBER_MAX, accepts_number)
    yield Bound("contender.RECORDED_DATA_BYTES_MAX", places.RECORDED_DATA_BYTES_MAX, keeps_data)
    yield Bound("sessions.LABEL_CHARACTERS_MAX", sessions.LABEL_CHARACTERS_MAX, lambda n: Room(
        ).takes(OpenSession("t", timeout_ms=10_000, label="x" * n)))  # fmt: skip
    yield Bound("sessions: characters of an id", 64, lambda n: Room().takes(
        OpenSession("t" * n, 10_000)))  # fmt: skip
    yield Bound("dedup: characters of an id", 64, lambda n: Room().do(
        SetData("/", b""), RequestId("c" * n, 1)).refusal is None)  # fmt: skip


def of_changes() -> Iterator[Bound]:
    """One bound each for the least and the greatest value that a command may set."""
    yield Bound("limits.RULES_MAX", RULES_MAX, lambda n: Room().takes(
        SetLimits((), rules=tuple([(f"r{each}", "1") for each in range(n)]))))  # fmt: skip
    for each in fields(MachineLimits):
        if each.name.startswith("timeout_ms"):
            continue  # one of them bounds the other
        least, greatest = LIMIT_BOUNDS.get(each.name, (1, 1_000_000_000))
        for value in (least, greatest):
            yield Bound(
                f"limits.BOUNDS {each.name}", value,
                lambda n, name=each.name: Room().takes(SetLimits(((name, n),))),
                is_least=value == least,
            )  # fmt: skip


BOUNDS = (*of_limits(), *of_rules(), *of_changes())
