"""Owners that wait for each other: entering queues, and the cycle that a refusal names."""

from __future__ import annotations

from coordinator.state.commands import (
    Command,
    Enter,
    Kind,
    OpenSession,
    Operation,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered, Outcome

PREFIX = {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}

SESSIONS = ("s1", "s2")


def enter(
    owner: str,
    *names: str,
    kind: Kind = Kind.EXCLUSIVE,
    session_id: str = "s1",
    size: int | None = None,
    is_try: bool = False,
) -> Enter:
    directories = tuple(f"/locks/{name}" for name in names)
    return Enter(
        directories,
        prefix=PREFIX[kind],
        kind=kind,
        session_id=session_id,
        data=b"",
        owner=owner,
        is_try=is_try,
        size=size,
    )


class Locks:
    """A machine with two sessions."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.entry = 0
        for session_id in SESSIONS:
            self.apply(OpenSession(session_id, 10_000))

    def apply(self, operation: Operation) -> Outcome:
        self.entry += 1
        return self.machine.apply(Command(operation, self.entry), self.entry, 1)

    def enter(self, owner: str, *names: str, **wish: object) -> Outcome:
        return self.apply(enter(owner, *names, **wish))  # type: ignore[arg-type]

    def granted(self, owner: str, *names: str, **wish: object) -> tuple[str, int]:
        """Enter where that grants; return what names the contender."""
        outcome = self.enter(owner, *names, **wish)
        result = outcome.unwrap()
        assert isinstance(result, Entered)
        assert result.is_granted
        return result.contenders[0].path, result.contenders[0].stat.czxid

    def waiting(self, owner: str, *names: str, **wish: object) -> tuple[str, int]:
        """Enter where that waits; return what names the contender."""
        result = self.enter(owner, *names, **wish).unwrap()
        assert isinstance(result, Entered)
        assert not result.is_granted
        return result.contenders[0].path, result.contenders[0].stat.czxid


def cycle_of(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return who holds what and waits for what, in order."""
    assert outcome.refusal is not None
    assert outcome.refusal.code == "Deadlock"
    return [
        (each["owner"], each["holds"], each["waits_for"])
        for each in outcome.refusal.fields["cycle"]
    ]
