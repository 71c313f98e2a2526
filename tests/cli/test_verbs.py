"""What a person at a shell sees: text and JSON, exit codes, one line for each error."""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli.main import SECTIONS, cli
from coordinator.cli.output import (
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    EXIT_UNKNOWN,
    EXIT_USAGE,
    exit_code_of,
    one_line,
)
from coordinator.errors import REGISTRY, ConfigError, UnavailableError
from tests.cli.conftest import CommandLine
from tests.cli.test_status import until_it_exits


def test_what_was_created_can_be_read(coordinator: CommandLine) -> None:
    """create prints the path; get prints the bytes as they are, with nothing added."""
    assert coordinator.text("create", "/a", "hello") == "/a\n"
    assert coordinator.text("get", "/a") == "hello"


def test_json_says_what_the_http_api_says(coordinator: CommandLine) -> None:
    """With --json, before or after the verb, a result is one document in the API's words."""
    created = coordinator.json("create", "/json", '{"n": 1}')
    got = coordinator.json("get", "/json")
    before = coordinator("--json", "get", "/json")

    assert created["path"] == "/json"
    assert created["stat"]["version"] == 0
    assert got["data"] == '{"n": 1}'
    assert json.loads(before.stdout) == got


def test_any_bytes_survive(coordinator: CommandLine, tmp_path: Path) -> None:
    """Data from a file or a pipe comes back byte for byte; JSON has it as base64 if need be."""
    content = bytes(range(256))
    (tmp_path / "file").write_bytes(content)

    coordinator.text("create", "/bytes", "--file", str(tmp_path / "file"))
    result = coordinator("get", "/bytes")
    coordinator.text("set", "/bytes", "--file", "-", stdin=content[::-1])

    assert result.stdout_bytes == content
    assert "data_base64" in coordinator.json("get", "/bytes")


def test_set_checks_the_version(coordinator: CommandLine) -> None:
    """The expected version decides; a refusal is exit code 1 and one line on standard error."""
    coordinator.text("create", "/versions", "0")

    assert coordinator.text("set", "/versions", "1", "--expected-version", "0") == "version 1\n"
    refused = coordinator("set", "/versions", "2", "--expected-version", "0")

    assert refused.exit_code == EXIT_REFUSED
    assert refused.stdout == ""
    assert refused.stderr.startswith("coordinator: BadVersion: ")
    assert refused.stderr.count("\n") == 1


def test_a_missing_parent_is_answered_with_the_option(coordinator: CommandLine) -> None:
    """As a missing znode is by --create in the help of set."""
    refused = coordinator("create", "/no/such/parent")

    assert refused.exit_code == EXIT_REFUSED
    assert refused.stderr.endswith("/no/such does not exist (--parents creates it)\n")


def test_set_can_create(coordinator: CommandLine) -> None:
    """--create makes what is not there, and sets what is."""
    assert coordinator.text("set", "/upsert", "a", "--create") == "version 0\n"
    assert coordinator.text("set", "/upsert", "b", "--create") == "version 1\n"
    assert coordinator.text("get", "/upsert") == "b"


def test_an_error_in_json_is_a_problem(coordinator: CommandLine) -> None:
    """With --json an error is one problem object on standard error."""
    result = coordinator("get", "/absent", "--json")

    problem = json.loads(result.stderr)

    assert result.exit_code == EXIT_REFUSED
    assert (problem["code"], problem["status"], problem["definite"]) == ("NoNode", 404, True)


def test_children_are_listed(coordinator: CommandLine) -> None:
    """ls prints names; --long what is known of each; the parents are made on request."""
    for name in ("b", "a", "c"):
        coordinator.text("create", f"/parent/of/{name}", name, "--parents")

    assert coordinator.text("ls", "/parent/of") == "a\nb\nc\n"
    assert coordinator.json("ls", "/parent/of")["children"] == ["a", "b", "c"]
    long = coordinator.json("ls", "/parent/of", "--long")["children"]
    assert [(each["name"], each["stat"]["data_length"]) for each in long] == [
        ("a", 1), ("b", 1), ("c", 1)
    ]  # fmt: skip
    assert "persistent" in coordinator.text("ls", "/parent/of", "-l").splitlines()[1]


