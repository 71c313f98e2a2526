"""The same name, and another znode: what a recipe has read is deleted and made again before it
writes.

An engine in memory that, before one command of a run, deletes a znode which that command names and
makes it again, with all below it: under the same path, with the same data, version, mode and owner.
Or it ends the grant under which the command is to be done, and another session is granted. Nothing
but the czxid tells the new one from the old one, so a command that goes by what was read before
must do nothing.

Each command of a run is tried with each znode that it names, one at a time: of two that are named,
one may be guarded and the other not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from coordinator.raft.engine import Applied
from coordinator.raft.loopback import LoopbackEngine
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import (
    Check,
    Command,
    Create,
    CreateMode,
    Delete,
    Guarded,
    Multi,
    Operation,
    Revoke,
    SetData,
)
from coordinator.state.locks.contender import QUEUE_ROOTS
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import GuardedDone, Outcome

GRANT = "the grant of "
"""Before the directory of a queue: the grant is ended that the command depends on."""


@dataclass(frozen=True)
class Named:
    """A znode that a command names, and what the command does to it."""

    number: int
    path: str
    verbs: tuple[str, ...]


class RemakingEngine(LoopbackEngine):
    """Notes every command that names a znode which is there; before one of them it makes that znode
    again, if it is told which (``at``)."""

    def __init__(self, at: Named | None = None) -> None:
        super().__init__()
        self.named: list[Named] = []
        self.was_remade = False
        self.went_through = False
        """The command took effect on the znode that was made again."""
        self._at = at
        self._commands = 0

    @property
    def machine(self) -> StateMachine:
        machine: StateMachine = self._replica.machine  # type: ignore[union-attr]
        return machine

    async def propose(self, command: bytes, *, is_patient: bool = False) -> Applied:
        decoded = decode_command(command)
        self._commands += 1
        number, at = self._commands, self._at
        verbs = self._verbs(decoded)
        self.named += [Named(number, path, tuple(each)) for path, each in verbs.items()]
        if at is None or at.number != number or at.path not in verbs:
            return await super().propose(command, is_patient=is_patient)
        self.was_remade = self._remake(at.path, decoded)
        applied = await super().propose(command, is_patient=is_patient)
        self.went_through = self.was_remade and _took_effect(applied.result)
        return applied

    def _verbs(self, command: Command) -> dict[str, list[str]]:
        """Return what the command does to which znode that is there, and on which grant it
        depends."""
        found: dict[str, list[str]] = {}
        if command.request is None:
            return found  # of the member itself: it names what it has just looked at, by its zxids
        for each in _steps(command.operation):
            is_named = isinstance(each, SetData | Delete | Check)
            if is_named and self.machine.get(each.path) is not None:
                verb = type(each).__name__ + " if held" * bool(command.if_held)
                found.setdefault(each.path, []).append(verb)
        for condition in command.if_held:
            found[GRANT + condition.directory] = ["if_held"]
        return found

    # --- made again

    def _remake(self, path: str, command: Command) -> bool:
        if path.startswith(GRANT):
            return self._end_grant(path.removeprefix(GRANT), command)
        machine = self.machine
        below = [path, *_all_below(machine, path)]
        before = {each: machine.get(each) for each in below}
        self._do(Delete(path, is_recursive=True))
        for each in below:
            data, stat = before[each]  # type: ignore[misc]
            make = Create(
                each, data, mode=_plain(stat.mode), session_id=stat.ephemeral_owner,
                ttl_ms=stat.ttl_ms,
            )  # fmt: skip
            if self._do(make).refusal is not None:
                assert each.startswith(QUEUE_ROOTS), each
                return False  # a place in a queue, with others behind it: it cannot come again
            for _ in range(stat.version):
                self._do(SetData(each, data))
        found = machine.get(path)
        assert found is not None
        assert found[1].version == before[path][1].version  # type: ignore[index]
        return True

    def _end_grant(self, directory: str, command: Command) -> bool:
        tokens = [each.fencing_token for each in command.if_held if each.directory == directory]
        for each in self.machine.locks.holders(directory):
            if each.czxid in tokens:
                revoke = Revoke(each.path, each.czxid, by="ops", reason="to see")
                return self._do(revoke).refusal is None
        return False

    def _do(self, operation: Operation) -> Outcome:
        assert self._replica is not None
        self._index += 1
        command = Command(operation, wall_ms=1_700_000_000_000)
        outcome: Outcome = self._replica.apply(self._index, 1, encode_command(command))
        return outcome


def _plain(mode: str) -> CreateMode:
    """Return the mode that makes the same under a name that is given."""
    return CreateMode(mode.removesuffix("_sequential"))


def _all_below(machine: StateMachine, path: str) -> Iterator[str]:
    """Yield the paths below ``path``, each after its parent, in the order in which they came."""
    names = [f"{path}/{name}" for name in machine.children(path) or ()]
    for each in sorted(names, key=lambda one: machine.get(one)[1].czxid):  # type: ignore[index]
        yield each
        yield from _all_below(machine, each)


def _steps(operation: Any) -> tuple[Any, ...]:
    if isinstance(operation, Guarded):
        return (*operation.conditions, *operation.then)
    return operation.operations if isinstance(operation, Multi) else (operation,)


def _took_effect(outcome: Outcome) -> bool:
    if outcome.refusal is not None or outcome.is_repeat:
        return False
    if isinstance(outcome.result, GuardedDone):
        return outcome.result.is_then
    return bool(outcome.events)
