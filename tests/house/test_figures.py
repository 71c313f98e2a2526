"""The tools of ``make house`` count what they say."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house import constructions, duplicates, imports, source
from tests.house.__main__ import ROOT, flow
from tests.house.flow import MARK, holds_mark


def module(name: str, text: str) -> source.Module:
    return source.Module(name, Path(f"{name}.py"), text, ast.parse(text))


SIX = "".join(f"    total = add(total, {number}, of=values)\n" for number in range(6))


def test_the_same_six_lines_are_found_once_and_at_full_length() -> None:
    """Comments and blank lines between do not hide a duplicate; a longer one is one."""
    left = module("left", f"def one():\n{SIX}    return total\n")
    right = module(
        "right", f"def two():\n    # why\n{SIX.replace('1', '1', 1)}\n    return total\n"
    )

    found = duplicates.duplicates([left, right])

    assert [str(each) for each in found] == ["left:2 = right:3 (7 lines)"]


def test_five_equal_lines_are_no_duplicate() -> None:
    """Nor are imports, which every module writes out."""
    five = SIX.split("\n", 1)[1]
    importing = "".join(f"from somewhere.else_ import name_{number} as b\n" for number in range(9))

    found = duplicates.duplicates([
        module("left", f"{importing}def one():\n{five}"),
        module("right", f"{importing}def two():\n{five}"),
    ])  # fmt: skip

    assert found == []


def test_a_circle_for_type_checking_is_a_circle() -> None:
    """Also one over three modules, and only once."""
    modules = [
        module("coordinator.model.a", "from coordinator.model.b import B\n"),
        module("coordinator.model.b", "def late():\n    import coordinator.model.c\n"),
        module("coordinator.model.c", "if TYPE_CHECKING:\n    from coordinator.model import a\n"),
        module("coordinator.model.d", "from coordinator.model.a import A\n"),
    ]

    circle = [f"coordinator.model.{name}" for name in "abc"]
    assert imports.circles(imports.imports(modules)) == [circle]


@pytest.mark.parametrize(
    ("importer", "imported", "is_up"),
    [
        ("coordinator.service.locks.service", "coordinator.recipes.lock", True),
        ("coordinator.state.machine", "coordinator.raft.engine", False),
        ("coordinator.wire.routes.locks", "coordinator.service.member", False),
        ("coordinator.recipes.lock", "coordinator.client", False),
        ("coordinator.recipes.lock", "coordinator", True),
        ("coordinator.client.sessions.session", "coordinator", True),
    ],
)
def test_imports_of_a_higher_room_run_up(importer: str, imported: str, is_up: bool) -> None:
    """The rooms have an order, whatever the table says."""
    assert bool(imports.running_up([imports.Import(importer, imported, 1)])) is is_up


def test_a_value_is_recognised_by_whatever_name_it_is_imported(tmp_path: Path) -> None:
    """Dataclasses, structs and what inherits from them; not a function, nor a class of services."""
    values = module(
        "coordinator.values",
        "class Base(Struct): a: int\nclass Three(Base): b: int\nclass Service: ...\n",
    )
    exporting = module("coordinator.public", "from coordinator.values import Three as Triple\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "it.py").write_text(
        "from coordinator import public as it\nfrom coordinator.values import Service, Three\n"
        "it.Triple(1, 2, 3)\nThree(1, 2, c=3)\nThree(*it.all, 2, 3)\nService(1, 2, 3)\n"
    )

    found = constructions.by_position(tmp_path, [values, exporting])

    assert [str(each) for each in found] == [
        "tests/it.py:3: coordinator.values.Three, 3 by position",
        "tests/it.py:5: coordinator.values.Three, 3 by position",
    ]


def test_public_functions_are_those_a_user_may_call() -> None:
    """Private classes, inner functions and setters need no docstring."""
    text = (
        "class Open:\n    def said(self):\n        'Say.'\n    def silent(self): ...\n"
        "class _Closed:\n    def silent(self): ...\n"
        "def outer():\n    'Say.'\n    def inner(): ...\n"
    )

    silent = [
        each.name
        for each in source.functions(module("m", text))
        if each.is_public and not each.has_docstring
    ]

    assert silent == ["Open.silent"]


def test_a_write_is_recognised_in_values_and_in_bytes() -> None:
    """In a path, inside base64, in nested tuples; not in what has nothing to do with it."""
    assert holds_mark(("set", {"path": f"/{MARK}"}))
    assert holds_mark(b'{"data": "SG91c2VNYXJrZXIx"}')
    assert not holds_mark(("set", {"path": "/other"}, 7, None))


Went = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def went() -> Went:
    """What was measured of one write and one lock: file and function."""
    return {name: [(file, each) for file, each in steps] for name, steps in flow(ROOT).items()}


def test_a_write_goes_the_way_that_the_docs_describe(went: Went) -> None:
    """Each step of docs/architecture.md is given the write, in this order, in twelve files."""
    described = source.way_of_a_write(ROOT)

    assert [step for step in described if step not in went["write"]] == []
    places = [went["write"].index(step) for step in described]
    assert places == sorted(places)
    assert len({file for file, _ in described}) <= 12


def test_four_files_lie_between_with_and_the_request(went: Went) -> None:
    """No file but those of docs/architecture.md, whose functions call each other in this order."""
    described = source.way_of_a_lock(ROOT)

    calls = went["with"]

    assert {file for file, _ in calls} == {file for file, _ in described}
    assert len(described) <= 4
    assert [step for step in calls if step in described] == described
