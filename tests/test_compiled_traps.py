"""What mypyc does otherwise than Python, and would not say: found in the source, also where nothing
is compiled. More of it is in ``test_build``."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import types
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

from coordinator.client import Session
from coordinator.client.locks import Acquired, LockQueue
from tests.compiled_modules import ROOT, compiled_sources, compiled_trees

PACKAGES = [
    "coordinator",
    "coordinator.client",
    "coordinator.client.locks",
    "coordinator.errors",
    "coordinator.testing",
    "coordinator.recipes",
]
"""Whose names users import."""


def named_in(package: str) -> list[tuple[str, Any]]:
    """Return the classes and functions that a package exports."""
    module = importlib.import_module(package)
    own = [each for each in vars(module) if not each.startswith("_")]
    names = getattr(module, "__all__", None) or getattr(module, "_HOMES", None) or own
    found = [(name, getattr(module, name)) for name in names]
    return [(name, each) for name, each in found if callable(each) and hasattr(each, "__module__")]


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_that_users_name_is_compiled(package: str) -> None:
    """A compiled class cannot be subclassed, patched or referred to weakly, a compiled function has
    no types; awaited twice, a compiled coroutine returned None, also after an error."""
    compiled = {dotted(path) for path in compiled_sources()}
    named = named_in(package)

    assert named
    assert [
        name
        for name, each in named
        for base in (each.__mro__ if isinstance(each, type) else [each])
        if base.__module__ in compiled or isinstance(each, types.BuiltinFunctionType)
    ] == []


def waiting_verbs(each: Any) -> dict[str, Any]:
    """Return the public functions of a class, or a function itself, of which something is awaited.

    ``call`` and ``begin`` return what they are given."""
    verbs = inspect.getmembers(each, inspect.isroutine) if isinstance(each, type) else [("", each)]
    return {
        name: verb
        for name, verb in verbs
        if not name.startswith("_")
        and name not in ("begin", "call")
        and (
            inspect.iscoroutinefunction(verb)
            or str(getattr(verb, "__annotations__", {}).get("return")).startswith("Coroutine[")
        )
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_verbs_that_wait_are_coroutine_functions(package: str) -> None:
    """So Python warns of one that nobody awaits, and refuses one that is awaited twice."""
    assert [
        f"{name}.{verb}"
        for name, each in named_in(package)
        for verb, function in waiting_verbs(each).items()
        if not inspect.iscoroutinefunction(function)
    ] == []


@pytest.mark.parametrize("kind", [Session, LockQueue, Acquired])
def test_verbs_of_mocks_are_awaited(kind: type) -> None:
    """``create_autospec`` makes an AsyncMock of a coroutine function alone."""
    mocked, verbs = create_autospec(kind, instance=True), waiting_verbs(kind)

    assert verbs
    assert all(isinstance(getattr(mocked, name), AsyncMock) for name in verbs)


def test_the_page_counts_what_is_compiled() -> None:
    """A number that nobody compares is wrong after the next change."""
    said = re.search(r"compiles (\d+) modules", (ROOT / "docs/performance.md").read_text())
    assert said is not None
    assert int(said[1]) == len(compiled_sources())


def dotted(path: Path) -> str:
    """Return the name of a module."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


_MAY_BE_READ = {
    "coordinator/service/writes/proposals.py": {"is_counted", "mark"},  # of one type in all of it
    "coordinator/wire/routes/acquire.py": {"grant", "is_granting"},  # None at its end, too
    "coordinator/wire/routes/answering.py": {"operation_id", "renewal", "status"},  # set, or raised
    "coordinator/wire/routes/door.py": {"body"},  # bytes, before it and in it
}
"""What a ``finally`` may read, since its type is the same wherever the ``try`` is left."""


