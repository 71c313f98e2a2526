"""Imports between modules: those the table forbids, those that run up, and circles."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from tests.house.source import Module, nodes

# The rooms, lowest first: what a module imports lies on its own level or below.
LEVELS = (
    ("coordinator.errors", "coordinator.clock", "coordinator.waiting", "coordinator.console",
     "coordinator.node.log_lines", "coordinator.node.build", "coordinator.node.garbage",
     "coordinator.node.stable_files", "coordinator.node.open_files",
     "coordinator.node.service_manager"),
    ("coordinator.node.config", "coordinator.node.config_rules", "coordinator.node.config_file",
     "coordinator.node.secret_file", "coordinator.model", "coordinator.wording"),
    ("coordinator.audit", "coordinator.oidc", "coordinator.tls"),
    ("coordinator.state", "coordinator.raft"),
    ("coordinator.service",),
    ("coordinator.wire",),
    ("coordinator.client",),
    ("coordinator.guards", "coordinator.recipes"),
    ("coordinator.integrations",),
    ("coordinator",),
    ("coordinator.node.server", "coordinator.node.recovery", "coordinator.node.preflight",
     "coordinator.node.backups", "coordinator.node.backup_schedule"),
    ("coordinator.testing",),
    ("coordinator.learn",),
    ("coordinator.cli",),
    ("coordinator.__main__",),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Import:
    """One module importing another of ours."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def imports(modules: list[Module]) -> list[Import]:
    """Return every import of ours by ours: at the top, in functions, and for type checking."""
    known = {module.name for module in modules}
    found = []
    for module in modules:
        for node in nodes(module):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                inside = [f"{node.module}.{alias.name}" for alias in node.names]
                names = [name if name in known else node.module for name in inside]
            else:
                continue
            found += [
                Import(module.name, name, node.lineno)
                for name in dict.fromkeys(names)
                if name in known and name != module.name
            ]
    return found


def forbidden(found: list[Import], table: dict[str, tuple[str, ...]]) -> list[Import]:
    """Return the imports that the table of tests/test_house.py does not allow."""
    return [each for each in found if not _is_allowed(each, table)]


def running_up(found: list[Import]) -> list[Import]:
    """Return the imports of something on a higher level."""
    return [each for each in found if _level(each.imported) > _level(each.importer)]


def circles(found: list[Import]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or by way of others."""
    graph = _graph(found)
    reached = {name: _reach(name, graph) for name in graph}
    groups = {
        tuple(sorted(other for other in far if name in reached.get(other, ())))
        for name, far in reached.items()
        if name in far
    }
    return [list(group) for group in sorted(groups)]


def _graph(found: list[Import]) -> dict[str, set[str]]:
    graph: dict[str, set[str]] = defaultdict(set)
    for each in found:
        graph[each.importer].add(each.imported)
    return dict(graph)


def _reach(start: str, graph: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        for name in graph.get(waiting.pop(), set()) - reached:
            reached.add(name)
            waiting.append(name)
    return reached


@cache
def _level(module: str) -> int:
    return max(
        (len(room), level)
        for level, rooms in enumerate(LEVELS)
        for room in rooms
        if is_within(module, room)
    )[1]


def _is_allowed(each: Import, table: dict[str, tuple[str, ...]]) -> bool:
    rows = [package for package in table if is_within(each.importer, package)]
    return is_in(each.imported, table[max(rows, key=len)])


def is_in(module: str, rooms: tuple[str, ...]) -> bool:
    """Whether ``module`` is one of ``rooms`` or inside one; of ``=room`` only itself is."""
    return any(
        module == room[1:] if room.startswith("=") else is_within(module, room) for room in rooms
    )


def is_within(module: str, package: str) -> bool:
    """Whether ``module`` is ``package`` or inside it."""
    return module == package or module.startswith(package + ".")
