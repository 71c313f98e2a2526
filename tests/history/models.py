"""What a correct lock, counter, sequence and set are; the znode's own model is in ``register``.

Each docstring names the kinds of operations, what they ask and what they are told. An answer's
facts may be left out. Errors that are not named say nothing: the operation did not happen.
"""

from __future__ import annotations

import json
from collections import Counter as Tally
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.history.operations import Operation
from tests.history.register import Register
from tests.history.specification import FOREVER, Entry, Model, plain_entries


class LockState(NamedTuple):
    """``token_min`` is the holder's token, or the least it can be when nobody was told."""

    owner: str | None
    token_min: int
    is_token_known: bool
    released: frozenset[int]


@dataclass(frozen=True, slots=True)
class Lock:
    """At most one owner at a time; the token of each grant is larger than all before.

    - ``acquire`` ``owner`` -> ``token`` (other errors than NotOwner: it was not granted)
    - ``release`` ``owner token`` -> done, again and again; or NotOwner: not held under that token
    - ``expire`` ``owner``: the owner's session ended, and the lock with it if it was held
    - ``query`` -> ``owner token``, both null when nobody holds
    """

    def init(self) -> LockState:
        return LockState(None, 0, True, frozenset())

    def action(self, operation: Operation) -> Operation | None:
        _expect_kind(operation, "acquire", "release", "expire", "query")
        if operation.is_unknown and operation.kind == "query":
            return None
        is_said = operation.error is None or (
            operation.kind == "release" and operation.error == "NotOwner"
        )
        return operation if is_said else None

    def step(self, state: LockState, action: Operation) -> LockState | None:
        told = action.output or {}
        if action.kind == "query":
            is_owner = told.get("owner", state.owner) == state.owner
            return _with_token(state, told.get("token")) if is_owner else None
        owner = action.input["owner"]
        if action.kind == "acquire":
            token = told.get("token")
            if state.owner is not None or (token is not None and token <= state.token_min):
                return None
            least = state.token_min + 1 if token is None else token
            return LockState(owner, least, token is not None, state.released)
        token = action.input.get("token")
        held = _with_token(state, token) if state.owner == owner else None
        if action.kind == "expire":
            return state if held is None else held._replace(owner=None)
        if action.error is not None:
            is_surely_held = held is not None and (token is None or state.is_token_known)
            return None if is_surely_held else state
        if held is None:
            return state if token in state.released else None
        released = state.released if token is None else state.released | {token}
        return held._replace(owner=None, released=released)

    def is_observation(self, action: Operation) -> bool:
        return action.kind == "query" or action.error is not None

    def prepare(self, operations: Sequence[Operation]) -> list[Entry]:
        return [self._placed(entry) for entry in plain_entries(self, operations)]

    def _placed(self, entry: Entry) -> Entry:
        operation = entry.operation
        if entry.group is not None:
            asked = json.dumps(dict(operation.input), sort_keys=True)
            return entry._replace(group=(operation.kind, asked))
        if operation.kind == "acquire" and operation.output is not None:
            return entry._replace(rank=operation.output.get("token"))
        return entry

    def split(self, state: LockState) -> tuple[Hashable, tuple[int, ...]]:
        return state, ()

    def is_futile(
        self, state: Any, due: Sequence[Any], optional: Sequence[Any], rank_due: int | None
    ) -> bool:
        return rank_due is not None and state.token_min > rank_due


