"""The name of the distribution: `raft-coordinator`. On package indexes `coordinator` is another."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata

import pytest

import coordinator
from coordinator.service.reporting.status import product_version
from tests.supply.lock import ROOT
from tests.supply.sbom import OWN

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
_FILES = (
    *("*.md", "*.toml", "Makefile", "Dockerfile", "docker-compose*.yml", "docs/*.md"),
    *("coordinator/**/*.py", "recipes/**/*.py", "examples/**/*.*", "bench/**/*.py", ".ci/*"),
)
_SAID = re.compile(r"(?<![\w./-])([\w.-]*coordinator)\[([a-z{][a-z0-9,{} -]*)\]")
_INSTALLED = re.compile(r"pip install (?P<what>[^`\n]*)")
_LOOKED_UP = re.compile(r"metadata\.\w+\((['\"])([\w.-]+)\1\)")
_MISSING = re.compile(r"missing_extra\(\"[\w]+\", \"([\w-]+)\"\)")


def lines() -> Iterator[tuple[str, str]]:
    """Yield each line of what we ship, and where it is."""
    found = sorted(
        {path for pattern in _FILES for path in ROOT.glob(pattern) if path.suffix != ".pyc"}
    )
    for path in found:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            yield f"{path.relative_to(ROOT)}:{number}", line


@pytest.fixture(scope="module")
def shipped() -> list[tuple[str, str]]:
    """All of them."""
    return list(lines())


def test_every_extra_is_one_of_this_distribution(shipped: list[tuple[str, str]]) -> None:
    """Whoever follows a page or an error installs no other project, and an extra that we have."""
    said = [(where, *each) for where, line in shipped for each in _SAID.findall(line)]
    missing = [(where, each) for where, line in shipped for each in _MISSING.findall(line)]

    assert len({where.partition(":")[0] for where, *_ in said}) >= 10
    assert [(where, name) for where, name, _ in said if name != "raft-coordinator"] == []
    named = [(where, each) for where, _, extras in said for each in extras.split(",")]
    assert [each for each in named if each[1] not in {*EXTRAS, "{extra}"}] == []
    assert len(missing) >= 10
    assert [each for each in missing if each[1] not in EXTRAS] == []


def test_no_line_installs_the_other_project(shipped: list[tuple[str, str]]) -> None:
    """`pip install coordinator` ends well, and brings a task runner."""
    installed = [
        (where, word.strip("'\".,;:)"))
        for where, line in shipped
        for found in _INSTALLED.finditer(line)
        for word in found["what"].split()
    ]

    assert "raft-coordinator" in {word for _, word in installed}
    assert [each for each in installed if each[1] == "coordinator"] == []


def test_the_version_is_looked_up_by_this_name(shipped: list[tuple[str, str]]) -> None:
    """In the package, a member's status and the bill of materials."""
    looked_up = [(where, name) for where, line in shipped for _, name in _LOOKED_UP.findall(line)]

    assert {name for _, name in looked_up} == {"raft-coordinator"}
    assert OWN == PROJECT["name"] == "raft-coordinator"
    version = metadata.version("raft-coordinator")
    assert coordinator.__version__ == product_version() == version == PROJECT["version"]


def test_the_environment_of_a_checkout_has_what_its_verbs_need() -> None:
    """`make run` installs the extras that a container has: `certs` and `dev --tls` work."""
    makefile = (ROOT / "Makefile").read_text("utf-8")

    assert "\nEXTRAS := certs,oidc\n" in makefile
    assert "\ncompile --extra certs,oidc " in (ROOT / "tests/supply/lock").read_text("utf-8")
    assert re.search(
        r"^\$\(VENV\)/\.installed: .*\n\t\$\(call install,\.\[\$\(EXTRAS\)\]\)$", makefile, re.M
    )
