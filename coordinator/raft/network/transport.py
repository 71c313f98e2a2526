"""The transport between members over TCP: sealed frames of msgpack, after a mutual proof.

Both sides dial, at once and then with a jittered backoff; of two connections between the same
members both keep the same one. What is sent in one pass of the loop leaves in one write, Raft's own
words first, and no more than ``WRITE_BYTES`` (``lanes``): the rest waits until that has left. What
cannot be delivered is dropped: Raft sends messages about the log again, and a request fails.

Limits: the length of a frame is checked before memory is used for it. It is 13 KiB until the peer
has proved itself, for which it has a deadline. If there are too many unproved callers one is
dropped, by chance, of the address that has the most: so strangers elsewhere take no place of a
member, and however many call from its own address, one of its tries gets through. For a peer that
reads too slowly a bounded number of bytes waits in each lane; what is beyond is refused.

``MemberTransport`` is the interface: tests put a simulated network in the place of this one.
"""

from __future__ import annotations

import asyncio
import logging
import random as random_module
import secrets
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from coordinator.clock import Clock
from coordinator.errors import ConfigError
from coordinator.node.config import ClusterConfig, MemberConfig, RaftConfig
from coordinator.node.secret_file import read_secrets
from coordinator.raft.network.agreement import Fact, Levels, ReadLevels
from coordinator.raft.network.handshake import NONCE_BYTES, Acceptor, Dialer, Identity
from coordinator.raft.network.link import Link
from coordinator.raft.network.messages import Message, Ping
from coordinator.raft.network.peer import Peer
from coordinator.raft.network.refusals import Disagreements, RefusalLog
from coordinator.raft.network.securing import TRUST_CHANGED, Securing
from coordinator.raft.pass_end import AtPassEnd
from coordinator.tls.files import MemberTls, Reloaded

logger = logging.getLogger(__name__)

TURNED_AWAY = (
    "it hung up at this member's proof of the cluster's secret, so the two have different ones; "
    "give all members the same [cluster] secret_file"
)
SECRET_REPLACED = "the secret by which it was proved counts no more"  # noqa: S105 - a reason
_TURNED_AWAY_MIN = 2
UNPROVED_CALLERS_MAX = 64
PATIENCE_FACTOR = 1.5
"""How many ping intervals a timer waits: most looks are made when something is heard."""
RELOAD_LOOKS = 4
"""In so many looks it is looked once whether the secret has changed."""
QUIET_INTERVALS = 1.5
"""After so many without a write a ping is due."""


class TransportListener(Protocol):
    """The listener of a transport; no method may raise."""

    def on_message(self, member_id: str, message: Message) -> None:
        """A member that has proved itself said this."""
        ...

    def on_connected(self, member_id: str) -> None:
        """A new connection is in use; what was sent over an earlier one may be lost."""
        ...

    def on_disconnected(self, member_id: str) -> None:
        """The connection has ended, and there is no other."""
        ...


class MemberTransport(Protocol):
    """Carries messages between members, best effort, in order while a connection lasts."""

    def agree_on(self, facts: Sequence[Fact]) -> None:
        """Accept only members that show the same from now on; a fact replaces one of its name."""
        ...

    def show_levels(self, read: ReadLevels, release: str) -> None:
        """Show which levels this release reads, and that of the state when it connects."""
        ...

    async def start(self, listener: TransportListener) -> None:
        """Listen, and connect to the other members; ConfigError if the address is taken."""
        ...

    async def stop(self) -> None:
        """Close all connections at once."""
        ...

    def send(self, member_id: str, message: Message) -> bool:
        """Take ``message`` for sending; False when it certainly is not sent."""
        ...

    def flush(self) -> None:
        """Write now what was taken; otherwise it is written at the end of the loop's pass."""
        ...

    def drop(self, member_id: str) -> None:
        """End the connection to a member that said what cannot be; no other follows at once."""
        ...

    def is_connected(self, member_id: str) -> bool:
        """Return whether a proved connection to this member is in use."""
        ...

    def disagreements(self) -> Mapping[str, str]:
        """Return the members that have proved themselves and are refused, with the reason."""
        ...


