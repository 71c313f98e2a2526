"""Histories of locks drawn from the state: the k-th contender or grant there is now."""

from __future__ import annotations

import random

from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    ANY_VERSION,
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExtendHold,
    FinishGrants,
    Kind,
    Multi,
    Note,
    Operation,
    Release,
    Reopen,
    Resize,
    Revoke,
    SetData,
    SetLimits,
)
from tests.state.drawn_history import TERM, Action, DrawnHistory

PREFIXES = {Kind.EXCLUSIVE: "lock-", Kind.SHARED: "read-", Kind.SLOT: "slot-"}
DIRECTORIES = ("/locks/a", "/locks/b", "/locks/s", "/elections/a")
_KINDS = {
    "/locks/a": (Kind.EXCLUSIVE, Kind.SHARED, Kind.SHARED),
    "/locks/b": (Kind.EXCLUSIVE, Kind.EXCLUSIVE, Kind.SHARED),
    "/locks/s": (Kind.SLOT, Kind.SLOT, Kind.SLOT, Kind.EXCLUSIVE),
    "/elections/a": (Kind.EXCLUSIVE,),
}
GRANTS_AT_ONCE = (1, 1, 1, 2, MachineLimits().grants_per_command_max)
"""How much one command may grant; the last stands for no bound."""
_SEVERAL = (("/locks/a", "/locks/b"), ("/elections/a", "/locks/b"), ("/locks/a", "/locks/s"))


