"""Tools can use the document: linters find nothing, generated clients take a lock.

``tests/install openapi`` installs what these need into ``.openapi-tools`` (Node.js; Java for
openapi-generator). Without it they are skipped, and say so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.wire.http.openapi import openapi_document
from tests.cli.serving import ServedMember

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".openapi-tools"
BIN = TOOLS / "node_modules" / ".bin"
PYTHON = TOOLS / "python" / "bin"
HERE = Path(__file__).parent


def tool(path: Path) -> str:
    """Return a tool's path, or skip the test."""
    if not path.exists():
        pytest.skip(f"{path.relative_to(ROOT)} is not there: tests/install openapi")
    return str(path)


def run(*command: str, cwd: Path, environ: dict[str, str] | None = None) -> str:
    """Run one command and return what it said; a failure fails the test."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **(environ or {})}, check=False, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4_000:]
    return done.stdout


@pytest.fixture
def document(tmp_path: Path) -> Path:
    written = tmp_path / "openapi.json"
    written.write_text(json.dumps(openapi_document("0.1.0")), encoding="utf-8")
    return written


def test_spectral_finds_nothing(document: Path) -> None:
    """Every rule there is, but for the three that .spectral.yaml turns off and says why."""
    spectral = tool(BIN / "spectral")

    rules = ("--ruleset", str(ROOT / ".spectral.yaml"), "--fail-severity", "hint")
    run(spectral, "lint", str(document), *rules, cwd=ROOT)


def test_redocly_finds_nothing(document: Path) -> None:
    """Its recommended rules, warnings included."""
    redocly = tool(BIN / "redocly")

    found = run(redocly, "lint", str(document), "--max-problems", "100", cwd=document.parent)

    assert "warning" not in found.lower().replace("deprecation warning", ""), found


@pytest.fixture
def member() -> ServedMember:
    return ServedMember()


def lock_with(member: ServedMember, script: str, package: Path) -> dict[str, object]:
    """Take a lock with a generated client and return what it saw."""
    member.start()
    try:
        paths = {"PYTHONPATH": str(package)}
        said = run(str(PYTHON / "python"), str(HERE / script), member.url, cwd=HERE, environ=paths)
    finally:
        member.stop()
    found: dict[str, object] = json.loads(said.splitlines()[-1])
    return found


def check(found: dict[str, object]) -> None:
    """What a client must see: it waited for two and a half leases, and its lease was in full."""
    safe_ms, renewed_ms = found.pop("safe_ms"), found.pop("renewed_ms")
    assert found == {
        "refused": "LockTimeout",
        "lease_ms": 2_000,
        "grew": True,
        "is_current": True,
        "released": True,
        "late": "NotOwner",
    }
    assert isinstance(safe_ms, int)
    assert isinstance(renewed_ms, int)
    assert 0 < safe_ms <= 1_950
    assert 0 < renewed_ms <= 1_950


def test_a_client_of_openapi_python_client_takes_a_lock(
    document: Path, tmp_path: Path, member: ServedMember
) -> None:
    """Each of its modules compiles; acquire with a lease of its own, wait, renew, release."""
    generator = tool(PYTHON / "openapi-python-client")
    package = tmp_path / "package"

    run(generator, "generate", "--path", str(document), "--output-path", str(package), cwd=tmp_path)
    run(sys.executable, "-m", "compileall", "-q", str(package), cwd=tmp_path)

    check(lock_with(member, "by_python_client.py", package))


def test_a_client_of_openapi_generator_takes_a_lock(
    document: Path, tmp_path: Path, member: ServedMember
) -> None:
    """The same with the generator that knows fifty languages; for Python, which is here."""
    generator = tool(BIN / "openapi-generator-cli")
    if shutil.which("java") is None:
        pytest.skip("openapi-generator needs Java")
    package = tmp_path / "package"
    wanted = ("-i", str(document), "-g", "python", "-o", str(package))

    run(generator, "generate", *wanted, "--package-name", "generated", cwd=TOOLS)
    run(sys.executable, "-m", "compileall", "-q", str(package / "generated"), cwd=tmp_path)

    check(lock_with(member, "by_generator.py", package))
