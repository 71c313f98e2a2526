"""Why a history is not linearizable: the moment it went wrong, and the fewest answers to blame.

Taking an answer away (making its outcome unknown) and cutting off the end never make a linearizable
history bad. So what is still bad with fewer answers and a shorter end is a smaller proof.

1. ``prefix`` and ``culprits``: up to an answer the history is linearizable, with this order; with
   that answer it is not.
2. ``contradiction``: of the answers up to there, few that cannot all be true, whatever the other
   operations were told. None of them can be left out if ``is_minimal``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.history.checker import KeyResult, check_key
from tests.history.operations import Operation
from tests.history.search import Budget, Verdict
from tests.history.specification import Model

STEPS_MAX = 4_000_000
"""To find the moment; and a quarter of it, with at most ``CHECKS_MAX`` searches, to find the fewest
answers."""
CHECKS_MAX = 500
CONTRADICTION_MAX = 20
"""A contradiction of more answers than this explains nothing, and is left out."""
_STEPS_OF_ONE_MAX = 2_000_000
_STEPS_OF_MANY_MAX = 50_000
_SHOWN_MAX = 10


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
            lines += _shown(self.contradiction)
            if not self.is_minimal:
                lines.append("    (perhaps fewer would do: the search for them was cut short)")
        lines.append(
            f"  longest linearizable prefix: {len(self.prefix)} operations, in a legal order"
        )
        lines += _shown(self.prefix)
        lines.append(f"  after which the state is {self.state}")
        lines.append("  could not be placed:")
        return "\n".join(lines + _shown(self.culprits))


def _shown(operations: Sequence[Operation]) -> list[str]:
    hidden_count = max(0, len(operations) - _SHOWN_MAX)
    lines = [f"    ({hidden_count} more)"] if hidden_count else []
    return lines + [f"    {operation}" for operation in operations[-_SHOWN_MAX:]]


def explain(result: KeyResult, operations: Sequence[Operation], model: Model) -> Explanation:
    """Explain the verdict "not linearizable" on the operations of one key."""
    key = result.key
    trial = _Trial(key, model, STEPS_MAX)
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
    contradiction, is_minimal = _fewest(short, _Trial(key, model, STEPS_MAX // 4))
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

    def __init__(self, key: str, model: Model, steps_max: int) -> None:
        self._key = key
        self._model = model
        self._steps_left = steps_max
        self._checks_left = CHECKS_MAX
        self.undecided_count = 0

    @property
    def is_spent(self) -> bool:
        return self._checks_left <= 0 or self._steps_left <= 0

    def judge(
        self, operations: Sequence[Operation], steps_max: int = _STEPS_OF_ONE_MAX
    ) -> KeyResult:
        budget = Budget(steps_max=max(0, min(steps_max, self._steps_left)))
        result = check_key(self._key, operations, self._model, budget)
        self._steps_left -= result.steps
        self._checks_left -= 1
        if result.verdict is Verdict.UNDECIDED:
            self.undecided_count += 1
        return result

    def is_bad(self, operations: Sequence[Operation], steps_max: int = _STEPS_OF_ONE_MAX) -> bool:
        return self.judge(operations, steps_max).verdict is Verdict.NOT_LINEARIZABLE


def _fewest(operations: Sequence[Operation], trial: _Trial) -> tuple[list[Operation], bool]:
    """Return few answers that are contradictory already, and whether each of them is needed."""
    if not trial.is_bad(operations):
        return [], False
    kept = [index for index, operation in enumerate(operations) if not operation.is_unknown]
    size = max(1, len(kept) // 2)
    while not trial.is_spent:
        has_shrunk = False
        trial.undecided_count = 0
        start = 0
        while start < len(kept) and not trial.is_spent:
            fewer = kept[:start] + kept[start + size :]
            if trial.is_bad(_answered(operations, set(fewer)), _STEPS_OF_MANY_MAX):
                kept = fewer
                has_shrunk = True
            else:
                start += size
        if size == 1 and not has_shrunk:
            break
        size = max(1, size // 2)
    is_minimal = not trial.is_spent and trial.undecided_count == 0
    if len(kept) > CONTRADICTION_MAX:
        return [], False
    return [operations[index] for index in kept], is_minimal


def _answered(operations: Sequence[Operation], answered: set[int]) -> list[Operation]:
    return [
        operation if index in answered or operation.is_unknown else operation.as_unknown()
        for index, operation in enumerate(operations)
    ]