class LockHistory(DrawnHistory):
    """Three locks, an election, and a semaphore, for two or three sessions.

    In most of them what one command grants is bounded, so that it is gone on with by others.
    """

    def __init__(self, chance: random.Random, limits: MachineLimits) -> None:
        super().__init__(chance, limits)
        self._add(Command(self._limit_grants(), 0))

    def weighted(self) -> list[tuple[Action, int]]:
        return [
            *super().weighted(), (self._enter, 26), (self._enter_several, 7), (self._release, 14),
            (self._release_again, 2), (self._downgrade, 5), (self._note, 6), (self._revoke, 5),
            (self._end_hold, 5), (self._extend_hold, 5), (self._reopen, 5),
            (self._resize, 7), (self._create_by_hand, 5),
            (self._delete_by_hand, 4), (self._delete_queue, 1), (self._two_by_hand, 2),
            (self._set_by_hand, 1), (self._finish_grants, 1), (self._limit_grants, 1),
            (self._enter_beside, 12), (self._make_way, 6),
        ]  # fmt: skip

    def draw(self) -> Command:
        """Draw one command more; one that goes on with grants as soon as some are left, mostly."""
        if self.machine.locks.has_ungranted and self.chance.randrange(4) == 0:
            return self._add(Command(self._finish_grants(), self.chance.randrange(2**20)))
        together = self.chance.randrange(6)
        crowd = (
            self._enter_beside() if together < 2 else self._make_way() if together == 2 else None
        )
        if crowd is not None:
            return self._add(Command(crowd, self.chance.randrange(2**20)))
        return super().draw()

    # --- operations

    def _enter(self) -> Enter:
        directory = self.chance.choice((*DIRECTORIES, "/locks/s"))
        return self._entry((directory,), self.chance.choice(_KINDS[directory]))

    def otherwise(self) -> Operation:
        return self._enter()

    def _enter_beside(self) -> Enter | None:
        """Wait behind some that wait, so that all of them can be granted together."""
        found = []
        for directory in DIRECTORIES:
            contenders = self.machine.locks.contenders(directory)
            waiting = [each for each in contenders if not each.is_holder]
            if waiting and {each.kind for each in waiting} == {Kind.SHARED}:
                found.append(directory)
        return self._entry((self.chance.choice(found),), Kind.SHARED) if found else None

    def _make_way(self) -> Operation | None:
        """Let go whom several wait for that can hold together: a holder, or all of a session."""
        found: list[Operation] = []
        blocked: dict[str, int] = {}
        for directory in DIRECTORIES:
            contenders = self.machine.locks.contenders(directory)
            first, kinds = contenders[:1], {each.kind for each in contenders[1:3]}
            if len(contenders) < 2 or not first[0].is_holder or contenders[1].is_holder:
                continue
            if len(contenders) > 2 and len(kinds) == 1 and Kind.EXCLUSIVE not in kinds:
                found += [Release(first[0].path, first[0].czxid), Delete(first[0].path)]
            if first[0].session_id is not None:
                blocked[first[0].session_id] = blocked.get(first[0].session_id, 0) + 1
        found += [CloseSession(each) for each, count in blocked.items() if count > 1]
        return self.chance.choice(found) if found else None

    def _enter_several(self) -> Enter:
        return self._entry(self.chance.choice(_SEVERAL), Kind.EXCLUSIVE)

    def _entry(self, directories: tuple[str, ...], kind: Kind) -> Enter:
        chance, session_id, owner = self.chance, self.session(), ""
        there = self.machine.locks.holders(directories[0])
        if there and there[0].session_id is not None and chance.randrange(3) == 0:
            session_id = there[0].session_id  # it holds twice, or waits for itself
        else:
            owner = chance.choice(["", "t1", "t2"])
        opening = self.open_session() if chance.randrange(6) == 0 else None
        if opening is not None:
            session_id = opening.session_id
        return Enter(
            directories,
            prefix=PREFIXES[kind],
            kind=kind,
            session_id=session_id,
            data=chance.choice([b"", b"me"]),
            owner=owner,
            is_try=chance.randrange(6) == 0,
            lock_delay_ms=chance.choice([0, 1_000, 3_000]),
            max_hold_ms=chance.choice([0, 0, 2_000]),
            size=chance.choice([1, 2, 3]) if kind is Kind.SLOT else None,
            opening=opening,
        )

    def _release(self) -> Release | None:
        contender = self.pick(lambda each: each.is_holder)
        if contender is None:
            return None
        return Release(
            contender.path, czxid=contender.czxid, spares_repeated=self.chance.randrange(4) == 0
        )

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
        return None if contender is None else Note(contender.path, czxid=contender.czxid, note=note)

    def _revoke(self) -> Revoke | None:
        contender = self.pick(lambda each: True)
        if contender is None:
            return None
        return Revoke(contender.path, czxid=contender.czxid, by="ops", reason="stuck")

    def _end_hold(self) -> EndHold | None:
        contender = self.pick(lambda each: each.is_holder and each.max_hold_ms)
        if contender is None:
            return None
        seen = max(0, contender.extensions - (self.chance.randrange(8) == 0))
        return EndHold(contender.path, czxid=contender.czxid, term=TERM, extensions=seen)

    def _extend_hold(self) -> ExtendHold | None:
        contender = self.pick(
            lambda each: each.is_holder and (each.max_hold_ms or self.chance.randrange(8) == 0)
        )
        if contender is None:
            return None
        by_ms, to_ms = self.chance.choice([(1_000, 0), (0, 3_000), (0, 1), (0, 0)])
        return ExtendHold(contender.path, czxid=contender.czxid, by_ms=by_ms, to_ms=to_ms)

    def _reopen(self) -> Reopen | None:
        closings = self.machine.locks.closings()
        if not closings:
            return None
        closing = self.chance.choice(closings)
        return Reopen(closing.path, czxid=closing.czxid, term=TERM)

    def _resize(self) -> Resize:
        sized = [each for each in DIRECTORIES if self.machine.locks.size(each) is not None]
        return Resize(self.chance.choice(sized or DIRECTORIES), self.chance.choice([1, 2, 3]))

    def _finish_grants(self) -> FinishGrants:
        return FinishGrants()

    def _limit_grants(self) -> SetLimits:
        value = self.chance.choice(GRANTS_AT_ONCE)
        return SetLimits(
            (("grants_per_command_max", value),), expected_version=ANY_VERSION, rules=(), by="ops"
        )

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
        return Create(
            path,
            data=b"",
            mode=mode,
            session_id=self.session(),
            ttl_ms=None,
            parents=CreateMode.CONTAINER,
        )

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
    """Return a history of ``count`` commands after those that open sessions and set a limit."""
    drawn = LockHistory(chance, limits)
    for _ in range(count):
        drawn.draw()
    return drawn.commands
