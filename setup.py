"""The compiled build: ``COORDINATOR_COMPILED=1`` asks for it; without that nothing is compiled.

``pyproject.toml`` says which modules (``[tool.coordinator.compiled]``). They stay readable and are
installed beside what is compiled of them, so tracebacks show their lines. Needs a C compiler and
mypy, which brings mypyc.

Each module becomes a C file of its own, and as many compilers run as there are processors. One
file for all of them took the compiler more than four times as long.
"""

import ast
import os
import re
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
IS_COMPILED = os.environ.get("COORDINATOR_COMPILED") == "1"
ONLY = os.environ.get("COORDINATOR_COMPILED_ONLY", "")
"""With what the paths of the modules begin that are compiled: a test compiles a part of them."""
SAID = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements() -> list[str]:
    """Return what the build needs: mypy, and the types of what the modules import."""
    project = SAID["project"]
    development = project["optional-dependencies"]["dev"]
    return [*project["dependencies"], *(each for each in development if each.startswith("mypy"))]


def compiled_modules() -> list[str]:
    """Return the files that are compiled, in order."""
    said = SAID["tool"]["coordinator"]["compiled"]
    found = {path for pattern in said["modules"] for path in ROOT.glob(pattern)}
    left = {ROOT / name for name in said["interpreted"]}
    names = sorted(str(path.relative_to(ROOT)) for path in found - left)
    return [name for name in names if name.startswith(ONLY)]


def docstrings(source: Path) -> dict[tuple[str, ...], str]:
    """Return the docstrings of a module's classes and functions, by their names."""
    found: dict[tuple[str, ...], str] = {}
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, kinds):
            found[(node.name,)] = ast.get_docstring(node, clean=False) or ""
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, kinds):  # of a property: its getter comes first
                text = ast.get_docstring(inner, clean=False) or ""
                found.setdefault((node.name, inner.name), text)
    return found


def literal(text: str) -> str:
    """Return ``text`` as C writes it."""
    plain = {each: chr(each) for each in range(32, 127) if chr(each) not in '"?\\'}
    return '"' + "".join([plain.get(each, f"\\{each:03o}") for each in text.encode()]) + '"'


_DOC = re.compile(r'PyDoc_STR\((?:NULL|("(?:[^"\\]|\\.)*"))\)')
_NAMED = re.compile(
    r"\(PyCFunction\)CPyPy_(?P<function>\w+),|\.tp_name = \"(?P<kind>\w+)\""
    r"|PyGetSetDef \w+?___(?P<table>\w+)_getseters\[\]|^ *\{\"(?P<property>\w+)\",$"
)


def with_docstrings(code: str, texts: dict[tuple[str, ...], str]) -> str:
    """Return what mypyc has written with the docstrings that it leaves out, for ``help()``.

    It writes signatures only, where a docstring would follow. Coroutine functions have no place for
    one: a public class has plain functions that return their coroutines.
    """
    lines, names, table = code.split("\n"), ("",), ""
    for at, line in enumerate(lines):
        if found := _NAMED.search(line):
            parts = (found["function"] or "").split("___")
            table = found["table"] or table
            names = (found["kind"],) if found["kind"] else (table, found["property"] or "")
            if found["function"]:  # a module, perhaps a class, and a function
                names = tuple(parts[-2:]) if tuple(parts[-2:]) in texts else (parts[-1],)
        text = texts.get(names)
        if text and (doc := _DOC.search(line)):
            said = f"PyDoc_STR({doc[1] or ''} {literal(text)})"
            lines[at] = line[: doc.start()] + said + line[doc.end() :]
        elif text and line.endswith("NULL, NULL},"):
            lines[at] = line.removesuffix("NULL, NULL},") + f"{literal(text)}, NULL}},"
    return "\n".join(lines)


def extensions() -> list[object]:
    """Return what is built: a library of all modules, and for each module what loads it."""
    from mypyc.build import mypycify

    made = mypycify(
        ["--config-file", "pyproject.toml", *compiled_modules()],
        opt_level=os.environ.get("COORDINATOR_COMPILED_LEVEL", "2"),
        debug_level="0",
        group_name="coordinator",
        multi_file=True,
    )
    for name in compiled_modules():
        stem = name.removesuffix(".py").removesuffix("/__init__").replace("/", "___")
        written = ROOT / "build" / f"__native_{stem}.c"
        code = with_docstrings(written.read_text(), docstrings(ROOT / name))
        written.write_text(code)
    if os.name == "posix":  # calls from file to file need no table then
        for each in made:
            each.extra_compile_args.append("-fvisibility=hidden")
    return list(made)


class BuildSideBySide(build_ext):
    """Compiles as many files at once as there are processors, or as ``--parallel`` says."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = int(self.parallel or os.cpu_count() or 1)

    def build_extensions(self) -> None:
        compile_in_turn = self.compiler.compile

        def compile_files(sources: Sequence[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(self.parallel) as threads:
                made = threads.map(lambda each: compile_in_turn([each], **options), sources)
                return [name for names in made for name in names]

        self.compiler.compile = compile_files
        super().build_extensions()


if not IS_COMPILED:
    setup()
elif {"build_ext", "bdist_wheel"} & set(sys.argv):
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildSideBySide})
else:  # who builds a wheel asks first what that needs
    setup(setup_requires=requirements())
