"""The messages between members: one named tuple for each kind, and the strict codec.

A message is a msgpack array: its kind's number, then its fields in order. Decoding checks the
number of fields and the type, range and length of each, so other modules need no checks; a wrong
shape raises ``FrameError`` and the transport drops the connection. The first value of another type
than is expected ends the decoding, so bytes that are no message of ours cost little.

Two members speak the newest protocol that both know (``handshake``). A kind, or a field at the end
of one, belongs to the protocols from one on: it is sent to no member that speaks an older one, and
a field that an older one does not have has its default here.

Every message about the log carries its sender's term, replies too: a reply of an older term is
ignored, one of a newer term deposes a stale leader (docs/engine.md, rows 7, 8 and 20).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from msgspec import DecodeError, Meta
from msgspec.msgpack import Decoder, Encoder

PROTOCOL_OLDEST = 1
PROTOCOL_NEWEST = 1
"""The protocols that this release speaks. Each change of a message is a new one; the oldest rises
only to one that every release speaks from which a cluster may be upgraded to this one."""
INTEGER_MAX = 2**63 - 1
_BYTES_MAX = 2**31 - 1
APPEND_ENTRIES_MAX = 1_024
"""Entries in one ``Append``."""
INCARNATIONS_SHOWN_MAX = 4_096
"""Ids in one ``Incarnation``."""
INCARNATION_ID_BYTES = 8
_SHORT_BYTES_MAX = 128
"""The size of ids, seals and digests; of the names of members, kinds of requests and errors."""
_LONG_BYTES_MAX = {
    "ids": INCARNATIONS_SHOWN_MAX * INCARNATION_ID_BYTES,
    "data": _BYTES_MAX,
    "payload": _BYTES_MAX,
}
"""The size of longer fields, by their names; the last two are as long as a frame allows."""


class FrameError(Exception):
    """Bytes of another member are not what the protocol allows; the connection is dropped."""


class Ping(NamedTuple):
    """Nothing but: I am here."""


class Append(NamedTuple):
    """The leader's entries after ``prev_index``; without entries, a heartbeat.

    ``entries`` are (term, command), their indexes follow ``prev_index``. ``epoch`` numbers the
    leader's attempts to find where the follower's log agrees; a reply repeats it."""

    term: int
    epoch: int
    commit_index: int
    prev_index: int
    prev_term: int
    entries: Sequence[tuple[int, bytes]]


class Appended(NamedTuple):
    """``is_success``: everything before ``next_index`` is equal to the leader's, and durable.
    Otherwise the follower asks to be sent entries from ``next_index`` on. ``seal``: of what is
    acknowledged (``rejoin/acknowledgement_seals``)."""

    term: int
    epoch: int
    next_index: int
    is_success: bool
    seal: bytes = b""


class CommitNotice(NamedTuple):
    """The leader's commit index has moved, or is what it was: a heartbeat that gets no reply."""

    term: int
    commit_index: int


class Probe(NamedTuple):
    """Do you still follow me? ``round_number`` 0 is a heartbeat that carries no log."""

    term: int
    round_number: int


class ProbeReply(NamedTuple):
    """The answer to a Probe: the member follows in this term."""

    term: int
    round_number: int


class VoteRequest(NamedTuple):
    """A candidate's, as in the paper. ``is_new``: of one that never belonged to a cluster;
    ``is_handed_over``: the leader itself asked it to stand, so hearing that leader is no reason
    to refuse. ``is_founding``: of one that begins a cluster again (``refounding``)."""

    term: int
    last_index: int
    last_term: int
    is_new: bool = False
    is_handed_over: bool = False
    is_founding: bool = False


class VoteGrant(NamedTuple):
    """My vote in this term is yours (durable before it was sent)."""

    term: int


class PreVoteRequest(NamedTuple):
    """Would you vote for me in ``term``? Changes nothing at the receiver (thesis, 9.6)."""

    term: int
    last_index: int
    last_term: int
    is_new: bool = False
    is_founding: bool = False


class PreVoteGrant(NamedTuple):
    """I would, in this term."""

    term: int


class TermNotice(NamedTuple):
    """You are behind: the term is this one."""

    term: int


class TermQuestion(NamedTuple):
    """What is your term? Asked by one that may have forgotten its own; ``number`` is repeated."""

    number: int


class TermAnswer(NamedTuple):
    """This, and I have not forgotten it."""

    number: int
    term: int


