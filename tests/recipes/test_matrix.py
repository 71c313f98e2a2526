"""Each recipe has all that a recipe has; a new one fails here until it has its row."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

from coordinator import recipes
from coordinator.cli.main import SECTIONS
from coordinator.client import ClientT
from tests.client.test_broken_connections import VERBS as CLIENT_VERBS
from tests.recipes.cancelling import ATTEMPTS
from tests.recipes.matrix import HELPERS, INTEGRATIONS, MATRIX, PARTS, Integration, Row, no
from tests.recipes.test_broken_recipes import VERBS
from tests.recipes.test_cancelled_recipes import WAITS
from tests.recipes.test_docstrings import EXAMPLES

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 420

each_recipe = pytest.mark.parametrize("name", MATRIX)


def section(page: str, heading: str) -> str:
    """Return the text below a heading, up to the next one of its kind or above."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = re.search(rf"^(#+) {re.escape(heading)}$", text, re.MULTILINE)
    assert found is not None, f"docs/{page}: no heading {heading!r}"
    rest = text[found.end() :]
    after = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest if after is None else rest[: after.start()]


def is_test(folder: str, named: str) -> bool:
    """Whether ``file::test`` is there."""
    file, _, test = named.partition("::")
    source = (ROOT / "tests" / folder / f"{file}.py").read_text(encoding="utf-8")
    return re.search(rf"^(async )?def {test}\(", source, re.MULTILINE) is not None


def test_every_export_has_a_row_or_is_part_of_one() -> None:
    """Nothing is exported that nobody looks at."""
    assert MATRIX.keys() | PARTS.keys() == set(recipes.__all__)
    assert not MATRIX.keys() & PARTS.keys()
    assert set(PARTS.values()) <= MATRIX.keys()


def test_each_file_is_small() -> None:
    """It is read at one go."""
    lengths = {
        path.name: len(path.read_text(encoding="utf-8").splitlines())
        for path in (ROOT / "coordinator" / "recipes").glob("*.py")
    }
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


@each_recipe
def test_one_core_serves_both_clients(name: str) -> None:
    """It is made with either client; a function of its own for each is nowhere."""
    made = getattr(recipes, name)
    home = import_module(f"coordinator.recipes.{MATRIX[name].home}")
    source = inspect.getsource(home)

    assert getattr(home, name) is made
    if inspect.isclass(made) and name not in ("exclusive", "once_per"):
        assert made.__parameters__ or ClientT in _arguments(made)
        assert re.search(r"@both|both\(|Contender|\(Lock\[|RWLock", source)
    else:
        assert re.search(r"\b(decorated|run_either)\(", source)


def _arguments(kind: type) -> set[object]:
    return {each for base in getattr(kind, "__orig_bases__", ()) for each in get_args(base)}


@each_recipe
def test_its_docstring_has_an_example_that_runs(name: str) -> None:
    """``test_docstrings`` runs it."""
    assert MATRIX[name].home in EXAMPLES or name == "Jobs"


@each_recipe
def test_it_is_named_in_its_section_of_the_docs(name: str) -> None:
    """Whose examples are run."""
    page, _, heading = MATRIX[name].page.partition("#")
    assert re.search(rf"\b{name}\b", section(page, heading)), MATRIX[name].page


CELLS = ("trace", "world", "cancelled", "broken", "verb", "story", "token")


@each_recipe
def test_its_cells_are_filled_or_say_why_not(name: str) -> None:
    """What a cell names is found; a reason is a sentence."""
    for cell in CELLS:
        said: str = getattr(MATRIX[name], cell)
        if isinstance(said, no):
            assert " " in said
        else:
            assert FOUND[cell](said), f"{name}: {cell} {said!r} is not there"


def _is_token(said: str) -> bool:
    module, _, attribute = said.partition(":")
    kind, _, name = attribute.partition(".")
    made = getattr(import_module(f"coordinator.recipes.{module}"), kind)
    return (
        hasattr(made, name)
        or f"self.{name} = " in inspect.getsource(made)
        or (name in getattr(made, "__dataclass_fields__", ()))
    )


FOUND = {
    "trace": lambda said: (ROOT / "tests" / "traces" / f"{said}.txt").exists(),
    "world": lambda said: is_test("recipes", said),
    "cancelled": lambda said: said in WAITS or said in ATTEMPTS,
    "broken": lambda said: said in VERBS or said in CLIENT_VERBS,
    "verb": lambda said: any(said == verb.name for _, verbs in SECTIONS for verb in verbs),
    "story": lambda said: (ROOT / "examples" / f"{said}.py").exists(),
    "token": _is_token,
}


def test_every_row_of_the_other_tables_belongs_to_a_recipe() -> None:
    """No world, trace or row is of a recipe that is gone."""
    rows: list[Row] = list(MATRIX.values())
    traces = {each.stem for each in (ROOT / "tests" / "traces").glob("recipe-*.txt")}
    assert traces <= {row.trace for row in rows}


@pytest.mark.parametrize("name", INTEGRATIONS)
def test_an_integration_is_documented_and_tested_with_the_real_library(name: str) -> None:
    """Its test is there; its library is an optional extra."""
    integration: Integration = INTEGRATIONS[name]
    assert section("frameworks.md", integration.page)
    assert is_test("integrations", integration.test)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for library in integration.libraries:
        assert re.search(rf'"{library}\b', text, re.IGNORECASE)


def test_every_integration_has_a_row() -> None:
    """Beside what they share."""
    there = {path.stem for path in (ROOT / "coordinator" / "integrations").glob("*.py")}
    assert there - {"__init__"} - HELPERS == set(INTEGRATIONS)
