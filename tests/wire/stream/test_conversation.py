"""The conversation of docs/stream.md, said to a real member: its bytes, and what comes back.

A client in another language is right if it sends the client's lines; this shows that a member
answers them as the page says.
"""

from __future__ import annotations

from typing import Any

from coordinator.raft.engine import Role
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromServer
from tests.wire.serving import Api
from tests.wire.stream.speaking import speaking
from tests.wire.stream.test_frames import array, conversation, reader, shown

VARYING = {"coordinator-zxid", "coordinator-index", "zxid", "member_id", "leader_url"}
"""What is another one of the same type with each member."""


async def test_a_member_takes_the_conversation_of_the_page(api: Api) -> None:
    """Each answer as it is shown, those of one request in their order."""
    messages: list[FromServer] = []
    waited_for = 0
    api.member.leader_address._urls["1"] = "http://127.0.0.1:7071"
    async with speaking(api.server.port, hello=False) as speaker:
        for sender, raw, _ in conversation():
            if sender == "server":
                expected = frame_of(raw)
                if expected == frames.Leader(None):
                    messages += [await heard(speaker) for _ in range(waited_for - len(messages))]
                    lose_the_leader(api)
                elif isinstance(expected, frames.GoAway):
                    api.server._streams.close()  # type: ignore[union-attr]
                waited_for += 1
            else:
                messages += [await heard(speaker) for _ in range(waited_for - len(messages))]
                speaker.writer.write(raw)
        messages += await speaker.rest()

    shown_frames = [frame_of(raw) for sender, raw, _ in conversation() if sender == "server"]
    assert len(messages) == len(shown_frames)
    for expected, found in zip(in_order(shown_frames), in_order(messages), strict=True):
        assert type(found) is type(expected)
        assert is_as_shown(shown_array(expected), shown_array(found)), (expected, found)


def frame_of(raw: bytes) -> FromServer:
    reading = reader("server")
    reading.feed(raw)
    (frame,) = reading.take()
    return frame  # type: ignore[no-any-return]


async def heard(speaker: Any) -> FromServer:
    frame = await speaker.next()
    assert frame is not None, "the member has closed"
    return frame  # type: ignore[no-any-return]


def in_order(said: list[FromServer]) -> list[FromServer]:
    """Return the frames by request: answers of different ones come in any order."""
    return sorted(said, key=lambda frame: (type(frame).__name__, getattr(frame, "id", 0)))


def shown_array(frame: FromServer) -> list[Any]:
    return [shown(each) for each in array(frame)]


def is_as_shown(expected: Any, found: Any, name: str = "") -> bool:
    """Whether ``found`` has all that is shown; what varies is of the same type."""
    if isinstance(expected, dict):
        return isinstance(found, dict) and all(
            each in found and is_as_shown(expected[each], found[each], each) for each in expected
        )
    if isinstance(expected, list):
        return len(expected) == len(found) and all(map(is_as_shown, expected, found))
    return type(found) is type(expected) if name in VARYING else bool(found == expected)


def lose_the_leader(api: Api) -> None:
    """Let the member hear that its leader has gone."""
    engine: Any = api.member._engine
    engine._role = Role.FOLLOWER
    for listener in engine._leader_listeners:
        listener(None, 2)
