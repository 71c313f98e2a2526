"""One connection between two members, from its handshake to its end.

With certificates TLS comes first (``securing``), and both sides then prove themselves within it.
While certificates are being given to the members, one that has its own also talks without TLS.
One read may bring ten thousand small frames, and the next read as many. A bounded number is handled
in each pass of the loop, and nothing more is read until all of them are.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol, cast

from coordinator.clock import Clock
from coordinator.node.config import RaftConfig
from coordinator.raft.network.frames import PayloadReader, frame
from coordinator.raft.network.handshake import (
    HANDSHAKE_FRAME_BYTES_MAX,
    Acceptor,
    Dialer,
    NoProtocolError,
)
from coordinator.raft.network.lanes import PIECE_FRAME_BYTES_MAX, Joiner
from coordinator.raft.network.messages import NEWEST, PROTOCOLS, Codec, FrameError, Message
from coordinator.raft.network.seals import SEAL_BYTES, Seals, Unsealed
from coordinator.raft.network.securing import (
    ALERT,
    SPEAKS_NO_TLS,
    SPEAKS_TLS,
    TLS_RECORD,
    Securing,
)
from coordinator.tls.transport import TlsTransport
from coordinator.tls.wording import TO_MEMBERS, why_no_tls

SILENT_PINGS_MAX = 4
"""A connection on which nothing came for this many ping intervals is dead."""
WHOLE_FRAME_FACTOR = 10
"""How many times longer a complete frame may take: the largest one over the slowest network."""
FRAMES_AT_ONCE = 100
"""The frames handled in one pass; each takes some ten microseconds, or has many bytes."""
UNSENT_BYTES = 32 * 1024
"""What the system takes beyond what the network does: the rest waits here, where a word goes ahead
of it."""
UNREAD_BYTES = 64 * 1024
"""What it keeps for a member that does not read at once, and twice that with its own records. So
much may be on the way: 64 MB a second to a member a millisecond away."""


class LinkOwner(Protocol):
    """The listener of a link."""

    @property
    def raft(self) -> RaftConfig:
        """The member's settings: sizes in bytes, times in ms."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock that decides silence."""
        ...

    def link_made(self, link: Link) -> bool:
        """Count a new, unproved connection; False if the transport is closed."""
        ...

    def why_not_a_member(self, member_id: str) -> str:
        """Return why no member has this id, "" if one has."""
        ...

    def link_proved(self, link: Link) -> None:
        """Both ends are members that agree."""
        ...

    def link_refused(self, link: Link, why: str) -> None:
        """Both ends know the secret, and must not talk."""
        ...

    def link_failed(self, link: Link, why: str) -> None:
        """TLS failed on a connection that this member dialed."""
        ...

    def link_heard(self, now_ms: int) -> None:
        """Something came on a connection."""
        ...

    def link_writable(self, link: Link) -> None:
        """More can be written."""
        ...

    def link_lost(self, link: Link, reason: str) -> None:
        """The connection has ended; ``reason`` says why if this end closed it."""
        ...


def _keep_little(transport: asyncio.Transport) -> None:
    """Bound what the system keeps of a connection, where a word cannot overtake it."""
    line = transport.get_extra_info("socket")
    if line is not None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, UNREAD_BYTES)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)


def _unproved(_payload: bytes) -> bytes:
    raise AssertionError("a connection is proved before it is used")


