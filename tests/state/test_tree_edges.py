"""The tree at its edges: what may be reaped, pages of nothing, what the state counts."""

from __future__ import annotations

import pytest

from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Delete,
    Multi,
    OpenSession,
    Operation,
    Reap,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, Reaped
from coordinator.state.tree import ZNODE_OVERHEAD_BYTES


class Room:
    """A machine, and an entry for each command."""

    def __init__(self) -> None:
        self.machine = StateMachine()

    def do(self, operation: Operation) -> Outcome:
        index = self.machine.applied_index + 1
        return self.machine.apply(Command(operation, 0), index, 1)

    def reap(self, path: str) -> bool:
        stat = self.machine.stat(path)
        assert stat is not None
        result = self.do(Reap(path, mzxid=stat.mzxid, pzxid=stat.pzxid, term=1)).result
        assert isinstance(result, Reaped)
        return result.was_deleted


@pytest.mark.parametrize("mode", [CreateMode.PERSISTENT, CreateMode.CONTAINER])
def test_only_a_container_that_had_a_child_is_reaped(mode: CreateMode) -> None:
    """A persistent one stays, whatever it had; a container before its first child stays, too."""
    room = Room()
    room.do(Create("/top", mode=mode))
    assert not room.reap("/top")
    room.do(Create("/top/child"))
    assert not room.reap("/top")
    room.do(Delete("/top/child"))
    candidates = room.machine.idle_paths()

    is_container = mode is CreateMode.CONTAINER
    assert candidates == (["/top"] if is_container else [])
    assert room.reap("/top") == is_container
    assert room.machine.idle_paths() == []


def test_what_is_idle_follows_what_is_done_and_undone() -> None:
    """A refused command leaves the candidates as they were."""
    room = Room()
    room.do(Create("/top", mode=CreateMode.CONTAINER))
    room.do(Create("/top/child"))
    room.do(Delete("/top/child"))

    refused = room.do(Multi((Create("/top/again"), Delete("/none"))))

    assert refused.refusal is not None
    assert room.machine.idle_paths() == ["/top"]
    room.do(Create("/top/again"))
    assert room.machine.idle_paths() == []


@pytest.mark.parametrize("after", [CreateMode.PERSISTENT, CreateMode.CONTAINER, CreateMode.TTL])
@pytest.mark.parametrize("before", [CreateMode.PERSISTENT, CreateMode.CONTAINER, CreateMode.TTL])
def test_one_mode_in_the_place_of_another_is_undone_as_a_whole(
    before: CreateMode, after: CreateMode
) -> None:
    """What may be reaped is what could be before the refused command, whatever stood there."""
    room = Room()

    def idle(mode: CreateMode) -> tuple[Operation, ...]:
        """Make one that may be reaped at once, if it is of a mode that ever is."""
        ttl_ms = 5 if mode.is_ttl else None
        made = Create("/top", mode=mode, ttl_ms=ttl_ms)
        return (made, Create("/top/child"), Delete("/top/child"))

    room.do(Multi(idle(before)))  # type: ignore[arg-type]
    expected = room.machine.idle_paths()
    assert expected == ([] if before is CreateMode.PERSISTENT else ["/top"])

    doomed = Multi((Delete("/top"), *idle(after), Delete("/none")))  # type: ignore[arg-type]

    assert room.do(doomed).refusal is not None
    assert room.machine.idle_paths() == expected
    again = StateMachine()
    again.restore(room.machine.snapshot())
    assert again.idle_paths() == expected


def test_each_znode_says_in_which_indexes_it_is() -> None:
    """Members compare these numbers, so they are the same in every release."""
    room = Room()
    room.do(OpenSession("s1", 5_000))
    for create in (
        Create("/n"),
        Create("/e", data=b"", mode=CreateMode.EPHEMERAL, session_id="s1"),
    ):
        room.do(create)
    room.do(Multi((Create("/c", mode=CreateMode.CONTAINER), Create("/c/x"), Delete("/c/x"))))
    tree = room.machine._tree

    marks = {}
    for path in ("/n", "/c", "/e"):
        znode = tree.find(path)
        assert znode is not None
        marks[path] = tree.index_marks(path, znode)

    assert marks == {"/n": 0, "/c": 1, "/e": 2}


def test_a_page_of_nothing_is_empty() -> None:
    """Also one of less than nothing."""
    room = Room()
    room.do(Create("/a"))

    pages = [room.machine.children("/", None, limit) for limit in (-1, 0, 1)]

    assert pages == [[], [], ["a"]]


def test_the_state_counts_paths_data_and_a_flat_sum() -> None:
    """From the root on, to the byte; deletion gives all of it back."""
    room = Room()
    empty = ZNODE_OVERHEAD_BYTES + len("/")
    assert (room.machine.state_bytes, room.machine.data_bytes) == (empty, 0)

    room.do(Create("/abc", b"12345"))
    assert room.machine.state_bytes == empty + ZNODE_OVERHEAD_BYTES + len("/abc") + 5
    assert room.machine.data_bytes == 5
    room.do(Delete("/abc"))

    assert (room.machine.state_bytes, room.machine.data_bytes) == (empty, 0)
