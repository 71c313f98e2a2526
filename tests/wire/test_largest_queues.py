"""No look at a queue of 100,000 contenders, as many as ``children_max`` allows, holds the loop.

Nor does what is done to one of them: a row for each route whose work could grow with its queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.model.limits import NEW_CLUSTER
from coordinator.service.locks.contenders import OF_SESSION_MAX, SHOWN_MAX, grant_id_of
from coordinator.state.commands import Command, Enter, Kind, OpenSession, Operation
from tests.loop_meter import HELD_MS_MAX, metered
from tests.wire.crowded import Crowded

pytestmark = pytest.mark.check

LONG = NEW_CLUSTER.children_max
_EACH = NEW_CLUSTER.ephemerals_per_session_max
_DATA = b'{"label":"report 7","host":"worker-7.example.com","pid":4711}'
_QUEUES = (
    ("/locks/waiting", "lock-", Kind.EXCLUSIVE),
    ("/locks/shared", "read-", Kind.SHARED),
    ("/elections/poll", "candidate-", Kind.EXCLUSIVE),
)


class Long:
    """A member with the three queues."""

    def __init__(self, scene: Crowded) -> None:
        self.scene = scene
        locks = scene.member._replica.machine.locks
        first, last = locks.holders("/locks/shared")[0], locks.holders("/locks/shared")[-1]
        self.first = grant_id_of(first.path, first.czxid)
        self.last = grant_id_of(last.path, last.czxid)
        self.last_token = last.czxid
        self.last_session = last.session_id

    def get(self, path: str) -> Any:
        return json.loads(self.scene.call("GET", path))


def fill(scene: Crowded) -> None:
    """Put everybody in its queue before the member begins, as a snapshot would."""
    replica = scene.member._replica
    machine = replica.machine

    def do(operation: Operation) -> None:
        machine.apply(Command(operation, 1), machine.applied_index, 1).unwrap()

    for directory, prefix, kind in _QUEUES:
        for number in range(LONG):
            session_id = f"{prefix}{number // _EACH}"
            if number % _EACH == 0:
                do(OpenSession(session_id, timeout_ms=3_600_000, label="l" * 200))
            do(Enter((directory,), prefix=prefix, kind=kind, session_id=session_id, data=_DATA))


async def restore(scene: Crowded) -> None:
    for listener in scene.member._replica._listeners:
        listener.on_restore()


@pytest.fixture(scope="module")
def long() -> Iterator[Long]:
    with metered() as loop:
        scene = Crowded(loop)
        fill(scene)
        loop.run(restore(scene))
        loop.run(scene.open())
        try:
            yield Long(scene)
        finally:
            loop.run(scene.stop())


ROWS: dict[str, tuple[str, str, Any, tuple[int, ...]]] = {
    "lock, waiting": ("GET", "/v1/locks/waiting", None, (200,)),
    "why, shared": ("GET", "/v1/locks/shared/why", None, (200,)),
    "diagnosis, shared": ("GET", "/v1/diagnosis?lock=shared", None, (200,)),
    "lock, shared": ("GET", "/v1/locks/shared", None, (200,)),
    "lock, one session": ("GET", "/v1/locks/waiting?session_id=lock-4", None, (200,)),
    "lock, token": ("GET", "/v1/locks/shared?fencing_token=7", None, (200,)),
    "election": ("GET", "/v1/elections/poll", None, (200,)),
    "election, one session": ("GET", "/v1/elections/poll?session_id=candidate-4", None, (200,)),
    "locks": ("GET", "/v1/locks", None, (200,)),
    "children": ("GET", "/v1/tree/locks/waiting?children&stat&limit=10000", None, (200,)),
    "grants": ("GET", "/v1/grants?limit=10000", None, (200,)),
    "grants of one": ("GET", "/v1/grants?lock=shared&limit=10000", None, (200,)),
    "grants, none found": ("GET", "/v1/grants?lock=shared&session_id=x", None, (200,)),
    "story": ("GET", "/v1/grants/shared/{last}", None, (200,)),
    "session": ("GET", "/v1/sessions/read-4", None, (200,)),
    "metrics": ("GET", "/metrics", None, (200,)),
    "revoke, which": ("POST", "/v1/locks/shared/revoke", {"by": "b", "reason": "r"}, (400,)),
    "revoke, unknown": (
        "POST",
        "/v1/locks/shared/revoke",
        {"grant_id": "9-1", "by": "b", "reason": "r"},
        (409,),
    ),
    "note": ("PUT", "/v1/locks/shared/grants/{last}/note", {"note": "n"}, (200,)),
    "released first": ("DELETE", "/v1/locks/shared/grants/{first}", None, (200,)),
    "guarded write": (
        "POST",
        "/v1/locks/new",
        {
            "lease_ms": 60_000,
            "timeout_ms": 0,
            "if_held": [{"lock": "shared", "fencing_token": "{last_token}"}] * 64,
        },
        (200, 409),
    ),
    "guarded write, refused": (
        "POST",
        "/v1/locks/new",
        {
            "lease_ms": 60_000,
            "timeout_ms": 0,
            "if_held": [{"lock": "shared", "fencing_token": 1}] * 64,
        },
        (410,),
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_nothing_about_the_longest_queues_holds_the_loop(long: Long, row: str) -> None:
    """By the processor's clock, the least of some repetitions: 20 ms."""
    method, path, body, expected = ROWS[row]
    path = path.format(first=long.first, last=long.last)
    if body is not None:
        body = json.loads(json.dumps(body).replace('"{last_token}"', str(long.last_token)))

    held_ms = long.scene.loop.held_ms(
        lambda _: long.scene.call(method, path, body, expected=expected)
    )

    assert held_ms <= HELD_MS_MAX, f"{row} holds the loop for {held_ms:.1f} ms"


def test_a_long_queue_is_shown_from_its_head_and_counted_whole(long: Long) -> None:
    """The first of each list, and how many there are."""
    lock = long.get("/v1/locks/waiting")
    assert [each["position"] for each in lock["queue"]] == list(range(1, SHOWN_MAX + 1))
    assert (lock["holder_count"], lock["queue_length"]) == (1, LONG - 1)

    poll = long.get("/v1/elections/poll")
    assert [each["position"] for each in poll["candidates"]] == list(range(1, SHOWN_MAX + 1))
    assert poll["candidate_count"] == LONG - 1


def test_what_is_not_shown_is_found_by_its_session_and_by_its_token(long: Long) -> None:
    """Wherever it stands in the queue."""
    lock = long.get("/v1/locks/waiting?session_id=lock-4")
    assert lock["holders"] == []
    assert [each["position"] for each in lock["queue"]] == list(
        range(4 * _EACH, 4 * _EACH + OF_SESSION_MAX)
    )
    assert {each["session_id"] for each in lock["queue"]} == {"lock-4"}
    assert long.get(f"/v1/locks/shared?fencing_token={long.last_token}")["is_current"] is True
    assert long.get("/v1/locks/shared?fencing_token=2")["is_current"] is False
