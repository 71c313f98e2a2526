"""Histories of locks drawn from the state: the k-th contender or grant there is now."""

from __future__ import annotations

import random

from coordinator.state.commands import (
    Command,
    Create,
    CreateMode,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    Kind,
    Multi,
    Note,
    Operation,
    Release,
    Reopen,
    Resize,
    Revoke,
    SetData,
)
from coordinator.state.limits import MachineLimits
from tests.state.drawn_history import TERM, Action, DrawnHistory

PREFIXES = {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}
DIRECTORIES = ("/locks/a", "/locks/b", "/locks/s", "/elections/a")
_KINDS = {
    "/locks/a": (Kind.EXCLUSIVE, Kind.SHARED, Kind.SHARED),
    "/locks/b": (Kind.EXCLUSIVE, Kind.EXCLUSIVE, Kind.SHARED),
    "/locks/s": (Kind.SLOT, Kind.SLOT, Kind.SLOT, Kind.EXCLUSIVE),
    "/elections/a": (Kind.EXCLUSIVE,),
}
_SEVERAL = (("/locks/a", "/locks/b"), ("/elections/a", "/locks/b"), ("/locks/a", "/locks/s"))


class LockHistory(DrawnHistory):
    """Three locks, an election, and a semaphore, for two or three sessions."""

    def weighted(self) -> list[tuple[Action, int]]:
        return [
            *super().weighted(), (self._enter, 26), (self._enter_several, 7), (self._release, 14),
            (self._release_again, 2), (self._downgrade, 5), (self._note, 6), (self._revoke, 5),
            (self._end_hold, 5), (self._reopen, 5), (self._resize, 7), (self._create_by_hand, 5),
            (self._delete_by_hand, 4), (self._delete_queue, 1), (self._two_by_hand, 2),
            (self._set_by_hand, 1),
        ]  # fmt: skip

    # --- operations

    def _enter(self) -> Enter:
        directory = self.chance.choice((*DIRECTORIES, "/locks/s"))
        return self._entry((directory,), self.chance.choice(_KINDS[directory]))

    def otherwise(self) -> Operation:
        return self._enter()

    def _enter_several(self) -> Enter:
        return self._entry(self.chance.choice(_SEVERAL), Kind.EXCLUSIVE)

    def _entry(self, directories: tuple[str, ...], kind: Kind) -> Enter:
        chance, session_id, owner = self.chance, self.session(), ""
        there = self.machine.locks.holders(directories[0])
        if there and there[0].session_id is not None and chance.randrange(3) == 0:
            session_id = there[0].session_id  # it holds twice, or waits for itself
        else:
            owner = chance.choice(["", "t1", "t2"])
        return Enter(
            directories,
            PREFIXES[kind],
            kind,
            session_id,
            chance.choice([b"", b"me"]),
            owner,
            chance.randrange(6) == 0,
            chance.choice([0, 1_000, 3_000]),
            chance.choice([0, 0, 2_000]),
            chance.choice([1, 2, 3]) if kind is Kind.SLOT else None,
        )

    def _release(self) -> Release | None:
        contender = self.pick(lambda each: each.is_holder)
        if contender is None:
            return None
        return Release(contender.path, contender.czxid, self.chance.randrange(4) == 0)

    def _release_again(self) -> Release | None:
        return Release(*self.chance.choice(self.gone[-4:])) if self.gone else None

    def _downgrade(self) -> Downgrade | None:
        is_noted = self.chance.randrange(2)  # rather one that has something to lose
        contender = self.pick(
            lambda each: (
                each.is_holder and each.kind is Kind.EXCLUSIVE and (not is_noted or bool(each.note))
            )
        )
        return None if contender is None else Downgrade(contender.path, contender.czxid)

    def _note(self) -> Note | None:
        contender = self.pick(lambda each: each.is_holder)
        note = self.chance.choice([b"", b"note"])
        return None if contender is None else Note(contender.path, contender.czxid, note)

    def _revoke(self) -> Revoke | None:
        contender = self.pick(lambda each: True)
        if contender is None:
            return None
        return Revoke(contender.path, contender.czxid, "ops", "stuck")

    def _end_hold(self) -> EndHold | None:
        contender = self.pick(lambda each: each.is_holder and each.max_hold_ms)
        return None if contender is None else EndHold(contender.path, contender.czxid, TERM)

    def _reopen(self) -> Reopen | None:
        closings = self.machine.locks.closings()
        if not closings:
            return None
        closing = self.chance.choice(closings)
        return Reopen(closing.path, closing.czxid, TERM)

    def _resize(self) -> Resize:
        sized = [each for each in DIRECTORIES if self.machine.locks.size(each) is not None]
        return Resize(self.chance.choice(sized or DIRECTORIES), self.chance.choice([1, 2, 3]))

    # --- by hand, over the tree

    def _create_by_hand(self) -> Create:
        """Create a contender, or what closes a queue, without the commands of locks."""
        chance, directory = self.chance, self.chance.choice(DIRECTORIES)
        prefix = chance.choice(["lock-", "read-", "slot-", "delay-", "x"])
        if prefix == "delay-" or chance.randrange(3) == 0:
            contenders = self.machine.locks.contenders(directory)
            number = (contenders[-1].number if contenders else 0) + chance.choice([0, 1, 2])
            path, mode = f"{directory}/{prefix}{number:010d}", CreateMode.EPHEMERAL
        else:
            path, mode = f"{directory}/{prefix}", CreateMode.EPHEMERAL_SEQUENTIAL
        return Create(path, b"", mode, self.session(), None, CreateMode.CONTAINER)

    def _delete_by_hand(self) -> Delete | None:
        children = [
            f"{directory}/{name}"
            for directory in DIRECTORIES
            for name in self.machine.children(directory) or ()
        ]
        return Delete(self.chance.choice(children)) if children else None

    def _delete_queue(self) -> Delete:
        return Delete(self.chance.choice(DIRECTORIES), is_recursive=True)

    def _two_by_hand(self) -> Multi | None:
        """Delete a contender and make another, or make two, in one command."""
        deleted = self._delete_by_hand()
        first = self._create_by_hand() if self.chance.randrange(2) or not deleted else deleted
        return Multi((first, self._create_by_hand()))

    def _set_by_hand(self) -> SetData | None:
        contender = self.pick(lambda each: True)
        return None if contender is None else SetData(contender.path, b"set")


def lock_history(chance: random.Random, limits: MachineLimits, count: int) -> list[Command]:
    """Return a history of ``count`` commands after those that open sessions."""
    drawn = LockHistory(chance, limits)
    for _ in range(count):
        drawn.draw()
    return drawn.commands
