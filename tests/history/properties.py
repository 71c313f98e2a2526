"""Checks of event logs that need no search: each takes values and returns the violations.

An empty list means that the log does not contradict the promise. Events are looked at by their
attributes only, so the service's own ``Change`` and ``Event`` fit, and so do those of a test.
Locks are in ``queues``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.history.operations import Operation

CREATED = "NodeCreated"
DELETED = "NodeDeleted"
DATA_CHANGED = "NodeDataChanged"
_READS = frozenset({"read", "stale_read", "query"})


class ZnodeEvent(Protocol):
    """What happened to one znode; ``type`` is one of the names above."""

    @property
    def type(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def czxid(self) -> int: ...
    @property
    def ephemeral_owner(self) -> str | None: ...


class StoreChange(Protocol):
    """Everything one command changed, under its zxid."""

    @property
    def zxid(self) -> int: ...
    @property
    def events(self) -> Sequence[ZnodeEvent]: ...


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken, and by what."""

    promise: str
    message: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.message}"


# --- writes


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """A client was told that this event happened at ``zxid``, in answer to ``request``."""

    request: tuple[str, int]
    zxid: int
    type: str
    path: str
    version: int | None = None


def acknowledged_writes_are_kept(
    acknowledgements: Iterable[Acknowledgement], changes: Iterable[StoreChange]
) -> list[Violation]:
    """Each acknowledged write is in the list of changes that survived, and is one request's own."""
    promise = "no acknowledged write is lost"
    by_zxid = {change.zxid: change for change in changes}
    owners: dict[tuple[int, str, str], tuple[str, int]] = {}
    violations = []
    for ack in acknowledgements:
        change = by_zxid.get(ack.zxid)
        if change is None:
            violations.append(Violation(promise, f"nothing is known of zxid {ack.zxid}: {ack}"))
            continue
        events = [e for e in change.events if e.type == ack.type and e.path == ack.path]
        if not any(ack.version in (None, event.version) for event in events):
            violations.append(Violation(promise, f"{ack} is not among {tuple(change.events)}"))
        owner = owners.setdefault((ack.zxid, ack.type, ack.path), ack.request)
        if owner != ack.request:
            violations.append(Violation(promise, f"{ack} was the write of {owner} already"))
    return violations


def requests_are_applied_once(
    applied: Iterable[tuple[str, int, int]],
) -> list[Violation]:
    """No (client id, request number) changed something at two zxids. Items end with the zxid."""
    first: dict[tuple[str, int], int] = {}
    violations = []
    for client_id, number, zxid in applied:
        before = first.setdefault((client_id, number), zxid)
        if before != zxid:
            message = f"request {number} of {client_id} at zxid {before} and again at {zxid}"
            violations.append(Violation("each request is applied once", message))
    return violations


@dataclass(frozen=True, slots=True)
class Numbered:
    """A sequential znode: its parent, its number, the zxid of its creation."""

    parent: str
    number: int
    zxid: int


def sequence_numbers_grow(created: Iterable[Numbered]) -> list[Violation]:
    """In the order of zxids, the numbers under one parent grow; so none is given twice."""
    latest: dict[str, Numbered] = {}
    violations = []
    for one in sorted(created, key=lambda one: (one.zxid, one.number)):
        before = latest.get(one.parent)
        if before is not None and one.number <= before.number:
            message = f"{one} after {before}"
            violations.append(Violation("sequence numbers are unique and grow", message))
        latest[one.parent] = one
    return violations


# --- reads


def _is_change(operation: Operation) -> bool:
    return operation.kind not in _READS and operation.error is None


def zxids_follow_real_time(operations: Iterable[Operation]) -> list[Violation]:
    """What was asked after an answer had arrived is not older than that answer, for all clients.

    Looks at every answer with a ``zxid`` but those of stale reads; a change must be newer. This
    holds across keys, which the search, key by key, does not see.
    """
    return _going_back(
        [o for o in operations if o.kind != "stale_read"],
        "a linearizable answer never goes back",
    )


def clients_never_go_back(operations: Iterable[Operation]) -> list[Violation]:
    """The same for the answers of each client by itself, stale reads included."""
    by_client: dict[str, list[Operation]] = {}
    for operation in operations:
        by_client.setdefault(operation.client, []).append(operation)
    return [
        violation
        for of_client in by_client.values()
        for violation in _going_back(of_client, "a client never goes back")
    ]


def _going_back(operations: Iterable[Operation], promise: str) -> list[Violation]:
    told = [(o.output["zxid"], o) for o in operations if o.output and "zxid" in o.output]
    calls = sorted(told, key=lambda pair: pair[1].called_at)
    returns = sorted(told, key=lambda pair: pair[1].returned_at or 0)
    violations = []
    newest: tuple[int, Operation] | None = None
    position = 0
    for zxid, operation in calls:
        while position < len(returns):
            returned = returns[position]
            if (returned[1].returned_at or 0) >= operation.called_at:
                break
            if newest is None or returned[0] > newest[0]:
                newest = returned
            position += 1
        if newest is not None and zxid < newest[0] + _is_change(operation):
            violations.append(Violation(promise, f"{operation} although before {newest[1]}"))
    return violations


