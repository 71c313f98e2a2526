"""Contenders: the names, paths and numbers shared by locks and elections. Pure.

``/locks/<name>/lock-0000000042``: an ephemeral sequential znode of the session that contends. Its
``czxid`` is the fencing token (an election calls it the epoch), and ``"42-<czxid>"`` the grant id;
``"read-42-<czxid>"`` for a shared one (``read-0000000042``), ``"slot-..."`` for a semaphore's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from msgspec import Struct

from coordinator.errors import BadArgumentsError
from coordinator.model.names import refuse_path
from coordinator.state.commands import EXCLUSIVE, Kind
from coordinator.state.locks.contender import ContenderRecord, number_of
from coordinator.state.machine import StateMachine
from coordinator.state.paths import SEQUENCE_DIGITS
from coordinator.state.sessions import SessionRecord

_NAME_CHARS_MAX: Final = 200
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NUMBER: Final = r"(0|[1-9]\d{0,18})"  # written in one way only: an id is a name
_GRANT_ID: Final = re.compile(rf"((?:read-|slot-)?){_NUMBER}-{_NUMBER}", re.ASCII)
_MARKED: Final = ("read-", "slot-")
"""The prefixes of names that a grant id repeats; it leaves out every other one."""
SHOWN_MAX: Final = 5_000
"""How many holders, and how many waiters, are shown when a queue is looked at."""
OF_SESSION_MAX: Final = 2_000
"""When those of one session are: finding their places costs more."""
_DOTS: Final = {".": "%2E", "..": "%2E%2E"}


@lru_cache(maxsize=4_096)
def _quoted(name: str) -> str:
    return quote(name, safe="")


@dataclass(frozen=True, slots=True)
class Recipe:
    """Where a kind of queue lives. ``word`` is what messages and metrics call it."""

    word: str
    root: str
    prefixes: Mapping[Kind, str] = field(hash=False)

    def directory(self, name: str) -> str:
        """Return the path of the queue ``name``: one segment, whatever is in the name.

        Raises:
            BadArgumentsError: it begins with a slash, or is no segment.
        """
        refuse_path(name, f"name of a {self.word}")
        return f"{self.root}/{self.segment(name)}"

    def directories(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the queues ``names`` in the one order in which everybody takes several."""
        directories = [self.directory(name) for name in names]
        if len(directories) == 1:
            return (directories[0],)
        directories.sort()
        for one, other in pairwise(directories):
            if one == other:
                name = self.name_of(one.rpartition("/")[2])
                raise BadArgumentsError(f"expected each {self.word} once, found {name!r} twice")
        return tuple(directories)

    def segment(self, name: str) -> str:
        """Return the segment of a path that is made from ``name``.

        Raises:
            BadArgumentsError: it is empty, too long or has control characters.
        """
        if not 1 <= len(name) <= _NAME_CHARS_MAX or _CONTROL.search(name):
            raise BadArgumentsError(
                f"expected the name of a {self.word} to be 1 to {_NAME_CHARS_MAX} characters "
                f"without control characters, found {name[:60]!a}"
            )
        return _DOTS.get(name) or _quoted(name)

    def name_of(self, segment: str) -> str:
        """Return the name whose queue is called ``segment``."""
        return unquote(segment)

    def name_at(self, path: str) -> str:
        """Return the name of the queue that ``path`` is, or belongs to."""
        segment = path[len(self.root) + 1 :].partition("/")[0]
        return unquote(segment) if "%" in segment else segment

    def contender_path(self, name: str, grant_id: str) -> tuple[str, int]:
        """Return path and czxid of the contender that ``grant_id`` names."""
        match = _GRANT_ID.fullmatch(grant_id)
        if match is None:
            raise BadArgumentsError(
                f"expected a grant id such as '42-1337', found {grant_id[:60]!a}"
            )
        prefix, number, czxid = match.groups()
        prefix = prefix or self.prefixes[EXCLUSIVE]
        return f"{self.directory(name)}/{prefix}{number.zfill(SEQUENCE_DIGITS)}", int(czxid)


LOCKS: Final = Recipe(
    "lock", "/locks", {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}
)
ELECTIONS: Final = Recipe("election", "/elections", {Kind.EXCLUSIVE: "candidate-"})


