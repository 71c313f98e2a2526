"""``make house``: figures of the house, of one revision or of several side by side.

    python -m tests.house                       this working tree
    python -m tests.house --at f4b008a --at .   a revision of git, and the working tree
    python -m tests.house --json                the same figures, and each place that was counted

Every column is measured by the tools and the tables of this working tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tests.house import constructions, duplicates, imports, source
from tests.test_house import MAY_IMPORT

ROOT = Path(__file__).resolve().parent.parent.parent
_FLOW_S = 60


def figures(root: Path) -> dict[str, Any]:
    """Return each figure of the product below ``root``: a number, or the list that was counted."""
    modules = source.product(root)
    functions = [each for module in modules for each in source.functions(module)]
    found = imports.imports(modules)
    longest = max(modules, key=lambda each: each.lines)
    longest_function = max(functions, key=lambda each: each.lines)
    went = flow(root)
    return {
        "modules": len(modules),
        "lines of product": sum(each.lines for each in modules),
        "median module, lines": median(each.lines for each in modules),
        "longest module, lines": longest.lines,
        "longest module": longest.name,
        "functions": len(functions),
        "median function, lines": median(each.lines for each in functions),
        "longest function, lines": longest_function.lines,
        "longest function": f"{longest_function.module}:{longest_function.name}",
        "files on the way of a write (docs)": _files(source.way_of_a_write(root)),
        "files that handle one write": _files(went["write"]),
        "functions that handle one write": [f"{file}:{name}" for file, name in went["write"]],
        "files from with to the request": _files(went["with"]),
        "functions from with to the request": [f"{file}:{name}" for file, name in went["with"]],
        "files that handle one lock": _files(went["lock"]),
        "functions that handle one lock": [f"{file}:{name}" for file, name in went["lock"]],
        "duplicates of six lines and more": [str(each) for each in duplicates.duplicates(modules)],
        "class names in two modules": [
            f"{name}: {', '.join(where)}"
            for name, where in source.shared_class_names(modules).items()
        ],
        "imports the table forbids": [str(each) for each in imports.forbidden(found, MAY_IMPORT)],
        "imports that run up": [str(each) for each in imports.running_up(found)],
        "circles of imports": [" ".join(group) for group in imports.circles(found)],
        "public functions without docstring": [
            f"{each.module}:{each.name}"
            for each in functions
            if each.is_public and not each.has_docstring
        ],
        "functions over 50 lines": source.long_functions(modules),
        "values constructed by position in tests": [
            str(each) for each in constructions.by_position(root, modules)
        ],
        "test files over 700 lines": source.long_tests(root),
        "lines of docs": source.docs_lines(root),
        "lines of docs over 100 columns": source.wide_lines(root),
        "citations of lists outside": source.citations(root),
    }


def _files(steps: Iterable[Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(file for file, _ in steps))


def flow(root: Path) -> dict[str, list[list[str]]]:
    """Measure the way of a write in a process of its own, which imports the product of ``root``."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "house" / "flow.py"), str(root)],
        env={**os.environ, "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=_FLOW_S,
    )
    if done.returncode:
        raise SystemExit(f"cannot measure the way of a write in {root}:\n{done.stderr[-2000:]}")
    steps: dict[str, list[list[str]]] = json.loads(done.stdout)
    return steps


def at(where: str) -> dict[str, Any]:
    """Return the figures of a directory, or of a revision of git."""
    if Path(where).is_dir():
        return figures(Path(where).resolve())
    with tempfile.TemporaryDirectory() as directory:
        archive = Path(directory) / "revision.tar"
        subprocess.run(["git", "archive", "-o", str(archive), where], cwd=ROOT, check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(directory, filter="data")
        return figures(Path(directory).resolve())


def table(columns: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a Markdown table, a list as its length."""
    rows = [["", *columns]]
    for name in next(iter(columns.values())):
        rows.append([name, *(_said(each[name]) for each in columns.values())])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )


def _said(figure: Any) -> str:
    return str(len(figure) if isinstance(figure, list) else figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--at", action="append", help="a directory or a revision; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON with every place counted")
    options = parser.parse_args()
    columns = {where: at(where) for where in options.at or [str(ROOT)]}
    print(json.dumps(columns, indent=2) if options.json else table(columns))


if __name__ == "__main__":
    main()
