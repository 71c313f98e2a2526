"""The audit log: it goes on after a crash, is rotated, never waits, counts what is left out."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.audit.log import AuditLog
from coordinator.audit.targets import FileTarget, Found, Rotation, SyslogTarget, rotated
from coordinator.clock import ManualClock
from coordinator.errors import ConfigError
from tests.audit.audited import AT_MS, change, lines, log_of, refusal, verdict, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "audit.jsonl"


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if is_so():
            return
        time.sleep(0.001)
    raise AssertionError("it never was")


# --- lives


def test_the_next_life_goes_on_with_the_chain(path: Path) -> None:
    """Also of a file that was rotated just before the member stopped."""
    first = write(path, change(1))
    second = write(path, change(2))
    path.rename(path.with_name("audit.jsonl.000000000001"))
    third = write(path, change(3))

    assert [first.number, second.number, third.number] == [1, 2, 3]
    assert verdict(path).broken == ""
    assert oct(path.stat().st_mode & 0o777) == "0o600"
    assert oct(path.parent.stat().st_mode & 0o777) == "0o700"


def test_changes_of_one_entry_each_have_a_line(path: Path) -> None:
    """An entry may hold several commands, and a change of limits has no zxid of its own."""
    ann = change(7, time_ms=AT_MS)
    bob = change(7, time_ms=AT_MS, identity="bob")

    write(path, ann, bob)
    write(path, ann, bob)

    changed = [each for each in lines(path) if each["source"] == "applied"]
    assert [each["identity"] for each in changed] == ["ann", "bob"]


@pytest.mark.parametrize("written", [1, 2])
def test_a_crash_between_the_changes_of_one_entry_loses_none(path: Path, written: int) -> None:
    """They have one index and one zxid; the next life writes those that have no line yet."""
    changes = [change(7, time_ms=AT_MS, identity=name) for name in ("ann", "bob", "cyd")]
    write(path, *changes[:written])

    write(path, *changes)
    write(path, *changes, change(8))

    assert [each["identity"] for each in lines(path)] == ["ann", "bob", "cyd", "ann"]


@pytest.mark.parametrize("cut", [1, 2, 40, 200])
def test_a_line_torn_by_a_crash_is_kept_and_explained(path: Path, cut: int) -> None:
    """What is left of it is no line of the chain; a line without its end alone is one."""
    write(path, change(1), change(2))
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])

    write(path, change(2), change(3))

    found = verdict(path)
    assert (found.broken, found.torn) == ("", int(cut > 1))
    assert path.read_bytes().startswith(whole[:-cut] + b"\n")
    assert b'"zxid":3' in path.read_bytes()
    continued = [each for each in path.read_bytes().splitlines() if b"audit.continued" in each]
    assert len(continued) == int(cut > 1)


def test_a_crash_after_a_torn_line_was_ended_is_explained(path: Path) -> None:
    """The line end was written, and then the power went."""
    write(path, change(1), change(2))
    path.write_bytes(path.read_bytes()[:-40] + b"\n")

    write(path, change(3))

    assert (verdict(path).broken, verdict(path).torn) == ("", 1)


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_crash_while_a_torn_line_is_explained_is_explained_too(
    path: Path, before: int, end: bytes
) -> None:
    """However many come in a row, and be the torn one the first of all."""
    write(path, *[change(zxid) for zxid in range(1, before + 2)])
    torn = path.read_bytes()[:-40] + b'\n{"number":3,"time":"20' + end
    path.write_bytes(torn)

    write(path, change(1), change(2), change(3))

    found = verdict(path)
    assert (found.broken, found.torn, found.ends_torn) == ("", 2, False)
    assert path.read_bytes().startswith(torn)
    whole = [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
    changed = [each["zxid"] for each in whole if each["source"] == "applied"]
    assert changed == [1, 2, 3]


def test_any_number_of_crashes_in_a_row_is_explained(path: Path) -> None:
    """Also while the member is down: its end is torn, and nothing is broken."""
    write(path, change(1), change(2))
    path.write_bytes(path.read_bytes()[:-40] + b'\n{"number":2,"time":"2026' * 7)
    found = verdict(path)
    assert (found.broken, found.ends_torn) == ("", True)

    write(path, change(2))

    found = verdict(path)
    assert (found.broken, found.torn, found.lines) == ("", 8, 3)


def test_a_power_loss_that_leaves_zeros_is_explained(path: Path) -> None:
    """Some file systems keep the length of what was appended, and lose the bytes."""
    write(path, change(1))
    with path.open("ab") as file:
        file.write(bytes(100_000))

    write(path, change(2))

    found = verdict(path)
    assert (found.broken, found.torn, found.lines) == ("", 1, 3)


def test_a_torn_line_explains_nothing_else(path: Path) -> None:
    """Who cuts a line in two cannot say that it was a crash."""
    write(path, change(1), change(2))
    path.write_bytes(path.read_bytes()[:-40])
    write(path, change(3))
    torn = path.read_bytes().splitlines(keepends=True)
    torn[1] = torn[1][:60] + b"\n"
    path.write_bytes(b"".join(torn))

    assert verdict(path).where is not None


def test_a_replayed_change_has_one_line(path: Path) -> None:
    """A member that starts again applies the end of its log again."""
    write(path, change(5), change(7))
    write(path, change(5), change(7), change(9))

    assert [each["zxid"] for each in lines(path)] == [5, 7, 9]


def test_a_cluster_that_begins_again_has_lines_of_the_same_zxids(path: Path) -> None:
    """Its changes are later, whatever their numbers."""
    write(path, change(500))
    write(path, change(1, time_ms=AT_MS + 9_000), change(2, time_ms=AT_MS + 9_001))

    assert [each["zxid"] for each in lines(path)] == [500, 1, 2]


# --- rotation


def test_rotation_keeps_the_chain_and_names_what_it_deletes(path: Path) -> None:
    """The oldest files go; what is left begins with a number greater than 1."""
    many = [change(zxid) for zxid in range(1, 2_001)]
    write(path, *many, file_bytes_max=65_536, files_max=3)

    found = verdict(path)
    assert found.broken == ""
    assert len(rotated(path)) == 3
    assert all(each.stat().st_size < 65_536 + 1_000 for each in rotated(path))
    assert found.begins_at == int(rotated(path)[0].name.rpartition(".")[2]) > 1
    deleted = [
        each["detail"]["deleted"] for each in lines(path) if each["event"] == "audit.rotated"
    ]
    assert deleted[-1]
    rotated(path)[1].unlink()
    assert "has the number" in verdict(path).broken


@pytest.mark.parametrize("torn", [b"", b'{"number":3,"ti', b'{"nu'])
def test_a_crash_in_the_first_line_after_a_rotation_is_explained(path: Path, torn: bytes) -> None:
    """The chain goes on behind the rotated file, and so does what is known of its changes."""
    write(path, change(1), change(2))
    path.rename(path.with_name("audit.jsonl.000000000001"))
    path.write_bytes(torn)
    path.chmod(0o600)

    head = write(path, change(1), change(2), change(3))

    found = verdict(path)
    assert (found.broken, found.torn, found.begins_at) == ("", int(bool(torn)), 1)
    assert head.number == 3 + bool(torn)


def test_no_rotated_file_replaces_another(path: Path) -> None:
    """One that begins with a torn line is named by its first whole line, at every start."""
    torn = b'{"number":1,"ti\n'
    path.parent.mkdir(mode=0o700)
    path.write_bytes(torn)
    path.chmod(0o600)
    write(path, *[change(zxid) for zxid in range(1, 201)])
    write(path, *[change(zxid) for zxid in range(201, 451)], file_bytes_max=65_536)

    assert len(rotated(path)) > 1
    assert rotated(path)[0].read_bytes().startswith(torn)
    assert (verdict(path).broken, verdict(path).begins_at) == ("", 1)


def test_a_log_that_began_again_keeps_the_files_of_before(path: Path) -> None:
    """It counts from 1 again, because the end of the former log was taken away."""
    settings = {"file_bytes_max": 65_536, "files_max": 9}
    write(path, *[change(zxid) for zxid in range(1, 200)], **settings)
    former = rotated(path)[0].read_bytes()
    for each in [path, *rotated(path)[1:]]:
        each.unlink()
    moved = path.with_name("aside")
    rotated(path)[0].rename(moved)
    write(path, *[change(zxid, identity="bob") for zxid in range(1, 100)], **settings)
    moved.rename(path.with_name("audit.jsonl.000000000001"))

    write(path, *[change(zxid) for zxid in range(100, 300)], **settings)

    assert rotated(path)[0].read_bytes() == former


# --- never waiting


class SlowTarget:
    """A disk that takes nothing until it is let."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.written: list[bytes] = []
        self.error: OSError | None = None

    def open(self) -> Found:
        return Found()

    def write(self, line: bytes) -> None:
        assert self.go_on.wait(20)
        if self.error is not None:
            raise self.error
        self.written.append(line)

    def maybe_rotate(self) -> Rotation | None:
        return None

    def sync(self) -> None: ...

    def close(self) -> None: ...