def test_a_subtree_is_deleted_only_when_asked(coordinator: CommandLine) -> None:
    """delete refuses a znode with children unless --recursive is given."""
    coordinator.text("create", "/tree/leaf", "--parents")

    assert coordinator("delete", "/tree").exit_code == EXIT_REFUSED
    assert coordinator.text("delete", "/tree", "--recursive") == "deleted 2\n"


def test_stat_shows_every_field(coordinator: CommandLine) -> None:
    """stat prints the names that the API has, one on each line."""
    coordinator.text("create", "/stat", "12345")

    text = coordinator.text("stat", "/stat")

    assert re.search(r"^data_length +5$", text, re.MULTILINE)
    assert re.search(r"^mtime_ms +\d+  \(\d{4}-\d\d-\d\dT", text, re.MULTILINE)
    assert coordinator.json("stat", "/stat")["stat"]["data_length"] == 5


def test_sequential_znodes_print_their_number(coordinator: CommandLine) -> None:
    """The path that is printed is the one that was made."""
    first = coordinator.text("create", "/job-", "--mode", "persistent_sequential")

    assert re.fullmatch(r"/job-\d{10}\n", first)


def test_multi_is_all_or_nothing(coordinator: CommandLine) -> None:
    """multi takes the body of the API from standard input; a refusal changes nothing."""
    operations = [
        {"op": "create", "path": "/multi", "data": "1"},
        {"op": "read", "path": "/multi"},
        {"op": "delete", "path": "/multi"},
    ]
    done = coordinator.json("multi", stdin=json.dumps({"operations": operations}))
    operations[2]["path"] = "/never"
    refused = coordinator("multi", stdin=json.dumps({"operations": operations}))

    assert [each["op"] for each in done["results"]] == ["create", "read", "delete"]
    assert done["results"][1]["data"] == "1"
    assert refused.exit_code == EXIT_REFUSED
    assert coordinator("get", "/multi").exit_code == EXIT_REFUSED


def test_a_guarded_write_says_which_branch_ran(coordinator: CommandLine) -> None:
    """Conditions, then, otherwise: the first line of the text is the branch."""
    request = {
        "conditions": [{"path": "/guarded", "exists": False}],
        "then": [{"op": "create", "path": "/guarded"}],
        "otherwise": [{"op": "read", "path": "/guarded"}],
    }

    first = coordinator.text("multi", stdin=json.dumps(request))
    second = coordinator.json("multi", stdin=json.dumps(request))

    assert first.splitlines()[0] == "then"
    assert second["branch"] == "otherwise"


def test_multi_refuses_what_is_not_json(coordinator: CommandLine) -> None:
    """A body that cannot be right is refused before anything is sent."""
    result = coordinator("multi", stdin='{"operations": NaN}')

    assert result.exit_code == EXIT_REFUSED
    assert "BadArguments" in result.stderr


def test_watch_tells_what_happened_since(coordinator: CommandLine) -> None:
    """With a zxid from the past the first change since then ends a watch --once."""
    created = coordinator.json("create", "/watched", "1")
    coordinator.text("set", "/watched", "2")
    zxid = str(created["stat"]["czxid"])

    text = coordinator.text("watch", "/watched", "--once", "--from-zxid", zxid)
    change = coordinator.json("watch", "/", "--kind", "subtree", "--once", "--from-zxid", zxid)

    assert re.fullmatch(r"\d+ NodeDataChanged /watched\n", text)
    assert [event["path"] for event in change["events"]] == ["/watched"]


