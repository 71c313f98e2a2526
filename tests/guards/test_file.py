"""What FileGuard has beyond the conformance kit."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from coordinator.errors import BadArgumentsError, StaleTokenError, StaleWriteError
from coordinator.guards import FileGuard


def test_anybody_may_read_the_file_and_its_mode_stays(tmp_path: Path) -> None:
    """It holds your bytes and nothing else."""
    path = tmp_path / "report.json"
    path.write_bytes(b"before there was a guard")
    path.chmod(0o640)

    FileGuard(path).write(7, b"{}")

    assert path.read_bytes() == b"{}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["report.json", "report.json.fence", "report.json.lock"]


def test_a_link_has_the_fence_of_its_file(tmp_path: Path) -> None:
    """Two names of one file must not have a highest token each."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real" / "report")
    FileGuard(tmp_path / "link").write(8, b"by 8")

    with pytest.raises(StaleTokenError, match="token 7 is stale, 8 has been seen"):
        FileGuard(tmp_path / "real" / "report").write(7, b"by 7")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "report").read_bytes() == b"by 8"


@pytest.mark.parametrize("damage", [b"", b"8", b"8\n9\n", b"-8\n", b"eight\n", b"8 \n", b"8 0\n"])
def test_a_damaged_fence_lets_nobody_in(tmp_path: Path, damage: bytes) -> None:
    """Better nobody than anybody; the error names the file."""
    guard = FileGuard(tmp_path / "report")
    guard.write(8, b"by 8")
    (tmp_path / "report.fence").write_bytes(damage)

    with pytest.raises(BadArgumentsError, match=r"report\.fence: expected a token"):
        guard.write(9, b"by 9")

    assert guard.read() == b"by 8"


def test_what_a_crash_left_aside_is_overwritten(tmp_path: Path) -> None:
    """Half a file of a killed process does no harm and does not stay."""
    (tmp_path / "report.new").write_bytes(b"half a")

    FileGuard(tmp_path / "report").write(8, b"by 8")

    assert (tmp_path / "report").read_bytes() == b"by 8"
    assert not (tmp_path / "report.new").exists()


def test_a_raise_makes_no_file(tmp_path: Path) -> None:
    """Only the fence."""
    guard = FileGuard(tmp_path / "report")
    guard.raise_to(8)

    assert guard.read() is None
    assert guard.highest_token() == 8


def test_a_write_number_is_used_up_when_its_write_begins(tmp_path: Path) -> None:
    """The fence is there before the data: after a crash in between nobody can tell."""
    guard = FileGuard(tmp_path / "report")
    guard.write(8, b"first", write_number=1)
    (tmp_path / "report.new").mkdir()  # the data cannot be written aside
    with pytest.raises(OSError, match="directory"):
        guard.write(8, b"second", write_number=2)
    (tmp_path / "report.new").rmdir()

    with pytest.raises(StaleWriteError, match="write 2 under token 8 is late or repeated, 2 has"):
        guard.write(8, b"second", write_number=2)
    guard.write(8, b"second", write_number=3)

    assert guard.read() == b"second"
