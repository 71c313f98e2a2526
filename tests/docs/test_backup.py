"""Each example of docs/backup.md is run, in the order of the page, on a member with a disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from coordinator import connect
from tests.cli.serving import ServedMember
from tests.cli.test_backup import Running, written
from tests.docs.pages import FENCE, ROOT

PAGE = textwrap.dedent((ROOT / "docs" / "backup.md").read_text(encoding="utf-8"))
BLOCKS = [
    each["body"]
    for each in FENCE.finditer(PAGE.replace("\n   ", "\n"))
    if each["language"] == "sh" and not each["body"].startswith("#!")
]


@pytest.mark.check
def test_the_page_can_be_followed(tmp_path: Path) -> None:
    """A backup, a pipe, a check, a new cluster, and the data of a member that was stopped."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    stopped = Running(written(old))
    with connect(stopped.server.url) as client:
        client.create("/kept", b"as it was")
    stopped.stop()
    shutil.copytree(old / "data", new / "stopped-member")
    running = Running(written(old))
    restored = written(new).rename(new / "member-1.toml")
    other = ServedMember()
    other.start()
    blocks = [each.replace("http://127.0.0.1:8071", other.url) for each in BLOCKS]
    script = ["set -e", f'coordinator() {{ "{sys.executable}" -m coordinator "$@"; }}', *blocks]
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "COORDINATOR_ENDPOINTS": running.server.url,
    }  # fmt: skip

    done = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        cwd=new, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    running.stop()

    mirrored = other.member.labels()[1]
    other.stop()

    assert len(BLOCKS) == 7
    assert mirrored > 0, "the other cluster has got something"
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this machine's clock says" in done.stderr
    assert (new / "backup-2").stat().st_mode & 0o777 == 0o600
    again = Running(restored)
    try:
        with connect(again.server.url) as client:
            assert client.get("/kept").data == b"as it was"
    finally:
        again.stop()