def test_watch_shows_values_and_only_what_is_asked_for(coordinator: CommandLine) -> None:
    """The data before and after, as text or base64; of some types of change, some paths."""
    zxid = str(coordinator.json("create", "/valued", "1")["stat"]["czxid"] - 1)
    coordinator.text("set", "/valued", "a\nb")
    coordinator.text("create", "/valued/x")
    coordinator.text("delete", "/valued/x")
    begin = ["watch", "/valued", "--kind", "subtree", "--once", "--from-zxid", zxid]

    assert coordinator.text(*begin, "--values").endswith(' NodeCreated /valued "1"\n')
    changed = coordinator.text(*begin, "--values", "--only", "changed")
    assert changed.endswith(' NodeDataChanged /valued "1" -> "a\\nb"\n')
    deleted = coordinator.json(*begin, "--only", "deleted,changed", "--prefix", "/valued/")
    assert [event["type"] for event in deleted["events"]] == ["NodeDeleted"]
    assert "data" not in deleted["events"][0]


def test_limits_are_shown_and_set(coordinator: CommandLine) -> None:
    """limits shows them; limits set changes them for all, and says who did it."""
    before = coordinator.json("limits")

    set_ = coordinator.json("limits", "set", "children_max=99_999", "--by", "ops")
    shown = coordinator.text("limits")

    assert set_["limits"] == {**before["limits"], "children_max": 99_999}
    assert set_["version"] == before["version"] + 1
    assert " by ops:" in shown
    assert re.search(r"^children_max +99999$", shown, re.MULTILINE)
    coordinator.text("limits", "set", "children_max=100000")
    for wrong in ("children_max", "children_max=many", "=5"):
        assert coordinator("limits", "set", wrong).exit_code == 2
    stale = coordinator("limits", "set", "children_max=5", "--expected-version", "1")
    assert stale.exit_code == 1
    assert "expected version 1" in stale.output


@pytest.mark.parametrize("endpoints", ["127.0.0.1:", ",", "ftp://h", "http://"])
def test_endpoints_that_are_none_are_wrong_usage(endpoints: str) -> None:
    """Nothing was refused by anybody: the command line is wrong, and told what was expected."""
    result = CliRunner().invoke(cli, ["get", "/a", "--endpoints", endpoints])

    assert result.exit_code == 2
    assert "endpoints: expected" in result.output


def test_a_missing_name_is_told(coordinator: CommandLine) -> None:
    """An unset variable in a script makes an empty name."""
    result = coordinator("lock", "", "--", "true")

    assert result.exit_code == 1
    assert "expected a name, found an empty one" in result.stderr


def test_locks_and_sessions_can_be_empty(coordinator: CommandLine) -> None:
    """Lists of nothing are lists."""
    assert coordinator.json("locks")["locks"] == []
    assert "sessions" in coordinator.json("sessions")
    assert coordinator.text("locks", "nobody's") == "nobody's is free\n"


def test_a_grant_that_is_not_held_cannot_be_revoked(coordinator: CommandLine) -> None:
    """Force names exactly one grant, and says so when it is not there."""
    result = coordinator("revoke", "nothing", "--grant", "42-1337", "--reason", "test")

    assert result.exit_code == EXIT_REFUSED
    assert "lock-0000000042" in result.stderr
    assert "1337" in result.stderr


def test_without_members_it_says_unavailable() -> None:
    """Nobody listens: exit code 3 within the deadline, and the address in the message."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

        arguments = ["get", "/", "--endpoints", url, "--timeout", "0.3"]
        result = CliRunner().invoke(cli, arguments)

    assert result.exit_code == EXIT_UNAVAILABLE
    assert url in result.stderr


@pytest.mark.parametrize("seconds", ["nan", "inf", "-inf", "1e308", "0", "-1", "x"])
@pytest.mark.parametrize("verb", [("get", "/"), ("locks",), ("create", "/a")])
def test_a_time_that_cannot_be_is_wrong_usage(verb: tuple[str, ...], seconds: str) -> None:
    """NaN and the infinite are no deadlines: exit code 2 and a reason (found by tests/fuzz)."""
    result = CliRunner().invoke(cli, [*verb, f"--timeout={seconds}"])

    assert result.exit_code == EXIT_USAGE
    assert "--timeout" in result.stderr


@pytest.mark.parametrize("flag", ["--ttl=nan", "--kill-grace=nan", "--kill-grace=inf"])
def test_a_lease_that_cannot_be_is_wrong_usage(flag: str) -> None:
    """A holder's times are numbers too."""
    result = CliRunner().invoke(cli, ["lock", "name", flag, "--", "true"])

    assert result.exit_code == EXIT_USAGE
    assert flag.partition("=")[0] in result.stderr


