"""Every bound in the code is tried one below, at, and one beyond; none is left out unseen.

The tables are in ``machine_bounds``, ``access_bounds`` and ``wire_bounds``; bounds that are held
elsewhere, or that decide nothing that a single more or less would change, are named in
``explained.txt`` with the reason.
"""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from coordinator.model.limits import MachineLimits
from tests.bounds import access_bounds, machine_bounds, wire_bounds
from tests.bounds.machine_bounds import Bound

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = (*machine_bounds.BOUNDS, *access_bounds.BOUNDS, *wire_bounds.BOUNDS)
ROOMS = tuple(f"coordinator/{each}" for each in ("model", "state", "wire", "raft", "service"))

ELSEWHERE = {
    "remembered_bytes_max": "bytes by estimate: tests/state/test_dedup.py",
    "remembered_percent_max": "whose goes first: locks/test_grant_history.py, test_owner_shares.py",
    "grant_history_bytes_max": "bytes by estimate: locks/test_grant_history.py, law 'limits hold'",
}
"""Limits of the state that are no count of one kind of thing."""


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.name)
def test_a_bound_is_where_it_is_said_to_be(bound: Bound) -> None:
    """The last that is allowed is taken, the first beyond is refused, and so on both sides."""
    inside, outside = (1, -1) if bound.is_least else (-1, 1)

    taken = [bound.accepts(bound.value + step) for step in (inside, 0, outside)]

    assert taken == [True, True, False]


def test_every_limit_of_the_state_is_tried() -> None:
    """A new field of the limits needs its row."""
    tried = {each.name.partition(".")[2] for each in BOUNDS if each.name.startswith("MachineL")}

    assert {each.name for each in fields(MachineLimits)} == tried | set(ELSEWHERE)


def constants() -> set[str]:
    """Return the module-level bounds of the rooms, as ``module.NAME``."""
    found = set()
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                targets = node.targets if isinstance(node, ast.Assign) else []
                if isinstance(node, ast.AnnAssign):
                    targets = [node.target]
                for target in targets:
                    name = target.id if isinstance(target, ast.Name) else ""
                    if name.isupper() and name.endswith(("_MAX", "_MIN")):
                        found.add(f"{path.stem}.{name}")
    return found


def test_every_constant_that_bounds_is_tried_or_explained() -> None:
    """A new constant needs its row, or its reason in ``explained.txt``; a gone one leaves it."""
    lines = (Path(__file__).with_name("explained.txt")).read_text(encoding="utf-8").splitlines()
    explained = {line.partition(":")[0] for line in lines if line}
    tried = {each.name.removesuffix(" (wire)") for each in BOUNDS}

    found = constants()

    unseen = sorted(found - tried - explained)
    assert unseen == [], "give each a row in the tables, or a line in tests/bounds/explained.txt"
    assert sorted(explained - found) == [], "it is gone"
    assert sorted(explained & tried) == []
    named = [each.strip(".") for line in lines for each in line.split() if "tests/" in each]
    assert [each for each in named if not (ROOT / each).is_file()] == []
