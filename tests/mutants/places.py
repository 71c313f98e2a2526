"""Places in the code, found by the function that they are in and by what they mean.

A place is named by the function (or class) around it, and by a piece of code: an expression, or
statements. It is compared as a syntax tree. So neither another file nor other lines, spaces,
brackets or comments move it; what the code says does.
"""

from __future__ import annotations

import ast
import os
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

TOP = "<module>"
"""The scope of what is in no function and in no class."""
Piece = ast.expr | list[ast.stmt]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a piece of code begins and ends in the text of a file, in characters."""

    start: int
    end: int
    indent: str
    """What is before a statement in its line; of an expression nothing is."""


def parsed(text: str) -> Piece | None:
    """Return the expression, or the statements, that ``text`` is; None if it is neither."""
    if not text.strip():
        return None
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        pass
    try:
        return ast.parse(text).body
    except SyntaxError:
        return None


def files_with(root: Path, scope: str, piece: Piece) -> Iterator[tuple[Path, str]]:
    """Iterate over the files of the product that may have this piece in this scope, with their
    texts."""
    names = set() if scope == TOP else set(scope.split("."))
    for each in piece if isinstance(piece, list) else (piece,):
        for node in ast.walk(each):
            names |= {str(getattr(node, field)) for field in _NAMES if hasattr(node, field)}
    names.discard("None")
    for folder, _, files in sorted(os.walk(root / "coordinator")):
        for path in [f"{folder}/{file}" for file in sorted(files) if file.endswith(".py")]:
            text = _read(path, os.stat(path).st_mtime_ns)
            if all(name in text for name in names):
                yield Path(path), text


_NAMES = ("id", "attr", "arg")


@lru_cache(2_000)
def _read(path: str, _mtime_ns: int) -> str:
    return Path(path).read_text(encoding="utf-8")


@lru_cache(500)
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def top_of(text: str) -> Place:
    """Return where an import may come first: behind what must be before it."""
    tree = _tree(text)
    first = next(each for each in tree.body if not _is_of_the_top(each))
    at = _Lines(text).of_statements([first]).start
    return Place(at, at, "")


def _is_of_the_top(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "__future__"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def places(text: str, scope: str, piece: Piece) -> list[Place]:
    """Return where ``piece`` is in the scopes of this name, in the order of the text."""
    wanted = meaning(piece)
    lines = _Lines(text)
    found: dict[Place, None] = {}
    for owner in _scopes(text, scope):
        if isinstance(piece, list):
            for block in blocks(owner, is_top=scope == TOP):
                for at in range(len(block) - len(piece) + 1):
                    some = block[at : at + len(piece)]
                    if meaning(some) == wanted:
                        found[lines.of_statements(some)] = None
        else:
            for node in _expressions(owner, is_top=scope == TOP):
                if type(node) is type(piece) and meaning(node) == wanted:
                    found[lines.of_expression(node)] = None
    return sorted(found, key=lambda place: place.start)


def replaced(text: str, place: Place, new: str, *, is_expression: bool) -> str:
    """Return ``text`` with other code at a place; without any it passes."""
    if is_expression:
        new = f"({new})"
    else:
        new = textwrap.indent(new or "pass", place.indent)[len(place.indent) :]
    return text[: place.start] + new + text[place.end :]


def meaning(piece: Piece | ast.AST) -> str:
    """Return what a piece of code is as a tree, whichever way it is written."""
    if isinstance(piece, list):
        return ";".join(meaning(each) for each in piece)
    return ast.dump(piece)


def blocks(owner: ast.AST, *, is_top: bool = False) -> Iterator[list[ast.stmt]]:
    """Iterate over the lists of statements below ``owner``; of a module without its functions."""
    for _, value in ast.iter_fields(owner):
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield value
    for each in ast.iter_child_nodes(owner):
        if not (is_top and isinstance(each, _SCOPES)):
            yield from blocks(each, is_top=is_top)


def _expressions(owner: ast.AST, *, is_top: bool) -> Iterator[ast.expr]:
    for each in ast.iter_child_nodes(owner):
        if is_top and isinstance(each, _SCOPES):
            continue
        if isinstance(each, ast.expr) and not isinstance(getattr(each, "ctx", None), _TARGETS):
            yield each
        if not isinstance(each, ast.JoinedStr):  # nothing says where it is in its text
            yield from _expressions(each, is_top=is_top)


_TARGETS = (ast.Store, ast.Del)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _scopes(text: str, scope: str) -> Sequence[ast.AST]:
    """Return all functions and classes of this name."""
    return [_tree(text)] if scope == TOP else _named(text).get(scope, ())


@lru_cache(500)
def _named(text: str) -> dict[str, list[ast.AST]]:
    """Return the functions and classes of a file, by their names with those around them."""
    found: dict[str, list[ast.AST]] = defaultdict(list)

    def look(owner: ast.AST, prefix: str) -> None:
        for each in ast.iter_child_nodes(owner):
            if isinstance(each, _SCOPES):
                found[prefix + each.name].append(each)
                look(each, f"{prefix}{each.name}.")
            elif not isinstance(each, ast.expr):
                look(each, prefix)

    look(_tree(text), "")
    return found


class _Lines:
    """The lines of a text: nodes say where they are in bytes of a line."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, byte: int) -> int:
        before = self._lines[line - 1].encode()[:byte].decode()
        return self._starts[line - 1] + len(before)

    def of_expression(self, node: ast.expr) -> Place:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.at(node.lineno, node.col_offset)
        return Place(start, self.at(node.end_lineno, node.end_col_offset), "")

    def of_statements(self, some: list[ast.stmt]) -> Place:
        first, last = some[0], some[-1]
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        decorators = getattr(first, "decorator_list", [])
        line = min([first.lineno, *(each.lineno for each in decorators)])
        start = self._starts[line - 1] + first.col_offset
        end = self.at(last.end_lineno, last.end_col_offset)
        return Place(start, end, self._lines[line - 1][: first.col_offset])
