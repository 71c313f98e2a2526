"""The test kit's faults of one client: each in one line, each seen in what it does to a lock."""

from __future__ import annotations

import asyncio
import re
import threading
import urllib.request
from collections import Counter

import pytest

from coordinator import connect
from coordinator.client import Client, Create
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    LockTimeoutError,
    SessionExpiredError,
    UnavailableError,
)
from coordinator.recipes import Election, Lock, MultiLock, TreeLock
from coordinator.testing import Deed, LocalCluster

SESSION_S = 1.5


def labels(client: Client, name: str) -> list[str]:
    """Who holds and who waits, in order."""
    view = client.lock(name)
    return [each.label for each in (view.holder, *view.queue) if each is not None]


def test_frozen_heartbeats_lose_the_lock_and_the_next_one_is_granted(
    coordinator_cluster: LocalCluster,
) -> None:
    """The holder's grant says so before anybody else is granted."""
    lost_before_the_next = threading.Event()
    with (
        coordinator_cluster.connect(session_timeout=SESSION_S) as client,
        coordinator_cluster.connect() as other,
    ):
        grant = Lock(client, "report").acquire()
        grant.on_lost(lost_before_the_next.set)

        coordinator_cluster.freeze_heartbeats(client)

        following = Lock(other, "report", timeout=30).acquire()
        assert lost_before_the_next.is_set()
        assert grant.is_lost
        assert following.fencing_token > grant.fencing_token


def test_heartbeats_frozen_for_a_moment_cost_nothing(coordinator_cluster: LocalCluster) -> None:
    """Shorter than the lease: no effect."""
    with coordinator_cluster.connect(timeout=0.3) as client:
        grant = Lock(client, "report").acquire()

        with coordinator_cluster.freeze_heartbeats(client), pytest.raises(UnavailableError):
            grant.extend()

        assert not grant.is_lost
        assert grant.extend() > 0


def test_a_heartbeat_that_comes_after_the_take_over_is_refused(
    coordinator_cluster: LocalCluster,
) -> None:
    """It extends nothing and frees nothing: the new holder's grant stays what it is."""
    with coordinator_cluster.connect() as client, coordinator_cluster.connect() as other:
        old = Lock(client, "report").acquire()
        with coordinator_cluster.freeze_heartbeats(client):
            coordinator_cluster.expire(client)
            new = Lock(other, "report").acquire()

        with pytest.raises(LockLostError):
            old.extend()
        assert old.is_lost
        assert new.verify() > 0


@pytest.mark.parametrize(
    ("kind", "deed"), [(Lock, "acquire"), (TreeLock, "write"), (MultiLock, "acquire")]
)
def test_an_acquire_whose_reply_is_dropped_is_the_same_grant(
    coordinator_cluster: LocalCluster, kind: type[Lock[Client]], deed: Deed
) -> None:
    """One contender, one grant: the retry finds the first one's outcome."""
    with coordinator_cluster.connect() as client:
        client.session()
        dropped = coordinator_cluster.drop_reply(client, deed)

        with kind(client, "report"):
            view = client.lock("report")

            assert not dropped.is_in_effect
            assert view.holder is not None
            assert view.queue == ()


def test_an_election_whose_reply_is_dropped_is_won_once(coordinator_cluster: LocalCluster) -> None:
    """The same holds for elections."""
    with coordinator_cluster.connect() as client:
        client.session()
        dropped = coordinator_cluster.drop_reply(client, "acquire")

        with Election(client, "reporter", value=b"me") as leadership:
            elected = Election(client, "reporter").who().elected

            assert not dropped.is_in_effect
            assert elected is not None
            assert elected.fencing_token == leadership.epoch


def test_a_release_whose_reply_is_dropped_frees_only_its_own_grant(
    coordinator_cluster: LocalCluster,
) -> None:
    """It is a success, and repeating it can never free a later grant."""
    with coordinator_cluster.connect() as client:
        lock = Lock(client, "report")
        first = lock.acquire()
        dropped = coordinator_cluster.drop_reply(client, "release")

        assert lock.release()
        second = lock.acquire()

        assert not dropped.is_in_effect
        assert not first.release()
        assert second.verify() > 0


