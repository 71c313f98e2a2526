"""The state machine compiled, as ``make compiled`` does it: the same outcomes, the same digests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "tests/state/test_traces.py", "tests/state/test_golden_history.py",
    "tests/state/test_large_map_captures.py", "tests/state/test_recency_map.py",
)  # fmt: skip


def missing() -> list[str]:
    """Return what a compiled build needs and is not here."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return [
        *([] if shutil.which(compiler) else [f"a C compiler ({compiler})"]),
        *([] if headers.exists() else [f"Python's headers ({headers})"]),
        *([] if find_spec("mypyc") else ["mypyc (the package mypy)"]),
    ]


def run(home: Path, *command: str, **environment: str) -> str:
    """Run Python in a copy of the source; return what it prints."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=home, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(home), **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-4_000:]
    return done.stdout


@pytest.mark.check
@pytest.mark.timeout(500)
def test_the_compiled_state_replays_the_traces_and_the_golden_history(tmp_path: Path) -> None:
    """Without optimization, which takes a third of the time. Both are replayed interpreted, too."""
    if absent := missing():
        pytest.skip("cannot compile: there is no " + ", no ".join(absent))
    for name in ("coordinator", "tests/state", "tests/traces"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for path in [ROOT / "setup.py", ROOT / "pyproject.toml", *ROOT.glob("tests/*.py")]:
        shutil.copy(path, tmp_path / path.relative_to(ROOT))

    run(
        tmp_path, "setup.py", "--quiet", "build_ext", "--inplace",
        COORDINATOR_COMPILED="1", COORDINATOR_COMPILED_LEVEL="0",
        COORDINATOR_COMPILED_ONLY="coordinator/state/",
    )  # fmt: skip

    assert run(tmp_path, "-m", "coordinator", "--version").strip().endswith(", compiled)")
    run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS)
