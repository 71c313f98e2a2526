"""The verb ``top``: what is done between two looks, and who waits and is connected now."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

from coordinator.client import connect
from coordinator.recipes import Lock
from tests.cli.serving import ServedMember


def test_top_shows_rates_locks_and_clients_again_and_again(member: ServedMember) -> None:
    """A lock that is held, its client, and what was written since the look before."""
    command = [sys.executable, "-m", "coordinator", "top", "--json", "--endpoints", member.url]
    with (
        connect(member.url, label="worker") as client,
        Lock(client, "busy"),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching,
    ):
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        for number in range(20):
            client.create(f"/top-{number}")
        second = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 130

    assert (first["entries_per_s"], first["changes_per_s"]) == (None, None)
    assert second["entries_per_s"] > 0
    assert second["changes_per_s"] > 0
    assert [each["lock"] for each in second["locks"]] == ["busy"]
    assert {"client": "worker", "sessions": 1} in second["clients"]
    assert second["leader_id"] == "1"


def test_top_is_written_for_people(member: ServedMember) -> None:
    """The sentence of status comes first."""
    command = [sys.executable, "-m", "coordinator", "top", "--endpoints", member.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(2)]
        watching.send_signal(signal.SIGINT)
        watching.wait(30)

    assert lines[0].startswith("All is well: member 1 leads in term ")
    assert lines[1].startswith("leader 1, - entries/s, - changes/s, round trip ")
