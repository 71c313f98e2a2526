"""What a contender is: the names, paths and numbers shared by locks and elections. Pure.

``/locks/<name>/lock-0000000042``: an ephemeral sequential znode of the session that contends. Its
``czxid`` is the fencing token (an election calls it the epoch), and ``"42-<czxid>"`` the grant id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from coordinator.errors import BadArgumentsError, NotOwnerError
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Stat
from recipes.contention import holder, sequence_of, sorted_contenders, standing

_NAME_CHARS_MAX = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_GRANT_ID = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_DOTS = {".": "%2E", "..": "%2E%2E"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Where a kind of queue lives. ``word`` is what messages and metrics call it."""

    word: str
    root: str
    prefix: str

    def directory(self, name: str) -> str:
        """Return the path of the queue ``name``: one segment, whatever is in the name."""
        return f"{self.root}/{self.segment(name)}"

    def segment(self, name: str) -> str:
        if not 1 <= len(name) <= _NAME_CHARS_MAX or _CONTROL.search(name):
            raise BadArgumentsError(
                f"expected the name of a {self.word} to be 1 to {_NAME_CHARS_MAX} characters "
                f"without control characters, found {name[:60]!a}"
            )
        return _DOTS.get(name) or quote(name, safe="")

    def name_of(self, segment: str) -> str:
        """Return the name whose queue is called ``segment``."""
        return unquote(segment)

    def contender_path(self, name: str, grant_id: str) -> tuple[str, int]:
        """Return path and czxid of the contender that ``grant_id`` names."""
        match = _GRANT_ID.fullmatch(grant_id)
        if match is None:
            raise BadArgumentsError(
                f"expected a grant id such as '42-1337', found {grant_id[:60]!a}"
            )
        number, czxid = int(match.group(1)), int(match.group(2))
        return f"{self.directory(name)}/{self.prefix}{number:010d}", czxid


LOCKS = Recipe("lock", "/locks", "lock-")
ELECTIONS = Recipe("election", "/elections", "candidate-")


@dataclass(frozen=True, slots=True)
class Contender:
    """One znode in a queue, as of ``zxid``."""

    path: str
    directory: str
    name: str
    number: int
    czxid: int
    session_id: str
    data: bytes
    ctime_ms: int
    zxid: int

    @property
    def grant_id(self) -> str:
        return f"{self.number}-{self.czxid}"

    @classmethod
    def of(cls, path: str, data: bytes, stat: Stat, zxid: int) -> Contender:
        directory, _, name = path.rpartition("/")
        return cls(
            path=path,
            directory=directory,
            name=name,
            number=sequence_of(name) or 0,
            czxid=stat.czxid,
            session_id=stat.ephemeral_owner or "",
            data=data,
            ctime_ms=stat.ctime_ms,
            zxid=zxid,
        )

    def as_of(self, zxid: int) -> Contender:
        return replace(self, zxid=zxid)


def contenders_of(machine: StateMachine, directory: str) -> list[Contender]:
    """Return everybody in the queue, the holder first."""
    names = sorted_contenders(machine.children(directory) or ())
    return [each for name in names if (each := find(machine, directory, name)) is not None]


def lowest_of(machine: StateMachine, directory: str) -> Contender | None:
    """Return who holds, None when nobody contends."""
    name = holder(machine.children(directory) or ())
    return None if name is None else find(machine, directory, name)


def require_standing(machine: StateMachine, recipe: Recipe, path: str, czxid: int) -> Contender:
    """Return the contender if it holds in the state applied here; NotOwnerError otherwise.

    Whoever holds goes on holding until its znode is deleted, because numbers only grow: a command
    that checks the znode's ``czxid`` therefore checks the holding itself, atomically.
    """
    directory, _, name = path.rpartition("/")
    found = machine.get(path)
    if found is None or found[1].czxid != czxid:
        raise NotOwnerError(f"{path} of zxid {czxid} does not contend (any more)", path=path)
    if not standing(machine.children(directory) or (), name).is_holder:
        raise NotOwnerError(f"{path} is in the queue and does not hold yet", path=path)
    return Contender.of(path, found[0], found[1], machine.zxid)


def find(machine: StateMachine, directory: str, name: str) -> Contender | None:
    """Return the contender of this name, None when it is not there."""
    path = f"{directory}/{name}"
    found = machine.get(path)
    return None if found is None else Contender.of(path, found[0], found[1], machine.zxid)
