"""What a trace of the service says: entries as they are committed, answers, events and queues.

Of an error its class is said and what a program would read, never its message: to reword a message
must not touch a trace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.errors import CoordinatorError
from coordinator.model.events import Bookmark, Resync
from coordinator.model.grants import GrantReply
from coordinator.model.sessions import SessionLease
from coordinator.model.views import LockView
from coordinator.node.config import Config
from coordinator.raft.engine import Applied
from coordinator.service.reads.reads import ReadReply
from coordinator.service.watches.watch_stream import WatchItem
from coordinator.state import commands as do
from coordinator.state.codec import decode_command
from coordinator.state.outcomes import Outcome, SessionEnded
from tests.service.fake_cluster import World


def shown_operation(operation: do.Operation | do.ZnodeOperation) -> str:
    """Return what is asked of the machine, in words."""
    match operation:
        case do.Create(path, _, mode, session_id):
            owner = "" if session_id is None else f" of {session_id}"
            return f"create {path} {mode}{owner}"
        case do.OpenSession(session_id, timeout_ms):
            return f"open {session_id} for {timeout_ms} ms"
        case do.CloseSession(session_id):
            return f"close {session_id}"
        case do.ExpireSession(session_id, term, silent_ms):
            return f"expire {session_id}, silent for {silent_ms} ms, in term {term}"
        case do.Enter(directories, _, kind, session_id):
            how = "try" if operation.is_try else "enter"
            return f"{how} {', '.join(directories)} {kind} of {session_id}"
        case do.Downgrade(path, czxid) | do.EndHold(path, czxid) | do.Reopen(path, czxid):
            verb = {"EndHold": "end hold"}.get(type(operation).__name__)
            return f"{verb or type(operation).__name__.lower()} {path} of czxid {czxid}"
        case do.ExtendHold(path, czxid, by_ms, to_ms):
            return f"extend {path} of czxid {czxid} by {by_ms} ms, to {to_ms} ms"
        case do.Resize(directory, size):
            return f"resize {directory} to {size}"
        case do.Revoke(path, czxid):
            return f"revoke {path} of czxid {czxid}"
        case do.Release(path, czxid):
            return f"release {path} of czxid {czxid}"
        case do.Abandon(client_id, number):
            # Attempts without a request number get one from their member, of random letters.
            return f"abandon {client_id.partition('-')[0]}:{number}"
        case do.Multi(operations):
            return f"multi: {', '.join(shown_operation(each) for each in operations)}"
        case do.Guarded(_, then):
            return f"guarded: {', '.join(shown_operation(each) for each in then)}"
        case do.SetLimits(values):
            return f"set limits {', '.join(f'{name}={value}' for name, value in values)}"
        case do.SetLevel(level):
            return f"set level {level}"
        case do.SetData() | do.Delete() | do.Check() | do.Read() | do.Reap():
            return f"{type(operation).__name__.lower().removesuffix('data')} {operation.path}"
    raise AssertionError(f"no words for {operation}")


def shown_outcome(outcome: Outcome, zxid_before: int) -> str:
    if outcome.refusal is not None:
        return f"refused, {outcome.refusal.code}"
    if isinstance(outcome.result, SessionEnded) and outcome.result.is_void:
        return "void"
    if outcome.is_repeat:
        return "the same again"
    return "nothing changed" if outcome.zxid == zxid_before else f"zxid {outcome.zxid}"


def shown_error(error: CoordinatorError) -> str:
    said = [type(error).__name__]
    if not error.definite:
        said.append("nobody knows")
    for name in ("floor_zxid", "position"):
        if error.fields.get(name) is not None:
            said.append(f"{name} {error.fields[name]}")
    if error.fields.get("holder"):
        said.append(f"holder {error.fields['holder']['grant_id']}")
    return ", ".join(said)


def shown_item(item: WatchItem) -> str:
    if isinstance(item, Bookmark):
        return f"bookmark, zxid {item.zxid}"
    if isinstance(item, Resync):
        return f"resync, zxid {item.zxid}"
    events = ", ".join(f"{event.type} {event.path}" for event in item.events)
    return f"zxid {item.zxid}: {events}"


def shown_queue(reply: ReadReply[LockView]) -> str:
    view = reply.value
    holders, waiting = [
        ", ".join([f"{each.session_id} ({each.grant_id})" for each in some]) or "nobody"
        for some in (view.holders, view.queue)
    ]
    closed = "" if view.closed is None else f"; closed for {view.closed.remaining_ms} ms"
    return f"held by {holders}; waiting: {waiting}{closed}"


def shown_grant(grant: GrantReply) -> str:
    """Return a grant in words; of a multi-lock, all its paths."""
    paths = ", ".join([each.path for each in grant.grants]) or grant.path
    said = f"granted {paths}, {grant.grant_id}, token {grant.fencing_token}"
    before = grant.previous
    is_news = before is not None and before.how not in ("released", "abandoned", "closed")
    return said + (f"; before: {before.grant_id} {before.how}" if before and is_news else "")


def shown_ack(ack: SessionLease) -> str:
    said = [f"lives for {ack.timeout_ms} ms more"]
    said += [f"{path} for {left_ms} ms" for path, left_ms in ack.holds.items()]
    said += [f"lost {each.path}, {each.how}" for each in ack.lost]
    return "; ".join(said)


class TracedWorld(World):
    """Tells of every entry that is committed, counted behind the first, which sets the limits."""

    def __init__(self, count: int, config: Config, note: Callable[[str], None]) -> None:
        super().__init__(count, config)
        self._note = note

    def commit(self, command: bytes, answer: asyncio.Future[Applied] | None = None) -> None:
        zxid = max(member.labels()[1] for member in self.members.values())
        answer = answer or asyncio.get_running_loop().create_future()
        super().commit(command, answer)
        what = shown_operation(decode_command(command).operation)
        came_to = shown_outcome(answer.result().result, zxid) if answer.done() else "not applied"
        self._note(f"entry {len(self.log) - 1}, {what}: {came_to}")
