"""What members say that is not so: from one that lies, late and again.

1. A member that has proved who it is can say false things (the threat model admits it), but what it
   says is refused, or ends this member for a stated reason; never by a surprise.
2. What honest members said may come again and late, within a connection: nothing is lost by that.

What comes from others than members, and what is no message, is in ``test_strangers`` and
``test_member_port``.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from coordinator.errors import CoordinatorError, StorageError
from coordinator.node.config import ClusterConfig, MemberAddress, MemberConfig, RaftConfig
from coordinator.raft.engine import InvariantError
from coordinator.raft.network.messages import NEWEST, FrameError, Message, Ping
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.rejoin import recovering
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import damaged, repacked
from tests.fuzz.watch import watching
from tests.raft.simulated_cluster import ListReplica, SimulatedCluster
from tests.raft.simulated_loop import SimulatedClock, run
from tests.raft.storage.simulated_disk import SimulatedDisk


def recorded(seed: int, seconds: float = 6.0) -> list[tuple[str, str, bytes]]:
    """Return (from, to, payload) of all that three honest members said through some troubles."""
    messages: list[tuple[str, str, bytes]] = []

    def hear(source: str, target: str, message: Message) -> bool:
        messages.append((source, target, NEWEST.encode(message)))
        return True

    async def live() -> None:
        cluster = SimulatedCluster(
            3, seed, snapshot_every_entries=20, keep_entries_after_snapshot=4
        )
        cluster.network.on_message = hear
        await cluster.start()
        for number in range(int(seconds)):
            leader = await cluster.leader()
            for other in cluster.members:
                if other.is_up:
                    await other.engine.read_barrier()
            for command in range(12):
                await leader.engine.propose(b"%d-%d" % (number, command))
            if number % 3 == 2:
                victim = cluster.random.choice(cluster.members)
                await victim.kill()
                leader = await cluster.leader(cluster.others(victim))
                for command in range(30):
                    await leader.engine.propose(b"%d+%d" % (number, command))
                await victim.start()
            await asyncio.sleep(0.3)
        await cluster.equal()
        await cluster.stop()

    run(live())
    return messages


# --- a member that lies


class Mouth:
    """A transport whose peers say what the test wants, and hear nothing."""

    def __init__(self) -> None:
        self.listener: Any = None
        self.sent_total = 0

    def agree_on(self, facts: object) -> None: ...

    def show_levels(self, levels: object, release: str) -> None: ...

    def drop(self, member_id: str) -> None: ...

    def disagreements(self) -> dict[str, str]:
        return {}

    async def start(self, listener: Any) -> None:
        self.listener = listener
        for peer in "23":
            listener.on_connected(peer)

    async def stop(self) -> None: ...

    def send(self, member_id: str, message: Message) -> bool:
        self.sent_total += len(NEWEST.encode(message))
        return True

    def flush(self) -> None: ...

    def is_connected(self, member_id: str) -> bool:
        return True


class Victim:
    """One real engine, its disk, and two peers that lie; started anew when it has stopped."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.failures: list[BaseException] = []
        self.engine: PySyncObjEngine
        self.mouth: Mouth

    async def start(self) -> None:
        self.mouth = Mouth()
        self.failures = []
        self.engine = PySyncObjEngine(
            ClusterConfig(
                members=tuple(
                    MemberAddress(
                        i, client_url="http://h:1", member_host="127.0.0.1", member_port=int(i)
                    )
                    for i in "123"
                )
            ),
            MemberConfig("1", "data"),
            replace(RaftConfig(), snapshot_every_entries=30, keep_entries_after_snapshot=5),
            clock=SimulatedClock(asyncio.get_running_loop()),
            disk=self.disk,
            random=self.random,
            transport=self.mouth,
            run_blocking=at_once,
        )
        self.engine.on_failure(self.failures.append)
        await self.engine.start(ListReplica())

    async def start_trusted(self) -> None:
        """Start as one that is past its recovery: it votes, follows and stands at once."""
        await self.start()
        await self.engine.stop()
        self.disk.remove(f"data/{recovering.NAME}")
        await self.start()

    async def again(self) -> None:
        """End it as a kill does, and start it on what it left."""
        await self.engine.stop()
        self.disk.kill()
        try:
            await self.start()
        except StorageError:
            # Lies were logged as truth, and do not fit together: a new disk, as an operator would.
            self.disk = SimulatedDisk(self.random.randrange(2**30))
            await self.start()


async def at_once(call: Any, /) -> Any:
    await asyncio.sleep(0)
    return call()


OTHERS = 2
ACCUSATION = "coordinator.raft.rejoin.incarnations: member "
"""Said once of a member whose words are those of an older copy; a lie may well be."""
ALARM = "coordinator.raft.rejoin.trust: ALARM: member "
"""Said once a minute of a member whose words cannot be true."""
REASONS = (InvariantError, CoordinatorError, FrameError)
"""Why a member may stop for what a proved member said: all of them say what was wrong."""


