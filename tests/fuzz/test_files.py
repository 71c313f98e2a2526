"""Damaged files met by the start of a whole member: refused by name, or harmless, never believed.

``tests/raft`` asks the journal and the snapshots alone; here everything is opened as ``serve`` does
it, down to the state machine, and what it came to is compared with what was true.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from coordinator.clock import SystemClock
from coordinator.errors import StorageError
from coordinator.node.config import Config, HttpConfig, MemberConfig, RaftConfig
from coordinator.node.server import Server
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Create, CreateMode, OpenSession, RequestId
from tests.fuzz.budget import Fuzz
from tests.fuzz.watch import WALL_SECONDS, watching

COMMANDS = 12
FLIPS = (0x01, 0x80, 0xFF)
# A member alone elects itself; the shorter the wait for it, the more starts there are.
QUICK = replace(
    RaftConfig(),
    heartbeat_interval_ms=1,
    election_timeout_ms_min=4,
    election_timeout_ms_max=8,
    snapshot_every_entries=9,  # one snapshot in all, none under way at the end
    keep_entries_after_snapshot=3,
    segment_bytes=4_096,
)


@dataclass(frozen=True, slots=True)
class Kept:
    """A member's directory as a close and as a kill left it, and what was true after each write."""

    closed: Path
    killed: Path
    digests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing done to one file of a directory."""

    directory: str
    file: str
    what: str
    at: int = 0

    def apply(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        match self.what:
            case "flip":
                data[self.at] ^= FLIPS[self.at % len(FLIPS)]
            case "cut":
                del data[self.at :]
            case "zero":
                data[self.at : self.at + 512] = bytes(len(data[self.at : self.at + 512]))
            case "longer":
                data += b"\x5a" * self.at
            case "gone":
                path.unlink()
                return
        path.write_bytes(data)


def server_of(directory: Path) -> Server:
    member = MemberConfig("1", str(directory))
    return Server(Config(member=member, raft=QUICK, http=HttpConfig(bind_port=0)))


async def written(root: Path) -> Kept:
    """Run a member through some writes and a snapshot; keep its files."""
    clock = SystemClock()
    server = server_of(root / "closed")
    machine = server.member._replica.machine
    await server.member.start()
    digests = [machine.digest()]
    for number in range(1, COMMANDS + 1):
        operation = (
            OpenSession("00000000000000aa", timeout_ms=60_000, label="held")
            if number == 3
            else Create("/n-", data=b"x" * number, mode=CreateMode.PERSISTENT_SEQUENTIAL)
        )
        await server.member.proposer.submit(
            operation,
            RequestContext(
                RequestId("c", number=number, floor_index=0), clock.monotonic_ms() + 10_000
            ),
        )
        digests.append(machine.digest())
    async with asyncio.timeout(WALL_SECONDS):
        while not is_snapshot_made(root / "closed" / "snapshots"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    shutil.copytree(root / "closed", root / "killed")
    await server.member.stop()
    return Kept(root / "closed", root / "killed", tuple(digests))


def is_snapshot_made(directory: Path) -> bool:
    """Return whether there is one, and none is being written."""
    return bool(list(directory.glob("*.snapshot"))) and not list(directory.glob("*.tmp"))


async def started(directory: Path) -> str | StorageError:
    """Return the state that a member starts with, or why it does not start."""
    server = server_of(directory)
    try:
        await server.member.start()
        async with asyncio.timeout(WALL_SECONDS):
            while not server.member.is_ready:
                assert server.failure is None, server.failure
                await asyncio.sleep(0.001)
        return server.member._replica.machine.digest()
    except StorageError as error:
        return error
    finally:
        await server.member.stop()


def every_damage(kept: Kept) -> Iterator[Damage]:
    """Each byte of each file flipped, each length cut, and what else happens to files."""
    for directory in (kept.closed, kept.killed):
        for path in sorted(directory.rglob("*")):
            if not path.is_file() or path.name == "LOCK":
                continue
            name = path.relative_to(directory).as_posix()
            size = path.stat().st_size
            for at in range(size):
                yield Damage(directory.name, name, "flip", at)
                yield Damage(directory.name, name, "cut", at)
            for at in range(0, size, 512):
                yield Damage(directory.name, name, "zero", at)
            for at in (1, 7, 600):
                yield Damage(directory.name, name, "longer", at)
            yield Damage(directory.name, name, "gone")


def is_right(kept: Kept, damage: Damage, found: str | StorageError) -> bool:
    """Say whether a start may come to ``found``: refuse, or hold all that was acknowledged.

    What a kill leaves may end in a torn write, which is cut: then an earlier state is true."""
    if isinstance(found, StorageError):
        # What is not there any more is named by its directory and what was expected in it.
        path = Path(damage.file)
        return str(path.parent if damage.what == "gone" else path.name) in found.message
    if found == kept.digests[-1]:
        return True
    is_tail = damage.directory == "killed" and damage.file.endswith(".log")
    return is_tail and damage.what in ("cut", "longer", "zero") and found in kept.digests


async def test_a_damaged_file_is_refused_by_name_or_harmless(fuzz: Fuzz, tmp_path: Path) -> None:
    """Every byte position and every length (a sample of them at a glance)."""
    kept = await written(tmp_path)
    for directory in (kept.closed, kept.killed):
        shutil.copytree(directory, tmp_path / "whole")
        assert await started(tmp_path / "whole") == kept.digests[-1]
        shutil.rmtree(tmp_path / "whole")
    damages = list(every_damage(kept))
    if count := fuzz.count("files"):
        damages = fuzz.random("files").sample(damages, min(count, len(damages)))
    work = tmp_path / "work"
    done = fuzz.of("files")
    loop = asyncio.get_running_loop()
    with watching(done) as watch:
        for damage in damages:
            shutil.copytree(tmp_path / damage.directory, work)
            damage.apply(work / damage.file)
            began = loop.time()
            found = await started(work)
            watch.took(loop.time() - began, damage)
            done.accepted += isinstance(found, str)
            assert is_right(kept, damage, found), f"{damage} of {kept}: {found}"
            shutil.rmtree(work)


@pytest.mark.parametrize("kind", ["log", "term", "snapshot"])
async def test_the_command_says_which_file_and_goes(tmp_path: Path, kind: str) -> None:
    """``coordinator serve`` over a damaged file: one line, an exit code, no traceback."""
    kept = await written(tmp_path)
    # Of the snapshots the newest is the one that counts; the spare of the term counts for nothing.
    files = [path for path in kept.closed.rglob("*") if path.is_file() and path.suffix != ".spare"]
    chosen = max(path for path in files if kind in path.name)
    Damage("closed", chosen.name, "flip", random.Random(1).randrange(30, 40)).apply(chosen)
    config = tmp_path / "member.toml"
    config.write_text(f'[member]\ndata_dir = "{kept.closed}"\n[http]\nbind_port = 0\n')

    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "coordinator", "serve", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode not in (0, -6, -11), done.stderr
    assert "Traceback" not in done.stderr
    assert chosen.name in done.stderr.splitlines()[-1]
