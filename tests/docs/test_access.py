"""Each example of docs/access.md is run, in the order of the page, against a member of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.serving import ServedMember
from tests.docs.pages import EXAMPLE_URL, FENCE, ROOT

PAGE = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
BLOCKS = [(each["language"], each["body"]) for each in FENCE.finditer(PAGE)]


@pytest.fixture
def member() -> Iterator[ServedMember]:
    served = ServedMember()
    served.start()
    yield served
    served.stop()


@pytest.mark.check
def test_the_page_can_be_followed(member: ServedMember, tmp_path: Path) -> None:
    """From a cluster without rights to a worker with its own; then rotation and revocation."""
    script = ["set -e", f'coordinator() {{ "{sys.executable}" -m coordinator "$@"; }}']
    for language, body in BLOCKS:
        if language == "sh":
            script.append(body)
        elif language == "python":
            (tmp_path / "example.py").write_text(body)
            script.append(f'"{sys.executable}" example.py')
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COORDINATOR_ENDPOINTS": member.url}

    done = subprocess.run(
        ["sh", "-c", EXAMPLE_URL.sub(member.url, "\n".join(script))],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert "payments-worker" in done.stdout
    assert '"definite"' not in done.stdout, "a problem came back"
    assert "yes: the role 'payments' gives lock on /locks/payments*" in done.stdout
    assert (tmp_path / "admin.token").stat().st_mode & 0o777 == 0o600
