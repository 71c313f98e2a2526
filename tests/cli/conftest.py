"""A member for the command line to talk to, and a way to call the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator.cli.main import cli
from tests.cli.serving import ServedMember


class CommandLine:
    """Calls ``coordinator`` with the member's URL; keeps nothing between calls."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Result:
        environ = {"COORDINATOR_ENDPOINTS": self.url}
        return CliRunner().invoke(cli, list(arguments), input=stdin, env=environ)

    def json(self, *arguments: str, stdin: str | bytes | None = None) -> Any:
        """Return the document that a successful call prints with --json."""
        result = self(*arguments, "--json", stdin=stdin)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def text(self, *arguments: str, stdin: str | bytes | None = None) -> str:
        """Return what a successful call prints."""
        result = self(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Give back what this process does at signals: a command that held a lock in it drops them at
    its end, and later tests of other files waited in vain for their Ctrl-C."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(scope="module")
def member() -> Iterator[ServedMember]:
    served = ServedMember()
    served.start()
    yield served
    served.stop()


@pytest.fixture
def coordinator(member: ServedMember) -> CommandLine:
    return CommandLine(member.url)