def read_in_finally(tree: ast.AST) -> set[str]:
    """Return what a ``finally`` reads and the ``try`` before it has set, not before it alone."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            tried = [each for part in (node.body, node.handlers) for each in part]
            names = {
                each.id
                for part in tried
                for each in ast.walk(part)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
            }
            found |= {
                each.id
                for part in node.finalbody
                for each in ast.walk(part)
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
            } & names
    return found


def raised_without_its_cause(tree: ast.AST) -> list[int]:
    """Return the lines where an error that programs see is told its cause by ``from`` alone."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise)
        and node.cause is not None
        and not (isinstance(node.exc, (ast.Name, ast.Call)) and _name(node.exc) in _SEEN_BY_NOBODY)
        and not (
            isinstance(node.exc, ast.Call)
            and _name(node.exc) == "caused"
            and ast.unparse(node.exc.args[1]) == ast.unparse(node.cause)
        )
    ]


_SEEN_BY_NOBODY = {"AskAgain", "CallbackFailed"}
"""Errors of an attempt, which a queue takes for itself."""


def _name(raised: ast.Name | ast.Call) -> str:
    return ast.unparse(raised.func if isinstance(raised, ast.Call) else raised)


def test_the_cause_of_an_error_is_told_to_the_error_too() -> None:
    """mypyc leaves out what stands after ``from``: a refused connection had two tracebacks."""
    assert [
        (at, found)
        for at, tree in compiled_trees()
        if {"client", "recipes"} & {*Path(at).parts}
        for found in raised_without_its_cause(tree)
    ] == []


def test_a_cause_that_is_not_told_is_seen() -> None:
    """Not told, or told another."""
    assert raised_without_its_cause(
        ast.parse(
            "raise caused(A(1), None) from None\nraise A(1) from error\n"
            "raise caused(a, error) from None\nraise a\nraise AskAgain from None\n"
        )
    ) == [2, 3]


def test_no_compiled_finally_reads_what_its_try_has_set() -> None:
    """mypyc takes it for what the try sets, also where that has failed: a release that was not
    answered ended in "bool object expected; got None"."""
    found = {at: read for at, tree in compiled_trees() if (read := read_in_finally(tree))}

    assert found == _MAY_BE_READ, "an attribute for it"


def test_what_a_finally_reads_is_found() -> None:
    source = """
first = second = None
try:
    first = one()
    third.attribute = two()
except OSError as error:
    second = error
finally:
    end(first, second, third)
"""
    assert read_in_finally(ast.parse(source)) == {"first", "second"}


_WITHOUT_EFFECT = {"_padding_bytes", "len", "max", "min", "rfind", "rindex", "tell"}


def calls_in_slices(tree: ast.AST) -> list[int]:
    """Return the lines of slices whose bounds call something that must not be called twice."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Slice)
        for each in ast.walk(node)
        if isinstance(each, ast.Await | ast.NamedExpr)
        or (
            isinstance(each, ast.Call)
            and ast.unparse(each.func).rpartition(".")[2] not in _WITHOUT_EFFECT
        )
    ]


def test_no_compiled_slice_calls_something() -> None:
    """mypyc asks for the bounds twice: ``data[socket.send(data):]`` sent its bytes twice over."""
    found = [(at, line) for at, tree in compiled_trees() for line in calls_in_slices(tree)]
    assert found == [], "a variable for the bound"


def test_calls_in_slices_are_found() -> None:
    source = """
fine = data[len(head) : at + 1]
wrong = data[send(data) :]
wrong = data[: (end := 3)]
"""
    assert calls_in_slices(ast.parse(source)) == [3, 4]


def read_as_they_are_not(tree: ast.Module) -> list[str]:
    """Return the records of a module of which it makes a decoder."""
    records = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef) and "Struct" in map(ast.unparse, node.bases)
    }
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] == "Decoder"
        and records & {ast.unparse(each) for each in node.args}
    ]


def test_no_compiled_module_decodes_into_a_record_of_its_own() -> None:
    """mypyc keeps ``type`` of an annotation that is no plain class: a member refused each answer of
    the leader to heartbeats, since it had ``dict`` where it wanted ``type``."""
    found = [(at, name) for at, tree in compiled_trees() for name in read_as_they_are_not(tree)]
    assert found == []


def test_a_decoder_of_a_record_is_found() -> None:
    source = """
