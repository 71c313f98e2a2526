"""What mypyc does otherwise than Python, and would not say: found in the source, also where nothing
is compiled.

A trap is a function that returns where a module steps into it. Each module is parsed once, and its
nodes are sorted by their kind once, for all of them.
"""

from __future__ import annotations

import ast
import enum
import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, is_typeddict

import pytest

from tests.compiled_modules import ROOT, compiled_sources

Node = TypeVar("Node", bound=ast.AST)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source:
    """One module: its tree, and the nodes of each kind in the order of the file."""

    def __init__(self, text: str) -> None:
        self.tree = ast.parse(text)
        self._nodes: dict[type, list[Any]] = defaultdict(list)
        for node in ast.walk(self.tree):
            self._nodes[type(node)].append(node)

    def of(self, *kinds: type[Node]) -> list[Node]:
        """Return the nodes of these kinds."""
        return [node for kind in kinds for node in self._nodes.get(kind, ())]

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """Return the calls of functions whose last name is one of these."""
        return (each for each in self.of(ast.Call) if called(each) in names)


def called(call: ast.Call) -> str:
    """Return the last name of what is called, empty for what has none."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


@cache
def compiled() -> dict[str, Source]:
    """Return each module that is compiled, by its path."""
    return {
        str(path.relative_to(ROOT)): Source(path.read_text(encoding="utf-8"))
        for path in compiled_sources()
    }


def waits_in_handlers(source: Source) -> list[int]:
    """Coroutines share the thread's error: while one waits in an except or a finally, another task
    would see and replace it. Note the error, and wait behind the try."""
    found: set[int] = set()

    def look(node: ast.AST, is_handling: bool) -> None:
        if isinstance(node, ast.Await | ast.AsyncFor | ast.AsyncWith) and is_handling:
            found.add(node.lineno)
        if isinstance(node, ast.AsyncWith):
            for item in node.items:
                context = item.context_expr
                name = ast.unparse(context.func if isinstance(context, ast.Call) else context)
                if name.rpartition(".")[2] not in _ENDS_WITHOUT_A_WAIT:
                    found.add(node.lineno)
        for field, value in ast.iter_fields(node):
            inside = is_handling or isinstance(node, ast.ExceptHandler) or field == "finalbody"
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST) and not isinstance(each, (*FUNCTIONS, ast.Lambda)):
                    look(each, inside)

    for coroutine in source.of(ast.AsyncFunctionDef):
        look(coroutine, False)
    return sorted(found)


_ENDS_WITHOUT_A_WAIT = ("deadline", "scope", "timeout")
"""Contexts whose end waits for nothing, by the last word of their name."""


def gathered_one_by_one(source: Source) -> list[int]:
    """A tuple, by the types of asyncio, and a list in truth: members stopped so when two answers of
    the comparison of states were waited for together. ``gather(*[...])`` is none."""
    return [
        node.lineno
        for node in source.calls("gather")
        if not all(isinstance(each, ast.Starred) for each in node.args)
    ]


def ends_in_generators(source: Source) -> list[int]:
    """A generator that is left before its end is not closed: a ``finally`` would not run."""
    found = [
        each.lineno
        for node in source.of(ast.With, ast.AsyncWith, ast.Try)
        if not isinstance(node, ast.Try) or node.finalbody
        for each in ast.walk(node)
        if isinstance(each, ast.Yield | ast.YieldFrom)
    ]
    return sorted(found)


def early_generators(source: Source) -> list[int]:
    """A generator expression becomes a list, unless it is consumed where it is written: the first
    of 10,000 holders cost a look at all of them."""
    consumed = {
        id(argument)
        for call in source.calls(*_CONSUMING)
        for argument in call.args
    }  # fmt: skip
    return [node.lineno for node in source.of(ast.GeneratorExp) if id(node) not in consumed]


_CONSUMING = (
    "all", "any", "bytes", "dict", "extend", "frozenset", "join", "list", "max", "min", "next",
    "set", "sorted", "sum", "tuple", "update",
)  # fmt: skip
"""What takes all of a generator expression at once, or of what mypyc makes a loop."""


def read_in_finally(source: Source) -> list[str]:
    """What a ``finally`` reads is taken for what its ``try`` sets, also where that has failed: a
    release that was not answered ended in "bool object expected; got None"."""
    found = set()
    for node in source.of(ast.Try):
        tried = [each for part in (node.body, node.handlers) for each in part]
        stored, loaded = (
            {
                each.id
                for part in parts
                for each in ast.walk(part)
                if isinstance(each, ast.Name) and isinstance(each.ctx, kind)
            }
            for parts, kind in ((tried, ast.Store), (node.finalbody, ast.Load))
        )
        found |= stored & loaded
    return sorted(found)


def calls_in_slices(source: Source) -> list[int]:
    """The bounds of a slice are asked for twice: ``data[socket.send(data):]`` sent its bytes twice
    over."""
    return [
        node.lineno
        for node in source.of(ast.Slice)
        for each in ast.walk(node)
        if isinstance(each, ast.Await | ast.NamedExpr)
        or (isinstance(each, ast.Call) and called(each) not in _WITHOUT_EFFECT)
    ]


_WITHOUT_EFFECT = {"_padding_bytes", "len", "max", "min", "rfind", "rindex", "tell"}


def own_records_decoded(source: Source) -> list[str]:
    """The annotations of a record become ``type`` unless they are plain classes: a member refused
    each answer of the leader to heartbeats, since it had ``dict`` where it wanted ``type``."""
    records = {node.name for node in source.of(ast.ClassDef) if "Struct" in bases(node)}
    return [
        ast.unparse(node)
        for node in source.calls("Decoder")
        if records & {ast.unparse(each) for each in node.args}
    ]


def options_of_records(source: Source) -> list[str]:
    """What stands beside the bases of a record is dropped: it would be encoded otherwise. That it
    is not frozen there does no harm."""
    return [
        node.name
        for node in source.of(ast.ClassDef)
        if "Struct" in bases(node) and {each.arg for each in node.keywords} - {"frozen"}
    ]


def bases(node: ast.ClassDef) -> set[str]:
    """Return the names of a class's bases, without what stands in brackets."""
    return {ast.unparse(each).partition("[")[0] for each in node.bases}


