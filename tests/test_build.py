"""The build that runs, and the table of what is compiled (``setup.py``, ``pyproject.toml``)."""

from __future__ import annotations

import ast
import enum
import importlib
import importlib.machinery
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.node import build
from tests.compiled_modules import ROOT, compiled_sources, compiled_trees

SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


def test_what_is_compiled_is_the_source_that_is_here() -> None:
    """Else every test would try another program than the one that is read."""
    assert build.changed_since() == [], "run `make compiled` again, or `make pure`"


def test_every_pattern_of_the_table_names_files() -> None:
    """A module that moves takes its line along."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coordinator"][
        "compiled"
    ]
    compiled = {path for pattern in settings["modules"] for path in ROOT.glob(pattern)}
    assert all(list(ROOT.glob(pattern)) for pattern in settings["modules"])
    assert {ROOT / name for name in settings["interpreted"]} <= compiled


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


def test_what_has_a_length_says_whether_it_is_empty() -> None:
    """mypyc takes an instance of a compiled class for true unless it has ``__bool__``: a snapshot
    was refused at a start because an empty table in ``if recorded`` counted as one with rows."""
    for at, tree in compiled_trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
                assert "__len__" not in methods or "__bool__" in methods, (at, node.name)


def classes_of(path: Path) -> list[type]:
    """Return the classes that a compiled module defines."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    ]


def test_what_inherits_a_length_says_whether_it_is_empty() -> None:
    """The same of lengths that come from a base class, and of members of enumerations: they are
    true in compiled code, so none may be false where it is not compiled."""
    for each in (each for path in compiled_sources() for each in classes_of(path)):
        if issubclass(each, enum.Enum) and "__bool__" not in vars(each):
            assert all(each), each
        elif hasattr(each, "__len__") and not getattr(each, "_fields", ()):
            assert hasattr(each, "__bool__") or issubclass(each, enum.Enum), each


def test_no_compiled_struct_has_options() -> None:
    """mypyc drops what is said beside the bases of a class that msgspec makes: compiled, it would
    be encoded otherwise. That it is not frozen there does no harm."""
    for at, tree in compiled_trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and "Struct" in map(ast.unparse, node.bases):
                assert {each.arg for each in node.keywords} <= {"frozen"}, (at, node.name)


AGAIN = {
    ("coordinator/raft/entries.py", "apply"): "the second look comes after both branches of an if",
    ("coordinator/wire/codec.py", "__init__"): "nothing changes it between the two",
}
"""Functions that may look twice, and why."""


def looks_again(tree: ast.AST) -> set[str]:
    """Return the functions that compare an attribute of ``self`` with None, call something of it,
    and compare the attribute again."""
    found = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        looked: dict[str, int] = {}
        calls = [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.")
        ]
        compared = [
            node
            for node in ast.walk(function)
            if isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "None"
        ]
        for node in sorted(compared, key=lambda each: each.lineno):
            name = ast.unparse(node.left)
            first = looked.setdefault(name, node.lineno)
            if name.startswith("self.") and any(first < each < node.lineno for each in calls):
                found.add(function.name)
    return found


def test_no_compiled_module_looks_again_whether_an_attribute_is_none() -> None:
    """mypyc believes the first look though a method changed it since: a member stopped at its first
    snapshot, because a table that had just been given up was "expected, got None"."""
    found = {(at, function) for at, tree in compiled_trees() for function in looks_again(tree)}
    assert found == set(AGAIN), "let the method return it"


def test_a_second_look_is_found() -> None:
    source = """
def some(self):
    if self._beside is None:
        return False
    self._merge(500)
    return self._beside is not None

def fine(self):
    if self._beside is None:
        return False
    return self._merge(500)
"""
    assert looks_again(ast.parse(source)) == {"some"}


_CONSUMING = {
    *("all", "any", "bytes", "dict", "extend", "frozenset", "join", "list", "max", "min", "next"),
    *("set", "sorted", "sum", "tuple", "update"),
}
"""What takes all of a generator expression at once, or of what mypyc makes a loop."""


def early_generators(tree: ast.AST) -> list[int]:
    """Return the lines of generator expressions that are not consumed where they are written."""
    allowed = {
        id(argument)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _CONSUMING
        for argument in node.args
    }
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.GeneratorExp) and id(node) not in allowed
    ]


def test_no_compiled_module_counts_on_a_lazy_generator_expression() -> None:
    """mypyc makes a list of it: the first of 10,000 holders cost a look at all of them, and a
    snapshot was in memory twice while it was restored."""
    found = [(at, line) for at, tree in compiled_trees() for line in early_generators(tree)]
    assert found == [], "a list, next(...) or a loop"


def test_early_generators_are_found() -> None:
    source = """
first = next((each for each in many if each.is_wanted), None)
whole = tuple(each for each in many)
wrong = (each for each in many)
take((each for each in many))
"""
    assert early_generators(ast.parse(source)) == [4, 5]


def gathered_one_by_one(tree: ast.AST) -> list[int]:
    """Return the lines where ``gather`` is given what it waits for one by one."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "gather"
        and not all(isinstance(each, ast.Starred) for each in node.args)
    ]


def test_no_compiled_module_gathers_one_by_one() -> None:
    """A tuple, by the types of asyncio, and a list in truth: compiled code refuses that. Members
    stopped so when two answers of the comparison of states were waited for together."""
    found = [(at, line) for at, tree in compiled_trees() for line in gathered_one_by_one(tree)]
    assert found == [], "gather(*[...])"


def test_what_is_gathered_one_by_one_is_found() -> None:
    source = """
