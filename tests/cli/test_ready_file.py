"""The file that says that a program leads: no link is followed where it is to be written."""

from __future__ import annotations

import os
from pathlib import Path

from coordinator.cli.standing import removed_ready_file
from coordinator.cli.watchdog import write_ready


def test_a_ready_file_overwrites_nothing_that_a_link_names(tmp_path: Path) -> None:
    """Who may write beside it knows how its draft is called."""
    theirs = tmp_path / "theirs"
    theirs.write_text("precious")
    ready = tmp_path / "ready"
    draft = Path(f"{ready}.{os.getpid()}")
    for each in (ready, draft):
        each.symlink_to(theirs)

    assert removed_ready_file(str(ready)) == str(ready)
    draft.symlink_to(theirs)
    write_ready(str(ready), "7\n")

    assert theirs.read_text() == "precious"
    assert ready.read_text() == "7\n"
    assert not ready.is_symlink()
