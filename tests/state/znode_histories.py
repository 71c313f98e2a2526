"""Histories of znodes drawn from the state: the k-th znode there is now, its version, its zxids."""

from __future__ import annotations

import random

from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    ANY_VERSION,
    Check,
    Command,
    Create,
    CreateMode,
    Delete,
    Guarded,
    Multi,
    Operation,
    Read,
    Release,
    SetData,
    ZnodeOperation,
)
from coordinator.state.outcomes import Stat
from tests.state.drawn_history import Action, DrawnHistory
from tests.state.locks.lock_histories import LockHistory

NAMES = ("a", "b", "c", "n-", "n-0000000001")
_MODES = (*CreateMode, CreateMode.EPHEMERAL, CreateMode.EPHEMERAL)
_PARENT_MODES = (None, CreateMode.CONTAINER, CreateMode.PERSISTENT)


class ZnodeHistory(DrawnHistory):
    """A small tree: znodes of every mode are created, changed, read, checked and deleted."""

    def weighted(self) -> list[tuple[Action, int]]:
        return [
            *super().weighted(), (self._create, 24), (self._set, 10), (self._delete, 8),
            (self._check, 4), (self._multi, 8), (self._guarded, 8), (self._release_znode, 2),
        ]  # fmt: skip

    def otherwise(self) -> Operation:
        return self._create()

    # --- what is there now

    def _paths(self) -> list[str]:
        found, at = ["/"], 0
        while at < len(found):
            path = found[at]
            found += [f"{path.rstrip('/')}/{name}" for name in self.machine.children(path) or ()]
            at += 1
        return found

    def _znode(self) -> tuple[str, Stat]:
        """Return one of the znodes, rather not the root."""
        paths = self._paths()
        path = self.chance.choice(paths[1:] or paths)
        stat = self.machine.stat(path)
        assert stat is not None
        return path, stat

    def _version(self, stat: Stat) -> int:
        return self.chance.choice([ANY_VERSION, stat.version, stat.version, stat.version + 1])

    # --- operations

    def _create(self) -> Create:
        chance = self.chance
        parent = chance.choice(self._paths())
        path = f"{parent.rstrip('/')}/{chance.choice(NAMES)}"
        if chance.randrange(6) == 0:
            path += f"/{chance.choice(NAMES)}"
        mode = chance.choice(_MODES)
        return Create(
            path,
            data=chance.choice([b"", b"data"]),
            mode=mode,
            session_id=self.session() if mode.is_ephemeral else None,
            ttl_ms=chance.choice([1, 9]) if mode.is_ttl else None,
            parents=chance.choice(_PARENT_MODES),
        )

    def _set(self) -> SetData:
        path, stat = self._znode()
        return SetData(
            path,
            data=self.chance.choice([b"", b"x", b"12345678"]),
            expected_version=self._version(stat),
        )

    def _delete(self) -> Delete:
        path, stat = self._znode()
        czxid = self.chance.choice([None, None, stat.czxid, stat.czxid + 1])
        return Delete(
            path,
            expected_version=self._version(stat),
            expected_czxid=czxid,
            is_recursive=self.chance.randrange(3) == 0,
        )

    def _release_znode(self) -> Release:
        path, stat = self._znode()
        return Release(path, stat.czxid)

    def _check(self) -> Check:
        """Ask for what is so; that one thing is not so is left to the spoiling."""
        chance, (path, stat) = self.chance, self._znode()
        if chance.randrange(5) == 0:
            return Check(f"{path.rstrip('/')}/none", exists=False)
        return Check(
            path,
            exists=chance.choice([None, True]),
            expected_version=chance.choice([ANY_VERSION, stat.version]),
            expected_czxid=chance.choice([None, stat.czxid]),
            has_children=chance.choice([None, stat.num_children > 0]),
            expected_owner=chance.choice([None, stat.ephemeral_owner]),
        )

    def _branch(self) -> tuple[ZnodeOperation, ...]:
        """Draw operations that may go together; one in four ends with one that never does."""
        drawn: list[ZnodeOperation] = []
        for _ in range(self.chance.randrange(4)):
            sort = self.chance.randrange(9)
            if sort < 4:
                drawn.append(self._create())
            elif sort < 8:
                drawn.append((self._set, self._delete, self._check, self._check)[sort - 4]())
            else:
                drawn.append(Read(self._znode()[0]))
        if self.chance.randrange(4) == 0:
            drawn.append(Check("/never"))
        return tuple(drawn)

    def _multi(self) -> Multi:
        return Multi(self._branch())

    def _guarded(self) -> Guarded:
        conditions = [self._check() for _ in range(self.chance.randrange(3))]
        if conditions and self.chance.randrange(3) == 0:
            conditions[0] = self.spoil(conditions[0])
        return Guarded(tuple(conditions), then=self._branch(), otherwise=self._branch())


class MixedHistory(LockHistory, ZnodeHistory):
    """Locks and znodes beside each other."""


def znode_history(chance: random.Random, limits: MachineLimits, count: int) -> list[Command]:
    """Return a history of ``count`` commands on znodes after those that open sessions."""
    return _drawn(ZnodeHistory(chance, limits), count)


def mixed_history(chance: random.Random, limits: MachineLimits, count: int) -> list[Command]:
    """Return a history of ``count`` commands of every kind."""
    return _drawn(MixedHistory(chance, limits), count)


def _drawn(history: DrawnHistory, count: int) -> list[Command]:
    for _ in range(count):
        history.draw()
    return history.commands
