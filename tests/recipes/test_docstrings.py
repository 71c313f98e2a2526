"""The example in the docstring of each recipe runs, as it stands, with a sync and an async client.

What an example does not make itself is made here: a stub that answers "done" to everything, or what
``GIVEN`` says. An example that never ends by itself is ended by closing its client.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import datetime
import re
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import coordinator
from coordinator import Client, CommitSite, Counter, DoubleBarrier, Flag, Latch, Lock, connect
from coordinator.errors import ClientClosedError, CoordinatorError, OutcomeUnknownError
from coordinator.recipes.jobs.schedule import Schedule
from tests.cli.serving import ServedMember

RECIPES = Path(__file__).resolve().parents[2] / "coordinator" / "recipes"
BLOCK = re.compile(r"::\n\n((?:    .*\n|\n)+)")
NEVER_ENDS_S = 1.0
NEVER_END = {
    "commit_log", "commit_site", "configuration", "job", "partitioner", "tree_cache",
}  # fmt: skip
"""They loop, and say so."""
LONG = {"group", "commit_log"}
"""They wait for seconds: ``make check`` runs them."""


class Stub:
    """Whatever it is asked for: another one; whatever it is asked to do, "done"."""

    def __getattr__(self, name: str) -> Stub:
        return Stub()

    def __iter__(self) -> Iterator[Stub]:
        return iter([Stub()])

    def __call__(self, *arguments: Any, **named: Any) -> str:
        return "done"


async def stub(*arguments: Any, **named: Any) -> str:
    """The same of an async example."""
    return "done"


def examples() -> dict[str, str]:
    """Return the Python in the docstrings, by the name of the module or of the class."""
    found = {}
    for path in sorted(RECIPES.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in (tree, *(each for each in tree.body if isinstance(each, ast.ClassDef))):
            block = BLOCK.search((ast.get_docstring(node) or "") + "\n")
            if block is not None:
                name = path.stem if isinstance(node, ast.Module) else node.name
                found[name] = textwrap.dedent(block[1])
    return found


EXAMPLES = examples()
Begin = Callable[[Client, Client], dict[str, Any]]
"""What an example is given, by its client and that of others who take part in it."""


def in_threads(*works: Callable[[], object]) -> None:
    def run(work: Callable[[], object]) -> None:
        with suppress(CoordinatorError):
            work()

    for each in works:
        threading.Thread(target=run, args=[each], daemon=True).start()


def stock(client: Client, _: Client) -> dict[str, Any]:
    Counter(client, "stock").compare_and_set(0, 5)
    return {"stock": Counter(client, "stock")}


def three_others(_: Client, other: Client) -> dict[str, Any]:
    def take_part() -> None:
        step = DoubleBarrier(other, "training", 4)
        step.enter(60)
        step.leave(60)

    in_threads(take_part, take_part, take_part)
    return {}


def the_barrier_is_opened(_: Client, other: Client) -> dict[str, Any]:
    def open_when_closed() -> None:
        Flag(other, "schema-42").wait(60)
        barrier = coordinator.Barrier(other, "maintenance")
        while not barrier.open():
            pass

    in_threads(open_when_closed)
    return {}


def two_parts(_: Client, other: Client) -> dict[str, Any]:
    latch = Latch(other, "import-2026-01", 3)
    in_threads(lambda: latch.count_down("part-1"), lambda: latch.count_down("part-3"))
    return {}


def sites(_: Client, other: Client) -> dict[str, Any]:
    def agree(_: object) -> bool:
        return True

    def attend(name: str) -> None:
        CommitSite(other, "payments", name).attend(agree, stub_of_a_site, timeout=5)

    in_threads(lambda: attend("shop"), lambda: attend("bank"))
    return {"prepare": agree, "apply": stub_of_a_site}


def stub_of_a_site(_: object) -> None:
    """Nothing to apply."""


def tree(client: Client, _: Client) -> dict[str, Any]:
    client.create("/config/limits", b"5", parents="persistent")
    return {}


def held(client: Client, _: Client) -> dict[str, Any]:
    return {"lock": Lock(client, "gpu")}


GIVEN: dict[str, Begin] = {
    "condition": stock,
    "counter": stock,
    "double_barrier": three_others,
    "flag": the_barrier_is_opened,
    "latch": two_parts,
    "commit_log": sites,
    "tree_cache": tree,
    "revoker": held,
}


def names_for(tree: ast.Module, *, is_async: bool) -> dict[str, Any]:
    """Return stubs for what an example uses, and neither makes nor imports."""
    given: dict[str, Any] = {each: getattr(coordinator, each) for each in coordinator.__all__}
    given |= {"Schedule": Schedule, "datetime": datetime.datetime, "UTC": datetime.UTC}
    used = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    for name in used - given.keys() - set(dir(builtins)):
        given[name] = stub if is_async else Stub()
    return given


@pytest.fixture(scope="module")
def member() -> Iterator[ServedMember]:
    served = ServedMember()
    served.start()
    yield served
    served.stop()


def run(module: str, member: ServedMember) -> None:
    """Run the statements of the example: in threads with a Client, or with an AsyncClient."""
    whole = ast.parse(EXAMPLES[module])
    waits = [each for each in whole.body if "await" in ast.unparse(each)]
    others = [each for each in whole.body if each not in waits]
    with connect(member.url) as client, connect(member.url) as other:
        begin = GIVEN.get(module)
        given = begin(client, other) if begin is not None else {}
        plain = ast.Module(others, [])
        names = {**names_for(plain, is_async=False), "client": client, **given}
        if module in NEVER_END:
            timer = threading.Timer(NEVER_ENDS_S, client.close)
            timer.start()
            with suppress(ClientClosedError, OutcomeUnknownError):
                exec(compile(plain, module, "exec"), names)  # noqa: S102 (our own docstrings)
            timer.join()
        else:
            exec(compile(plain, module, "exec"), names)  # noqa: S102
    if waits:
        asyncio.run(run_async(ast.Module(waits, []), module, member))


async def run_async(tree: ast.Module, module: str, member: ServedMember) -> None:
    async with connect(member.url) as client:
        names = {**names_for(tree, is_async=True), "client": client}
        code = compile(tree, module, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        await eval(code, names)  # noqa: S307


@pytest.mark.parametrize(
    "module",
    [pytest.param(each, marks=[pytest.mark.check] if each in LONG else []) for each in EXAMPLES],
)
def test_the_example_of_a_recipe_runs(
    module: str, member: ServedMember, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in it is missing, misspelled or out of date."""
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", member.url)
    run(module, member)
