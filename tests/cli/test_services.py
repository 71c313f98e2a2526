"""Which programs are there, from a shell."""

from __future__ import annotations

import json

from coordinator.cli.output import EXIT_REFUSED, EXIT_USAGE
from coordinator.client import connect
from coordinator.recipes import Group
from tests.cli.conftest import CommandLine


def test_groups_and_their_members_are_listed(coordinator: CommandLine) -> None:
    """As a table and as JSON; nobody is exit code 1."""
    assert coordinator("services", "web").exit_code == EXIT_REFUSED
    with connect(coordinator.url) as client:
        web = Group(client, "web")
        with web.join("a", metadata={"port": 80}), web.join("b", state="down") as other:
            other.report("draining", "an upgrade\x1b[2J")
            assert "web    2" in coordinator.text("services")
            table = coordinator.text("services", "web").splitlines()
            up = coordinator.json("services", "web", "--up")
            every = [
                json.loads(line)
                for line in coordinator.text("services", "web", "--json").splitlines()
            ]

    assert [line.split()[:2] for line in table] == [
        ["MEMBER", "STATE"],
        ["a", "up"],
        ["b", "draining"],
    ]
    assert '{"port":80}' in table[1]
    assert "\x1b" not in table[2]
    assert (up["name"], up["metadata"]) == ("a", {"port": 80})
    assert [each["state"] for each in every] == ["up", "draining"]
    assert coordinator("services", "--up").exit_code == EXIT_USAGE
