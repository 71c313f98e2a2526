"""The inbox of a member: connections and messages of others, as the transport reports them.

1. A message about the log goes to consensus only if its sender has shown on which copy of its data
   it runs (``incarnations``). Pre-votes promise nothing, and pass.
2. A message with an impossible term is dropped, with its connection, unless enough other members
   have named such a term (``term_bounds``).
3. An error raised here stops the member: it is a broken invariant, or the disk.
"""

from __future__ import annotations

from collections.abc import Callable

from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from coordinator.raft.network.rpc import RequestDesk
from coordinator.raft.passes import Passes
from coordinator.raft.term_bounds import NamedTerms, highest_term, why_not_believed

_ABOUT_INCARNATIONS = (
    say.Incarnation, say.IncarnationSeen, say.IncarnationLost, say.Doubt, say.Vouch,
)  # fmt: skip
_ROUTINE = (say.Append, say.Appended, say.CommitNotice, say.Probe, say.ProbeReply)
"""Kinds that often change nothing: heartbeats, and late acknowledgements of what is committed."""
_ABOUT_VOTES_TO_COME = (say.PreVoteRequest, say.PreVoteGrant)


class Inbox:
    """One member's ``TransportListener``.

    Args:
        passes: the run loop's, and the parts that messages are for.
        on_lie: called with a member that sent something impossible, and what it was.
    """

    def __init__(
        self,
        desk: RequestDesk,
        passes: Passes,
        *,
        member_count: int,
        is_running: Callable[[], bool],
        may_install: Callable[[], bool],
        on_lie: Callable[[str, str], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._desk = desk
        self._consensus = passes.consensus
        self._snapshots = passes.snapshots
        self._incarnations = passes.incarnations
        self._on_heard = passes.on_heard
        self._named = NamedTerms(member_count)
        self._is_running = is_running
        self._may_install = may_install
        self._on_lie = on_lie
        self._on_failure = on_failure

    def on_message(self, member_id: str, message: Message) -> None:
        """Act on a message of another member, if this one runs."""
        if not self._is_running():
            return
        try:
            self._take(member_id, message)
        except Exception as error:
            self._on_failure(error)

    def on_connected(self, member_id: str) -> None:
        """A new connection is in use; what was sent over an earlier one may be lost."""
        if self._is_running():
            self._guarded(lambda: self._on_connected(member_id))

    def on_disconnected(self, member_id: str) -> None:
        """The connection has ended, and there is no other."""
        if self._is_running():
            self._guarded(lambda: self._on_disconnected(member_id))

    def on_met(self, member_id: str) -> None:
        """The two members hear each other now; earlier messages may not have counted."""
        if self._is_running():
            self._guarded(lambda: self._on_met(member_id))

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:
            self._on_failure(error)

    def _take(self, member_id: str, message: Message) -> None:
        if why := self._why_not_believed(member_id, message):
            self._consensus.on_disbelieved()
            self._on_lie(member_id, why)
        elif isinstance(message, say.MemberRequest):
            self._desk.on_request(member_id, message)
        elif isinstance(message, say.Reply):
            self._desk.on_reply(member_id, message)
        elif isinstance(message, _ABOUT_INCARNATIONS):
            self._incarnations.on_message(member_id, message)
        elif self._is_too_early(member_id, message):
            return  # it asks again
        elif self._incarnations.hears(member_id) or isinstance(message, _ABOUT_VOTES_TO_COME):
            if isinstance(message, say.SnapshotPiece):
                self._on_snapshot_piece(member_id, message)
            elif isinstance(message, say.SnapshotReply):
                self._on_snapshot_reply(member_id, message)
            else:
                self._consensus.on_message(member_id, message)
            self._on_heard(isinstance(message, _ROUTINE))

    def _is_too_early(self, member_id: str, message: Message) -> bool:
        is_question = isinstance(message, say.TermQuestion)
        return is_question and not self._incarnations.may_tell_term(member_id)

    def _on_snapshot_piece(self, member_id: str, piece: say.SnapshotPiece) -> None:
        # Nothing is installed before this directory has an owner.
        if self._consensus.accept_leader(member_id, piece.term) and self._may_install():
            self._snapshots.receive(self._consensus, member_id, piece)

    def _on_snapshot_reply(self, member_id: str, reply: say.SnapshotReply) -> None:
        if self._consensus.is_mine(member_id, reply.term):
            self._snapshots.on_reply(self._consensus, member_id, reply)

    def _why_not_believed(self, member_id: str, message: Message) -> str:
        term, named = self._consensus.core.term, self._named
        why = why_not_believed(message, term)
        if why:
            why = why_not_believed(message, max(term, named.highest_believed))
        if why:
            named.note(member_id, highest_term(message))
            why = why_not_believed(message, max(term, named.highest_believed))
        return why

    def _on_connected(self, member_id: str) -> None:
        self._forget_connection(member_id)
        self._incarnations.on_connected(member_id)
        self._consensus.on_connected(member_id)
        self._on_heard(False)

    def _on_disconnected(self, member_id: str) -> None:
        self._forget_connection(member_id)
        self._incarnations.on_disconnected(member_id)
        self._consensus.on_disconnected(member_id)
        self._on_heard(False)

    def _on_met(self, member_id: str) -> None:
        self._consensus.on_met(member_id, met_count=self._incarnations.met_count)
        self._on_heard(False)

    def _forget_connection(self, member_id: str) -> None:
        self._desk.on_connection_changed(member_id)
        self._snapshots.forget(member_id)
