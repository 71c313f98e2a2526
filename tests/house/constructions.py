"""Values of the product that tests construct by position, so that each new field breaks them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.house.source import PRODUCT, Module

VALUES_MAX = 2
"""So many values may be given by position: what a value is of, and what it says."""
_VALUE_BASES = {"NamedTuple", "Struct"}


@dataclass(frozen=True, slots=True)
class Construction:
    """One call of the class of a value, with ``values`` of its fields given by position."""

    place: str
    line: int
    name: str
    values: int

    def __str__(self) -> str:
        return f"{self.place}:{self.line}: {self.name}, {self.values} by position"


def by_position(root: Path, modules: list[Module]) -> list[Construction]:
    """Return where a test gives more than ``VALUES_MAX`` fields of a value by position."""
    names = _Names(modules)
    return [
        each
        for path in sorted((root / "tests").rglob("*.py"))
        for each in _constructions(str(path.relative_to(root)), path.read_text("utf-8"), names)
    ]


class _Names:
    """The classes of values, by each name that a module of the product has for them."""

    def __init__(self, modules: list[Module]) -> None:
        self._imported = {each.name: imported(each.tree) for each in modules}
        self._values: set[str] = set()
        for module in modules:
            inside = set(_VALUE_BASES)
            for node in module.tree.body:
                if isinstance(node, ast.ClassDef) and _is_value(node, inside):
                    inside.add(node.name)
                    self._values.add(f"{module.name}.{node.name}")

    def value(self, name: str) -> str | None:
        """Return the full name of a class of values, wherever it is imported from."""
        for _ in range(len(self._imported)):
            if name in self._values:
                return name
            module, _, last = name.rpartition(".")
            found = self._imported.get(module, {}).get(last)
            if found is None:
                return None
            name = found
        return None


def imported(tree: ast.Module) -> dict[str, str]:
    """Return what each imported name of ours means, in full."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            inside = {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            inside = {each.asname or each.name: each.name for each in node.names}
        else:
            continue
        names |= {name: full for name, full in inside.items() if full.split(".")[0] in PRODUCT}
    return names


def _constructions(place: str, text: str, names: _Names) -> Iterator[Construction]:
    tree = ast.parse(text)
    known = imported(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > VALUES_MAX:
            name = names.value(_full(ast.unparse(node.func), known))
            if name is not None:
                yield Construction(place, node.lineno, name, len(node.args))


def _full(called: str, known: Mapping[str, str]) -> str:
    first, dot, rest = called.partition(".")
    return f"{known.get(first, first)}{dot}{rest}"


def _is_value(node: ast.ClassDef, values: set[str]) -> bool:
    bases = {ast.unparse(each).rpartition(".")[2] for each in node.bases}
    marks = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
    return bool(bases & values) or "dataclass" in marks
