"""Planted secrets are in no log, audit line, metric, error, dump, argument or environment.

Real members log everything (debug), keep audit logs, are asked rightly and wrongly, fail and are
killed with a dump of their stacks. What they and the command line said is then searched for the
cluster's secret, a token and the data of znodes, also as base64, hex and in URLs.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.canaries import Canary, found, of_files, of_process
from tests.cluster.processes import ProcessCluster

pytestmark = pytest.mark.check

DATA = Canary("data of a znode", b"canary-data-" + secrets.token_hex(12).encode())
TOKEN = Canary("a token", f"co_c4n4ry0001_{secrets.token_urlsafe(32)}".encode())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    settings = {"log": {"level": "debug"}}
    members = ProcessCluster(tmp_path / "cluster", settings=settings)
    for member_id in members.ids:
        config = members.directory / f"member-{member_id}.toml"
        audit = members.directory / f"audit-{member_id}.jsonl"
        config.write_text(
            f'[audit]\ntarget = "file"\nfile = {json.dumps(str(audit))}\n{config.read_text()}'
        )
    members.start(env={"PYTHONFAULTHANDLER": "1", "PYTHONASYNCIODEBUG": ""})
    yield members
    members.stop()


def asked(url: str, method: str, path: str, body: Any = None, **headers: str) -> bytes:
    """Return the status line, the headers and the body of an answer, whatever it is."""
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, method=method)
    request.add_header("Authorization", f"Bearer {TOKEN.secret.decode()}")
    request.add_header("Content-Type", "application/json")
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return f"{reply.status} {reply.headers}".encode() + bytes(reply.read())
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.headers}".encode() + error.read()


def wrongly(url: str) -> dict[str, bytes]:
    """Ask what is refused, with data and the token wherever a client may put them by mistake."""
    data, token = DATA.secret.decode(), TOKEN.secret.decode()
    too_long = json.dumps({"data": data * 50_000}).encode()
    broken = json.dumps({"data": data}).encode()[:-3]
    lost = {"data": data, "if_held": {"lock": "none", "fencing_token": 7}}
    asks: list[tuple[str, str, Any, dict[str, str]]] = [
        ("POST", "/v1/tree/there", {"data": data}, {}),
        ("POST", "/v1/tree/no/parent", {"data": data}, {}),
        ("PUT", "/v1/tree/there?expected_version=9", {"data": data}, {}),
        ("POST", "/v1/tree/late", lost, {}),
        ("POST", "/v1/tree/long", too_long, {}),
        ("POST", "/v1/tree/broken", broken, {}),
        ("POST", "/v1/tree/form", broken, {"Content_Type": "text/plain"}),
        ("POST", "/v1/multi", {"operations": [{"set": {"path": "/x", "data": data}}]}, {}),
        ("POST", "/v1/tree/twice", {"data": data, "data_base64": data}, {}),
        ("GET", f"/v1/tree/there?token={token}", None, {}),
        ("GET", "/v1/nothing", None, {"X_Token": token}),
        ("PUT", "/v1/locks/none/grants/0/note", {"note": data}, {}),
        ("GET", "/v1/status", None, {"Cookie": f"token={token}"}),
        ("BREW", "/v1/status", None, {}),
    ]
    return {
        f"the answer to {method} {path.partition('?')[0]}": asked(
            url, method, path, body, **headers
        )
        for method, path, body, headers in asks
    }


def by_the_command_line(url: str, directory: Path) -> dict[str, bytes]:
    """Run verbs that succeed and fail, with data and a token from files; return what they said."""
    (directory / "data").write_bytes(DATA.secret)
    token_file = directory / "token"
    token_file.write_bytes(TOKEN.secret)
    token_file.chmod(0o600)
    environment = {**os.environ, "COORDINATOR_ENDPOINTS": url, "COORDINATOR_TOKEN_FILE": ""}
    said = {}
    for arguments in (
        ["create", "/cli", "--file", str(directory / "data"), "--parents"],
        ["create", "/cli", "--file", str(directory / "data")],
        ["set", "/cli", "--file", str(directory / "data"), "--expected-version", "99"],
        ["set", "/none", "--file", str(directory / "data"), "--json"],
        ["status"],
        ["ls", "/", "--long"],
    ):
        command = [sys.executable, "-m", "coordinator", *arguments]
        environment["COORDINATOR_TOKEN_FILE"] = str(token_file)
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=30, check=False
        )
        said[f"what {' '.join(arguments[:2])} said"] = done.stdout + done.stderr
    return said


def test_no_planted_secret_is_said_anywhere(cluster: ProcessCluster) -> None:
    """While all is well, while requests are refused, and when a member ends badly."""
    secret = (cluster.directory / "cluster-secret").read_bytes().strip()
    canaries = [DATA, TOKEN, Canary("the cluster's secret", secret)]
    leader = cluster.leader()
    said: dict[str, bytes] = {}
    for member_id in cluster.ids:
        cluster.wait_ready(member_id)
        url = cluster.url(member_id)
        said |= {f"{where} of {member_id}": text for where, text in wrongly(url).items()}
        said[f"metrics of {member_id}"] = asked(url, "GET", "/metrics")
        said[f"sessions of {member_id}"] = asked(url, "GET", "/v1/sessions")
        said |= of_process(cluster.processes[member_id].pid)
    said |= by_the_command_line(cluster.endpoints, cluster.directory)
    there = asked(cluster.url(leader), "GET", "/v1/tree/there")
    assert DATA.is_in(there), "the data were written, and are told to who asks for them"

    cluster.signal(leader, signal.SIGABRT)  # dumps the stacks of all its threads
    cluster.processes[leader].wait(timeout=20)
    damaged = next(cluster.data_dir(leader).glob("log/term*"))
    damaged.write_bytes(b"damaged")
    cluster.start(leader)
    cluster.processes[leader].wait(timeout=20)
    cluster.stop()

    logs = of_files(cluster.directory, "*.log", "audit-*.jsonl")
    of_leader = (cluster.directory / f"member-{leader}.log").read_bytes()
    assert b"Fatal Python error: Aborted" in of_leader
    assert b"replace the member" in of_leader
    assert len(logs) == 6
    assert found(canaries, said | logs) == []


def test_a_canary_is_found_in_each_of_its_forms() -> None:
    """The search would see it."""
    for form in DATA.forms():
        assert found([DATA], {"a log": b"x" + form + b"y"}) == ["data of a znode is in a log"]
    assert found([DATA], {"a log": b"xy"}) == []


def test_a_member_leaves_no_core_dump(cluster: ProcessCluster) -> None:
    """Its memory holds secrets; the limit is that of the process."""
    cluster.wait_ready("1")
    limits = Path(f"/proc/{cluster.processes['1'].pid}/limits").read_text()

    (line,) = [each for each in limits.splitlines() if each.startswith("Max core file size")]
    assert line.split()[4] == "0"
