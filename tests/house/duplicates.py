"""A finder of duplicate code: runs of equal lines in two places.

Lines are compared as tokens, so comments, docstrings, blank lines and indentation do not count, and
neither do imports, which every module writes out.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.house.source import Module

LINES_MIN = 6
TOKENS_MIN = 30
"""Six lines of brackets and commas are no duplicate."""
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENCODING, tokenize.ENDMARKER}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The same lines in two places."""

    left: str
    right: str
    lines: int

    def __str__(self) -> str:
        return f"{self.left} = {self.right} ({self.lines} lines)"


@dataclass(frozen=True, slots=True)
class _Line:
    module: int
    number: int
    tokens: tuple[str, ...]


def duplicates(modules: list[Module]) -> list[Duplicate]:
    """Return each pair of places with the same lines, as long as they are the same."""
    lines = [list(_code(at, module)) for at, module in enumerate(modules)]
    places: dict[tuple[tuple[str, ...], ...], list[tuple[int, int]]] = defaultdict(list)
    for at, code in enumerate(lines):
        for start in range(len(code) - LINES_MIN + 1):
            places[tuple(line.tokens for line in code[start : start + LINES_MIN])].append(
                (at, start)
            )

    def said(place: tuple[int, int]) -> str:
        return f"{modules[place[0]].name}:{lines[place[0]][place[1]].number}"

    found = []
    for same in places.values():
        for i, left in enumerate(same):
            for right in same[i + 1 :]:
                length = _length(lines, left, right)
                if length:
                    found.append(Duplicate(said(left), said(right), length))
    return sorted(found, key=lambda each: (-each.lines, each.left, each.right))


def _length(lines: list[list[_Line]], left: tuple[int, int], right: tuple[int, int]) -> int:
    """Return how long the two runs are the same, 0 if they began earlier or are too small."""
    (a, i), (b, j) = left, right
    if i and j and lines[a][i - 1].tokens == lines[b][j - 1].tokens:
        return 0
    room = min(len(lines[a]) - i, len(lines[b]) - j, j - i if a == b else len(lines[b]))
    length = 0
    while length < room and lines[a][i + length].tokens == lines[b][j + length].tokens:
        length += 1
    tokens = sum(len(line.tokens) for line in lines[a][i : i + length])
    return length if length >= LINES_MIN and tokens >= TOKENS_MIN else 0


def _code(at: int, module: Module) -> Iterator[_Line]:
    left_out = set(_left_out(module.tree))
    by_line: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _SILENT and token.start[0] not in left_out:
            by_line[token.start[0]].append(token.string)
    for number, tokens in sorted(by_line.items()):
        yield _Line(at, number, tuple(tokens))


def _left_out(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            assert isinstance(node, ast.stmt)
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