def referred_to_weakly(source: Source) -> list[int]:
    """A compiled object cannot refer to itself weakly: a member stopped when its thread for slow
    disks was to begin."""
    return [
        node.lineno
        for node in source.calls("finalize", "ref", "WeakMethod")
        if any(ast.unparse(each).partition(".")[0] == "self" for each in node.args[:1])
    ]


def lengths_without_truth(source: Source) -> list[str]:
    """An instance is true unless its class has ``__bool__``: a snapshot was refused at a start
    because an empty table in ``if recorded`` counted as one with rows."""
    methods = {
        node.name: {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        for node in source.of(ast.ClassDef)
    }
    return [name for name, its in methods.items() if "__len__" in its and "__bool__" not in its]


def second_looks(source: Source) -> list[str]:
    """A first look whether an attribute is None is believed though a method changed it since: a
    member stopped at its first snapshot, because a table that had just been given up was "expected,
    got None". Let the method return it."""
    found = set()
    for function in source.of(*FUNCTIONS):
        inside = list(ast.walk(function))
        compared = sorted(
            (each.lineno, ast.unparse(each.left))
            for each in inside
            if isinstance(each, ast.Compare) and ast.unparse(each.comparators[0]) == "None"
        )
        first: dict[str, int] = {}
        for line, name in compared:
            if not name.startswith("self.") or first.setdefault(name, line) == line:
                continue
            if any(
                isinstance(each, ast.Call)
                and ast.unparse(each.func).startswith("self.")
                and first[name] < each.lineno < line
                for each in inside
            ):
                found.add(function.name)
    return sorted(found)


def lone_surrogates(source: Source) -> list[int]:
    """Half a character is refused; in a pattern, the escape of a raw text does the same."""
    return [
        node.lineno
        for node in source.of(ast.Constant)
        if isinstance(node.value, str) and re.search("[\ud800-\udfff]", node.value)
    ]


def plain_attributes(source: Source) -> list[str]:
    """What a class sets for all of its objects belongs to the objects: a member stopped on "int
    object expected; got getset_descriptor". A constant of the module for it, or ClassVar."""
    return [
        f"{node.name}.{name.id}"
        for node in source.of(ast.ClassDef)
        if not any("Enum" in each for each in bases(node))
        for each in node.body
        if isinstance(each, ast.Assign)
        for name in each.targets
        if isinstance(name, ast.Name) and not name.id.startswith("__")
    ]


def recursive(source: Source) -> list[str]:
    """Functions have no limit of recursion: too deep ends the process, without a word. Found also
    where one calls itself by way of others of its class or module."""
    calls: dict[str, set[str]] = defaultdict(set)
    for owner in [source.tree, *source.of(ast.ClassDef, *FUNCTIONS)]:
        prefix = f"{owner.name}." if isinstance(owner, ast.ClassDef) else ""
        for node in owner.body:
            if not isinstance(node, FUNCTIONS):
                continue
            for each in called_in(node.body):
                if isinstance(each, ast.Name):
                    calls[prefix + node.name].add(each.id)
                elif isinstance(each, ast.Attribute) and ast.unparse(each.value) == "self":
                    calls[prefix + node.name].add(prefix + each.attr)

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        rest = [*calls[start]]
        while rest:
            name = rest.pop()
            if name in calls and name not in found:
                found.add(name)
                rest += calls[name]
        return found

    return [name for name in sorted(calls) if name in reached(name)]


def called_in(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Yield what these statements call, but not what functions do that they only define."""
    rest: list[ast.AST] = [*body]
    while rest:
        node = rest.pop()
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            continue
        if isinstance(node, ast.Call):
            yield node.func
        rest += ast.iter_child_nodes(node)


Trap = Callable[[Source], Iterable[object]]

TRAPS: dict[Trap, tuple[str, list[object]]] = {
    waits_in_handlers: (
        """
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
""",
        [6, 8, 12],
    ),
    gathered_one_by_one: (
        """
first, second = await asyncio.gather(one(), two())
many = await asyncio.gather(*[one(), two()], return_exceptions=True)
""",
        [2],
    ),
    ends_in_generators: (
        """
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
""",
        [8, 12],
    ),
    early_generators: (
        """
first = next((each for each in many if each.is_wanted), None)
whole = tuple(each for each in many)
wrong = (each for each in many)
take((each for each in many))
""",
        [4, 5],
    ),
    read_in_finally: (
        """
first = second = None
try:
    first = one()
    third.attribute = two()
except OSError as error:
    second = error
finally:
    end(first, second, third)
""",
        ["first", "second"],
    ),
    calls_in_slices: (
        """
fine = data[len(head) : at + 1]
wrong = data[send(data) :]
wrong = data[: (end := 3)]
""",
        [3, 4],
    ),
    own_records_decoded: (
        """
class Answer(Struct):
    names: dict[str, int] | None = None

reader, other = Decoder(Answer), msgspec.json.Decoder(list[int])
""",
        ["Decoder(Answer)"],
    ),
    options_of_records: (
        """
class Fine(Struct, frozen=True):
    pass
class Wrong(Struct, frozen=True, tag=True):
    pass
""",
        ["Wrong"],
    ),
    referred_to_weakly: (
        "end = weakref.finalize(self, desk.end)\nfine = finalize(desk, desk.end)\n",
        [1],
    ),
    lengths_without_truth: (
        """
class Fine:
    def __len__(self): return 0
    def __bool__(self): return False
class Wrong:
    def __len__(self): return 0
""",
        ["Wrong"],
    ),
    second_looks: (
        """
def some(self):
    if self._beside is None:
        return False
    self._merge(500)
    return self._beside is not None

def fine(self):
    if self._beside is None:
        return False
    return self._merge(500)
""",
        ["some"],
    ),
    lone_surrogates: ('fine = "a"\nwrong = "a\\ud800"', [2]),
    plain_attributes: (
        """
class Look:
    every_ms = 5_000
    size: ClassVar[int] = 3
    __slots__ = ("a",)
""",
        ["Look.every_ms"],
    ),
    recursive: (
        """
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
        call_soon(lambda: self.later())
""",
        ["Tree.below", "Tree.depth", "one", "two"],
    ),
}
"""Each trap, and a module that steps into it: what is found there."""

ALLOWED: dict[tuple[str, Trap], list[object]] = {
    ("coordinator/raft/entries.py", second_looks): ["apply"],  # behind both branches of an if
    ("coordinator/service/writes/proposals.py", read_in_finally): ["is_counted", "mark"],
    ("coordinator/state/emptying.py", recursive): ["emptied"],  # a table has no tables
    ("coordinator/state/rules.py", recursive): ["_text_of"],  # our own constants
    ("coordinator/wire/codec.py", second_looks): ["__init__"],  # nothing changes it between them
    ("coordinator/wire/codec.py", recursive): ["_form"],  # of types, when modules are loaded
    ("coordinator/wire/http/slim.py", recursive): [  # by way of a task
        "SlimConnection._next", "SlimConnection._serve",
    ],
    ("coordinator/wire/packed.py", recursive): ["_array", "_field", "_object", "_plan_of"],
    ("coordinator/wire/routes/acquire.py", read_in_finally): ["grant", "is_granting"],
    ("coordinator/wire/routes/acquire.py", recursive): ["_with_lease"],  # parts of a grant
    ("coordinator/wire/routes/answering.py", read_in_finally): [
        "operation_id", "renewal", "status",
    ],
    ("coordinator/wire/routes/door.py", read_in_finally): ["body"],
}  # fmt: skip
"""What may be, and why it does no harm; a ``finally`` may read what is of one type in all of it."""


def test_no_compiled_module_steps_into_a_trap() -> None:
    found = {
        (at, trap): hits
        for at, source in compiled().items()
        for trap in TRAPS
        if (hits := [*trap(source)])
    }

    assert found == ALLOWED


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.__name__)
def test_a_trap_is_seen(trap: Trap) -> None:
    """Where it is planted, and only there."""
    source, expected = TRAPS[trap]

    assert [*trap(Source(source))] == expected


def classes_of(at: str) -> list[type]:
    """Return the classes that a compiled module defines."""
    module = importlib.import_module(at.removesuffix(".py").replace("/", "."))
    return [
        each
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
    ]


def test_what_inherits_a_length_says_whether_it_is_empty() -> None:
    """Lengths that come from a base class, and members of enumerations: they are true in compiled
    code, so none may be false where it is not compiled."""
    for each in (each for at in compiled() for each in classes_of(at)):
        if issubclass(each, enum.Enum) and "__bool__" not in vars(each):
            assert all(each), each
        elif hasattr(each, "__len__") and not (getattr(each, "_fields", ()) or is_typeddict(each)):
            assert hasattr(each, "__bool__") or issubclass(each, enum.Enum), each


_CLASS = re.compile(r"^ *class (\w+)\((.*?)\):", re.MULTILINE | re.DOTALL)
_INHERITABLE = {"Enum", "Exception", "IntEnum", "NamedTuple", "Protocol", "StrEnum", "Struct"}
"""Bases of classes that mypyc leaves to Python."""


def test_nothing_interpreted_inherits_from_a_compiled_class() -> None:
    """Python refuses it where the build is compiled, and only there: members stopped at their
    start. Tests do not either."""
    native = {
        node.name
        for source in compiled().values()
        for node in source.of(ast.ClassDef)
        if not _INHERITABLE & bases(node)
    }
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for room in ("coordinator", "tests", "bench", "examples")
        for path in sorted((ROOT / room).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in compiled()
        for name, inherited in _CLASS.findall(path.read_text(encoding="utf-8"))
        if native & {each.strip().partition("[")[0] for each in inherited.split(",")}
    ]

    assert {"Tree", "LargeMap"} <= native
    assert found == []


OF_PROGRAMS = ("client", "recipes", "guards", "integrations", "testing", "errors.py", "__init__.py")


def test_nothing_that_users_name_is_compiled() -> None:
    """A compiled class cannot be subclassed, patched or referred to weakly, and a compiled function
    has no types."""
    assert {Path(at).parts[1] for at in compiled()}.isdisjoint(OF_PROGRAMS)


def test_the_page_counts_what_is_compiled() -> None:
    """A number that nobody compares is wrong after the next change."""
    said = re.search(r"compiles (\d+) modules", (ROOT / "docs/performance.md").read_text())
    assert said is not None
    assert int(said[1]) == len(compiled())
