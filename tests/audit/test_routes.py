"""Which requests have a line: every one that changes rules is named where lines are made."""

from __future__ import annotations

from coordinator.clock import SystemClock
from coordinator.node.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.routes.auditing import AUDITED
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.table import all_routes

RULES = ("/v1/access", "/v1/limits", "/v1/upgrade")


def test_every_request_that_changes_rules_has_a_line() -> None:
    """And what has one is a route; all of that needs ``admin``."""
    clock = SystemClock()
    door = Door(Member(Config(), LoopbackEngine(), clock), HttpConfig(), clock)
    routes = all_routes(door, dict)
    changing = {
        each.operation_id
        for each in routes
        if each.template.startswith(RULES) and each.method != "GET"
    }

    assert changing <= set(AUDITED)
    assert set(AUDITED) <= {each.operation_id for each in routes}
