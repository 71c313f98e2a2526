"""No request holds the loop for more than 20 ms, of any size and shape that the limits allow.

One row for each route, by its name in the table of routes: the largest request it takes, the
largest answer it gives, or what costs it most. A route without a row fails.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coordinator.clock import SystemClock
from coordinator.console.pages import read_pages
from coordinator.model.access import (
    ROLES_PER_IDENTITY_MAX,
    SUBJECTS_PER_IDENTITY_MAX,
    TOKENS_PER_IDENTITY_MAX,
    Rule,
    Verb,
)
from coordinator.model.limits import NEW_CLUSTER
from coordinator.model.sessions import HEARTBEATS_MAX
from coordinator.node.config import Config, HttpConfig, MemberLimits
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.locks.denials import KEPT_MAX
from coordinator.service.member import Member
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.state.commands import (
    AddToken,
    Create,
    CreateMode,
    Delete,
    OpenSession,
    PutIdentity,
    PutRole,
    Release,
    SetAccess,
    SetData,
)
from coordinator.wire.routes.access import PAGE_MAX
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.elections import VALUES_BYTES_MAX
from coordinator.wire.routes.route import Route
from coordinator.wire.routes.table import all_routes
from tests.loop_meter import HELD_MS_MAX
from tests.members.stage import uncollected
from tests.wire.crowded import Crowded, creation, crowded

LIMITS = NEW_CLUSTER
OPERATIONS_MAX = LIMITS.operations_per_multi_max
_LOCKS_OF_ONE = 8 * ENDED_AT_ONCE


@pytest.fixture(scope="module")
def scene() -> Iterator[Crowded]:
    with crowded() as running:
        yield running


Row = Callable[[Crowded, int], object]


def _get(path: str, *, expected: int = 200, **headers: str) -> Row:
    return lambda scene, _: scene.call("GET", path, headers=headers, expected=(expected,))


def _head(path: str) -> Row:
    return lambda scene, _: scene.call("HEAD", path)


def _deadlocked(scene: Crowded, repetition: int) -> None:
    """As many refusals as are kept, each of a request that would wait for itself."""
    if repetition == 0:
        scene.made(OpenSession("again", timeout_ms=3_600_000, label=""))
        body = {"session_id": "again", "owner": "o" * 128}
        scene.call("POST", "/v1/locks/again", body)
        for _ in range(KEPT_MAX):
            scene.call("POST", "/v1/locks/again", body, expected=(409,))
    scene.loop.loop.longest_ms = 0.0
    assert b"cycle" in scene.call("GET", "/v1/deadlocks")


def _diagnosed(scene: Crowded, repetition: int) -> None:
    """The longest queue with as many grants as a diagnosis looks at; then a page of all locks."""
    if repetition == 0:
        scene.made(OpenSession("often", timeout_ms=3_600_000, label=""))
        for _ in range(1_000):
            held = scene.loop.run(scene.enter("often", "/locks/often")).contenders[0]
            scene.made(Release(held.path, held.stat.czxid))
    scene.loop.loop.longest_ms = 0.0
    for lock in ("often", "queue"):
        assert b"figures" in scene.call("GET", f"/v1/diagnosis?lock={lock}")
    assert b"figures" in scene.call("GET", "/v1/diagnosis?limit=10000")


def _largest(site: str) -> str:
    """Return the address of the largest file of a site."""
    pages = read_pages(site)
    return f"/{site}/{max(pages, key=lambda name: len(pages[name]))}"


def _acquired(scene: Crowded, path: str, body: dict[str, Any]) -> Any:
    """Ask with a body as large as one may be, all of it of values that are looked at."""
    conditions = [{"grant_id": "1-1", "lock": "l00000"}] * 64
    return scene.call(
        "POST", path, {**body, "if_held": conditions}, expected=(200, 400, 409, 410, 412)
    )


def _multi(scene: Crowded, repetition: int) -> None:
    scene.made(Create(f"/multi{repetition}", b""))
    operations = [
        {"op": "create", "path": f"/multi{repetition}/c{number:05}", "data": "x" * 200}
        for number in range(OPERATIONS_MAX)
    ]
    scene.loop.loop.longest_ms = 0.0
    scene.call("POST", "/v1/multi", {"operations": operations})


def _deleted(scene: Crowded, repetition: int) -> None:
    """Delete as large a subtree as may go in one command."""
    top = f"/tree{repetition}"
    scene.made(Create(top, b""))
    count = LIMITS.recursive_delete_max - 1
    scene.made_at_once(creation([f"{top}/c{number:05}" for number in range(count)]))
    scene.loop.loop.longest_ms = 0.0
    scene.call("DELETE", f"/v1/tree{top}?recursive")


def _closed(scene: Crowded, repetition: int) -> None:
    """End a session with many locks, and somebody behind it in some: far more than go at once."""
    session_id, other_id = f"closing{repetition}", f"heir{repetition}"
    scene.made(
        OpenSession(session_id, timeout_ms=3_600_000, label=""),
        OpenSession(other_id, timeout_ms=3_600_000, label=""),
    )

    async def fill() -> None:
        for number in range(_LOCKS_OF_ONE):
            await scene.enter(session_id, f"/locks/closing{repetition}-{number:05}")
            if number % 4 == 0:
                await scene.enter(other_id, f"/locks/closing{repetition}-{number:05}")

    scene.loop.run(fill())
    scene.loop.loop.longest_ms = 0.0
    scene.call("DELETE", f"/v1/sessions/{session_id}")


def _watched(scene: Crowded, _repetition: int) -> None:
    selectors = [
        {"path": f"/wide/c{number:05}", "kind": "znode"}
        for number in range(MemberLimits().watches_per_stream_max)
    ]
    scene.stream("POST", "/v1/watch", {"watches": selectors})


def _watched_with_values(scene: Crowded, repetition: int) -> None:
    """As many paths as a query may name; and a line with as much data as one may have."""
    scene.stream("GET", "/v1/watch?" + "&".join(f"path=/wide/c{n}" for n in range(300)))
    longest_ms, path = scene.loop.loop.longest_ms, f"/replaced{repetition}"
    before, after = (text.encode() * 500_000 for text in ("\u00e9", "\u00fc"))
    scene.made(Create(path, before), SetData(path, after))
    scene.loop.loop.longest_ms = longest_ms
    zxid = scene.member._replica.machine.zxid - 1
    _, line = scene.stream("GET", f"/v1/watch?path={path}&values&from_zxid={zxid}", lines=2)
    assert len(line) > 2_000_000


def _listed_and_read(scene: Crowded, _repetition: int) -> None:
    scene.call("GET", "/v1/tree?children&limit=10000&stat")
    scene.call("GET", "/v1/tree/wide?subtree")


def _set_with_watchers(scene: Crowded, repetition: int) -> None:
    if repetition == 0:
        scene.made(Create("/watched", b""))
    with scene.watching(900, "/watched"):
        scene.loop.loop.longest_ms = 0.0
        scene.call("PUT", "/v1/tree/watched", {"data": "x" * 1_000})
        longest_ms = scene.loop.loop.longest_ms
    scene.loop.loop.longest_ms = longest_ms


def _session_with_many(scene: Crowded, _repetition: int) -> None:
    """One with as many ephemerals as it may have, of paths as long as they may be."""
    if scene.member._replica.machine.session("owner") is None:
        top = "/" + "/".join(["p" * 200] * 4)
        parents = [top[: 201 * (each + 1)] for each in range(4)]
        scene.made(
            OpenSession("owner", timeout_ms=3_600_000, label=""),
            *[Create(each) for each in parents],
        )
        names = [f"{top}/{each:05}" for each in range(LIMITS.ephemerals_per_session_max)]
        scene.made_at_once([_owned(name + "e" * 200) for name in names])
    scene.call("GET", "/v1/sessions/owner")


def _owned(path: str) -> Create:
    return Create(path, data=b"", mode=CreateMode.EPHEMERAL, session_id="owner")


def _with_page(scene: Crowded) -> None:
    """Make as many roles and identities as a page lists, each as large as it may be."""
    if scene.member._replica.machine.access.role("r0") is not None:
        return
    rules = tuple([Rule(f"/{'p' * 100}{each}", tuple(Verb)) for each in range(99)])
    roles = tuple([f"r{number}" for number in range(ROLES_PER_IDENTITY_MAX)])
    scene.made(*[PutRole(f"r{number}", rules) for number in range(PAGE_MAX)])
    for number in range(PAGE_MAX):
        subjects = tuple(
            [f"cert:{number}-{each}{'s' * 400}" for each in range(SUBJECTS_PER_IDENTITY_MAX)]
        )
        scene.made(PutIdentity(f"i{number}", roles=roles, subjects=subjects))
        scene.made(
            *[
                AddToken(
                    identity=f"i{number}",
                    token_id=f"token{number:04d}{each:04d}",
                    digest=bytes(32),
                    expires_ms=0,
                    label="l" * 100,
                )
                for each in range(TOKENS_PER_IDENTITY_MAX)
            ]
        )


def _listed(path: str) -> Row:
    def row(scene: Crowded, _repetition: int) -> None:
        _with_page(scene)
        scene.loop.loop.longest_ms = 0.0
        scene.call("GET", path)

    return row


def _initialised(scene: Crowded, number: int) -> None:
    scene.call("POST", "/v1/access/init", {"identity": f"operator{number}"})
    scene.made(SetAccess(is_on=False))


def _role_put(scene: Crowded, _repetition: int) -> None:
    _with_page(scene)
    rules = [
        {"prefix": f"/{'p' * 1_000}{each}", "verbs": [verb.value for verb in Verb]}
        for each in range(100)
    ]
    scene.call("PUT", "/v1/access/roles/r0", {"rules": rules})


def _identity_put(scene: Crowded, number: int) -> None:
    _with_page(scene)
    roles = [f"r{each}" for each in range(ROLES_PER_IDENTITY_MAX)]
    subjects = [f"cert:put{number}-{each}{'s' * 400}" for each in range(SUBJECTS_PER_IDENTITY_MAX)]
    scene.loop.loop.longest_ms = 0.0
    scene.call("PUT", f"/v1/access/identities/put{number}", {"roles": roles, "subjects": subjects})


ROWS: dict[str, Row] = {
    "read_root": _listed_and_read,
    "read_znode": _get("/v1/tree/wide?children&limit=10000&stat"),
    "head_znode": _head("/v1/tree/binary"),
    "create_znode": lambda scene, number: scene.call(
        "POST", f"/v1/tree/created{number}", {"data": "\u00e9" * 250_000}
    ),
    "set_data": _set_with_watchers,
    "delete_znode": _deleted,
    "multi": _multi,
    "watch": _watched_with_values,
    "watch_many": _watched,
    "open_session": lambda scene, _: scene.call(
        "POST", "/v1/sessions", {"timeout_ms": 60_000, "label": "x" * 200}
    ),
    "list_sessions": _get("/v1/sessions"),
    "get_session": _session_with_many,
    "close_session": _closed,
    "heartbeat": lambda scene, _: scene.call("POST", "/v1/sessions/s0/heartbeat", {}),
    "heartbeats": lambda scene, _: scene.call(
        "POST",
        "/v1/sessions/heartbeats",
        {"session_ids": ["s0", *[f"gone-{number}" for number in range(HEARTBEATS_MAX - 1)]]},
    ),
    "list_locks": _get("/v1/locks?limit=10000"),
    "acquire_locks": lambda scene, number: _acquired(
        scene,
        "/v1/locks",
        {
            "names": [f"multi-{number}-{each}" for each in range(64)],
            "lease_ms": 60_000,
            "timeout_ms": 0,
        },
    ),
    "get_lock": _get("/v1/locks/queue"),
    "acquire_lock": lambda scene, number: _acquired(
        scene, f"/v1/locks/one-{number}", {"lease_ms": 60_000, "timeout_ms": 0}
    ),
    "release_lock": lambda scene, _: scene.call(
        "DELETE", "/v1/locks/queue/grants/9999-1", expected=(409,)
    ),
    "abandon_lock_attempt": lambda scene, number: scene.call(
        "DELETE", f"/v1/locks/queue/attempts/c{number}/1"
    ),
    "downgrade_lock": lambda scene, _: scene.call(
        "POST", "/v1/locks/queue/grants/9999-1/downgrade", {}, expected=(409,)
    ),
    "note_lock": lambda scene, _: scene.call(
        "PUT", "/v1/locks/queue/grants/9999-1/note", {"note": "x" * 1_024}, expected=(409,)
    ),
    "extend_lock": lambda scene, _: scene.call(
        "POST", "/v1/locks/queue/grants/9999-1/extend", {"by_ms": 1_000}, expected=(409,)
    ),
    "resize_semaphore": lambda scene, number: scene.call(
        "PUT", "/v1/locks/queue/size", {"size": number + 1}, expected=(200, 400, 404)
    ),
    "revoke_lock": lambda scene, _: scene.call(
        "POST",
        "/v1/locks/queue/revoke",
        {"grant_id": "9999-1", "by": "b" * 200, "reason": "r" * 200},
        expected=(409,),
    ),
    "list_grants": _get("/v1/grants?limit=10000"),
    "get_grant": lambda scene, _: scene.call("GET", "/v1/grants/l00001/0-9", expected=(200, 404)),
    "explain_lock": _get("/v1/locks/queue/why"),
    "diagnose": _diagnosed,
    "get_election": _get("/v1/elections/poll"),
    "campaign": lambda scene, number: scene.call(
        "POST",
        f"/v1/elections/new{number}",
        {"lease_ms": 60_000, "timeout_ms": 0, "value": "v" * 60_000},
        expected=(200, 409),
    ),
    "proclaim": lambda scene, _: scene.call(
        "PUT", "/v1/elections/poll/grants/9999-1", {"value": "v" * 60_000}, expected=(409,)
    ),
    "resign": lambda scene, _: scene.call(
        "DELETE", "/v1/elections/poll/grants/9999-1", expected=(409,)
    ),
    "abandon_campaign": lambda scene, number: scene.call(
        "DELETE", f"/v1/elections/poll/attempts/c{number}/1"
    ),
    "get_limits": _get("/v1/limits"),
    "set_limits": lambda scene, number: scene.call(
        "PATCH", "/v1/limits", {"limits": {"znodes_max": 1_000_000 - number}, "by": "x" * 200}
    ),
    "upgrade_status": _get("/v1/upgrade"),
    "finish_upgrade": lambda scene, _: scene.call("POST", "/v1/upgrade/finish", {"by": "x" * 200}),
    "get_access": _get("/v1/access"),
    "set_access": lambda scene, _: scene.call("PUT", "/v1/access", {"is_on": False}),
    "init_access": _initialised,
    "get_caller": _get("/v1/access/me"),
    "explain_access": _listed("/v1/access/can?identity=i0&verb=read&resource=/wide"),
    "list_roles": _listed("/v1/access/roles"),
    "put_role": _role_put,
    "drop_role": lambda scene, _: scene.call(
        "DELETE", "/v1/access/roles/none", expected=(200, 404)
    ),
    "list_identities": _listed("/v1/access/identities"),
    "put_identity": _identity_put,
    "list_quotas": _listed("/v1/access/quotas"),
    "get_quota": _listed("/v1/access/identities/i0/quota"),
    "set_quota": lambda scene, number: scene.call(
        "PATCH",
        "/v1/access/identities/none/quota",
        {"quota": {"znodes": number}},
        expected=(200, 404),
    ),
    "drop_identity": lambda scene, _: scene.call(
        "DELETE", "/v1/access/identities/none", expected=(200, 404)
    ),
    "add_token": lambda scene, _: scene.call(
        "POST", "/v1/access/identities/none/tokens", {"label": "l" * 100}, expected=(201, 404)
    ),
    "drop_token": lambda scene, _: scene.call(
        "DELETE", "/v1/access/tokens/none0000", expected=(200, 404)
    ),
    "status": _get("/v1/status"),
    # Of a member with a disk in tests/members/test_backup_loop_time.py.
    "backup": _get("/v1/backup", expected=503),
    "hand_over": lambda scene, _: scene.call("POST", "/v1/members/handover", {}, expected=(503,)),
    "set_log_level": lambda scene, _: scene.call(
        "PUT", "/v1/members/log-level", {"level": "warning"}
    ),
    "list_deadlocks": _deadlocked,
    "list_members": _get("/v1/members"),
    "health_live": _get("/health/live"),
    "health_live_head": _head("/health/live"),
    "health_ready": _get("/health/ready"),
    "health_ready_head": _head("/health/ready"),
    "metrics": _get("/metrics"),
    "openapi": _get("/openapi.json"),
    "root": lambda scene, _: scene.call("GET", "/", expected=(404,)),
    "root_head": lambda scene, _: scene.call("HEAD", "/", expected=(404,)),
    "console": _get("/console"),
    "console_head": _head("/console"),
    "console_file": _get(_largest("console")),
    "console_file_head": _head(_largest("console")),
    "learn": _get("/learn"),
    "learn_head": _head("/learn"),
    "learn_file": _get(_largest("learn")),
    "learn_file_head": _head(_largest("learn")),
}
"""The most that each route is asked for. What is refused is refused after it was read."""


def all_routes_of_a_member() -> tuple[Route, ...]:
    member = Member(Config(), LoopbackEngine(), SystemClock())
    return all_routes(Door(member, HttpConfig(), SystemClock()), dict)


def test_every_route_has_a_row() -> None:
    """A new route says what its largest request is."""
    assert set(ROWS) == {route.operation_id for route in all_routes_of_a_member()}


@pytest.mark.parametrize("operation_id", ROWS)
def test_no_route_holds_the_loop(scene: Crowded, operation_id: str) -> None:
    """At its largest request, the least of some repetitions: 20 ms."""
    held_ms = scene.loop.held_ms(lambda repetition: ROWS[operation_id](scene, repetition))

    assert held_ms <= HELD_MS_MAX, f"{operation_id} holds the loop for {held_ms:.1f} ms"


BOMBS = {
    "arrays": b"\xdd\x00\x17\xff\xf0" + b"\x90" * 1_572_848,
    "maps": b"\xdd\x00\x17\xff\xf0" + b"\x80" * 1_572_848,
    "integers": b"\xdd\x00\x17\xff\xf0" + b"\x01" * 1_572_848,
    "nested": (b"\xdc\xff\xff" + b"\x01" * 65_534) * 20 + b"\x01",
}
JSON_BOMBS = {
    "objects": b"[" + b"{}," * 520_000 + b"{}]",
    "texts": b"[" + b'"",' * 520_000 + b"0]",
    "escapes": b'["' + b'\\"' * 780_000 + b'"]',
    "numbers": b"[" + b"1," * 780_000 + b"1]",
}


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/multi", "/v1/watch", "/v1/tree/bomb"])
@pytest.mark.parametrize("bomb", [*BOMBS, *JSON_BOMBS])
def test_no_body_of_many_values_holds_the_loop(scene: Crowded, path: str, bomb: str) -> None:
    """A value costs a byte to send, and is counted before it costs anything else."""
    raw = BOMBS.get(bomb) or JSON_BOMBS[bomb]
    kind = "application/msgpack" if bomb in BOMBS else "application/json"

    def send(_repetition: int) -> None:
        scene.call("POST", path, raw=raw, headers={"Content-Type": kind}, expected=(400, 413))

    held_ms = scene.loop.held_ms(send)

    assert held_ms <= HELD_MS_MAX, f"{bomb} at {path} hold the loop for {held_ms:.1f} ms"


def test_no_delete_of_an_ephemeral_crowd_holds_the_loop(scene: Crowded) -> None:
    """A subtree of other people's ephemerals goes as any subtree does."""

    def act(repetition: int) -> None:
        top, session_id = f"/crowd{repetition}", f"owner{repetition}"
        scene.made(Create(top), OpenSession(session_id, timeout_ms=60_000, label=""))
        count = LIMITS.recursive_delete_max - 1
        scene.made(
            *[
                Create(
                    f"{top}/e{number}", data=b"", mode=CreateMode.EPHEMERAL, session_id=session_id
                )
                for number in range(count)
            ]
        )
        scene.loop.loop.longest_ms = 0.0
        scene.made(Delete(top, is_recursive=True))

    held_ms = scene.loop.held_ms(act)

    assert held_ms <= HELD_MS_MAX


