"""A queue of work, from a shell."""

from __future__ import annotations

from coordinator.cli.output import EXIT_USAGE
from coordinator.client import connect
from coordinator.recipes import WorkQueue
from tests.cli.conftest import CommandLine


def test_items_are_put_counted_and_revived(coordinator: CommandLine) -> None:
    """As text and as JSON."""
    assert coordinator.text("queue", "mails", "--put", "to ann").endswith("0000000000\n")
    coordinator.text("queue", "mails", "--put", "later", "--delay", "600")
    with connect(coordinator.url) as client:
        delivery = WorkQueue(client, "mails").take()
        assert delivery is not None
        assert delivery.body == b"to ann"
        delivery.reject("no such address\x1b[2J")
    assert coordinator.json("queue", "mails") == {
        "ready": 0,
        "in_flight": 0,
        "delayed": 1,
        "dead": 1,
        "oldest_ready_ms": 0,
    }
    assert "delayed          1\n" in coordinator.text("queue", "mails")
    table = coordinator.text("queue", "mails", "--dead").splitlines()
    assert "no such address" in table[1]
    assert "\x1b" not in table[1]
    (name,) = [coordinator.json("queue", "mails", "--dead")["name"]]
    assert coordinator.text("queue", "mails", "--revive", name) == ""
    assert coordinator("queue", "mails", "--revive", name).exit_code == EXIT_USAGE
    assert coordinator.json("queue", "mails")["ready"] == 1
    assert coordinator("queue", "mails", "--dead", "--put", "x").exit_code == EXIT_USAGE
