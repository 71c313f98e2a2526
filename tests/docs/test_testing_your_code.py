"""The tests that docs/testing-your-code.md shows are run, as a user's would be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, examples


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    """Each block as it stands, with nothing but the plugin that the package brings."""
    shown = [
        example
        for example in examples("python")
        if example.page.name == "testing-your-code.md" and "def test_" in example.body
    ]
    for example in shown:
        (tmp_path / f"test_line_{example.line}.py").write_text(example.body)

    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q"),
            *("-p", "coordinator.testing.plugin", "-p", "pytest_asyncio.plugin"),
            *("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function"),
        ],
        cwd=tmp_path,
        # Named above, so that it is the same whether or not the package is installed here.
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(each.body.count('def test_') for each in shown)} passed" in done.stdout
