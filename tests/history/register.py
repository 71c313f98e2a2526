"""The znode as a versioned register: create, read, set and delete, with the facts of its Stat.

Kinds, inputs and outputs (every fact of an output may be left out; what is there must be true):

- ``create`` ``value`` -> ``version czxid mzxid zxid``, or the error NodeExists
- ``read`` (and ``stale_read``: any state up to its return) -> ``value version czxid mzxid zxid``,
  or the error NoNode
- ``set`` ``value expected_version`` -> ``version czxid mzxid zxid``, or NoNode, BadVersion
- ``delete`` ``expected_version expected_czxid`` -> ``zxid``, or NoNode, BadVersion, NotEmpty

``zxid`` is the store's at the moment the operation took effect (of a write: its own). Other
definite errors say nothing. What the service does by itself to a znode (a session's end, reaping)
is recorded as a delete of unknown outcome by a client of its own.

1. Zxids nobody saw are kept as intervals: ``first`` and ``last`` bounds of czxid and mzxid, and the
   lowest zxid the store can be at. The bounds are exact: the version says how many changes lie
   between czxid and mzxid at least, and a change that is forgotten (a set over a set) leaves its
   bound behind. One exception: a refused delete with ``expected_czxid`` of a znode whose czxid
   nobody saw is always believed.
2. A value that one operation alone can have written, and that was read, proves that the operation
   took effect before that read returned, and the Stat that was read with it is its own.
3. A value that nobody read is like any other such value; so unknown writes nobody saw are alike.
4. Zxids order what carries them: ``_ranks`` says how.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.history.checker import BEGINNING, FOREVER, Entry
from tests.history.operations import Operation

ANY_VERSION = -1
_UNBOUNDED = 1 << 60
_ABSENT_ERROR = "NoNode"
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


class Absence(NamedTuple):
    """No znode; the store is at least at ``zxid``."""

    zxid: int

    def __str__(self) -> str:
        return f"no znode, the store at zxid {self.zxid} or later"


class Znode(NamedTuple):
    """A znode whose czxid and mzxid lie between bounds; the store is at least at ``zxid``."""

    value: Any
    version: int
    czxid_first: int
    czxid_last: int
    mzxid_first: int
    mzxid_last: int
    zxid: int

    def __str__(self) -> str:
        czxid = _range(self.czxid_first, self.czxid_last)
        mzxid = _range(self.mzxid_first, self.mzxid_last)
        return (
            f"value={self.value!r} version={self.version} czxid={czxid} mzxid={mzxid}, "
            f"the store at zxid {self.zxid} or later"
        )


def _range(first: int, last: int) -> str:
    if first == last:
        return str(first)
    return f"{first}.." if last >= _UNBOUNDED - (1 << 32) else f"{first}..{last}"


State = Absence | Znode


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


@dataclass(frozen=True, slots=True)
class Register:
    """Znodes that do not exist at first."""

    def init(self) -> State:
        return Absence(0)

    def action(self, operation: Operation) -> Action | None:
        return _action(operation)

    def step(self, state: State, action: Action) -> State | None:
        if action.error is not None:
            return _refused(state, action)
        if action.kind == "read":
            if isinstance(state, Absence):
                return None
            if action.value is not UNSAID and action.value != state.value:
                return None
            return _narrowed(state, action)
        return _written(state, action)

    def prepare(self, operations: Sequence[Operation]) -> list[Entry]:
        return _prepare(operations)

    def split(self, state: State) -> tuple[Hashable, tuple[int, ...]]:
        if isinstance(state, Absence):
            return None, (state.zxid,)
        value, version, czxid_first, czxid_last, mzxid_first, mzxid_last, zxid = state
        return (value, version), (czxid_first, -czxid_last, mzxid_first, -mzxid_last, zxid)

    def is_futile(
        self,
        state: State,
        due: Sequence[Action],
        optional: Sequence[Action],
        rank_due: int | None,
    ) -> bool:
        # The store is beyond the zxid of an operation that is still to come.
        if rank_due is not None and 2 * state.zxid > rank_due:
            return True
        if isinstance(state, Absence) or state.version == 0:
            return False
        # A set too many: whatever is due needs a lower version or no znode. Only a deletion can
        # lead there, and it could have done so one set earlier, unless it waits for this version.
        version = state.version
        return all(_needs_deletion(action, version) for action in due) and not any(
            action.kind == "delete" and action.expected_version >= version for action in optional
        )


# --- one operation


def _action(operation: Operation) -> Action | None:
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


def _refused(state: State, action: Action) -> State | None:
    """A refusal changes nothing, and is true only in some states."""
    if action.error == _ABSENT_ERROR:
        if isinstance(state, Znode):
            return None
        if action.zxid is None:
            return state
        return Absence(action.zxid) if action.zxid >= state.zxid else None
    if isinstance(state, Absence):
        return None
    if action.error == "BadVersion":
        is_version_fine = action.expected_version in (ANY_VERSION, state.version)
        expected_czxid = action.expected_czxid
        is_czxid_fine = expected_czxid is None or (
            state.czxid_first == state.czxid_last == expected_czxid
        )
        if is_version_fine and is_czxid_fine:
            return None
    return _narrowed(state, action)


def _written(state: State, action: Action) -> State | None:
    kind = action.kind
    zxid = action.zxid
    if zxid is None:
        first, last = state.zxid + 1, _UNBOUNDED
    elif zxid > state.zxid:
        first = last = zxid
    else:
        return None
    if isinstance(state, Absence):
        if kind != "create":
            return None
        after = Znode(action.value, 0, first, last, first, last, first)
    else:
        _, version, czxid_first, czxid_last, _, mzxid_last, _ = state
        if action.expected_version not in (ANY_VERSION, version):
            return None
        # What is forgotten now, the znode's mzxid, was below this change and above its creation.
        czxid_last = min(czxid_last, min(mzxid_last, last - 1) - version)
        if action.expected_czxid is not None:
            if not czxid_first <= action.expected_czxid <= czxid_last:
                return None
            czxid_first = czxid_last = action.expected_czxid
        if kind == "delete":
            return Absence(first)
        if kind != "set":
            return None
        after = Znode(action.value, version + 1, czxid_first, czxid_last, first, last, first)
    return _narrowed(after, action)


def _needs_deletion(action: Action, version: int) -> bool:
    """Say whether the action fits no znode of this or a higher version; False when unsure."""
    if action.error is not None:
        return action.error == _ABSENT_ERROR
    if action.kind == "read":
        return action.version is not None and action.version < version
    if action.kind == "set":
        if action.expected_version != ANY_VERSION:
            return action.expected_version < version
        return action.version is not None and action.version <= version
    if action.kind == "delete":
        return -1 < action.expected_version < version
    return True


def _narrowed(state: Znode, action: Action) -> State | None:
    """Return a present znode's state with the facts that were told; None if they contradict it."""
    value, version, czxid_first, czxid_last, mzxid_first, mzxid_last, store_zxid = state
    if action.version is not None and action.version != version:
        return None
    if action.czxid is not None:
        if not czxid_first <= action.czxid <= czxid_last:
            return None
        czxid_first = czxid_last = action.czxid
    if action.mzxid is not None:
        if not mzxid_first <= action.mzxid <= mzxid_last:
            return None
        mzxid_first = mzxid_last = action.mzxid
    if action.zxid is not None:
        if action.zxid < store_zxid:
            return None
        store_zxid = action.zxid
        mzxid_last = min(mzxid_last, store_zxid)
    # mzxid - czxid is at least the number of sets, and nothing when there was none.
    mzxid_first = max(mzxid_first, czxid_first + version)
    czxid_last = min(czxid_last, mzxid_last - version)
    if version == 0:
        czxid_first = max(czxid_first, mzxid_first)
        mzxid_last = min(mzxid_last, czxid_last)
    if czxid_first > czxid_last or mzxid_first > mzxid_last:
        return None
    return Znode(
        value, version, czxid_first, czxid_last, mzxid_first, mzxid_last,
        max(store_zxid, mzxid_first),
    )  # fmt: skip


# --- all operations of a znode together


class _Seen(NamedTuple):
    """What the reads of one value told: when the first of them was over, and its writer's Stat."""

    by: int
    version: int | None
    czxid: int | None
    mzxid: int | None


def _prepare(operations: Sequence[Operation]) -> list[Entry]:
    pairs = [
        (operation, action)
        for operation in operations
        if (action := _action(operation)) is not None
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
    if is_by_store or action.error == _ABSENT_ERROR:
        return None if action.zxid is None else 2 * action.zxid + 1
    if action.error is None and action.mzxid is not None:
        return 2 * action.mzxid + 1
    return None
