"""The options that every verb shares, before the verb, after it, and in the environment."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from typing import get_args

import click
import pytest
from click.testing import CliRunner, Result

from coordinator.cli.connection import TRANSPORTS, Settings
from coordinator.cli.main import SECTIONS, cli
from coordinator.cli.output import EXIT_USAGE
from coordinator.client.connecting import TransportName
from tests.cli.conftest import CommandLine

ELSEWHERE = "not-the-url-of-any-cluster"
"""Whoever asks there ends with EXIT_USAGE."""

UNUSED = str(Path(gettempdir(), "coordinator-shared-options"))
MULTI = '{"operations": [{"op": "check", "path": "/"}]}'
COMMANDS: dict[str, list[str]] = {
    "create": ["create", "/shared-options-{n}"],
    "get": ["get", "/"],
    "set": ["set", "/shared-options-set", "x", "--create"],
    "delete": ["delete", "/shared-options-set"],
    "ls": ["ls", "/"],
    "stat": ["stat", "/"],
    "multi": ["multi", "-"],
    "export": ["export", "/", "-"],
    "import": ["import", "-"],
    "mirror": ["mirror", "/", "--to", "http://127.0.0.1:9", "--once"],
    "counter": ["counter", "shared-options"],
    "bucket": ["bucket", "shared-options", "--rate", "9", "--burst", "999"],
    "flag": ["flag", "shared-options", "--set", "x"],
    "barrier": ["barrier", "shared-options"],
    "latch": ["latch", "shared-options", "2"],
    "ask": ["ask", "shared-options", "--reason", "to see"],
    "hold": ["hold"],
    "unlock": ["unlock", "shared-options", "1"],
    "extend": ["extend", "shared-options", "1", "--by", "1"],
    "services": ["services"],
    "queue": ["queue", "shared-options"],
    "jobs": ["jobs"],
    "commit-log": ["commit-log", "shared-options"],
    "config": ["config"],
    "render": ["render", "/dev/null", "--from", "shared-options", "--out", UNUSED, "--once"],
    "locks": ["locks"],
    "why": ["why", "daily-report"],
    "why-lost": ["why-lost", "daily-report"],
    "grants": ["grants", "daily-report"],
    "revoke": ["revoke", "daily-report", "--by", "a test", "--reason", "to see"],
    "diagnose": ["diagnose"],
    "status": ["status"],
    "doctor": ["doctor"],
    "top": ["top", "--once"],
    "log-level": ["log-level", "info"],
    "backup": ["backup", UNUSED + "-backup"],
    "sessions": ["sessions"],
    "limits": ["limits"],
    "visualize": ["visualize", "--seconds", "0.1", "--output", "/dev/null"],
    "access": ["access"],
    "lock": ["lock", "daily-report", "--", "true"],
    "elect": ["elect", "daily-report", "--", "true"],
    "borrow": ["borrow", "shared-options", "--of", "a", "--", "true"],
    "once": ["once", "daily-report", "--every", "1h", "--", "true"],
    "hand-over": ["hand-over", "daily-report"],
    "watch": ["watch", "/shared-options-set", "--from-zxid", "0", "--once"],
}


def run(variable: str, *arguments: str) -> Result:
    return CliRunner().invoke(
        cli, list(arguments), input=MULTI, env={"COORDINATOR_ENDPOINTS": variable}
    )


def asks_a_cluster(command: click.Command) -> bool:
    """Whether it can be told which; ``advise`` takes the option and asks nobody."""
    return command.name != "advise" and any("--endpoints" in each.opts for each in command.params)


def test_every_verb_is_in_the_table() -> None:
    """A new verb that asks a cluster is tried as well."""
    verbs = {str(each.name) for _, group in SECTIONS for each in group if asks_a_cluster(each)}
    assert verbs == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_option_wins_over_the_variable_on_either_side(
    coordinator: CommandLine, name: str
) -> None:
    """A variable that names another cluster never takes a verb away from the one in the option."""
    coordinator("set", "/shared-options-set", "x", "--create")
    verb, *rest = (each.replace("{n}", "before") for each in COMMANDS[name])
    before = run(ELSEWHERE, "--endpoints", coordinator.url, verb, *rest)
    coordinator("set", "/shared-options-set", "x", "--create")
    verb, *rest = (each.replace("{n}", "after") for each in COMMANDS[name])
    after = run(ELSEWHERE, verb, "--endpoints", coordinator.url, *rest)
    ignored = run(coordinator.url, "--endpoints", ELSEWHERE, verb, *rest)

    assert before.exit_code != EXIT_USAGE, before.output
    assert after.exit_code == before.exit_code, after.output
    assert ignored.exit_code == EXIT_USAGE, ignored.output
    assert ELSEWHERE in ignored.output


def test_the_later_option_wins(coordinator: CommandLine) -> None:
    """Of two, the one after the verb counts, for each of the shared options."""
    late = run("", "--endpoints", ELSEWHERE, "get", "/", "--endpoints", coordinator.url)
    seconds = run(coordinator.url, "--timeout", "nonsense", "get", "/", "--timeout", "5")
    quick = run("http://127.0.0.1:9", "--timeout", "60", "get", "/", "--timeout", "0.05")

    assert late.exit_code == 0, late.output
    assert seconds.exit_code == EXIT_USAGE
    assert "60" not in quick.stderr


class NothingButHttp(BaseHTTPRequestHandler):
    """A server that has no stream, and nothing else either."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_the_transport_is_an_option_on_either_side_and_a_variable() -> None:
    """A server without the stream is refused by the stream alone."""
    assert get_args(TransportName) == TRANSPORTS
    server = HTTPServer(("127.0.0.1", 0), NothingButHttp)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    get = ["--endpoints", endpoint, "--timeout", "0.5", "get", "/"]
    variable = {"COORDINATOR_TRANSPORT": "stream"}

    def said(*arguments: str, env: dict[str, str] | None = None) -> str:
        return CliRunner().invoke(cli, list(arguments), env=env).output

    assert "the stream" in said("--transport", "stream", *get)
    assert "the stream" in said("--transport", "http", *get, "--transport", "stream")
    assert "the stream" in said(*get, env=variable)
    assert "the stream" not in said(*get, "--transport", "http", env=variable)
    assert "the stream" not in said(*get, "--transport", "auto", env=variable)
    assert "'auto', 'stream', 'http'" in said(*get, "--transport", "carrier-pigeon")
    server.shutdown()
    server.server_close()


