"""The real disk: appends, overwrites, names, modes, refusals."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.storage.disk import Disk, OsDisk, OsFile, join, storage_error
from tests.raft.storage.simulated_disk import SimulatedDisk


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and a directory on it; both disks must behave alike."""
    if request.param == "real":
        return OsDisk(), str(tmp_path / "data")
    return SimulatedDisk(), "data"


def test_a_file_is_appended_to_and_overwritten(place: tuple[Disk, str]) -> None:
    """Appends go to the end whatever was overwritten; reads may span the end."""
    disk, directory = place
    disk.make_directory(directory)
    path = join(directory, "a")
    file = disk.create(path)
    file.write(b"hello ")
    file.write(b"world")
    file.write_at(0, b"J")
    file.write(b"!")
    file.sync()

    assert file.read_at(6, 100) == b"world!"
    assert file.size_bytes() == 12
    file.truncate(5)
    file.write(b"?")
    file.close()
    assert disk.read(path) == b"Jello?"
    again = disk.open_append(path)
    again.write(b"!")
    again.close()
    assert disk.read(path) == b"Jello?!"


def test_what_the_disk_was_told_to_begin_with_is_there_as_before(place: tuple[Disk, str]) -> None:
    """It is only a hint: the bytes are read, appended to and synced as if nothing was said."""
    disk, directory = place
    disk.make_directory(directory)
    file = disk.create(join(directory, "a"))
    file.write(b"hello " * 10_000)
    file.write_out()
    file.write(b"world")
    file.sync()
    file.write_out()

    assert file.size_bytes() == 60_005
    assert file.read_at(59_994, 100) == b"hello world"
    file.close()
    file.write_out()  # a closed one has nothing to begin with


def test_names_are_made_replaced_and_removed(place: tuple[Disk, str]) -> None:
    """Rename replaces; the listing is sorted; creating empties what was there."""
    disk, directory = place
    disk.make_directory(directory)
    disk.make_directory(directory)
    for name in ("b", "a"):
        file = disk.create(join(directory, name))
        file.write(name.encode())
        file.close()
    assert disk.list_directory(directory) == ["a", "b"]

    disk.rename(join(directory, "b"), join(directory, "a"))
    disk.sync_directory(directory)

    assert disk.list_directory(directory) == ["a"]
    assert disk.read(join(directory, "a")) == b"b"
    disk.create(join(directory, "a")).close()
    assert disk.read(join(directory, "a")) == b""
    disk.remove(join(directory, "a"))
    assert not disk.exists(join(directory, "a"))


def test_failures_name_the_operation_and_the_path(place: tuple[Disk, str]) -> None:
    """Every one is a StorageError."""
    disk, directory = place
    disk.make_directory(directory)
    missing = join(directory, "missing")
    for call in (disk.open_read, disk.open_append, disk.read, disk.remove):
        with pytest.raises(StorageError, match="missing") as caught:
            call(missing)
        assert caught.value.path == missing
    with pytest.raises(StorageError):
        disk.rename(missing, join(directory, "b"))


def test_a_directory_is_locked_by_one(place: tuple[Disk, str]) -> None:
    """The second is refused until the first lets go."""
    disk, directory = place
    disk.make_directory(directory)
    lock = disk.lock_directory(directory)
    with pytest.raises(StorageError, match="another process"):
        disk.lock_directory(directory)

    lock.release()

    disk.lock_directory(directory).release()


def test_no_room_is_told_apart() -> None:
    """ENOSPC and EDQUOT are DiskFullError, everything else is not."""
    full = storage_error("write", "/x", OSError(errno.EDQUOT, "Quota exceeded"))
    broken = storage_error("write", "/x", OSError(errno.EIO, "Input/output error"))

    assert isinstance(full, DiskFullError)
    assert not isinstance(broken, DiskFullError)
    assert not full.definite
    assert "write /x: Quota exceeded" in str(full)


def test_short_writes_are_continued(tmp_path: Path) -> None:
    """A system that takes a few bytes at a time gets all of them, in order."""
    file = OsFile(str(tmp_path / "a"), 0o102)
    taken: list[bytes] = []

    def take_three(view: memoryview, done: int) -> int:
        assert done == 3 * len(taken)
        taken.append(bytes(view[:3]))
        return len(taken[-1])

    file._write_all(b"0123456789", take_three)

    assert b"".join(taken) == b"0123456789"
    with pytest.raises(OSError, match="nothing written"):
        file._write_all(b"x", lambda view, done: 0)
    file.close()


