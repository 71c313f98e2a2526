"""Runs a trace of the service: whole members over one log, with a leader that the trace chooses.

The form of the text is that of every trace (``tests/golden_traces.py``).

::

    > cluster 3 watch_history_changes=3     first of all: so many members; sessions and limits
    > elect 2           > elect nobody      a new term, with another leader or none
    > quorum no         > quorum yes        nothing is committed and no leader confirmed, or again
    > advance 1900                          let time pass, tick by tick
    > stall 5000        > wall 3600000      let it pass without a tick; step the wall clock alone
    > lag 3             > catch-up 3        it applies nothing for a while; then all ("count=1")
    > install 3                             it is sent the leader's state as a snapshot
    > fault 3>1 heartbeat reply count=1     lose such requests between members ("request", "reply")
    > open ann timeout=2000                 > close ann        > sessions
    > heartbeat ann within=1000             a deadline, for any of those that wait
    > expire ann term=1                     as a leader of that term proposed it
    > create /a data=x session=ann          set, delete, multi: as in the traces of the tree
    > get /a            > get /a stale      > get /a zxid=5
    > watch w /a subtree:/b from=3          znode:, children: or subtree: ("one-shot", "unread")
    > take w            > unwatch w         read what an unread watch was told; end a watch
    > acquire x job ann wait=5000           attempt x at lock job for session ann ("try")
    > acquire x a,b ann owner=t hold=5000 delay=1000 size=3
                                            several locks; "shared", "slot"; bounds in ms
    > release x         > release job 0-3   give a grant back, or leave the queue
    > cancel x          > abandon job c1:1  the caller goes away; undo the attempt of a request
    > downgrade x       > resize job 2      make it shared; change a semaphore
    > extend x by=500   > extend x to=500   let a bounded hold end later
    > revoke job        > revoke job 0-3    force the holder out
    > who job                               who holds and who waits

``at=2``, behind any question, asks member 2 (otherwise the leader, or the last one);
``by=client:number`` gives a command its request id. What is printed is what happens, each line
behind the time in ms: ``entry ...`` what is committed and the zxid it came to, otherwise what a
watch, an attempt or a caller is told. Whoever still waits then is told below a later command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from typing import Any, TypeVar

from coordinator.errors import CoordinatorError
from coordinator.model.acquire import AcquireRequest
from coordinator.model.events import WatchSelector
from coordinator.model.grants import GrantReply
from coordinator.model.limits import NEW_CLUSTER, MachineLimits
from coordinator.node.config import Config, MemberLimits, SessionConfig
from coordinator.service.member import Member
from coordinator.service.reads.reads import LINEARIZABLE, STALE, ReadMode, ReadReply, at_least
from coordinator.service.watches.watch_stream import WatchStream
from coordinator.service.writes.proposals import RequestContext
from coordinator.state import commands as do
from coordinator.state.codec import encode_command
from tests.golden_traces import Words, commands_of, parsed, text_of
from tests.raft.simulated_loop import run
from tests.service.fake_cluster import FAR_MS, STEP_MS
from tests.service.service_trace_record import (
    TracedWorld,
    shown_ack,
    shown_error,
    shown_grant,
    shown_item,
    shown_queue,
)
from tests.state.trace_runner import Words as TreeWords
from tests.state.trace_runner import operation_of

T = TypeVar("T")

TREE_VERBS = ("create", "set", "delete", "multi", "guarded")


class Trace:
    """Members, those who ask them, and what is done to both."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._streams: dict[str, WatchStream] = {}
        self._attempts: dict[str, asyncio.Task[None]] = {}
        self._grants: dict[str, GrantReply] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands: dict[str, Callable[[Words], Awaitable[None] | None]] = {
            "cluster": self._cluster,
            "elect": self._elect,
            "quorum": self._quorum,
            "advance": self._advance,
            "stall": lambda words: self.world.clock.advance(int(words.given[0])),
            "wall": lambda words: self.world.clock.step_wall(int(words.given[0])),
            "lag": self._lag,
            "catch-up": self._catch_up,
            "install": self._install,
            "fault": self._fault,
            "open": self._open,
            "close": self._close,
            "heartbeat": self._heartbeat,
            "sessions": self._sessions,
            "expire": self._expire,
            "get": self._get,
            "watch": self._watch,
            "take": self._take,
            "unwatch": lambda words: self._streams[words.given[0]].close(),
            "acquire": self._acquire,
            "release": self._release,
            "cancel": self._cancel,
            "abandon": self._abandon,
            "downgrade": self._downgrade,
            "extend": self._extend,
            "resize": self._resize,
            "revoke": self._revoke,
            "who": self._who,
        }

    async def run(self, line: str, more: list[str]) -> list[str]:
        """Run one command; return what it prints."""
        if line.split()[0] in TREE_VERBS:
            self._change(TreeWords(line), more)
        else:
            words = Words(line)
            result = self._commands[words.verb](words)
            if result is not None:
                await result
            words.finish()
        await settle()
        lines, self.lines = self.lines, []
        return lines

    async def close(self) -> None:
        for member in self.world.members.values():
            await member.stop()

    def note(self, text: str) -> None:
        self.lines.append(f"{self.world.clock.monotonic_ms() - self._began_ms:6}  {text}")

    # --- the cluster

    async def _cluster(self, words: Words) -> None:
        count, numbers = int(words.given[0]), words.numbers()
        config = Config(
            sessions=SessionConfig(**taken(numbers, SessionConfig)),
            limits=MemberLimits(**taken(numbers, MemberLimits)),
            first_limits=replace(NEW_CLUSTER, **taken(numbers, MachineLimits)),
        )
        assert not numbers, f"{words.line}: not understood: {numbers}"
        self.world = TracedWorld(count, config, self.note)
        self._began_ms = self.world.clock.monotonic_ms()
        for member in self.world.members.values():
            await member.start()
        self.world.elect("1")

    def _elect(self, words: Words) -> None:
        (name,) = words.given
        self.world.elect(None if name == "nobody" else name)
        self.note(f"term {self.world.term}, led by {name}")

    def _quorum(self, words: Words) -> None:
        self.world.has_quorum = {"yes": True, "no": False}[words.given[0]]

    async def _advance(self, words: Words) -> None:
        for _ in range(int(words.given[0]) // STEP_MS):
            await self.world.advance(STEP_MS)
            await settle()

    def _lag(self, words: Words) -> None:
        self.world.engines[words.given[0]].is_applying = False

    def _catch_up(self, words: Words) -> None:
        engine = self.world.engines[words.given[0]]
        count = words.maybe_number("count")
        if count is None:
            engine.is_applying = True
            engine.catch_up()
            return
        assert engine.replica is not None
        for term, command, _ in self.world.log[engine.applied_index :][:count]:
            engine.applied_index += 1
            engine.replica.apply(engine.applied_index, term, command)

    def _install(self, words: Words) -> None:
        assert self.world.leader_id is not None
        replica = self.world.engines[self.world.leader_id].replica
        assert replica is not None
        self.world.engines[words.given[0]].install(
            iter(list(replica.snapshot())), len(self.world.log)
        )

    def _fault(self, words: Words) -> None:
        link, kind, fate = words.given
        left = words.number("count", 1)

        def fault(sender: str, receiver: str, asked: str) -> str | None:
            nonlocal left
            if left == 0 or (f"{sender}>{receiver}", asked) != (link, kind):
                return None
            left -= 1
            self.note(f"{link} {kind}: the {fate} is lost")
            return fate

        self.world.fault = fault

    # --- those who ask

    def _member(self, member_id: str) -> Member:
        if member_id:
            return self.world.members[member_id]
        return self.world.follower if self.world.leader_id is None else self.world.leader

    def _asked(self, words: Words | TreeWords) -> tuple[Member, int]:
        """Return whom a command asks, and until when."""
        member = self._member(words.text("at"))
        return member, self.world.deadline(words.number("within", FAR_MS))

    def _ask(self, name: str, question: Awaitable[T], show: Callable[[T], str]) -> Any:
        """Note the answer, whenever it comes, unless ``show`` has no words for it."""

        async def ask() -> None:
            try:
                said = show(await question)
                if said:
                    self.note(f"{name}: {said}")
            except CoordinatorError as error:
                self.note(f"{name}: {shown_error(error)}")

        task = asyncio.get_running_loop().create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _change(self, words: TreeWords, more: list[str]) -> None:
        member, deadline_ms = self._asked(words)
        request = request_of(words.text("by"))
        operation = operation_of(words, more)
        words.finish()
        change = member.proposer.submit(operation, RequestContext(request, deadline_ms))
        self._ask(words.verb, change, lambda _done: "")  # its entry has been shown

    def _open(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        # Through ``submit``, because ``open_session`` draws the id.
        operation = do.OpenSession(
            words.given[0], timeout_ms=words.number("timeout", 10_000), label=""
        )
        request = request_of(words.text("by"))
        opening = member.proposer.submit(operation, RequestContext(request, deadline_ms))
        self._ask(words.given[0], opening, lambda _done: "")

    def _close(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        closing = member.close_session(words.given[0], None, deadline_ms)
        self._ask(
            words.given[0], closing, lambda ended: "closed" if ended.was_open else "was not open"
        )

    def _heartbeat(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        beating = member.heartbeat(words.given[0], deadline_ms)
        self._ask(words.given[0], beating, shown_ack)

    def _sessions(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        listing = member.sessions.page(mode_of(words), deadline_ms)
        self._ask(
            "sessions",
            listing,
            lambda reply: ", ".join(each.session_id for each in reply.value.sessions) or "none",
        )

    def _expire(self, words: Words) -> None:
        operation = do.ExpireSession(words.given[0], words.number("term", 0))
        self.world.commit(encode_command(do.Command(operation, self.world.clock.wall_ms())))

    def _get(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        path = words.given.pop(0)
        getting = member.get(path, mode_of(words), deadline_ms)

        def shown(reply: ReadReply[Any]) -> str:
            age = "" if reply.age_ms is None else f", heard from a leader {reply.age_ms} ms ago"
            data, stat = reply.value
            return f"{data.decode()!r} version {stat.version}, as of zxid {reply.zxid}{age}"

        self._ask(path, getting, shown)

    # --- watches

    def _watch(self, words: Words) -> None:
        member, _ = self._asked(words)
        is_one_shot, is_unread = words.has("one-shot"), words.has("unread")
        name, *selectors = words.given
        try:
            stream = member.watches.watch(
                [selector_of(each) for each in selectors],
                from_zxid=words.maybe_number("from"),
                is_one_shot=is_one_shot,
            )
        except CoordinatorError as error:
            self.note(f"{name}: {shown_error(error)}")
            return
        self._streams[name] = stream
        self.note(f"{name}: tells what follows zxid {stream.start_zxid}")
        if not is_unread:
            self._read(name)

    def _take(self, words: Words) -> None:
        self._read(words.given[0])

    def _read(self, name: str) -> None:
        async def read() -> str:
            async for item in self._streams[name]:
                self.note(f"{name}: {shown_item(item)}")
            return "end"

        self._ask(name, read(), str)

    # --- locks

    def _acquire(self, words: Words) -> None:
        is_try, is_shared, is_slot = words.has("try"), words.has("shared"), words.has("slot")
        name, lock, session_id = words.given
        asked = AcquireRequest(
            label=name,
            kind=do.Kind.SHARED if is_shared else do.Kind.SLOT if is_slot else do.Kind.EXCLUSIVE,
            owner=words.text("owner"),
            size=words.maybe_number("size"),
            lock_delay_ms=words.number("delay", 0),
            max_hold_ms=words.number("hold", 0),
        )

        def shown(grant: GrantReply) -> str:
            self._grants[name] = grant
            return shown_grant(grant)

        acquiring = self._member(words.text("at")).locks.acquire(
            lock.split(",") if "," in lock else lock,
            wanted=asked,
            session_id=session_id,
            request=request_of(words.text("by")),
            wait_deadline_ms=self.world.deadline(words.number("wait", FAR_MS)),
            is_try=is_try,
            on_position=lambda position: self.note(f"{name}: position {position}"),
        )
        self._attempts[name] = self._ask(name, acquiring, shown)

    def _release(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        name = " ".join(words.given)
        if len(words.given) == 1:
            grant = self._grants[name]
            lock, grant_id = grant.lock, grant.grant_id
        else:
            lock, grant_id = words.given
        releasing = member.locks.release(lock, grant_id, None, deadline_ms)
        self._ask(name, releasing, lambda _released: "released")

    def _cancel(self, words: Words) -> None:
        self._attempts[words.given[0]].cancel()

    def _abandon(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        lock, by = words.given
        request = request_of(by)
        assert request is not None
        abandoning = member.locks.abandon(
            lock, request.client_id, request.number, request.floor_index, deadline_ms
        )
        self._ask(
            by, abandoning, lambda done: f"abandoned, deleted {done.deleted_path or 'nothing'}"
        )

    def _downgrade(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        (name,) = words.given
        grant = self._grants[name]
        context = RequestContext(None, deadline_ms)
        downgrading = member.holding.downgrade(grant.lock, grant.grant_id, context)
        self._ask(name, downgrading, lambda now: f"is {now.kind}, token {now.fencing_token}")

    def _extend(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        times = {"by_ms": words.number("by", 0), "to_ms": words.number("to", 0)}
        (name,) = words.given
        grant = self._grants[name]
        asked = RequestContext(None, deadline_ms)
        extending = member.holding.extend(grant.lock, grant.grant_id, asked, **times)
        self._ask(name, extending, lambda now: f"ends {now.max_hold_ms} ms from now at most")

    def _resize(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        lock, size = words.given
        resizing = member.holding.resize(lock, int(size), RequestContext(None, deadline_ms))
        self._ask(lock, resizing, lambda done: f"has size {done.size}")

    def _revoke(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        lock, *grant_ids = words.given
        context = RequestContext(None, deadline_ms)
        grant_id = grant_ids[0] if grant_ids else None
        revoking = member.holding.revoke(lock, grant_id, "op", "why", context)
        self._ask(
            lock,
            revoking,
            lambda done: f"forced out {done.grant.grant_id}; raise to {done.fencing_token_min}",
        )

    def _who(self, words: Words) -> None:
        member, deadline_ms = self._asked(words)
        lock = words.given.pop(0)
        self._ask(lock, member.lock_views.query(lock, mode_of(words), deadline_ms), shown_queue)


async def settle() -> None:
    """Let everything happen that needs no time on the members' clock."""
    await asyncio.sleep(STEP_MS / 1000)


def taken(numbers: dict[str, int], kind: type) -> dict[str, Any]:
    """Take the numbers away that are fields of ``kind``."""
    names = [each.name for each in fields(kind)]
    return {name: numbers.pop(name) for name in names if name in numbers}


def request_of(by: str) -> do.RequestId | None:
    if not by:
        return None
    client_id, number, *floor = by.split(":")
    return do.RequestId(client_id, number=int(number), floor_index=int(floor[0]) if floor else 0)


def mode_of(words: Words) -> ReadMode:
    zxid = words.maybe_number("zxid")
    if zxid is not None:
        return at_least(zxid)
    return STALE if words.has("stale") else LINEARIZABLE


def selector_of(word: str) -> WatchSelector:
    kind, _, path = word.rpartition(":")
    return WatchSelector(path, kind or "znode")


def rewritten(text: str) -> str:
    """Run the commands of ``text``; return it with what they print now."""
    parts = parsed(text)

    async def scenario() -> None:
        trace = Trace()
        for command in commands_of(parts):
            command.printed = await trace.run(command.line, command.more)
        await trace.close()

    run(scenario())
    return text_of(parts)
