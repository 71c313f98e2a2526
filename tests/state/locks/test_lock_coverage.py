"""The table of what histories of locks exercise: command, outcome, kind of lock; no empty cell.

``python -m tests.state.exercised`` prints it. A cell that cannot be met says why in ``IMPOSSIBLE``;
a reason that turns out wrong fails as an empty cell does.
"""

from __future__ import annotations

from itertools import product

import pytest

from coordinator.state.commands import Kind
from tests.state.exercised import NONE, SEVERAL, Exercised, exercise
from tests.state.strategies import SMALL_LIMITS

pytestmark = pytest.mark.check  # ten seconds of histories, made once for all

SORTS = (*(each.value for each in Kind), SEVERAL)
ENDS = ("holder", "waiter", "hands over")

OF_A_LOCK = {
    "Enter": ("granted", "waits", "not entered", "repeat", "BadArguments", "DataTooLarge",
              "Deadlock", "LockLost", "QuotaExceeded", "RequestForgotten", "SessionExpired"),
    "Create": ("granted", "made", "repeat", "BadArguments", "QuotaExceeded"),
    "Release": (*ENDS, "again", "repeat", "BadArguments", "LockLost", "NotOwner"),
    "Downgrade": ("downgraded", "hands over", "again", "repeat", "BadArguments", "NotOwner"),
    "Note": ("noted", "repeat", "BadArguments", "NotOwner"),
    "ExtendHold": ("extended", "repeat", "BadArguments", "NotOwner"),
    "Revoke": (*ENDS, "repeat", "BadArguments", "NotOwner"),
    "EndHold": ("holder", "hands over", "void", "repeat"),
    "Abandon": ENDS,
    "Delete": ENDS,
    "Multi": ENDS,
    "CloseSession": ENDS,
    "CloseSession failed": ENDS,
    "ExpireSession": ENDS,
    "FinishSession": ENDS,
    "FinishGrants": ("hands over",),
    "Reopen": ("hands over",),
    "Resize": ("resized", "hands over", "repeat", "BadArguments", "Deadlock", "LockLost",
               "NoNode"),
}  # fmt: skip
"""Commands with the outcomes that are counted for each kind of lock.

A condition (LockLost) is looked at before the operation, so it is asked for where it is frequent.
"""

OF_NONE = {
    "Abandon": ("nothing to end", "repeat", "BadArguments", "NotOwner", "LockLost",
                "RequestForgotten", "SessionExpired"),
    "CloseSession": ("nothing to end", "repeat"),
    "ExpireSession": ("nothing to end", "repeat", "void", "LockLost"),
    "FinishSession": ("nothing to end", "repeat"),
    "FinishGrants": ("nothing to grant", "repeat", "LockLost"),
    "OpenSession": ("repeat", "BadArguments", "LockLost", "QuotaExceeded", "SessionExpired"),
    "Reopen": ("reopened", "void", "repeat", "LockLost"),
    "Delete": ("repeat", "BadArguments", "BadVersion", "LockLost", "NoNode"),
    "Multi": ("repeat", "BadArguments", "LockLost", "QuotaExceeded", "SessionExpired"),
}  # fmt: skip
"""The same of commands that name no lock of one kind."""

IMPOSSIBLE = {
    ("Create", None, SEVERAL): "a znode made by hand is in one queue",
    ("Downgrade", "downgraded", Kind.SHARED): "it is shared already: again",
    ("Downgrade", "downgraded", Kind.SLOT): "refused with BadArguments",
    ("Downgrade", "downgraded", SEVERAL): "refused with BadArguments",
    ("Downgrade", "again", Kind.EXCLUSIVE): "the first time it is downgraded",
    ("Downgrade", "again", Kind.SLOT): "refused with BadArguments",
    ("Downgrade", "again", SEVERAL): "refused with BadArguments",
    ("Downgrade", "hands over", Kind.EXCLUSIVE): "beside a shared holder nobody is exclusive",
    ("Downgrade", "hands over", Kind.SLOT): "nobody holds a slot beside a shared holder",
    ("Downgrade", "hands over", SEVERAL): "several are exclusive",
    ("Downgrade", "BadArguments", Kind.EXCLUSIVE): "an exclusive holder is downgraded",
    ("Downgrade", "BadArguments", Kind.SHARED): "a shared holder is one already: again",
    ("Resize", None, Kind.EXCLUSIVE): "a size is one of slots",
    ("Resize", None, Kind.SHARED): "a size is one of slots",
    ("Resize", None, SEVERAL): "a size is one of slots",
}
"""Cells that cannot be met, and why; None stands for every outcome but "hands over".

A grant that was too much for an earlier command is made by any that looks at its queue.
"""

