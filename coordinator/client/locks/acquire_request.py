"""The request of a contender: who asks, in whose name, for what kind of hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AcquireRequest:
    """What a contender asks for; each field has the name, unit and range of docs/http-locks.md.

    Args:
        label, host, pid, trace_id: who contends, for people to see.
        value: what an election publishes when won; bytes. Of the fields below an election has none.
        kind: ``exclusive``, ``shared`` or ``slot``.
        owner: distinguishes the owners of one session for the deadlock detection; "" is an owner
            of its own.
        size: how many slots a semaphore has that does not exist yet.
        lock_delay_ms: how long nobody is granted the lock after this grant was lost; 0 to 60,000.
        max_hold_ms: when the grant ends by itself; 0 for never.
        when_unsure, purpose, guard: recorded with the grant, for people.
    """

    label: str = ""
    host: str = ""
    pid: int | None = None
    trace_id: str = ""
    value: bytes | None = None
    kind: str = "exclusive"
    owner: str = ""
    size: int | None = None
    lock_delay_ms: int = 0
    max_hold_ms: int = 0
    when_unsure: str = ""
    purpose: str = ""
    guard: str = ""
