"""Files that are replaced as a whole, and keep what their owner said of them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from coordinator.node.stable_files import replace_file


def test_a_file_is_replaced_whole_and_keeps_its_permissions(tmp_path: Path) -> None:
    """Nothing lies beside it afterwards."""
    path = tmp_path / "value"
    path.write_bytes(b"old")
    path.chmod(0o640)

    replace_file(path, b"new")

    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["value"]


def test_a_file_gets_the_permissions_that_are_asked_for(tmp_path: Path) -> None:
    """Also where one lay that more could read: a key stays private."""
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)

    replace_file(path, b"new", mode=0o600)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    """And nothing beside it."""
    path = tmp_path / "directory"
    (path / "within").mkdir(parents=True)

    with pytest.raises(OSError, match="directory"):
        replace_file(path, b"new")

    assert os.listdir(tmp_path) == ["directory"]
