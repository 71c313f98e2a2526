"""Changes as they are kept for watches that resume: less than their events, and the same again."""

from __future__ import annotations

import itertools

from coordinator.model.events import Change, Event, EventType
from coordinator.service.watches.kept_change import KeptChange
from coordinator.service.watches.watch_history import History, ValuesHistory, events_of, kept_events
from coordinator.state.tree import Values


def event(type_: EventType, path: str, zxid: int, version: int = 0) -> Event:
    return Event(type_, path, version=version, czxid=zxid)


def kept(zxid: int, *events: Event, values: Values = ()) -> KeptChange:
    return KeptChange(zxid, kept_events(zxid, events), wall_ms=0, values=values)


def test_every_event_comes_back_as_it_was() -> None:
    """Whatever distinguishes it from the plain creation, of which only the path is kept."""
    every = tuple(
        Event(type_, path, version=version, czxid=czxid, ephemeral_owner=owner)
        for type_, path, version, czxid, owner in itertools.product(
            EventType, ("/a", "/b/c"), (0, 1), (6, 7), (None, "session")
        )
    )
    for events in (every, *((each,) for each in every)):
        assert events_of(kept(7, *events)) == events

    assert kept(7, event(EventType.CREATED, "/a", 7)).events == ("/a",)


def test_what_a_watch_resumes_with_is_what_was_appended() -> None:
    history = History(changes_max=3, bytes_max=10_000)
    changes = [
        Change(
            zxid,
            (
                event(EventType.CREATED, f"/{zxid}", zxid),
                event(EventType.DATA_CHANGED, f"/{zxid}", zxid, version=1),
            ),
        )
        for zxid in (1, 2, 4, 5)
    ]
    for each in changes:
        history.append(kept(each.zxid, *each.events))

    assert list(history.after(1, 10)) == changes[1:]
    assert list(history.after(2, 2)) == changes[2:3]
    assert history.floor_zxid == 1


def test_equal_events_of_a_change_have_their_own_values() -> None:
    """A request may create a znode, delete it and create it again, with other data."""
    created, deleted = (event(each, "/a", 7) for each in (EventType.CREATED, EventType.DELETED))
    values = (b"1", None, None, b"1", b"2", None)
    history = ValuesHistory(bytes_max=10_000)
    history.append(kept(7, created, deleted, created, values=values))

    found = history.put_into(Change(7, (created, created)), lambda _: True)

    assert [each.data for each in found.events] == [b"1", b"2"]


def test_forgotten_values_take_no_memory_though_their_events_are_kept() -> None:
    """Also when all go at once, because a change has more than is kept."""
    history = ValuesHistory(bytes_max=2_000)
    changes = [
        kept(zxid, event(EventType.CREATED, "/a", zxid), values=(b"x" * size, None))
        for zxid, size in ((1, 500), (2, 500), (3, 500), (4, 5_000))
    ]
    for each in changes[:3]:
        history.append(each)
    assert [len(each.values) for each in changes] == [0, 2, 2, 2]
    assert history.floor_zxid == 1

    history.append(changes[3])

    assert all(each.values == () for each in changes)
    assert (history.floor_zxid, history.bytes_count) == (4, 0)
