"""How znodes are kept: what most of them do not have takes no room, equal numbers are shared."""

from __future__ import annotations

from coordinator.state import znode_rows
from coordinator.state.commands import Command, Create, CreateMode, Delete, Multi, SetData
from coordinator.state.machine import StateMachine
from coordinator.state.znode import ZnodeRecord
from coordinator.state.znode_changes import fields_of

PATHS = [f"/folder/{number}" for number in range(1_000, 1_100)]


def machine() -> StateMachine:
    made = StateMachine()
    folder = Command(Create("/folder"), 1_000_000)
    znodes = Command(Multi(tuple([Create(path, b"data") for path in PATHS])), 2_000_000)
    for index, command in enumerate((folder, znodes), 1):
        assert made.apply(command, index, 1).refusal is None
    return made


def record(of: StateMachine, path: str) -> ZnodeRecord:
    found = of._tree.find(path)
    assert found is not None
    return found


def test_of_plain_znodes_only_what_differs_is_kept() -> None:
    """Also after a restart: their numbers are the same objects, and they have no other parts."""
    made, restored = machine(), StateMachine()
    restored.restore(made.snapshot())
    for each in (made, restored):
        first = record(each, PATHS[0])
        for path in PATHS[1:]:
            znode = record(each, path)
            assert znode.czxid is first.czxid
            assert znode.ctime_ms is first.ctime_ms
            assert (znode.writes, znode.family, znode.tenure) == (None, None, None)
    assert restored.digest() == made.digest()


def test_a_restored_znode_is_the_same_whatever_became_of_it() -> None:
    """Field by field: one written, one that had a child, one that expires, one made persistent."""
    made, restored = machine(), StateMachine()
    changes = [
        Multi((Create("/written"), SetData("/written", b"at once"))),
        SetData(PATHS[0], b"later"),
        Create(f"{PATHS[1]}/child"),
        Delete(f"{PATHS[1]}/child"),
        Create("/ttl", mode=CreateMode.TTL, ttl_ms=5_000),
        Create("/container", mode=CreateMode.CONTAINER),
        Create("/container/n-", mode=CreateMode.PERSISTENT_SEQUENTIAL),
    ]
    for index, each in enumerate(changes, 3):
        assert made.apply(Command(each, 3_000_000 + index), index, 1).refusal is None
    restored.restore(made.snapshot())
    paths = ["/", "/written", PATHS[0], PATHS[1], "/ttl", "/container", "/container/n-0000000000"]
    for path in paths:
        assert record(restored, path) == record(made, path)
    assert [fields_of(record(made, path))[6:10] for path in paths] == [
        (0, 4, 4, 0), (1, 0, 0, 0), (1, 0, 0, 0), (0, 2, 0, 0), (0, 0, 0, 0), (0, 1, 1, 1),
        (0, 0, 0, 0),
    ]  # fmt: skip


def test_a_row_is_a_znode_as_its_shape_says() -> None:
    """Each value in turn of each type, and one value more or fewer."""
    plain = ("/a", b"", *(1,) * 9, "persistent", None, None, "")
    rows = [plain, plain[:-1], (*plain, "")]
    for at in range(len(plain)):
        rows += [(*plain[:at], each, *plain[at + 1 :]) for each in ("", b"", 1, True, None, ())]
    for row in rows:
        try:
            znode_rows._read(row)
        except ValueError:
            assert not znode_rows._is_znode(row), row
        else:
            assert znode_rows._is_znode(row), row