class LogLost(NamedTuple):
    """A leader's: you had acknowledged the entries up to ``last_index``, and lost some. What you
    said then, of a term and an entry not before that one, and your ``seal`` on it."""

    term: int
    last_index: int
    said_term: int = 0
    said_index: int = 0
    seal: bytes = b""


class StandNow(NamedTuple):
    """A leader's that stops: you have everything, stand for election at once (thesis, 3.10)."""

    term: int


class Incarnation(NamedTuple):
    """What copy of its data I run on (``incarnations``): the number of its last incarnation, and
    the ids of that one and those before; ``life_id`` is that of the first. ``is_asking``: show me
    yours. With what I was last proven: the term of a leader, and what that one had committed; zeros
    if I never had to catch up. ``cluster_id`` is empty as long as I know of none (``ownership``).
    ``seal`` is over the incarnation: only I can make it, and tell whether it is mine."""

    number: int
    ids: bytes
    life_id: bytes
    is_proven: bool
    is_asking: bool
    proof_term: int
    proof_index: int
    cluster_id: bytes = b""
    seal: bytes = b""


class IncarnationSeen(NamedTuple):
    """I have noted, durably, that you are in the incarnation ``number``."""

    number: int


class IncarnationLost(NamedTuple):
    """You were in this incarnation once, proven as it says, and do not know it: your data are an
    older copy. ``seal`` is what you showed with it then."""

    number: int
    incarnation_id: bytes
    life_id: bytes
    proof_term: int
    proof_index: int
    seal: bytes = b""


class Doubt(NamedTuple):
    """I met that member while it recovered, in another life; I cannot tell which is later. Do you
    hear it in this one?"""

    member_id: str
    life_id: bytes


class Vouch(NamedTuple):
    """I do, and I am proven."""

    member_id: str
    life_id: bytes


class SnapshotPiece(NamedTuple):
    """A piece of the leader's snapshot file at ``snapshot_index``, from byte ``offset`` on.

    Every piece names the whole (its length and SHA-256), so the receiver needs no other start."""

    term: int
    snapshot_index: int
    total_bytes: int
    sha256: bytes
    offset: int
    data: bytes


class SnapshotReply(NamedTuple):
    """Send me the piece at ``next_offset``; or, ``is_installed``, I hold that state, durably."""

    term: int
    snapshot_index: int
    next_offset: int
    is_installed: bool
    seal: bytes = b""


class MemberRequest(NamedTuple):
    """A question for the handler of ``kind`` (``Engine.request``)."""

    request_id: int
    kind: str
    payload: bytes


class Reply(NamedTuple):
    """The answer to a MemberRequest.

    ``status`` is one of the constants below, ``code`` names an error of the tree.
    """

    request_id: int
    status: int
    code: str
    payload: bytes


REPLY_OK = 0
REPLY_REFUSED = 1
"""Nothing was done: no such handler, or too many requests at once."""
REPLY_ERROR = 2
"""The handler raised; ``code`` and ``payload`` (its message) say what."""

Message = (
    Ping
    | Append
    | Appended
    | CommitNotice
    | Probe
    | ProbeReply
    | VoteRequest
    | VoteGrant
    | PreVoteRequest
    | PreVoteGrant
    | TermNotice
    | TermQuestion
    | TermAnswer
    | LogLost
    | StandNow
    | Incarnation
    | IncarnationSeen
    | IncarnationLost
    | Doubt
    | Vouch
    | SnapshotPiece
    | SnapshotReply
    | MemberRequest
    | Reply
)


class MessageKind(NamedTuple):
    """One kind of message; ``number`` never gets a new meaning."""

    number: int
    type: Any
    since: int = 1
    """The protocol in which it appeared."""
    added: tuple[tuple[str, int], ...] = ()
    """Its last fields that came later, in their order, each with its protocol; all have a
    default."""

    def field_count(self, protocol: int) -> int:
        """Return how many of its fields this protocol has."""
        later = [name for name, since in self.added if since > protocol]
        return len(self.type._fields) - len(later)


