"""Large parents and long queues: correct at size, and one departure touches few znodes."""

from __future__ import annotations

from coordinator.state.commands import Command, Create, CreateMode, Delete, OpenSession, Release
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Created


def test_a_thousand_contenders_leave_in_any_order() -> None:
    """1 000 contenders under one lock: each leaves with one event, the others keep their order."""
    machine = StateMachine()
    machine.apply(Command(OpenSession("s1", 5000), 0), 1, 1)
    acquire = Create(
        "/locks/a/lock-",
        data=b"",
        mode=CreateMode.EPHEMERAL_SEQUENTIAL,
        session_id="s1",
        ttl_ms=None,
        parents=CreateMode.CONTAINER,
    )
    grants = []
    for index in range(1000):
        outcome = machine.apply(Command(acquire, 0), index + 2, 1)
        assert isinstance(outcome.result, Created)
        grants.append(outcome.result)
    tokens = [each.stat.czxid for each in grants]
    assert tokens == sorted(set(tokens))

    leaving = grants[::7] + grants[3::7]
    for each in leaving:
        outcome = machine.apply(Command(Release(each.path, each.stat.czxid), 0), 2000, 1)

        assert [event.path for event in outcome.events] == [each.path]

    gone = {each.path for each in leaving}
    expected = [each.path.rpartition("/")[2] for each in grants if each.path not in gone]
    assert machine.children("/locks/a") == expected


def test_pages_walk_a_large_parent() -> None:
    """Paging through children, while some come and go, never repeats or skips one that stays."""
    machine = StateMachine()
    machine.apply(Command(Create("/big"), 0), 1, 1)
    for number in range(2000):
        machine.apply(Command(Create(f"/big/{number * 7919 % 2000:04d}"), 0), 2, 1)

    seen: list[str] = []
    after = None
    while page := machine.children("/big", after, 100):
        seen += page
        after = page[-1]
        machine.apply(Command(Delete(f"/big/{page[0]}"), 0), 3, 1)

    assert seen == [f"{number:04d}" for number in range(2000)]
    stat = machine.stat("/big")
    assert stat is not None
    assert stat.num_children == 1980
    assert machine.children("/big", "1999") == []


def test_a_large_subtree_goes_in_one_command() -> None:
    """A recursive delete of 5 000 znodes is one zxid, children before parents."""
    machine = StateMachine()
    for number in range(5000):
        path = f"/t/{number % 50}/{number}"
        machine.apply(Command(Create(path, parents=CreateMode.PERSISTENT), 0), 1, 1)
    zxid = machine.zxid

    outcome = machine.apply(Command(Delete("/t", is_recursive=True), 0), 2, 1)

    assert machine.zxid == zxid + 1
    assert machine.znode_count == 1
    assert (machine.data_bytes, machine.children("/")) == (0, [])
    paths = [event.path for event in outcome.events]
    assert len(paths) == 5051
    position = {path: at for at, path in enumerate(paths)}
    assert all(position[path] < position[path.rpartition("/")[0]] for path in paths[:-1])
