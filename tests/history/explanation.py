"""Why a history is not linearizable: the moment it went wrong, and the fewest answers to blame.

Taking an answer away (making its outcome unknown) and cutting off the end never make a linearizable
history bad. So what is still bad with fewer answers and a shorter end is a smaller proof.

1. ``prefix`` and ``culprits``: up to an answer the history is linearizable, with this order; with
   that answer it is not.
2. ``contradiction``: of the answers up to there, few that cannot all be true, whatever the other
   operations were told. None of them can be left out, unless the budget ran out first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.history.checker import Budget, KeyResult, Model, Verdict, check_key
from tests.history.operations import Operation

STEPS_MAX = 8_000_000
_STEPS_OF_ONE_MAX = 2_000_000
_STEPS_OF_MANY_MAX = 100_000
_SHOWN_MAX = 8


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where and why no order fits.

    ``prefix`` is a legal order of the history before ``culprits`` were answered, the longest there
    is; ``state`` is where it ends. ``contradiction`` is empty if the budget did not suffice.
    """

    key: str
    prefix: tuple[Operation, ...]
    culprits: tuple[Operation, ...]
    state: str
    contradiction: tuple[Operation, ...]
    is_minimal: bool

    def __str__(self) -> str:
        lines = [f"key {self.key}: not linearizable"]
        if self.contradiction:
            lines.append("  these answers contradict each other, whatever the others were:")
            lines += [f"    {operation}" for operation in self.contradiction]
            if not self.is_minimal:
                lines.append("    (perhaps fewer would do: the search for them was cut short)")
        lines.append(
            f"  longest linearizable prefix: {len(self.prefix)} operations, in a legal order"
        )
        if len(self.prefix) > _SHOWN_MAX:
            lines.append("    ...")
        lines += [f"    {operation}" for operation in self.prefix[-_SHOWN_MAX:]]
        lines.append(f"  after which the state is {self.state}")
        lines.append("  could not be placed:")
        lines += [f"    {operation}" for operation in self.culprits[:_SHOWN_MAX]]
        if len(self.culprits) > _SHOWN_MAX:
            lines.append(f"    and {len(self.culprits) - _SHOWN_MAX} more")
        return "\n".join(lines)


def explain(result: KeyResult, operations: Sequence[Operation], model: Model) -> Explanation:
    """Explain the verdict "not linearizable" on the operations of one key."""
    key = result.key
    trial = _Trial(key, model)
    moments = sorted({o.returned_at for o in operations if o.returned_at is not None})
    low, high = 0, len(moments) - 1
    while low < high:
        middle = (low + high) // 2
        if trial.is_bad(_until(operations, moments[middle])):
            high = middle
        else:
            low = middle + 1
    until = moments[high]
    short = _until(operations, until)
    before = trial.judge(_until(operations, until - 1))
    contradiction, is_minimal = _fewest(short if trial.is_bad(short) else operations, trial)
    is_prefix = before.verdict is Verdict.OK
    order = before.order if is_prefix else result.order
    return Explanation(
        key=key,
        prefix=order,
        culprits=tuple(o for o in short if o.returned_at == until)
        if is_prefix
        else result.unplaced,
        state=str(_state_after(order, model)),
        contradiction=tuple(contradiction),
        is_minimal=is_minimal,
    )


def _until(operations: Sequence[Operation], moment: int) -> list[Operation]:
    """Return what was known at a moment: no later calls, and no later answers."""
    return [
        o if o.returned_at is None or o.returned_at <= moment else o.as_unknown()
        for o in operations
        if o.called_at <= moment
    ]


def _state_after(order: Sequence[Operation], model: Model) -> object:
    state = model.init()
    for operation in order:
        state = model.step(state, model.action(operation))
    return state


class _Trial:
    """Checks smaller histories within one budget for all of them."""

    def __init__(self, key: str, model: Model) -> None:
        self._key = key
        self._model = model
        self._steps_left = STEPS_MAX
        self.undecided_count = 0

    def judge(
        self, operations: Sequence[Operation], steps_max: int = _STEPS_OF_ONE_MAX
    ) -> KeyResult:
        budget = Budget(steps_max=max(0, min(steps_max, self._steps_left)))
        result = check_key(self._key, operations, self._model, budget)
        self._steps_left -= result.steps
        if result.verdict is Verdict.UNDECIDED:
            self.undecided_count += 1
        return result

    def is_bad(self, operations: Sequence[Operation], steps_max: int = _STEPS_OF_ONE_MAX) -> bool:
        return self.judge(operations, steps_max).verdict is Verdict.NOT_LINEARIZABLE


def _fewest(operations: Sequence[Operation], trial: _Trial) -> tuple[list[Operation], bool]:
    """Return few answers that are contradictory already, and whether each of them is needed."""
    kept = [index for index, operation in enumerate(operations) if not operation.is_unknown]
    if not trial.is_bad(operations):
        return [], False
    size = max(1, len(kept) // 2)
    trial.undecided_count = 0
    while True:
        start = 0
        has_shrunk = False
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if trial.is_bad(_answered(operations, set(fewer)), _STEPS_OF_MANY_MAX):
                kept = fewer
                has_shrunk = True
            else:
                start += size
        if size == 1 and not has_shrunk:
            return [operations[index] for index in kept], trial.undecided_count == 0
        size = max(1, size // 2)
        if size > 1 or has_shrunk:
            trial.undecided_count = 0


def _answered(operations: Sequence[Operation], answered: set[int]) -> list[Operation]:
    return [
        operation if index in answered or operation.is_unknown else operation.as_unknown()
        for index, operation in enumerate(operations)
    ]
