"""What the omniscient observer writes down: the trace, the one log, and what was seen broken.

The *log* is the order of the server: what the first member to apply an entry made of it. Every
other application of the same entry, in any life of any member, must be equal to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from coordinator.model.events import EventType
from coordinator.raft.engine import Replace, Replica
from coordinator.service.base.replica import MachineReplica
from coordinator.state.codec import decode_command
from coordinator.state.commands import Command, Enter, ExpireSession, OpenSession
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, SessionEnded
from coordinator.state.session_operations import opened_by
from tests.met import Met
from tests.simulation.lock_model import BY_OTHERS, LockModel
from tests.simulation.log import CLOCK_RATE_LEAST, Entry

DIGEST_EVERY_ENTRIES = 128
HELD = "held"
"""Who applies what nobody had, when a cluster begins again with it: no quorum has stored it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that was broken: which, how, when (simulated seconds)."""

    promise: str
    what: str
    at_s: float

    def __str__(self) -> str:
        return f"[{self.at_s:10.4f}] {self.promise}: {self.what}"


class Trace:
    """Lines of what happened; equal traces mean equal runs."""

    def __init__(self, now_s: Any, keep: int | None) -> None:
        self._now_s = now_s
        self._hash = sha256()
        self.lines: deque[str] = deque(maxlen=keep)
        self.line_total = 0

    def add(self, who: str, what: str) -> None:
        line = f"{self._now_s():10.4f} {who:<8} {what}"
        self._hash.update(line.encode("utf-8", "backslashreplace") + b"\n")
        self.lines.append(line)
        self.line_total += 1

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


@dataclass
class Tally:
    """What a run was made of."""

    operations: int = 0
    unknown: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    grants: int = 0
    locks: dict[str, int] = field(default_factory=dict)
    """What happened to locks of which kind, by the log."""
    deeds: Met = field(default_factory=Met)
    """What clients did, by what it came to for them."""
    events: int = 0
    expiries: int = 0
    snapshots_installed: int = 0
    stops: int = 0
    """Orderly ones, to their end."""
    reached: int = 0
    """Reads at least as new as asked for that were answered."""
    elections: int = 0
    lost: int = 0
    """Commands that a cluster that was begun again does not know."""


@dataclass(frozen=True, slots=True)
class BegunAgain:
    """That a cluster began again after so many commands of the log, of which nobody had applied the
    last (``held``): zxids after ``zxid`` and up to ``first_zxid`` are lost, or were skipped; no
    sequence number is below ``first_sequence`` any more."""

    kept: int
    held: int
    zxid: int
    first_zxid: int
    first_sequence: int


class Record:
    """Everything that is judged during the run or at its end."""

    def __init__(self, now_s: Any, *, keep_lines: int | None = 400) -> None:
        self.now_s = now_s
        self.trace = Trace(now_s, keep_lines)
        self.tally = Tally()
        self.log: list[Entry] = []
        self.locks = LockModel()
        """The queues at the end of the log."""
        self.violations: list[Violation] = []
        self.ended_sessions: dict[str, float] = {}
        """Sessions that the server expired, and when."""
        self.ephemerals: dict[str, str] = {}
        """The owner of each ephemeral znode that stands at the end of the log."""
        self.on_expired: list[Any] = []
        self.on_entry: list[Callable[[int, int, bytes], None]] = []
        """Told index, term and first command of each entry when anybody applies it first."""
        self.on_bound_over: list[Callable[[tuple[str, ...]], None]] = []
        """Told the contenders of each hold that its bound has ended."""
        self.on_snapshot: list[Callable[[str], None]] = []
        self.on_violation: list[Callable[[], object]] = []
        self.on_applied: list[Callable[[str, StateMachine, Command, Outcome], None]] = []
        """Told each application of each life of a member, with its state after it."""
        self.on_restored: list[Callable[[str, StateMachine], None]] = []
        self.restored_zxids: set[int] = set()
        """Of each snapshot that some life of a member began with: its history begins there."""
        self.history_changes_max = 0
        """How many changes each member keeps at the least."""
        self.timeouts_s: dict[str, float] = {}
        """Of every session that was ever opened."""
        self._over: set[str] = set()
        """The sessions that were ended, in whatever way."""
        self.acknowledged: dict[str, float] = {}
        """When the last acknowledged heartbeat of each session arrived at a member."""
        self._places: dict[tuple[int, int], Entry] = {}
        self._digests: dict[tuple[int, int], str] = {}
        self.lost: list[Entry] = []
        """What was applied, and is unknown to the cluster since it was begun again."""
        self.begun_again: list[BegunAgain] = []
        self.differing: set[str] = set()
        """Lives of members whose memory was changed by hand."""
        self.expiries_proposed: dict[tuple[str, str], float] = {}
        """When the end of a session was proposed last, or tried to be: by life and session."""
        self.ends_proposed: dict[tuple[str, str, int], float] = {}
        """When a member's life last proposed to end a bounded hold, or to reopen a queue."""
        self.learned_s: dict[tuple[str, str], float] = {}
        """When each life of a member applied the entry that granted to a contender."""
        self._leaders: dict[int, str] = {}
        self._promised_s: dict[str, float] = {}
        """Until when a bounded hold lasts at the least, as an acknowledged heartbeat said."""
        self._bounds_over: dict[str, float] = {}
        self._taken: dict[str, list[tuple[int, float]]] = {}
        """The tokens of the grants that each session lost while it lived, and when."""

    def violate(self, promise: str, what: str) -> None:
        self.violations.append(Violation(promise, what, self.now_s()))
        self.trace.add("!!!", f"{promise}: {what}")
        for listener in self.on_violation:
            listener()

    def count_fault(self, name: str) -> None:
        self.tally.faults[name] = self.tally.faults.get(name, 0) + 1
        self.trace.add("fault", name)

    def note_applied(
        self, who: str, index: int, part: int, term: int, payload: bytes, outcome: Outcome
    ) -> None:
        known = self._places.get((index, part))
        if known is None:
            self._extend(who, index, part, term, payload, outcome)
        elif known.payload != payload or known.term != term:
            self.violate(
                "one log",
                f"{who} applied another command at {index}.{part}: term {term} {payload[:80]!r}, "
                f"first was term {known.term} {known.payload[:80]!r}",
            )
        elif known.outcome != outcome:
            self.violate(
                "equal outcomes",
                f"{who} at {index}.{part}: {outcome}, first was {known.outcome}",
            )

    def _extend(
        self, who: str, index: int, part: int, term: int, payload: bytes, outcome: Outcome
    ) -> None:
        if self.log and (index, part) < (self.log[-1].index, self.log[-1].part):
            self.violate("one log", f"{who} applied {index}.{part} that all others skipped")
        command = decode_command(payload)
        entry = Entry(index, part, term, payload, command, outcome, self.now_s())
        if part == 0 and who != HELD:
            for told in self.on_entry:
                told(index, term, payload)
        refusal = "" if outcome.refusal is None else f" refused {outcome.refusal.code}"
        repeat = " again" if outcome.is_repeat else ""
        name = type(command.operation).__name__
        self.trace.add(who, f"log {index}.{part} {name} zxid {outcome.zxid}{refusal}{repeat}")
        for promise, what in self._follow(entry):
            self.violate(promise, what)
        over = self._follow_grants(entry)
        for path in over:
            self._check_bound(path)
        if over:
            for listener in self.on_bound_over:
                listener(tuple(over))
        ended = self._follow_sessions(entry)
        if ended is not None:
            self.tally.expiries += 1
            self._check_lease(ended)
            for listener in self.on_expired:
                listener(ended)

    def _follow(self, entry: Entry) -> Iterator[tuple[str, str]]:
        """Put it at the end of the log; iterate over what is wrong with it."""
        self._places[entry.index, entry.part] = entry
        self.log.append(entry)
        for event in () if entry.outcome.is_repeat else entry.outcome.events:
            if event.type is EventType.CREATED and event.ephemeral_owner is not None:
                self.ephemerals[event.path] = event.ephemeral_owner
            elif event.type is EventType.DELETED:
                self.ephemerals.pop(event.path, None)
        yield from self.locks.apply(entry)

    def _follow_sessions(self, entry: Entry) -> str | None:
        """Note what is opened; return the session that this entry expired."""
        command, outcome = entry.command, entry.outcome
        result = outcome.result
        opened = opened_by(command.operation, result)
        if opened is not None and not outcome.is_repeat:
            opening = command.operation
            if isinstance(opening, Enter):
                assert opening.opening is not None, "it opened a session"
                opening = opening.opening
            assert isinstance(opening, OpenSession), "nothing else opens one"
            self.timeouts_s.setdefault(opened, opening.timeout_ms / 1000)
        if not (isinstance(result, SessionEnded) and result.was_open):
            return None
        self._over.add(result.session_id)
        if not isinstance(command.operation, ExpireSession):
            return None
        self.ended_sessions[result.session_id] = entry.at_s
        return result.session_id

    def cut_back(self, index: int) -> list[Entry]:
        """Go on as if nothing had been applied behind the entry at ``index``; return what was."""
        everything = self.log
        lost = [each for each in everything if each.index > index]
        tally, self.locks, self.log = self.locks.tally, LockModel(), []
        for known in (
            self.ephemerals, self.ended_sessions, self._places, self._bounds_over, self._taken,
            self._leaders, self._over,
        ):  # fmt: skip
            known.clear()
        for entry in everything[: len(everything) - len(lost)]:
            list(self._follow(entry))  # what was wrong with it has been said
            self._follow_grants(entry)
            self._follow_sessions(entry)
        self.locks.tally = tally
        # The last of them may have another zxid from now on.
        self._digests = {at: each for at, each in self._digests.items() if at[0] < index}
        places = self.locks.places
        self._promised_s = {at: each for at, each in self._promised_s.items() if at in places}
        self.lost += lost
        return lost

    def is_lost(self, token: int) -> bool:
        """Whether a grant of this token may be unknown to the cluster since it began again."""
        return any(each.zxid < token <= each.first_zxid for each in self.begun_again)

    def note_compacted(self, asked_zxid: int, floor_zxid: int) -> None:
        """A watch from ``asked_zxid`` on is refused by a member whose history begins later."""
        newer = sum(e.outcome.zxid > asked_zxid and bool(e.outcome.events) for e in self.log)
        is_full = newer > self.history_changes_max
        if floor_zxid <= asked_zxid or not (is_full or floor_zxid in self.restored_zxids):
            self.violate(
                "watches",
                f"Compacted from {asked_zxid}: a history that begins at {floor_zxid}, of no "
                f"snapshot, though there were {newer} changes since and "
                f"{self.history_changes_max} are kept",
            )

    def note_heartbeat(self, session_id: str, arrived_s: float) -> None:
        """A member acknowledges a heartbeat that arrived at its door then."""
        known_s = self.acknowledged.get(session_id, 0.0)
        self.acknowledged[session_id] = max(known_s, arrived_s)
        self._check_lease(session_id)

    def note_said_ended(self, session_id: str) -> None:
        """A member says that this session has ended, or never was."""
        if self.begun_again:
            return  # its opening may have been lost
        if session_id in self.timeouts_s and session_id not in self._over:
            self.violate(
                "no session ends early",
                f"session {session_id} is said to have ended, and nothing in the log has ended it",
            )

    def _check_lease(self, session_id: str) -> None:
        """A session that was expired lived for its full timeout after what was acknowledged."""
        ended_s, arrived_s = self.ended_sessions.get(session_id), self.acknowledged.get(session_id)
        if ended_s is None or arrived_s is None:
            return
        least_s = self.timeouts_s[session_id] * CLOCK_RATE_LEAST
        if ended_s < arrived_s + least_s:
            self.violate(
                "no session ends early",
                f"{session_id} was expired at {ended_s:.4f}, {ended_s - arrived_s:.4f} s after the "
                f"arrival of a heartbeat that was acknowledged at {self.now_s():.4f}; its timeout "
                f"is {self.timeouts_s[session_id]} s",
            )

    def _follow_grants(self, entry: Entry) -> list[str]:
        """A hold that the latest entry ended while its session lives: who must know it by when.

        Return the contenders whose bound is over."""
        over: list[str] = []
        for ended in self.locks.ended:
            place = ended.place
            is_taken = ended.how in BY_OTHERS or ended.how == "max_hold"
            if not is_taken or place.session_id is None:
                continue
            self._taken.setdefault(place.session_id, []).append((place.czxid, entry.at_s))
            if ended.how == "max_hold":
                over.append(place.path)
                self._bounds_over[place.path] = entry.at_s
        return over

    def note_lease(
        self, session_id: str, arrived_s: float, holds: Mapping[str, int], lost: Iterable[int]
    ) -> None:
        """What a member says with an acknowledged heartbeat of the grants of its session."""
        for path, left_ms in holds.items():
            until_s = arrived_s + CLOCK_RATE_LEAST * left_ms / 1000
            self._promised_s[path] = max(until_s, self._promised_s.get(path, 0.0))
            self._check_bound(path)
        told = set(lost)
        for token, at_s in self._taken.get(session_id, ()):
            if at_s < arrived_s and token not in told:
                self.violate(
                    "the holder is told",
                    f"a heartbeat of {session_id} that came at {arrived_s:.4f} was acknowledged "
                    f"without a word of token {token}, taken at {at_s:.4f}",
                )

    def check_late_word(self, who: str, paths: Iterable[str]) -> None:
        """A member that lets somebody wait tells no grant that had ended before it heard of it.

        It learns that from a quorum, which it asks after it has applied the entry that grants.
        """
        for path in paths:
            learned_s, ended_s = self.learned_s.get((who, path)), self.locks.ended_s.get(path)
            if learned_s is not None and ended_s is not None and ended_s < learned_s:
                self.violate(
                    "one holder",
                    f"{who} tells that {path} holds, which it learned at {learned_s:.4f}; that "
                    f"had ended at {ended_s:.4f}",
                )

    def _check_bound(self, path: str) -> None:
        """A bounded hold lasts as long as its holder was told that it does."""
        over_s, promised_s = self._bounds_over.get(path), self._promised_s.get(path)
        if over_s is not None and promised_s is not None and over_s < promised_s:
            self.violate(
                "bounded holds",
                f"{path} was ended at {over_s:.4f}; a heartbeat promised {promised_s:.4f}",
            )

    def note_digest(self, who: str, place: tuple[int, int], digest: str) -> None:
        """Digests at one place of the log must be equal on all members."""
        if who in self.differing:
            return
        known = self._digests.setdefault(place, digest)
        if known != digest:
            self.violate("equal digests", f"{who} at {place}: {digest}, another had {known}")

    def parts_at(self, index: int) -> int:
        """Return of how many commands the entry at ``index`` consists."""
        parts = 0
        while (index, parts) in self._places:
            parts += 1
        return parts

    def last_part_in(self, index: int, zxid: int) -> int:
        """Return the last part of the entry at ``index`` that a state with ``zxid`` has in it.

        Of the last entry that a cluster keeps when it begins again, a member of the former life has
        not what was held with it.
        """
        part = -1
        while (known := self._places.get((index, part + 1))) and known.outcome.zxid <= zxid:
            part += 1
        return part

    def note_leader(self, member_id: str, term: int) -> None:
        self.tally.elections += 1
        known = self._leaders.setdefault(term, member_id)
        if known != member_id:
            self.violate("one leader", f"members {known} and {member_id} lead in term {term}")