def test_each_error_has_its_exit_code() -> None:
    """Definite refusals are 1, unavailable is 3, everything that may have happened is 4."""
    for kind in REGISTRY.values():
        code = exit_code_of(kind("x"))
        if issubclass(kind, ConfigError):
            assert code == EXIT_USAGE
        elif issubclass(kind, UnavailableError):
            assert code == EXIT_UNAVAILABLE
        else:
            assert code == (EXIT_REFUSED if kind.definite else EXIT_UNKNOWN)


@pytest.mark.parametrize("arguments", [["nonsense"], ["get"], ["get", "/", "--nonsense"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str]) -> None:
    """What cannot be understood is not sent."""
    assert CliRunner().invoke(cli, arguments).exit_code == EXIT_USAGE


@pytest.mark.parametrize("command", [c for _, commands in SECTIONS for c in commands], ids=str)
def test_every_verb_has_help_with_an_example(command: object) -> None:
    """--help says what a verb does and shows how it is called; exit codes are on the first page."""
    name = str(getattr(command, "name", ""))
    text = CliRunner().invoke(cli, [name, "--help"]).output

    assert "Example" in text
    assert f"coordinator {name}" in text
    assert "Exit codes" in CliRunner().invoke(cli, ["--help"]).output


def test_what_others_wrote_moves_no_cursor() -> None:
    """Control characters in names and labels are shown, not obeyed."""
    assert one_line("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"


def test_a_wrong_configuration_is_exit_code_2(tmp_path: Path) -> None:
    """serve names file, key, what was expected and found, and does not start."""
    path = tmp_path / "member.toml"
    path.write_text("[http]\nbind_prot = 1\n")

    result = CliRunner().invoke(cli, ["serve", "--config", str(path)])

    assert result.exit_code == EXIT_USAGE
    assert "did you mean bind_port?" in result.stderr


@pytest.mark.parametrize("name", ["x" * 300, "file/x", "absent/x"])
def test_a_place_that_takes_no_secret_is_named(tmp_path: Path, name: str) -> None:
    """A name too long, below a file, below nothing: told in one line, with the reason."""
    (tmp_path / "file").touch()
    path = tmp_path / name

    result = CliRunner().invoke(cli, ["secret", str(path)])

    assert result.exit_code == 2
    assert result.output.startswith(f"coordinator: Config: {path}: expected a place to write")
    assert result.output.count("\n") == 1


def test_a_secret_needs_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty name (an unset variable in a script, say) is told so."""
    monkeypatch.chdir(tmp_path)

    result = CliRunner().invoke(cli, ["secret", ""])

    assert result.exit_code == 2
    assert "expected the name of a file" in result.output
    assert not list(tmp_path.iterdir())


def test_the_secret_is_made_once(tmp_path: Path) -> None:
    """A second call keeps what is there; only the owner can read it."""
    path = tmp_path / "secret"

    CliRunner().invoke(cli, ["secret", str(path)])
    first = path.read_text()
    result = CliRunner().invoke(cli, ["secret", str(path)])

    assert result.exit_code == 0
    assert path.read_text() == first
    assert len(first.strip()) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["secret"]


def test_sessions_are_ended_by_id_and_by_label(coordinator: CommandLine) -> None:
    """All they own goes with them; how many were open is said."""
    opened = [_session(coordinator.url, label) for label in ("gone", "gone", "well", "one")]
    on_record = ("--by", "ann", "--reason", "left behind")

    by_label = coordinator.text("sessions", "close", "--label", "gone", *on_record)
    by_id = coordinator.json("sessions", "close", opened[3], *on_record)
    again = coordinator.json("sessions", "close", opened[3], *on_record)
    nothing = coordinator("sessions", "close", *on_record)

    assert by_label == "ended 2\n"
    assert (by_id, again) == ({"ended": [opened[3]]}, {"ended": []})
    assert nothing.exit_code == EXIT_USAGE
    left = [each["session_id"] for each in coordinator.json("sessions")["sessions"]]
    assert opened[2] in left
    assert not {opened[0], opened[1], opened[3]} & set(left)


def test_sessions_are_ended_by_where_they_come_from(coordinator: CommandLine) -> None:
    """By address and by client id, of which each must fit; the list shows the address."""
    ours, theirs = (_session(coordinator.url, "crowd", name) for name in ("loop-1", "loop-2"))
    on_record = ("--by", "ann", "--reason", "opened in a loop")

    listed = coordinator.text("sessions")
    by_client = coordinator.json("sessions", "close", "--client", "loop-1", *on_record)
    elsewhere = coordinator.json("sessions", "close", "--address", "10.0.0.7", *on_record)
    of_neither = ("--address", "127.0.0.1", "--client", "loop-1")
    neither = coordinator.json("sessions", "close", *of_neither, *on_record)
    by_address = coordinator.json("sessions", "close", "--address", "127.0.0.1", *on_record)
    wrong = coordinator("sessions", "close", "--address", "fe80::x", *on_record)

    assert re.search(rf"^{ours} .* 127\.0\.0\.1 +crowd$", listed, re.MULTILINE), listed
    assert by_client == {"ended": [ours]}
    assert (elsewhere, neither) == ({"ended": []}, {"ended": []})
    assert theirs in by_address["ended"]
    assert wrong.exit_code == EXIT_USAGE


def test_an_operator_holds_a_lock_from_the_reserve(coordinator: CommandLine) -> None:
    """Others are refused; status and diagnose say that the cluster is nearly full, and of what."""
    before = coordinator.json("limits")["limits"]
    until_it_exits(coordinator, 0)
    tight = coordinator.json("status")["sessions"] + 2
    limits = (f"sessions_max={tight}", "ordinary_percent_max=50")
    assert coordinator("limits", "set", *limits, "--by", "ann").exit_code == 0
    while not json.loads(coordinator("status", "--json").stdout)["reserve"]:
        _session(coordinator.url, "filler")

    refused = coordinator("lock", "upkeep", "--", "true")
    held = coordinator("lock", "upkeep", "--by", "ann", "--", "true")
    until_it_exits(coordinator, EXIT_UNAVAILABLE)
    status, told = coordinator("status").stdout, coordinator.text("diagnose")
    in_json = coordinator.json("diagnose")["cluster"]["text"]
    coordinator.text("sessions", "close", "--label", "filler", "--by", "ann", "--reason", "test")
    kept = (f"{name}={before[name]}" for name in ("sessions_max", "ordinary_percent_max"))
    coordinator.text("limits", "set", *kept, "--by", "ann")

    assert refused.exit_code == EXIT_REFUSED
    assert "kept for operators" in refused.stderr
    assert held.exit_code == 0, held.output
    assert "are kept for operators" in status
    assert told.startswith(in_json)
    assert in_json in status
    until_it_exits(coordinator, 0)
    assert coordinator.json("status")["reserve"] == ""


def _session(url: str, label: str, client_id: str = "") -> str:
    """Open a session that nobody closes."""
    known = {"Coordinator-Client-Id": client_id, "Coordinator-Request-Number": "1"}
    body = json.dumps({"timeout_ms": 60_000, "label": label}).encode()
    request = urllib.request.Request(
        f"{url}/v1/sessions",
        body,
        {"Content-Type": "application/json", **(known if client_id else {})},
    )
    with urllib.request.urlopen(request) as answer:
        session_id: str = json.load(answer)["session_id"]
    return session_id


def test_a_disk_that_fails_at_a_start_is_no_request(tmp_path: Path) -> None:
    """Nothing was asked of anybody, so nothing is unknown."""
    environ = {"COORDINATOR_MEMBER_DATA_DIR": "/proc/nope"}
    result = CliRunner().invoke(cli, ["serve"], env=environ)

    assert result.exit_code == EXIT_UNKNOWN, result.output
    assert "/proc/nope" in result.stderr
    assert "not known whether" not in result.stderr