def test_any_write_whose_reply_is_dropped_happens_once(coordinator_cluster: LocalCluster) -> None:
    """Under the lock or without: the znode is created once, and its creator is told so."""
    with coordinator_cluster.connect() as client, Lock(client, "report") as grant:
        dropped = coordinator_cluster.drop_reply(client)

        reply = client.multi([grant.condition(), Create("/written", b"once")])

        assert not dropped.is_in_effect
        assert reply.results[-1].path == "/written"


def test_a_reply_is_dropped_by_a_rule_of_the_tests_own(coordinator_cluster: LocalCluster) -> None:
    """A function of the request decides; until then everything comes through."""
    with coordinator_cluster.connect() as client:
        dropped = coordinator_cluster.drop_reply(client, lambda request: "/b" in request.target)
        client.create("/a")
        assert dropped.is_in_effect

        client.create("/b")

        assert not dropped.is_in_effect


def test_an_expired_holder_is_told_at_its_next_question(coordinator_cluster: LocalCluster) -> None:
    """The cluster has ended the session; the next contender holds at once."""
    with coordinator_cluster.connect() as client, coordinator_cluster.connect() as other:
        grant = Lock(client, "report").acquire()

        coordinator_cluster.expire(grant)

        following = Lock(other, "report", timeout=0).acquire()
        assert not grant.is_held().is_held
        assert grant.is_lost
        assert following.fencing_token > grant.fencing_token


def test_only_a_session_that_is_there_can_be_expired(coordinator_cluster: LocalCluster) -> None:
    """A test's mistake is said, not swallowed."""
    with coordinator_cluster.connect() as client:
        with pytest.raises(BadArgumentsError, match="found none"):
            coordinator_cluster.expire(client)
        coordinator_cluster.expire(client.session())
        with pytest.raises(BadArgumentsError, match="no open session"):
            coordinator_cluster.expire(client)


def test_a_holder_that_is_cut_off_loses_before_the_next_is_granted(
    coordinator_cluster: LocalCluster,
) -> None:
    """It cannot reach the cluster, and knows by itself when to stop."""
    with (
        coordinator_cluster.connect(session_timeout=SESSION_S) as client,
        coordinator_cluster.connect() as other,
    ):
        lost = threading.Event()
        grant = Lock(client, "report").acquire()
        grant.on_lost(lost.set)

        coordinator_cluster.cut_off(client)

        Lock(other, "report", timeout=30).acquire()
        assert lost.is_set()
        with pytest.raises(LockLostError):
            grant.check()


def test_what_was_under_way_when_it_was_cut_off_arrives_late(
    coordinator_cluster: LocalCluster,
) -> None:
    """A cut holds messages back, it does not lose them, as TCP does."""
    with coordinator_cluster.connect() as client:
        client.create("/a")
        cut = coordinator_cluster.cut_off(client)
        threading.Timer(0.2, cut.end).start()

        assert client.get("/a").data == b""


@pytest.mark.parametrize("transport", ["auto", "http"])
def test_a_client_cut_off_from_one_member_goes_to_another(
    coordinator_cluster: LocalCluster, transport: str
) -> None:
    """Silence of one member costs an attempt, not the lock."""
    with coordinator_cluster.connect(timeout=3, transport=transport) as client:
        grant = Lock(client, "report").acquire()

        with coordinator_cluster.cut_off(client, *coordinator_cluster.followers):
            assert grant.verify() > 0
        with coordinator_cluster.cut_off(client, coordinator_cluster.leader):
            assert grant.verify() > 0


