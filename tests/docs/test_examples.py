"""Every example in the README and the docs is executed, against a real member.

Python blocks run as they stand. Shell blocks run line by line (a trailing backslash continues a
line); the ports of the examples are replaced by the member's. A block may be left out only by a
comment in the page, ``<!-- not run: reason -->``, just above it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.serving import ServedMember
from tests.docs.pages import EXAMPLE_URL, ROOT, Example, examples, lines_of


@pytest.fixture(scope="module")
def member() -> Iterator[ServedMember]:
    served = ServedMember()
    served.start()
    yield served
    served.stop()


def test_there_are_examples() -> None:
    """The pattern that finds the examples finds them."""
    assert any(example.page.name == "README.md" for example in examples("python"))
    assert any(example.page.name == "README.md" for example in examples("sh"))


PYTHON = list(examples("python"))


@pytest.mark.parametrize("example", PYTHON, ids=[example.name for example in PYTHON])
def test_python_examples_run(
    example: Example, member: ServedMember, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Python example of the docs does what it says, as it stands."""
    if example.not_run:
        pytest.skip(example.not_run)
    monkeypatch.chdir(tmp_path)  # some write files
    saved: list[tuple[object, int]] = []
    monkeypatch.setenv("COORDINATOR_ENDPOINTS", member.url)

    def save(report: object, token: int) -> None:
        saved.append((report, token))

    code = EXAMPLE_URL.sub(member.url, example.body)
    names = {"save": save, "report": "the report", "__name__": "__main__"}
    exec(compile(code, example.name, "exec"), names)  # noqa: S102 (our own pages)

    if "save(report" in code:
        assert saved
        assert saved[0][1] > 0


SHELL = list(examples("sh"))


@pytest.mark.parametrize("example", SHELL, ids=[example.name for example in SHELL])
def test_shell_examples_run(example: Example, member: ServedMember, tmp_path: Path) -> None:
    """Each command of a shell example exits with 0; a make target is one of the Makefile."""
    if example.not_run:
        pytest.skip(example.not_run)
    scripts = tmp_path / "bin"
    scripts.mkdir()
    command = scripts / "coordinator"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m coordinator "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COORDINATOR_ENDPOINTS": member.url,
    }
    for line in lines_of(example.body):
        if line.startswith("make "):
            target = line.split()[1]
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), line
            continue
        if line.startswith("curl ") and shutil.which("curl") is None:
            pytest.skip("curl is not installed here")
        status, output = run(EXAMPLE_URL.sub(member.url, line), tmp_path, environment)

        assert status == 0, f"{line}\n{output}"
        assert '"definite"' not in output, f"a problem came back:\n{line}\n{output}"


def run(line: str, directory: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Run one line of shell; whatever it started and left running ends with it."""
    process = subprocess.Popen(
        ["sh", "-ec", line],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
    return process.returncode, output
