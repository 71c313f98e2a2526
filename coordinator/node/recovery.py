"""The recovery of a cluster from the data of one member, while no member runs.

An operator looks at the data directories, chooses one, and begins the cluster again from it. What
``coordinator.raft.rejoin.refounding`` does on the disk is completed here with what the state needs:
numbers are skipped and sessions ended, so that no fencing token or sequence number is given out
twice.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from coordinator.audit.event import AuditEvent, Source
from coordinator.audit.opening import open_audit
from coordinator.clock import SystemClock
from coordinator.errors import StorageError
from coordinator.model.access import MEMBER
from coordinator.node.config import Config
from coordinator.raft.rejoin.refounding import HeldData, Position, unfinished, write
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.ownership import CLUSTER_ID_BYTES, Owner
from coordinator.service.base.replica import MachineReplica
from coordinator.state.codec import encode_command
from coordinator.state.commands import CloseSession, Command, FinishSession, Operation, SetAccess
from coordinator.state.locks.operations import REASON_CHARACTERS_MAX
from coordinator.state.machine import StateMachine

NUMBERS_SKIPPED = 10**12
"""Numbers skipped at least, if not by the time of day: more than can be used beyond the data."""

_NUMBERS_PER_MS = 1_000
"""More than a cluster can use."""

_NUMBER_OF_TIME_MAX = 2**52
"""A clock that is years ahead leaves numbers, also to readers whose integers have 53 bits."""


@dataclass(frozen=True, slots=True)
class KeptData:
    """The data of a member that does not run."""

    data_dir: str
    owner: Owner
    has_vote: bool
    differs: bool
    term: int
    at: Position
    machine: StateMachine

    def in_words(self) -> str:
        """Describe the data for a person who decides whether to keep them."""
        vote = "has its vote" if self.has_vote else "has no vote"
        if self.differs:
            vote += ", differed from a quorum (do not take these data if there are others)"
        return (
            f"{self.data_dir}: {self.owner}, {vote}; last term {self.at.term}, last entry"
            f" {self.at.index}, zxid {self.machine.zxid}, term {self.term} on the disk"
        )


def look_at(config: Config) -> KeptData:
    """Return what lies in the data directory; like a start it cuts the torn tail of a log.

    Raises:
        StorageError: the member runs, or what is there cannot be trusted, or is another's."""
    with _held(config) as held:
        return held


def recover(config: Config, *, by: str, reason: str, turns_access_off: bool = False) -> str:
    """Begin the cluster again from this member's data (``refounding``); return what was done.

    ``turns_access_off`` is the way back of operators who have lost the last token that may do all.

    The data of before keep their place under another name. Raises StorageError as ``look_at``."""
    data_dir = config.member.data_dir.rstrip("/")
    old = _free_name(f"{data_dir}.before-recovery")
    with _held(config) as held:
        begun = found(
            config, held.machine, held.at,
            by=by, reason=reason, turns_access_off=turns_access_off, former=old,
            note={"cluster_id_before": held.owner.cluster_id.hex(), "data_before": old},
            detail={"former": old},
        )  # fmt: skip
    return (
        f"{data_dir} begins {begun.in_words()}. Acknowledged writes that were not in these data are"
        f" lost, and all {begun.sessions_ended} sessions have ended, with their locks."
        f" The former data are in {old}. Now {what_to_do(config)}."
    )


@dataclass(frozen=True, slots=True)
class Begun:
    """A cluster that was begun again, and what it was before."""

    owner: Owner
    zxid: int
    zxid_before: int
    sessions_ended: int

    def in_words(self) -> str:
        """Say which cluster it is, and how its numbers continue."""
        return (
            f"cluster {self.owner.cluster!r} again, id {self.owner.cluster_id.hex()}, at zxid"
            f" {self.zxid} (was {self.zxid_before})"
        )


def found(
    config: Config,
    machine: StateMachine,
    at: Position,
    *,
    by: str,
    reason: str,
    turns_access_off: bool,
    note: Mapping[str, object],
    detail: Mapping[str, object],
    former: str | None = None,
) -> Begun:
    """Begin the cluster again from the state after ``at``, in the member's data directory.

    Args:
        note: what the new data keep of where they come from, beside what all keep.
        detail: the same for the audit log, which is opened before anything is changed.
        former: the name under which the data keep their place that are there; None: there are none.
    """
    disk, data_dir = OsDisk(), config.member.data_dir.rstrip("/")
    new, wall_ms, before = unfinished(data_dir), SystemClock().wall_ms(), machine.zxid
    with _audited(config) as note_beginning:
        shutil.rmtree(new, ignore_errors=True)  # of one that died before it was complete
        replica = MachineReplica(machine)
        new_at, ended = begin_again(replica, at, wall_ms, by=by, reason=reason)
        if turns_access_off:
            off = Command(SetAccess(is_on=False), wall_ms, caller=MEMBER)
            replica.apply(new_at.index, new_at.term, encode_command(off))
            assert not machine.access.is_on, "members may do all"
        member_ids = tuple(sorted(each.member_id for each in config.cluster.members))
        cluster_id = os.urandom(CLUSTER_ID_BYTES)
        owner = Owner(config.cluster.name, config.member.member_id, cluster_id, member_ids)
        said = {"by": by, "reason": reason, "zxid_before": before,
                "access_turned_off": turns_access_off}  # fmt: skip
        write(
            disk, new, owner, new_at, machine.snapshot(),
            {
                "time": _time_text(wall_ms), "last_term": at.term, "last_entry": at.index,
                "zxid": machine.zxid, "sessions_ended": ended, "cluster_id": cluster_id.hex(),
                **said, **note,
            },
        )  # fmt: skip
        if former is not None:
            disk.rename(data_dir, former)
        disk.rename(new, data_dir)
        disk.sync_directory(str(Path(data_dir).absolute().parent))
        note_beginning({**said, **detail})
    return Begun(owner, machine.zxid, before, ended)


