"""The walls of the house: who may import whom, and what the pure core must never touch.

The tables are the architecture (docs/architecture.md draws the same rooms). The source is parsed,
not imported, so a forbidden import is found even where it would fail.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.house import constructions, duplicates, imports, source
from tests.house.imports import is_within

ROOT = Path(__file__).resolve().parent.parent

# What anybody may import who writes a recipe.
TO_CLIENT = ("=coordinator.client", "=coordinator.client.locks", "coordinator.errors")
TO_RECIPES = ("coordinator.recipes", *TO_CLIENT)
BASE_OF_RECIPES = (*TO_CLIENT, "coordinator.recipes.base", "coordinator.recipes.waits")

# What each part of the service may import beside other parts of it.
TO_SERVICE = (
    "coordinator.audit.event",
    "coordinator.node.build",
    "coordinator.node.open_files",
    "coordinator.model",
    "coordinator.state",
    "coordinator.raft.engine",
    "coordinator.errors",
    "coordinator.node.config",
    "coordinator.clock",
    "coordinator.waiting",
    "coordinator.wording",
)


def _parts(*names: str) -> tuple[str, ...]:
    return tuple(f"coordinator.service.{name}" for name in names)


# For the most specific package that matches a module: which of our own modules it may import, with
# all inside them; of one with "=" before it only what it exports itself.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "coordinator.errors": (),
    "coordinator.clock": (),
    "coordinator.waiting": (),
    "coordinator.node.log_lines": (),
    "coordinator.node.build": (),
    "coordinator.node.open_files": (),
    "coordinator.node.service_manager": (),
    "coordinator.node.stable_files": (),
    "coordinator.node.garbage": (),
    "coordinator.node.config": ("coordinator.errors", "coordinator.model.limits"),
    "coordinator.node.config_file": (
        "coordinator.node.config",
        "coordinator.node.config_rules",
        "coordinator.errors",
    ),
    "coordinator.node.config_rules": (
        "coordinator.node.config",
        "coordinator.errors",
        "coordinator.model.limits",
        "coordinator.model.status",
    ),
    "coordinator.node.secret_file": (
        "coordinator.node.config",
        "coordinator.node.config_rules",
        "coordinator.errors",
    ),
    "coordinator.audit": (
        "coordinator.audit",
        "coordinator.clock",
        "coordinator.node.config",
        "coordinator.errors",
        "coordinator.model.tokens",
        "coordinator.node.stable_files",
    ),
    "coordinator.tls": (
        "coordinator.tls",
        "coordinator.clock",
        "coordinator.node.config",
        "coordinator.node.config_rules",
        "coordinator.errors",
    ),
    "coordinator.oidc": (
        "coordinator.oidc",
        "coordinator.clock",
        "coordinator.node.config",
        "coordinator.node.config_rules",
        "coordinator.errors",
    ),
    "coordinator.model": ("coordinator.model", "coordinator.errors"),
    "coordinator.wording": ("coordinator.model",),
    "coordinator.state": ("coordinator.state", "coordinator.model", "coordinator.errors"),
    "coordinator.raft": (
        "coordinator.raft",
        "coordinator.errors",
        "coordinator.node.config",
        "coordinator.clock",
        "coordinator.waiting",
        "coordinator.node.secret_file",
        "coordinator.node.stable_files",
        "coordinator.tls",
    ),
    # Only the member puts its parts together.
    "coordinator.service": ("coordinator.service", *TO_SERVICE),
    "coordinator.service.access": (*_parts("base", "reads"), *TO_SERVICE),
    "coordinator.service.base": (*_parts("base"), *TO_SERVICE),
    "coordinator.service.reads": (*_parts("reads", "base"), *TO_SERVICE),
    "coordinator.service.writes": (*_parts("writes", "base", "reads"), *TO_SERVICE),
    "coordinator.service.sessions": (
        *_parts("sessions", "base", "reads", "writes"),
        *TO_SERVICE,
    ),
    "coordinator.service.watches": (*_parts("watches", "base", "access"), *TO_SERVICE),
    "coordinator.service.locks": (
        *_parts("locks", "base", "reads", "writes", "sessions", "watches"),
        *TO_SERVICE,
    ),
    "coordinator.service.comparing": (*_parts("comparing", "base"), *TO_SERVICE),
    "coordinator.service.reporting": (
        *_parts("reporting", "base", "reads", "writes", "locks", "comparing"),
        *TO_SERVICE,
    ),
    "coordinator.wire": ("coordinator.wire", "coordinator.model", "coordinator.errors"),
    "coordinator.wire.admission": ("coordinator.wire.addresses", "coordinator.node.config"),
    "coordinator.wire.arrival": (
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.tls",
        "coordinator.waiting",
    ),
    # The server's side of the stream; its codec is both sides', and imports what ``wire`` may.
    "coordinator.wire.client_turns": (
        "coordinator.wire.addresses",
        "coordinator.wire.request",
        "coordinator.service.access",
        "coordinator.service.base.turns",
        "coordinator.service.member",
        "coordinator.service.base.turns",
        "coordinator.errors",
    ),
    "coordinator.wire.stream.connection": (
        "coordinator.wire",
        "coordinator.service.base.turns",
        "coordinator.errors",
    ),
    "coordinator.wire.stream.turns": (
        "coordinator.wire",
        "coordinator.service.base.turns",
        "coordinator.errors",
    ),
    "coordinator.wire.stream.door": (
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.node.config",
        "coordinator.waiting",
    ),
    # The files that it serves; nothing else of the pages is Python.
    "coordinator.wire.routes.pages": (
        "coordinator.console.pages",
        "coordinator.wire",
        "coordinator.errors",
    ),
    "coordinator.wire.http.openapi_pages": ("coordinator.console.pages",),
    "coordinator.console": ("coordinator.console",),
    "coordinator.wire.routes": (
        "=coordinator.wire",
        "coordinator.audit.event",
        "coordinator.wire.admission",
        "coordinator.wire.codec",
        "coordinator.wire.addresses",
        "coordinator.wire.encoding",
        "coordinator.wire.client_turns",
        "coordinator.wire.if_held",
        "coordinator.wire.lock_requests",
        "coordinator.wire.messages",
        "coordinator.wire.multi",
        "coordinator.wire.request",
        "coordinator.wire.routes",
        "coordinator.wire.strict_json",
        "coordinator.model",
        "coordinator.service",
        "coordinator.errors",
        "coordinator.node.config",
        "coordinator.clock",
        "coordinator.state.commands",
        "coordinator.state.limits",
        "coordinator.state.outcomes",
        "coordinator.state.sessions",
    ),
    "coordinator.wire.http": (
        "coordinator.wire",
        "coordinator.model",
        "coordinator.service",
        "coordinator.errors",
        "coordinator.node.config",
        "coordinator.node.config_rules",
        "coordinator.clock",
        "coordinator.tls",
        "coordinator.waiting",
    ),
    "coordinator.client": (
        "coordinator.client",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.clock",
        "coordinator.tls",
    ),
    "coordinator.client.running": (
        "coordinator.client.running",
        "coordinator.errors",
    ),
    "coordinator.client.calling": (
        "coordinator.client.calling",
        "coordinator.client.running",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.clock",
        "coordinator.tls",
    ),
    "coordinator.client.sessions": (
        "coordinator.client.sessions",
        "coordinator.client.calling",
        "coordinator.client.running",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.clock",
    ),
    "coordinator.client.watches": (
        "coordinator.client.watches",
        "coordinator.client.calling",
        "coordinator.client.running",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.clock",
    ),
    "coordinator.client.verbs": (
        "coordinator.client.verbs",
        "coordinator.client.sessions",
        "coordinator.client.calling",
        "coordinator.client.running",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.clock",
    ),
    "coordinator.client.locks": (
        "coordinator.client.locks",
        "coordinator.client.verbs",
        "coordinator.client.watches",
        "coordinator.client.sessions",
        "coordinator.client.calling",
        "coordinator.client.running",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.clock",
    ),
    "coordinator.client.stream": (
        "coordinator.client.stream",
        "coordinator.client.calling",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.errors",
        "coordinator.clock",
    ),
    "coordinator.cli": (
        "coordinator.cli",
        "coordinator.audit",
        "coordinator.node.build",
        "coordinator.client",
        "coordinator.node.backups",
        "coordinator.node.recovery",
        "coordinator.node.preflight",
        "coordinator.node.server",
        "coordinator.node.service_manager",
        "coordinator.node.config",
        "coordinator.node.config_file",
        "coordinator.clock",
        "coordinator.errors",
        "coordinator.learn",
        "coordinator.node.log_lines",
        "coordinator.model",
        "coordinator.wire.addresses",
        "coordinator.wire.codec",
        "coordinator.wire.if_held",
        "coordinator.wire.messages",
        "coordinator.wire.multi",
        "coordinator.wire.encoding",
        "coordinator.recipes",
        "=coordinator",
        "coordinator.node.secret_file",
        "coordinator.node.stable_files",
        "coordinator.tls",
        "coordinator.wording",
    ),
    # Programs as users write them; its page is of the files of the console.
    "coordinator.learn": (
        "coordinator.learn",
        "coordinator.client",
        "coordinator.clock",
        "coordinator.console.pages",
        "coordinator.errors",
        "coordinator.model",
        "coordinator.guards",
        "coordinator.recipes",
    ),
    "coordinator.__main__": ("coordinator.cli",),
    # What programs import; nothing below imports from it.
    "coordinator": ("coordinator.client", "coordinator.errors", "coordinator.recipes"),
    # They put everything together; of the product only the command line imports the first two.
    "coordinator.node.server": ("coordinator",),
    "coordinator.node.backup_schedule": ("coordinator",),
    "coordinator.node.backups": ("coordinator",),
    "coordinator.node.recovery": ("coordinator",),
    "coordinator.node.preflight": ("coordinator",),
    "coordinator.testing": ("coordinator",),
    # What people import is a file each, and may be built from all of these. What two of them share
    # is in a room of its own; so only the locks are below others.
    "coordinator.recipes": TO_RECIPES,
    "coordinator.recipes.waits": ("coordinator.errors",),
    "coordinator.recipes.base": (*TO_CLIENT, "coordinator.recipes.base"),
    "coordinator.recipes.locks": (*BASE_OF_RECIPES, "coordinator.recipes.locks"),
    "coordinator.recipes.elections": (
        *BASE_OF_RECIPES,
        "coordinator.recipes.locks",
        "coordinator.recipes.elections",
    ),
    "coordinator.recipes.jobs": (  # a run holds the job's lock
        *BASE_OF_RECIPES,
        "coordinator.recipes.locks",
        "coordinator.recipes.jobs",
    ),
    "coordinator.recipes.sharing": (*BASE_OF_RECIPES, "coordinator.recipes.sharing"),
    # A transaction is coordinated, and an item with a key worked on, by who holds its lock.
    "coordinator.recipes.sharing.commit_steps": (
        *BASE_OF_RECIPES,
        "coordinator.recipes.locks.grant",
        "coordinator.recipes.sharing",
    ),
    "coordinator.recipes.sharing.taking": (
        *BASE_OF_RECIPES,
        "coordinator.recipes.lock",
        "coordinator.recipes.sharing",
    ),
    "coordinator.recipes.groups": (*BASE_OF_RECIPES, "coordinator.recipes.groups"),
    "coordinator.recipes.trees": (*BASE_OF_RECIPES, "coordinator.recipes.trees"),
    "coordinator.guards": (*TO_RECIPES, "coordinator.guards"),
    "coordinator.integrations": (*TO_RECIPES, "coordinator.integrations"),
}

# Outside modules that only these packages may import.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "pysyncobj": ("coordinator.raft",),
    "aiohttp": (
        "coordinator.wire.http",
        "coordinator.client",
        "coordinator.learn.page_server",
        "coordinator.node.server",
        "coordinator.testing",
        "coordinator.guards.http_proxy",
    ),
    "msgspec": (
        "coordinator.client.calling.calls",  # values that each request makes
        "coordinator.client.calling.transport",
        "coordinator.model",
        "coordinator.wire",
        "coordinator.raft.engine",
        "coordinator.raft.network.agreement",
        "coordinator.raft.network.messages",
        "coordinator.service.base.active_clients",
        "coordinator.service.reporting",
        "coordinator.service.comparing.digest_messages",
        "coordinator.service.sessions",
        "coordinator.service.watches.kept_change",
        "coordinator.service.locks",
        "coordinator.service.writes.proposals",
        "coordinator.service.watches.watch_history",
        "coordinator.state.codec",
        "coordinator.state.commands",
        "coordinator.state.locks.records",
        "coordinator.state.outcome_codec",
        "coordinator.state.outcomes",
        "coordinator.state.packing",
        "coordinator.state.remembered",
        "coordinator.state.slice_room",
        "coordinator.state.slices",
        "coordinator.state.znode",
    ),
    "click": ("coordinator.cli",),
    "jwt": ("coordinator.oidc",),
    "prometheus_client": (
        "coordinator.service.base.metrics",
        "coordinator.service.base.tallies",
        "coordinator.wire.http",
    ),
    "time": ("coordinator.clock",),
    "pytest": ("coordinator.testing.plugin",),
    "cryptography": ("coordinator.tls.issuing",),
    # Optional extras: each in the one guard that needs it.
    "psycopg": ("coordinator.guards.postgresql",),
    "psycopg_pool": ("coordinator.guards.postgresql",),
    "pymysql": ("coordinator.guards.mysql",),
    "redis": ("coordinator.guards.redis", "coordinator.integrations.redis_lock"),
    "boto3": ("coordinator.guards.s3",),
    "botocore": ("coordinator.guards.s3",),
    "starlette": ("coordinator.integrations.starlette",),
    "django": ("coordinator.integrations.django",),
    "apscheduler": ("coordinator.integrations.apscheduler",),
    "dramatiq": ("coordinator.integrations.dramatiq",),
    "tooz": ("coordinator.integrations.tooz",),
    "redis_lock": ("coordinator.integrations.python_redis_lock",),
    "celery": ("coordinator.integrations.celery", "coordinator.integrations.celery_beat"),
}

STATE_NEVER_IMPORTS = {
    "time", "random", "uuid", "os", "socket", "threading", "asyncio", "logging", "io", "pathlib",
    "secrets", "datetime", "subprocess", "selectors", "tempfile",
}  # fmt: skip


def modules() -> list[source.Module]:
    """Return every module of the product, parsed once for all rules."""
    return source.product(ROOT)


@cache
def own_imports() -> list[imports.Import]:
    """Return every import of ours by ours."""
    return imports.imports(modules())


@cache
def imports_of(module: source.Module) -> tuple[tuple[str, str], ...]:
    """Return what a file imports, and where: for each of the rules about imports."""
    return tuple(_imports_of(module))


def _imports_of(module: source.Module) -> Iterator[tuple[str, str]]:
    for node in source.nodes(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, f"{module.path}:{node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            place = f"{module.path}:{node.lineno}"
            assert node.level == 0, f"{place}: import by the full name, not relatively"
            assert node.module is not None
            yield node.module, place


def calls_of(module: source.Module) -> Iterator[tuple[str, str]]:
    """Return which names a file calls, and where."""
    for node in source.nodes(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, f"{module.path}:{node.lineno}"


def test_rooms_import_only_what_the_table_allows() -> None:
    """A module imports only the rooms that its row of the table names."""
    assert list(map(str, imports.forbidden(own_imports(), MAY_IMPORT))) == []


@pytest.mark.parametrize("package", ["coordinator.client", "coordinator.client.locks"])
def test_recipes_import_only_exported_names(package: str) -> None:
    """Each name that a recipe imports stands in ``__all__``, so that others may import it too."""
    exported = set(import_module(package).__all__)
    for module in modules():
        if is_within(module.name, "coordinator.recipes"):
            for node in source.nodes(module):
                if isinstance(node, ast.ImportFrom) and node.module == package:
                    names = {alias.name for alias in node.names}
                    assert names <= exported, f"{module.path}:{node.lineno}: {names - exported}"


def test_nothing_of_the_product_imports_the_test_kit() -> None:
    """Only tests and examples do, and the kit itself."""
    assert [
        f"{place}: {imported}"
        for module in modules()
        if not is_within(module.name, "coordinator.testing")
        for imported, place in imports_of(module)
        if is_within(imported, "coordinator.testing")
    ] == []


def test_outside_libraries_stay_in_their_rooms() -> None:
    """pysyncobj, aiohttp, click and the clock are imported only where they belong."""
    assert [
        f"{place}: {module.name} imports {imported}; only {homes} may"
        for module in modules()
        for imported, place in imports_of(module)
        for library, homes in ONLY_IN.items()
        if is_within(imported, library) and not any(is_within(module.name, home) for home in homes)
    ] == []


def test_the_pure_core_is_pure() -> None:
    """No time, chance, files, sockets, threads, floats or hash() in coordinator/state."""
    for module in modules():
        if is_within(module.name, "coordinator.state"):
            _check_that_it_is_pure(module)


def _check_that_it_is_pure(module: source.Module) -> None:
    for imported, place in imports_of(module):
        assert imported.split(".")[0] not in STATE_NEVER_IMPORTS, f"{place}: {imported}"
        if imported.split(".")[0] == "msgpack":
            assert module.name == "coordinator.state.packing", f"{place}: msgpack: only there"
    for name, place in calls_of(module):
        assert name not in {"hash", "id", "open"}, place
    for node in source.nodes(module):
        if isinstance(node, ast.Constant):
            assert not isinstance(node.value, float), f"{module.path}:{node.lineno}: a float"
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)), (
            f"{module.path}:{node.lineno}: true division makes a float"
        )


def test_the_model_holds_values_alone() -> None:
    """No time, chance, files, sockets or threads in coordinator/model."""
    for module in modules():
        if is_within(module.name, "coordinator.model"):
            for imported, place in imports_of(module):
                assert imported.split(".")[0] not in STATE_NEVER_IMPORTS, f"{place}: {imported}"


NEVER_READ_WITH = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "ruamel"}


def test_nothing_unpickles() -> None:
    """Bytes from a network or a file never become code.

    No pickle, marshal, shelve, eval, exec; nor YAML, whose tags can name what to call.
    """
    for module in modules():
        for imported, place in imports_of(module):
            assert imported.split(".")[0] not in NEVER_READ_WITH, f"{place}: {imported}"
        for name, place in calls_of(module):
            assert name not in {"eval", "exec"}, place


def test_files_stay_small_and_explained() -> None:
    """Every file fits a reader: a docstring at the top, few lines, no wide ones."""
    wrong = []
    for module in modules():
        lines = module.text.splitlines()
        if lines and not ast.get_docstring(module.tree):
            wrong.append(f"{module.path}: no docstring at the top")
        if len(lines) > source.FILE_LINES_MAX:
            wrong.append(f"{module.path}: {len(lines)} lines; split it by its nouns")
        wide = [number for number, line in enumerate(lines, 1) if len(line) > source.COLUMNS_MAX]
        if wide:
            wrong.append(f"{module.path}: lines {wide} are wider than {source.COLUMNS_MAX} columns")

    assert wrong == []


def test_the_map_names_every_room() -> None:
    """The table in coordinator/__init__.py has a row for each room and each module of node."""
    _, _, table = (import_module("coordinator").__doc__ or "").partition("may import\n")
    rows = table.split("\n====")[0].splitlines()
    firsts = [row[:20] for row in rows if row[:20].strip(" =")]
    named = {each.strip(" 0123456789") for first in firsts for each in first.split(",")}
    parts = [module.name.split(".") for module in modules()]
    there = {each[1] if len(each) > 1 else each[0] for each in parts} - {"__main__"}
    there |= {each[2] for each in parts if len(each) > 2 and each[1] == "node"}

    assert named == there


NO_NOUN = re.compile(r"(What|Who|Whose|Where|When|How|Which|Why|Whether|Is|Runs)\b")


def test_the_first_line_of_a_module_names_it() -> None:
    """A noun phrase: what the module is, not what it answers."""
    firsts = [
        (module.path, (ast.get_docstring(module.tree) or "").split("\n")[0]) for module in modules()
    ]

    assert [f"{path}: {first}" for path, first in firsts if NO_NOUN.match(first)] == []


def test_no_modules_import_each_other() -> None:
    """Neither directly nor by way of others, nor for type checking alone."""
    assert imports.circles(own_imports()) == []


def test_no_import_runs_up() -> None:
    """The rooms have an order (tests/house/imports.py): each imports its own level or below."""
    assert list(map(str, imports.running_up(own_imports()))) == []


def test_public_functions_say_what_they_do() -> None:
    """Methods of public classes as well."""
    assert [
        f"{function.module}:{function.name}"
        for module in modules()
        for function in source.functions(module)
        if function.is_public and not function.has_docstring
    ] == []


def test_a_class_name_is_one_class() -> None:
    """One word, one thing, in the product as a whole."""
    assert source.shared_class_names(modules()) == {}


def test_tests_name_the_values_they_construct() -> None:
    """At most two fields by position, so that a new field breaks no test that is not about it."""
    assert list(map(str, constructions.by_position(ROOT, modules()))) == []


CEILINGS = {
    # Most are signatures: of a protocol and of what keeps it, or of a verb in both clients.
    "duplicates of six lines and more": (11, lambda: duplicates.duplicates(modules())),
    "functions over 50 lines": (19, lambda: source.long_functions(modules())),
    "test files over 700 lines": (0, lambda: source.long_tests(ROOT)),
}
"""What ``make house`` counts, and how much of it there may be: lower it with each that goes."""


@pytest.mark.parametrize("figure", CEILINGS)
def test_what_is_too_long_or_written_twice_becomes_less(figure: str) -> None:
    """Whoever needs one more makes another one go."""
    most, find = CEILINGS[figure]
    found = list(map(str, find()))

    assert len(found) <= most, f"{figure}:\n" + "\n".join(found)
