"""The unit and the compose file in ``examples/deploy``: checked by the programs that read them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from coordinator.cli.electing import elect

DEPLOY = Path(__file__).resolve().parents[2] / "examples" / "deploy"
UNIT = (DEPLOY / "report.service").read_text(encoding="utf-8")
COMPOSE = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


def commands() -> dict[str, list[str]]:
    """Return what each of them runs, from ``elect`` on."""
    line = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", UNIT, re.MULTILINE)
    assert line is not None
    return {
        "unit": shlex.split(line[1].replace("\\\n", " "))[1:],
        "compose": re.findall(r"^      - (\S+)$", COMPOSE, re.MULTILINE)[1:],
    }


@pytest.mark.parametrize("where", ["unit", "compose"])
def test_its_options_are_those_of_elect(where: str) -> None:
    """Each is one of today's, and its value is one that it takes."""
    verb, *arguments = commands()[where]
    context = elect.make_context(verb, arguments, resilient_parsing=False)
    assert context.params["name"] == "report"
    assert context.params["command"] == ("/opt/report/bin/report",)
    assert context.params["restart_when"] == "always"
    assert context.params["door"][1] == 8099


@pytest.mark.check
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """With the programs where it says that they are."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed here")
    for path in ("/opt/coordinator/bin/coordinator", "/etc/report.env"):
        assert path in UNIT
    there = tmp_path / "coordinator"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    unit = tmp_path / "report.service"
    unit.write_text(UNIT.replace("/opt/coordinator/bin/coordinator", str(there)))
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    about_us = [line for line in (done.stdout + done.stderr).splitlines() if "report" in line]
    assert about_us == []


@pytest.mark.check
def test_compose_accepts_the_file() -> None:
    """Its own program reads it."""
    program = shutil.which("docker")
    if program is None:
        pytest.skip("docker is not installed here")
    there = subprocess.run([program, "compose", "version"], capture_output=True, timeout=60)
    if there.returncode != 0:
        pytest.skip("docker has no compose here")
    done = subprocess.run(
        [program, "compose", "-f", str(DEPLOY / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
