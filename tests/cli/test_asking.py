"""Asking for a lock from a shell, and answering there."""

from __future__ import annotations

import threading

from coordinator.cli.output import EXIT_NOT_IN_TIME, EXIT_REFUSED
from coordinator.client import connect
from coordinator.recipes import Lock, RevokeRequest
from tests.cli.conftest import CommandLine


def test_the_answer_is_printed_and_its_exit_code_says_whether_it_is_held(
    coordinator: CommandLine,
) -> None:
    """Nobody holds; nobody listens; refused; given up."""
    request = ("ask", "gpu", "--reason", "the report is due", "--by", "bob")
    assert coordinator(*request).exit_code == EXIT_REFUSED
    with connect(coordinator.url) as client:
        lock = Lock(client, "gpu", owner="")
        grant = lock.acquire()
        silent = coordinator(*request, "--within", "0.05")
        assert (silent.exit_code, silent.stdout) == (EXIT_NOT_IN_TIME, "silent\n")
        stop = grant.on_asked(lambda request: request.refuse(f"not for {request.by}"))
        refused = coordinator(*request)
        assert (refused.exit_code, refused.stdout) == (EXIT_NOT_IN_TIME, "refused\n")
        assert "not for bob" in refused.stderr
        stop()

        def give_up(request: RevokeRequest) -> None:
            request.agree()
            threading.Thread(target=lock.release).start()

        grant.on_asked(give_up)
        answer = coordinator.json(*request)
        assert (answer["outcome"], answer["fencing_token"]) == ("ended", grant.fencing_token)