# --- watches


@dataclass(frozen=True, slots=True)
class WatchRun:
    """What one watcher got, in order, over all the streams it resumed.

    ``start_zxid``: it asked for what comes after. ``through_zxid``: it was told (by a bookmark, or
    by having been waited for) that it has everything up to there; None: up to what it got last.
    """

    name: str
    start_zxid: int
    delivered: Sequence[StoreChange]
    matches: Callable[[Any], bool]
    through_zxid: int | None = None


def watch_is_complete(run: WatchRun, changes: Iterable[StoreChange]) -> list[Violation]:
    """The watcher got every matching change once, in order, the events of one zxid together."""
    promise = f"watch {run.name} is complete and in order"
    expected = {
        change.zxid: events
        for change in changes
        if change.zxid > run.start_zxid
        and (events := [event for event in change.events if run.matches(event)])
    }
    violations = []
    last_zxid = run.start_zxid
    got: set[int] = set()
    for delivery in run.delivered:
        zxid = delivery.zxid
        if zxid in got:
            violations.append(Violation(promise, f"zxid {zxid} came twice, or in parts"))
        elif zxid <= last_zxid:
            violations.append(Violation(promise, f"zxid {zxid} came after {last_zxid}"))
        elif zxid not in expected:
            violations.append(Violation(promise, f"zxid {zxid} is no change it asked for"))
        elif list(delivery.events) != expected[zxid]:
            found = list(delivery.events)
            message = f"zxid {zxid}: expected {expected[zxid]}, found {found}"
            violations.append(Violation(promise, message))
        got.add(zxid)
        last_zxid = max(last_zxid, zxid)
    through = last_zxid if run.through_zxid is None else max(last_zxid, run.through_zxid)
    missing = sorted(zxid for zxid in expected if zxid <= through and zxid not in got)
    if missing:
        violations.append(Violation(promise, f"zxids {missing} up to {through} did not come"))
    return violations


# --- sessions


@dataclass(frozen=True, slots=True)
class SessionMark:
    """A session was opened, or has ended, at ``zxid``."""

    zxid: int
    session_id: str
    is_end: bool


def ephemerals_follow_sessions(
    changes: Iterable[StoreChange],
    marks: Iterable[SessionMark],
    explicit_deletes: Collection[tuple[int, str]],
) -> list[Violation]:
    """Ephemerals vanish at the zxid at which their session ends, and never before.

    ``explicit_deletes`` are the (zxid, path) that somebody asked to delete.
    """
    promise = "ephemerals live as long as their session"
    starts: dict[str, int] = {}
    ends: dict[str, int] = {}
    for mark in marks:
        (ends if mark.is_end else starts)[mark.session_id] = mark.zxid
    alive: dict[str, tuple[int, str]] = {}
    messages = []
    for change in sorted(changes, key=lambda change: change.zxid):
        zxid = change.zxid
        for event in change.events:
            owner = event.ephemeral_owner
            if owner is None:
                continue
            if event.type == CREATED:
                alive[event.path] = (zxid, owner)
                is_open = owner in starts and starts[owner] <= zxid
                if not is_open or zxid >= ends.get(owner, zxid + 1):
                    messages.append(f"{event.path}, created at zxid {zxid}: {owner} was not open")
            elif event.type == DELETED:
                alive.pop(event.path, None)
                if ends.get(owner) != zxid and (zxid, event.path) not in explicit_deletes:
                    messages.append(f"{event.path} of {owner} vanished at zxid {zxid} by itself")
    messages += [
        f"{path}, created at zxid {zxid}, outlived {owner}, ended at zxid {ends[owner]}"
        for path, (zxid, owner) in alive.items()
        if owner in ends
    ]
    return [Violation(promise, message) for message in messages]


@dataclass(frozen=True, slots=True)
class Belief:
    """A client was told that its session lives, and may rely on it until ``until_ms``.

    Times are true ones, of no member's clock: a client whose clock runs fast believes longer.
    """

    session_id: str
    until_ms: float


def leases_are_kept(
    beliefs: Iterable[Belief], expiries: Iterable[tuple[str, float]]
) -> list[Violation]:
    """No session is ended by the service, at a true time in ms, while its client may rely on it.

    ``expiries`` are (session id, time); a session that its client closed is not among them.
    """
    until: dict[str, float] = {}
    for belief in beliefs:
        until[belief.session_id] = max(belief.until_ms, until.get(belief.session_id, 0.0))
    return [
        Violation(
            "no session ends before its lease",
            f"{session_id} ended at {ended_ms} ms, its client relies on it until "
            f"{until[session_id]} ms",
        )
        for session_id, ended_ms in expiries
        if ended_ms < until.get(session_id, ended_ms)
    ]


# --- members


def digests_agree(reports: Iterable[tuple[str, int, str]]) -> list[Violation]:
    """Members with equal applied index have equal digests. Items: member, index, digest."""
    first: dict[int, tuple[str, str]] = {}
    violations = []
    for member, index, digest in reports:
        other, expected = first.setdefault(index, (member, digest))
        if digest != expected:
            message = f"at index {index}: {other} has {expected}, {member} has {digest}"
            violations.append(Violation("members agree", message))
    return violations