def recipe_at(path: str) -> Recipe:
    """Return the recipe of the queue that ``path`` is, or belongs to."""
    return ELECTIONS if path.startswith(ELECTIONS.root + "/") else LOCKS


def grant_id_of(path: str, czxid: int) -> str:
    """Return the grant id of the contender ``path`` of this czxid."""
    start = path.rfind("/") + 1
    prefix = path[start : start + 5] if path.startswith(_MARKED, start) else ""
    return f"{prefix}{number_of(path[start:]) or 0}-{czxid}"


class QueuedContender(Struct, frozen=True):
    """One place in a queue: what is recorded of it, and its znode's data, as of ``zxid``."""

    recorded: ContenderRecord
    data: bytes
    zxid: int

    @property
    def path(self) -> str:
        """The path of its znode."""
        return self.recorded.path

    @property
    def directory(self) -> str:
        """The path of its queue."""
        return self.recorded.directory

    @property
    def czxid(self) -> int:
        """The zxid of its entering: its fencing token once it holds."""
        return self.recorded.czxid

    @property
    def session_id(self) -> str:
        """The session that it ends with, "" if there is none."""
        return self.recorded.session_id

    @property
    def grant_id(self) -> str:
        """The name of its grant, before and after it holds."""
        return grant_id_of(self.path, self.czxid)


Captured = tuple[int, ContenderRecord, bytes | None, SessionRecord | None]
"""A contender as recorded, behind its place in the queue; its data; its session."""


def find(machine: StateMachine, path: str) -> QueuedContender | None:
    """Return the contender ``path``, None when it is not there."""
    recorded = machine.locks.record(path)
    return None if recorded is None else there(machine, recorded)


class CapturedQueue(NamedTuple):
    """A queue as it was at ``zxid``: the first holders and waiters, as many as are asked for, in
    its order, and how many there were of each."""

    zxid: int
    holders: list[Captured]
    waiting: list[Captured]
    holder_count: int
    waiting_count: int


def captured(
    machine: StateMachine,
    directory: str,
    session_id: str | None = None,
    shown_max: int = SHOWN_MAX,
) -> CapturedQueue:
    """Return what is shown of a queue now, or of one session's contenders in it.

    It is one step, so it takes some only, and does not yet make their views.
    """
    locks = machine.locks
    held = locks.holder_count(directory)
    if session_id is None:
        holders = list(locks.contenders(directory, min(held, shown_max)))
        waiting = list(enumerate(locks.contenders(directory, shown_max, start=held), held))
    else:
        prefix = f"{directory}/"
        paths = [path for path in machine.ephemerals_of(session_id) if path.startswith(prefix)]
        found = [each for each in map(locks.record, paths[:OF_SESSION_MAX]) if each is not None]
        holders = [each for each in found if each.is_holder]
        behind = [each for each in found if not each.is_holder]
        waiting = [(locks.standing(each.path).position, each) for each in behind]
    return CapturedQueue(
        machine.zxid,
        [_captured(machine, 0, each) for each in holders],
        [_captured(machine, position, each) for position, each in waiting],
        held,
        locks.length(directory) - held,
    )


def _captured(machine: StateMachine, position: int, contender: ContenderRecord) -> Captured:
    session = machine.session(contender.session_id)
    return position, contender, machine.data(contender.path), session


def queued(place: Captured, zxid: int) -> tuple[QueuedContender, int]:
    """Return a captured contender, and its position: 0 if it holds."""
    position, recorded, data, _ = place
    assert data is not None, "what is recorded is in the tree"
    shown = 0 if recorded.is_holder else max(position, 1)
    return QueuedContender(recorded, data, zxid), shown


def first_holder(machine: StateMachine, directory: str) -> QueuedContender | None:
    """Return the holder, the first of several; None without one."""
    holder = machine.locks.first_holder(directory)
    return None if holder is None else there(machine, holder)


def there(machine: StateMachine, recorded: ContenderRecord) -> QueuedContender:
    """Return the contender of this record, which is in the state now."""
    data = machine.data(recorded.path)
    assert data is not None, "what is recorded is in the tree"
    return QueuedContender(recorded, data, machine.zxid)