def test_a_command_under_a_lock_gets_all_that_says_which_cluster_and_who() -> None:
    """What was an option is a variable for it; files by their whole names, wherever it works."""
    settings = Settings("https://a:1", ca_file="ca.pem", token_file="/etc/token")

    environ = settings.environ("pay", "grant-7", 7)

    assert environ["COORDINATOR_ENDPOINTS"] == "https://a:1"
    assert environ["COORDINATOR_CA_FILE"] == str(Path("ca.pem").absolute())
    assert environ["COORDINATOR_TOKEN_FILE"] == "/etc/token"


def test_whoever_takes_endpoints_takes_a_transport() -> None:
    """They are options of the same client."""
    commands: list[click.Command] = [cli, *(each for _, group in SECTIONS for each in group)]
    for command in commands:
        options = {option for each in command.params for option in each.opts}
        assert ("--transport" in options) is ("--endpoints" in options), command.name


def test_no_option_reads_a_variable_by_itself() -> None:
    """click reads it once for the group and once for the verb, and the second reading would win."""
    commands: list[click.Command] = [cli, *(each for _, group in SECTIONS for each in group)]
    read = [
        f"{command.name} {parameter.name}"
        for command in commands
        for parameter in command.params
        if parameter.envvar is not None
    ]
    assert read == []
    assert "COORDINATOR_ENDPOINTS" in CliRunner().invoke(cli, ["--help"]).output


@pytest.mark.parametrize("verb", [["get"], ["lock"], ["access", "identity", "put"]])
def test_help_of_a_verb_explains_its_own_options_and_names_the_shared_ones(verb: list[str]) -> None:
    """Ten options that all verbs share are explained once, on the first page."""
    first_page = CliRunner().invoke(cli, ["--help"]).output
    of_verb, shared = CliRunner().invoke(cli, [*verb, "--help"]).output.split("Shared options ")

    assert "coordinator --help" in shared
    for option in ("--endpoints", "--transport", "--json", "--ca-file", "--token-file"):
        assert option in shared.split()
        assert f"  {option}" in first_page
        assert f"  {option}" not in of_verb
    assert ("--timeout" in shared.split()) is (verb != ["lock"])


def test_an_endpoint_may_be_a_host_and_a_port(coordinator: CommandLine) -> None:
    """As an option and in the variable."""
    address = coordinator.url.removeprefix("http://")
    assert coordinator("stat", "/", "--endpoints", f"localhost:1,{address}").exit_code == 0
    assert CommandLine(address)("stat", "/").exit_code == 0