class Link(asyncio.Protocol):
    """One connection, from its handshake to its end."""

    def __init__(
        self,
        owner: LinkOwner,
        handshake: Dialer | Acceptor,
        deliver: Callable[[Link, Message], None],
        securing: Securing | None = None,
    ) -> None:
        self._owner = owner
        self._handshake = handshake
        self._deliver = deliver
        self._reader = PayloadReader(HANDSHAKE_FRAME_BYTES_MAX)
        self.seal: Callable[[bytes], bytes] = _unproved
        """Makes a payload the next frame; what is sealed must be written, in order."""
        self._received: Seals | Unsealed | None = None
        self.protocol: Codec = NEWEST
        """What both ends speak, once it is proved."""
        self._joiner = Joiner(owner.raft.frame_bytes_max)
        self._stream: asyncio.Transport | None = None
        self._securing = securing
        self._certificate_names: tuple[str, ...] = ()
        """The names in the other side's certificate, once TLS has begun."""
        self._trusted = b""
        """The CAs and revocation lists by which it is judged."""
        self._has_begun = False
        """Whether it is known that both sides speak TLS, or that neither does."""
        self._deadline: asyncio.TimerHandle | None = None
        self._reason = ""
        self._going_on: asyncio.Handle | None = None
        """Set while frames are left for the next pass."""
        self._is_over = False
        """Nothing that arrives is read any more."""
        self.is_full = False
        """Whether what was written has not left; no more should be."""
        self.is_dialed = isinstance(handshake, Dialer)
        self.host = ""
        """The address of the other side, once connected."""
        self.is_proved = False
        self.is_settled = asyncio.Event()
        """Set when the handshake is over, either way."""
        self.heard_ms = self.whole_ms = owner.clock.monotonic_ms()
        """When anything came, and when a whole frame did."""

    # Read for each message: without a call of a Python function.
    peer_id: str = cast(str, property(attrgetter("_handshake.peer_id")))
    """The id of the member at the other end, once it has said it."""

    def is_by(self, secrets: Sequence[bytes]) -> bool:
        """Whether one of these is the secret by which it was proved."""
        return self._handshake.is_by(secrets)

    @property
    def is_turned_away(self) -> bool:
        """Whether the other side hung up at this member's proof, without a word."""
        handshake = self._handshake
        return isinstance(handshake, Dialer) and handshake.is_unanswered and not self._reason

    def is_silent(self) -> bool:
        """Return whether the other end must be gone: nothing came for four ping intervals.

        Or no complete frame for ten times as long: a broken network may still pass single bytes.
        """
        limit_ms = SILENT_PINGS_MAX * self._owner.raft.election_timeout_ms_min
        now_ms = self._owner.clock.monotonic_ms()
        is_stuck = now_ms - self.whole_ms > WHOLE_FRAME_FACTOR * limit_ms
        return is_stuck or now_ms - self.heard_ms > limit_ms

    def note_own_pause(self, now_ms: int) -> None:
        """Do not count the silence so far: this member was paused and did not read."""
        self.heard_ms = self.whole_ms = now_ms

    def write(self, payloads: list[bytes]) -> None:
        """Write these, each as the next frame."""
        if self._stream is not None:
            self._stream.write(b"".join([self.seal(each) for each in payloads]))

    def pause_writing(self) -> None:
        """Take no more: the other side, or the network, is slower."""
        self.is_full = True

    def resume_writing(self) -> None:
        """Ask for what waits: all that was written has left."""
        self.is_full = False
        self._owner.link_writable(self)

    def close(self) -> None:
        """Close once everything written has left."""
        if self._stream is not None:
            self._stream.close()

    def abort(self, reason: str = "") -> None:
        """Close at once; the first ``reason`` is kept for the log."""
        self._is_over = True
        self._reason = self._reason or reason
        if self._stream is not None:
            self._stream.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, and its deadline."""
        assert isinstance(transport, asyncio.Transport)
        self._stream = transport
        _keep_little(transport)
        self.host = str((transport.get_extra_info("peername") or ("",))[0])
        if not self._owner.link_made(self):
            self.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(
            self._owner.raft.handshake_deadline_ms / 1000, self.abort, "handshake took too long"
        )
        if isinstance(self._handshake, Dialer):
            if self._securing is None:
                transport.write(frame(self._handshake.begin()))
            else:
                self._has_begun = True
                self._trusted = self._securing.secure(self, transport, is_dialed=True)

    def on_secured(self, transport: TlsTransport) -> None:
        """Go on within TLS."""
        assert self._securing is not None
        self._stream = transport
        self._certificate_names = transport.certificate_names
        if isinstance(self._handshake, Dialer):
            try:
                self._securing.check(self._certificate_names, self.peer_id, self._trusted)
            except FrameError as error:
                self._fail(str(error))
            else:
                transport.write(frame(self._handshake.begin()))

    def on_tls_failed(self, error: Exception) -> None:
        """Note why there is no TLS; the connection is closed next."""
        self._note_failure(why_no_tls(error, TO_MEMBERS))

    def _fail(self, why: str) -> None:
        self._note_failure(why)
        self.abort()

    def _note_failure(self, why: str) -> None:
        """Keep why it ends; whom this member dialed is named in its status."""
        if not self._is_over and self.is_dialed and not self.is_proved:
            self._owner.link_failed(self, why)
        elif not self._reason:
            self._reason = why
        self._is_over = True

    def _begin(self, data: bytes) -> bool:
        """Look at the first bytes; return whether they are frames."""
        self._has_begun = True
        if self._securing is None:
            if data.startswith(ALERT if self.is_dialed else TLS_RECORD):
                self._fail(SPEAKS_TLS)
                return False
            return True
        stream = self._stream
        assert stream is not None
        if data.startswith(TLS_RECORD[:1]):
            self._trusted = self._securing.secure(self, stream, is_dialed=False, head=data)
        elif not self._securing.is_needed:
            self._securing = None
            return True
        else:
            stream.write(ALERT)
            self._is_over, self._reason = True, SPEAKS_NO_TLS
            stream.close()
        return False

    def data_received(self, data: bytes) -> None:
        """Handle the frames that are complete."""
        self.heard_ms = self._owner.clock.monotonic_ms()
        if not self._has_begun and not self._begin(data):
            return
        received = self._received
        is_ready = self._going_on is None and not self._is_over
        payload = self._reader.only(data) if received is not None and is_ready else None
        if received is not None and payload is not None:
            # One frame and nothing else, as a heartbeat is.
            try:
                self._handle(payload)
            except FrameError as error:
                self.abort(str(error))
        else:
            self._reader.feed(data)
            if self._going_on is None:
                self._handle_frames()
        self._owner.link_heard(self.heard_ms)

    def _handle_frames(self) -> None:
        """Handle the frames that have come, at most ``FRAMES_AT_ONCE`` of them."""
        was_paused, self._going_on = self._going_on is not None, None
        try:
            for _ in range(FRAMES_AT_ONCE):
                if self._is_over or (payload := self._reader.next()) is None:
                    if was_paused:
                        self._go_on_reading()
                    return
                self._handle(payload)
        except FrameError as error:
            self.abort(str(error))
            return
        assert self._stream is not None
        self._stream.pause_reading()
        self._going_on = asyncio.get_running_loop().call_soon(self._handle_frames)

    def _go_on_reading(self) -> None:
        if self._stream is not None:
            self._stream.resume_reading()

    def _handle(self, payload: bytes) -> None:
        if self._received is not None:
            opened = self._joiner.take(self._received.open(payload))
            self.whole_ms = self.heard_ms
            if opened is not None:
                self._deliver(self, self.protocol.decode(opened))
        else:
            self._shake_hands(payload)

    def _shake_hands(self, payload: bytes) -> None:
        securing = self._securing
        try:
            answer = self._handshake.receive(payload)
        except NoProtocolError as error:
            self._fail(str(error))
            return
        if securing is not None:
            securing.check(self._certificate_names, self.peer_id, self._trusted)
        assert self._stream is not None
        if answer is not None:
            self._stream.write(frame(answer))
        if isinstance(self._handshake, Acceptor) and self._handshake.refusal:
            # What was answered still leaves, so that the other side can say why, too.
            self._is_over, self._reason = True, self._handshake.refusal
            self._stream.close()
            return
        if not self._handshake.is_done:
            return
        why = self._handshake.disagreement or self._owner.why_not_a_member(self.peer_id)
        if why:
            # As above.
            self._is_over = True
            self._owner.link_refused(self, why)
            self.close()
        else:
            self.is_proved = True
            self.protocol = PROTOCOLS[self._handshake.protocol]
            keys = self._handshake.keys()
            sent, received = keys.dialed, keys.accepted
            if not self.is_dialed:
                sent, received = received, sent
            if securing is None:
                self.seal, self._received = Seals(sent).sealed_frame, Seals(received)
            else:
                self._received = unsealed = Unsealed()
                self.seal = unsealed.sealed_frame
            self._reader.frame_bytes_max = PIECE_FRAME_BYTES_MAX + SEAL_BYTES
            self._stream.set_write_buffer_limits(0)
            self._settle()
            self._owner.link_proved(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end of this connection to its owner."""
        if self._going_on is not None:
            self._going_on.cancel()
        self._settle()
        self._owner.link_lost(self, self._reason)

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self.is_settled.set()
