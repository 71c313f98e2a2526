"""Access rights that are on while things go wrong: tokens are revoked, roles changed, made anew.

Some programs read, write, lock and watch under tokens, at any member, also at one that lags. An
operator takes their tokens and roles away and gives them others. Nobody else notices: the clients
of the world have no credential, and the anonymous caller may do everything. Drawn from a stream of
its own, in worlds of their own (``NAMES``).

Judged: what comes back under a token was done, read, told or granted before the zxid at which the
token was revoked, and nothing that began after its revocation was confirmed. The same holds of
roles: a write, an attempt, a read and an event had a rule where they were judged. What was refused
for certain never happened.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coordinator.errors import AuthFailedError, NoAuthError
from coordinator.model.access import NOBODY, Caller, Rule, Verb
from coordinator.model.events import WatchKind, WatchSelector
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    AddToken,
    Create,
    CreateMode,
    DropIdentity,
    DropToken,
    Enter,
    Kind,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    RequestId,
)
from tests.simulation.access_operator import ATTEMPT_MS, AccessOperator
from tests.simulation.log import QUEUES_OF_RIGHTS, Entry
from tests.simulation.members import SimulatedMember
from tests.state.test_access import covers

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("rights",)
PROGRAMS = ("ada", "bob", "cyd")
GAP_S = (0.3, 1.5)
ROLES = (
    (Rule("/r", (Verb.READ, Verb.WRITE, Verb.WATCH)), Rule("/locks/r*", (Verb.LOCK,))),
    (Rule("/r", (Verb.READ,)),),
    (Rule("/", tuple(Verb)),),
    (),
)


class Rights(AccessOperator):
    """The programs and the operator of one world."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "rights", "rights hold")
        self._gone_s: dict[str, float] = {}
        """When the revocation of a token was confirmed, by the token's id."""
        self._refused: set[bytes] = set()
        self._said: list[tuple[Caller, str, int, int]] = []
        """Who was answered what, at which zxid, and up to which the member had come by then."""

    async def run(self) -> None:
        """Go on until cancelled."""
        await self.turn_on()
        tasks = [asyncio.create_task(self._operate())]
        tasks += [asyncio.create_task(self._work(name)) for name in PROGRAMS for _ in range(2)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for each in tasks:
                each.cancel()

    # --- the operator

    async def _operate(self) -> None:
        draw = self._random
        for name in PROGRAMS:
            await self._change(PutRole(name, ROLES[0]))
            await self._change(PutIdentity(name, (name,)))
        while True:
            for name in PROGRAMS:
                if name not in self._tokens:
                    await self._give(name)
            await asyncio.sleep(draw.uniform(*GAP_S))
            name = draw.choice(PROGRAMS)
            if draw.random() < 0.3:
                await self._change(PutRole(name, draw.choice(ROLES)))
                continue
            token = self._tokens.pop(name, "")
            token_id = token[3:13]
            ends = [DropToken(token_id), DropToken(token_id), DropIdentity(name)]
            if token and await self._change(draw.choice(ends)):
                self._gone_s[token_id] = self._world.loop.time()
                self._deed("revoked")
            await self._change(PutRole(name, ROLES[0]))
            await self._change(PutIdentity(name, (name,)))

    # --- the programs

    async def _work(self, name: str) -> None:
        draw = self._random
        while True:
            await asyncio.sleep(draw.uniform(0.02, 0.3))
            token, member = self._tokens.get(name), self._any()
            if draw.random() < 0.3:  # with one that it had before
                token = draw.choice([token, *self._tokens.values()])
            if token is not None and member is not None:
                await self._at(member, self._asked(member, token))

    async def _asked(self, member: SimulatedMember, token: str) -> bool:
        begun_s = self._world.loop.time()
        deadline_ms = member.clock.monotonic_ms() + ATTEMPT_MS
        work = self._random.choice((self._write, self._write, self._read, self._lock, self._watch))
        caller = await member.service.access.caller(f"Bearer {token}", (), deadline_ms)
        await asyncio.sleep(self._random.choice((0, 0, 0.05, 0.5)))  # on its way to the routes
        zxid = await work(member, caller, deadline_ms)
        if zxid is None:
            return False
        self._said.append((caller, work.__name__.strip("_"), zxid, zxid))
        self._deed(work.__name__.strip("_"))
        gone_s = self._gone_s.get(token[3:13])
        if gone_s is not None and gone_s < begun_s:
            self._violate(f"{caller} was served by {member.who} after it was revoked")
        return True

    async def _write(self, member: SimulatedMember, caller: Caller, deadline_ms: int) -> int | None:
        value = b"%d" % self._random.randrange(1 << 60)
        create = Create(
            "/r/n-", data=value, mode=CreateMode.PERSISTENT_SEQUENTIAL, parents=CreateMode.CONTAINER
        )
        request = RequestId(f"{caller.identity}-{self._random.randrange(1 << 60)}", 1)
        try:
            done = await member.service.proposer.submit(
                create, RequestContext(request, deadline_ms, caller=caller)
            )
        except (AuthFailedError, NoAuthError):
            self._refused.add(value)
            self._deed("refused")
            return None
        return done.outcome.zxid

    async def _read(self, member: SimulatedMember, caller: Caller, deadline_ms: int) -> int | None:
        reply = await member.service.children("/r", LINEARIZABLE, deadline_ms, caller=caller)
        return reply.zxid

    async def _lock(self, member: SimulatedMember, caller: Caller, deadline_ms: int) -> int | None:
        draw = self._random
        session_id = f"r{draw.randrange(1 << 60):x}"
        enter = Enter(
            (draw.choice(QUEUES_OF_RIGHTS),),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id=session_id,
            data=b"",
            lock_delay_ms=draw.choice((0, 300)),
            opening=OpenSession(session_id, 1_500),
        )
        done = await member.service.proposer.submit(
            enter, RequestContext(None, deadline_ms, caller=caller)
        )
        return done.outcome.zxid

    async def _watch(self, member: SimulatedMember, caller: Caller, deadline_ms: int) -> int | None:
        below = WatchSelector("/r", WatchKind.SUBTREE)
        stream = member.service.watches.watch([below], caller=caller)
        try:
            async with asyncio.timeout(1.0):
                while True:
                    item = await anext(stream)
                    if getattr(item, "events", ()):
                        applied = member.service.labels()[1]
                        self._said.append((caller, "watch", item.zxid, applied))
                        self._deed("event told")
        except TimeoutError:
            return None
        finally:
            stream.close()

    # --- the judgement

    def judge(self, log: list[Entry]) -> None:
        """Compare what was said with what the log says of credentials, once all is over."""
        gone: dict[tuple[str, int], int] = {}
        current: dict[str, Caller] = {}
        sessions: dict[str, Caller] = {}
        roles: dict[str, tuple[Rule, ...]] = {}
        has: dict[str, tuple[str, ...]] = {}
        owners: dict[str, Caller] = {}
        """Who made each contender, by its path."""
        allowed: list[tuple[int, dict[str, set[Verb]]]] = []
        """From which zxid on, what each program may do below ``/r``."""
        for entry in log:
            command, outcome = entry.command, entry.outcome
            operation, caller = command.operation, command.caller
            is_done = outcome.refusal is None and not outcome.is_repeat
            if is_done and (caller.credential, caller.since) in gone:
                self._violate(f"{type(operation).__name__} at {entry.index} under {caller}")
            if outcome.refusal is None and getattr(operation, "data", b"") in self._refused:
                self._violate(f"what was refused for certain was done at {entry.index}")
            if not is_done:
                continue
            self._check_rule(entry, roles, has)
            if isinstance(operation, PutRole):
                roles[operation.name] = operation.rules
            elif isinstance(operation, PutIdentity):
                has[operation.name] = operation.roles
            elif isinstance(operation, DropIdentity):
                has.pop(operation.name, None)
            if isinstance(operation, PutRole | PutIdentity | DropIdentity):
                allowed.append((outcome.zxid, _verbs_at("/r", roles, has)))
            if isinstance(operation, Enter) and operation.opening is not None:
                sessions[operation.session_id] = caller
            self._follow_tokens(operation, outcome.zxid, current, gone)
            for event in outcome.events:
                owners[event.path] = sessions.get(event.ephemeral_owner or "", NOBODY)
            for path in outcome.granted:
                owner = owners.get(path, NOBODY)
                if (owner.credential, owner.since) in gone:
                    self._violate(f"{path} was granted at {entry.index} to {owner}")
        for caller, what, zxid, until in self._said:
            verb = {"read": Verb.READ, "watch": Verb.WATCH}.get(what)
            if verb is not None and not _may(allowed, caller.identity, verb, zxid, until):
                self._violate(f"{what} at zxid {zxid} to {until} for {caller} by no rule")
            gone_zxid = gone.get((caller.credential, caller.since))
            if gone_zxid is not None and zxid >= gone_zxid:
                self._violate(f"{what} at zxid {zxid} for {caller}, revoked at {gone_zxid}")

    def _check_rule(
        self, entry: Entry, roles: dict[str, tuple[Rule, ...]], has: dict[str, tuple[str, ...]]
    ) -> None:
        """Check what a program did against the roles that it had then."""
        operation, caller = entry.command.operation, entry.command.caller
        if caller.identity not in PROGRAMS:
            return
        needed = []
        if isinstance(operation, Create):
            needed = [(Verb.WRITE, operation.path)]
        elif isinstance(operation, Enter):
            needed = [(Verb.LOCK, each) for each in operation.directories]
        rules = [rule for name in has.get(caller.identity, ()) for rule in roles[name]]
        for verb, resource in needed:
            if not any(covers(each.prefix, resource) and verb in each.verbs for each in rules):
                self._violate(f"{caller} did {operation} at {entry.index} by no rule")

    def _follow_tokens(
        self,
        operation: Operation,
        zxid: int,
        current: dict[str, Caller],
        gone: dict[tuple[str, int], int],
    ) -> None:
        if isinstance(operation, AddToken):
            credential = f"token:{operation.token_id}"
            current[credential] = Caller(operation.identity, credential=credential, since=zxid)
        for credential, caller in list(current.items()):
            is_dropped = (
                isinstance(operation, DropToken) and credential == f"token:{operation.token_id}"
            ) or (isinstance(operation, DropIdentity) and caller.identity == operation.name)
            if is_dropped:
                gone[credential, caller.since] = zxid
                del current[credential]


def _verbs_at(
    path: str, roles: dict[str, tuple[Rule, ...]], has: dict[str, tuple[str, ...]]
) -> dict[str, set[Verb]]:
    """Return what each identity may do at ``path``."""
    return {
        name: {
            verb
            for role in of_it
            for rule in roles.get(role, ())
            for verb in rule.verbs
            if covers(rule.prefix, path)
        }
        for name, of_it in has.items()
    }


def _may(
    allowed: list[tuple[int, dict[str, set[Verb]]]], name: str, verb: Verb, zxid: int, until: int
) -> bool:
    """Say whether ``name`` could ``verb`` at some time from ``zxid`` to ``until``."""
    for number, (since, verbs) in enumerate(allowed):
        ends = allowed[number + 1][0] if number + 1 < len(allowed) else until + 1
        if since <= until and ends > zxid and verb in verbs.get(name, ()):
            return True
    return False