class TcpTransport:
    """The transport of a real member.

    Args:
        listening_socket: bound already, instead of the member's configured address.
        tls: the member's certificate; sealed frames over plain TCP without.
    """

    def __init__(
        self,
        cluster: ClusterConfig,
        member: MemberConfig,
        raft: RaftConfig,
        *,
        clock: Clock,
        random: random_module.Random,
        listening_socket: socket.socket | None = None,
        tls: Reloaded[MemberTls] | None = None,
    ) -> None:
        self.raft = raft
        self.clock = clock
        self._random = random
        self._addresses = {address.member_id: address for address in cluster.members}
        own = self._addresses[member.member_id]
        self._bind = (member.member_bind_host or own.member_host, own.member_port)
        self._secrets = Reloaded(
            lambda: read_secrets(cluster, is_needed=tls is None or member.tls == "accepted"),
            [cluster.secret_file] if cluster.secret_file is not None else [],
            "secret",
        )
        self._secrets.on_reload(self._maybe_part)
        self.identity = Identity(cluster.name, member.member_id, b"")
        self._take_secrets()
        self._read_levels: ReadLevels = Levels
        self._listening_socket = listening_socket
        self._securing: Securing | None = None
        if tls is not None:
            unfinished_max = UNPROVED_CALLERS_MAX + len(cluster.members)
            self._securing = Securing(
                cluster.name, tls, unfinished_max, is_needed=member.tls == "required"
            )
            tls.on_reload(self._maybe_connect_again)
        self._peers = {
            address.member_id: Peer(address, raft.send_buffer_bytes_max)
            for address in cluster.members
            if address.member_id != member.member_id
        }
        self._listener: TransportListener | None = None
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._unproved: dict[Link, None] = {}
        self._dirty: list[Peer] = []
        self._flushing = AtPassEnd(self.flush)
        self._looking: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked_ms = self._looks = 0
        """When it was last looked whether connections live, and how often it was."""
        self._is_stopped = False
        self._refusals = RefusalLog(clock)
        self._disagreements = Disagreements(clock)

    @property
    def secret_problem(self) -> str:
        """Why the file of the secret as it is now is not in use; "" if it is."""
        return self._secrets.problem

    def _take_secrets(self) -> None:
        """Prove the first of the secrets from now on, and believe all of them."""
        secret, *former = self._secrets.current
        self.identity = replace(self.identity, secret=secret, former=tuple(former))

    def _maybe_part(self, _former: Sequence[bytes], current: Sequence[bytes]) -> None:
        """End the connections that were proved by a secret which counts no more."""
        for peer in self._peers.values():
            if peer.link is not None and not peer.link.is_by(current):
                peer.link.abort(SECRET_REPLACED)

    def agree_on(self, facts: Sequence[Fact]) -> None:
        """Show ``facts``, too, and accept only members that show the same."""
        agreement = self.identity.agreement.with_facts(facts)
        self.identity = replace(self.identity, agreement=agreement)

    def show_levels(self, read: ReadLevels, release: str) -> None:
        """Show which levels this release reads, and that of the state at each moment."""
        self._read_levels = read
        agreement = replace(self.identity.agreement, release=release)
        self.identity = replace(self.identity, agreement=agreement)

    def _present(self) -> Identity:
        """Return what this member knows, and its level now."""
        agreement = replace(self.identity.agreement, levels=self._read_levels())
        return replace(self.identity, agreement=agreement)

    async def start(self, listener: TransportListener) -> None:
        """Listen, and begin to dial the other members; ConfigError if it cannot listen."""
        self._listener = listener
        if not self._peers:
            return
        loop = asyncio.get_running_loop()
        where = (
            {"sock": self._listening_socket}
            if self._listening_socket is not None
            else {"host": self._bind[0], "port": self._bind[1]}
        )
        try:
            self._server = await loop.create_server(self._accept, **where)
        except OSError as error:
            raise ConfigError(
                f"members: cannot listen on {self._bind[0]}:{self._bind[1]}: {error.strerror}"
            ) from None
        for peer in self._peers.values():
            self._tasks.append(loop.create_task(self._keep_connected(peer)))
        self._looked_ms = self.clock.monotonic_ms()
        self._look_later()

    async def stop(self) -> None:
        """Stop listening and dialling, and close all connections at once."""
        self._is_stopped = True
        self._dirty.clear()
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        links = [peer.link for peer in self._peers.values() if peer.link is not None]
        for link in (*links, *self._unproved):
            link.abort()
        await asyncio.sleep(0)  # aborted connections are closed in the next pass

    def is_connected(self, member_id: str) -> bool:
        """Return whether a proved connection to this member is in use."""
        return self._peers[member_id].link is not None

    def drop(self, member_id: str) -> None:
        """End the connection, and refuse others for the longest reconnect delay."""
        peer = self._peers[member_id]
        peer.shunned_until_ms = self.clock.monotonic_ms() + self.raft.reconnect_delay_ms_max
        if peer.link is not None:
            peer.link.abort("it said what cannot be")

    def disagreements(self) -> Mapping[str, str]:
        """Return the members that have proved themselves and are refused, with why."""
        return self._disagreements.all()

    def send(self, member_id: str, message: Message) -> bool:
        """Take a message for sending; False if it is too large, no one is connected, too much
        waits, or the protocol spoken there has no such message."""
        peer = self._peers[member_id]
        if peer.link is None or self._is_stopped:
            return False
        if not peer.link.protocol.has(type(message)):
            return False
        payload = peer.link.protocol.encode(message)
        if len(payload) > self.raft.frame_bytes_max:
            logger.error("message too large: %s, %d bytes", type(message).__name__, len(payload))
            return False
        if peer.lanes.add(message, payload):
            self._maybe_flush(peer)
            return True
        if peer.lanes.has_too_many_words:
            peer.link.abort("it does not read")
        return False

    def _maybe_flush(self, peer: Peer) -> None:
        """Write to this one at the end of the pass, unless its connection takes no more."""
        if not peer.is_dirty and peer.link is not None and not peer.link.is_full:
            peer.is_dirty = True
            self._dirty.append(peer)
            self._flushing.leave()

    def flush(self) -> None:
        """Write what was taken, one write for each connection; what is beyond, in a later pass."""
        if not self._dirty:
            return
        self._flushing.take_back()
        dirty, self._dirty = self._dirty, []
        now_ms = self.clock.monotonic_ms()
        for peer in dirty:
            peer.is_dirty = False
            if peer.write(now_ms):
                self._maybe_flush(peer)

    def link_writable(self, link: Link) -> None:
        """Write more to this one."""
        peer = self._peers.get(link.peer_id)
        if peer is not None and peer.link is link and peer.lanes.waiting_bytes:
            self._maybe_flush(peer)

    # Connections, as their links report them.

    def _accept(self) -> asyncio.BaseProtocol:
        acceptor = Acceptor(self._present(), secrets.token_bytes(NONCE_BYTES))
        return Link(self, acceptor, self._deliver, self._securing)

    def link_made(self, link: Link) -> bool:
        """Count a new, unproved connection; False if the transport is closed."""
        if self._is_stopped:
            return False
        callers = [each for each in self._unproved if not each.is_dialed]
        if not link.is_dialed and len(callers) >= UNPROVED_CALLERS_MAX:
            dropped = self._one_of_the_most(callers)
            dropped.abort("too many connections that prove nothing")
            del self._unproved[dropped]
        self._unproved[link] = None
        return True

    def _one_of_the_most(self, callers: Sequence[Link]) -> Link:
        by_host = Counter([each.host for each in callers])
        most = max(by_host.values())
        return self._random.choice([each for each in callers if by_host[each.host] == most])

    def why_not_a_member(self, member_id: str) -> str:
        """Return why a caller with this id is refused, "" if it is a member."""
        if member_id in self._peers:
            return ""
        return f"no other member is called {member_id!r}; give each member an id of its own"

    def link_proved(self, link: Link) -> None:
        """Use ``link``, or close it if the one there is to be kept; both sides decide alike."""
        self._unproved.pop(link, None)
        peer = self._peers[link.peer_id]
        if not link.is_by(self._secrets.current):
            link.abort(SECRET_REPLACED)  # while it was proved, another took its place
            return
        self._disagreements.end(peer.member_id)
        peer.turned_away = 0
        if self.clock.monotonic_ms() < peer.shunned_until_ms:
            link.close()
            return
        old = peer.link
        if old is not None and not old.is_silent() and not self._is_better(link, old):
            link.close()
            return
        peer.link = link
        peer.lanes.clear()
        if old is not None:
            old.close()
        logger.info("member %s connected", peer.member_id, extra={"peer": peer.member_id})
        if self._listener is not None:
            self._listener.on_connected(peer.member_id)

    def link_refused(self, link: Link, why: str) -> None:
        """Log why a member that has proved itself is refused."""
        self._disagreements.add(link.peer_id, why)

    def link_failed(self, link: Link, why: str) -> None:
        """Show why a member cannot be reached by TLS, unless it may be chance."""
        peer = self._peers[link.peer_id]
        peer.turned_away += 1
        if peer.turned_away >= _TURNED_AWAY_MIN:
            self._disagreements.add(peer.member_id, why)

    def link_lost(self, link: Link, reason: str) -> None:
        """Forget ``link``; notify the listener if it was in use."""
        self._unproved.pop(link, None)
        if not link.is_proved:
            if reason:
                self._refusals.add(reason)
            elif link.is_turned_away and not self._is_stopped:
                self._note_turned_away(self._peers[link.peer_id])
            return
        peer = self._peers[link.peer_id]
        if peer.link is link:
            peer.link = None
            peer.lanes.clear()
            peer.has_lost_link.set()
            if self._is_stopped:
                return
            logger.info(
                "member %s disconnected%s",
                peer.member_id,
                reason and f": {reason}",
                extra={"peer": peer.member_id},
            )
            if self._listener is not None:
                self._listener.on_disconnected(peer.member_id)

    def _note_turned_away(self, peer: Peer) -> None:
        """Say here, too, that the secrets differ: whom this one calls says it in its own log only.
        It hung up without a word, so once may be chance: it stopped, or its port was crowded."""
        peer.turned_away += 1
        if peer.turned_away >= _TURNED_AWAY_MIN:
            self._disagreements.add(peer.member_id, TURNED_AWAY)

    def _is_better(self, new: Link, old: Link) -> bool:
        if new.is_dialed == old.is_dialed:
            return True  # The peer started again; its old end is gone.
        # The connection that the member with the lower id dialed stays.
        return new.is_dialed == (self.identity.member_id < new.peer_id)

    def _deliver(self, link: Link, message: Message) -> None:
        # A link that lost against another one may still bring something: it is as good.
        if self._listener is not None and not isinstance(message, Ping):
            self._listener.on_message(link.peer_id, message)

    # Dialling and keeping alive.

    async def _keep_connected(self, peer: Peer) -> None:
        raft = self.raft
        if peer.member_id < self.identity.member_id:
            await asyncio.sleep(raft.reconnect_delay_ms_min / 1000)  # its dialling is preferred
        delay_ms = raft.reconnect_delay_ms_min
        while True:
            if peer.link is None and await self._dial(peer):
                delay_ms = raft.reconnect_delay_ms_min
            if peer.link is not None:
                peer.has_lost_link.clear()
                await peer.has_lost_link.wait()
                delay_ms = raft.reconnect_delay_ms_min
            await asyncio.sleep(delay_ms * (0.5 + self._random.random()) / 1000)
            delay_ms = min(2 * delay_ms, raft.reconnect_delay_ms_max)

    async def _dial(self, peer: Peer) -> bool:
        loop = asyncio.get_running_loop()
        link = Link(
            self,
            Dialer(self._present(), peer.member_id, secrets.token_bytes(NONCE_BYTES)),
            self._deliver,
            None if peer.is_dialed_plainly else self._securing,
        )
        try:
            async with asyncio.timeout(self.raft.handshake_deadline_ms / 1000):
                await loop.create_connection(
                    lambda: link,
                    peer.address.member_host,
                    peer.address.member_port,
                )
                await link.is_settled.wait()
        except (OSError, TimeoutError) as error:
            logger.debug("member %s not reached: %s", peer.member_id, error)
            link.abort()
        if peer.link is None and self._securing is not None and not self._securing.is_needed:
            peer.is_dialed_plainly = not peer.is_dialed_plainly
        return peer.link is not None

    def _maybe_connect_again(self, former: MemberTls, current: MemberTls) -> None:
        """End the connections of a trust that has changed: they are made again by what counts."""
        if former.trusted != current.trusted:
            for peer in self._peers.values():
                if peer.link is not None:
                    peer.link.abort(TRUST_CHANGED)

    def link_heard(self, now_ms: int) -> None:
        """Look whether connections live, if it is time to: this member is awake anyway."""
        if now_ms - self._looked_ms >= self.raft.election_timeout_ms_min and not self._is_stopped:
            self._keep_alive(now_ms)

    def _look_later(self) -> None:
        """Look by a timer, if nothing is heard until then."""
        if self._looking is not None:
            self._looking.cancel()
        seconds = PATIENCE_FACTOR * self.raft.election_timeout_ms_min / 1000
        loop = self._loop = self._loop or asyncio.get_running_loop()
        self._looking = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._keep_alive(self.clock.monotonic_ms())

    def _keep_alive(self, now_ms: int) -> None:
        """Send a ping where nothing was written for long, end connections on which nothing came.

        A ping leaves at least every ``QUIET_INTERVALS + PATIENCE_FACTOR`` intervals; ``is_silent``
        allows for more."""
        quiet_ms = QUIET_INTERVALS * self.raft.election_timeout_ms_min
        was_paused = now_ms - self._looked_ms > 2 * self.raft.election_timeout_ms_min
        self._looked_ms = now_ms
        if self._looks % RELOAD_LOOKS == 0:
            self._secrets.maybe_reload()
            self._take_secrets()
        self._looks += 1
        for peer in self._peers.values():
            if peer.link is None:
                continue
            if was_paused:
                peer.link.note_own_pause(now_ms)
            if peer.link.is_silent():
                peer.link.abort("nothing heard")
            elif now_ms - peer.wrote_ms >= quiet_ms:
                self.send(peer.member_id, Ping())
        self._look_later()
