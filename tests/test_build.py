"""The build that runs, and the table of what is compiled (``setup.py``, ``pyproject.toml``)."""

from __future__ import annotations

import ast
import importlib.machinery
import os
import tomllib
from pathlib import Path

import pytest

from coordinator import build

ROOT = Path(__file__).resolve().parent.parent
SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


def test_what_is_compiled_is_the_source_that_is_here() -> None:
    """Else every test would try another program than the one that is read."""
    assert build.changed_since() == [], "run `make compiled` again, or `make pure`"


def test_every_pattern_of_the_table_names_files() -> None:
    """A module that moves takes its line along."""
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coordinator"]["compiled"]
    compiled = {path for pattern in said["modules"] for path in ROOT.glob(pattern)}
    assert all(list(ROOT.glob(pattern)) for pattern in said["modules"])
    assert {ROOT / name for name in said["interpreted"]} <= compiled


@pytest.mark.parametrize("age_s", [-5, 5])
def test_a_source_that_was_changed_since_is_named(
    age_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout; what is installed came with its source."""
    package = tmp_path / "coordinator"
    package.mkdir()
    source, compiled = package / "a.py", package / f"a{SUFFIX}"
    source.write_text("")
    compiled.write_text("")
    at_s = source.stat().st_mtime
    os.utime(compiled, (at_s + age_s, at_s + age_s))
    monkeypatch.setattr(build, "_PACKAGE", package)

    installed = build.changed_since()
    (tmp_path / "pyproject.toml").write_text("")

    assert installed == []
    assert build.changed_since() == ([f"{package.name}/a.py"] if age_s < 0 else [])


def test_it_is_said_in_words() -> None:
    """As ``coordinator --version`` and a member that starts say it."""
    assert build.described().endswith(", compiled" if build.is_compiled() else ", not compiled")


def compiled_sources() -> list[Path]:
    said = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coordinator"]["compiled"]
    found = {path for pattern in said["modules"] for path in ROOT.glob(pattern)}
    return sorted(found - {ROOT / name for name in said["interpreted"]})


_ENDS_WITHOUT_A_WAIT = ("deadline", "scope", "timeout")
"""Contexts whose end waits for nothing, by the last word of their name."""


def waits_in_handlers(coroutine: ast.AsyncFunctionDef) -> list[int]:
    """Return the lines of what a coroutine waits for in an except or a finally."""
    found: list[int] = []

    def look(node: ast.AST, is_handling: bool) -> None:
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) and is_handling:
            found.append(node.lineno)
        if isinstance(node, ast.AsyncWith):
            for item in node.items:
                context = item.context_expr
                name = ast.unparse(context.func if isinstance(context, ast.Call) else context)
                if name.split(".")[-1] not in _ENDS_WITHOUT_A_WAIT:
                    found.append(node.lineno)
        for field, value in ast.iter_fields(node):
            inside = is_handling or isinstance(node, ast.ExceptHandler) or field == "finalbody"
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST) and not isinstance(each, ast.FunctionDef | ast.Lambda):
                    look(each, inside)

    look(coroutine, False)
    return found


def test_no_compiled_coroutine_waits_while_it_handles_an_error() -> None:
    """mypyc's coroutines share the thread's error: another task would see and replace it."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in compiled_sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AsyncFunctionDef)
        for line in waits_in_handlers(node)
    ]

    assert found == [], "note the error, and wait behind the try"


def test_waits_in_handlers_are_found() -> None:
    source = """
async def handles() -> None:
    try:
        await fine()
    except OSError:
        await wrong()
    finally:
        async with wrong.too():
            pass
    async with self.deadline(1):
        await fine()
    async with lock:
        await fine()
"""
    coroutine = ast.parse(source).body[0]
    assert isinstance(coroutine, ast.AsyncFunctionDef)

    assert waits_in_handlers(coroutine) == [6, 8, 8, 12]


@pytest.mark.parametrize("path", compiled_sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_has_a_length_says_whether_it_is_empty(path: Path) -> None:
    """mypyc takes an instance of a compiled class for true unless it has ``__bool__``: a snapshot
    was refused at a start because an empty table in ``if recorded`` counted as one with rows."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            assert "__len__" not in methods or "__bool__" in methods, node.name
