"""Questions between members: an answer reaches who asked, or nobody."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import (
    ConnectionLostError,
    NoLeaderError,
    OutcomeUnknownError,
    ShuttingDownError,
    ThrottledError,
)
from coordinator.raft.network.messages import (
    NEWEST,
    REPLY_ERROR,
    REPLY_OK,
    MemberRequest,
    Message,
    Reply,
)
from coordinator.raft.network.rpc import BEGUN_BYTES_MAX, RequestDesk


class Line:
    """A transport of one connection that keeps what is sent over it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.long_max = 1_000_000
        """What is longer finds no room."""
        self.is_up = True

    def is_connected(self, _member_id: str) -> bool:
        return self.is_up

    def send(self, member_id: str, message: Message) -> bool:
        if not self.is_up or len(NEWEST.encode(message)) > self.long_max:
            return False
        self.sent.append((member_id, message))
        return True


def a_desk() -> tuple[RequestDesk, Line]:
    line = Line()
    return RequestDesk(line, 100_000), line  # type: ignore[arg-type]


async def test_what_an_earlier_life_asked_is_not_answered_to_the_next_one() -> None:
    """A member that began anew counts from one again: it would take the answer for its own."""
    desk, line = a_desk()
    decided: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def decide(_member_id: str, payload: bytes) -> bytes:
        return await decided if payload == b"of the first life" else b"mine"

    desk.set_handler("propose", decide)

    desk.on_request("2", MemberRequest(request_id=1, kind="propose", payload=b"of the first life"))
    await asyncio.sleep(0)
    desk.on_connection_changed("2")
    desk.on_request("2", MemberRequest(request_id=1, kind="propose", payload=b"of the second life"))
    decided.set_result(b"not mine")
    for _ in range(5):
        await asyncio.sleep(0)

    assert line.sent == [("2", Reply(request_id=1, status=REPLY_OK, code="", payload=b"mine"))]


async def test_a_member_that_failed_neither_asks_nor_answers() -> None:
    """What was under way when its disk failed says nothing more, and asks nothing more."""
    desk, line = a_desk()

    async def echo(_member_id: str, payload: bytes) -> bytes:
        await asyncio.sleep(0)
        return payload

    desk.set_handler("propose", echo)
    desk.on_request("2", MemberRequest(request_id=1, kind="propose", payload=b"x"))

    desk.silence()
    for _ in range(5):
        await asyncio.sleep(0)

    assert line.sent == []
    with pytest.raises(ShuttingDownError):
        await desk.ask("2", "propose", b"x")


async def test_a_member_that_failed_waits_for_no_answer() -> None:
    """Nobody may keep it from ending at once; whether they were heard nobody knows (row 14)."""
    desk, _ = a_desk()
    asking = [asyncio.ensure_future(desk.ask(each, "propose", b"x")) for each in ("2", "3")]
    await asyncio.sleep(0)

    desk.silence()

    for each in asking:
        with pytest.raises(ConnectionLostError):
            await each


async def test_another_members_connection_takes_no_answer_away() -> None:
    """Only who asked over a connection that is gone is not answered."""
    desk, line = a_desk()

    async def echo(_member_id: str, payload: bytes) -> bytes:
        await asyncio.sleep(0)
        return payload

    desk.set_handler("propose", echo)

    desk.on_request("2", MemberRequest(request_id=7, kind="propose", payload=b"x"))
    desk.on_connection_changed("3")
    for _ in range(5):
        await asyncio.sleep(0)

    assert line.sent == [("2", Reply(request_id=7, status=REPLY_OK, code="", payload=b"x"))]


async def test_who_asked_over_a_lost_connection_is_told_that_nobody_knows() -> None:
    """The question may or may not have been heard."""
    desk, _ = a_desk()
    asking = asyncio.ensure_future(desk.ask("2", "propose", b"x"))
    await asyncio.sleep(0)

    desk.on_connection_changed("2")

    with pytest.raises(ConnectionLostError):
        await asking


