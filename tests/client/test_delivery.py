"""One call answered: what is tried again, what is raised, and that it happens once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from coordinator.client import Request, Response
from coordinator.client.calling.calls import Call
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.calling.retry import RetryPolicy
from coordinator.errors import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    NoAuthError,
    NodeExistsError,
    NoLeaderError,
    OutcomeUnknownError,
    RequestForgottenError,
    StorageError,
    UnavailableError,
)
from tests.client.fake_members import (
    BROKEN,
    REFUSED,
    A,
    B,
    C,
    FakeMembers,
    Happening,
    answer,
    refusal,
)
from tests.client.virtual_time import LoopClock, run

WRITE = Call("POST", target="/v1/tree/a", body={"data": "x"})
READ = Call("GET", "/v1/tree/a")


def deliver(members: FakeMembers, *urls: str, retry: RetryPolicy | None = None) -> CallDelivery:
    clock = LoopClock(asyncio.get_running_loop())
    return CallDelivery(
        members, endpoints=urls or (A, B, C), clock=clock, retry=retry or RetryPolicy(seed=1)
    )


def script(*happenings: Happening) -> FakeMembers:
    """Members that do these things, one for each request, then answer."""
    rest: Iterator[Happening] = iter(happenings)
    return FakeMembers(lambda seen: next(rest, answer({"ok": True})))


async def write(delivery: CallDelivery, timeout_ms: int = 10_000) -> object:
    return await delivery.write(WRITE, lambda body: body, timeout_ms)


def test_a_write_is_repeated_with_the_same_number_until_it_is_answered() -> None:
    """A lost reply is asked for again under the same client id and number."""

    async def scenario() -> None:
        members = script(BROKEN, refusal(NoLeaderError()), REFUSED, answer({"zxid": 4}))

        reply = await write(deliver(members))

        assert reply == {"zxid": 4}
        assert len({(each.client_id, each.number) for each in members.seen}) == 1
        assert members.seen[0].number == "1"

    run(scenario())


def test_each_write_has_the_next_number() -> None:
    """Numbers grow from 1 within one client id."""

    async def scenario() -> None:
        members = script()
        delivery = deliver(members)

        for _ in range(3):
            await write(delivery)

        assert [each.number for each in members.seen] == ["1", "2", "3"]
        assert len({each.client_id for each in members.seen}) == 1

    run(scenario())


def test_writes_at_the_same_time_never_share_a_client_id() -> None:
    """At most one request is under way for each client id, so none falls out of the window."""

    async def scenario() -> None:
        members = script()
        delivery = deliver(members)

        await asyncio.gather(*(write(delivery) for _ in range(200)))

        pairs = [(each.client_id, each.number) for each in members.seen]
        assert len(set(pairs)) == 200
        assert len({client_id for client_id, _ in pairs}) <= 128

    run(scenario())


def test_a_write_waits_for_others_no_longer_than_its_own_deadline() -> None:
    """With as many under way as may be; it says that nothing was sent, and is none of them."""

    async def scenario() -> None:
        members = FakeMembers(lambda seen: None)
        delivery = deliver(members)
        slow = [asyncio.create_task(write(delivery, 60_000)) for _ in range(128)]
        await asyncio.sleep(1)
        sent = len(members.seen)
        began = asyncio.get_running_loop().time()

        with pytest.raises(UnavailableError, match="nothing was sent"):
            await write(delivery, 200)

        assert asyncio.get_running_loop().time() - began <= 0.21
        assert len(members.seen) == sent
        for each in slow:
            each.cancel()
        await asyncio.wait(slow)
        members.on_request = lambda seen: answer({"ok": True})
        assert await write(delivery, 200) == {"ok": True}

    run(scenario())


def test_a_short_first_write_is_tried_elsewhere_when_the_first_member_is_silent() -> None:
    """Asking for the log index takes no more than a third of it."""

    class OneIsDeaf(FakeMembers):
        async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
            if endpoint == deaf:
                return await self._happened(None, timeout_ms)
            return await super().request(endpoint, request, timeout_ms)

    async def scenario() -> None:
        nonlocal deaf
        members = OneIsDeaf(lambda seen: answer({"ok": True}))
        delivery = deliver(members)
        deaf = delivery.endpoints.current

        assert await write(delivery, 900) == {"ok": True}
        assert [each.endpoint for each in members.seen] != [deaf]

    deaf = ""
    run(scenario())


def test_a_definite_refusal_is_raised_at_once() -> None:
    """What cannot succeed as sent is not sent again."""

    async def scenario() -> None:
        members = script(refusal(NodeExistsError("/a exists", path="/a")))

        with pytest.raises(NodeExistsError, match="/a exists") as raised:
            await write(deliver(members))

        assert raised.value.path == "/a"
        assert len(members.seen) == 1

    run(scenario())


def test_without_a_quorum_a_write_fails_within_its_deadline_with_no_leader() -> None:
    """Unavailable is tried again at all members, then raised as it is."""

    async def scenario() -> None:
        members = FakeMembers(
            lambda seen: REFUSED if seen.endpoint == A else refusal(NoLeaderError("no quorum"))
        )
        loop = asyncio.get_running_loop()
        began = loop.time()

        with pytest.raises(NoLeaderError) as raised:
            await write(deliver(members), 5_000)

        assert raised.value.definite
        assert loop.time() - began <= 5.0
        assert {each.endpoint for each in members.seen} == {A, B, C}

    run(scenario())


def test_a_write_that_may_have_arrived_is_never_reported_as_failed() -> None:
    """One lost answer makes the end unknown, whatever certain refusals follow."""

    async def scenario() -> None:
        members = FakeMembers(
            lambda seen: BROKEN if len(members.seen) == 1 else refusal(NoLeaderError())
        )

        with pytest.raises(OutcomeUnknownError) as raised:
            await write(deliver(members), 3_000)

        assert not raised.value.definite
        assert len(members.seen) > 2

    run(scenario())


@pytest.mark.parametrize("error", [AuthFailedError("revoked"), NoAuthError("needs write on /a")])
def test_rights_that_ended_say_nothing_of_an_earlier_attempt(error: CoordinatorError) -> None:
    """The first may have been done while they held; without one before, the refusal is definite."""

    async def scenario() -> None:
        with pytest.raises(OutcomeUnknownError) as raised:
            await write(deliver(script(BROKEN, refusal(error))))
        assert isinstance(raised.value, ConnectionLostError)
        for happenings in ((refusal(error),), (REFUSED, refusal(error))):
            with pytest.raises(type(error)):
                await write(deliver(script(*happenings)))
        with pytest.raises(type(error)):
            await deliver(script(BROKEN, refusal(error))).read(READ, lambda body: body, 10_000)

    run(scenario())


def test_a_refused_connection_is_definite() -> None:
    """When nothing was ever sent, the write certainly did not happen."""

    async def scenario() -> None:
        with pytest.raises(UnavailableError):
            await write(deliver(FakeMembers(lambda seen: REFUSED)), 2_000)

    run(scenario())


def test_a_read_without_an_answer_changed_nothing() -> None:
    """A read that was never answered ends as unavailable, not as unknown."""

    async def scenario() -> None:
        with pytest.raises(UnavailableError):
            await deliver(FakeMembers(lambda seen: None)).read(READ, lambda body: body, 3_000)

    run(scenario())


@pytest.mark.parametrize("deaf", [None, BROKEN, REFUSED, refusal(NoLeaderError())])
def test_a_dead_slow_or_deaf_member_is_left_within_the_deadline(deaf: Happening) -> None:
    """The others answer although the current member does not."""

    async def scenario() -> None:
        members = FakeMembers(lambda seen: deaf if seen.endpoint == bad else answer({"ok": True}))
        delivery = deliver(members)
        bad = delivery.endpoints.current
        loop = asyncio.get_running_loop()
        began = loop.time()

        await write(delivery, 10_000)
        left = loop.time() - began
        await write(delivery, 10_000)

        assert left < 4.0
        assert delivery.endpoints.current != bad
        assert [each.endpoint for each in members.seen].count(bad) == 1  # sticks to one that works

    run(scenario())


def test_one_attempt_never_outlives_the_call() -> None:
    """The overall deadline has the last word over attempts and pauses."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        with pytest.raises(OutcomeUnknownError):
            await write(deliver(FakeMembers(lambda seen: None)), 2_500)

        assert 2.0 <= loop.time() - began <= 2.6

    run(scenario())


