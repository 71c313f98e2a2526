"""Operations on a znode and their answers, as actions; and what follows from all of them together.

1. A value that one operation alone can have written, and that was read, proves that the operation
   took effect before that read returned, and the Stat that was read with it is its own.
2. A value that nobody read is like any other such value; so unknown writes nobody saw are alike.
3. Zxids order what carries them: ``_ranks`` says how.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from tests.history.operations import Operation
from tests.history.specification import BEGINNING, FOREVER, Entry

ANY_VERSION = -1
ABSENT_ERROR = "NoNode"
_ERRORS = {
    "create": frozenset({"NodeExists"}),
    "read": frozenset({"NoNode"}),
    "stale_read": frozenset({"NoNode"}),
    "set": frozenset({"NoNode", "BadVersion"}),
    "delete": frozenset({"NoNode", "BadVersion", "NotEmpty"}),
}
_WRITES = frozenset({"create", "set", "delete"})


class _Token:
    """A value that equals only itself."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


UNSEEN = _Token("a value nobody read")
UNSAID = _Token("unsaid")


class Action(NamedTuple):
    """An operation with its answer, ready for ``step``. None: not said."""

    kind: str
    value: Any = UNSAID
    expected_version: int = ANY_VERSION
    expected_czxid: int | None = None
    error: str | None = None
    version: int | None = None
    czxid: int | None = None
    mzxid: int | None = None
    zxid: int | None = None


def to_action(operation: Operation) -> Action | None:
    kind = operation.kind
    known_errors = _ERRORS.get(kind)
    if known_errors is None:
        raise ValueError(f"expected one of {sorted(_ERRORS)}, found {operation}")
    error = operation.error
    is_read = kind not in _WRITES
    if (operation.is_unknown and is_read) or (error is not None and error not in known_errors):
        return None
    asked = operation.input
    told = operation.output or {}
    version, czxid, mzxid, zxid = (
        _integer(operation, told, name) for name in ("version", "czxid", "mzxid", "zxid")
    )
    if error is None and not is_read:
        # A change has one zxid; whatever of it was told must agree, else no state fits.
        facts = {fact for fact in (mzxid, zxid) if fact is not None}
        if kind == "create" and czxid is not None:
            facts.add(czxid)
        if len(facts) > 1:
            return Action("impossible")
        zxid = mzxid = facts.pop() if facts else None
        if kind == "create":
            czxid = zxid
    if is_read:
        value = _canonical(told["value"]) if "value" in told else UNSAID
    elif kind != "delete":
        if "value" not in asked:
            raise ValueError(f"expected a value to write: {operation}")
        value = _canonical(asked["value"])
    else:
        value = UNSAID
    expected_version = _integer(operation, asked, "expected_version")
    return Action(
        kind="read" if is_read else kind,
        value=value,
        expected_version=ANY_VERSION if expected_version is None else expected_version,
        expected_czxid=_integer(operation, asked, "expected_czxid"),
        error=error,
        version=version,
        czxid=czxid,
        mzxid=mzxid,
        zxid=zxid,
    )


def _integer(operation: Operation, facts: Any, name: str) -> int | None:
    found = facts.get(name)
    if found is not None and type(found) is not int:
        raise ValueError(f"{name}: expected an integer: {operation}")
    return found


def _canonical(value: Any) -> Hashable:
    """Return something that is equal only for equal values of equal type."""
    if type(value) is str:
        return value
    return ("json", json.dumps(value, sort_keys=True))


# --- all operations of a znode together


class _Seen(NamedTuple):
    """What the reads of one value told: when the first of them was over, and its writer's Stat."""

    by: int
    version: int | None
    czxid: int | None
    mzxid: int | None


def infer(operations: Sequence[Operation]) -> list[Entry]:
    pairs = [
        (operation, action)
        for operation in operations
        if (action := to_action(operation)) is not None
    ]
    seen = _seen_values(pairs)
    writer_counts = Counter(action.value for _, action in pairs if _is_writer(action))
    told: list[tuple[Operation, Action, int]] = []
    for operation, action in pairs:
        returned_at = FOREVER if operation.returned_at is None else operation.returned_at
        if _is_writer(action):
            reads = seen.get(action.value)
            if reads is None:
                action = action._replace(value=UNSEEN)
            elif writer_counts[action.value] == 1 and reads.by >= operation.called_at:
                returned_at = min(returned_at, reads.by)
                action = _with_stat(action, reads)
        told.append((operation, action, returned_at))
    ranks = _ranks([None if until == FOREVER else action for _, action, until in told])
    return [
        _entry(operation, action, until, rank)
        for (operation, action, until), rank in zip(told, ranks, strict=True)
    ]


def _is_writer(action: Action) -> bool:
    return action.error is None and action.kind in ("create", "set")


def _seen_values(pairs: Sequence[tuple[Operation, Action]]) -> dict[Hashable, _Seen]:
    seen: dict[Hashable, _Seen] = {}
    for operation, action in pairs:
        if action.kind != "read" or action.error is not None or action.value is UNSAID:
            continue
        assert operation.returned_at is not None, "a read of unknown outcome says nothing"
        old = seen.get(action.value, _Seen(operation.returned_at, None, None, None))
        seen[action.value] = _Seen(
            min(old.by, operation.returned_at),
            action.version if old.version is None else old.version,
            action.czxid if old.czxid is None else old.czxid,
            action.mzxid if old.mzxid is None else old.mzxid,
        )
    return seen


def _with_stat(action: Action, reads: _Seen) -> Action:
    """Return the write with the facts its readers told that it does not tell itself."""
    zxid = action.zxid
    if zxid is None:
        zxid = reads.mzxid
        if zxid is None and action.kind == "create":
            zxid = reads.czxid
    return action._replace(
        zxid=zxid,
        mzxid=zxid,
        czxid=reads.czxid if action.czxid is None else action.czxid,
        version=reads.version if action.version is None else action.version,
    )


def _entry(operation: Operation, action: Action, returned_at: int, rank: int | None) -> Entry:
    called_at = BEGINNING if operation.kind == "stale_read" else operation.called_at
    if returned_at != FOREVER:
        return Entry(operation, action, called_at, returned_at, rank)
    # A conditional write does what the unconditional one does, in fewer states.
    is_narrow = action.expected_version != ANY_VERSION or action.expected_czxid is not None
    return Entry(
        operation, action, called_at, FOREVER,
        group=(action.kind, action.value, action.expected_version, action.expected_czxid),
        breadth=0 if is_narrow else 1,
    )  # fmt: skip


def _ranks(actions: Sequence[Action | None]) -> list[int | None]:
    """Return for each operation that must be placed where its zxid puts it; None: anywhere.

    A write stands at its zxid, what was observed at store zxid z behind the write of z: the store's
    zxid never falls. If some observations lack the store's zxid, a read stands behind the write
    whose mzxid it saw (all of a znode's states that show one mzxid are consecutive), and an
    absence behind the changes below its zxid (no present state lies between those and it).
    """
    is_by_store = all(
        action.zxid is not None
        for action in actions
        if action is not None and not _is_change(action)
    )
    return [None if action is None else _rank(action, is_by_store) for action in actions]


def _is_change(action: Action) -> bool:
    return action.error is None and action.kind != "read"


def _rank(action: Action, is_by_store: bool) -> int | None:
    if _is_change(action):
        return None if action.zxid is None else 2 * action.zxid
    if is_by_store or action.error == ABSENT_ERROR:
        return None if action.zxid is None else 2 * action.zxid + 1
    if action.error is None and action.mzxid is not None:
        return 2 * action.mzxid + 1
    return None
