"""A commit log, from a shell: what it holds, and a site that is gone for good."""

from __future__ import annotations

import threading

from coordinator import CommitLog, CommitSite, Transaction, connect
from coordinator.cli.output import EXIT_USAGE
from tests.cli.conftest import CommandLine


def test_a_site_that_is_gone_is_written_off(coordinator: CommandLine) -> None:
    """What is decided is shown; what the site has left is printed, and finished without it."""
    with connect(coordinator.url) as client, connect(coordinator.url) as other:

        def agree(_: Transaction) -> bool:
            return True

        def prepare(number: str) -> None:
            site = CommitSite(other, "pay", number)
            (due,) = site.due(20)
            site.vote(due, True)

        sites = [threading.Thread(target=prepare, args=[each]) for each in ("one", "two")]
        for each in sites:
            each.start()
        done = CommitLog(client, "pay").run("order-7", ["one", "two"], 5, timeout=20)
        for each in sites:
            each.join()
        assert done.is_committed
        CommitSite(client, "pay", "one").attend(agree, lambda _: None, timeout=0)

        shown = coordinator.json("commit-log", "pay")
        assert (shown["key"], shown["state"], shown["value"]) == ("order-7", "committed", 5)
        assert shown["sites"] == {"one": "applied", "two": "yes"}
        assert "two yes" in coordinator.text("commit-log", "pay")
        assert "order-7" in coordinator.text("commit-log", "pay", "--write-off", "two")
        assert coordinator.text("commit-log", "pay", "--write-off", "two") == ""
        found = CommitLog(client, "pay").look("order-7")
        assert found is not None
        assert found.is_finished
    assert coordinator.text("commit-log", "pay", "--recover") == ""
    both = coordinator("commit-log", "pay", "--recover", "--write-off", "two")
    assert both.exit_code == EXIT_USAGE