def test_the_number_of_tries_is_honoured() -> None:
    """``tries`` bounds how often one call is sent."""

    async def scenario() -> None:
        members = FakeMembers(lambda seen: refusal(NoLeaderError()))

        with pytest.raises(NoLeaderError):
            await write(deliver(members, retry=RetryPolicy(base_ms=1, tries=3)))

        assert len(members.seen) == 3

    run(scenario())


def test_a_forgotten_first_attempt_is_sent_anew_under_a_new_id() -> None:
    """A client the table has evicted was told so before anything happened: it may begin again."""

    async def scenario() -> None:
        members = script(refusal(RequestForgottenError(), index=900), answer({"ok": True}))

        await write(deliver(members))

        first, second = members.seen
        assert first.client_id != second.client_id
        assert second.number == "1"
        assert second.request.headers["coordinator-floor-index"] == "900"

    run(scenario())


def test_a_forgotten_later_attempt_is_unknown() -> None:
    """After a lost answer "forgotten" may mean "done long ago", and is raised as what it is."""

    async def scenario() -> None:
        with pytest.raises(RequestForgottenError):
            await write(deliver(script(BROKEN, refusal(RequestForgottenError()))))

    run(scenario())


def test_an_answer_that_nobody_of_ours_gave_is_unknown() -> None:
    """A proxy's error page says nothing about the write."""

    async def scenario() -> None:
        members = FakeMembers(lambda seen: answer({"message": "Bad Gateway"}, 502))

        with pytest.raises(OutcomeUnknownError, match="502"):
            await write(deliver(members), 2_000)

    run(scenario())


