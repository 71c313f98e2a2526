"""The commands of docs/install.md, run from a clean clone, and what they install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli.serving import ServedMember
from tests.docs.pages import FENCE, ROOT

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
COMMANDS = [
    each["body"] for each in FENCE.finditer(PAGE) if each["language"] == "sh" and not each["before"]
]
pytestmark = [pytest.mark.check, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the page was followed, without root: /opt and /usr/local are in it."""
    place = tmp_path_factory.mktemp("install")
    bins = place / "usr-local-bin"
    bins.mkdir()
    script = "set -eux\n" + "\n".join(COMMANDS)
    for said, here in (
        ("sudo ", ""),
        ("URL", str(ROOT)),
        ("/opt/coordinator", str(place / "opt-coordinator")),
        ("/usr/local/bin/", f"{bins}/"),
        ("python3", sys.executable),
    ):
        assert said in script
        script = script.replace(said, here)
    environment = {**os.environ, "PATH": f"{bins}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("coordinator, version ") + done.stdout.count("not compiled") >= 2
    return place


def wheel_of(checkout: Path, place: Path, into: str) -> set[str]:
    """Make a wheel of a checkout; return the names in it."""
    subprocess.run(
        [
            place / ".venv-build/bin/pip",
            "wheel",
            "--quiet",
            "--no-deps",
            "--wheel-dir",
            into,
            checkout,
        ],
        cwd=place,
        check=True,
        timeout=600,
    )
    (wheel,) = (place / into).glob("*.whl")
    assert re.fullmatch(r"raft_coordinator-[0-9.]+-py3-none-any\.whl", wheel.name)
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_page_can_be_followed(place: Path) -> None:
    """A library with an extra, and a server with what the lock file says."""
    server = place / "opt-coordinator/bin/python"
    program = "import coordinator, importlib.metadata as m; print(m.version('raft-coordinator'))"
    done = subprocess.run([server, "-c", program], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

    listed = subprocess.run(
        [server, "-m", "pip", "check"], cwd=place, capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stdout


def test_a_wheel_has_one_package(place: Path) -> None:
    """Also where an older build left others: `recipes` is a name that many programs use."""
    stale = place / "coordinator" / "build" / "lib" / "recipes"
    stale.mkdir(parents=True, exist_ok=True)
    (stale / "__init__.py").write_text("")

    names = wheel_of(place / "coordinator", place, "again")

    assert {each.split("/")[0] for each in names if ".dist-info/" not in each} == {"coordinator"}
    assert {"coordinator/recipes/lock.py", "coordinator/guards/file.py"} <= names
    assert "coordinator/py.typed" in names


def test_a_project_may_have_a_package_recipes(place: Path) -> None:
    """It takes a lock beside it."""
    project = place / "project"
    (project / "recipes").mkdir(parents=True)
    (project / "recipes/__init__.py").write_text("NAME = 'of the project'\n")
    (project / "main.py").write_text(
        "import sys\n"
        "from coordinator import Lock, connect\n"
        "from recipes import NAME\n"
        "with connect(sys.argv[1]) as client, Lock(client, 'a', timeout=30) as grant:\n"
        "    print(NAME, grant.fencing_token > 0)\n"
    )
    member = ServedMember()
    member.start()
    try:
        done = subprocess.run(
            [place / ".venv/bin/python", "main.py", member.url],
            cwd=project,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        member.stop()
    assert done.stdout == "of the project True\n", done.stderr
