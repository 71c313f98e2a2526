"""The stage: a live cluster, actors A and B, a store, an onlooker, and the deeds of a story.

A deed is what a person at the page or a script may do: ask as A, freeze A, write, kill the leader.
Each records that it was done; what comes of it, the onlooker and the actors record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from coordinator.client import AsyncClient, connect
from coordinator.clock import SystemClock
from coordinator.errors import BadArgumentsError, NodeExistsError, UnavailableError
from coordinator.learn.film import Film, Guess, Recorder, Step, Value
from coordinator.learn.onlooker import Onlooker
from coordinator.learn.report import Report
from coordinator.learn.scratch import scratch_directory
from coordinator.learn.troupe import Actor
from coordinator.model.status import DEVELOPMENT

LEASE_S = 5.0
FREEZE_S = 6.0
LEASE_S_MIN = 2.0
"""Shorter leases would be lost to nothing but a busy machine; freezes are not scaled below it."""
LASTING_LEASE_S = 30.0
"""Outlasts an election, however long that takes on a busy machine: for stories about members."""
UNTIL_S = 60.0
FIRST_TOKEN = 33
"""As in the articles; a cluster that has changed more often gives higher ones."""
NAMES = ("A", "B")
_ASKED_TIMEOUT_S = 10.0
_JOIN_TIMEOUT_S = 3.0


class Members(Protocol):
    """The members of a development cluster that was started for the stories."""

    @property
    def ids(self) -> Sequence[str]:
        """The members' ids."""
        ...

    @property
    def can_cut(self) -> bool:
        """Whether links can be cut."""
        ...

    def is_running(self, member_id: str) -> bool:
        """Whether a member's process runs."""
        ...

    def start(self, member_id: str) -> None:
        """Start a member that does not run."""
        ...

    def kill(self, member_id: str) -> None:
        """Send SIGKILL to a member."""
        ...

    def cut(self, member_id: str) -> None:
        """Drop everything between this member and the others."""
        ...

    def heal(self) -> None:
        """Let everything through again."""
        ...


@dataclass(frozen=True, slots=True)
class Venue:
    """Where the stories play: which cluster, how fast, and what new processes do first."""

    endpoints: str
    urls: Mapping[str, str]
    dying: Callable[[], None]
    members: Members | None = None
    pace: float = 1.0

    def seconds(self, story_seconds: float) -> float:
        """Return how long ``story_seconds`` of the story take here."""
        return story_seconds * max(self.pace, LEASE_S_MIN / LEASE_S)


