"""Histories drawn from the state: each command is about what those before it have led to.

Blind draws of paths and tokens hardly ever meet what is there: hundreds of histories of them held
no successful release, and not one change of data. Here a command names the k-th znode, contender,
grant or session that is there now; one in eight is then spoiled in one field, so that refusals are
met as deep inside as they are made. What is drawn of is in ``lock_histories`` and
``znode_histories``.

``chance`` decides everything: a ``random.Random`` (cheap, the same for the same seed), or the one
of hypothesis, which can be shrunk.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from coordinator.model.access import NOBODY, Caller
from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    Abandon,
    CloseSession,
    Command,
    CreateMode,
    Enter,
    ExpireSession,
    FinishSession,
    HeldCondition,
    OpenSession,
    Operation,
    Reap,
    RequestId,
)
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.machine import StateMachine
from tests.state.values import changed, is_value, names_of

CLIENTS = ("c1", "c2")
TERM = 1

Action = Callable[[], Operation | None]
"""Draws an operation; None when there is nothing there to do it to."""
_O = TypeVar("_O")

_ODD: dict[str, tuple[Any, ...]] = {
    "path": ("/locks/a/read-0000000099", "/locks/a", "/", "locks/a", "/locks/a/x", "/a//b"),
    "directory": ("/locks/none", "/locks", "/locks/a/b", ""),
    "directories": ((), ("/locks",), ("/locks/b", "/locks/a"), ("/locks/a", "/locks/a")),
    "prefix": ("delay-", "", "a/", "x1", "x" * 33, "read-", "slot-", "lock-"),
    "session_id": ("s99", ""),
    "owner": ("o" * 129,),
    "data": (b"123456789",),
    "lock_delay_ms": (-1, 60_001),
    "max_hold_ms": (-1, 2**60),
    "ttl_ms": (0, 5),
    "size": (0, -1, 10_001),
    "note": (b"x" * 1_025,),
    "by": ("x" * 257,),
    "reason": ("x" * 513,),
    "failure": ("x" * 513,),
    "label": ("x" * 257,),
    "term": (2,),
    "timeout_ms": (9, 101),
    "client_id": ("nobody", "bad id", ""),
    "number": (0, -1, 99),
    "expected_version": (7,),
    "mode": (CreateMode.PERSISTENT, CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.TTL),
}
"""What one field of a good command may be replaced by; numbers of znodes are moved by one."""


class DrawnHistory:
    """A history in the making, and the machine that it has led to."""

    def __init__(self, chance: random.Random, limits: MachineLimits) -> None:
        self.machine = StateMachine(limits)
        self.commands: list[Command] = []
        self.chance = chance
        self.asked: list[Command] = []
        """Those that had a request number."""
        self.numbers: dict[str, int] = {}
        self.gone: list[tuple[str, int]] = []
        """Contenders that were there, by path and token."""
        self._session_count = 0
        self._actions: list[Action] = [
            each for each, weight in self.weighted() for _ in range(weight)
        ]
        for _ in range(2):
            self._add(Command(self.open_session(), 0))

    def weighted(self) -> list[tuple[Action, int]]:
        """Return what may be drawn, and how often."""
        return [
            (self.open_session, 3), (self.end_session, 5), (self.finish_session, 1),
            (self.abandon, 6), (self.reap, 2),
        ]  # fmt: skip

    def otherwise(self) -> Operation:
        """Draw an operation that can always be drawn."""
        return self.open_session()

    def draw(self) -> Command:
        """Draw one command more, apply it, and return it."""
        chance = self.chance
        if self.asked and chance.randrange(14) == 0:
            command = chance.choice(self.asked)  # the same request again
        else:
            is_lonely = not self.machine.session_count and chance.randrange(3)
            action = self.open_session if is_lonely else chance.choice(self._actions)
            if self.machine.leaving_sessions() and chance.randrange(5) == 0:
                action = self.finish_session
            operation = action() or self.otherwise()
            if chance.randrange(8) == 0:
                operation = self.spoil(operation)
            command = Command(
                operation,
                wall_ms=chance.randrange(2**20),
                request=self._request() if chance.randrange(3) == 0 else None,
                caller=self.caller_of(operation),
                if_held=(self._condition(),) if chance.randrange(10) == 0 else (),
            )
        return self._add(command)

    def _add(self, command: Command) -> Command:
        before = {each.path: each.czxid for each in self.contenders()}
        self.machine.apply(command, self.machine.applied_index + 1, TERM)
        after = {each.path for each in self.contenders()}
        self.gone += [(path, czxid) for path, czxid in before.items() if path not in after]
        self.commands.append(command)
        if command.request is not None:
            self.asked.append(command)
        return command

    # --- what is there now

    def contenders(self) -> list[ContenderRecord]:
        locks = self.machine.locks
        return [each for one in sorted(locks.directories()) for each in locks.contenders(one)]

    def pick(self, is_wanted: Callable[[ContenderRecord], object]) -> ContenderRecord | None:
        """Return one of the contenders, rather one that is wanted."""
        every = self.contenders()
        wanted = [each for each in every if is_wanted(each)]
        if wanted and self.chance.randrange(5):
            every = wanted
        return self.chance.choice(every) if every else None

    def session(self) -> str:
        return self.chance.choice([each.session_id for each in self.machine.sessions()] or ["s1"])

    # --- operations of any history

    def open_session(self) -> OpenSession:
        """Open one more; ids do not sort as they are opened."""
        self._session_count += 1
        letter = "srt"[self._session_count % 3] if self._session_count > 2 else "s"
        return OpenSession(f"{letter}{self._session_count}", 50)

    def end_session(self) -> Operation:
        """End one, rather one that holds something; by its client, by its own failure, or lost.

        Every second one that can is to go in pieces: the one that owns most.
        """
        contender = self.pick(lambda each: each.is_holder)
        session_id = contender.session_id if contender is not None else None
        owned = {
            each.session_id: len(self.machine.ephemerals_of(each.session_id))
            for each in self.machine.sessions()
        }
        at_once = int(max(owned.values(), default=0) > 1 and self.chance.randrange(2))
        if at_once:
            session_id = max(owned, key=lambda each: owned[each])
        if session_id is None:
            session_id = self.session()
        sort = self.chance.randrange(5)
        if sort < 2:
            return ExpireSession(
                session_id, term=TERM, silent_ms=self.chance.choice([0, 7]), at_once=at_once
            )
        return CloseSession(
            session_id, failure="the probe failed" if sort > 2 else "", at_once=at_once
        )

    def finish_session(self) -> FinishSession:
        """Go on with the end of a session that goes in pieces, or of one that does not."""
        leaving = self.machine.leaving_sessions()
        session_id = self.chance.choice(leaving or (self.session(),))
        return FinishSession(session_id, self.chance.choice([0, 1, 1, 2, 9]))

    def abandon(self) -> Abandon | None:
        """Abandon a request that was made, rather one that entered; or the next one."""
        chance = self.chance
        entered = [each for each in self.asked if isinstance(each.operation, Enter)]
        asked = entered if entered and chance.randrange(4) else self.asked
        if not asked:
            return None
        command = chance.choice(asked[-chance.choice([1, 3, 6]) :])
        assert command.request is not None
        request = command.request
        client_id, number, floor_index = request.client_id, request.number, request.floor_index
        if chance.randrange(6) == 0:
            number = self.numbers.get(client_id, 0) + 1
        directory = ""
        if isinstance(command.operation, Enter) and command.operation.directories:
            directory = chance.choice(["", command.operation.directories[0], "/locks/b"])
        return Abandon(
            client_id,
            number=number,
            floor_index=floor_index,
            directory=directory,
            spares_holder=chance.randrange(3) == 0,
        )

    def reap(self) -> Reap | None:
        idle = [each for path in self.machine.idle_paths() if (each := self.machine.idle(path))]
        if not idle:
            return None
        each = self.chance.choice(idle)
        return Reap(each.path, mzxid=each.mzxid, pzxid=each.pzxid, term=TERM)

    # --- around the operation

    def caller_of(self, _operation: Operation) -> Caller:
        """Draw who asks for an operation: nobody who is named, mostly."""
        return Caller("ops@example") if self.chance.randrange(8) == 0 else NOBODY

    def spoil(self, operation: _O) -> _O:
        """Change one field, so that everything else is still as it should be."""
        names = names_of(operation) if is_value(operation) else ()
        odd = [each for each in names if each in _ODD or each.endswith("zxid")]
        if not odd:
            return operation
        name = self.chance.choice(odd)
        if name.endswith("zxid"):
            other = self.pick(lambda each: True)
            value = getattr(operation, name)
            known = [0 if value is None else value + 1, 0 if other is None else other.czxid]
            found = self.chance.choice(known)
        else:
            found = self.chance.choice(_ODD[name])
        return changed(operation, **{name: found})

    def _request(self) -> RequestId:
        client_id = self.chance.choice(CLIENTS)
        if self.chance.randrange(4) == 0:
            client_id = self.session()  # bound to it
        number = self.numbers.get(client_id, 0) + self.chance.choice([1, 1, 1, 1, 2, 0])
        number = max(number, 1)
        self.numbers[client_id] = number
        return RequestId(client_id, number=number, floor_index=1_000)

    def _condition(self) -> HeldCondition:
        """Ask that somebody holds: mostly one who does, or did, or waits."""
        contender = self.pick(lambda each: each.is_holder)
        if contender is not None and self.chance.randrange(8):
            return HeldCondition(contender.directory, contender.czxid)
        if self.gone and self.chance.randrange(4):
            path, czxid = self.gone[-1]
            return HeldCondition(path.rpartition("/")[0], czxid)
        return HeldCondition(self.chance.choice(("/locks", "/locks/a")), 1)
