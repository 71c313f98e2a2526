"""The mutant that a change of files is: what was changed, in which function, as small as it can be.

python -m tests.mutants.writing [REVISION]      # of the working tree, in the form of patches
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.mutants.patching import ROOT, Edit, PatchError, changed_files
from tests.mutants.places import TOP, Piece, meaning, parsed

_COLUMNS = 90
_LINES = 8
"""A piece of more lines is not quoted if one that is smaller can be counted."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A piece of the code as it is, and what becomes of it; ``around`` is the next larger one."""

    scope: str
    old: Piece
    new: Piece
    around: _Step | None


def edits_of(root: Path, changed: Mapping[str, str]) -> tuple[Edit, ...]:
    """Return what turns the files below ``root`` into the ``changed`` texts, by their paths.

    Raises:
        PatchError: it cannot be said.
    """
    edits: list[Edit] = []
    for path, after in changed.items():
        before = (root / path).read_text(encoding="utf-8")
        steps = _steps(ast.parse(before), ast.parse(after))
        found = [_edit(root, path, step, (before, after)) for step in steps]
        said = {id(chosen) for chosen, _ in found}
        edits += dict.fromkeys(edit for chosen, edit in found if not said & _beyond(chosen))
        new = _imports(ast.parse(after)) - _imports(ast.parse(before))
        edits += [Edit(TOP, "", each) for each in sorted(new)]
    made = changed_files("", edits, root)
    for path, after in changed.items():
        if plain_meaning(made.get(root / path, "")) != plain_meaning(after):
            raise PatchError(f"{path}: the change cannot be said in small pieces")
    return tuple(edits)


def _beyond(chosen: _Step) -> set[int]:
    """Return the pieces that are larger than the chosen one, around it."""
    around: _Step | None = chosen.around
    found: set[int] = set()
    while around is not None:
        found.add(id(around))
        around = around.around
    return found


def _edit(root: Path, path: str, step: _Step, texts: tuple[str, str]) -> tuple[_Step, Edit]:
    """Return the edit of the smallest piece that is found, or of a larger one that fits a line: so
    it reads well; with the step of that piece."""
    fitting: tuple[_Step, Edit] | None = None
    numbered: tuple[_Step, Edit] | None = None
    around: _Step | None = step
    while around is not None:
        edit = Edit(around.scope, _text(around.old, texts[0]), _text(around.new, texts[1]))
        if fitting is not None and not _is_one_line(edit):
            break
        if numbered is not None and edit.old.count("\n") > _LINES:
            break
        if _reads(edit.old, around.old) and (not edit.new or _reads(edit.new, around.new)):
            try:
                if set(changed_files("", (edit,), root)) == {root / path}:
                    fitting = around, edit
            except PatchError as error:
                if numbered is None and (one := _numbered(root, path, around, edit, error.found)):
                    numbered = around, one
        around = around.around
    found = fitting or numbered
    if found is None:
        raise PatchError(f"{path}: {step.scope}: no piece of it can be found")
    return found


def _is_one_line(edit: Edit) -> bool:
    return all("\n" not in each and len(each) <= _COLUMNS for each in (edit.old, edit.new))


def _numbered(root: Path, path: str, step: _Step, edit: Edit, count: int) -> Edit | None:
    for number in range(1, count + 1):
        numbered = replace(edit, number=number, count=count)
        try:
            made = changed_files("", (numbered,), root)
        except PatchError:
            continue
        if set(made) == {root / path} and _is_that(made[root / path], root / path, step):
            return numbered
    return None


def _is_that(made: str, path: Path, step: _Step) -> bool:
    """Whether what was made of the file is changed where this step is, and only there."""
    steps = _steps(ast.parse(path.read_text(encoding="utf-8")), ast.parse(made))
    first, last = _where(step.old)
    return all(first <= _where(each.old)[0] and _where(each.old)[1] <= last for each in steps)


def _where(piece: Piece) -> tuple[tuple[int, int], tuple[int, int]]:
    first, last = (piece[0], piece[-1]) if isinstance(piece, list) else (piece, piece)
    end = (last.end_lineno or 0, last.end_col_offset or 0)
    return (first.lineno, first.col_offset), end


def _reads(text: str, piece: Piece) -> bool:
    read = parsed(text)
    if isinstance(read, ast.expr) and isinstance(piece, list):
        return len(piece) == 1 and meaning(piece) == meaning([ast.Expr(read)])
    return read is not None and meaning(read) == meaning(piece)


def _text(piece: Piece, source: str) -> str:
    """Return a piece as it is written; an expression in one line, if that is not too long."""
    if isinstance(piece, list):
        return "\n".join(_lines_of(each, source) for each in piece)
    written = ast.get_source_segment(source, piece) or ast.unparse(piece)
    if "\n" not in written:
        return written
    short = ast.unparse(piece)
    line = source.splitlines()[piece.lineno - 1]
    indent = line[: len(line) - len(line.lstrip())]
    return short if len(short) <= _COLUMNS else textwrap.dedent(indent + written)


