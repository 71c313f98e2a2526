"""Directories of runs: removed at their end, or at the next start when a run was killed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from coordinator.learn.scratch import LOCK_FILE, PREFIX, remove_left_behind, scratch_directory


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_there_for_as_long_as_it_is_used(place: Path) -> None:
    """Also while others look for what was left behind."""
    with scratch_directory() as one, scratch_directory() as other:
        (one / "data").mkdir()
        (one / "data" / "file").write_text("x")
        remove_left_behind()
        assert sorted(place.iterdir()) == sorted((one, other))
        assert (one / "data" / "file").exists()
        assert one.stat().st_mode & 0o077 == 0
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed(place: Path) -> None:
    """With its files, or empty: it was killed before it had made one."""
    left = place / f"{PREFIX}left"
    (left / "data").mkdir(parents=True)
    (left / LOCK_FILE).touch()
    (place / f"{PREFIX}empty").mkdir()

    with scratch_directory() as mine:
        assert list(place.iterdir()) == [mine]


def test_what_is_not_ours_is_left(place: Path) -> None:
    """Other names, files, links to elsewhere, and directories without our lock."""
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / LOCK_FILE).touch()
    (place / f"{PREFIX}link").symlink_to(elsewhere)
    (place / f"{PREFIX}file").touch()
    (place / f"{PREFIX}other").mkdir()
    (place / f"{PREFIX}other" / "file").touch()
    (place / f"{PREFIX}linked").mkdir()
    os.symlink(elsewhere / LOCK_FILE, place / f"{PREFIX}linked" / LOCK_FILE)
    before = sorted(place.rglob("*"))

    remove_left_behind()

    assert sorted(place.rglob("*")) == before
