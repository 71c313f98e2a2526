"""A member whose connections are all taken: it says how it is, and lets its operator make room."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from coordinator.node.config import HttpConfig, MemberLimits
from coordinator.wire.addresses import network_of
from coordinator.wire.admission import (
    ASKED_OF_A_FULL_MEMBER,
    SPARE_MAX,
    Admission,
    Place,
)
from coordinator.wire.stream import frames
from tests.wire.guarded import guarded
from tests.wire.serving import Api, serving
from tests.wire.stream.speaking import speaking

FULL = HttpConfig(connections_max=3, connections_per_address_max=4, header_deadline_ms=30_000)


async def _asked(
    api: Api, request: bytes, token: str = "", accept: bytes = b"*/*"
) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
    shown = f"Authorization: Bearer {token}\r\n".encode() if token else b""
    named = b" HTTP/1.1\r\nHost: localhost\r\nX-Coordinator: 1\r\nAccept: %b\r\n" % accept
    writer.write(request + named + shown + b"\r\n")
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return int(answer.split()[1]), answer.partition(b"\r\n\r\n")[2]


async def _filled(api: Api) -> list[asyncio.StreamWriter]:
    """Take every connection there is, and say nothing."""
    taken = []
    while api.server.connection_count < FULL.connections_max:
        _, writer = await asyncio.open_connection("127.0.0.1", api.server.port)
        taken.append(writer)
        await asyncio.sleep(0.01)
    return taken


async def test_a_full_member_answers_for_its_health_and_to_its_operator() -> None:
    """Whoever asks for anything else is refused as one too many, with the reason."""
    async with serving(http=FULL) as api:
        session_id = await api.session_id()
        taken = await _filled(api)

        live, _ = await _asked(api, b"GET /health/live")
        ready, _ = await _asked(api, b"GET /health/ready")
        metrics, _ = await _asked(api, b"GET /metrics")
        listed, sessions = await _asked(api, b"GET /v1/sessions")
        refused, problem = await _asked(api, b"GET /v1/tree")
        ended, body = await _asked(api, b"DELETE /v1/sessions/" + session_id.encode())

        assert (live, ready, metrics, listed, ended) == (200, 200, 200, 200, 200)
        assert session_id in sessions.decode()
        assert json.loads(body)["was_open"] is True
        assert refused == 503
        assert "at most 3 connections" in json.loads(problem)["detail"]
        for each in taken:
            each.close()


async def test_an_operator_may_ask_for_anything_of_a_full_member() -> None:
    """With access rights on: the last places are for who has ``admin`` on ``@limits``."""
    async with guarded(http=FULL) as cluster:
        api = cluster.api
        sessions = await cluster.identity(("@sessions", ("admin",)), ("/", ("read",)))
        taken = await _filled(api)

        read, _ = await _asked(api, b"GET /v1/tree?children", cluster.root)
        limits, _ = await _asked(api, b"GET /v1/limits", cluster.root)
        lines, rest = await _asked(api, b"GET /v1/grants", cluster.root, b"application/x-ndjson")
        stranger, _ = await _asked(api, b"GET /v1/tree?children")
        other, problem = await _asked(api, b"GET /v1/tree?children", sessions)
        wrong, _ = await _asked(api, b"GET /v1/tree?children", cluster.root[:-4] + "AAAA")
        async with speaking(api.server.port) as speaker:
            shown = {"authorization": f"Bearer {cluster.root}"}
            made = await speaker.call("POST", "/v1/tree/a", {"data": b""}, **shown)
            assert isinstance(await speaker.next(), frames.GoAway), "it may ask once"
        async with speaking(api.server.port) as speaker:
            refused = await speaker.call("POST", "/v1/tree/b", {"data": b""})
        for each in taken:
            each.close()

    assert (read, limits, lines, made.status) == (200, 200, 200, 201)
    assert b"HTTP" not in rest, "it was closed behind the answer, not for its time"
    assert (stranger, other, refused.status) == (503, 503, 503)
    assert "at most 3 connections" in json.loads(problem)["detail"]
    assert wrong == 401


async def test_the_last_streams_and_waits_are_kept_for_operators() -> None:
    """Two of a hundred, while access rights are on."""
    limits = MemberLimits(watch_streams_max=50, lock_waiters_max=50, watch_selectors_max=1_000)
    rules = ("/", ("read", "watch", "lock"))
    async with guarded(limits=limits) as cluster:
        member, named = cluster.api.member, cluster.speaker
        token = await cluster.identity(rules)
        seen = []
        member.watches._room._streams.count("others", 48)
        for shown in (token, cluster.root):
            for _ in range(50):
                caller = {"authorization": f"Bearer {shown}"}
                named.send(named.request("GET", "/v1/watch?path=/a", **caller))
                begun = await named.next()
                seen.append(begun.status if isinstance(begun, frames.Head) else 0)
                if seen[-1] == 0:
                    break
                assert isinstance(await named.next(), frames.Line)
        member._queues._room._places.count("others", 49)
        waits = []
        async with speaking(cluster.api.server.port) as speaker:
            for shown in (token, cluster.root):
                caller = {"authorization": f"Bearer {shown}"}
                opened = await speaker.call("POST", "/v1/sessions", {}, **caller)
                for timeout_ms in (0, 50):  # the first one holds: so all others would have to wait
                    body = {"session_id": opened.body["session_id"], "timeout_ms": timeout_ms}
                    locked = await speaker.call("POST", "/v1/locks/a", body, **caller)
                    waits.append(locked.status)

    assert seen == [200, 0, 200, 0]
    assert waits == [200, 429, 409, 409]


async def test_a_spare_connection_that_asks_nothing_ends() -> None:
    """After a second it makes room for the next one that asks."""
    async with serving(http=FULL) as api:
        taken = await _filled(api)
        silent = [await asyncio.open_connection("127.0.0.1", api.server.port) for _ in range(20)]

        async with asyncio.timeout(10):
            answers = [await reader.read() for reader, _ in silent]

        assert all(b"503" in each for each in answers), answers
        assert (await _asked(api, b"GET /health/live"))[0] == 200
        for writer in (*taken, *[each for _, each in silent]):
            writer.close()


def test_what_may_be_asked_of_a_full_member_are_routes() -> None:
    """Each is in the table of routes."""
    from tests.wire.test_loop_time import all_routes_of_a_member

    known = {(route.method, route.template) for route in all_routes_of_a_member()}
    assert known >= ASKED_OF_A_FULL_MEMBER


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
    ],
)
def test_an_ipv6_client_counts_by_its_network(address: str, network: str) -> None:
    """One host has 2**64 addresses there."""
    assert network_of(address) == network


def test_no_address_takes_all_that_is_spare() -> None:
    """A crowd behind one address leaves some for others."""
    admission = Admission(FULL)

    taken = 0
    while admission.has_spare("10.1.2.3"):
        admission.spare.add(Place("10.1.2.3"))
        taken += 1

    assert 0 < taken < SPARE_MAX
    assert admission.has_spare("10.1.2.4")


def test_addresses_without_a_place_take_no_spare_one_of_others() -> None:
    """However many they are: who has room of its own is let in to a full member."""
    crowded = HttpConfig(connections_max=40, connections_per_address_max=2)
    admission = Admission(crowded)
    places = [admission.enter(f"10.1.2.{number}") for number in range(20) for _ in range(2 + 8)]
    of_crowds = [each for each in places if isinstance(each, Place) and each.full]

    others = [admission.enter(f"10.9.9.{number}") for number in range(20)]

    assert len(of_crowds) == SPARE_MAX
    assert all(isinstance(each, Place) and each.full for each in others)
    for each in places:
        if isinstance(each, Place):
            admission.leave(each)
    assert len(admission.spare) == len(others)


async def test_an_address_without_a_place_is_told_the_members_health() -> None:
    """A probe from where the crowd is, through one proxy or one host; the member has room."""
    config = HttpConfig(connections_max=30, connections_per_address_max=3)
    async with serving(http=config) as api:
        taken = []
        while api.server.connection_count < config.connections_per_address_max:
            taken.append(await asyncio.open_connection("127.0.0.1", api.server.port))
            await asyncio.sleep(0.01)

        asked = [await _asked(api, b"GET /health/" + each) for each in (b"live", b"ready")]
        refused, problem = await _asked(api, b"GET /v1/tree")

        assert [status for status, _ in asked] == [200, 200]
        assert refused == 503
        assert "at most 3 connections from one address" in json.loads(problem)["detail"]
        for _, writer in taken:
            writer.close()


async def test_a_session_ended_by_somebody_else_is_on_record(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """With who and why, escaped; a client that closes its own is not."""
    own, other = await api.session_id(), await api.session_id()
    with caplog.at_level(logging.WARNING, logger="coordinator.audit"):
        await api.delete(f"/v1/sessions/{own}")
        await api.delete(f"/v1/sessions/{other}?by=ann&failure=left%20behind")

    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"session {other} was ended by 'ann' from 127.0.0.1: 'left behind'"]
