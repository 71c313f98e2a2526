"""``coordinator access``: from a cluster without rights to a worker with its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from coordinator.cli.main import cli
from coordinator.model.tokens import token_id_in
from tests.cli.serving import ServedMember


@pytest.fixture(scope="module")
def member() -> Iterator[ServedMember]:
    served = ServedMember()
    served.start()
    yield served
    served.stop()


class Shell:
    """Calls ``coordinator`` with a token file, as somebody with this variable set."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.token_file = ""

    def __call__(self, *arguments: str) -> Result:
        environ = {"COORDINATOR_ENDPOINTS": self.url, "COORDINATOR_TOKEN_FILE": self.token_file}
        return CliRunner().invoke(cli, list(arguments), env=environ)

    def text(self, *arguments: str) -> str:
        result = self(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.text(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        result = self(*arguments)
        assert result.exit_code == 1, result.output
        return result.stderr

    def path(self, name: str) -> str:
        return str(self.directory / name)


def test_from_no_rights_to_a_worker_and_back(member: ServedMember, tmp_path: Path) -> None:
    """Init, role, identity, token, can, explain, list, drop, off: what is said, and how it ends."""
    shell = Shell(member.url, tmp_path)
    assert "off: everybody may do everything" in shell.text("access")
    shell.text("access", "init", "--out", shell.path("admin"))
    assert "AuthFailed" in shell.refused("ls", "/")
    shell.token_file = shell.path("admin")
    assert "This client is admin, by token:" in shell.text("access", "whoami")

    assert "revision" in shell.text(
        "access", "role", "put", "pay", "lock,read:/locks/pay*", "read:@metrics"
    )
    shell.text("access", "identity", "put", "worker", "--role", "pay", "--subject", "cert:a://b/c")
    shell.text(
        "access", "token", "add", "worker", "--label", "first", "--out", shell.path("worker")
    )
    assert shell("access", "can", "worker", "lock", "/locks/payroll").exit_code == 0
    no = shell("access", "can", "worker", "write", "/locks/payroll")
    assert (no.exit_code, no.stdout.startswith("no: no role of identity 'worker'")) == (1, True)
    assert "pay   lock,read  /locks/pay*" in shell.text(
        "access", "explain", "worker", "read", "/locks/pay"
    )
    assert "@metrics" in shell.text("access", "role", "list")
    (worker,) = [
        each for each in shell.json("access", "identity", "list") if each["name"] == "worker"
    ]
    assert (worker["roles"], worker["subjects"]) == (["pay"], ["cert:a://b/c"])
    assert [each["label"] for each in worker["tokens"]] == ["first"]
    assert "worker" in shell.text("access", "identity", "list")

    as_worker = Shell(member.url, tmp_path)
    as_worker.token_file = shell.path("worker")
    assert as_worker.text("lock", "payroll", "--", "true") == ""
    assert "needs lock on /locks/web" in as_worker.refused("lock", "web", "--", "true")
    assert "needs read on @access" in as_worker.refused("access", "role", "list")
    assert as_worker.json("access", "whoami")["identity"] == "worker"

    whole = Path(shell.path("worker")).read_text().strip()
    assert token_id_in(whole) == worker["tokens"][0]["token_id"]
    shell.text("access", "token", "drop", whole)
    assert "AuthFailed" in as_worker.refused("access", "whoami")
    assert "NotEmpty" in shell.refused("access", "role", "drop", "pay")
    shell.text("access", "quota", "set", "worker", "--znodes", "7", "--bytes", "2MiB")
    shell.text("access", "quota", "set", "worker", "--znodes", "default", "--waiters", "3")
    own = shell.json("access", "quota", "show", "worker")
    assert own["znodes"]["used"] == 2, "the queue of its lock, and /locks"
    assert (own["bytes"]["allowed"], own["bytes"]["is_own"]) == (2 * 1024 * 1024, True)
    assert (own["waiters"]["allowed"], own["znodes"]["is_own"]) == (3, False)
    assert "znodes_per_identity_max" in shell.text("access", "quota", "show")
    assert "of 2097152" in shell.text("access", "quota", "list")
    assert shell("access", "quota", "set", "worker").exit_code == 2
    assert shell("access", "quota", "set", "worker", "--znodes", "many").exit_code == 2
    shell.text("access", "identity", "drop", "worker")
    shell.text("access", "role", "drop", "pay")
    shell.text("access", "off")
    shell.token_file = ""
    assert shell.text("ls", "/").strip() == "locks"


def test_a_lock_is_named_as_people_name_it(member: ServedMember, tmp_path: Path) -> None:
    """Its path is encoded for them; a bare name gets no answer that is about something else."""
    shell = Shell(member.url, tmp_path)
    shell.text("access", "role", "put", "one", "lock:/locks/pay:17", "read:/elections/a b*")
    shell.text("access", "identity", "put", "bob", "--role", "one")
    rules = [
        each["rules"] for each in shell.json("access", "role", "list") if each["name"] == "one"
    ]

    assert [each["prefix"] for each in rules[0]] == ["/locks/pay%3A17", "/elections/a%20b*"]
    for path in ("/locks/pay:17", "/locks/pay%3A17"):
        assert shell("access", "can", "bob", "lock", path).exit_code == 0
    bare = shell("access", "can", "bob", "lock", "pay:17")
    assert bare.exit_code == 2
    assert "such as /config/payments or /locks/NAME for a lock" in bare.output
    shell.text("access", "identity", "drop", "bob")
    shell.text("access", "role", "drop", "one")


def test_a_token_is_written_for_its_owner_alone_and_replaces_only_when_told(
    member: ServedMember, tmp_path: Path
) -> None:
    """Nothing is asked of the cluster if the file cannot be written; nothing half is left."""
    shell = Shell(member.url, tmp_path)
    shell.text("access", "identity", "put", "ann")
    file = tmp_path / "token"
    shell.text("access", "token", "add", "ann", "--out", str(file))
    first = file.read_text()

    again = shell("access", "token", "add", "ann", "--out", str(file))
    nowhere = shell("access", "token", "add", "ann", "--out", shell.path("no/such/place"))
    count = len(shell.json("access", "identity", "list")[0]["tokens"])
    told = shell(
        "access", "token", "add", "ann", "--expires-in", "90d", "--out", str(file), "--replace"
    )
    shown = shell("access", "token", "add", "ann", "--json")

    assert file.stat().st_mode & 0o777 == 0o600
    assert (again.exit_code, nowhere.exit_code, count) == (2, 2, 1)
    assert told.exit_code == 0
    assert file.read_text() != first
    assert file.read_text().strip() not in told.output
    assert json.loads(shown.stdout)["token"].startswith("co_")
    assert [each.name for each in tmp_path.iterdir()] == ["token"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("role", "put", "r", "eat:/a"),
        ("role", "put", "r", "read"),
        ("role", "put", "r", "read:"),
        ("can", "ann", "eat", "/a"),
        ("token", "add", "ann", "--expires-in", "soon"),
    ],
)
def test_what_is_no_rule_verb_or_time_is_refused(
    member: ServedMember, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """As a mistake of use, before anything is sent."""
    result = Shell(member.url, tmp_path)("access", *arguments)

    assert result.exit_code == 2
    assert "eat" in result.stderr or "expected" in result.stderr
