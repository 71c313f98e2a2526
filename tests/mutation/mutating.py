"""Mutants made by machine: one small change of one function each.

Changed are comparisons, ``and``/``or``, ``not``, the tests of branches, sums, numbers, booleans,
``min``/``max``; removed are calls, assignments to attributes and items, ``del``, ``raise``,
``continue`` and ``break``. Left alone are assertions (they say what is so), what only words an
error, and what stands outside functions (a value there is not code that runs again).
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

_COMPARED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_SUMS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
_SWAPPED = {"min": "max", "max": "min", "all": "any", "any": "all"}
_REMOVED = (ast.Delete, ast.Raise, ast.Continue, ast.Break)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NAMED = (*_FUNCTIONS, ast.ClassDef)
_SHOWN_CHARACTERS_MAX = 70

_Change = Callable[[ast.AST], ast.AST]
_Path = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change in the function ``where``; ``key`` names it as long as its text stays."""

    module: str
    where: str
    line: int
    what: str
    source: str
    path: _Path
    change: _Change

    @property
    def key(self) -> str:
        return f"{self.where}: {self.what}"

    def code(self, path: str) -> CodeType:
        """Return the code of the outermost function that holds the change."""
        tree = ast.parse(self.source)
        _replace(tree, self.path, self.change)
        code = compile(ast.fix_missing_locations(tree), path, "exec")
        for name in self.where.split("."):
            code = next(
                each
                for each in code.co_consts
                if isinstance(each, CodeType) and each.co_name == name
            )
        return code


def mutants(module: str, source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of their places; equal ones are numbered."""
    tree = ast.parse(source)
    found: list[Mutant] = []
    seen: dict[str, int] = {}
    for where, path, change, what in _changes(tree, source):
        line = getattr(_at(tree, path), "lineno", 0)
        count = seen[f"{where}{what}"] = seen.get(f"{where}{what}", 0) + 1
        what = what if count == 1 else f"{what} (no. {count})"
        found.append(Mutant(module, where, line, what, source, path, change))
    return found


def _at(tree: ast.AST, path: _Path) -> ast.AST:
    for name, index in path:
        value = getattr(tree, name)
        tree = value if index is None else value[index]
    return tree


def _replace(tree: ast.AST, path: _Path, change: _Change) -> None:
    *above, (name, index) = path
    parent = _at(tree, tuple(above))
    new = change(_at(tree, path))
    if index is None:
        setattr(parent, name, new)
    else:
        getattr(parent, name)[index] = new


def _changes(tree: ast.Module, source: str) -> Iterator[tuple[str, _Path, _Change, str]]:
    """Walk the functions; yield where, the way to a node, how it changes, and in what words."""

    lines = source.splitlines()

    def words(node: Any, new: str) -> str:
        several = lines[node.lineno - 1 : node.end_lineno]
        several[-1] = several[-1][: node.end_col_offset]
        several[0] = several[0][node.col_offset :]
        old = " ".join(" ".join(several).split())
        return f"{old[:_SHOWN_CHARACTERS_MAX]} -> {new}"

    def walk(node: ast.AST, path: _Path, where: str) -> Iterator[tuple[str, _Path, _Change, str]]:
        for name, value in ast.iter_fields(node):
            several = value if isinstance(value, list) else [value]
            for index, child in enumerate(several):
                if not isinstance(child, ast.AST) or _is_left_alone(node, name, child):
                    continue
                inner = where
                # Of a function inside a function the outer one is exchanged.
                if isinstance(child, _NAMED) and not isinstance(node, _FUNCTIONS):
                    inner = f"{where}.{child.name}".lstrip(".")
                here = (*path, (name, index if isinstance(value, list) else None))
                if _is_in_function(tree, here):
                    for change, new in _changes_of(child, node):
                        yield where, here, change, words(child, new)
                yield from walk(child, here, inner)

    yield from walk(tree, (), "")


def _is_in_function(tree: ast.Module, path: _Path) -> bool:
    """Whether the node is in the body of a function: its defaults and decorators are not."""
    for end in range(len(path) - 1, 0, -1):
        above = _at(tree, path[:end])
        if isinstance(above, _FUNCTIONS):
            return path[end][0] == "body"
    return False


def _is_left_alone(parent: ast.AST, name: str, child: ast.AST) -> bool:
    return (
        isinstance(child, ast.Assert | ast.JoinedStr | ast.arguments)
        or name in ("annotation", "returns", "decorator_list", "type_params", "slice_of")
        or isinstance(parent, ast.Raise)
        or (isinstance(parent, ast.If) and ast.unparse(parent.test) == "TYPE_CHECKING")
    )


def _changes_of(node: ast.AST, parent: ast.AST) -> Iterator[tuple[_Change, str]]:
    """Yield the changes of one node, each with the words for what it becomes."""

    def become(new: ast.AST) -> tuple[_Change, str]:
        return (lambda _: copy.deepcopy(new)), ast.unparse(new)[:_SHOWN_CHARACTERS_MAX]

    match node:
        case ast.Compare(left, [op], [right]):
            for other in _COMPARED[type(op)]:
                yield become(ast.Compare(left, [other()], [right]))
        case ast.BoolOp(op, values):
            yield become(ast.BoolOp(ast.Or() if isinstance(op, ast.And) else ast.And(), values))
            for at in range(len(values)):
                rest = [*values[:at], *values[at + 1 :]]
                yield become(rest[0] if len(rest) == 1 else ast.BoolOp(op, rest))
        case ast.UnaryOp(ast.Not(), operand):
            yield become(operand)
        case ast.BinOp(left, op, right) if type(op) in _SUMS and not _is_text(node):
            yield become(ast.BinOp(left, _SUMS[type(op)](), right))
        case ast.AugAssign(target, op, value) if type(op) in _SUMS:
            yield become(ast.AugAssign(target, _SUMS[type(op)](), value))
        case ast.Constant(bool() as value):
            yield become(ast.Constant(not value))
        case ast.Constant(int() as value):
            yield become(ast.Constant(value + 1))
        case ast.Call(ast.Name(name), arguments, keywords) if name in _SWAPPED:
            yield become(ast.Call(ast.Name(_SWAPPED[name], ast.Load()), arguments, keywords))
    yield from _without(node)
    if isinstance(node, ast.expr) and isinstance(parent, ast.If | ast.IfExp | ast.While):
        is_test = parent.test is node
        if is_test and not isinstance(node, ast.Compare | ast.UnaryOp | ast.BoolOp):
            yield become(ast.UnaryOp(ast.Not(), node))


def _without(node: ast.AST) -> Iterator[tuple[_Change, str]]:
    """Yield the removal of a statement that is worth removing: others are NameErrors."""
    is_kept = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and all(
        isinstance(each, ast.Name)
        for each in getattr(node, "targets", [getattr(node, "target", 0)])
    )
    is_call = isinstance(node, ast.Expr) and isinstance(
        node.value, ast.Call | ast.Await | ast.YieldFrom
    )
    is_assigned = isinstance(node, ast.Assign | ast.AugAssign) and not is_kept
    if is_call or is_assigned or isinstance(node, _REMOVED):
        yield (lambda each: ast.copy_location(ast.Pass(), each)), "nothing"


def _is_text(node: ast.BinOp) -> bool:
    """Whether a sum joins texts, lists or tuples."""
    parts = (node.left, node.right)
    return any(
        isinstance(each, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
        or (isinstance(each, ast.BinOp) and _is_text(each))
        for each in parts
    )
