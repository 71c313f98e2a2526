"""The build that runs, and the table of what is compiled (``setup.py``, ``pyproject.toml``)."""

from __future__ import annotations

import importlib.machinery
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from coordinator.node import build
from tests.compiled_modules import ROOT

SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


def test_what_is_compiled_is_the_source_that_is_here() -> None:
    """Else every test would try another program than the one that is read."""
    assert build.changed_since() == [], "run `make compiled` again, or `make pure`"


def test_every_pattern_of_the_table_names_files() -> None:
    """A module that moves takes its line along."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coordinator"][
        "compiled"
    ]
    compiled = {path for pattern in settings["modules"] for path in ROOT.glob(pattern)}
    assert all(list(ROOT.glob(pattern)) for pattern in settings["modules"])
    assert {ROOT / name for name in settings["interpreted"]} <= compiled


@pytest.mark.parametrize("age_s", [-5, 5])
def test_a_source_that_was_changed_since_is_named(
    age_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout; what is installed came with its source."""
    package = tmp_path / "coordinator"
    package.mkdir()
    source, compiled = package / "a.py", package / f"a{SUFFIX}"
    source.write_text("")
    compiled.write_text("")
    at_s = source.stat().st_mtime
    os.utime(compiled, (at_s + age_s, at_s + age_s))
    monkeypatch.setattr(build, "_PACKAGE", package)

    installed = build.changed_since()
    (tmp_path / "pyproject.toml").write_text("")

    assert installed == []
    assert build.changed_since() == ([f"{package.name}/a.py"] if age_s < 0 else [])


def test_it_is_said_in_words() -> None:
    """As ``coordinator --version`` and a member that starts say it."""
    assert build.described().endswith(", compiled" if build.is_compiled() else ", not compiled")


def test_a_python_that_is_too_old_is_named(tmp_path: Path) -> None:
    """pip runs setup.py before it looks at requires-python: it said "No module named 'tomllib'"."""
    old = "import sys, runpy; sys.modules['tomllib'] = None; runpy.run_path('setup.py')"
    done = subprocess.run(
        [sys.executable, "-c", old], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "coordinator needs Python 3.11 or newer, found 3." in done.stderr
    assert "tomllib" not in done.stderr