async def test_a_question_that_finds_no_room_was_certainly_not_asked() -> None:
    """It is refused as too many are, and a lost connection is another thing."""
    desk, line = a_desk()
    line.long_max = 100

    with pytest.raises(ThrottledError, match="send_buffer_bytes_max"):
        await desk.ask("2", "propose", bytes(200))
    line.is_up = False
    with pytest.raises(NoLeaderError, match="not connected"):
        await desk.ask("2", "propose", bytes(200))

    assert line.sent == []


async def test_an_answer_that_finds_no_room_is_unknown_to_who_asked() -> None:
    """It was done, and only the answer is missing; nobody waits for it until the deadline."""
    desk, line = a_desk()
    line.long_max = 200

    async def long(_member_id: str, _payload: bytes) -> bytes:
        return bytes(1_000)

    desk.set_handler("read", long)
    desk.on_request("2", MemberRequest(1, kind="read", payload=b""))
    for _ in range(5):
        await asyncio.sleep(0)

    [(_, reply)] = line.sent
    assert isinstance(reply, Reply)
    assert (reply.request_id, reply.status) == (1, REPLY_ERROR)
    assert reply.code == OutcomeUnknownError.code


async def test_of_thousands_of_questions_a_pass_begins_a_hundred() -> None:
    """The others are begun in the next ones, in their order; of the heavy ones each alone."""
    desk, line = a_desk()
    begun: list[bytes] = []

    async def note(_member_id: str, payload: bytes) -> bytes:
        begun.append(payload)
        return b""

    desk.set_handler("light", note)
    desk.set_handler("heavy", note, is_alone=True)
    counts = []

    for number in range(250):
        desk.on_request("2", MemberRequest(request_id=number, kind="light", payload=b"%d" % number))
    for number in range(250, 253):
        desk.on_request("2", MemberRequest(request_id=number, kind="heavy", payload=b"%d" % number))
    while len(begun) < 253:
        before = len(begun)
        await asyncio.sleep(0)
        counts.append(len(begun) - before)
    await asyncio.sleep(0)

    assert begun == [b"%d" % number for number in range(253)]
    assert [each for each in counts if each] == [100, 100, 50, 1, 1, 1]
    assert [reply.request_id for _, reply in line.sent] == list(range(253))  # type: ignore[union-attr]


async def test_long_questions_are_begun_by_their_bytes() -> None:
    """So many bytes of them in a pass; a longer one alone, and never none."""
    desk, _ = a_desk()
    begun: list[int] = []

    async def note(_member_id: str, payload: bytes) -> bytes:
        begun.append(len(payload))
        return b""

    desk.set_handler("propose", note)
    sizes = [BEGUN_BYTES_MAX // 2, BEGUN_BYTES_MAX // 2, 1, 2 * BEGUN_BYTES_MAX, 1]
    counts = []

    for number, size in enumerate(sizes):
        desk.on_request("2", MemberRequest(request_id=number, kind="propose", payload=b"x" * size))
    while len(begun) < len(sizes):
        before = len(begun)
        await asyncio.sleep(0)
        counts.append(len(begun) - before)

    assert begun == sizes
    assert [each for each in counts if each] == [2, 1, 1, 1]


async def test_what_was_asked_of_a_member_that_stops_is_not_begun() -> None:
    """Neither are those that wait for their pass."""
    desk, line = a_desk()
    begun: list[int] = []

    async def note(_member_id: str, _payload: bytes) -> bytes:
        begun.append(1)
        return b""

    desk.set_handler("light", note)
    for number in range(150):
        desk.on_request("2", MemberRequest(request_id=number, kind="light", payload=b""))

    await desk.stop()
    for _ in range(5):
        await asyncio.sleep(0)

    assert len(begun) <= 100
    assert line.sent == []
