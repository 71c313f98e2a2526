"""What a trace of the engine says: messages in words, and what has changed at the members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from coordinator.errors import CoordinatorError
from coordinator.raft.entries import FOUNDING, NO_OP, unpack_group
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from tests.raft.simulated_cluster import Member


def shown_entry(index: int, term: int, entry: bytes) -> str:
    if entry[:1] == FOUNDING:
        return f"{index}/{term} founding"
    if entry == NO_OP:
        return f"{index}/{term} no-op"
    commands = b" ".join(unpack_group(entry[1:])).decode()
    return f"{index}/{term} [{commands}]"


def shown_message(message: Message) -> str:
    """Return a message in words; an entry is ``index/term``."""
    match message:
        case say.Append(term, epoch, commit_index, prev_index, prev_term, entries):
            numbered = enumerate(entries, prev_index + 1)
            shown = ", ".join(shown_entry(index, at, entry) for index, (at, entry) in numbered)
            return (
                f"Append term {term}, epoch {epoch}, after {prev_index}/{prev_term}: "
                f"{shown or 'nothing'}; commit {commit_index}"
            )
        case say.Appended(term, epoch, next_index, is_success):
            what = "holds all before" if is_success else "refused, wants"
            return f"Appended term {term}, epoch {epoch}: {what} {next_index}"
        case say.CommitNotice(term, commit_index):
            return f"CommitNotice term {term}: commit {commit_index}"
        case say.Probe(term, number) | say.ProbeReply(term, number):
            return f"{type(message).__name__} term {term}, round {number}"
        case say.VoteRequest(term, index, last) | say.PreVoteRequest(term, index, last):
            return f"{type(message).__name__} term {term}, last entry {index}/{last}"
        case say.VoteGrant(term) | say.PreVoteGrant(term) | say.TermNotice(term):
            return f"{type(message).__name__} term {term}"
        case say.TermQuestion(_):
            return "TermQuestion"
        case say.TermAnswer(_, term):
            return f"TermAnswer term {term}"
        case say.StandNow(term):
            return f"StandNow term {term}"
        case say.LogLost(term, index):
            return f"LogLost term {term}: entries up to {index}"
        case say.SnapshotPiece(term, index, total, _, offset, data):
            end = offset + len(data)
            return f"SnapshotPiece term {term}, at entry {index}: bytes {offset}-{end} of {total}"
        case say.SnapshotReply(term, index, offset, is_installed):
            what = "installed" if is_installed else f"wants byte {offset}"
            return f"SnapshotReply term {term}, at entry {index}: {what}"
        case say.MemberRequest(_, kind, payload):
            return f"Request {kind} {payload.decode()}".rstrip()
        case say.Reply(_, status, code, payload):
            return f"Reply {status} {code}".rstrip()
    shown = ", ".join(f"{name} {value}" for name, value in message._asdict().items())
    return f"{type(message).__name__} {shown}".rstrip()


class Record:
    """What has happened since it was last printed, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.members: Sequence[Member] = ()
        self._known: dict[str, dict[str, str]] = {}
        self._last: dict[tuple[str, str, type], tuple[Message, str]] = {}
        self._began = asyncio.get_running_loop().time()
        self._open: tuple[str, str, str] | None = None

    @property
    def known(self) -> dict[str, dict[str, str]]:
        """What has been noted of the members."""
        return dict(self._known)

    def sum_up(self, known: dict[str, dict[str, str]]) -> None:
        """Forget what happened since ``known``; note only what it has come to."""
        self.lines.clear()
        self._known = known

    def taken(self) -> list[str]:
        self.look()
        lines, self.lines, self._open = self.lines, [], None
        return lines

    def note(self, text: str) -> None:
        self.look()
        self._put(text)

    def message(self, source: str, target: str, message: Message, fate: str) -> None:
        self.look()
        if self._is_old_news(source, target, message, fate):
            return
        behind = (self._now(), source, shown_message(message) + (fate and f" ({fate})"))
        if self._open == behind:  # the same to several, at once
            at, _, rest = self.lines[-1].partition(" " + behind[2])
            self.lines[-1] = f"{at},{target} {behind[2]}{rest}"
        else:
            self._put(f"{source}>{target} {behind[2]}")
            self._open = behind

    def look(self) -> None:
        """Note what has changed at the members."""
        told: dict[str, list[str]] = {}
        for member in self.members:
            facts = facts_of(member)
            known = self._known.get(member.member_id, {"role": "down"})
            news = [text for name, text in facts.items() if known.get(name) != text]
            if news:
                self._known[member.member_id] = facts
                told.setdefault(", ".join(news), []).append(member.member_id)
        for text, member_ids in told.items():
            self._put(f"{','.join(member_ids)}: {text}")

    def _put(self, text: str) -> None:
        self._open = None
        self.lines.append(f"{self._now()}  {text}")

    def _now(self) -> str:
        # A hair more: sums of floats, and a message a microsecond behind another.
        passed_ms = (asyncio.get_running_loop().time() - self._began) * 1000 + 0.01
        return f"{int(passed_ms):6}"

    def _is_old_news(self, source: str, target: str, message: Message, fate: str) -> bool:
        if isinstance(message, say.Append):
            if message.entries:
                return False
            if not fate and self._tells_nothing(source, target, message):
                return True
        kind = (source, target, type(message))
        is_repeated = self._last.get(kind) == (message, fate)
        self._last[kind] = (message, fate)
        return is_repeated

    def _tells_nothing(self, source: str, target: str, message: say.Append) -> bool:
        (member,) = (each for each in self.members if each.member_id == target)
        status = member.engine.status()
        last = tuple(member.engine._log[-1][1:])
        return (
            (status.leader_id, status.term) == (source, message.term)
            and last == (message.prev_index, message.prev_term)
            and status.commit_index >= message.commit_index
        )


def facts_of(member: Member) -> dict[str, str]:
    """Return what is shown of a member, in words."""
    if member.engine is None or not (member.is_up or member.failures):
        return {"role": "down"}
    if member.failures:
        return {"role": f"stopped for good, {type(member.failures[0]).__name__}"}
    status = member.engine.status()
    role = str(status.role)
    if role == "follower":
        role = f"follower of {status.leader_id or 'nobody'}"
    return {
        "role": f"{role} in term {status.term}",
        "log": f"log {status.last_index}",
        "commit": f"commit {status.commit_index}",
        "applied": f"applied {status.applied_index}",
    }


def shown_error(error: CoordinatorError) -> str:
    is_certain = "certainly not done" if error.definite else "nobody knows"
    return f"failed: {type(error).__name__}, {is_certain}"
