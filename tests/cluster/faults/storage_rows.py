"""Rows 16, 17 and 18: what lies on one member's disk is torn, damaged, deleted or old."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from tests.cluster.faults.process_rows import Row
from tests.cluster.faults.world import RECOVERY_S_MAX, Plan, Tally, World

SECTOR_BYTES = 512
_FOUND_OUT = "may not vote until it has caught up"
_RECOVERED = b" may vote"
"""What a member says at the end of its recovery, and never without one."""
_HINTS = frozenset({"synced", "LOCK", "term.spare", "writing.tmp"})
"""Files that nothing depends on: damage there may go unnoticed."""


def depends_on(path: Path) -> bool:
    """Whether anything does. The newest snapshot is the truth; the one before is never read."""
    newest = max(path.parent.iterdir()) if path.suffix == ".snapshot" else path
    return path.name not in _HINTS and path == newest


async def starts(world: World, member_id: str) -> bool:
    """Start it; return whether it became ready, rather than refuse its disk."""
    size = world.cluster.log_path(member_id).stat().st_size
    world.cluster.start(member_id)
    process = world.cluster.processes[member_id]
    for _ in range(round(RECOVERY_S_MAX / 0.05)):
        if process.poll() is not None:
            text = world.cluster.log_path(member_id).read_bytes()[size:].decode(errors="replace")
            is_clear = "Traceback" not in text and str(world.directory) in text
            world.expect(is_clear, f"refused without naming a file: {text[-300:]}")
            return False
        status, _ = await asyncio.to_thread(world.cluster.get, member_id, "/health/ready", 1.0)
        if status == 200:
            return True
        await asyncio.sleep(0.05)
    world.expect(False, f"member {member_id} neither started nor refused")
    world.cluster.kill(member_id)
    return False


async def replace(world: World, member_id: str) -> None:
    """As docs/recovery.md says for a lost disk: the others run, one leads, all are level."""
    for _ in range(600):
        others = [world.cluster.status(each) for each in world.cluster.ids if each != member_id]
        if all(each is not None and each["is_ready"] for each in others):
            break
        await asyncio.sleep(0.1)
    world.cluster.wipe(member_id)
    unproven = world.cluster.data_dir(member_id) / "unproven"
    log, size = world.cluster.log_path(member_id), world.cluster.log_path(member_id).stat().st_size
    world.cluster.start(member_id)
    was_on_recovering, end = False, time.monotonic() + RECOVERY_S_MAX
    while not (was_on_recovering and not unproven.exists()) and time.monotonic() < end:
        # The file is there for less than a second; a loop that stands still may miss it.
        was_on_recovering = (
            was_on_recovering or unproven.exists() or _RECOVERED in log.read_bytes()[size:]
        )
        await asyncio.sleep(0.002)
    world.expect(was_on_recovering, f"D member {member_id}, its disk empty, may vote at once")
    world.expect(not unproven.exists(), f"A member {member_id} has no vote {RECOVERY_S_MAX:g} s on")
    await world.ready(member_id)


def last_segment(world: World, member_id: str) -> Path:
    return max((world.cluster.data_dir(member_id) / "log").glob("*.log"))


async def row_16(plan: Plan, tally: Tally) -> None:
    """torn tail of the last log file"""
    for members, numbers in plan.shares(20):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                await world.calm(0.2, 0.8)
                victim = world.random.choice(world.cluster.ids)
                world.cluster.kill(victim)
                how = tear(world, last_segment(world, victim))
                started = await starts(world, victim)
                world.expect(started, f"D a torn tail ({how}) was refused by member {victim}")
                if not started:
                    await replace(world, victim)
                tally.faults += 1


def tear(world: World, path: Path) -> str:
    """Add what a write that did not finish leaves: less of it, or other bytes, by sectors."""
    data = path.read_bytes().rstrip(b"\0")  # records end with another byte; zeros may follow them
    start = data.rfind(b"RcRd")
    record = data[start:] if start > 0 else b"RcRd"
    kinds = ("short", "zeros", "last sectors missing", "random", "short, then random")
    kind = world.random.choice(kinds)
    room = -len(data) % SECTOR_BYTES
    if "random" in kind:
        added = record[: world.random.randrange(1, max(2, len(record) - 12))]
        added = added if "short" in kind else b""
        added += world.random.randbytes(world.random.choice((8, 100, SECTOR_BYTES, 4096)))
    elif kind == "zeros":
        added = bytes(world.random.choice((8, 100, SECTOR_BYTES, 4096)))
    elif kind == "short" or not 0 < room < len(record):
        added = record[: world.random.randrange(1, max(2, len(record) - 12))]
    else:
        added = record[:room] + bytes(len(record) - room)
    with path.open("r+b") as file:
        file.seek(len(data))
        file.write(added)
    return f"{kind}, {len(added)} bytes"


async def row_17(plan: Plan, tally: Tally) -> None:
    """bit flip or zeroed block in log, snapshot, vote file of one"""
    refused = harmless = torn = 0
    for members, numbers in plan.shares(20):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                await world.calm(0.2, 0.8)
                victim = world.random.choice(world.cluster.ids)
                world.cluster.kill(victim)
                path, kind, offset = damage(world, world.cluster.data_dir(victim))
                is_needed = depends_on(path)
                if await starts(world, victim):
                    what = f"{kind} at {offset} of {path.name} of member {victim}"
                    if not is_needed:
                        harmless += 1
                    elif kind == "zeroed block":
                        torn += 1  # may look torn, see coordinator/raft/storage/records.py
                        tally.notes.append(f"started in spite of a {what}")
                    else:
                        world.expect(False, f"H not detected: {what}")
                else:
                    refused += 1
                    await replace(world, victim)
                tally.faults += 1
    tally.notes.append(
        f"{refused} refused, {harmless} in what nothing needs, {torn} taken for a torn write"
    )


def damage(world: World, data_dir: Path) -> tuple[Path, str, int]:
    """Flip one bit, or zero up to a block, somewhere in one file."""
    files = [path for path in sorted(data_dir.rglob("*")) if path.is_file()
             and path.stat().st_size > 0]  # fmt: skip
    weights = [10 if depends_on(path) else 1 for path in files]
    path = world.random.choices(files, weights)[0]
    data = bytearray(path.read_bytes())
    # Nothing needs the zeros behind the log, which end with their member.
    offset = world.random.randrange(len(data.rstrip(b"\0") if path.suffix == ".log" else data))
    if world.random.random() < 0.7:
        data[offset] ^= 1 << world.random.randrange(8)
        kind = "bit flip"
    else:
        before = bytes(data)
        offset -= offset % SECTOR_BYTES
        length = len(data[offset : offset + SECTOR_BYTES])
        data[offset : offset + length] = bytes(length)
        kind = "zeroed block"
        # The spare of the term file is all zeros until the first vote.
        is_other = bytes(data) != before or path.name in _HINTS
        assert is_other, f"a block of {path.name} is all zeros"
    path.write_bytes(data)
    return path, kind, offset


async def row_18(plan: Plan, tally: Tally) -> None:
    """data of one member deleted, in part deleted, or restored from an old copy"""
    for members, numbers in plan.shares(2):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                await world.calm()
                await _deleted(world)
                await _partly_deleted(world)
                await _old_copy(world, others_forget=False)
                await _old_copy(world, others_forget=True)
                tally.faults += 4


async def _deleted(world: World) -> None:
    victim = await world.follower()
    world.cluster.kill(victim)
    await replace(world, victim)


async def _partly_deleted(world: World) -> None:
    victim = await world.follower()
    world.cluster.kill(victim)
    data_dir = world.cluster.data_dir(victim)
    path = world.random.choice(
        [data_dir / "log" / "term", last_segment(world, victim),
         *data_dir.glob("snapshots/*.snapshot")]
    )  # fmt: skip
    path.unlink()
    started = await starts(world, victim)
    world.expect(not started, f"H {path.name} of member {victim} was deleted and is not missed")
    if not started:
        await replace(world, victim)


async def _old_copy(world: World, *, others_forget: bool) -> None:
    """An older copy of a follower's directory: it has no say before it has caught up."""
    victim = await world.follower()
    copy = world.directory / "old-copy"
    world.cluster.kill(victim)
    shutil.copytree(world.cluster.data_dir(victim), copy)
    world.cluster.start(victim)
    await world.ready(victim)
    await world.pause(1.0, 2.0)
    world.cluster.kill(*(world.cluster.ids if others_forget else (victim,)))
    world.cluster.wipe(victim)
    shutil.copytree(copy, world.cluster.data_dir(victim))
    shutil.rmtree(copy)
    count = world.cluster.log_path(victim).read_text(errors="replace").count(_FOUND_OUT)
    at = time.monotonic()
    if others_forget:
        world.cluster.start(*(each for each in world.cluster.ids if each != victim))
    world.expect(await starts(world, victim), f"an old copy of member {victim} does not start")
    log = world.cluster.log_path(victim).read_text(errors="replace")
    world.expect(
        log.count(_FOUND_OUT) > count, f"D an old copy of member {victim} is not found out"
    )
    await world.ready(*world.cluster.ids)
    world.tally.measured("an old copy has caught up", time.monotonic() - at)


ROWS: dict[int, Row] = {16: row_16, 17: row_17, 18: row_18}
