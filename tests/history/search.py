"""The search for a legal order of the operations of one key.

Wing & Gong's search with Lowe's memo of configurations ("Testing for linearizability", 2017), each
key on its own (linearizability is local: Herlihy & Wing 1990, theorem 1), in the style of
porcupine. No recursion. What is added here, and why an answer stays right:

1. *Optional operations* (unknown outcomes whose effect nobody saw) may be placed after their call,
   or never. Those of one ``group`` are interchangeable, so only their count is kept, and the
   earliest called is taken first. They are tried where nothing else fits, fewest first.
2. *Dominance*: a configuration is dropped if one at the same place, in the same state (or one that
   allows more, see ``Model.split``) has used no more of each group. Optional operations
   need not be used, so having more of them left is never worse.
3. *Breadth*: of two optional operations with the same effect here, one usable only in some states
   and one usable in all of those too, the narrower is spent.
4. *Observations first*: an operation that changes nothing in any state, is due and tells nothing
   new here can be moved to the front of any legal order, so nothing else is tried. (One that
   only here changes nothing can not: it may be needed later, where it does.)
5. *Ranks*: a model may say that, if there is a legal order at all, there is one in which the ranks
   do not fall. It says so for observed zxids, tokens and numbers.
6. "ok" is certified: the order found is replayed against the operations as recorded, without any
   of the model's rewriting. So a mistake in 1 to 5 can at worst make a good history look bad; the
   property test against a brute-force oracle is there for that.
7. A budget that runs out gives "undecided", never "ok".
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from tests.history.operations import Operation
from tests.history.specification import FOREVER, Entry, Model

STEPS_MAX = 20_000_000
_LOOK_AT_THE_CLOCK_EVERY = 1_024


class Verdict(StrEnum):
    """What is known of a history."""

    OK = "ok"
    NOT_LINEARIZABLE = "not linearizable"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Budget:
    """When to give up: steps of the model for each key, seconds for all of them (None: never)."""

    steps_max: int = STEPS_MAX
    seconds_max: float | None = None


class _Node:
    """A configuration: which operations are placed, and the state after them.

    All before ``base`` are placed and ``base`` is not; bit i of ``mask`` stands for ``base + i``.
    ``used`` packs one counter for each group. ``choice`` is the entry that was placed last.
    """

    __slots__ = (
        "base", "choice", "is_expanded", "limit", "mask", "parent", "placed", "ranked",
        "state", "used",
    )  # fmt: skip

    def __init__(self, base: int, mask: int, used: int, state: Any) -> None:
        self.base = base
        self.mask = mask
        self.used = used
        self.state = state
        self.placed = 0
        self.ranked = 0
        self.limit = FOREVER
        self.is_expanded = False
        self.parent: _Node | None = None
        self.choice: Entry | None = None


class _Group(NamedTuple):
    """Interchangeable optional operations by call, and where ``used`` counts them."""

    members: list[Entry]
    breadth: int
    shift: int
    mask: int


def _grouped(entries: Iterable[Entry]) -> tuple[list[_Group], int]:
    """Return the groups, narrow ones first, and a bit above each of their counters."""
    found: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        if entry.group is not None:
            found.setdefault(entry.group, []).append(entry)
    members = sorted(found.values(), key=lambda group: group[0].breadth)
    width = max((len(group) for group in members), default=0).bit_length() + 1
    groups = []
    guard = 0
    for number, group in enumerate(members):
        group.sort(key=lambda entry: entry.called_at)
        shift = number * width
        groups.append(_Group(group, group[0].breadth, shift, (1 << (width - 1)) - 1))
        guard |= 1 << (shift + width - 1)
    return groups, guard


def _out_of_rank(required: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return two operations of which the one of higher rank was over before the other was called.

    No order fits then. Returns nothing when there are no such two.
    """
    ranked = sorted(
        (entry for entry in required if entry.rank is not None),
        key=lambda entry: (entry.rank, entry.called_at),
    )
    latest: Entry | None = None  # the latest called of those of lower rank
    latest_with_rank: Entry | None = None
    rank_now: int | None = None
    for entry in ranked:
        if entry.rank != rank_now:
            rank_now = entry.rank
            latest = latest_with_rank
        if latest is not None and entry.returned_at < latest.called_at:
            return entry, latest
        if latest_with_rank is None or entry.called_at > latest_with_rank.called_at:
            latest_with_rank = entry
    return ()


