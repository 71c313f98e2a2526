"""``coordinator backup`` and ``restore`` on real files, of one member that is the cluster."""

from __future__ import annotations

import asyncio
import fcntl
import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import connect
from coordinator.errors import CompactedError, StorageError
from coordinator.model.queue_order import sequence_of
from coordinator.node.backups import Draft
from coordinator.node.config_file import load
from coordinator.node.recovery import NUMBERS_SKIPPED
from coordinator.node.server import Server
from coordinator.raft.backup import replay
from coordinator.raft.rejoin import recovering
from coordinator.raft.storage import quarantine
from coordinator.raft.storage.backup_file import BackupFile
from coordinator.raft.storage.disk import OsDisk
from coordinator.recipes import Lock
from coordinator.service.base.replica import MachineReplica
from coordinator.state.machine import StateMachine
from tests.cli.conftest import CommandLine
from tests.ports import free_ports


class Running:
    """A member with its data on a disk, in a thread of its own."""

    def __init__(self, config_path: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.server = Server(load(config_path))
        self.run(self.server.start())
        self.command = CommandLine(self.server.url)

    def run(self, work: Any) -> Any:
        """Return what a coroutine returns there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def stop(self) -> None:
        self.run(self.server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(20)
        self.loop.close()


def written(folder: Path, *, snapshot_every_entries: int = 5) -> Path:
    """Write the configuration of a member that is the whole cluster; return its path."""
    (port,) = free_ports(1)
    path = folder / "member.toml"
    path.write_text(
        f'[member]\nmember_id = "1"\ndata_dir = "{folder}/data"\n[http]\nbind_port = {port}\n'
        f"[raft]\nsnapshot_every_entries = {snapshot_every_entries}\n"
    )
    return path


def filled(running: Running) -> tuple[int, int]:
    """Write something of everything; return a fencing token and a sequence number."""
    with connect(running.server.url) as client:
        client.create("/kept", b"as it was")
        for number in range(20):
            client.create(f"/kept/{number}", bytes([number]) * 1_000)
        item = client.create("/kept/item-", mode="persistent_sequential")
        with Lock(client, "report") as grant:
            token = grant.fencing_token
    number = sequence_of(item.path)
    assert number is not None
    return token, number


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    member = Running(written(tmp_path))
    yield member
    member.stop()


def state_in(path: Path) -> StateMachine:
    """Return the state that a backup holds."""
    file = BackupFile(OsDisk(), str(path))
    machine = StateMachine()
    replay(file, MachineReplica(machine))
    file.close()
    return machine


def test_a_backup_is_restored_into_a_new_cluster(running: Running, tmp_path: Path) -> None:
    """The state is that of the member; afterwards all data are there, and no number comes again."""
    token, number = filled(running)
    path, target = tmp_path / "backup", tmp_path / "new"
    target.mkdir()
    with connect(running.server.url) as holder:
        while not running.server.member._engine.status().snapshot_index > 0:
            holder.set("/kept", b"as it was")
        Lock(holder, "held").acquire()

        said = running.command.text("backup", str(path))

        digest = running.server.member._replica.machine.digest()

    assert said.startswith(f"wrote {path}: cluster 'coordinator'")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.glob("backup*")] == ["backup"]
    machine = state_in(path)
    assert machine.digest() == digest
    header = json.loads(path.read_bytes().partition(b"\n")[0])
    assert header["snapshot_index"] > 0

    config = written(target)
    said = running.command.text(
        "restore", str(path), "--config", str(config), "--by", "ann", "--reason", "a flood"
    )
    assert f"cluster 'coordinator' again, id {_id_of(target)}" in said
    assert "Members of the cluster of before are refused. Now start it." in said
    again = Running(config)
    try:
        with connect(again.server.url) as client:
            assert client.get("/kept").data == b"as it was"
            for each in range(20):
                assert client.get(f"/kept/{each}").data == bytes([each]) * 1_000
            item = client.create("/kept/item-", mode="persistent_sequential")
            assert (sequence_of(item.path) or 0) > number + NUMBERS_SKIPPED
            with Lock(client, "held", timeout=5) as grant:
                assert grant.fencing_token > token + NUMBERS_SKIPPED
            assert client.get("/kept").stat.pzxid > machine.zxid + NUMBERS_SKIPPED
            assert _id_of(target) != header["cluster_id"]
    finally:
        again.stop()
    note = json.loads((target / "data" / "recovered").read_text())
    assert (note["backup"], note["by"], note["reason"]) == (str(path), "ann", "a flood")
    assert note["cluster_id_before"] == header["cluster_id"]
    assert note["sessions_ended"] == 1


def _id_of(folder: Path) -> str:
    line = (folder / "data" / "owner").read_bytes().partition(b"\n")[0]
    return str(json.loads(line)["cluster_id"])


def test_verify_says_what_is_in_it_and_refuses_what_was_changed(
    running: Running, tmp_path: Path
) -> None:
    """At its boundaries and between them; a restore refuses it as well, and makes no directory."""
    filled(running)
    path = tmp_path / "backup"
    written_header = running.command.json("backup", str(path))

    assert running.command.json("backup", "verify", str(path)) == written_header
    assert "entries behind it); release" in running.command.text("backup", "verify", str(path))
    data = path.read_bytes()
    begin = data.index(b"\n") + 1
    ends = begin, begin + written_header["snapshot_bytes"]
    ends += ends[-1] + written_header["entries_bytes"], len(data)
    offsets = sorted({0, *(end + step for end in ends for step in (-1, 0) if end + step >= 0)})
    for offset in [*range(7, len(data), len(data) // 20), *offsets]:
        changed = bytearray(data)
        if offset < len(data):
            changed[offset] ^= 4
            _refused(running, path, bytes(changed))
        _refused(running, path, data[:offset] if offset < len(data) else data + b"\0")
    config = written(tmp_path, snapshot_every_entries=6)
    config.write_text(config.read_text().replace("/data", "/restored"))
    restored = running.command(
        "restore", str(path), "--config", str(config), "--by", "ann", "--reason", "a flood"
    )
    assert restored.exit_code == 1
    assert not (tmp_path / "restored").exists()


def _refused(running: Running, path: Path, data: bytes) -> None:
    path.write_bytes(data)
    result = running.command("backup", "verify", str(path))
    assert result.exit_code == 1, result.output
    assert "no whole backup" in result.stderr


def test_a_transfer_that_broke_goes_on_where_it_stopped(running: Running, tmp_path: Path) -> None:
    """The member still holds the backup that was begun: it is that one, not a later one."""
    filled(running)
    path = tmp_path / "backup"
    with connect(running.server.url) as client, Draft(str(path)) as draft:
        begun = client.backup_piece()
        draft.write(begun.data)
        part = client.backup_piece(begun.backup_id, begun.next_offset).data[:-10]
        draft.write(part)
        client.set("/kept", b"as it is later")

    found = running.command.json("backup", str(path))

    assert found["backup_id"] == begun.backup_id
    assert state_in(path).get("/kept")[0] == b"as it was"  # type: ignore[index]
    assert not (tmp_path / "backup.part").exists()


def test_one_that_the_member_let_go_of_begins_again(running: Running, tmp_path: Path) -> None:
    """After a restart of the member, or minutes later; what is there is not mixed with it."""
    filled(running)
    path = tmp_path / "backup"
    with connect(running.server.url) as client, Draft(str(path)) as draft:
        begun = client.backup_piece()
        draft.write(begun.data)
        let_go = running.server.member.backups.end
        running.loop.call_soon_threadsafe(let_go, begun.backup_id)
        with pytest.raises(CompactedError):
            client.backup_piece(begun.backup_id, begun.next_offset)

    assert running.command.json("backup", str(path))["backup_id"] != begun.backup_id
    (tmp_path / "backup.part").write_bytes(b"what another program left\n" * 100)
    assert running.command("backup", str(path)).exit_code == 0
    assert running.command("backup", "verify", str(path)).exit_code == 0


def test_two_do_not_write_one_file(running: Running, tmp_path: Path) -> None:
    """A second command that was started too early changes nothing."""
    with Draft(str(tmp_path / "backup")):
        result = running.command("backup", str(tmp_path / "backup"))

    assert result.exit_code != 0
    assert "expected that nobody writes it" in result.stderr


def test_a_pipe_gets_the_same(running: Running, tmp_path: Path) -> None:
    """Nothing else is on standard output."""
    filled(running)
    path = tmp_path / "backup"

    path.write_bytes(running.command("backup", "-").stdout_bytes)

    assert running.command("backup", "verify", str(path)).exit_code == 0


def test_a_draft_that_gets_its_name_meanwhile_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened as a draft, and is a backup once it is locked, stays as it is."""
    path, lock = tmp_path / "backup", fcntl.flock
    draft = tmp_path / "backup.part"
    draft.write_bytes(b"whole")

    def finished_before(*arguments: Any) -> None:
        if draft.exists() and not path.exists():
            draft.rename(path)
        lock(*arguments)

    monkeypatch.setattr(fcntl, "flock", finished_before)
    with Draft(str(path)) as again:
        again.begin_again()
        again.write(b"part")

    assert path.read_bytes() == b"whole"
    assert draft.read_bytes() == b"part"


def test_a_link_is_no_draft(tmp_path: Path) -> None:
    """Else another user of the directory chooses which file is overwritten."""
    other = tmp_path / "other"
    other.write_bytes(b"as it was")
    (tmp_path / "backup.part").symlink_to(other)

    with pytest.raises(StorageError, match=r"backup\.part: "):
        Draft(str(tmp_path / "backup"))

    assert other.read_bytes() == b"as it was"


def test_data_without_a_member_are_backed_up(tmp_path: Path) -> None:
    """The same file, of the state after the last entry; a member that runs keeps its directory."""
    running = Running(written(tmp_path))
    filled(running)
    path, data_dir = tmp_path / "backup", str(tmp_path / "data")
    refused = running.command("backup", "--data-dir", data_dir, str(path))
    digest = running.server.member._replica.machine.digest()
    running.stop()

    assert refused.exit_code != 0
    assert running.command("backup", "--data-dir", data_dir, str(path)).exit_code == 0
    assert state_in(path).digest() == digest
    assert running.command("backup", "verify", str(path)).exit_code == 0


def test_data_that_cannot_be_trusted_are_refused_or_named(tmp_path: Path) -> None:
    """Those that differed from a quorum's are wrong; those without a vote may lack entries."""
    running = Running(written(tmp_path))
    filled(running)
    running.stop()
    path, data_dir = tmp_path / "backup", str(tmp_path / "data")

    (tmp_path / "data" / quarantine.NAME).write_text("it differs")
    refused = running.command("backup", "--data-dir", data_dir, str(path))
    (tmp_path / "data" / quarantine.NAME).unlink()

    assert refused.exit_code != 0
    assert "differed from a quorum: back up another member" in refused.stderr
    assert not path.exists()

    (tmp_path / "data" / recovering.NAME).write_text(recovering.RecoveryStage.JOINING)
    said = running.command("backup", "--data-dir", data_dir, str(path))

    assert said.exit_code == 0
    assert "this member has no vote" in said.stderr


def test_a_young_member_without_a_snapshot_is_backed_up(tmp_path: Path) -> None:
    """All entries are there."""
    running = Running(written(tmp_path, snapshot_every_entries=100_000))
    filled(running)
    path = tmp_path / "backup"

    found = running.command.json("backup", str(path))
    digest = running.server.member._replica.machine.digest()
    running.stop()

    assert (found["snapshot_bytes"], found["entries"]) == (0, found["last_index"])
    assert state_in(path).digest() == digest


def test_nothing_is_restored_over_data(running: Running, tmp_path: Path) -> None:
    """The directory of a member that runs, or of anything else."""
    path = tmp_path / "backup"
    running.command.text("backup", str(path))

    config = str(tmp_path / "member.toml")
    result = running.command(
        "restore", str(path), "--config", config, "--by", "ann", "--reason", "a flood"
    )

    assert result.exit_code == 1
    assert "expected no directory, or an empty one" in result.stderr


def test_a_restore_that_was_interrupted_says_what_to_do(running: Running, tmp_path: Path) -> None:
    """Before the last rename: what is there is not overwritten unseen."""
    path, target = tmp_path / "backup", tmp_path / "elsewhere"
    running.command.text("backup", str(path))
    arguments = ("restore", str(path), "--config", str(tmp_path / "member.toml"), "--data-dir",
                 str(target), "--by", "a", "--reason", "b")  # fmt: skip
    running.command.text(*arguments)
    target.rename(f"{target}.recovered")

    result = running.command(*arguments)

    assert "was interrupted: rename" in result.stderr


def test_wrong_usage_says_so(running: Running, tmp_path: Path) -> None:
    """And does nothing."""
    assert running.command("backup", "a", "b").exit_code == 2
    assert running.command("backup", "--data-dir", str(tmp_path), "-").exit_code == 2
    nothing = running.command("backup", "--data-dir", str(tmp_path / "none"), str(tmp_path / "b"))
    assert nothing.exit_code != 0
    with pytest.raises(StorageError):
        Draft(str(tmp_path / "no" / "directory"))
    assert "backup verify FILE" in running.command("backup", "--help").stdout
