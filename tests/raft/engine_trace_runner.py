"""Runs a trace of the engine: whole members in simulated time, and what they say to each other.

The form of the text is that of every trace (``tests/golden_traces.py``).

::

    > cluster 3 keep_entries_after_snapshot=2    first of all: so many members, and ``RaftConfig``
    > draw 1=0 2=50                              see below
    > start 1 2                                  start members (without names: all)
    > run 300                                    let 300 ms pass
    > propose 1 a b for=20                       give member 1 two commands in one pass
    > read 2 3 for=20                            ask members for a read barrier, in one pass
    > cut 1>3 3>1      > isolate 1      > heal   what is sent there vanishes; everything arrives
    > hold 2>1 kind=Appended                     keep what is sent there (of this kind)
    > deliver 2>1 count=1                        let (the first of) it arrive; hold no more (more)
    > pause 1          > resume 1                its clock stands still and it hears nothing
    > stop 1           > kill 1                  in order; by a power cut
    > fail 1 sync                                the next such operation of its disk fails
    > log 1 2          > applied 1               its log; the commands that it has applied
    > equal                                      all that run have applied the same

``for=N``, behind any command, lets N ms pass after it. What is printed is what happens, each line
behind the time in ms: ``1>2 ...`` a message when it is sent (it arrives 1 ms later, unless it is
lost or held), ``1: ...`` what changed at a member since its last line, a proposal that ended.

Of its election timeouts member N draws always the same: so many percent of the range as ``draw``
says, or else (N - 1) * 25. Nothing else is random.

Not shown: an append without entries that tells its follower nothing new, and a message without
entries that equals the last of its kind between the two.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from coordinator.errors import CoordinatorError
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from tests.golden_traces import Words, commands_of, parsed, text_of
from tests.raft.engine_trace_record import Record, shown_entry, shown_error, shown_message
from tests.raft.network.simulated_network import SimulatedNetwork
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run

Link = tuple[str, str]


class SetDraws(random.Random):
    """Draws the same share of every range: ``shares`` of its member, in percent."""

    def __init__(self, shares: dict[str, int], member_id: str) -> None:
        super().__init__(0)
        self._shares = shares
        self._member_id = member_id

    def random(self) -> float:
        return self._shares[self._member_id] / 100

    def randint(self, a: int, b: int) -> int:
        return a + (b - a) * self._shares[self._member_id] // 100


class Network(SimulatedNetwork):
    """Tells of each message, and keeps those of the links that are held."""

    def __init__(self, record: Record) -> None:
        super().__init__(0)
        self._record = record
        self._holding: dict[Link, str] = {}
        self._held: dict[Link, list[Message]] = {}

    def carry(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, say.Incarnation | say.IncarnationSeen | say.IncarnationLost):
            super().carry(source, target, message)  # beside the log; left out of the traces
            return
        link = (source, target)
        is_held = self._holding.get(link, "none") in ("", type(message).__name__)
        fate = "lost" if link in self.cuts else "held" if is_held else ""
        self._record.message(source, target, message, fate)
        if fate == "held":
            self._held[link].append(message)
        else:
            super().carry(source, target, message)

    def hold(self, link: Link, kind: str) -> None:
        """Keep what is sent there, of this kind of message or (for "") of every kind."""
        self._holding[link] = kind
        self._held[link] = []

    def deliver(self, link: Link, count: int | None) -> None:
        """Let what was held arrive, the first ``count`` or all; without a count hold no more."""
        arriving = self._held[link][:count]
        del self._held[link][:count]
        if count is None:
            del self._holding[link]
        for message, same in groupby(arriving):
            times = len(list(same))
            how = "held till now" if times == 1 else f"held till now, {times} times"
            self._record.note(f"{link[0]}>{link[1]} {shown_message(message)} ({how})")
            for _ in range(times):
                super().carry(*link, message)


class Trace:
    """A cluster and what is done to it."""

    def __init__(self) -> None:
        self.record = Record()
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands: dict[str, Callable[[Words], Awaitable[None] | None]] = {
            "cluster": self._cluster,
            "draw": self._draw,
            "start": self._each(Member.start),
            "stop": self._each(Member.stop),
            "kill": self._each(Member.kill),
            "pause": self._each(Member.pause),
            "resume": self._each(Member.resume),
            "run": self._run,
            "propose": self._propose,
            "read": self._read,
            "cut": self._cut,
            "isolate": self._each(lambda member: self.network.isolate(member.member_id)),
            "heal": lambda _words: self.network.heal(),
            "hold": self._hold,
            "deliver": self._deliver,
            "fail": self._fail,
            "log": self._each(self._show_log),
            "applied": self._each(self._show_applied),
            "equal": self._equal,
        }

    async def run(self, line: str) -> list[str]:
        """Run one command; return what it prints."""
        words = Words(line)
        for_ms = words.number("for", 0)
        result = self._commands[words.verb](words)
        if result is not None:
            await result
        words.finish()
        await self._pass_ms(for_ms)
        return self.record.taken()

    async def close(self) -> None:
        await self.cluster.stop()

    async def _pass_ms(self, count: int) -> None:
        for _ in range(count):
            # In the middle, when what belongs to this millisecond has happened.
            await asyncio.sleep(0.0005)
            self.record.look()
            await asyncio.sleep(0.0005)

    def _each(self, act: Callable[[Member], Any]) -> Callable[[Words], Awaitable[None]]:
        """Do something to each member that is named, or to all."""

        async def act_on_each(words: Words) -> None:
            for member in self._named(words.given):
                result = act(member)
                if result is not None:
                    await result

        return act_on_each

    def _named(self, names: Sequence[str]) -> list[Member]:
        members = {each.member_id: each for each in self.cluster.members}
        return [members[name] for name in names] if names else list(members.values())

    def _cluster(self, words: Words) -> None:
        self.cluster = SimulatedCluster(int(words.given[0]), **words.numbers())
        self.network = self.cluster.network = Network(self.record)
        shares = {each.member_id: at * 25 for at, each in enumerate(self.cluster.members)}
        self.shares = shares
        self.cluster.random_of = lambda member_id: SetDraws(shares, member_id)
        self.record.members = self.cluster.members

    def _draw(self, words: Words) -> None:
        self.shares.update(words.numbers())

    async def _run(self, words: Words) -> None:
        known = self.record.known
        is_quiet = words.has("quietly")
        await self._pass_ms(int(words.given[0]))
        if is_quiet:
            self.record.sum_up(known)

    def _propose(self, words: Words) -> None:
        (member,) = self._named(words.given[:1])
        for command in words.given[1:]:
            self._spawn(self._proposed(member, command))

    async def _proposed(self, member: Member, command: str) -> None:
        name = f"{member.member_id}: proposal {command}"
        try:
            applied = await member.engine.propose(command.encode())
            self.record.note(f"{name} done: entry {applied.index}/{applied.term}")
        except CoordinatorError as error:
            self.record.note(f"{name} {shown_error(error)}")

    def _read(self, words: Words) -> None:
        for member in self._named(words.given):
            self._spawn(self._was_read(member))

    async def _was_read(self, member: Member) -> None:
        try:
            index = await member.engine.read_barrier()
            self.record.note(f"{member.member_id}: read barrier at entry {index}")
        except CoordinatorError as error:
            self.record.note(f"{member.member_id}: read barrier {shown_error(error)}")

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _cut(self, words: Words) -> None:
        for source, target in links(words.given):
            self.network.cut(source, target)

    def _hold(self, words: Words) -> None:
        kind = words.text("kind")
        for link in links(words.given):
            self.network.hold(link, kind)

    def _deliver(self, words: Words) -> None:
        count = words.maybe_number("count")
        for link in links(words.given):
            self.network.deliver(link, count)

    def _fail(self, words: Words) -> None:
        (member,) = self._named(words.given[:1])
        member.disk.fail(words.given[1])

    def _show_log(self, member: Member) -> None:
        entries = (shown_entry(index, term, entry) for entry, index, term in member.engine._log[:])
        self.record.lines.append(f"        {member.member_id} has {', '.join(entries)}")

    def _show_applied(self, member: Member) -> None:
        commands = b" ".join(member.replica.commands).decode()
        self.record.lines.append(f"        {member.member_id} has applied {commands or 'nothing'}")

    def _equal(self, _words: Words) -> None:
        up = [each for each in self.cluster.members if each.is_up and not each.failures]
        assert len({tuple(member.replica.commands) for member in up}) == 1
        names = ", ".join(member.member_id for member in up)
        commands = b" ".join(up[0].replica.commands).decode()
        self.record.lines.append(f"        {names} have applied {commands or 'nothing'}")


def links(words: Sequence[str]) -> Iterator[Link]:
    for word in words:
        source, _, target = word.partition(">")
        yield source, target


def rewritten(text: str) -> str:
    """Run the commands of ``text``; return it with what they print now."""
    parts = parsed(text)

    async def scenario() -> None:
        trace = Trace()
        for command in commands_of(parts):
            command.printed = await trace.run(command.line)
        await trace.close()

    run(scenario())
    return text_of(parts)