def lies(corpus: list[tuple[str, str, bytes]], draw: random.Random) -> list[tuple[str, bytes]]:
    """Return a conversation with one member as it was, from some point on, with lies in it."""
    target = draw.choice("123")
    others = [member_id for member_id in "123" if member_id != target]
    names = dict(zip(others, "23", strict=True))
    said = [(names[source], payload) for source, to, payload in corpus if to == target]
    start = draw.choice((0, 0, draw.randrange(len(said))))
    said = said[start : start + draw.choice((20, 100, 400))]
    payloads = [payload for _, payload in said]
    rate = draw.choice((0.02, 0.1, 0.5))
    told: list[tuple[str, bytes]] = []
    for source, payload in said:
        kind = draw.random() / rate
        if kind < 0.5:
            payload = repacked(payload, draw, DONORS)
        elif kind < 0.65:
            payload = damaged(payload, draw, others=payloads)
        elif kind < 0.75:
            payload = draw.choice(payloads)  # again, or too early
        elif kind < 0.85:
            source = draw.choice("23")  # said by the other one
        elif kind < 1.0:
            continue
        told.append((source, payload))
    return told


DONORS = [b"x", 1, (1, b"y"), ((1, b"z"),)]


def test_a_member_that_lies_is_refused_or_named(fuzz: Fuzz) -> None:
    """Real conversations with messages changed, repeated, missing, or said by the other one."""
    corpus = recorded(fuzz.seed)
    done = fuzz.of("liars")

    async def live() -> None:
        life = 0
        with watching(done) as watch:
            while done.count < fuzz.count("liars"):
                life += 1
                draw = random.Random(f"{fuzz.seed} liars {life}")
                victim = Victim(life)
                await (victim.start_trusted() if draw.random() < 0.7 else victim.start())
                for source, payload in lies(corpus, draw):
                    shown = f"seed {fuzz.seed}, life {life}, {done.count}: {payload[:400]!r}"
                    with watch.each(shown):
                        try:
                            message = NEWEST.decode(payload)
                        except FrameError:
                            continue
                        done.accepted += 1
                        if not isinstance(message, Ping):  # the transport keeps those to itself
                            victim.mouth.listener.on_message(source, message)
                        await asyncio.sleep(draw.choice((0, 0, 0.001, 0.01)))
                    if victim.failures:
                        reason = victim.failures[0]
                        assert isinstance(reason, REASONS), f"{shown}: {reason!r}"
                        done.stopped += 1
                        # It logs with its traceback why it stops, which is no surprise here.
                        watch.trouble.lines.clear()
                        await victim.again()
                lines = watch.trouble.lines
                for begin in (ACCUSATION, ALARM):
                    assert sum(line.startswith(begin) for line in lines) <= OTHERS, (life, lines)
                other = [line for line in lines if not line.startswith((ACCUSATION, ALARM))]
                assert not other, (life, other[:3])
                watch.trouble.lines.clear()
                await victim.again()
                await victim.engine.stop()

    run(live())


# --- late, and again


def test_what_comes_again_and_late_loses_nothing(fuzz: Fuzz) -> None:
    """Messages of the same connection, repeated any time later in any order, with members killed
    in between: every acknowledged command stays, once, and all histories are one."""
    done = fuzz.of("replays")

    async def live(seed: int) -> None:
        cluster = SimulatedCluster(
            3, seed, snapshot_every_entries=25, keep_entries_after_snapshot=5
        )
        heard: dict[tuple[str, str], list[Message]] = {}
        draw = random.Random(seed)
        is_replaying = False

        def hear(source: str, target: str, message: Message) -> bool:
            if not is_replaying:
                heard.setdefault((source, target), []).append(message)
            return True

        def replay(times: int) -> None:
            nonlocal is_replaying
            is_replaying = True
            for _ in range(times):
                if not heard:
                    break
                source, target = pair = draw.choice(list(heard))
                transport = cluster.network.members.get(target)
                if transport is not None and source in cluster.network.members and heard[pair]:
                    transport.listener.on_message(source, draw.choice(heard[pair]))
                    done.count += 1
            is_replaying = False

        def forget(member_id: str) -> None:
            for pair in list(heard):
                if member_id in pair:
                    del heard[pair]

        cluster.network.on_message = hear
        await cluster.start()
        acknowledged: list[bytes] = []
        for number in range(60):
            leader = await cluster.leader()
            try:
                async with asyncio.timeout(3):
                    command = b"%d" % number
                    await leader.engine.propose(command)
                    acknowledged.append(command)
            except (CoordinatorError, TimeoutError):
                pass
            replay(draw.choice((1, 5, 20)))
            if number % 20 == 19:
                victim = draw.choice(cluster.members)
                forget(victim.member_id)
                await victim.kill()
                replay(10)
                await asyncio.sleep(draw.choice((0.0, 1.0)))
                await victim.start()
            await asyncio.sleep(draw.choice((0.0, 0.01, 0.2)))
        commands = await cluster.equal()
        await cluster.stop()
        for member in cluster.members:
            assert not member.failures, f"seed {seed}: {member.failures}"
        for command in acknowledged:
            assert commands.count(command) == 1, f"seed {seed}: {command!r}"

    with watching(done) as watch:
        seed = fuzz.seed * 1_000
        while done.count < fuzz.count("replays"):
            seed += 1
            run(live(seed))
            # An incarnation that is shown again after the next one looks as an older copy does. A
            # connection repeats nothing, so that is so here only; and it costs no command.
            accused = [line for line in watch.trouble.lines if line.startswith(ACCUSATION)]
            assert len(accused) == len(watch.trouble.lines), (seed, watch.trouble.lines[:3])
            watch.trouble.lines.clear()
