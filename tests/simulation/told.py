"""What clients were told and must be able to rely on; judged at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from coordinator.model.events import Change
from coordinator.model.grants import GrantReply
from coordinator.model.views import LockView


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
    """A grant that a client was told of: one of a lock, also when it was had with others."""

    who: str
    directory: str
    path: str
    token: int
    kind: str
    zxid: int
    previous: tuple[int, str, bytes, int] | None = None
    """Token, end, note and last zxid of the grant before; nothing is said to an elected one."""

    @classmethod
    def each(cls, who: str, grant: GrantReply) -> tuple[Told, ...]:
        """Return what is told with ``grant``, for each of its locks."""
        return tuple(
            cls(
                who,
                one.path.rpartition("/")[0],
                one.path,
                one.fencing_token,
                one.kind,
                one.zxid,
                None if one.previous is None else _previous(one.previous),
            )
            for one in grant.grants or (grant,)
        )


def _previous(previous: Any) -> tuple[int, str, bytes, int]:
    return previous.fencing_token, previous.how, previous.note, previous.ended_zxid


@dataclass(frozen=True, slots=True)
class Looked:
    """What somebody who looked at a lock was shown: the tokens of those who hold and wait."""

    who: str
    directory: str
    zxid: int
    holders: tuple[int, ...]

    @classmethod
    def of(cls, who: str, view: LockView) -> Looked:
        tokens = tuple(each.fencing_token for each in view.holders)
        return cls(who, f"/locks/{view.lock}", view.zxid, tokens)


@dataclass(frozen=True, slots=True)
class Written:
    """A write that was acknowledged: the change at ``zxid`` must be the one asked for."""

    who: str
    path: str
    value: bytes
    zxid: int
