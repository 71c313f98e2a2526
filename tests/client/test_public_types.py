"""mypy and pyright see the same type of each public verb, and it is never Any by accident."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import recipes
from tests.client.public_types import MADE, Program, program, returned

ROOT = Path(__file__).parent.parent.parent
OF_PROGRAMS = {
    "JobReply.result", "JobRun.result", "GroupMember.metadata", "Snapshot.values",
    "Transaction.value",
}  # fmt: skip
"""JSON that programs put in, and get back: only they know of what type it is."""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Path]:
    """The program, and the directory that it is in, with what pyright wants to know."""
    directory, made = tmp_path_factory.mktemp("types"), program()
    (directory / "asking.py").write_text(made.source)
    settings = {
        "include": ["asking.py"],
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT)],
        "pythonVersion": f"{sys.version_info.major}.{sys.version_info.minor}",
    }
    (directory / "pyrightconfig.json").write_text(json.dumps(settings))
    return made, directory


def _by_mypy(directory: Path) -> dict[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "asking.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r'^asking\.py:(\d+): note: Revealed type is "(.*)"$', done.stdout, re.M)
    return {int(line): shown for line, shown in found}


def _by_pyright(directory: Path) -> dict[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        shown = re.fullmatch(r'Type of ".*?" is "(.*)"', each["message"], re.S)
        assert shown is not None, each
        found[each["range"]["start"]["line"] + 1] = shown[1]
    return found


@pytest.mark.check
def test_two_type_checkers_see_the_same_type_of_each_public_verb(
    asked: tuple[Program, Path],
) -> None:
    """What it returns, for both clients; Any only where a program gets back what it put in."""
    made, directory = asked
    by_mypy, by_pyright = _by_mypy(directory), _by_pyright(directory)
    assert by_mypy.keys() == by_pyright.keys() == made.asked.keys()
    different, unknown = {}, []
    for line, name in made.asked.items():
        mypy, pyright = returned(by_mypy[line]), returned(by_pyright[line])
        if mypy != pyright:
            different[name] = f"mypy {mypy}, pyright {pyright}"
        shown = " ".join(mypy | pyright).replace("Coroutine[Any, Any, ", "")
        if re.search(r"\b(Any|Unknown)\b", shown) and re.sub(r"\[.*?]", "", name) not in (
            OF_PROGRAMS
        ):
            unknown.append(f"{name}: {shown}")
    assert different == {}
    assert unknown == []


def test_every_recipe_that_a_program_makes_is_asked_for() -> None:
    """So that the checkers infer its client from the one that it is given."""
    made = {
        name
        for name in recipes.__all__
        if inspect.isclass(kind := getattr(recipes, name))
        and list(inspect.signature(kind).parameters)[:1] == ["client"]
    }
    given = {"Grant", "Leadership", "TokenChunk", "Membership", "Delivery", "Borrowed"}
    assert made - given == set(MADE)


def test_two_ways_of_writing_a_type_are_one() -> None:
    """Overloads, literals, named tuples, functions without a result; and differences stay."""
    assert returned("def (a: builtins.int =) -> x.y.Grant[x.Client] | None") == returned(
        "(a: int = 1) -> (Grant[Client] | None)"
    )
    assert returned("def (why: builtins.str =)") == returned("(why: str = '') -> None")
    assert returned("Overload(def (a: def () -> A) -> A, def (b: B) -> B)") == {"A", "B"}
    assert returned("Overload[(a: () -> A) -> A, (b: B) -> B]") == {"A", "B"}
    assert returned("Literal['a'] | Literal['b'] | None") == {"Literal['a', 'b'] | None"}
    assert returned("def () -> tuple[int, str | None, fallback=x.Stat] | None") == {"Stat | None"}
    assert returned("def () -> typing.Coroutine[Any, Any, T`-1]") == returned(
        "() -> CoroutineType[Any, Any, T@run]"
    )
    assert returned("() -> Grant[Any]") != returned("() -> Grant[Client]")
