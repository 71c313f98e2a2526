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

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.history.operations import Operation
from tests.history.specification import Entry
from tests.history.znode_actions import (
    ABSENT_ERROR,
    ANY_VERSION,
    UNSAID,
    Action,
    infer,
    to_action,
)

_UNBOUNDED = 1 << 60


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


@dataclass(frozen=True, slots=True)
class Register:
    """Znodes that do not exist at first."""

    def init(self) -> State:
        return Absence(0)

    def action(self, operation: Operation) -> Action | None:
        return to_action(operation)

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

    def is_observation(self, action: Action) -> bool:
        return action.kind == "read" or action.error is not None

    def prepare(self, operations: Sequence[Operation]) -> list[Entry]:
        return infer(operations)

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
        if rank_due is not None and 2 * state.zxid >= rank_due:
            return True
        if isinstance(state, Absence) or state.version == 0:
            return False
        # A set too many: whatever is due needs a lower version or no znode. Only a deletion can
        # lead there, and it could have done so one set earlier, unless it waits for this version.
        version = state.version
        return all(_needs_deletion(action, version) for action in due) and not any(
            action.kind == "delete" and action.expected_version >= version for action in optional
        )


def _refused(state: State, action: Action) -> State | None:
    """A refusal changes nothing, and is true only in some states."""
    if action.error == ABSENT_ERROR:
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
    if isinstance(state, Absence):
        if action.kind != "create":
            return None
    else:
        if action.kind not in ("set", "delete"):
            return None
        if action.expected_version not in (ANY_VERSION, state.version):
            return None
        if action.expected_czxid is not None:
            narrowed = _narrowed(state, Action("read", czxid=action.expected_czxid))
            if narrowed is None:
                return None
            state = narrowed
    zxid = action.zxid
    if zxid is None:
        first, last = state.zxid + 1, _UNBOUNDED
    elif zxid > state.zxid:
        first = last = zxid
    else:
        return None
    if isinstance(state, Absence):
        return _narrowed(Znode(action.value, 0, first, last, first, last, first), action)
    if action.kind == "delete":
        return Absence(first)
    # The old mzxid is forgotten. What it said of the czxid is in the bounds of that already.
    after = Znode(
        action.value, state.version + 1, state.czxid_first, state.czxid_last, first, last, first
    )
    return _narrowed(after, action)


def _needs_deletion(action: Action, version: int) -> bool:
    """Say whether the action fits no znode of this or a higher version; False when unsure."""
    if action.error is not None:
        return action.error == ABSENT_ERROR
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
