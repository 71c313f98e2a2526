"""Digests in slices: equal for equal states however they came to be, and unlike for any other."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable
from itertools import chain
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from msgspec.structs import replace

from coordinator.model.limits import MachineLimits
from coordinator.state import levels, slices
from coordinator.state.commands import (
    Check,
    Command,
    Create,
    Delete,
    Enter,
    Kind,
    Multi,
    OpenSession,
    Operation,
    Read,
    RequestId,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Kept, Refusal, Remembered, ZnodeResult
from coordinator.state.slice_room import CUT_BYTES, Cursor
from coordinator.state.slices import Slice, slice_at
from coordinator.state.tree_walk import RUN_MAX
from tests.amount import histories as histories_of
from tests.state.alterations import alterations, nth_alteration
from tests.state.rich_state import rich_machine, rich_machine_with_rights
from tests.state.strategies import SMALL_LIMITS, apply_all, histories

thorough = histories_of(100, suppress_health_check=list(HealthCheck))

NOT_DIGESTED = {
    r".*\.(_sessions|_access)\.is_changed": "of the last command; set before each",
    r"\._term": "of the last entry; set with each, and not known to a restored member",
    r".*\._generation|.*\.generation": "how many snapshots this life of the member has made",
    r".*\._tree\.(zxid|wall_ms|_floor_before)": "of the transaction; set by begin",
    r".*\._locks\.(is_changed|entered.*|ended_now.*|(group|place)s_going.*)": "of the last command",
    r"\._handlers.*|.*\._runners.*": "code: the same in every state of a release",
    r".*\._locks\.limits.*": "the object in limits_record, by reference",
}
"""By a pattern of their places: what is in no slice, and why not."""


def slices_of(machine: StateMachine, items_max: int = 500, bytes_max: int = 1 << 20) -> list[Slice]:
    """Go through the whole state."""
    found: list[Slice] = []
    cursor: Cursor | None = Cursor()
    while cursor is not None:
        found.append(slice_at(machine._whole(), cursor, items_max=items_max, bytes_max=bytes_max))
        cursor = found[-1].following
        assert len(found) < 10_000, "it comes to an end"
    return found


def paths_behind(machine: StateMachine, path: str) -> list[str]:
    """Return all paths behind one, in the order of the walk."""
    return list(chain.from_iterable(machine._tree.runs_behind(path)))


@thorough
@given(histories, st.data())
def test_a_snapshot_at_any_point_changes_no_slice(
    history: list[Command], chance: st.DataObject
) -> None:
    """A member that was restored and one that was there all the time agree on every slice."""
    cut = chance.draw(st.integers(0, len(history)))
    straight, before, after = (StateMachine(SMALL_LIMITS) for _ in range(3))
    apply_all(straight, history)
    apply_all(before, history[:cut])
    after.restore(before.snapshot())
    apply_all(after, history[cut:], first=cut + 1)

    for items_max in (1, 3, 500):
        assert slices_of(after, items_max) == slices_of(straight, items_max)


OF_RIGHTS = re.compile("identit|_used|_access|waiting|credential|revoked|caller")


@pytest.mark.parametrize(
    ("make", "which"),
    [
        (rich_machine, re.compile("")),
        pytest.param(rich_machine_with_rights, OF_RIGHTS, marks=pytest.mark.check),
    ],
    ids=["without rights", "with rights"],
)
def test_every_value_of_the_state_is_in_some_slice(
    make: Callable[[], StateMachine], which: re.Pattern[str]
) -> None:
    """Whatever is changed by hand in the live object changes a digest; or it says why not."""
    before = slices_of(make())
    names = [each.name for each in alterations(make())]
    assert len(names) > 300
    unseen: dict[str, None] = {}
    for at, name in enumerate(names):
        if not which.search(name):
            continue
        machine = make()
        try:
            nth_alteration(machine, at).apply()
        except TypeError:
            continue  # a compiled class takes no value of another type
        if _safely(machine) == before:
            unseen[name] = None

    unexplained = [
        name for name in unseen if not any(re.fullmatch(each, name) for each in NOT_DIGESTED)
    ]
    assert not unexplained, "say why, or digest it"
    for each in NOT_DIGESTED if make is rich_machine else ():
        assert any(re.fullmatch(each, name) for name in unseen), f"{each} is digested, or gone"


def _safely(machine: StateMachine) -> object:
    """A state that cannot even be gone through is not one that passes for another."""
    try:
        return slices_of(machine)
    except Exception as error:
        return error


def test_slices_are_bounded_and_cover_everything() -> None:
    """Each has at most so many items, and all together have every znode once."""
    machine = rich_machine()
    walked = paths_behind(machine, "")
    assert sorted(walked) == sorted(machine._tree.capture_znodes()[0])
    assert walked[0] == "/"

    found = slices_of(machine, items_max=2)

    assert len(found) > len(walked) / 2
    assert all(len(each.digest) <= slices.DIGEST_BYTES_MAX for each in found)


@pytest.mark.parametrize("seed", range(5))
def test_the_walk_goes_on_behind_a_path_that_is_gone(seed: int) -> None:
    """A cursor is a place in the order of all paths, whether anything is there or not."""
    draw = random.Random(seed)
    machine = StateMachine()
    index = 0
    for number in range(200):
        parent = draw.choice(["", *[p for p in machine._tree._znodes if p.count("/") < 4]])
        index = number + 1
        machine.apply(
            Command(Create(f"{parent.rstrip('/')}/{draw.choice('abc-.0')}z"), 1), index, 1
        )
    walked = paths_behind(machine, "")
    for at, path in enumerate(walked):
        assert paths_behind(machine, path) == walked[at + 1 :]
    for path in draw.sample(walked[1:], min(20, len(walked) - 1)):
        at = walked.index(path)
        rest = [each for each in walked[at + 1 :] if not each.startswith(path + "/")]
        index += 1
        other = StateMachine()
        other.restore(machine.snapshot())
        other.apply(Command(Delete(path, is_recursive=True), 1), index, 1)
        assert paths_behind(other, path) == rest


def test_siblings_are_read_many_at_a_time() -> None:
    """Those without children, also while a capture is held and changes are kept beside it."""
    machine = StateMachine()
    paths = ["/few", *[f"/few/{name}" for name in "abc"], "/few/b/below", "/many"]
    paths += [f"/many/{number:03}" for number in range(3 * RUN_MAX)]
    for index, path in enumerate(paths, 1):
        machine.apply(Command(Create(path), 1), index, 1)
    expected = [["/"], ["/few"], ["/few/a"], ["/few/b"], ["/few/b/below"], ["/few/c"], ["/many"]]
    runs = list(machine._tree.runs_behind(""))
    assert runs[:7] == expected
    assert [len(run) for run in runs[7:]] == [RUN_MAX] * 3
    before = slices_of(machine)

    captured, hold = machine._tree.capture_znodes()
    machine.apply(Command(Create("/later"), 1), len(paths) + 1, 1)

    assert "/later" in paths_behind(machine, "")
    assert "/later" not in captured
    assert slices_of(machine) != before
    other = StateMachine()
    other.restore(machine.snapshot())
    assert slices_of(machine) == slices_of(other)
    del hold


GOLDEN = {
    "level": "1",
    "without rights": "7d4c589564637735d189efca850e91b1",
    "with rights": "23ac3c57faaed7f3d388b9b5bdd42fc5",
    "results": "4bd9e7f664b140d183e050ff89460691",
}
"""Of a level: the digest of all slices of each machine, and of the results' shapes."""


