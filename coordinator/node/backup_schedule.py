"""Backups that members make by themselves, as ``[backup]`` of their configurations says.

1. A member looks from time to time whether a backup is due: whether the newest one that any member
   says it made is older than ``every_ms``. It asks them all, as ``coordinator status`` does.
2. Of the ready members that are to make backups one makes it: a follower before the leader, the
   lowest id first, one whose last try failed after all others. All see the same, so all come to the
   same; if not, for a moment, there are two backups.
3. It is written as ``coordinator backup`` writes it, and counts when it was read back and the
   command, if there is one, ended well. Then the oldest are deleted. One of a clock that is ahead
   does not count, and is deleted before all others. Nor does one count whose member is found to
   differ from the others meanwhile.
4. A failure is said in the status, and tried again at the next look, by another member if it can.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from coordinator.clock import Clock
from coordinator.errors import CoordinatorError, StorageError
from coordinator.model.access import MEMBER
from coordinator.model.backup import ScheduledBackups, newest_ms
from coordinator.model.members import MemberList
from coordinator.node.backups import Draft
from coordinator.node.config import Config
from coordinator.service.member import Member

logger = logging.getLogger("coordinator.backup")

LOOK_MS_MAX = 60_000
LOOKS = 20
"""So many times in ``every_ms`` a member looks whether a backup is due, or once in a minute."""
_BEGIN_MS = 30_000
_END_S = 5.0
"""So long the end of a member waits for what is being made, at most."""
_SUFFIX = ".backup"


class BackupSchedule:
    """The backups of one member; ``begin`` it once the member runs."""

    def __init__(self, member: Member, config: Config, clock: Clock) -> None:
        self._member = member
        self._member_id = config.member.member_id
        self._config = config.backup
        self._clock = clock
        cluster = quote(config.cluster.name, safe="")
        self._name = re.compile(rf"{re.escape(cluster)}-\d{{8}}T\d{{6}}Z-[^/]+{_SUFFIX}")
        self._prefix = f"{cluster}-"
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Make backups from now on, if the configuration says where."""
        if self._config.directory is not None:
            self._state = ScheduledBackups(self._config.every_ms)
            self._task = asyncio.create_task(self._run(), name="make backups")

    async def end(self) -> None:
        """Make no more; one that is being made is given up. Idempotent, within ``_END_S``."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            _, unfinished = await asyncio.wait({task}, timeout=_END_S)
            if unfinished:
                logger.warning("a backup that is being made does not end; ending without it")

    @property
    def _state(self) -> ScheduledBackups:
        found = self._member.backups.scheduled
        assert found is not None, "there is a schedule"
        return found

    @_state.setter
    def _state(self, state: ScheduledBackups) -> None:
        self._member.backups.scheduled = state

    async def _run(self) -> None:
        look_s = min(LOOK_MS_MAX, self._config.every_ms // LOOKS) / 1_000
        is_known = False
        while True:
            try:
                if not is_known:
                    made_ms = await asyncio.to_thread(self._newest_ms)
                    self._state, is_known = self._state.with_success(made_ms), True
                if is_due_at(self._member_id, await self._member.reports.all(), self._now_ms()):
                    await self._make()
            except (CoordinatorError, OSError) as error:
                self._note_failure(error)
            except Exception as error:
                logger.exception("a backup failed unexpectedly")
                self._note_failure(error)
            await asyncio.sleep(look_s)

    def _now_ms(self) -> int:
        return self._clock.wall_ms()

    def _note_failure(self, error: Exception) -> None:
        text = error.message if isinstance(error, CoordinatorError) else str(error)
        logger.warning("no backup was made: %s", text)
        self._state = self._state.with_failure(self._now_ms(), text)

    async def _make(self) -> None:
        directory = self._directory()
        await asyncio.to_thread(self._forget_drafts)
        path = str(directory / f"{self._named_now()}-{self._member_id}{_SUFFIX}")
        await self._write(path)
        try:
            self._refuse_wrong_data()
            await self._run_command(path)
            self._refuse_wrong_data()
        except BaseException:
            with suppress(OSError):  # else a command that always fails would push all others out
                os.unlink(path)
            raise
        self._state = self._state.with_success(self._now_ms())
        logger.info("made the backup %s", path)
        await asyncio.to_thread(self._forget_oldest)

    def _refuse_wrong_data(self) -> None:
        """Raise StorageError if the backup is of a state that is known to be wrong."""
        if self._member.difference:
            raise StorageError(self._member.difference)

    async def _write(self, path: str) -> None:
        backups = self._member.backups
        draft = await asyncio.to_thread(Draft, path)
        with draft:
            piece = await backups.begin(MEMBER, self._clock.monotonic_ms() + _BEGIN_MS)
            try:
                await asyncio.to_thread(draft.write, piece.data)
                while not piece.is_last:
                    piece = await backups.read(piece.backup_id, piece.next_offset, MEMBER)
                    await asyncio.to_thread(draft.write, piece.data)
            finally:
                backups.end(piece.backup_id)
            await asyncio.to_thread(draft.finish)

    async def _run_command(self, path: str) -> None:
        """Run the command; what it prints is in the member's log."""
        command = self._config.command
        if command is None:
            return
        nothing = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(command, path, stdin=nothing)
        try:
            async with asyncio.timeout(self._config.command_deadline_ms / 1_000):
                status = await process.wait()
        except TimeoutError:
            raise StorageError(f"{command} did not end in time for {path}") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if status:
            raise StorageError(f"{command} ended with status {status} for {path}; see the log")

    def _directory(self) -> Path:
        assert self._config.directory is not None, "there is a schedule"
        return Path(self._config.directory)

    def _made(self) -> list[Path]:
        """Return the cluster's backups in the directory, the oldest first. Names of a time that has
        not come are of a wrong clock, and before all others: they would never be the oldest."""
        directory = self._directory()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = [each for each in directory.iterdir() if self._name.fullmatch(each.name)]
        now = f"{self._named_now()}."  # behind all of this second
        return sorted(made, key=lambda each: (each.name <= now, each.name))

    def _named_now(self) -> str:
        """Return how the name of a backup begins that is made now."""
        now = datetime.fromtimestamp(self._now_ms() / 1_000, UTC)
        return f"{self._prefix}{now:%Y%m%dT%H%M%SZ}"

    def _newest_ms(self) -> int | None:
        """Return when this member made its newest one, before it was started."""
        own = [each for each in self._made() if each.stem.endswith(f"Z-{self._member_id}")]
        return int(own[-1].stat().st_mtime * 1_000) if own else None

    def _forget_drafts(self) -> None:
        """Delete what a member that was killed left of its own."""
        for each in self._directory().glob(f"{self._prefix}*-{self._member_id}{_SUFFIX}.part"):
            each.unlink(missing_ok=True)

    def _forget_oldest(self) -> None:
        for each in self._made()[: -self._config.keep]:
            each.unlink(missing_ok=True)


def is_due_at(member_id: str, found: MemberList, now_ms: int) -> bool:
    """Say whether a backup is due, and this member is to make it."""
    facts = [each.facts for each in found.members if each.facts is not None]
    known = [(each, each.backups) for each in facts if each.backups is not None]
    last_ms = newest_ms((backups for _, backups in known), now_ms)
    ready = [(each, backups) for each, backups in known if each.is_ready]
    if not ready or now_ms - last_ms < min(backups.every_ms for _, backups in known):
        return False
    first, _ = min(
        ready,
        key=lambda each: (
            (each[1].failed_ms or 0) > last_ms,
            each[0].role == "leader",
            each[0].member_id,
        ),
    )
    return first.member_id == member_id
