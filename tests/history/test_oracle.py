"""The checker agrees with a brute-force search on every tiny history that chance can think of."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.amount import drawn, histories, least
from tests.history.checker import check
from tests.history.generation import Facts, Shape, generate
from tests.history.held import held
from tests.history.operations import Operation
from tests.history.oracle import is_linearizable
from tests.history.register import Register
from tests.history.search import Verdict
from tests.met import Met

_EXAMPLES = histories(400, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


def _judge(history: list[Operation]) -> Met:
    """Compare the two verdicts; return what the history held, and which verdict it was."""
    expected = is_linearizable(history)

    verdict = check(history, Register()).verdict

    listing = "\n".join(str(operation) for operation in history)
    assert (verdict is Verdict.OK) == expected, f"expected {expected}, found {verdict}:\n{listing}"
    met = held(history)
    met["linearizable" if expected else "not linearizable"] += 1
    return met


@st.composite
def _operations(draw: st.DrawFn) -> Operation:
    kind = draw(st.sampled_from(["create", "read", "set", "set", "delete", "stale_read"]))
    asked: dict[str, Any] = {}
    if kind in ("create", "set"):
        asked["value"] = draw(st.sampled_from("abc"))
    if kind in ("set", "delete") and draw(st.booleans()):
        asked["expected_version"] = draw(st.integers(0, 2))
    if kind == "delete" and draw(st.integers(0, 3)) == 0:
        asked["expected_czxid"] = draw(st.integers(1, 3))
    called_at = draw(st.integers(0, 8))
    if draw(st.integers(0, 2)) == 0:
        return Operation("c", "/k", kind, asked, None, called_at, None)
    told: dict[str, Any] = {}
    errors = {
        "create": ["NodeExists"],
        "set": ["NoNode", "BadVersion"],
        # A refusal for its czxid is believed (see ``register``), so it is not compared here.
        "delete": ["NoNode", "NotEmpty"] + ["BadVersion"] * ("expected_czxid" not in asked),
    }.get(kind, ["NoNode"])
    if draw(st.integers(0, 4)) == 0:
        told["error"] = draw(st.sampled_from(errors))
    else:
        if kind in ("read", "stale_read") and draw(st.integers(0, 4)):
            told["value"] = draw(st.sampled_from("abc"))
        if kind != "delete":
            for name, most in (("version", 2), ("mzxid", 4), ("czxid", 3)):
                if draw(st.integers(0, 3)) == 0:
                    told[name] = draw(st.integers(0 if name == "version" else 1, most))
    if draw(st.integers(0, 3)) == 0:
        told["zxid"] = draw(st.integers(1, 5))
    return Operation("c", "/k", kind, asked, told, called_at, called_at + draw(st.integers(0, 4)))


@pytest.mark.histories
def test_agrees_on_arbitrary_operations() -> None:
    """Whatever five operations say, the verdict is the brute-force one."""
    met = Met()

    @_EXAMPLES
    @given(st.lists(_operations(), min_size=1, max_size=5))
    def judged(history: list[Operation]) -> None:
        met.update(_judge(history))

    judged()

    met.check(
        **least(linearizable=60, not_linearizable=60, overlapping=100, unknown=100, conditional=60)
    )


@pytest.mark.histories
def test_agrees_on_damaged_histories_of_a_store() -> None:
    """A correct history in which up to two answers were falsified gets the brute-force verdict."""
    met = Met()

    @_EXAMPLES
    @given(
        seed=st.integers(0, 2**32),
        facts=st.sampled_from(list(Facts)),
        unknown_ratio=st.sampled_from([0.0, 0.3, 0.7]),
        value_count=st.sampled_from([None, 2]),
        damage=st.integers(0, 2),
    )
    def judged(
        seed: int, facts: Facts, unknown_ratio: float, value_count: int | None, damage: int
    ) -> None:
        shape = Shape(
            operation_count=6, client_count=3, facts=facts, write_ratio=0.7,
            unknown_ratio=unknown_ratio, value_count=value_count,
        )  # fmt: skip
        history = generate(seed, shape)
        random = Random(seed)
        for _ in range(damage):
            _falsify(history, random)
        met.update(_judge(history))

    judged()

    met.check(
        **least(linearizable=100, not_linearizable=40, overlapping=300, unknown=100, set_done=60)
    )


_BLOCK = 1_500


@pytest.mark.histories
@pytest.mark.parametrize("block", range(drawn(8)))
def test_agrees_on_thousands_with_few_facts(block: int) -> None:
    """Damaged histories whose answers tell only now and then a fact get the brute-force verdict.

    Few facts leave many zxids unknown, which is where the bounds of ``register`` have to be exact.
    """
    met = Met()
    for seed in range(block * _BLOCK, (block + 1) * _BLOCK):
        random = Random(seed)
        shape = Shape(
            operation_count=random.randint(3, 6), client_count=random.randint(2, 4),
            write_ratio=0.75, unknown_ratio=random.choice((0.2, 0.6)),
            value_count=random.choice((None, 2)),
        )  # fmt: skip
        history = [_with_fewer_facts(o, random) for o in generate(seed, shape)]
        for _ in range(random.randrange(3)):
            _falsify(history, random)

        met.update(_judge(history))

    met.check(
        linearizable=800, not_linearizable=300, overlapping=1_800, unknown=1_500,
        unknown_and_done=50, conditional=700, set_BadVersion=40, delete_BadVersion=5,
        stale_read_done=40, read_unknown=20, set_done=400, delete_done=120,
    )  # fmt: skip


def _with_fewer_facts(operation: Operation, random: Random) -> Operation:
    if operation.output is None:
        return operation
    told = {
        name: fact
        for name, fact in operation.output.items()
        if name == "error" or random.random() < 0.5
    }
    asked = dict(operation.input)
    if operation.kind == "delete" and operation.error is None and random.random() < 0.3:
        asked["expected_czxid"] = random.randint(1, 3)
    kind = "stale_read" if operation.kind == "read" and random.random() < 0.1 else operation.kind
    return replace(operation, kind=kind, input=asked, output=told)


def _falsify(history: list[Operation], random: Random) -> None:
    index = random.randrange(len(history))
    operation = history[index]
    told = dict(operation.output or {})
    draw = random.random()
    if not told or draw < 0.2:
        other = random.randrange(len(history))
        output = None if history[other].kind != operation.kind else history[other].output
        returned_at = None if output is None else operation.called_at + random.randrange(6)
    elif draw < 0.4:
        output, returned_at = operation.output, operation.called_at + random.randrange(3)
    else:
        name = random.choice(sorted(told))
        fact = told[name]
        if isinstance(fact, int):
            told[name] = max(0, fact + random.choice((-1, 1)))
        else:
            del told[name]
        output, returned_at = told, operation.returned_at
    history[index] = Operation(
        operation.client, operation.key, operation.kind, operation.input, output,
        operation.called_at, returned_at,
    )  # fmt: skip
