"""No page of the longest history of grants holds the loop, nor does the story of one of them.

As many grants have ended as ``grant_history_max`` may be set to, half of them in one queue, whose
holders go in another order than they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from coordinator.model.limits import NEW_CLUSTER, proposed_bounds_of
from coordinator.service.locks.contenders import grant_id_of
from coordinator.state.commands import (
    Command,
    Enter,
    Kind,
    OpenSession,
    Operation,
    Release,
    SetLimits,
)
from tests.loop_meter import HELD_MS_MAX, metered
from tests.wire.crowded import Crowded
from tests.wire.test_largest_queues import restore

pytestmark = pytest.mark.check

LONGEST = proposed_bounds_of("grant_history_max")[1]
_TOGETHER = 50
"""Who hold the shared lock at once; the last of them goes first."""


class Past:
    """A member whose machine remembers so many grants."""

    def __init__(self, scene: Crowded) -> None:
        self.scene = scene
        self._fill()
        ended = scene.member._replica.machine.locks.latest_ended("/locks/shared", 100_000)
        middle = ended[len(ended) // 2].contender
        self.grant_id = grant_id_of(middle.path, middle.czxid)
        self.number = middle.grant_number

    def _do(self, operation: Operation) -> object:
        machine = self.scene.member._replica.machine
        return machine.apply(Command(operation, 1), machine.applied_index, 1).unwrap()

    def _enter(self, directory: str, prefix: str, kind: Kind) -> Release:
        entered = self._do(
            Enter((directory,), prefix=prefix, kind=kind, session_id="s", data=b"{}")
        )
        path, stat = entered.contenders[0].path, entered.contenders[0].stat  # type: ignore[attr-defined]
        return Release(path, stat.czxid)

    def _fill(self) -> None:
        limits = replace(NEW_CLUSTER, grant_history_max=LONGEST, grant_history_bytes_max=1 << 30)
        self._do(SetLimits(limits.items(), expected_version=0, rules=(), by="ops"))
        self._do(OpenSession("s", timeout_ms=3_600_000, label=""))
        for _ in range(LONGEST // 2 // _TOGETHER):
            shared = [self._enter("/locks/shared", "read-", Kind.SHARED) for _ in range(_TOGETHER)]
            for each in reversed(shared):
                self._do(each)
            for number in range(_TOGETHER):
                self._do(self._enter(f"/locks/l{number}", "lock-", Kind.EXCLUSIVE))


@pytest.fixture(scope="module")
def past() -> Iterator[Past]:
    with metered() as loop:
        scene = Crowded(loop)
        found = Past(scene)
        loop.run(restore(scene))
        loop.run(scene.open())
        try:
            yield found
        finally:
            loop.run(scene.stop())


PATHS = {
    "first page": "/v1/grants",
    "largest page": "/v1/grants?limit=1000",
    "page in the middle": "/v1/grants?after={number}",
    "page of one lock": "/v1/grants?lock=shared&after={number}&limit=1000",
    "none found": "/v1/grants?session_id=nobody",
    "none found of one lock": "/v1/grants?lock=shared&session_id=nobody",
    "story": "/v1/grants/shared/{grant_id}",
}


@pytest.mark.parametrize("name", PATHS)
def test_no_look_at_the_longest_history_holds_the_loop(past: Past, name: str) -> None:
    """By the processor's clock, the least of some repetitions: 20 ms."""
    path = PATHS[name].format(number=past.number, grant_id=past.grant_id)

    held_ms = past.scene.loop.held_ms(lambda _: past.scene.call("GET", path))

    assert held_ms <= HELD_MS_MAX, f"{name} holds the loop for {held_ms:.1f} ms"


def test_pages_tell_every_grant_once_and_in_order(past: Past) -> None:
    """Of a part of the history, read in pages: the numbers follow each other."""
    after = past.number
    for _ in range(10):
        page = json.loads(past.scene.call("GET", f"/v1/grants?after={after}&limit=1000"))
        assert len(page["grants"]) == 1_000
        assert page["next"] == after + 1_000
        after = page["next"]