def test_a_client_of_the_kit_speaks_what_one_without_switches_speaks(
    coordinator_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream; the environment chooses for both."""
    asked = {}
    for name in ("", "http"):
        monkeypatch.setenv("COORDINATOR_TRANSPORT", name)
        for connector in (coordinator_cluster.connect(), connect(coordinator_cluster.endpoints)):
            before = doors(coordinator_cluster)
            with connector as client, Lock(client, "report"):
                pass
            asked[name, type(connector)] = set(doors(coordinator_cluster) - before)

    assert list(asked.values()) == [{"stream"}, {"stream"}, {"http"}, {"http"}]


def doors(cluster: LocalCluster) -> Counter[str]:
    """Return how many attempts to acquire came through each door."""
    found: Counter[str] = Counter()
    for url in cluster.urls:
        with urllib.request.urlopen(url + "/metrics", timeout=10) as answer:
            for line in answer.read().decode().splitlines():
                counted = re.match(r'coordinator_requests_total\{door="(\w+)",(.*)\} (\d+)', line)
                if counted is not None and "acquire" in counted[2].lower():
                    found[counted[1]] += int(counted[3])
    return found


def test_after_a_pause_the_first_question_has_the_true_answer(
    coordinator_cluster: LocalCluster,
) -> None:
    """Nothing ran meanwhile, and yet nothing is believed that is not so."""
    with (
        coordinator_cluster.connect(session_timeout=SESSION_S) as client,
        coordinator_cluster.connect() as other,
    ):
        grant = Lock(client, "report").acquire()

        coordinator_cluster.pause(client, 1_900)

        assert grant.is_lost
        Lock(other, "report", timeout=30).acquire()


async def test_a_paused_body_is_cancelled_and_told_why(coordinator_cluster: LocalCluster) -> None:
    """asyncio: the loop stands still; when it goes on the ``async with`` raises."""
    async with coordinator_cluster.connect(session_timeout=SESSION_S) as client:
        with pytest.raises(LockLostError):  # noqa: PT012
            async with Lock(client, "report") as grant:
                coordinator_cluster.pause(client, 1_900)
                assert grant.is_lost  # before any task has run
                await asyncio.sleep(30)


async def test_the_faults_are_the_same_on_asyncio(coordinator_cluster: LocalCluster) -> None:
    """One line each, awaited nowhere."""
    async with (
        coordinator_cluster.connect() as client,
        coordinator_cluster.connect() as other,
    ):
        coordinator_cluster.drop_reply(client, "acquire")
        grant = await Lock(client, "report").acquire()
        with coordinator_cluster.freeze_heartbeats(client):
            coordinator_cluster.expire(client)
            assert await Lock(other, "report").try_acquire() is not None
        with pytest.raises(LockLostError):
            await grant.verify()
        with coordinator_cluster.cut_off(client), pytest.raises((UnavailableError, TimeoutError)):
            async with asyncio.timeout(0.2):
                await client.get("/")


def test_a_stepped_wall_clock_of_a_client_changes_nothing(
    coordinator_cluster: LocalCluster,
) -> None:
    """An hour forward, two back: the lease is counted on another clock."""
    with coordinator_cluster.connect() as client, coordinator_cluster.connect() as other:
        grant = Lock(client, "report").acquire()
        for by_ms in (3_600_000, -7_200_000):
            coordinator_cluster.step_clock(client, by_ms)

            assert grant.verify() > 9_000
            with pytest.raises(LockTimeoutError):
                Lock(other, "report").acquire(timeout=0)


def test_a_fast_clock_of_a_client_gives_up_earlier(coordinator_cluster: LocalCluster) -> None:
    """Ten times as fast: its lease is over in a tenth, on the safe side."""
    with coordinator_cluster.connect(session_timeout=2) as client:
        grant = Lock(client, "report").acquire()
        lost = threading.Event()
        grant.on_lost(lost.set)

        with coordinator_cluster.freeze_heartbeats(client):
            coordinator_cluster.set_clock_rate(client, 10)

            assert lost.wait(30)
            assert client.lock("report", fencing_token=grant.fencing_token).is_current


def test_faults_need_a_client_of_the_cluster(coordinator_cluster: LocalCluster) -> None:
    """A client made elsewhere has no switches, and the kit says so."""
    with (
        connect(coordinator_cluster.endpoints) as stranger,
        pytest.raises(BadArgumentsError, match=r"cluster\.connect"),
    ):
        coordinator_cluster.freeze_heartbeats(stranger)


def test_who_waits_and_is_expired_stops_waiting(coordinator_cluster: LocalCluster) -> None:
    """A waiter's session may end as well; it is told, and leaves the queue."""
    with coordinator_cluster.connect() as client, coordinator_cluster.connect() as other:
        Lock(other, "report", label="holder").acquire()
        waiting = threading.Event()
        outcome: list[BaseException] = []

        def wait() -> None:
            try:
                Lock(client, "report", label="waiter", timeout=30).acquire(
                    on_position=lambda position: waiting.set()
                )
            except BaseException as error:
                outcome.append(error)

        waiter = threading.Thread(target=wait)
        waiter.start()
        assert waiting.wait(30)

        coordinator_cluster.expire(client)

        waiter.join(30)
        assert isinstance(outcome[0], SessionExpiredError | LockLostError)
        assert labels(other, "report") == ["holder"]