class ObservedReplica:
    """A member's replica, with every application told to the record."""

    def __init__(self, replica: Replica, record: Record, who: str) -> None:
        assert isinstance(replica, MachineReplica)
        self._replica = replica
        self._record = record
        self._who = who
        self._place = (0, 0)

    def apply(self, index: int, term: int, command: bytes) -> Any:
        last_index, last_part = self._place
        part = last_part + 1 if index == last_index else 0
        if index < last_index:
            self._record.violate("one log", f"{self._who} applied {index} after {last_index}")
        if index != last_index and index // DIGEST_EVERY_ENTRIES > (
            last_index // DIGEST_EVERY_ENTRIES
        ):
            self._note_digest()
        self._place = (index, part)
        outcome = self._replica.apply(index, term, command)
        self._record.note_applied(self._who, index, part, term, command, outcome)
        if self._record.on_applied:
            decoded = decode_command(command)
            for told in self._record.on_applied:
                told(self._who, self._replica.machine, decoded, outcome)
        if not outcome.is_repeat:
            for path in outcome.granted:
                self._record.learned_s[self._who, path] = self._record.now_s()
        return outcome

    def snapshot(self) -> Iterator[bytes]:
        self._note_digest()
        self._record.trace.add(self._who, f"snapshot at {self._place}")
        for listener in self._record.on_snapshot:
            listener(self._who)
        return self._replica.snapshot()

    def prepare_restore(self, pieces: Iterable[bytes]) -> Replace:
        replace_state = self._replica.prepare_restore(pieces)

        def replace(*, is_needed: bool = True) -> None:
            replace_state(is_needed=is_needed)
            if is_needed:
                self._note_restored()

        return replace

    def _note_restored(self) -> None:
        machine = self._replica.machine
        index = machine.applied_index
        self._place = (index, self._record.last_part_in(index, machine.zxid))
        self._record.tally.snapshots_installed += 1
        self._record.trace.add(self._who, f"restored at {self._place}")
        self._record.restored_zxids.add(machine.zxid)
        for told in self._record.on_restored:
            told(self._who, machine)
        self._note_digest()

    def _note_digest(self) -> None:
        if self._place != (0, 0):
            digest = self._replica.machine.digest()
            self._record.note_digest(self._who, self._place, digest)
