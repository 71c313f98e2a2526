"""The decoders that outsiders reach, each as a function of bytes that says what it made of them.

Each may refuse by the error that is its contract, and by no other. ``SEEDS`` is good input to begin
from, without which the deeper shapes are hardly ever met; ``LEAST`` says what it comes to.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from coordinator.errors import BadArgumentsError
from coordinator.raft.network.frames import PayloadReader, frame
from coordinator.raft.network.handshake import Acceptor, Dialer, Identity
from coordinator.raft.network.messages import NEWEST, FrameError
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.machine import StateMachine
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.encoding import decode as decode_body
from coordinator.wire.multi import read_multi
from coordinator.wire.routes.queries import Query
from tests.fuzz.test_machine import drawn_corpus
from tests.fuzz.test_members import recorded
from tests.state.rich_state import LIMITS, rich_machine
from tests.state.znode_histories import MixedHistory

_RICH = b"".join(rich_machine().snapshot())


def messages(data: bytes) -> str:
    """A frame of a proved member: what decodes encodes to the same message."""
    try:
        message = NEWEST.decode(data)
    except FrameError:
        return "refused"
    assert NEWEST.decode(NEWEST.encode(message)) == message
    return type(message).__name__


def handshakes(data: bytes) -> str:
    """What a stranger sends first, cut into frames; it is never let in."""
    reader = PayloadReader(1_024)
    acceptor = Acceptor(_ACCEPTOR, bytes(32))
    came_to = "nothing"
    try:
        reader.feed(data)
        while (payload := reader.next()) is not None:
            acceptor.receive(payload)
            came_to = "challenged"
    except FrameError:
        return f"refused, {came_to}"
    assert not acceptor.is_done
    return came_to


def commands(data: bytes) -> str:
    """A command of the log: what decodes is applied to a state that holds everything there is."""
    try:
        command = decode_command(data)
    except ValueError:
        return "not decoded"
    assert decode_command(encode_command(command)) == command
    machine = StateMachine()
    machine.restore([_RICH])
    outcome = machine.apply(command, machine.applied_index + 1, 1)
    assert (outcome.result is None) != (outcome.refusal is None)
    if outcome.is_repeat:
        return "repeated"
    return "refused" if outcome.refusal is not None else "changed" if outcome.events else "done"


def bodies(data: bytes) -> str:
    """A body of a request, in both encodings, and what a multi makes of it."""
    came_to = "refused"
    for encoding in Encoding:
        try:
            value = decode_body(data, encoding)
            came_to = f"{encoding.name}"
            read_multi(value)
            came_to = f"{encoding.name} of a multi"
        except BadArgumentsError:
            pass
    return came_to


def queries(data: bytes) -> str:
    """The query of a request."""
    try:
        mode = Query(data.decode("latin-1"), ("stale", "at_least_zxid", "limit")).read_mode()
    except BadArgumentsError:
        return "refused"
    return type(mode).__name__


def _handshakes() -> list[bytes]:
    """Return what a member of the cluster sends, and what somebody overheard of another day."""
    dialer, other = Dialer(_DIALER, "1", b"d" * 32), Acceptor(_ACCEPTOR, b"a" * 32)
    hello = dialer.begin()
    challenge = other.receive(hello)
    assert challenge is not None
    proof = dialer.receive(challenge)
    assert proof is not None
    return [frame(hello), frame(proof), frame(hello) + frame(proof)]


def _bodies() -> list[bytes]:
    operations = [{"op": "create", "path": "/a", "data": "x"}, {"op": "check", "path": "/a"}]
    body = {"conditions": [{"path": "/a", "exists": True}], "then": operations}
    return [encode(body, encoding) for encoding in Encoding]


def _commands() -> list[bytes]:
    """Return commands about what is there in the state that they are applied to, and others."""
    fitting = []
    for number in range(300):
        history = MixedHistory(random.Random(number), LIMITS)
        history.machine.restore([_RICH])
        fitting.append(encode_command(history.draw()))
    return [*fitting, *drawn_corpus(1)[:200]]


_ACCEPTOR = Identity("c", member_id="1", secret=b"secret-of-16-or-more")
_DIALER = Identity("c", member_id="2", secret=b"secret-of-16-or-more")
TARGETS: dict[str, Callable[[bytes], str]] = {
    each.__name__: each for each in (messages, handshakes, commands, bodies, queries)
}
SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "messages": lambda: [payload for _, _, payload in recorded(1)][:500],
    "handshakes": _handshakes,
    "commands": _commands,
    "bodies": _bodies,
    "queries": lambda: [b"", b"stale=true", b"at_least_zxid=7&limit=3", b"limit=x&limit=2"],
}
LEAST: dict[str, dict[str, int]] = {
    "messages": {
        "Append": 40, "Appended": 40, "VoteRequest": 1, "VoteGrant": 1, "PreVoteRequest": 1,
        "Probe": 5, "ProbeReply": 5, "CommitNotice": 30, "MemberRequest": 2, "Reply": 2,
        "SnapshotPiece": 1, "SnapshotReply": 1,
    },
    "handshakes": {"challenged": 1, "refused, challenged": 1},
    "commands": {"changed": 100, "refused": 100, "done": 15, "repeated": 3},
    "bodies": {"JSON of a multi": 1, "MSGPACK of a multi": 1},
    "queries": {"ReadMode": 2, "refused": 1},
}  # fmt: skip