def test_slices_of_one_level_never_change() -> None:
    """Members of two releases at the same level must find the same digests, or the minority
    halts. Records, outcomes and results are digested as they are, so tags and fields count, too.

    Changed? Raise the level and renew the values; renew them only, if ``rich_state``
    has changed."""
    kinds: set[Any] = {*get_args(Kept), *get_args(ZnodeResult), Remembered, Refusal}
    shapes = sorted({(each.__struct_config__.tag or "", each.__struct_fields__) for each in kinds})
    found = {"level": str(levels.NEWEST)}
    for name, make in (
        ("without rights", rich_machine),
        ("with rights", rich_machine_with_rights),
    ):
        found_slices = slices_of(make(), slices.ITEMS_MAX, slices.BYTES_MAX)
        found[name] = _digest(b"".join([each.digest for each in found_slices]))
    found["results"] = _digest(repr(shapes).encode())

    assert found == GOLDEN, "changed? raise the level"


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def many_locks(do: Callable[..., None]) -> None:
    do(OpenSession("s1", 60_000))
    for n in range(1_500):
        do(Enter((f"/locks/l{n}",), "lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"who"))


def many_outcomes(do: Callable[..., None]) -> None:
    for client in range(240):
        for number in range(1, 101):
            do(Check("/"), RequestId(f"c{client}", number=number, floor_index=0))


def many_sessions(do: Callable[..., None]) -> None:
    for n in range(5_000):
        address = f"10.0.{n // 250}.{n % 250}"
        do(OpenSession(f"s{n}", 60_000, label="worker", address=address, client_id=f"k{n}"))


def many_grants(do: Callable[..., None]) -> None:
    do(OpenSession("s1", 60_000))
    for n in range(1_500):
        do(Enter(("/locks/a",), "lock-", kind=Kind.EXCLUSIVE, session_id="s1", data=b"who"))
        do(Delete(f"/locks/a/lock-{n:010}"))


def many_znodes(do: Callable[..., None]) -> None:
    for n in range(8_000):
        do(Create(f"/n{n}", b"x" * 100))


@pytest.mark.parametrize(
    "fill", [many_locks, many_outcomes, many_sessions, many_grants, many_znodes]
)
def test_how_many_slices_there_are_is_known_beforehand(fill: Callable[..., None]) -> None:
    """The first comparison after a change of leader is paced by it: it has ten seconds, too."""
    machine = StateMachine()

    def do(operation: Operation, request: RequestId | None = None) -> None:
        index = machine.applied_index + 1
        outcome = machine.apply(Command(operation, wall_ms=index, request=request), index, 1)
        assert outcome.refusal is None

    fill(do)
    count = len(slices_of(machine, slices.ITEMS_MAX, slices.BYTES_MAX))

    assert count >= 3
    assert count - 2 <= machine.slice_count <= count + 1


def test_each_slice_has_the_counters() -> None:
    """What an entry came to elsewhere is seen at once, whatever is read just then."""
    before, machine = slices_of(rich_machine(), items_max=3), rich_machine()

    machine._tree.data_bytes += 1

    after = slices_of(machine, items_max=3)
    assert len(before) == len(after) > 10
    assert all(one.digest != other.digest for one, other in zip(before, after, strict=True))
    assert after[-1].differing(before[-1].digest) == "counters and limits"


@pytest.mark.parametrize("items_max", range(1, 12))
def test_no_outcome_is_left_out_where_a_slice_ends(items_max: int) -> None:
    """Also one whose client's row is the last in a slice."""

    def machine_with(number: int, found: str) -> StateMachine:
        machine = StateMachine()
        for index in range(1, 9):
            path = found if index == number else "/"
            request = RequestId(f"c{index % 3}", number=index, floor_index=0)
            machine.apply(Command(Check(path, exists=False), 1, request=request), index, 1)
        return machine

    before = slices_of(machine_with(0, ""), items_max)
    for number in range(1, 9):
        assert slices_of(machine_with(number, "/other"), items_max) != before


def test_long_data_are_cut_and_seen_to_the_last_byte() -> None:
    """One znode or one remembered read of a megabyte is no step of a megabyte."""
    limits = MachineLimits()
    length = 1_000_000

    def machine_with(data: bytes) -> StateMachine:
        machine = StateMachine(limits)
        machine.apply(Command(Create("/long", data), 1), 1, 1)
        read = Multi((Read("/long"),))
        machine.apply(
            Command(read, wall_ms=1, request=RequestId("c", number=1, floor_index=0)), 2, 1
        )
        return machine

    before = slices_of(machine_with(b"x" * length), bytes_max=slices.BYTES_MAX)
    assert len(before) >= length // (2 * CUT_BYTES)
    for at in (0, CUT_BYTES, length // 2, length - 1):
        data = b"x" * at + b"y" + b"x" * (length - at - 1)
        assert slices_of(machine_with(data), bytes_max=slices.BYTES_MAX) != before


def test_a_place_that_is_none_is_refused() -> None:
    """Another member may ask for anything."""
    for bad in (Cursor(99), Cursor(-1), Cursor(0, -2), Cursor(part=1, left=-1, key="", number=-1)):
        with pytest.raises(ValueError, match="expected a place"):
            StateMachine().slice_at(bad)
    for odd in (
        Cursor(part=1, left=5, key="no path"),
        Cursor(2, 10**9),
        Cursor(part=3, left=1, key="nobody", number=9),
    ):
        assert StateMachine().slice_at(odd).digest


def test_what_differs_is_said_in_words() -> None:
    """The pieces of a slice that are not equal, by their names."""
    one, other = rich_machine(), rich_machine()
    other._tree._znodes["/app"] = replace(other._tree._znodes["/app"], data=b"q")
    mine, theirs = slices_of(one)[0], slices_of(other)[0]

    assert mine.differing(theirs.digest).startswith("znodes / to /")
    assert mine.differing(mine.digest) == "where the next slice begins"