class Codec:
    """Encodes and decodes the messages of one protocol: the kinds and fields that it has."""

    def __init__(self, number: int, kinds: Sequence[MessageKind]) -> None:
        self._encoded: dict[type, tuple[int, int | None]] = {}
        """By kind: its number, and how many of its fields are sent; None: all."""
        self._decoded: dict[int, tuple[Any, Decoder[tuple[Any, ...]], tuple[Any, ...]]] = {}
        """By number: the kind, what decodes its fields, the values of those it lacks."""
        for kind in kinds:
            if kind.since <= number:
                self._add(kind, kind.field_count(number))

    def _add(self, kind: MessageKind, count: int) -> None:
        names = kind.type._fields
        missing = tuple(kind.type._field_defaults[name] for name in names[count:])
        self._encoded[kind.type] = kind.number, count if missing else None
        self._decoded[kind.number] = kind.type, _decoder_of(kind.type, count), missing

    def has(self, kind: type) -> bool:
        """Whether a message of this kind can be sent."""
        return kind in self._encoded

    def encode(self, message: Message) -> bytes:
        """Return the bytes of ``message``, without the length in front; its kind must be known."""
        number, count = self._encoded[type(message)]
        return _pack((number, *(message if count is None else message[:count])))

    def decode(self, payload: bytes | memoryview) -> Message:
        """Return the message in ``payload``; raises FrameError for anything else."""
        is_array = len(payload) > 1 and payload[0] & 0xF0 == _ARRAY
        entry = self._decoded.get(payload[1]) if is_array else None
        if entry is None:
            raise FrameError("expected an array that starts with the number of a known kind")
        kind, decoder, missing = entry
        try:
            fields = decoder.decode(payload)
        except (DecodeError, ValueError, RecursionError) as error:  # the second: no UTF-8
            raise FrameError(f"expected the fields of {kind.__name__}: {error}") from None
        # The decoder has counted the fields; a named tuple's own constructor is a function in
        # Python.
        values = fields[1:]
        message: Message = tuple.__new__(kind, values + missing if missing else values)
        return message


_pack = Encoder().encode
_ARRAY = 0x90
"""The first byte of an array, plus its length: no message has more than fifteen fields."""
_Integer = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
_Entry = tuple[_Integer, Annotated[bytes, Meta(min_length=1)]]
_FIELDS: dict[str, Any] = {
    "int": _Integer,
    "bool": bool,
    "Sequence[tuple[int, bytes]]": Annotated[
        tuple[_Entry, ...], Meta(max_length=APPEND_ENTRIES_MAX)
    ],
}
_WITH_LENGTH: dict[str, Any] = {"bytes": bytes, "str": str}

KINDS: tuple[MessageKind, ...] = (
    MessageKind(0, Ping),
    MessageKind(1, Append),
    MessageKind(2, Appended),
    MessageKind(3, CommitNotice),
    MessageKind(4, Probe),
    MessageKind(5, ProbeReply),
    MessageKind(6, VoteRequest),
    MessageKind(7, VoteGrant),
    MessageKind(8, PreVoteRequest),
    MessageKind(9, PreVoteGrant),
    MessageKind(10, TermNotice),
    MessageKind(11, SnapshotPiece),
    MessageKind(12, SnapshotReply),
    MessageKind(13, MemberRequest),
    MessageKind(14, Reply),
    MessageKind(15, TermQuestion),
    MessageKind(16, TermAnswer),
    MessageKind(17, LogLost),
    MessageKind(18, StandNow),
    MessageKind(19, Incarnation),
    MessageKind(20, IncarnationSeen),
    MessageKind(21, IncarnationLost),
    MessageKind(22, Doubt),
    MessageKind(23, Vouch),
)
"""Every kind of message."""


def _type_of(name: str, note: str) -> Any:
    """Return the type of a field, with its bounds."""
    if note in _WITH_LENGTH:
        bytes_max = _LONG_BYTES_MAX.get(name, _SHORT_BYTES_MAX)
        return Annotated[_WITH_LENGTH[note], Meta(max_length=bytes_max)]
    return _FIELDS[note]


def _decoder_of(kind: Any, count: int) -> Decoder[tuple[Any, ...]]:
    fields = [
        _type_of(name, getattr(note, "__forward_arg__", note))
        for name, note in list(kind.__annotations__.items())[:count]
    ]
    return Decoder(tuple.__class_getitem__((int, *fields)))


PROTOCOLS: dict[int, Codec] = {
    number: Codec(number, KINDS) for number in range(PROTOCOL_OLDEST, PROTOCOL_NEWEST + 1)
}
"""The protocols that this release speaks, by number."""
NEWEST = PROTOCOLS[PROTOCOL_NEWEST]
