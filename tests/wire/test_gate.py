"""Until access rights are on a member answers its own machine, and others /health alone."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.node.config import HttpConfig
from coordinator.wire.addresses import is_local
from coordinator.wire.arrival import Arrival
from tests.wire.guarded import bearer, guarded
from tests.wire.serving import serving
from tests.wire.stream.speaking import speaking


@pytest.mark.parametrize(
    ("address", "is_here"),
    [
        ("127.0.0.1", True), ("127.8.9.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
        ("", True), ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("fe80::1%eth0", False),
        ("::", False), ("0.0.0.0", False), ("nonsense", False),
    ],
)  # fmt: skip
def test_which_addresses_are_this_machine(address: str, is_here: bool) -> None:
    """Loopback in each of its forms, and the very address that was reached."""
    assert is_local(address) is is_here
    assert is_local(address, "10.0.0.2") is is_here
    assert is_local(address, address)


@pytest.fixture
def from_afar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each connection come from another machine."""
    made = Arrival.connection_made

    def connection_made(self: Arrival, transport: Any) -> None:
        made(self, transport)
        assert self._place is not None
        self._place.is_local = False

    monkeypatch.setattr(Arrival, "connection_made", connection_made)


async def _asked(http: HttpConfig | None = None) -> list[int]:
    async with serving(http=http) as api, speaking(api.server.port) as speaker:
        found = [
            (await api.get(path)).status for path in ("/health/live", "/v1/status", "/metrics")
        ]
        found.append((await speaker.call("GET", "/v1/status")).status)
        found.append((await api.post("/v1/access/init", {})).status)
        return found


async def test_other_machines_get_health_alone(from_afar: None) -> None:
    """By every door; they cannot turn access rights on either."""
    assert await _asked() == [200, 403, 403, 403, 403]


async def test_other_machines_renew_nothing_by_asking_for_the_health(from_afar: None) -> None:
    """Each renewal asks a quorum: strangers could have as many as they like."""
    async with serving() as api:
        opened = await api.member.open_session(None, "", None, 10**9)
        named = {"Coordinator-Session-Id": opened.session_id}
        answers = [await api.get(path, **named) for path in ("/health/live", "/health/ready")]

    assert [each.status for each in answers] == [200, 200]
    assert not any("Coordinator-Safe-Ms" in each.headers for each in answers)


async def test_an_operator_may_trust_the_network(from_afar: None) -> None:
    """By a setting that says so."""
    assert await _asked(HttpConfig(access="off")) == [200, 200, 200, 200, 201]


async def test_with_rights_on_other_machines_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """By their tokens."""
    async with serving() as api:
        token = (await api.post("/v1/access/init", {})).body["token"]
        monkeypatch.setattr("coordinator.wire.arrival.is_local", lambda *_addresses: False)
        reply = await api.get("/v1/status", **bearer(token), Connection="close")
        again = await api.get("/v1/status", **bearer(token))

    assert (reply.status, again.status) == (200, 200)


async def test_a_stranger_is_told_nothing_of_the_state() -> None:
    """Neither zxid nor index, which would say what the cluster does: by both doors, and whichever
    of their parts answers."""
    numbers = {"coordinator-zxid", "coordinator-index"}
    asked = [("GET", "/v1/tree"), ("GET", "/v1/nothing"), ("PATCH", "/v1/tree"), ("GET", "/v1/a%")]
    asked += [("GET", "/health/ready"), ("GET", "/v1/status"), ("POST", "/v1/sessions")]
    async with guarded() as cluster:
        seen: set[str] = set()
        for shown in ({}, bearer(cluster.root[:-3] + "AAA")):
            for method, target in asked:
                reply = await cluster.api.call(method, target, headers={**shown})
                slim = {**shown, "Accept": "application/json"}
                again = await cluster.api.call(method, target, headers=slim)
                streamed = await cluster.speaker.call(
                    method, target, **{name.lower(): value for name, value in shown.items()}
                )
                for each in (reply, again, streamed):
                    assert each.status in (200, 400, 401, 404, 405), each
                    seen |= numbers & {name.lower() for name in each.headers}
        answer = await cluster.api.get("/v1/tree?children", **bearer(cluster.root))

    assert not seen
    assert numbers <= {name.lower() for name in answer.headers}
