"""A wait is refused exactly when brute force finds no order of releases that ends it."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from coordinator.state.commands import (
    CloseSession,
    Enter,
    Kind,
    Release,
    Resize,
)
from coordinator.state.machine import StateMachine
from tests.amount import histories
from tests.state.locks.deadlock_scenes import SESSIONS, Locks, cycle_of, enter

DIRECTORIES = ("/locks/a", "/locks/b", "/locks/c", "/locks/d")

OWNERS = ("", "t1", "t2", "t3")


# --- the oracle


class Place(NamedTuple):
    """One contender as the oracle sees it; those of one ``entry`` are granted together."""

    owner: tuple[str, ...]
    kind: Kind
    holds: bool
    entry: int


Queues = dict[str, tuple[Place, ...]]


def queues_of(machine: StateMachine, sizes: dict[str, int]) -> Queues:
    queues: Queues = {}
    for directory in DIRECTORIES:
        places = []
        for each in machine.locks.contenders(directory):
            if each.session_id in machine.leaving_sessions():
                continue  # it goes by itself
            owner = (str(each.session_id), each.owner) if each.owner else (str(each.czxid),)
            places.append(Place(owner, each.kind, each.is_holder, each.czxid))
        queues[directory] = tuple(places)
        sizes.setdefault(directory, machine.locks.size(directory) or 1)
    return queues


def can_hold(places: tuple[Place, ...], at: int, size: int) -> bool:
    kind, before = places[at].kind, places[:at]
    if not before:
        return True
    if kind is Kind.EXCLUSIVE or (kind is Kind.SLOT and len(before) >= size):
        return False
    return all(each.kind is kind for each in before)


def granted_in(queues: Queues, sizes: dict[str, int]) -> Queues:
    """Grant what can be granted; those of one entry only when all of them can be."""
    while True:
        able: dict[int, bool] = {}
        for directory, places in queues.items():
            for at, place in enumerate(places):
                may = place.holds or can_hold(places, at, sizes[directory])
                able[place.entry] = able.get(place.entry, True) and may
        if all(each.holds == able[each.entry] for places in queues.values() for each in places):
            return queues
        queues = {
            directory: tuple(
                Place(each.owner, each.kind, able[each.entry], each.entry) for each in places
            )
            for directory, places in queues.items()
        }


def is_ever_served(
    queues: Queues, sizes: dict[str, int], owner: tuple[str, ...], seen: set[object]
) -> bool:
    """Whether some order of giving back grants ``owner`` all that it asked for."""
    queues = granted_in(queues, sizes)
    state = tuple(sorted(queues.items()))
    if state in seen:
        return False
    seen.add(state)
    every = [place for places in queues.values() for place in places]
    waiting = {place.owner for place in every if not place.holds}
    if owner not in waiting:
        return True
    for free in sorted({place.owner for place in every} - waiting):
        rest = {
            directory: tuple(place for place in places if place.owner != free)
            for directory, places in queues.items()
        }
        if is_ever_served(rest, sizes, owner, seen):
            return True
    return False


def waits_for_ever(machine: StateMachine, operation: Enter | Resize) -> bool:
    """Ask the oracle whether somebody waits for ever after ``operation``, if it were allowed."""
    sizes: dict[str, int] = {}
    if isinstance(operation, Resize):
        sizes[operation.directory] = operation.size
    elif operation.size is not None and machine.locks.size(operation.directories[0]) is None:
        sizes[operation.directories[0]] = operation.size
    queues = queues_of(machine, sizes)
    if isinstance(operation, Enter):
        owner: tuple[str, ...] = (operation.session_id, operation.owner)
        if not operation.owner:
            owner = ("new",)
        for directory in operation.directories:
            queues[directory] += (Place(owner, operation.kind, holds=False, entry=0),)
        return not is_ever_served(queues, sizes, owner, set())
    owners = sorted({place.owner for places in queues.values() for place in places})
    return not all(is_ever_served(queues, sizes, owner, set()) for owner in owners)


kinds = st.sampled_from([Kind.EXCLUSIVE, Kind.EXCLUSIVE, Kind.SHARED, Kind.SLOT])


@st.composite
def attempts(draw: st.DrawFn) -> Enter:
    kind = draw(kinds)
    names = draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=1))
    if kind is Kind.EXCLUSIVE and draw(st.booleans()):
        names = sorted(draw(st.sets(st.sampled_from("abcd"), min_size=2, max_size=3)))
    return enter(
        draw(st.sampled_from(OWNERS)),
        *names,
        kind=kind,
        session_id=draw(st.sampled_from(SESSIONS)),
        size=draw(st.integers(1, 3)) if kind is Kind.SLOT else None,
    )


steps = st.one_of(
    attempts(),
    attempts(),
    attempts(),
    st.integers(0, 20),
    st.builds(Resize, st.sampled_from(DIRECTORIES), st.integers(1, 3)),
    st.builds(CloseSession, st.just("s2"), at_once=st.just(1)),
)


@histories(250, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, min_size=4, max_size=18))
def test_refused_exactly_when_brute_force_finds_no_way_out(history: list[object]) -> None:
    """Every attempt and every size: refused if and only if somebody would wait for ever."""
    locks = Locks()
    for step in history:
        if isinstance(step, int):
            standing = [
                each
                for directory in DIRECTORIES
                for each in locks.machine.locks.contenders(directory)
            ]
            if standing:
                gone = standing[step % len(standing)]
                locks.apply(Release(gone.path, gone.czxid))
            continue
        assert isinstance(step, Enter | Resize | CloseSession)
        if isinstance(step, CloseSession):
            locks.apply(step)
            continue
        if isinstance(step, Enter) and locks.machine.session(step.session_id) is None:
            continue
        expected = waits_for_ever(locks.machine, step)

        outcome = locks.apply(step)

        is_refused = outcome.refusal is not None and outcome.refusal.code == "Deadlock"
        if outcome.refusal is None or is_refused:
            assert is_refused == expected
        else:
            assert outcome.refusal.code == "NoNode"
        if is_refused:
            check_cycle(cycle_of(outcome))


def check_cycle(cycle: list[tuple[str, str, str]]) -> None:
    """Each holds, or stands in, what the one before it waits for."""
    before = [cycle[-1], *cycle]
    for (_, _, waits_for), (_, holds, _) in zip(before, cycle, strict=False):
        assert holds == waits_for