def slow(**settings: int) -> tuple[AuditLog, SlowTarget, ManualClock]:
    target, clock = SlowTarget(), ManualClock()
    log = log_of(Path("none"), clock, target, **settings)
    log.start()
    return log, target, clock


def test_a_slow_disk_holds_nobody_up_and_what_is_left_out_is_counted() -> None:
    """The queue is bounded; the next line says how many have none."""
    log, target, _ = slow(queue_events_max=16)
    for zxid in range(1, 101):
        log.note(change(zxid))  # returns, although nothing can be written

    left_out = log.figures()["audit_left_out_total"]
    target.go_on.set()
    until(lambda: log.figures()["audit_lines_total"] + left_out >= 100)
    log.stop()

    assert 83 <= left_out <= 84
    said = [int(each.partition(b'"left_out":')[2].partition(b",")[0]) for each in target.written]
    assert sum(said) == left_out


def test_refusals_are_bounded_and_crowd_out_no_change() -> None:
    """By their rate, and to half of the queue."""
    log, target, clock = slow(queue_events_max=100, refusals_per_second_max=5)
    for number in range(1_000):
        log.note(refusal(number))
    assert log.figures()["audit_left_out_total"] == 980

    clock.advance(1_000)
    for number in range(1_000):
        log.note(refusal(number))
    assert log.figures()["audit_left_out_total"] == 980 + 995

    for zxid in range(1, 71):
        log.note(change(zxid))
    assert log.figures()["audit_left_out_total"] == 980 + 995
    target.go_on.set()
    log.stop()
    assert len(target.written) == 25 + 70


