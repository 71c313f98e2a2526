"""No example of ours relies on a lock alone: people copy examples.

What is looked for is code, not words: neither comments nor docstrings count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, examples, lines_of

TAKES = {
    *("Lock", "ReentrantLock", "RWLock", "Semaphore", "MultiLock", "TreeLock", "Election"),
    *("exclusive", "execute_exclusive"),
}
NUMBERS = {"fencing_token", "fencing_token_min", "epoch"}
"""What a store refuses the late writer by."""


def sources() -> Iterator[tuple[str, str]]:
    """Yield where each Python example is, and its text."""
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield path.name, path.read_text(encoding="utf-8")
    for example in examples("python"):
        yield example.name, example.body


def called(node: ast.AST) -> str:
    """Return the plain name of what a call calls."""
    target = node.func if isinstance(node, ast.Call) else None
    if isinstance(target, ast.Subscript):
        target = target.value
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def takes_a_lock(tree: ast.Module) -> bool:
    return any(called(node) in TAKES for node in ast.walk(tree))


def safety_of(tree: ast.Module) -> set[str]:
    """Return by what each late or repeated write does no harm."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in NUMBERS:
            found.add("the token is handed on")
        if called(node) == "condition":
            found.add("the write depends on the grant")
        if called(node) == "Once":
            found.add("the work is done once for each key")
        if isinstance(node, ast.keyword) and node.arg == "if_held":
            found.add("the write depends on the grant")
        if isinstance(node, ast.keyword) and node.arg == "guards":
            found.add("the store is raised to the token")
        if isinstance(node, ast.keyword) and ast.unparse(node) == "purpose='efficiency'":
            found.add("twice costs something and breaks nothing, and it says so")
    return found


SOURCES = list(sources())


@pytest.mark.parametrize(("where", "source"), SOURCES, ids=[where for where, _ in SOURCES])
def test_an_example_with_a_lock_shows_what_makes_it_safe(where: str, source: str) -> None:
    """Its token, a condition on its grant, a guard, or work that may happen twice."""
    tree = ast.parse(source)

    if takes_a_lock(tree):
        assert safety_of(tree), f"{where} relies on its lock alone"


def test_a_command_under_a_lock_is_shown_with_its_token() -> None:
    """In the shell blocks of all pages: the command gets a number, and it is seen."""
    held = [
        (example.name, line)
        for example in examples("sh")
        for line in lines_of(example.body)
        if re.search(r"\bcoordinator (lock|elect) .*-- ", line)
    ]

    assert held
    for where, line in held:
        assert "COORDINATOR_FENCING_TOKEN" in line, f"{where}: {line}"


@pytest.mark.parametrize(
    ("source", "is_safe"),
    [
        ("with Lock(client, 'a'):\n    save()  # pass grant.fencing_token here", False),
        (
            "'''if_held=grant'''\nwith recipes.Lock[Client](client, 'a') as grant:\n    save()",
            False,
        ),
        ("with Lock(client, 'a', purpose='correctness', waiver='trust me'):\n    save()", False),
        ("with Lock(client, 'a') as grant:\n    save(grant.fencing_token)", True),
        ("with Lock(client, 'a') as grant:\n    client.set('/a', b'', if_held=grant)", True),
        ("@exclusive('a')\ndef f(grant): print(grant.epoch)", True),
    ],
)
def test_words_about_a_token_are_not_its_use(source: str, is_safe: bool) -> None:
    """The check itself can fail."""
    tree = ast.parse(source)

    assert takes_a_lock(tree)
    assert bool(safety_of(tree)) == is_safe


def test_all_examples_are_looked_at() -> None:
    """Stories and pages alike; a file that is moved is not forgotten silently."""
    looked_at = {Path(where.partition(":")[0]).name for where, _ in SOURCES}

    assert {"README.md", "locks.md", "guards.md", "recipes.md"} <= looked_at
    assert {"ghost_writer.py", "instead_actor.py", "ghost.py"} <= looked_at
    assert sum(takes_a_lock(ast.parse(source)) for _, source in SOURCES) > 40