def test_files_and_directories_are_for_the_owner_only(tmp_path: Path) -> None:
    """0700 and 0600, parents made on the way included."""
    disk = OsDisk()
    disk.make_directory(str(tmp_path / "a" / "b"))
    disk.create(str(tmp_path / "a" / "b" / "c")).close()

    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b", "a/b/c")]

    assert modes == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Also behind a link: who can write there can replace a log, or a vote."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    (tmp_path / "link").symlink_to(shared)
    disk = OsDisk()

    for path in (shared, tmp_path / "link"):
        with pytest.raises(StorageError, match="chmod go-w"):
            disk.make_directory(str(path))
    disk.make_directory(str(shared / "own"))
    shared.chmod(0o755)
    disk.make_directory(str(tmp_path / "link"))


def test_the_simulated_disk_forgets_what_was_not_synced() -> None:
    """Names need the directory's sync, bytes the file's; both are lost in some life."""
    names, contents = set(), set()
    for seed in range(50):
        disk = SimulatedDisk(seed)
        disk.make_directory("d")
        file = disk.create("d/a")
        file.write(b"x" * 600)
        file.sync()
        disk.sync_directory("d")
        file.write(b"y" * 600)
        disk.create("d/b").write(b"z")
        disk.crash()
        names.add(tuple(disk.list_directory("d")))
        content = disk.content("d/a")
        assert content[:600] == b"x" * 600
        contents.add(content)
    assert names == {("a",), ("a", "b")}
    assert len(contents) > 5


def test_the_simulated_disk_never_stores_what_a_failed_sync_left() -> None:
    """Such bytes can be read until the crash, whatever is synced later."""
    disk = SimulatedDisk()
    disk.make_directory("d")
    file = disk.create("d/a")
    disk.sync_directory("d")
    file.write(b"x" * 512)
    disk.fail("sync")
    with pytest.raises(StorageError):
        file.sync()
    file.write(b"y" * 512)
    file.sync()
    assert file.read_at(0, 512) == b"x" * 512

    disk.crash()

    assert disk.content("d/a") == bytes(512) + b"y" * 512


def test_a_file_once_overwritten_needs_no_further_descriptor(tmp_path: Path) -> None:
    """A process whose descriptors clients have taken can still write what it must."""
    file = OsDisk().create(str(tmp_path / "a"))
    file.write(b"abc")
    file.write_at(0, b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        file.write_at(1, b"y")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert file.read_at(0, 3) == b"xyc"
    file.close()


def test_what_was_overwritten_is_synced_where_it_was_written(tmp_path: Path) -> None:
    """POSIX promises it of the descriptor; some file systems of user space promise no more."""
    file = OsDisk().create(str(tmp_path / "a"))
    appending = file.descriptor
    file.write_at(0, b"x")

    overwriting = file.descriptor

    assert overwriting is not None
    assert overwriting != appending
    assert not fcntl.fcntl(overwriting, fcntl.F_GETFL) & os.O_APPEND
    file.sync()
    file.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """None can be opened, as when the limit is lowered while the process runs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each) for each in os.listdir("/proc/self/fd"))
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in taken:
            os.close(each)


def test_without_a_descriptor_nothing_is_opened_and_it_can_be_tried_again(tmp_path: Path) -> None:
    """It is told as a full disk is: nothing has changed. Names are made stable all the same."""
    disk = OsDisk()
    path = str(tmp_path / "a")
    disk.create(path).close()
    with no_descriptor_left():
        for attempt in (disk.create, disk.open_append, disk.open_read, disk.read):
            with pytest.raises(DiskFullError, match="Too many open files"):
                attempt(path)
        for _ in range(3):
            disk.sync_directory(str(tmp_path))
            assert disk.list_directory(str(tmp_path)) == ["a"]

    assert disk.read(path) == b""


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_lack_of_descriptors_is_a_reason_to_try_again(number: int) -> None:
    """Of this process, and of the whole machine."""
    assert isinstance(storage_error("open", "/x", OSError(number, "no more")), DiskFullError)
