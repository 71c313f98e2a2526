"""A program that asks type checkers for the type of each public verb, and what they answer.

The program is made from what the package exports, so a verb that comes later is in it. mypy and
pyright write the same type differently; ``returned`` brings both to one form.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from itertools import pairwise

import coordinator
from coordinator import recipes

CLIENTS = ("Client", "AsyncClient")
MADE = {
    "Lock": '(client, "a")',
    "ReentrantLock": '(client, "a")',
    "RWLock": '(client, "a")',
    "Semaphore": '(client, "a", 2)',
    "MultiLock": '(client, "a", "b")',
    "TreeLock": '(client, "a")',
    "ManualLock": '(client, "a")',
    "Revoker": '(client, "a")',
    "Election": '(client, "a")',
    "Once": "(client)",
    "Job": '(client, "a", every="1h")',
    "Jobs": "(client)",
    "TokenBucket": '(client, "a", rate=1, burst=1)',
    "Counter": '(client, "a")',
    "Flag": '(client, "a")',
    "Barrier": '(client, "a")',
    "DoubleBarrier": '(client, "a", 2)',
    "Latch": '(client, "a", 2)',
    "Condition": '(client, "a")',
    "Group": '(client, "a")',
    "Partitioner": '(client, "a", 2)',
    "WorkQueue": '(client, "a")',
    "Pool": '(client, "a", ["b"])',
    "CachedValue": '(client, "a")',
    "TreeCache": '(client, "/a")',
    "Configuration": '(client, "a")',
    "CommitLog": '(client, "a")',
    "CommitSite": '(client, "a", "b")',
}
"""What follows the name of a recipe that a program makes; the others it gets from these."""


_FUNCTIONS = ("exclusive", "once_per")
"""Decorators, which are classes inside; the examples of ``typing_example.py`` have them."""


@dataclass(frozen=True, slots=True)
class Program:
    """The source, and what is asked for on which line (from 1)."""

    source: str
    asked: dict[int, str]


def program() -> Program:
    """Return the program that asks for the type of everything public."""
    lines = ["from coordinator import *"]
    asked: dict[int, str] = {}

    def ask(expression: str, name: str) -> None:
        lines.append(f"    reveal_type({expression})")
        asked[len(lines)] = name

    for client in CLIENTS:
        lines.append(f"def by_{client}(client: {client}) -> None:")
        for verb in _verbs(getattr(coordinator, client)):
            ask(f"client.{verb}", f"{client}.{verb}")
        for recipe, arguments in MADE.items():
            ask(f"{recipe}{arguments}", f"{recipe}[{client}]")
        for name, kind in _classes().items():
            lines.append(f"def {name}_{client}(item: {_of(kind, client)}) -> None:")
            for verb in _verbs(kind):
                ask(f"item.{verb}", f"{name}[{client}].{verb}")
            lines.append("    pass")
    return Program("\n".join(lines) + "\n", asked)


def _classes() -> dict[str, type]:
    exported = {each: getattr(coordinator, each) for each in recipes.__all__}
    kinds = {name: kind for name, kind in exported.items() if inspect.isclass(kind)}
    return {name: kind for name, kind in kinds.items() if name not in _FUNCTIONS}


def _of(kind: type, client: str) -> str:
    return f"{kind.__name__}[{client}]" if getattr(kind, "__parameters__", ()) else kind.__name__


def _verbs(kind: type) -> list[str]:
    of_tuples = dir(tuple) if issubclass(kind, tuple) else ()
    return [each for each in dir(kind) if not each.startswith("_") and each not in of_tuples]


def returned(shown: str) -> set[str]:
    """Return what a function returns, each of its overloads; of what is no function, its type."""
    inner = re.fullmatch(r"Overload[(\[](.*)[)\]]", shown)
    return {_result(each) for each in _split(inner[1] if inner else shown)}


def _split(shown: str) -> list[str]:
    """Split the overloads of a function, at each comma that is in no bracket."""
    depths = _depths(shown)
    cuts = [
        at
        for at in range(len(shown))
        if not depths[at] and re.match(r", (def )?[(\[]", shown[at : at + 8])
    ]
    bounds = [0, *[at + 2 for at in cuts], len(shown) + 2]
    return [shown[begin : end - 2] for begin, end in pairwise(bounds)]


def _result(shown: str) -> str:
    depths = _depths(shown)
    arrows = [each.start() for each in re.finditer("->", shown) if not depths[each.start()]]
    if arrows:
        shown = shown[arrows[0] + 3 :]
    elif shown.startswith("def "):
        shown = "None"  # mypy leaves that out
    return plain(shown)


def _depths(shown: str) -> list[int]:
    depth, depths = 0, []
    for letter in shown:
        depth -= letter in ")]}"
        depths.append(depth)
        depth += letter in "([{"
    return depths


_LITERALS = re.compile(r"Literal\[([^]]*)\]( \| Literal\[([^]]*)\])+")
_NAMED_TUPLE = re.compile(r"tuple\[[^][]*, fallback=(\w+)\]")


def plain(shown: str) -> str:
    """Return a type in the one form in which both checkers are compared."""
    shown = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", shown)  # the modules
    shown = re.sub(r"`-?\d+|@\w+", "", shown)  # whose type variable it is
    shown = shown.replace("CoroutineType[", "Coroutine[")
    shown = _LITERALS.sub(lambda each: each[0].replace("] | Literal[", ", "), shown)
    while (inner := _NAMED_TUPLE.sub(r"\1", shown)) != shown:
        shown = inner
    shown = re.sub(r"def \((.*?)\)(?! ->)", r"(\1) -> None", shown)
    while shown.startswith("(") and shown.endswith(")") and min(_depths(shown)[1:-1]) > 0:
        shown = shown[1:-1]
    return shown.replace("def (", "(")