def _lines_of(statement: ast.stmt, source: str) -> str:
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(each.lineno for each in decorators)])
    lines = source.splitlines()[first - 1 : statement.end_lineno]
    return textwrap.dedent("\n".join(lines))


def plain_meaning(text: str) -> str:
    """Return what a program means, without statements that do nothing."""
    tree = ast.parse(text)
    known = sorted(_imports(tree))
    tree.body = _without_imports(tree)
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and len(value) > 1 and isinstance(value[0], ast.stmt):
                kept = [each for each in value if not isinstance(each, ast.Pass)]
                setattr(node, name, kept or value[:1])
    return meaning(tree) + "".join(known)


def _imports(tree: ast.Module) -> set[str]:
    """Return what a module imports at its top, each name as a statement of its own."""
    return {
        ast.unparse(ast.ImportFrom(each.module, [name], each.level))
        if isinstance(each, ast.ImportFrom)
        else ast.unparse(ast.Import([name]))
        for each in tree.body
        if isinstance(each, ast.Import | ast.ImportFrom)
        for name in each.names
    }


def _without_imports(tree: ast.Module) -> list[ast.stmt]:
    return [each for each in tree.body if not isinstance(each, ast.Import | ast.ImportFrom)]


# --- what differs


def _steps(old: ast.Module, new: ast.Module) -> Iterator[_Step]:
    yield from _in_block(TOP, _without_imports(old), _without_imports(new), None)


def _in_block(
    scope: str, old: list[ast.stmt], new: list[ast.stmt], around: _Step | None
) -> Iterator[_Step]:
    start = 0
    while start < min(len(old), len(new)) and meaning(old[start]) == meaning(new[start]):
        start += 1
    end = 0
    most = min(len(old), len(new)) - start
    while end < most and meaning(old[-1 - end]) == meaning(new[-1 - end]):
        end += 1
    olds, news = old[start : len(old) - end], new[start : len(new) - end]
    if len(olds) == len(news):
        for one, other in zip(olds, news, strict=True):
            if meaning(one) != meaning(other):
                yield from _in_statement(scope, one, other, around)
        return
    if not olds and start and not (start < len(old) and _is_text(old[start - 1])):
        olds, news = [old[start - 1]], [new[start - 1], *news]  # behind what is before it
    elif not olds:
        olds, news = [old[start]], [*news, new[start + len(news)]]
    yield _Step(scope, olds, news, around)


def _is_text(statement: ast.stmt) -> bool:
    """Whether it is a docstring, which is long and says nothing to a program."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _in_statement(
    scope: str, old: ast.stmt, new: ast.stmt, around: _Step | None
) -> Iterator[_Step]:
    step = _Step(scope, [old], [new], around)
    if type(old) is not type(new):
        yield step
        return
    name = getattr(old, "name", "") if isinstance(old, _SCOPES) else ""
    inner = scope if not name else name if scope == TOP else f"{scope}.{name}"
    # A larger piece than what is in a function is the function, of the scope around it.
    found = list(_in_fields(inner, old, new, step))
    if any(each is None for each in found):
        yield step
        return
    yield from (each for each in found if each is not None)


def _in_fields(scope: str, old: ast.AST, new: ast.AST, around: _Step) -> Iterator[_Step | None]:
    """Iterate over the steps inside a node; None says that it differs itself."""
    for name, one in ast.iter_fields(old):
        other = getattr(new, name)
        if isinstance(one, list) and one and isinstance(one[0], ast.stmt) and other:
            yield from _in_block(scope, one, other, around)
        elif isinstance(one, list):
            if len(one) != len(other):
                yield None
                return
            for each, its in zip(one, other, strict=True):
                yield from _in_value(scope, each, its, around)
        else:
            yield from _in_value(scope, one, other, around)


def _in_value(scope: str, old: object, new: object, around: _Step) -> Iterator[_Step | None]:
    if not isinstance(old, ast.AST) or not isinstance(new, ast.AST):
        if old != new:
            yield None
        return
    if meaning(old) == meaning(new):
        return
    if isinstance(old, ast.expr) and isinstance(new, ast.expr):
        step = _Step(scope, old, new, around)
        if type(old) is not type(new) or isinstance(old, ast.JoinedStr):
            yield step
            return
        found = list(_in_fields(scope, old, new, step))
        if any(each is None for each in found) or len(found) != 1:
            yield step
            return
        yield from found
    elif type(old) is type(new):
        yield from _in_fields(scope, old, new, around)
    else:
        yield None


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


# --- the working tree


def main() -> int:
    revision = sys.argv[1] if sys.argv[1:] else "HEAD"
    git = ["git", "-C", str(ROOT)]
    named = [*git, "diff", "--name-only", revision, "--", "coordinator"]
    names = subprocess.run(named, capture_output=True, text=True, check=True).stdout.split()
    changed = {name: (ROOT / name).read_text(encoding="utf-8") for name in names}
    archive = subprocess.run(
        [*git, "archive", revision, "coordinator"], capture_output=True, check=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(archive)) as before:
            before.extractall(folder, filter="data")
        print("".join(map(str, edits_of(Path(folder), changed))), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