SELDOM = {
    ("Resize", "Deadlock", Kind.SLOT): "tests/state/locks/test_deadlock_search.py draws for it",
    ("Downgrade", "BadArguments", NONE): "only a path that was spoilt",
    **{
        ("Resize", "hands over", each): "what was too much for an earlier command"
        for each in (Kind.EXCLUSIVE, Kind.SHARED, SEVERAL)
    },
}
"""Cells that these histories do not meet often enough to ask for, and who holds them."""


SEEDS_MAX = 4_000
_SEEDS_AT_ONCE = 50


def reason(command: str, outcome: str, sort: str) -> str | None:
    every = None if outcome == "hands over" else IMPOSSIBLE.get((command, None, sort))
    return IMPOSSIBLE.get((command, outcome, sort)) or every


def expected_of(command: str) -> set[tuple[str, str, str]]:
    """Return the cells of a command that have to be met."""
    of_a_lock = product([command], OF_A_LOCK.get(command, ()), SORTS)
    of_none = product([command], OF_NONE.get(command, ()), [NONE])
    return {cell for cell in (*of_a_lock, *of_none) if reason(*cell) is None and cell not in SELDOM}


@pytest.fixture(scope="module")
def table() -> Exercised:
    """Exercise until no cell is empty, or so long that one that is empty is no chance."""
    table = Exercised()
    expected = {cell for command in (*OF_A_LOCK, *OF_NONE) for cell in expected_of(command)}
    for first in range(0, SEEDS_MAX, _SEEDS_AT_ONCE):
        exercise(table, SMALL_LIMITS, range(first, first + _SEEDS_AT_ONCE))
        if all(table.cells[cell] for cell in expected):
            break
    return table


@pytest.mark.parametrize("command", {**OF_A_LOCK, **OF_NONE})
def test_every_outcome_is_met_with_every_kind_of_lock(table: Exercised, command: str) -> None:
    """No cell of the command is empty but those that cannot be met."""
    empty = sorted(cell for cell in expected_of(command) if not table.cells[cell])

    assert empty == []


def test_what_is_said_to_be_impossible_is_not_met(table: Exercised) -> None:
    """A written reason is a claim about the machine."""
    met = [cell for cell, count in table.cells.items() if count and reason(*cell) is not None]

    # The path of a lock that is gone, misspelt, is refused whatever stood there.
    assert sorted(cell for cell in met if cell[1] != "BadArguments") == []


def test_no_command_about_locks_is_left_out(table: Exercised) -> None:
    """Whatever the histories hold is in the table, or is no command about locks."""
    known = {*OF_A_LOCK, *OF_NONE, "SetData", "SetLimits", "Reap"}

    assert {command for command, _, _ in table.cells} <= known


@pytest.mark.parametrize(
    ("fact", "least"),
    [
        ("handed over", 200), ("several handed over", 50), ("evicted", 500),
        ("fenced and done", 200), ("closed by a lock delay", 1_000), ("reopened", 25),
        ("ungranted", 300), ("granted later", 80),
        ("several hold shared", 200), ("several hold slot", 100), ("spares repeated", 100),
        ("sessions ended with two holders of one queue", 5),
    ],
)  # fmt: skip
def test_what_is_rare_is_met_often(table: Exercised, fact: str, least: int) -> None:
    """What takes several commands one after the other is counted by itself."""
    assert table.facts[fact] >= least