class Stage:
    """One run on a lock of its own; ``async with`` it."""

    def __init__(
        self,
        place: Venue,
        title: str,
        *,
        lock: str,
        has_actors: bool = True,
        lease_s: float | None = None,
        on_step: Sequence[Callable[[Step], None]] = (),
    ) -> None:
        self.place = place
        self.lock = lock
        self._names = NAMES if has_actors else ()
        self.is_fenced = True
        source = f"recorded on a cluster of {len(place.urls)}, lock {lock}"
        self.recorder = Recorder(SystemClock(), title, source)
        self.recorder.on_step.extend(on_step)
        self.actors: dict[str, Actor] = {}
        self.lease_s = place.seconds(LEASE_S) if lease_s is None else lease_s
        self._files = ExitStack()
        self.report: Report
        self._waking: dict[str, asyncio.Task[None]] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self.client: AsyncClient
        self.onlooker: Onlooker

    async def __aenter__(self) -> Stage:
        try:
            directory = self._files.enter_context(scratch_directory())
            self.report = Report(directory / "report.db")
            self.client = await connect(self.place.endpoints, timeout=_ASKED_TIMEOUT_S)
            self.onlooker = Onlooker(self.client, self.recorder, self.lock, self.place.urls)
            await self._begin()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._end()

    def film(self) -> Film:
        """Return what was recorded."""
        return self.recorder.film()

    @property
    def state(self) -> dict[str, Any]:
        """The state that is shown now."""
        return self.recorder.state

    # --- deeds

    def acquire(self, who: str) -> None:
        """Let ``who`` ask for the lock; it waits in the queue for its turn."""
        self._show(who, "asks for the lock", "asks")
        self.actors[who].cue("acquire", is_fenced=self.is_fenced)

    def write(self, who: str, *, question: Guess | None = None) -> None:
        """Let ``who`` write with its token; a frozen one does it first when it wakes."""
        actor = self.actors[who]
        if not actor.token:
            raise BadArgumentsError(f"write: expected {who} to have held the lock, found no token")
        text = f"{who} is to write 'by {who}'" + (" when it wakes" if actor.is_frozen else "")
        self.recorder.step(who, text + ".", question=question)
        actor.cue("write", value=f"by {who}", is_fenced=self.is_fenced)

    def release(self, who: str) -> None:
        """Let ``who`` give the lock back."""
        if not self.actors[who].token:
            raise BadArgumentsError(f"release: expected {who} to hold the lock, found no token")
        self.recorder.step(who, f"{who} releases.")
        self.actors[who].cue("release")

    def freeze(
        self, who: str, seconds: float = FREEZE_S, *, at_least_until: asyncio.Event | None = None
    ) -> None:
        """Stop the process of ``who`` (SIGSTOP), and wake it after so long.

        Args:
            at_least_until: wake it not before this either: on a busy machine others need longer.
        """
        actor = self.actors[who]
        if actor.is_frozen:
            raise BadArgumentsError(f"freeze: expected {who} to run, found it frozen")
        actor.freeze()
        text = f"is frozen for {self.place.seconds(seconds):g} s: SIGSTOP. No heartbeat leaves it"
        self._show(who, text, "frozen")
        self._waking[who] = asyncio.create_task(
            self._wake_after(who, self.place.seconds(seconds), at_least_until)
        )

    async def awake(self, who: str) -> None:
        """Wait until ``who`` has been woken."""
        await self._waking[who]

    def fence(self, is_fenced: bool) -> None:
        """Switch the check of tokens in the store on or off."""
        self.is_fenced = is_fenced
        word = "checks tokens" if is_fenced else "checks nothing: fencing is off"
        self.recorder.step("store", f"The store {word}.", {("store", "is_fenced"): is_fenced})

    def kill_leader(self, *, question: Guess | None = None) -> str:
        """Kill the member that leads (SIGKILL); return its id."""
        members, leader = self._members(), self.onlooker.leader_id
        if not leader:
            raise BadArgumentsError("kill: expected a leader, found none at the moment")
        text = f"Member {leader}, the leader, is killed: SIGKILL."
        self.recorder.step("cluster", text, question=question)
        members.kill(leader)
        return leader

    def cut(self, member_id: str) -> None:
        """Drop everything between this member and the others."""
        members = self._members()
        if not members.can_cut or member_id not in members.ids:
            can_cut = ", ".join(members.ids) if members.can_cut else "none here"
            raise BadArgumentsError(
                f"cut: expected a member whose links can be cut ({can_cut}), "
                f"found {member_id!r:.40}"
            )
        members.cut(member_id)
        self.recorder.step("cluster", f"Member {member_id} is cut off from the others.",
                           {("cut", member_id): True})  # fmt: skip

    def heal(self) -> None:
        """Heal every cut, and start every member that was killed."""
        members = self._members()
        members.heal()
        for member_id in members.ids:
            if not members.is_running(member_id):
                members.start(member_id)
        self.recorder.step("cluster", "Links are healed, and members that were killed start again.",
                           {("cut",): None})  # fmt: skip

    def explain(self, text: str, changes: Mapping[tuple[str, ...], Value] | None = None) -> None:
        """Record what is to be learned here."""
        self.recorder.step("lesson", text, changes)

    async def until(
        self, is_so: Callable[[dict[str, Any]], bool], what: str, within_s: float = UNTIL_S
    ) -> None:
        """Wait until the recorded state is so.

        Raises:
            UnavailableError: it is not within ``within_s``; says ``what`` was waited for.
        """
        try:
            async with asyncio.timeout(within_s):
                while not is_so(self.state):  # noqa: ASYNC110 - few wait, and for long
                    await asyncio.sleep(0.05)
        except TimeoutError:
            found = {name: self.state.get(name) for name in ("lock", "members")}
            raise UnavailableError(
                f"expected {what} within {within_s:g} s, found {found}"
            ) from None

    # --- inside

    def _members(self) -> Members:
        if self.place.members is None:
            raise BadArgumentsError(
                "members: expected a cluster that coordinator learn has started, found one that "
                "it joined; those members are not its own"
            )
        return self.place.members

    async def _begin(self) -> None:
        if not self._names:
            await self.onlooker.start(await self._zxid())
            return
        with_filler = await self._fill_up_to(FIRST_TOKEN - 1 - len(self._names))
        await self._start_actors()
        await self._fill_up_to(FIRST_TOKEN - 1)
        zxid = await self._zxid()
        self.report.create("empty", zxid)
        filled = " (it was changed until its next token is that of the articles)"
        self.recorder.step(
            "cluster",
            f"The lock is free. The next change of the cluster is zxid {zxid + 1}, so that is the "
            f"next fencing token{filled if with_filler else ''}. A lease lasts {self.lease_s:g} s.",
            {
                ("lock", "name"): self.lock,
                ("lock", "lease_ms"): round(self.lease_s * 1_000),
                ("lock", "queue"): [],
                ("next_token",): zxid + 1,
                ("zxid",): zxid,
                ("store", "value"): "empty",
                ("store", "highest_token"): zxid,
                ("store", "is_fenced"): True,
                **{("clients", name, "state"): "idle" for name in self._names},
            },
        )
        await self.onlooker.start(zxid)

    async def _start_actors(self) -> None:
        for name in self._names:
            self.actors[name] = Actor(name, self._on_line)
        await asyncio.gather(*(
            actor.start(self.place.endpoints, self.lock, str(self.report.path), self.lease_s,
                        self.place.dying)
            for actor in self.actors.values()
        ))  # fmt: skip
        self.onlooker.names.update({each.session_id: each.name for each in self.actors.values()})

    async def _fill_up_to(self, zxid: int) -> bool:
        """Change the cluster until it is at ``zxid``; return whether it was below."""
        found = await self._zxid()
        if found >= zxid:
            return False
        with suppress(NodeExistsError):
            found = (await self.client.create("/learn-filler")).stat.czxid
        while found < zxid:
            found = (await self.client.set("/learn-filler", b"")).stat.mzxid
        return True

    async def _zxid(self) -> int:
        """Return the zxid of the last change; a member's status may not have seen it yet."""
        return (await self.client.subtree("/learn-filler", limit=0)).zxid

    async def _end(self) -> None:
        for task in (*self._waking.values(), *self._reading):
            task.cancel()
        await asyncio.gather(*(each.stop() for each in self.actors.values()))
        if hasattr(self, "onlooker"):
            await self.onlooker.stop()
        if hasattr(self, "client"):
            await self.client.close()
        self._files.close()

    async def _wake_after(
        self, who: str, seconds: float, at_least_until: asyncio.Event | None
    ) -> None:
        await asyncio.sleep(seconds)
        if at_least_until is not None:
            await at_least_until.wait()
        self._show(who, "wakes: SIGCONT", "awake")
        self.actors[who].wake()

    def _show(self, who: str, text: str, state: str) -> None:
        self.recorder.step(who, f"{who} {text}.", {("clients", who, "state"): state})

    def _on_line(self, actor: Actor, line: dict[str, Any]) -> None:
        who, what = actor.name, line["what"]
        client = ("clients", who)
        if what == "holds":
            token = line["token"]
            changes: dict[tuple[str, ...], Value] = {
                (*client, "state"): "holds", (*client, "token"): token
            }  # fmt: skip
            self.recorder.step(who, f"{who} holds the lock: fencing token {token}.", changes)
            self._read_report("", {})
        elif what == "wrote":
            how = f"with token {line['token']}" if self.is_fenced else "(no token is looked at)"
            self._read_report(f"{who} writes '{line['value']}' {how}: taken.", {})
        elif what == "refused":
            self._refused(who, line)
        elif what == "lost":
            text = f"{who} learns that it lost the lock: {line['why']}"
            self.recorder.step(who, text, {(*client, "state"): "lost"})
        elif what == "released":
            word = "has given the lock back" if line["was_held"] else "had nothing to give back"
            self.recorder.step(who, f"{who} {word}.", {(*client, "state"): "idle"})

    def _refused(self, who: str, line: dict[str, Any]) -> None:
        token, highest = self.actors[who].token, self._highest_token()
        if line["code"] == "StaleToken":
            shield = f"BLOCKED {token} < {highest}"
            self._read_report(f"{who} writes with token {token}: {line['message']}",
                              {("store", "shield"): shield})  # fmt: skip
        else:
            self.recorder.step(who, f"{who} is refused: {line['code']}: {line['message']}",
                               {("clients", who, "state"): "refused"})  # fmt: skip

    def _highest_token(self) -> int:
        return self.report.read()[1]

    def _read_report(self, text: str, changes: Mapping[tuple[str, ...], Value]) -> None:
        value, highest = self.report.read()
        holder = self.state.get("lock", {}).get("holder")
        shown: dict[tuple[str, ...], Value] = {
            ("store", "value"): value,
            ("store", "highest_token"): highest,
            **changes,
        }
        if text and ("store", "shield") not in shown:
            shown["store", "shield"] = None
        if text and holder is not None and value == f"by {_other(holder)}":
            shown["store", "damage"] = f"{holder} holds the lock, and its work is lost"
        if text:
            self.recorder.step("store", text, shown)
        else:
            self.recorder.sample(shown)


def _other(who: str) -> str:
    return NAMES[1 - NAMES.index(who)] if who in NAMES else ""


async def development_members(endpoints: str) -> dict[str, str]:
    """Return the URL of each member of the development cluster at ``endpoints``, by its id.

    A development cluster has the name that ``coordinator dev`` gives it, and all of its members on
    this machine.

    Raises:
        BadArgumentsError: it is none: no story plays on it.
        UnavailableError: it does not answer.
    """
    async with connect(endpoints, timeout=_JOIN_TIMEOUT_S) as client:
        status = await client.status()
    if status.cluster != DEVELOPMENT:
        raise BadArgumentsError(
            f"expected a development cluster (named {DEVELOPMENT}), found one named "
            f"{status.cluster!r}; stories never play on another"
        )
    for member in status.members:
        host = member.client_url.partition("://")[2].rpartition(":")[0]
        if host not in ("127.0.0.1", "localhost", "[::1]"):
            raise BadArgumentsError(
                f"expected all members on this machine, found member {member.member_id} at {host}; "
                f"stories never play on others"
            )
    return {member.member_id: member.client_url for member in status.members}