def what_to_do(config: Config) -> str:
    """Say how the members are started for the first time."""
    others = [each.member_id for each in config.cluster.members
              if each.member_id != config.member.member_id]  # fmt: skip
    if not others:
        return "start it"
    return (
        f"move the data directories of the other members ({', '.join(others)}) away, then"
        " start all: the first election needs each of them, with an empty directory"
    )


def time_now() -> str:
    """Return the time of day by this machine's clock, in UTC."""
    return _time_text(SystemClock().wall_ms())


def _time_text(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1_000, UTC).isoformat(timespec="milliseconds")


def continued(highest: int, wall_ms: int) -> int:
    """Return with which number a cluster continues that begins again from data with this highest.

    These data may begin again a second time, or those of another member may. So the number is that
    of the time of day: above all that was given out in between, also if these data had begun again
    not long before. A constant would bring the same numbers each time. Where the clock is behind
    the data, and for them alone, a constant and what the clock says are added.
    """
    of_time = wall_ms * _NUMBERS_PER_MS
    number = min(of_time, _NUMBER_OF_TIME_MAX)
    if number > max(highest, NUMBERS_SKIPPED):
        return number
    return highest + NUMBERS_SKIPPED + of_time % NUMBERS_SKIPPED


def begin_again(
    replica: MachineReplica, at: Position, wall_ms: int, *, by: str, reason: str
) -> tuple[Position, int]:
    """Skip numbers and end all sessions in the state after ``at``.

    Returns:
        After which entry the state is from now on, and how many sessions were open. Indexes of the
        log are skipped, too: a client may name a later one than is in these data, to say that it
        made no request before.

    The last entries of the data may have zxids that others gave out as well, for something else. So
    a contender that holds or waits in this state must never be granted under such a zxid: its
    fencing token would come twice. Nobody is asked and nobody is answered meanwhile, so what the
    commands grant in between is known to nobody.
    """
    machine = replica.machine
    at = Position(continued(at.index, wall_ms), at.term)
    zxid, sequence = machine.zxid, machine.highest_sequence
    machine.continue_from(at.index, continued(zxid, wall_ms), continued(sequence, wall_ms))
    why = f"the cluster was begun again by {by}: {reason}"[:REASON_CHARACTERS_MAX]
    still_open = [each.session_id for each in machine.sessions()]
    revoked = machine.revoked_sessions(machine.limits.sessions_max)
    ends: list[Operation] = [CloseSession(each, failure=why) for each in (*still_open, *revoked)]
    for each in machine.leaving_sessions():
        ends.append(FinishSession(each, max(1, machine.ephemeral_count(each))))
    for end in ends:
        replica.apply(at.index, at.term, encode_command(Command(end, wall_ms, caller=MEMBER)))
    assert not machine.session_count, "all sessions have ended"
    return at, len(still_open)


@contextmanager
def _audited(config: Config) -> Iterator[Callable[[dict[str, object]], None]]:
    """Yield what notes the recovery in the audit log; it is opened before anything is changed."""
    clock = SystemClock()
    audit = open_audit(config, clock)
    if audit is None:
        yield lambda _detail: None
        return
    audit.start()
    try:
        yield lambda detail: audit.note(
            AuditEvent(
                event="cluster.begun_again",
                source=Source.MEMBER,
                time_ms=clock.wall_ms(),
                verb="admin",
                resource="@members",
                detail=detail,
            )
        )
    finally:
        audit.stop()


@contextmanager
def _held(config: Config) -> Iterator[KeptData]:
    data = HeldData(OsDisk(), config.member.data_dir.rstrip("/"))
    try:
        expected = Owner(config.cluster.name, config.member.member_id)
        found = data.owner
        if str(found) != str(expected):
            raise StorageError(
                f"{data.data_dir}: expected the data of {expected}, found those of {found}",
                path=data.data_dir,
            )
        machine = StateMachine()
        at = data.replay(MachineReplica(machine))
        yield KeptData(data.data_dir, found, data.has_vote, data.differs, data.term, at, machine)
    finally:
        data.close()


def _free_name(name: str) -> str:
    numbers = (f"{name}-{number}" for number in range(1, 1_000))
    return next(each for each in numbers if not Path(each).exists())