def test_what_is_left_out_last_is_said_too() -> None:
    """If no other line comes, one that says only this."""
    log, target, _ = slow(refusals_per_second_max=1)
    target.go_on.set()
    for number in range(10):
        log.note(refusal(number))
    log.stop()

    said = [int(each.partition(b'"left_out":')[2].partition(b",")[0]) for each in target.written]
    assert sum(said) == 6


def test_a_full_disk_is_counted_and_the_chain_goes_on(path: Path) -> None:
    """A part of a line that came to the disk is explained as after a crash."""

    class FullTarget(FileTarget):
        is_full = False

        def write(self, line: bytes) -> None:
            if self.is_full:
                super().write(line[:30])
                raise OSError(28, "No space left on device")
            super().write(line)

    clock = ManualClock()
    target = FullTarget(path, bytes_max=1 << 20, files_max=1)
    log = log_of(path, clock, target)
    log.start()
    log.note(change(1))
    until(lambda: log.figures()["audit_lines_total"] == 1)
    target.is_full = True
    log.note(change(2))
    until(lambda: log.figures()["audit_write_failures_total"] == 1)
    target.is_full = False
    clock.advance(2_000)
    log.note(change(3))
    log.stop()

    found = verdict(path)
    assert (found.broken, found.torn) == ("", 1)
    assert b'"left_out":1' in path.read_bytes().splitlines()[-1]
    assert log.figures()["audit_left_out_total"] == 1


# --- files that are not taken


def test_a_file_that_others_write_is_refused(path: Path, tmp_path: Path) -> None:
    """By its mode, as a link, or because another member has it."""
    write(path, change(1))
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="chmod go-w"):
        log_of(path).start()
    path.chmod(0o640)

    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ConfigError, match="is a link"):
        log_of(link).start()

    first = log_of(path)
    first.start()
    with pytest.raises(ConfigError, match="another process"):
        log_of(path).start()
    first.stop()

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="regular file"):
        log_of(tmp_path / "pipe").start()


@pytest.mark.parametrize("text", ["[http]\n", "5ac8" * 16 + "\n", '{"a": 1}\n'])
def test_another_file_is_not_written_to(path: Path, text: str) -> None:
    """A configuration, a secret or a key would be useless with lines of an audit log behind it."""
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(ConfigError, match="something else"):
        log_of(path).start()

    assert path.read_text() == text


def test_syslog_gets_a_datagram_for_each_line(tmp_path: Path) -> None:
    """RFC 5424, over a unix socket; the lines are chained as in a file."""
    daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with daemon:
        daemon.bind(str(tmp_path / "log"))
        daemon.settimeout(10)
        target = SyslogTarget(str(tmp_path / "log"), "1")
        log = log_of(tmp_path / "none", None, target)
        log.start()
        log.note(change(1))
        log.note(change(2))
        log.stop()
        received = [daemon.recv(65_536) for _ in range(2)]

    assert received[0].startswith(b'<109>1 - - coordinator 1 audit - {"number":1,')
    assert b'"number":2' in received[1]


def test_changes_of_one_entry_and_of_no_zxid_all_have_lines(path: Path) -> None:
    """An entry holds several commands, and a change of limits has no zxid of its own."""
    slow_clock = {"time_ms": AT_MS - 9_000}
    write(path, change(5, index=9), change(6, index=9, **slow_clock))
    write(path, change(6, index=10, **slow_clock), change(6, index=11, **slow_clock))

    assert [each["index"] for each in lines(path)] == [9, 9, 10, 11]
