"""Coverage-guided bytes for the decoders that outsiders reach (``python -m tests.fuzz.guided``).

::

    python -m tests.fuzz.guided messages -max_total_time=60

Needs ``atheris`` (not among the dependencies: it has wheels for few platforms). What it finds that
matters becomes an example of a test; the rest of ``tests/fuzz`` needs no tool. Each target may
refuse by the error that is its contract, and by no other.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-not-found]

with atheris.instrument_imports(include=["coordinator"]):
    from coordinator.errors import BadArgumentsError
    from coordinator.raft.network.frames import FrameReader
    from coordinator.raft.network.handshake import Acceptor, Identity
    from coordinator.raft.network.messages import FrameError, decode
    from coordinator.raft.network.messages import encode as encode_message
    from coordinator.state.codec import decode_command, encode_command
    from coordinator.state.machine import StateMachine
    from coordinator.wire.encoding import Encoding, encode
    from coordinator.wire.encoding import decode as decode_body
    from coordinator.wire.http.queries import Query
    from coordinator.wire.messages.operations import read_multi
    from tests.fuzz.test_machine import drawn_corpus
    from tests.fuzz.test_members import recorded


def messages(data: bytes) -> None:
    """A frame of a proved member: what decodes encodes to the same message."""
    try:
        message = decode(data)
    except FrameError:
        return
    assert decode(encode_message(message)) == message


def handshakes(data: bytes) -> None:
    """What a stranger sends first, cut into frames; it is never let in."""
    reader = FrameReader(1_024)
    acceptor = Acceptor(Identity("c", "1", b"secret-of-16-or-more"), bytes(32))
    try:
        reader.feed(data)
        while (payload := reader.next()) is not None:
            acceptor.receive(payload)
    except FrameError:
        return
    assert not acceptor.is_done


def commands(data: bytes) -> None:
    """A command of the log: what decodes is applied, and comes to an outcome."""
    try:
        command = decode_command(data)
    except ValueError:
        return
    assert decode_command(encode_command(command)) == command
    outcome = StateMachine().apply(command, 1, 1)
    assert (outcome.result is None) != (outcome.refusal is None)


def bodies(data: bytes) -> None:
    """A body of a request, in both encodings, and what a multi makes of it."""
    for encoding in Encoding:
        try:
            read_multi(decode_body(data, encoding))
        except BadArgumentsError:
            pass


def queries(data: bytes) -> None:
    """The query of a request."""
    try:
        Query(data.decode("latin-1"), ("stale", "at_least_zxid", "limit")).read_mode()
    except BadArgumentsError:
        pass


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (messages, handshakes, commands, bodies, queries)
}


def seeds(name: str) -> list[bytes]:
    """Return good input to begin from; without it the deeper shapes are hardly ever met."""
    if name == "commands":
        return drawn_corpus(1)[:500]
    if name == "messages":
        return [payload for _, _, payload in recorded(1)][:500]
    if name == "bodies":
        operations = [{"op": "create", "path": "/a", "data": "x"}, {"op": "check", "path": "/a"}]
        body = {"conditions": [{"path": "/a", "exists": True}], "then": operations}
        return [encode(body, encoding) for encoding in Encoding]
    return [b""]


def main() -> None:
    """Run the target that the first argument names; the others are libFuzzer's."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        raise SystemExit(f"usage: python -m tests.fuzz.guided {'|'.join(TARGETS)} [options]")
    name = sys.argv.pop(1)
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(seeds(name)):
            (Path(corpus) / str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, corpus], TARGETS[name])
        atheris.Fuzz()


if __name__ == "__main__":
    main()