class Answer(Struct):
    names: dict[str, int] | None = None

reader, other = Decoder(Answer), msgspec.json.Decoder(list[int])
"""
    assert read_as_they_are_not(ast.parse(source)) == ["Decoder(Answer)"]


def referred_to_weakly(tree: ast.AST) -> list[int]:
    """Return the lines where an object refers to itself weakly."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in ("finalize", "ref", "WeakMethod")
        and any(ast.unparse(each).partition(".")[0] == "self" for each in node.args[:1])
    ]


def test_no_compiled_object_refers_to_itself_weakly() -> None:
    """It cannot be done: a member stopped when its thread for slow disks was to begin."""
    found = [(at, line) for at, tree in compiled_trees() for line in referred_to_weakly(tree)]
    assert found == []


def test_a_weak_reference_to_oneself_is_found() -> None:
    source = "end = weakref.finalize(self, desk.end)\nfine = finalize(desk, desk.end)\n"
    assert referred_to_weakly(ast.parse(source)) == [1]


def test_nothing_interpreted_inherits_from_a_compiled_class() -> None:
    """It could not be made: members stopped at their start, when elections, which inherit from the
    queues of locks, were left interpreted."""
    compiled = {path: ast.parse(path.read_text(encoding="utf-8")) for path in compiled_sources()}
    plain = ("NamedTuple", "Protocol", "Enum", "Struct", "Error", "Exception")
    native = {
        (dotted(path), node.name)
        for path, tree in compiled.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and not any(ast.unparse(each).partition("[")[0].endswith(plain) for each in node.bases)
    }
    assert native
    found = []
    folders = ("coordinator", "examples", "tests", "bench")
    for path in [each for folder in folders for each in (ROOT / folder).rglob("*.py")]:
        if path in compiled:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {
            (node.module, each.name): each.asname or each.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for each in node.names
        }
        names = {name for at, name in imported.items() if at in native}
        found += [
            f"{path.relative_to(ROOT)}: {node.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and names & {ast.unparse(each).partition("[")[0] for each in node.bases}
        ]
    assert found == []


def plain_attributes(tree: ast.AST) -> list[str]:
    """Return what classes set for all of their objects without ClassVar, as ``Class.name``."""
    return [
        f"{node.name}.{name.id}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not any("Enum" in ast.unparse(b) for b in node.bases)
        for each in node.body
        if isinstance(each, ast.Assign)
        for name in each.targets
        if isinstance(name, ast.Name) and not name.id.startswith("__")
    ]


def test_no_attribute_of_a_compiled_class_is_asked_of_the_class() -> None:
    """It belongs to the objects then: a member stopped on "int object expected; got
    getset_descriptor". A constant of the module for it, or ClassVar."""
    trees = [ast.parse(path.read_text()) for path in compiled_sources()]
    plain = [each for tree in trees for each in plain_attributes(tree)]
    sources = (ROOT / "coordinator").rglob("*.py")
    text = "".join([path.read_text() for path in sources])

    assert plain
    assert [each for each in plain if re.search(rf"\b{re.escape(each)}\b", text)] == []


def test_plain_attributes_are_found() -> None:
    source = """
class Look:
    every_ms = 5_000
    size: ClassVar[int] = 3
    __slots__ = ("a",)
"""
    assert plain_attributes(ast.parse(source)) == ["Look.every_ms"]


def lone_surrogates(tree: ast.AST) -> list[int]:
    """Return the lines of texts with half a character in them."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and any("\ud800" <= each <= "\udfff" for each in node.value)
    ]


def test_no_compiled_text_has_a_lone_surrogate() -> None:
    """mypyc refuses it; in a pattern, the escape of a raw text does the same."""
    found = {str(path): lone_surrogates(ast.parse(path.read_text())) for path in compiled_sources()}

    assert [each for each in found.items() if each[1]] == []
    assert lone_surrogates(ast.parse('"a\\ud800"')) == [1]