def test_a_member_that_failed_inside_leaves_the_outcome_open() -> None:
    """An error of the member's own is tried again elsewhere and never taken for a refusal."""

    async def scenario() -> None:
        members = script(refusal(StorageError("the disk failed")), answer({"zxid": 4}))
        assert await write(deliver(members)) == {"zxid": 4}

        members = FakeMembers(lambda seen: refusal(StorageError("the disk failed")))
        with pytest.raises(OutcomeUnknownError, match="the disk failed"):
            await write(deliver(members), 2_000)

    run(scenario())


def test_an_answer_that_cannot_be_read_is_unknown() -> None:
    """A broken success is not reported as a mistake of the caller."""

    async def scenario() -> None:
        members = FakeMembers(lambda seen: answer({}))
        delivery = deliver(members)

        def parse(body: object) -> object:
            raise BadArgumentsError("no such field")

        with pytest.raises(OutcomeUnknownError, match="could not be read"):
            await delivery.write(WRITE, parse, 1_500)

    run(scenario())


def test_all_waiting_is_bounded_even_when_every_member_hangs() -> None:
    """Nothing but errors of the tree comes out, in time."""

    async def scenario() -> None:
        delivery = deliver(FakeMembers(lambda seen: None))
        results = await asyncio.gather(
            *(write(delivery, 1_500) for _ in range(20)), return_exceptions=True
        )

        assert all(isinstance(each, ConnectionLostError) for each in results)
        assert all(isinstance(each, CoordinatorError) for each in results)

    run(scenario())


def test_an_index_that_another_thread_overwrote_is_noted_again() -> None:
    """Two threads note answers at once: the lower index may be written last."""

    async def scenario() -> None:
        delivery = deliver(script(*[answer({"ok": True}, index=12)] * 2))
        await delivery.read(READ, lambda body: body, 10_000)
        delivery.index_seen = 10

        await delivery.read(READ, lambda body: body, 10_000)

        assert delivery.index_seen == 12

    run(scenario())
