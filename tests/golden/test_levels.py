"""What members of each level left on their disks: every release that reads the level reads it.

``level-N/data.tar.xz`` is the data directory of a member that lived at that level: its log, a
snapshot, its term, and who it is. ``level-N/state.json`` says to which state it leads. They are
kept for ever. A release with a new level adds a directory: ``pytest tests/golden --rewrite`` writes
that of the newest level, and leaves those of the levels before as they are. (Until 0.1.0 is
released, a change of a format of level 1 renews ``level-1`` instead: remove it first.)
"""

from __future__ import annotations

import asyncio
import json
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from coordinator.node.config import Config, HttpConfig, MemberConfig, RaftConfig
from coordinator.node.server import Server
from coordinator.raft.rejoin.refounding import HeldData
from coordinator.raft.storage.disk import OsDisk
from coordinator.service.base.replica import MachineReplica
from coordinator.state.codec import encode_command
from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Enter,
    Kind,
    OpenSession,
    Operation,
    SetLevel,
    SetLimits,
)
from coordinator.state.levels import NEWEST, OLDEST
from coordinator.state.machine import StateMachine
from tests.state.rich_state import LIMITS, rich_history
from tests.state.znode_histories import mixed_history

HERE = Path(__file__).parent
COMMANDS = 200
KEPT: tuple[Operation, ...] = (
    OpenSession("kept", timeout_ms=60_000, label="kept"),
    Create("/kept", b"data"),
    Create("/kept/e-", mode=CreateMode.EPHEMERAL_SEQUENTIAL, session_id="kept"),
    Enter(("/locks/kept",), prefix="lock-", kind=Kind.EXCLUSIVE, session_id="kept", data=b"who"),
)
"""What the last session leaves open."""


def folder_of(level: int) -> Path:
    return HERE / f"level-{level}"


def server_of(directory: Path) -> Server:
    raft = RaftConfig(snapshot_every_entries=150, keep_entries_after_snapshot=20)
    member = MemberConfig("1", str(directory))
    return Server(Config(member=member, raft=raft, http=HttpConfig(bind_port=0)))


async def live(directory: Path, level: int) -> None:
    """Let a member write a long history at a level, with a snapshot amid it."""
    server = server_of(directory)
    await server.member.start()
    engine = server.member._engine
    async with asyncio.timeout(60):
        while not server.member.is_ready:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for each in range(2, level + 1):
            await engine.propose(encode_command(Command(SetLevel(each), 0)))
        drawn = mixed_history(random.Random(level), LIMITS, COMMANDS)
        first = Command(SetLimits(LIMITS.items()), 0)
        last = [Command(each, 7) for each in KEPT]
        for command in (first, *drawn, *rich_history(), *last):
            await engine.propose(encode_command(command))
        while not list((directory / "snapshots").glob("*")):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await server.member.stop()


def state_in(directory: Path) -> dict[str, Any]:
    """Return to which state the files of a member lead."""
    held, machine = HeldData(OsDisk(), str(directory)), StateMachine()
    try:
        at = held.replay(MachineReplica(machine))
        owner = held.owner
        return {
            "level": machine.level, "digest": machine.digest(), "zxid": machine.zxid,
            "index": at.index, "term": held.term, "znodes": machine.znode_count,
            "sessions": machine.session_count, "cluster": owner.cluster,
            "cluster_id": owner.cluster_id.hex(), "member": owner.member_id,
        }  # fmt: skip
    finally:
        held.close()


async def write(level: int, directory: Path) -> None:
    """Write the files of a level, which nobody changes afterwards."""
    await live(directory, level)
    folder = folder_of(level)
    folder.mkdir()
    with tarfile.open(folder / "data.tar.xz", "w:xz") as archive:
        archive.add(directory, arcname="data")
    state = state_in(directory)
    (folder / "state.json").write_text(json.dumps(state, indent=2) + "\n")


async def test_the_files_of_the_newest_level_are_kept(
    pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """A level that has none yet fails here; see above how they are made."""
    if pytestconfig.getoption("--rewrite") and not folder_of(NEWEST).exists():
        await write(NEWEST, tmp_path / "data")

    kept = {int(each.name.removeprefix("level-")) for each in HERE.glob("level-*")}
    assert kept >= set(range(OLDEST, NEWEST + 1))


@pytest.mark.parametrize("level", range(OLDEST, NEWEST + 1))
async def test_the_files_of_each_level_are_read_for_ever(level: int, tmp_path: Path) -> None:
    """By the tools, and by a member that is started with them and goes on."""
    folder = folder_of(level)
    with tarfile.open(folder / "data.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    expected = json.loads((folder / "state.json").read_text())

    assert state_in(tmp_path / "data") == expected
    assert expected["level"] == level

    server = server_of(tmp_path / "data")
    machine = server.member._replica.machine
    await server.member.start()
    async with asyncio.timeout(60):
        while not server.member.is_ready:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert machine.applied_index >= expected["index"]
    assert machine.zxid >= expected["zxid"]
    assert machine.level == level
    await server.member.stop()