def _is_at_most(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return left == right or all(a <= b for a, b in zip(left, right, strict=True))


class Search:
    """One search over the entries of one key; ``run`` it once."""

    def __init__(self, model: Model, entries: Sequence[Entry], budget: Budget) -> None:
        self._model = model
        self._budget = budget
        required = [entry for entry in entries if entry.group is None]
        required.sort(key=lambda entry: (entry.called_at, entry.returned_at))
        self._required = required
        self._calls = [entry.called_at for entry in required]
        self._returns = [entry.returned_at for entry in required]
        self._observations = [model.is_observation(entry.action) for entry in required]
        self._ranks = sorted(entry.rank for entry in required if entry.rank is not None)
        self._groups, self._guard = _grouped(entries)
        self._memo: dict[Hashable, list[tuple[int, tuple[int, ...]]]] = {}
        # Configurations to expand, by how many required operations they have placed. The most
        # advanced come first; within a level, those with the fewest optional operations.
        self._levels: list[deque[_Node]] = [deque() for _ in range(len(required) + 1)]
        self._top = 0
        self.steps = 0
        self.best = _Node(0, 0, 0, model.init())
        self._out_of_rank: tuple[Entry, ...] = ()

    def run(self) -> Verdict:
        started = time.monotonic()
        seconds_max = self._budget.seconds_max
        count = 0
        self._out_of_rank = _out_of_rank(self._required)
        if self._out_of_rank:
            return Verdict.NOT_LINEARIZABLE
        self._push(self.best)
        while self._top >= 0:
            level = self._levels[self._top]
            if not level:
                self._top -= 1
                continue
            if self._top == len(self._required):
                self.best = level[0]
                return Verdict.OK
            node = level.popleft()
            if node.is_expanded:
                self._expand_optional(node)
            else:
                self._expand_required(node)
            count += 1
            if self.steps > self._budget.steps_max or (
                seconds_max is not None
                and count % _LOOK_AT_THE_CLOCK_EVERY == 0
                and time.monotonic() - started > seconds_max
            ):
                return Verdict.UNDECIDED
        return Verdict.NOT_LINEARIZABLE

    def order(self) -> list[Entry]:
        """Return the entries placed on the way to the most advanced configuration."""
        order: list[Entry] = []
        node: _Node | None = self.best
        while node is not None:
            if node.choice is not None:
                order.append(node.choice)
            node = node.parent
        order.reverse()
        return order

    def unplaced(self) -> tuple[Operation, ...]:
        """Return the operations one of which had to come next."""
        if self._out_of_rank:
            return tuple(entry.operation for entry in self._out_of_rank)
        return tuple(self._required[index].operation for index in self._due(self.best))

    def _due(self, node: _Node) -> list[int]:
        """Return the required operations that were called before any unplaced one returned."""
        calls = self._calls
        returns = self._returns
        count = len(calls)
        due = []
        limit = FOREVER
        index = node.base
        rest = node.mask
        while index < count:
            if rest & 1:
                run = (~rest & (rest + 1)).bit_length() - 1
                index += run
                rest >>= run
                continue
            if calls[index] > limit:
                break
            if returns[index] < limit:
                limit = returns[index]
            due.append(index)
            index += 1
            rest >>= 1
        node.limit = limit
        return due

    def _rank_due(self, node: _Node) -> int | None:
        return self._ranks[node.ranked] if node.ranked < len(self._ranks) else None

    def _expand_required(self, node: _Node) -> None:
        due = self._due(node)
        if len(due) > 1:
            due.sort(key=self._returns.__getitem__)
        rank_due = self._rank_due(node)
        step = self._model.step
        state = node.state
        children = []
        for index in due:
            entry = self._required[index]
            if entry.rank is not None and entry.rank != rank_due:
                continue
            self.steps += 1
            after = step(state, entry.action)
            if after is None:
                continue
            child = self._child_required(node, index, after)
            if after == state and self._observations[index]:
                self._push(child)
                return
            children.append(child)
        for child in children:
            self._push(child)
        if self._groups:
            node.is_expanded = True
            self._levels[node.placed].append(node)

    def _child_required(self, node: _Node, index: int, state: Any) -> _Node:
        base = node.base
        mask = node.mask | 1 << (index - base)
        if mask & 1:
            run = (~mask & (mask + 1)).bit_length() - 1
            base += run
            mask >>= run
        child = _Node(base, mask, node.used, state)
        child.placed = node.placed + 1
        entry = self._required[index]
        child.ranked = node.ranked + (entry.rank is not None)
        child.parent = node
        child.choice = entry
        return child

    def _expand_optional(self, node: _Node) -> None:
        step = self._model.step
        state = node.state
        rank_due = self._rank_due(node)
        due = [
            entry.action
            for index in self._due(node)
            if (entry := self._required[index]).rank is None or entry.rank == rank_due
        ]
        if not due:
            return
        available = []
        for group in self._groups:
            used = (node.used >> group.shift) & group.mask
            if used < len(group.members) and group.members[used].called_at <= node.limit:
                available.append((group, group.members[used]))
        optional = [entry.action for _, entry in available]
        breadths: dict[Any, int] = {}
        for group, entry in available:
            self.steps += 1
            after = step(state, entry.action)
            if after is None or after == state:
                continue
            if breadths.setdefault(after, group.breadth) < group.breadth:
                continue
            if self._model.is_futile(after, due, optional, rank_due):
                continue
            child = _Node(node.base, node.mask, node.used + (1 << group.shift), after)
            child.placed = node.placed
            child.ranked = node.ranked
            child.parent = node
            child.choice = entry
            self._push(child)

    def _push(self, node: _Node) -> None:
        shape, slack = self._model.split(node.state)
        key = (node.base, node.mask, shape)
        known = self._memo.get(key)
        if known is None:
            self._memo[key] = [(node.used, slack)]
        else:
            guard = self._guard
            guarded = node.used | guard
            for used, other in known:
                if (guarded - used) & guard == guard and _is_at_most(other, slack):
                    return
            known.append((node.used, slack))
        if node.placed > self.best.placed:
            self.best = node
        self._levels[node.placed].append(node)
        if node.placed > self._top:
            self._top = node.placed
