"""What the judgement keeps when a cluster begins again, and what it forgets with the cluster.

Everything that only the lost entries tell of is judged before they are forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from coordinator.node.recovery import continued
from coordinator.raft.rejoin.refounding import Position
from coordinator.state.commands import Create, SetData
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from tests.history.operations import Recorder
from tests.history.register import Absence, Register, State, Znode
from tests.simulation.clients import REGISTERS
from tests.simulation.properties import check_history, check_looked, check_told, done_by
from tests.simulation.record import HELD, BegunAgain

if TYPE_CHECKING:
    from tests.simulation.world import World


class Replayed(Protocol):
    """A command in the data of a member, and what it comes to."""

    index: int
    term: int
    payload: bytes
    outcome: Outcome


def go_on_from(
    world: World,
    replayed: Sequence[Replayed],
    machine: StateMachine,
    at: Position,
    wall_ms: int,
    *,
    may_lose: bool,
) -> None:
    """Go on judging from ``machine``, which is the state after the entry ``at`` of some member.

    ``replayed``: the commands behind its snapshot. Not ``may_lose``: they are the best data of all,
    and no disk is lost, so whatever was applied anywhere must be there.
    """
    record = world.record
    forked_at = _fork(world, replayed, at)
    last_index = record.log[-1].index if record.log else 0
    if forked_at < last_index and not may_lose:
        what = f"the best data end at entry {forked_at}, and {last_index} was applied"
        record.violate("acknowledged writes stay", what)
    zxid = max((each.outcome.zxid for each in record.log if each.index <= forked_at), default=0)
    told = [each for each in world.grants if each.zxid > zxid]
    looked = [each for each in world.looked if each.zxid > zxid]
    for promise, what in (*check_told(record.locks, told), *check_looked(record.locks, looked)):
        record.violate(promise, what)
    world.grants = [each for each in world.grants if each.zxid <= zxid]
    world.looked = [each for each in world.looked if each.zxid <= zxid]
    lost = record.cut_back(forked_at)
    record.trace.add("fault", f"{len(lost)} commands are lost behind entry {forked_at}")
    record.tally.lost += len(lost)
    kept = len(record.log)
    world.abandoned = [each for each in world.abandoned if each[2] <= kept]
    for each in replayed:
        if each.index > forked_at:
            part = record.parts_at(each.index)
            record.note_applied(HELD, each.index, part, each.term, each.payload, each.outcome)
    first_zxid = continued(machine.zxid, wall_ms)
    first_sequence = continued(machine.highest_sequence, wall_ms)
    total = len(record.log)
    again = BegunAgain(total, total - kept, zxid, first_zxid, first_sequence)
    record.begun_again.append(again)
    if lost:
        for client in world.clients:
            client.contending.doubt()
        _split_history(world, machine)


def _fork(world: World, replayed: Sequence[Replayed], at: Position) -> int:
    """Return the index of the last entry that the held data and the one log have in common."""
    record = world.record
    known = {(each.index, each.part): (each.term, each.payload) for each in record.log}
    forked_at, parts = at.index, dict.fromkeys((each.index for each in replayed), 0)
    for each in replayed:
        if known.get((each.index, parts[each.index])) != (each.term, each.payload):
            forked_at = each.index - 1
            break
        parts[each.index] += 1
    for entry in record.log:
        if entry.index in parts and entry.index <= forked_at and entry.part >= parts[entry.index]:
            what = f"the data have no {entry.index}.{entry.part}, and {at}"
            record.violate("one log", what)
    return forked_at


def _split_history(world: World, machine: StateMachine) -> None:
    """Judge what was told until now, and begin another history from the registers as they are.

    Who asked before and was not answered may still be heard, unless what it wrote is there.
    """
    record, before = world.record, world.recorder
    for promise, what in check_history(before.history()):
        record.violate(promise, what)
    there = {
        operation.data.decode("utf-8", "replace")
        for entry in record.log
        if entry.outcome.refusal is None and not entry.outcome.is_repeat
        for operation in done_by(entry)
        if isinstance(operation, Create | SetData)
    }
    world.recorder = Recorder()
    for operation in before.history():
        if operation.is_unknown and operation.input.get("value") not in there:
            asked = world.recorder.call(
                operation.client, operation.key, operation.kind, **operation.input
            )
            world.recorder.unknown(asked)
    world.registers = {path: Begun(_state(machine, path)) for path in REGISTERS}


class Begun(Register):
    """A register that was there before."""

    def __init__(self, state: State) -> None:
        object.__setattr__(self, "_state", state)

    def init(self) -> State:
        return self._state  # type: ignore[attr-defined, no-any-return]


def _state(machine: StateMachine, path: str) -> State:
    found = machine.get(path)
    if found is None:
        return Absence(machine.zxid)
    data, stat = found
    czxid, mzxid = stat.czxid, stat.mzxid
    return Znode(data.decode(), stat.version, czxid, czxid, mzxid, mzxid, machine.zxid)
