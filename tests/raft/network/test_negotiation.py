"""Which protocol two members speak: the newest that both know, and nobody between decides it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.raft.network.handshake import Acceptor, Dialer, HandshakeError, Identity
from coordinator.raft.network.messages import Codec, FrameError, Message, MessageKind
from tests.raft.network.test_transport import SECRET, Ear, Network, shake, until

Range = tuple[int, int]


def pair(dialing: Range, accepting: Range) -> tuple[Dialer, Acceptor]:
    """Return two members that speak these protocols."""
    one = Identity("c", member_id="1", secret=SECRET, protocols=dialing)
    two = replace(one, member_id="2", protocols=accepting)
    return Dialer(one, "2", b"d" * 32), Acceptor(two, b"a" * 32)


@pytest.mark.parametrize(
    ("dialing", "accepting", "spoken"),
    [
        ((1, 1), (1, 1), 1),
        ((1, 2), (1, 1), 1),
        ((1, 1), (1, 2), 1),
        ((1, 3), (2, 4), 3),
        ((3, 3), (1, 4), 3),
        ((2, 4), (1, 2), 2),
    ],
)
def test_both_speak_the_newest_protocol_that_both_know(
    dialing: Range, accepting: Range, spoken: int
) -> None:
    """Whichever of the two dials."""
    dialer, acceptor = pair(dialing, accepting)

    shake(dialer, acceptor)

    assert dialer.is_done
    assert acceptor.is_done
    assert dialer.protocol == acceptor.protocol == spoken
    assert dialer.keys() == acceptor.keys()


@pytest.mark.parametrize("older_dials", [True, False])
def test_without_a_common_protocol_both_sides_say_so_in_one_sentence(older_dials: bool) -> None:
    """What each speaks, and which of the two is to be started with another release."""
    older, newer = (1, 2), (3, 4)
    dialer, acceptor = pair(older, newer) if older_dials else pair(newer, older)

    challenge = acceptor.receive(dialer.begin())
    assert challenge is not None
    with pytest.raises(HandshakeError) as raised:
        dialer.receive(challenge)

    first, second = ("1 to 2", "3 to 4") if older_dials else ("3 to 4", "1 to 2")
    which = "1" if older_dials else "2"
    for sentence, here, there, others in (
        (str(raised.value), "1", "2", second),
        (acceptor.refusal, "2", "1", first),
    ):
        assert sentence.startswith(f"member {here} speaks the protocols ")
        assert f"member '{there}' speaks {others}: upgrade one release after" in sentence
        assert which in sentence.split("start member ")[1].split(" with")[0]
    assert not dialer.is_done
    assert not acceptor.is_done


def changed(payload: bytes, at: int, value: int) -> bytes:
    """Return a message in which one number is another one."""
    fields = list(msgpack.unpackb(payload))
    fields[at] = value
    packed: bytes = msgpack.packb(fields)
    return packed


@pytest.mark.parametrize("protocols", [(1, 1), (1, 2), (2, 2), (2, 3), (1, 4)])
@pytest.mark.parametrize("is_hello", [True, False])
def test_who_changes_the_protocols_on_the_way_ends_the_connection(
    is_hello: bool, protocols: Range
) -> None:
    """Nobody between two members can make them speak the older protocol."""
    dialer, acceptor = pair((1, 3), (1, 3))

    def on_its_way(payload: bytes) -> bytes:
        return changed(changed(payload, 1, protocols[0]), 2, protocols[1])

    hello = dialer.begin()
    challenge = acceptor.receive(on_its_way(hello) if is_hello else hello)
    assert challenge is not None
    proof = dialer.receive(challenge if is_hello else on_its_way(challenge))
    assert proof is not None
    with pytest.raises(HandshakeError, match="does not know this cluster's secret"):
        acceptor.receive(proof)

    assert not acceptor.is_done
    assert not dialer.is_done


def test_a_later_release_may_say_more_and_it_is_proved_too() -> None:
    """Fields at the end of the first two messages are skipped, not left out of the proof."""
    dialer, acceptor = pair((1, 1), (1, 1))
    hello = dialer.begin()
    longer = msgpack.packb([*msgpack.unpackb(hello), "more"])
    cast("Any", dialer).begin = lambda: longer

    shake(dialer, acceptor)
    assert dialer.is_done

    dialer, acceptor = pair((1, 1), (1, 1))
    challenge = acceptor.receive(longer)
    assert challenge is not None
    proof = dialer.receive(challenge)
    assert proof is not None
    with pytest.raises(HandshakeError, match="secret"):
        acceptor.receive(proof)


async def test_both_sides_log_over_sockets_that_they_have_no_common_protocol(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One sentence each, and the status of both says it."""
    network = Network(tmp_path)
    one, two = network.make(1), network.make(2)
    two.identity = replace(two.identity, protocols=(2, 2))
    for each in (one, two):
        await each.start(Ear())

    await until(lambda: "2" in one.disagreements() and "1" in two.disagreements())

    assert one.disagreements()["2"].startswith("member 1 speaks the protocols 1, and member '2'")
    assert two.disagreements()["1"].startswith("member 2 speaks the protocols 2, and member '1'")
    assert not one.is_connected("2")
    assert not two.is_connected("1")
    assert "start member 1 with a release between the two" in caplog.text
    await network.stop()


# --- messages


class Word(NamedTuple):
    """A kind of protocol 1, with a field that came in protocol 2 and one of 3."""

    number: int
    reason: bytes = b""
    is_late: bool = False


class Later(NamedTuple):
    """A kind that came in protocol 2."""

    number: int


KINDS = (
    MessageKind(0, Word, added=(("reason", 2), ("is_late", 3))),
    MessageKind(1, Later, since=2),
)


def codec(protocol: int) -> Any:
    return Codec(protocol, KINDS)


def test_a_field_is_sent_to_who_knows_it_and_has_its_default_for_others() -> None:
    """Of each two protocols the older one decides what is said."""
    word = Word(7, b"why", is_late=True)
    of = {1: Word(7), 2: Word(7, b"why"), 3: word}
    for protocol in of:
        said = codec(protocol).encode(word)
        assert codec(protocol).decode(said) == of[protocol]
        assert len(msgpack.unpackb(said)) == 1 + protocol
    for sent, read in itertools.permutations(of, 2):
        with pytest.raises(FrameError):
            codec(read).decode(codec(sent).encode(word))


def test_a_kind_is_of_the_protocols_from_one_on() -> None:
    """It is not sent to a member that does not know it, and ends the connection if it is."""
    message = cast("Message", Later(1))

    assert not codec(1).has(Later)
    assert codec(2).has(Later)
    with pytest.raises(FrameError):
        codec(1).decode(codec(2).encode(message))
