"""Times, numbers and clients in words, for people who read them at three in the morning. Pure.

What clients wrote is said as they wrote it: who shows it on a terminal escapes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

from coordinator.model.views import Candidate, Contender, Spread

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS


def lasting(ms: int) -> str:
    """Return a length of time in its two largest units: ``350 ms``, ``8.2 s``, ``2 h 5 min``."""
    if ms < 1_000:
        return f"{max(ms, 0)} ms"
    if ms < _MINUTE_MS:
        return f"{ms / 1000:.1f} s"
    for unit_ms, unit, part_ms, part in (
        (_DAY_MS, "d", _HOUR_MS, "h"),
        (_HOUR_MS, "h", _MINUTE_MS, "min"),
        (_MINUTE_MS, "min", 1_000, "s"),
    ):
        if ms >= unit_ms:
            rest = ms % unit_ms // part_ms
            return f"{ms // unit_ms} {unit}" + (f" {rest} {part}" if rest else "")
    raise AssertionError("a length of time has a unit")


def moment(wall_ms: int) -> str:
    """Return a wall time in UTC, to the second."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Named(Protocol):
    """A client as lists show it: one that holds, held or waits."""

    @property
    def label(self) -> str:
        """The label that the client gave."""

    @property
    def host(self) -> str:
        """The machine of the client."""

    @property
    def pid(self) -> int | None:
        """The process of the client, None where it did not say."""

    @property
    def owner(self) -> str:
        """Whom the client acts for, "" for itself."""

    @property
    def session_id(self) -> str:
        """The session of the client."""


def who(named: Named) -> str:
    """Return a holder by what it said of itself: label, host, process, task or thread."""
    facts = []
    if named.host:
        facts.append(f"host {named.host}")
    if named.pid is not None:
        facts.append(f"pid {named.pid}")
    if named.owner:
        facts.append(named.owner)
    session = f"session {named.session_id or 'unknown'}"
    name = session
    if named.label:
        name = f"'{named.label}'"
        facts.append(session)
    return f"{name} ({', '.join(facts)})" if facts else name


def in_short(holder: Contender | Candidate) -> str:
    """Return who holds, in a few words."""
    who = holder.label or f"session {holder.session_id}"
    if isinstance(holder, Candidate):
        return who
    where = f" on {holder.host}" if holder.host else ""
    return who + where + (f", pid {holder.pid}" if holder.pid is not None else "")


def counted(number: int, thing: str, things: str = "") -> str:
    """Return ``1 grant``, ``2 grants``."""
    return f"{number} {thing if number == 1 else things or thing + 's'}"


def spread(lengths: Spread | None) -> str:
    """Return in words how long waits or holds took."""
    if lengths is None:
        return "no time yet"
    return (
        f"{lasting(lengths.p50_ms)} (p50), {lasting(lengths.p95_ms)} (p95), "
        f"{lasting(lengths.p99_ms)} (p99)"
    )