first, second = await asyncio.gather(one(), two())
many = await asyncio.gather(*[one(), two()], return_exceptions=True)
"""
    assert gathered_one_by_one(ast.parse(source)) == [2]


def ends_in_generators(tree: ast.AST) -> list[int]:
    """Return the lines of yields inside a ``with``, or a ``try`` with a ``finally``."""
    found = []
    for node in ast.walk(tree):
        has_end = isinstance(node, ast.With | ast.AsyncWith) or (
            isinstance(node, ast.Try) and bool(node.finalbody)
        )
        if has_end:
            found += [
                each.lineno
                for each in ast.walk(node)
                if isinstance(each, ast.Yield | ast.YieldFrom)
            ]
    return found


def test_no_compiled_generator_has_something_to_end() -> None:
    """One that is left before its end is not closed: a ``finally`` would not run."""
    assert [(at, end) for at, tree in compiled_trees() for end in ends_in_generators(tree)] == []


def test_generators_with_something_to_end_are_found() -> None:
    source = """
def rows():
    try:
        yield 1
    except OSError:
        pass
    try:
        yield 2
    finally:
        close()
    with file:
        yield 3
"""
    assert ends_in_generators(ast.parse(source)) == [8, 12]


_RECURSIVE = {
    "coordinator/client/stream/transport.py": {  # by way of a task
        *("StreamTransport._on_leader", "StreamTransport._open", "StreamTransport._open_soon"),
        *("StreamTransport._prefer", "StreamTransport._welcomed"),
    },
    "coordinator/state/emptying.py": {"emptied"},  # that of a table, and a table has no tables
    "coordinator/state/rules.py": {"_text_of"},  # our own constants
    "coordinator/wire/codec.py": {"_form"},  # of types, when modules are loaded
    "coordinator/wire/http/slim.py": {  # by way of a task
        *("SlimConnection._next", "SlimConnection._serve"),
    },
    "coordinator/wire/packed.py": {"_array", "_field", "_object", "_plan_of"},  # as ``_form``
    "coordinator/wire/routes/acquire.py": {"_with_lease"},  # the parts of a grant have none
}
"""Functions of compiled modules that call themselves, and why they end soon."""


def called_in(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Yield what these statements call, but not what functions do that they only define."""
    rest: list[ast.AST] = [*body]
    while rest:
        node = rest.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            yield node.func
        rest += ast.iter_child_nodes(node)


def recursive(tree: ast.AST) -> set[str]:
    """Return the functions that call themselves, also by way of others of their class or module."""
    calls: dict[str, set[str]] = {}
    for owner in ast.walk(tree):
        prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        body = getattr(owner, "body", ())
        for node in body if isinstance(body, list) else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found = calls.setdefault(prefix + node.name, set())
                for each in called_in(node.body):
                    if isinstance(each, ast.Name):
                        found.add(each.id)
                    elif isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                        found.add(prefix + each.attr)

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        rest = [*calls[start]]
        while rest:
            name = rest.pop()
            if name in calls and name not in found:
                found.add(name)
                rest += calls[name]
        return found

    return {name for name in calls if name in reached(name)}


def test_no_compiled_function_calls_itself_as_deep_as_somebody_likes() -> None:
    """Compiled functions have no limit of recursion: too deep ends the process, without a word."""
    found = {at: names for at, tree in compiled_trees() if (names := recursive(tree))}

    assert found == _RECURSIVE


def test_recursion_is_found() -> None:
    source = """
def one():
    return two()
def two():
    return one() + three()
def three():
    return 3
class Tree:
    def depth(self):
        return self.below()
    def below(self):
        return self.depth()
    def later(self):
        loop.call_soon(lambda: self.later())
"""
    assert recursive(ast.parse(source)) == {"one", "two", "Tree.depth", "Tree.below"}


_CLASS = re.compile(r"^ *class (\w+)\((.*?)\):", re.MULTILINE | re.DOTALL)
_INHERITABLE = {"Enum", "Exception", "IntEnum", "NamedTuple", "Protocol", "StrEnum", "Struct"}
"""Bases of classes that mypyc leaves to Python."""


def test_no_class_inherits_one_that_is_compiled_without_being_compiled() -> None:
    """Not in tests either: Python refuses it where the build is compiled, and only there."""
    compiled = compiled_sources()
    native = {
        each.name
        for path in compiled
        for each in ast.walk(ast.parse(path.read_text()))
        if isinstance(each, ast.ClassDef)
        and not _INHERITABLE & {ast.unparse(base).partition("[")[0] for base in each.bases}
    }
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for room in ("coordinator", "tests", "bench")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path not in compiled
        for name, bases in _CLASS.findall(path.read_text())
        if native & {each.strip().partition("[")[0] for each in bases.split(",")}
    ]

    assert {"MachineReplica", "Tree", "LargeMap"} <= native
    assert found == []


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    """pip runs setup.py before it looks at requires-python: it said "No module named 'tomllib'"."""
    old = "import sys, runpy; sys.modules['tomllib'] = None; runpy.run_path('setup.py')"
    done = subprocess.run(
        [sys.executable, "-c", old], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "coordinator needs Python 3.11 or newer, found 3." in done.stderr
    assert "tomllib" not in done.stderr
