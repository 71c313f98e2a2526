"""Histories in which access rights are on and change: roles, tokens, identities, who asks for what.

Three identities use locks and znodes under tokens that come and go. An operator takes rights away
and gives them back. What is asked for is asked by its owner mostly; also by another identity, by
nobody, and under credentials that are gone.
"""

from __future__ import annotations

import random

from coordinator.model.access import NOBODY, Caller, Rule, Verb
from coordinator.model.limits import MachineLimits
from coordinator.state.access.guard import BY_MEMBERS
from coordinator.state.commands import (
    AddToken,
    CloseSession,
    Command,
    DropIdentity,
    DropRole,
    DropToken,
    InitAccess,
    Operation,
    PutIdentity,
    PutRole,
    RenewCredential,
    SetAccess,
    TakeOut,
)
from tests.state.drawn_history import Action
from tests.state.znode_histories import MixedHistory

PREFIXES = ("/", "/a", "/b*", "/locks", "/locks/a", "/locks/b", "/elections", "@sessions")
NAMES = ("x", "y", "z")
DIGEST = b"d" * 32


class AccessHistory(MixedHistory):
    """Znodes and locks of several identities."""

    def __init__(self, chance: random.Random, limits: MachineLimits) -> None:
        self._token_count = 0
        self._seen: list[Caller] = []
        """Every caller that there ever was."""
        super().__init__(chance, limits)
        for name in NAMES:
            self._add(Command(PutRole(name, (Rule("/", tuple(Verb)),)), 0))
            self._add(Command(PutIdentity(name, (name,)), 0))
            self._add(Command(self._add_token(name), 0))
        self._add(Command(InitAccess("ops", token_id="opstoken1", digest=DIGEST), 0))
        for _ in range(3):
            opening = self.open_session()
            self._add(Command(opening, wall_ms=0, request=None, caller=self.caller_of(opening)))

    def weighted(self) -> list[tuple[Action, int]]:
        return [
            *super().weighted(), (self.open_session, 6), (self._put_role, 8), (self._drop, 3),
            (self._add_token, 6), (self._drop_token, 6), (self._set_access, 2), (self._renew, 4),
            (self._end_revoked, 8), (self._take_out, 30),
        ]  # fmt: skip

    def _add(self, command: Command) -> Command:
        added = super()._add(command)
        access = self.machine.access
        self._seen += [
            caller
            for identity in access.every_identity()
            for caller in identity.callers()
            if caller not in self._seen
        ]
        return added

    # --- operations on access rights

    def _put_role(self) -> Operation:
        chance = self.chance
        if chance.randrange(4) == 0:
            return PutIdentity(
                chance.choice(NAMES),
                roles=(chance.choice(NAMES),),
                subjects=chance.choice([(), ("cert:a",)]),
            )
        rules = [
            Rule(prefix, tuple(chance.sample(list(Verb), chance.randrange(1, 6))))
            for prefix in chance.sample(PREFIXES, chance.randrange(4))
        ]
        return PutRole(chance.choice((*NAMES, "spare")), tuple(rules))

    def _drop(self) -> Operation:
        name = self.chance.choice(NAMES)
        return self.chance.choice([DropIdentity(name), DropRole("spare"), DropRole(name)])

    def _add_token(self, name: str = "") -> AddToken:
        self._token_count += 1
        token_id = f"token{self._token_count % 5:04}"  # some come again
        return AddToken(name or self.chance.choice(NAMES), token_id=token_id, digest=DIGEST)

    def _drop_token(self) -> Operation:
        tokens = [each for each in self._seen if self.machine.access.is_current(each)]
        found = self.chance.choice(tokens or [Caller("", "token:none")])
        return DropToken(found.credential.partition(":")[2])

    def _set_access(self) -> SetAccess:
        return SetAccess(is_on=self.chance.randrange(3) > 0)

    def _renew(self) -> RenewCredential:
        return RenewCredential(self.session())

    def _end_revoked(self) -> Operation | None:
        revoked = self.machine.revoked_sessions(3)
        if not revoked:
            return None
        return CloseSession(self.chance.choice(revoked), at_once=self.chance.randrange(3))

    def _take_out(self) -> Operation | None:
        """Take out one who has lost the right, if there is one, and some who have not or hold."""
        locks = self.machine.locks
        paths = list(locks.contender_paths())
        waiting = [each for each in map(locks.record, paths) if each and not each.is_holder]
        lost = [each.path for each in waiting if locks.has_lost_right(each)]
        if not lost:
            return None
        return TakeOut((self.chance.choice(lost), *self.chance.choices(paths, k=2)))

    # --- who asks

    def caller_of(self, operation: Operation) -> Caller:
        chance, access = self.chance, self.machine.access
        ops = access.token("opstoken1")
        if type(operation) in BY_MEMBERS or chance.randrange(30) == 0:
            return NOBODY
        if ops is not None and type(operation).__name__ in _OF_OPERATORS and chance.randrange(8):
            return ops.caller
        current = [each for each in self._seen if access.is_current(each)]
        others = [each for each in current if each.identity in NAMES] or current
        session_id = getattr(operation, "session_id", None) or self._session_at(operation)
        session = None if session_id is None else self.machine.session(session_id)
        if session is not None and chance.randrange(8):
            own = [each for each in others if each.identity == session.caller.identity]
            return chance.choice([session.caller, *own])
        if not others or chance.randrange(8) == 0:
            return chance.choice(self._seen or [NOBODY])
        return chance.choice(others)

    def _session_at(self, operation: Operation) -> str | None:
        record = self.machine.locks.record(getattr(operation, "path", ""))
        return None if record is None else record.session_id


_OF_OPERATORS = frozenset(
    {
        "PutRole", "PutIdentity", "DropIdentity", "DropRole", "AddToken", "DropToken", "SetAccess",
        "Revoke", "SetLimits",
    }
)  # fmt: skip


def access_history(chance: random.Random, limits: MachineLimits, count: int) -> list[Command]:
    """Return a history of ``count`` commands, after those that turn access rights on."""
    history = AccessHistory(chance, limits)
    for _ in range(count):
        history.draw()
    return history.commands
