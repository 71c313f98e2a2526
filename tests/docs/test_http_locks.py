"""docs/http-locks.md is one script: every line of it runs, in order, in one shell.

What it prints is compared block by block, as in the page on the HTTP API. ``make check`` runs it as
it is; the fast suite with leases and waits half as long.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.serving import ServedMember
from tests.docs.pages import ROOT
from tests.wire.test_http_api_doc import has_tools, refuse_unless_contained, values_of

PAGE = ROOT / "docs" / "http-locks.md"
BLOCK = re.compile(r"```sh\n(.*?)```(?:\n```(json|text)\n(.*?)```)?", re.DOTALL)
MARK = "--- the end of a block ---"
LEASES_AND_WAITS = re.compile(
    r"(?<=\"lease_ms\": )5000|(?<=\"timeout_ms\": )5000|(?<=sleep )[\d.]+"
)


def quicker(text: str) -> str:
    """Return the page with each lease and each ``sleep`` half as long."""
    return LEASES_AND_WAITS.sub(lambda found: f"{float(found[0]) / 2:g}", text)


@pytest.mark.skipif(
    not has_tools() or not Path("/proc/uptime").exists(),
    reason="needs bash, curl 7.82 or later, and /proc/uptime",
)
@pytest.mark.parametrize(
    "shown", [quicker, pytest.param(str, marks=pytest.mark.check)], ids=["quicker", "as it is"]
)
def test_every_line_of_the_script_does_what_the_page_says(
    tmp_path: Path, shown: Callable[[str], str]
) -> None:
    """Take, wait longer than the lease, keep, lose, learn so, give back."""
    text = shown(PAGE.read_text(encoding="utf-8"))
    blocks = BLOCK.findall(text)
    assert len(blocks) == text.count("```sh\n") >= 10
    script = "".join(f"{block}\necho '{MARK}'\n" for block, _, _ in blocks)
    member = ServedMember()
    member.start()

    try:
        done = subprocess.run(
            ["bash", "-uc", script],
            cwd=tmp_path,
            env={"COORDINATOR": member.url, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        member.stop()

    assert (done.returncode, done.stderr) == (0, "")
    outputs = done.stdout.split(MARK)
    assert len(outputs) == len(blocks) + 1
    for (block, kind, expected), output in zip(blocks, outputs, strict=False):
        if kind == "json":
            found, wanted = values_of(output), values_of(expected)
            assert len(found) == len(wanted), f"{block}\n{output}"
            for one, other in zip(wanted, found, strict=True):
                refuse_unless_contained(one, other)
        else:
            assert output.strip() == expected.strip(), f"{block}\n{output}"
