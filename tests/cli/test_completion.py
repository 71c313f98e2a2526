"""``coordinator completion``: a script for each shell, and what it asks the program for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from coordinator.cli.main import cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    """It names the program, and the variable by which that is asked."""
    result = CliRunner().invoke(cli, ["completion", shell])

    assert result.exit_code == 0
    assert f"_COORDINATOR_COMPLETE={shell}_complete" in result.stdout


def test_the_program_answers_what_the_script_asks() -> None:
    """`coordinator wh<TAB>` has the verbs that begin so."""
    done = subprocess.run(
        [sys.executable, "-c", "from coordinator.cli.main import main; main()"],
        env={
            **os.environ,
            "_COORDINATOR_COMPLETE": "bash_complete",
            "COMP_WORDS": "coordinator wh",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout.split() == ["plain,why", "plain,why-lost"]


def test_another_shell_is_refused() -> None:
    """It says which there are."""
    result = CliRunner().invoke(cli, ["completion", "tcsh"])

    assert result.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in result.output