@pytest.mark.check
def test_many_changes_for_many_streams_do_not_hold_the_loop(scene: Crowded) -> None:
    """Nine hundred streams watch what a hundred commands of one entry change."""

    def act(repetition: int) -> None:
        path = f"/seen{repetition}"
        scene.made(Create(path))

        async def changed() -> None:
            await asyncio.gather(*[scene.do(SetData(path, b"x" * 100)) for _ in range(100)])

        with scene.watching(900, path):
            scene.loop.loop.longest_ms = 0.0
            scene.loop.run(changed())
            scene.loop.run(asyncio.sleep(1))
            longest_ms = scene.loop.loop.longest_ms
        scene.loop.loop.longest_ms = longest_ms

    with uncollected():
        held_ms = scene.loop.held_ms(act)

    assert held_ms <= HELD_MS_MAX, f"the changes hold the loop for {held_ms:.1f} ms"


@pytest.mark.check
@pytest.mark.parametrize(
    "path",
    ["/v1/tree/wide?children&limit=10000&stat", "/v1/tree/wide?subtree", "/v1/locks?limit=10000"],
)
def test_a_hundred_lists_do_not_hold_the_loop(scene: Crowded, path: str) -> None:
    """Of as many connections, asked at once: all wait for one barrier."""
    assert scene.server is not None
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()

    def act(_repetition: int) -> None:
        assert scene.server is not None
        sockets = [
            socket.create_connection(("127.0.0.1", scene.server.port), 20) for _ in range(100)
        ]
        for each in sockets:
            each.sendall(request)
        for each in sockets:
            with each, each.makefile("rb") as answer:
                assert answer.readline().split()[1] == b"200"
                while answer.read(1024 * 1024):
                    pass

    with uncollected():
        held_ms = scene.loop.held_ms(act)

    assert held_ms <= HELD_MS_MAX, f"the lists hold the loop for {held_ms:.1f} ms"


def test_candidates_with_large_values_are_listed_within_bounds(scene: Crowded) -> None:
    """All of them, in order; their values only as far as an answer goes, and in short steps."""
    value = b"v" * 60_000
    for number in range(100):
        scene.loop.run(scene.enter(f"s{number}", "/elections/large", "candidate-", value))
    answers: list[bytes] = []

    held_ms = scene.loop.held_ms(lambda _: answers.append(scene.call("GET", "/v1/elections/large")))

    view = json.loads(answers[-1])
    found = [each["value"] for each in view["candidates"] if "value" in each]
    assert [each["position"] for each in view["candidates"]] == list(range(1, 100))
    assert view["candidates"][0]["value"] == value.decode()
    assert len(found) == VALUES_BYTES_MAX // len(value)
    assert all("epoch" in each for each in view["candidates"])
    assert held_ms <= HELD_MS_MAX
