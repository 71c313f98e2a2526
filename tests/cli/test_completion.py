"""``coordinator completion``: a script for each shell, and what it asks the program for."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from coordinator.cli.main import cli
from tests.cli.conftest import CommandLine


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


def completed(url: str, *words: str) -> list[str]:
    """Return what a shell offers for the last of these words."""
    environ = {
        "COORDINATOR_ENDPOINTS": url,
        "_COORDINATOR_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("coordinator", *words)),
        "COMP_CWORD": str(len(words)),
    }
    result = CliRunner().invoke(cli, env=environ, prog_name="coordinator")
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def test_names_of_locks_and_paths_are_completed(coordinator: CommandLine) -> None:
    """Those of locks that are not free, and of znodes one name further; nothing without members."""
    token = coordinator.text("hold", "drydock", "--note", "n").strip()
    coordinator.text("create", "/dry/a", "--parents")
    coordinator.text("create", "/dry/b")

    assert completed(coordinator.url, "why", "dry") == ["drydock"]
    assert completed(coordinator.url, "diagnose", "wet") == []
    assert completed(coordinator.url, "get", "/dr") == ["/dry"]
    assert completed(coordinator.url, "watch", "/dry/") == ["/dry/a", "/dry/b"]
    assert completed(coordinator.url, "get", "/none/") == []
    assert completed("http://127.0.0.1:1", "why", "dry") == []
    coordinator.text("unlock", "drydock", token)


def test_another_shell_is_refused() -> None:
    """It says which there are."""
    result = CliRunner().invoke(cli, ["completion", "tcsh"])

    assert result.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in result.output
