"""Figures of the source text: modules, functions, names, docstrings, wide lines, citations."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PRODUCT = ("coordinator",)
COLUMNS_MAX = 100
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 50
CITATION = re.compile(
    r"\b(?:[SET]\d{2}\d?|field notes? \d+|house (?:law|habit|rule)s?|(?:house|style)\.md)\b"
)
"""A number of a list, or a page, that is not in the repository."""
_PATH = re.compile(
    r"(?<![\w/.-])((?:docs|tests|coordinator|recipes|examples|bench)/[\w./-]*\w\.(?:py|md|txt|csv))\b"
)
_MADE_UP = ("tests/mutants/test_mutants.py", "tests/conftest.py", "tests/house/test_figures.py")
"""They name files that they make, or parts of names."""
_LINT_CODES = re.compile(r"#\s*(?:ruff|noqa)\b[^\n]*")
_STEP = re.compile(r"^\| \d+ \| `([\w/.]+)` \| `([\w.]+)` \|$", re.MULTILINE)
_PROSE = ("*.md", "docs/*.md")
_CITING = (
    *(f"{package}/**/*.py" for package in ("coordinator", "tests", "examples", "bench")),
    "tests/traces/*.txt",
    "tests/mutants/patches/*.patch",
    *_PROSE,
)


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One file of the product, parsed."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


@dataclass(frozen=True, slots=True)
class Function:
    """One function or method; ``name`` has its classes in front."""

    module: str
    name: str
    lines: int
    is_public: bool
    has_docstring: bool


def files(root: Path) -> list[tuple[str, Path]]:
    """Return the name and the path of every module of the product below ``root``."""
    return [
        (_name(path.relative_to(root)), path)
        for package in PRODUCT
        for path in sorted((root / package).rglob("*.py"))
    ]


@cache
def product(root: Path) -> list[Module]:
    """Return every module of the product below ``root``, parsed once."""
    return [
        Module(name, path, text, ast.parse(text))
        for name, path in files(root)
        for text in (path.read_text(encoding="utf-8"),)
    ]


@cache
def nodes(module: Module) -> tuple[ast.AST, ...]:
    """Return every node of a module, walked once for all rules."""
    return tuple(ast.walk(module.tree))


@cache
def functions(module: Module) -> tuple[Function, ...]:
    """Return each function and method of a module, also those inside others."""
    return tuple(_functions(module.name, module.tree, "", is_public=True))


def shared_class_names(modules: list[Module]) -> dict[str, list[str]]:
    """Return each public class name that more than one module defines, with these modules."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return {name: where for name, where in sorted(homes.items()) if len(where) > 1}


def wide_lines(root: Path) -> list[str]:
    """Return where a line of the docs has more columns than a line of code may have."""
    return [
        f"{path.relative_to(root)}:{number}"
        for pattern in _PROSE
        for path in sorted(root.glob(pattern))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]


def long_functions(modules: list[Module]) -> list[str]:
    """Return the functions that are longer than the eye can hold."""
    return [
        f"{each.module}:{each.name} ({each.lines})"
        for module in modules
        for each in functions(module)
        if each.lines > FUNCTION_LINES_MAX
    ]


def long_tests(root: Path) -> list[str]:
    """Return the files of tests that are longer than a file of the product may be."""
    return [
        f"{path.relative_to(root)} ({lines})"
        for path in sorted((root / "tests").rglob("*.py"))
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > FILE_LINES_MAX
    ]


def docs_lines(root: Path) -> int:
    """Return how many lines README, CHANGELOG and the other pages have together."""
    pages = [path for pattern in _PROSE for path in root.glob(pattern)]
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in pages)


def way_of_a_write(root: Path) -> list[tuple[str, str]]:
    """Return the steps of a write that docs/architecture.md names: file and function."""
    return _way(root, "One write")


def way_of_a_lock(root: Path) -> list[tuple[str, str]]:
    """Return the steps from ``with`` to the request that docs/architecture.md names."""
    return _way(root, "One lock")


def _way(root: Path, title: str) -> list[tuple[str, str]]:
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    below = page.partition(f"\n## {title}")[2].partition("\n## ")[0]
    return _STEP.findall(below)


def citations(root: Path) -> list[str]:
    """Return where a number of a list outside the repository is cited."""
    return [
        f"{path.relative_to(root)}:{number}: {found}"
        for pattern in _CITING
        for path in sorted(root.glob(pattern))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for found in CITATION.findall(_LINT_CODES.sub("", line))
    ]


def missing_files(root: Path) -> list[str]:
    """Return where a file is named by a path that is not there."""
    return [
        f"{path.relative_to(root)}: {named}"
        for pattern in _CITING
        for path in sorted(root.glob(pattern))
        if str(path.relative_to(root)) not in _MADE_UP
        for named in _PATH.findall(path.read_text(encoding="utf-8"))
        if not (root / named).exists()
    ]


def _name(path: Path) -> str:
    parts = list(path.with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _functions(module: str, node: ast.AST, prefix: str, *, is_public: bool) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            is_inside = is_public and not child.name.startswith("_")
            yield from _functions(module, child, f"{prefix}{child.name}.", is_public=is_inside)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}{child.name}"
            yield Function(
                module,
                name,
                (child.end_lineno or child.lineno) - child.lineno + 1,
                is_public and not child.name.startswith("_") and not _is_declared(child),
                ast.get_docstring(child) is not None,
            )
            yield from _functions(module, child, f"{name}.", is_public=False)
        else:
            yield from _functions(module, child, prefix, is_public=is_public)


def _is_declared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether its docstring stands elsewhere: at the implementation, or at the getter."""
    names = {ast.unparse(each).rpartition(".")[2] for each in function.decorator_list}
    return bool(names & {"overload", "setter", "deleter", "override"})