def _with_token(state: LockState, token: int | None) -> LockState | None:
    if token is None or state.owner is None:
        return state if token is None else None
    if token < state.token_min or (state.is_token_known and token != state.token_min):
        return None
    return state._replace(token_min=token, is_token_known=True)


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that starts at 0. ``add`` ``delta`` -> ``value`` after it; ``read`` -> ``value``."""

    def init(self) -> int:
        return 0

    def action(self, operation: Operation) -> Operation | None:
        _expect_kind(operation, "add", "read")
        if operation.error is not None or (operation.is_unknown and operation.kind == "read"):
            return None
        return operation

    def step(self, state: int, action: Operation) -> int | None:
        after = state + action.input["delta"] if action.kind == "add" else state
        told = action.output or {}
        return after if told.get("value", after) == after else None

    def is_observation(self, action: Operation) -> bool:
        return action.kind == "read"

    def prepare(self, operations: Sequence[Operation]) -> list[Entry]:
        return [
            entry if entry.group is None else entry._replace(group=entry.action.input["delta"])
            for entry in plain_entries(self, operations)
        ]

    def split(self, state: int) -> tuple[Hashable, tuple[int, ...]]:
        return state, ()

    def is_futile(
        self, state: Any, due: Sequence[Any], optional: Sequence[Any], rank_due: int | None
    ) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class NumberSequence:
    """Numbers given out, each larger than all before. ``next`` -> ``number``.

    ``is_gapless``: none is left out but those that an unknown ``next`` may have taken.
    """

    is_gapless: bool = False
    first: int = 0

    def init(self) -> int:
        return self.first - 1

    def action(self, operation: Operation) -> Operation | None:
        _expect_kind(operation, "next")
        is_silent = operation.error is not None or (operation.is_unknown and not self.is_gapless)
        return None if is_silent else operation

    def step(self, state: int, action: Operation) -> int | None:
        number = (action.output or {}).get("number", state + 1)
        is_fine = number == state + 1 if self.is_gapless else number > state
        return number if is_fine else None

    def is_observation(self, action: Operation) -> bool:
        return False

    def prepare(self, operations: Sequence[Operation]) -> list[Entry]:
        return [
            entry._replace(rank=(entry.operation.output or {}).get("number"))
            if entry.group is None
            else entry._replace(group="next")
            for entry in plain_entries(self, operations)
        ]

    def split(self, state: int) -> tuple[Hashable, tuple[int, ...]]:
        return state, ()

    def is_futile(
        self, state: Any, due: Sequence[Any], optional: Sequence[Any], rank_due: int | None
    ) -> bool:
        return rank_due is not None and state >= rank_due


class GrowingSet:
    """A set that only grows. ``add`` ``element`` -> done; ``read`` -> ``elements``, each once.

    A state is a number with one bit for each element; the numbering is the instance's own.
    """

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}

    def init(self) -> int:
        return 0

    def action(self, operation: Operation) -> tuple[str, int] | None:
        _expect_kind(operation, "add", "read")
        if operation.error is not None:
            return None
        if operation.kind == "add":
            return ("add", self._bit(operation.input["element"]))
        if operation.output is None:
            return None
        elements = operation.output["elements"]
        mask = 0
        for element in elements:
            mask |= self._bit(element)
        return ("read", mask) if mask.bit_count() == len(elements) else ("impossible", 0)

    def _bit(self, element: Any) -> int:
        number = self._bits.setdefault(json.dumps(element, sort_keys=True), len(self._bits))
        return 1 << number

    def step(self, state: int, action: tuple[str, int]) -> int | None:
        kind, mask = action
        if kind == "add":
            return state | mask
        return state if kind == "read" and state == mask else None

    def is_observation(self, action: tuple[str, int]) -> bool:
        return action[0] == "read"

    def prepare(self, operations: Sequence[Operation]) -> list[Entry]:
        """Use that reads are ordered by size, and that each element enters before the smallest
        read that has it, and behind all reads that have it not (if it is added only once)."""
        entries = plain_entries(self, operations)
        seen = _smallest_reads(entries)
        adders = Tally(entry.action[1] for entry in entries if entry.action[0] == "add")
        ranked: list[tuple[Entry, tuple[int, int] | None]] = []
        for entry in entries:
            kind, mask = entry.action
            if kind != "add":
                ranked.append((entry, (2 * mask.bit_count(), 0)))
                continue
            by, size = seen.get(mask, (FOREVER, len(entries) + 1))
            if adders[mask] > 1:
                group = entry.group and ("add", mask)
                ranked.append((entry._replace(group=group), None))
                continue
            if entry.group is not None:
                if by == FOREVER:
                    continue
                if by < entry.called_at:
                    ranked.append((entry, None))
                    continue
                entry = entry._replace(group=None, returned_at=by)
            ranked.append((entry, (2 * size - 1, entry.called_at)))
        order = {key: n for n, key in enumerate(sorted({k for _, k in ranked if k is not None}))}
        return [entry if key is None else entry._replace(rank=order[key]) for entry, key in ranked]

    def split(self, state: int) -> tuple[Hashable, tuple[int, ...]]:
        return state, ()

    def is_futile(
        self, state: Any, due: Sequence[Any], optional: Sequence[Any], rank_due: int | None
    ) -> bool:
        return False


def _smallest_reads(entries: Sequence[Entry]) -> dict[int, tuple[int, int]]:
    """Return for each element read when the first read of it was over, and the least size."""
    seen: dict[int, tuple[int, int]] = {}
    before = 0
    reads = sorted(
        (entry.action[1].bit_count(), entry.returned_at, entry.action[1])
        for entry in entries
        if entry.action[0] == "read"
    )
    for size, _, mask in reads:
        for bit in _bits_of(mask & ~before):
            seen[bit] = (FOREVER, size)
        before |= mask
    before = 0
    for returned_at, mask in sorted((returned_at, mask) for _, returned_at, mask in reads):
        for bit in _bits_of(mask & ~before):
            seen[bit] = (returned_at, seen[bit][1])
        before |= mask
    return seen


def _bits_of(mask: int) -> list[int]:
    bits = []
    while mask:
        low = mask & -mask
        bits.append(low)
        mask ^= low
    return bits


def _expect_kind(operation: Operation, *kinds: str) -> None:
    if operation.kind not in kinds:
        raise ValueError(f"expected one of {', '.join(kinds)}, found {operation}")


MODELS: Mapping[str, Callable[[], Model]] = {
    "register": Register,
    "lock": Lock,
    "counter": Counter,
    "sequence": NumberSequence,
    "set": GrowingSet,
}
