"""A recorded option of a lock is written once."""

from __future__ import annotations

from pathlib import Path

from tests.house import source

ROOT = Path(__file__).resolve().parent.parent.parent

RECORDED = "purpose"
"""An option that is recorded with a grant, and shown."""


def names_in(module: source.Module) -> set[str]:
    """Return what is named in a module: attributes, arguments, fields, constants of text."""
    found: set[str] = set()
    for node in source.nodes(module):
        for name in ("id", "attr", "arg", "value"):
            if isinstance(named := getattr(node, name, None), str):
                found.add(named)
    return found


def test_a_recorded_option_is_named_in_few_files() -> None:
    """Once in the model, and where callers of the recipes say it; the rest has it from there."""
    named = {
        module.name
        for module in source.product(ROOT)
        if RECORDED in module.text and RECORDED in names_in(module)
    }

    assert named == {
        "coordinator.model.contention",  # its name, kind, bounds and description
        "coordinator.recipes.locks.options",  # said and checked
        "coordinator.service.locks.sentences",  # this one is also made a sentence of
    }
