"""Equal watches of one client share a stream: who may join, who falls behind, who ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coordinator.client import ChangeStream, RetryPolicy
from coordinator.client.calling.calls import packed
from coordinator.client.calling.credentials import Credentials
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.stream.transport import StreamTransport
from coordinator.model.events import (
    Bookmark,
    Change,
    Event,
    EventType,
    Resync,
    Watching,
    WatchKind,
    WatchRequest,
    WatchSelector,
)
from coordinator.wire.codec import encoded, from_body
from coordinator.wire.encoding import Encoding, decode
from coordinator.wire.messages import SAFE_HEADER, SESSION_ID_HEADER
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.scripted import A, Network, Peer, echo
from tests.client.virtual_time import LoopClock, run


class Member:
    """A member whose watches begin at its ``zxid``; the test says what they bring."""

    def __init__(self) -> None:
        self.zxid = 1
        self.begins = True
        """Whether a watch is answered."""
        self.watches: dict[int, WatchRequest] = {}
        """The requests that are answered with lines, by number."""
        self.credits: list[int] = []
        self.says: dict[str, str] = {}
        """Further headers of an answer to a watch."""
        self.network = Network()
        self.network.add(A, self._answer)
        self.transport = StreamTransport(connect=self.network.connect)

    def client(self, token: str | None = None, seen_zxid: int = 0) -> CallDelivery:
        """Return the way of a client to this member; all have the one transport."""
        clock = LoopClock(asyncio.get_running_loop())
        found = CallDelivery(
            self.transport, [A], clock, RetryPolicy(), encoding=Encoding.MSGPACK,
            credentials=Credentials(token),
        )  # fmt: skip
        found.zxid_seen = seen_zxid
        return found

    def begin(self) -> None:
        """Answer the watches that have come."""
        self.begins = True
        for number, asked in self.watches.items():
            self._begin(number, asked)

    def say(self, number: int, line: Change | Bookmark | Resync) -> None:
        """Send a line of the watch ``number``."""
        self.zxid = line.zxid
        self.network.peer(A).send(frames.Line(number, encoded(line, Encoding.MSGPACK)))

    def _begin(self, number: int, asked: WatchRequest) -> None:
        zxid = self.zxid if asked.from_zxid is None else asked.from_zxid
        headers = {"coordinator-zxid": str(zxid), "coordinator-index": str(zxid), **self.says}
        peer: Peer = self.network.peer(A)
        peer.send(frames.Head(number, status=200, headers=headers))
        peer.send(frames.Line(number, encoded(Watching(zxid), Encoding.MSGPACK)))

    def _answer(self, peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.RequestFrame(number, _, "/v1/watch", _, body):
                assert body is not None
                asked = from_body(WatchRequest, decode(body, Encoding.MSGPACK))
                self.watches[number] = asked
                if self.begins:
                    self._begin(number, asked)
            case frames.RequestFrame(number):
                headers = {"coordinator-zxid": str(self.zxid), "coordinator-index": str(self.zxid)}
                peer.send(frames.AnswerFrame(number, status=200, headers=headers, body=b"\x80"))
            case frames.Cancel(number):
                del self.watches[number]
            case frames.Credit(_, amount):
                self.credits.append(amount)
            case _:
                echo(peer, frame)


class Session:
    """One that wants to be renewed by each request; notes when it was."""

    session_id = "5e55105e55105e55"

    def __init__(self) -> None:
        self.renewed_ms: list[int] = []

    def wants_renewal(self, now_ms: int) -> bool:
        return True

    def on_renewed(self, sent_ms: int) -> None:
        self.renewed_ms.append(sent_ms)

    def on_ended(self, reason: str) -> None:
        raise AssertionError(reason)


def watch(
    client: CallDelivery, path: str = "/a", from_zxid: int | None = None, one_shot: bool = False
) -> ChangeStream:
    selectors = [WatchSelector(path, WatchKind.ZNODE)]
    return ChangeStream(
        client, selectors, from_zxid=from_zxid, is_one_shot=one_shot, contact_timeout_ms=None
    )


def change(zxid: int, size: int = 0) -> Change:
    data = bytes(size) if size else None
    return Change(zxid, (Event(EventType.DATA_CHANGED, "/a", version=zxid, czxid=1, data=data),))


def scenario(body: Callable[[Member], Awaitable[None]]) -> Callable[[], None]:
    async def whole() -> None:
        member = Member()
        await body(member)
        await member.transport.close()

    def test() -> None:
        run(whole())

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


@scenario
async def test_equal_watches_share_one_stream(member: Member) -> None:
    """Each gets every change; the stream ends with the last of them."""
    client = member.client()
    streams = [await watch(client) for _ in range(3)]
    assert list(member.watches) == [1]

    for zxid in (5, 6):
        member.say(1, change(zxid))
        assert [(await anext(each)).zxid for each in streams] == [zxid] * 3

    for each in streams[:2]:
        await each.close()
        await asyncio.sleep(1)
        assert member.watches
    member.say(1, change(7))
    assert (await anext(streams[2])).zxid == 7
    await streams[2].close()
    await asyncio.sleep(1)
    assert not member.watches
    assert (await watch(client)).zxid == 7
    assert list(member.watches) == [2]


@scenario
async def test_a_watch_that_joins_begins_behind_the_last_line(member: Member) -> None:
    """It is not told of what came before, and knows where it has begun."""
    client = member.client()
    first = await watch(client)
    member.say(1, change(5))
    assert (await anext(first)).zxid == 5
    second = await watch(client)
    assert second.zxid == 5
    member.say(1, Bookmark(8))
    await asyncio.sleep(1)
    assert (await watch(client)).zxid == 8
    member.say(1, change(9))
    assert (await anext(second)).zxid == (await anext(first)).zxid == 9
    assert list(member.watches) == [1]


@scenario
async def test_a_client_that_has_seen_more_opens_its_own(member: Member) -> None:
    """A change that it has seen or made already may be on its way in the stream under way."""
    client = member.client()
    await watch(client)
    member.zxid = 5
    await client.attempt(packed("POST", "/v1/tree/a", {}), lambda body: None, 1_000)
    assert client.zxid_seen == 5
    for _ in range(2):
        assert (await watch(client)).zxid == 5
        assert len(member.watches) == 2


@scenario
async def test_a_watch_from_a_zxid_joins_what_is_not_behind_it(member: Member) -> None:
    """Of what came already nobody can tell it."""
    client = member.client(seen_zxid=20)
    first = await watch(client, from_zxid=5)
    member.say(1, change(8))
    assert (await anext(first)).zxid == 8
    second = await watch(client, from_zxid=8)
    third = await watch(client, from_zxid=9)
    assert (second.zxid, third.zxid) == (8, 9)
    assert list(member.watches) == [1]
    for zxid in (9, 10):
        member.say(1, change(zxid))
    assert [(await anext(second)).zxid, (await anext(third)).zxid] == [9, 10]
    await watch(client, from_zxid=9)
    assert [each.from_zxid for each in member.watches.values()] == [5, 9]


@scenario
async def test_only_equal_watches_share(member: Member) -> None:
    """Not those of another path, of another identity, or of one change."""
    client, other = member.client("co_first"), member.client("co_other")
    await watch(client)
    await watch(client, path="/b")
    await watch(other)
    await watch(client, one_shot=True)
    await watch(client, one_shot=True)
    assert len(member.watches) == 5


@pytest.mark.parametrize("seen_zxid", [0, 3])
def test_watches_that_begin_together_share_if_they_have_seen_the_same(seen_zxid: int) -> None:
    """A member is asked again for one that knows more than was known when it was asked."""

    async def together(member: Member) -> None:
        member.begins = False
        client = member.client()
        opening = [asyncio.create_task(watch(client).open()) for _ in range(3)]
        await asyncio.sleep(1)
        client.zxid_seen = seen_zxid
        opening.append(asyncio.create_task(watch(client).open()))
        await asyncio.sleep(1)
        assert len(member.watches) == (2 if seen_zxid else 1)
        opening[0].cancel()
        member.begin()
        assert {each.zxid for each in await asyncio.gather(*opening[1:])} == {1}

    scenario(together)()


@scenario
async def test_a_reader_that_falls_behind_goes_on_from_its_zxid(member: Member) -> None:
    """The others are not held up by it, and nothing is kept for it beyond the window."""
    client = member.client()
    quick, slow = await watch(client), await watch(client)
    for zxid in range(5, 12):
        member.say(1, change(zxid, 100_000))
        assert (await anext(quick)).zxid == zxid
    assert list(member.watches) == [1]
    assert [(await anext(slow)).zxid for _ in range(4)] == [5, 6, 7, 8]
    reading = asyncio.create_task(anext(slow))
    await asyncio.sleep(1)
    first, resumed = member.watches
    assert member.watches[resumed].from_zxid == 8
    member.say(resumed, change(9))
    assert (await reading).zxid == 9
    member.say(first, change(12))
    assert (await anext(quick)).zxid == 12


@scenario
async def test_the_quickest_reader_earns_the_credit(member: Member) -> None:
    """While nobody reads, the member is not asked for more, and no reader is behind."""
    client = member.client()
    streams = [await watch(client) for _ in range(3)]
    for zxid in range(5, 15):
        member.say(1, change(zxid, 100_000))
    await asyncio.sleep(1)
    assert not member.credits
    for each in streams:
        assert [(await anext(each)).zxid for _ in range(10)] == list(range(5, 15))
    await asyncio.sleep(1)
    assert 1_000_000 - sum(member.credits) < 140_000
    assert list(member.watches) == [1]


@scenario
async def test_who_joins_does_not_wait_for_one_that_reads_nothing(member: Member) -> None:
    """The member has used all its credit for that one: the begin of another is worth some."""
    client = member.client()
    idle = await watch(client)
    for zxid in range(5, 8):
        member.say(1, change(zxid, 100_000))
    await asyncio.sleep(1)
    assert not member.credits

    joined = await watch(client)
    await asyncio.sleep(1)
    assert list(member.watches) == [1]
    assert sum(member.credits) >= 300_000
    member.say(1, change(8))
    assert (await anext(joined)).zxid == 8
    assert [(await anext(idle)).zxid for _ in range(3)] == [5, 6, 7]


@scenario
async def test_all_go_on_elsewhere_when_the_stream_breaks(member: Member) -> None:
    """Each from its own zxid; those that are equally far share again."""
    client = member.client()
    first, second = await watch(client), await watch(client)
    member.say(1, change(5))
    assert (await anext(first)).zxid == (await anext(second)).zxid == 5
    reading = [asyncio.create_task(anext(each)) for each in (first, second)]
    await asyncio.sleep(1)
    member.network.peer(A).transport.close()
    member.watches.clear()
    await asyncio.sleep(10)
    assert [each.from_zxid for each in member.watches.values()] == [5]
    member.say(*member.watches, change(6))
    assert [each.zxid for each in await asyncio.gather(*reading)] == [6, 6]


@pytest.mark.parametrize("line", [b"\xc1", b"\x01", b"\x80", b"\x81\xa4type\xa6change"])
def test_behind_a_line_that_says_nothing_nobody_joins(line: bytes) -> None:
    """Whose reader finds that out leaves its member."""

    async def broken(member: Member) -> None:
        client = member.client()
        first = await watch(client)
        member.network.peer(A).send(frames.Line(1, line))
        await asyncio.sleep(1)
        second = await watch(client)
        assert list(member.watches) == [1, 2]
        assert first.zxid == second.zxid == 1

    scenario(broken)()


@scenario
async def test_a_stream_that_has_ended_is_not_joined(member: Member) -> None:
    """A member that wants its reader to read again says so to those who were there."""
    client = member.client()
    first, second = await watch(client), await watch(client)
    member.say(1, Resync(6))
    await asyncio.sleep(1)
    third = await watch(client)
    assert third.zxid == 6
    assert list(member.watches) == [1, 2]
    reading = [asyncio.create_task(anext(each)) for each in (first, second)]
    await asyncio.sleep(1)
    assert [each.from_zxid for each in member.watches.values()] == [None, 1]
    member.say(3, change(7))
    assert [each.zxid for each in await asyncio.gather(*reading)] == [7, 7]


@scenario
async def test_an_answer_that_several_share_renews_nobody(member: Member) -> None:
    """It may be that of a request sent long before, or of another session."""
    client = member.client()
    client.renewing = session = Session()
    member.says = {SAFE_HEADER.lower(): "10000"}
    streams = []
    for _ in range(3):
        streams.append(await watch(client))
        await asyncio.sleep(5)
    assert list(member.watches) == [1]
    assert session.renewed_ms == []
    (request,) = [each for each in member.network.peer(A).requests() if each.target == "/v1/watch"]
    assert SESSION_ID_HEADER.lower() not in {name.lower() for name in request.headers}

    alone = await watch(client, one_shot=True)

    assert len(session.renewed_ms) == 1, "of one that is alone the answer says so"
    for each in (*streams, alone):
        await each.close()


@scenario
async def test_an_answer_that_several_share_accepts_nobodys_credential(member: Member) -> None:
    """That of the first was accepted when it was sent, and may be gone by now."""
    client = member.client(token="t" * 40)
    first = await watch(client)
    second = await watch(client)

    assert client.acceptance._last is None
    alone = await watch(client, one_shot=True)
    assert client.acceptance._last is not None
    for each in (first, second, alone):
        await each.close()
