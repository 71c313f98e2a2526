"""What clients were told and must be able to rely on; judged at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.wire.messages.watches import Change


@dataclass
class Watching:
    """What one stream was asked for and what it told."""

    who: str
    selectors: tuple[str, ...]
    kind: str
    start_zxid: int
    changes: list[Change] = field(default_factory=list)
    told_zxid: int = 0
    """Everything up to here has been told, the stream says."""


@dataclass(frozen=True, slots=True)
class Told:
    """A grant that a client was told of."""

    who: str
    room: str
    name: str
    grant_id: str
    token: int
    session_id: str
    zxid: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Written:
    """A write that was acknowledged: the change at ``zxid`` must be the one asked for."""

    who: str
    path: str
    value: bytes
    zxid: int
