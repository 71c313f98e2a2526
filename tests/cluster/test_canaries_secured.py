"""Planted secrets of a member with TLS and access rights: tokens, keys, data, in nothing it says.

As ``test_canaries``, but every client proves who it is: with good tokens, revoked ones, wrong ones,
and in the wrong places.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.audit.audited import lines
from tests.certificates import Certificates
from tests.cluster.canaries import Canary, found, of_files, of_process
from tests.oidc.issuer import Issuer, issuing
from tests.ports import free_ports

pytestmark = pytest.mark.check

DATA = "canary-of-a-znode-with-rights"
SHOWN = {
    name: Canary(f"the header {name}", f"canary-of-{name.lower()}-7f3a91c05e".encode())
    for name in ("Cookie", "X-CSRF-Token", "X-Api-Key")
}
"""What no member wants, and clients send all the same."""


class SecuredMember:
    """One member as a process, with TLS for its clients and an audit log; and the command line."""

    def __init__(self, directory: Path, log_format: str, issuer: str) -> None:
        self.directory = directory
        certificates = Certificates(directory / "tls")
        certificate, self.key_file = certificates.member("1")
        (port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{port}"
        self.context = ssl.create_default_context(cafile=certificates.ca_file)
        self.config = directory / "member.toml"
        settings = {
            "member": {"data_dir": str(directory / "data")},
            "http": {
                "bind_port": port, "tls_cert_file": certificate, "tls_key_file": self.key_file,
            },
            "log": {"level": "debug", "format": log_format},
            "oidc": {"issuer": issuer},
            "raft": {"snapshot_every_entries": 10, "keep_entries_after_snapshot": 5},
            "audit": {"target": "file", "file": str(directory / "audit.jsonl")},
        }  # fmt: skip
        self.config.write_text(
            "".join(
                f"[{section}]\n"
                + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
                for section, values in settings.items()
            )
        )
        self.environment = {
            **os.environ,
            "COORDINATOR_ENDPOINTS": self.url,
            "COORDINATOR_CA_FILE": certificates.ca_file,
        }
        with (directory / "member.log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "coordinator", "serve", "--config", str(self.config)],
                stdout=log, stderr=log, env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )  # fmt: skip

    def wait_ready(self) -> None:
        for _ in range(600):
            if self.asked("GET", "/health/ready").startswith(b"200"):
                return
            assert self.process.poll() is None, (self.directory / "member.log").read_text()
            time.sleep(0.05)
        raise AssertionError("it is not ready")

    def asked(self, method: str, path: str, token: str = "", body: Any = None) -> bytes:
        """Return the status, the headers and the body of an answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        for name, canary in SHOWN.items():
            request.add_header(name, canary.secret.decode())
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=10, context=self.context) as reply:
                return f"{reply.status} {reply.headers}".encode() + bytes(reply.read())
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.headers}".encode() + error.read()
        except OSError as error:
            return str(error).encode()

    def verb(self, *arguments: str, token_file: Path | None = None) -> bytes:
        """Return what the command line said."""
        known = {} if token_file is None else {"COORDINATOR_TOKEN_FILE": str(token_file)}
        done = subprocess.run(
            [sys.executable, "-m", "coordinator", *arguments],
            env={**self.environment, **known}, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        return done.stdout + done.stderr


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture(params=["text", "json"])
def member(
    tmp_path: Path, issuer: Issuer, request: pytest.FixtureRequest
) -> Iterator[SecuredMember]:
    member = SecuredMember(tmp_path, request.param, issuer.url)
    yield member
    if member.process.poll() is None:
        member.process.kill()
    member.process.wait()


def set_up(member: SecuredMember, admin: Path, worker: Path, subject: str) -> dict[str, bytes]:
    """Turn access rights on, and give a worker a token; return what was said."""
    steps = [
        (["access", "init", "--out", str(admin)], None),
        (["access", "role", "put", "pay", "read,write:/pay", "lock:/locks/pay*"], admin),
        (["access", "identity", "put", "worker", "--role", "pay", "--subject", subject], admin),
        (["access", "token", "add", "worker", "--out", str(worker)], admin),
        (["create", "/pay", DATA], worker),
        (["create", "/other", DATA], worker),
        (["lock", "pay", "--", "true"], worker),
        (["access", "identity", "list"], admin),
        (["access", "whoami", "--json"], worker),
        (["get", "/pay", "--timeout", "0.001"], worker),
        (["sessions"], admin),
        (["access", "explain", "worker", "write", "/other"], admin),
        (["access", "can", "worker", "read", "/pay"], worker),
        (["diagnose"], admin),
        (["why", "pay"], admin),
        (["grants"], admin),
        (["audit", "verify", str(member.directory / "audit.jsonl")], None),
    ]
    return {
        f"{number}: {' '.join(words[:3])}": member.verb(*words, token_file=file)
        for number, (words, file) in enumerate(steps)
    }


def test_no_token_no_key_and_no_data_is_said_anywhere(
    member: SecuredMember, issuer: Issuer
) -> None:
    """With rights and without, by the command line and by HTTP, until a dump of all stacks."""
    member.wait_ready()
    admin, worker = member.directory / "admin.token", member.directory / "worker.token"
    said = set_up(member, admin, worker, f"oidc:{issuer.url}#worker")
    workloads = issuer.token(sub="worker")
    tokens = {each: (member.directory / f"{each}.token").read_text().strip()
              for each in ("admin", "worker")}  # fmt: skip
    wrong = tokens["worker"][:-6] + "AAAAAA"
    token_id = tokens["worker"].split("_")[1]
    shown = {"good": tokens["worker"], "wrong": wrong, "none": "", "OIDC": workloads,
             "wrong OIDC": workloads[:-6] + "AAAAAA"}  # fmt: skip
    for name, token in shown.items():
        for method, path, body in (
            ("GET", "/v1/tree/pay/none", None), ("GET", f"/v1/tree/other?token={token}", None),
            ("GET", "/v1/access/identities", None), ("GET", "/console/", None),
            ("GET", "/metrics", None), ("GET", "/v1/sessions", None), ("GET", "/v1/status", None),
            ("PUT", "/v1/tree/pay?expected_version=99", {"data": DATA}),
            ("PUT", "/v1/tree/other", {"data": DATA}), ("POST", f"/v1/{token}", {"token": token}),
        ):  # fmt: skip
            said[f"{name}: {method} {path[:16]}"] = member.asked(method, path, token, body)
    said["revoked"] = member.verb("access", "token", "revoke", token_id, token_file=admin)
    said["after"] = member.verb("set", "/pay", "x", token_file=worker)
    said |= of_process(member.process.pid)
    member.process.send_signal(signal.SIGABRT)
    member.process.wait(timeout=20)

    keys = [line for line in Path(member.key_file).read_text().splitlines() if "-" not in line]
    canaries = [Canary(f"the token of {name}", token.split("_", 2)[2].encode())
                for name, token in tokens.items()]  # fmt: skip
    canaries += [Canary("a wrong token", wrong.split("_", 2)[2].encode())]
    canaries += [Canary("the key of the certificate", line.encode()) for line in keys]
    canaries += [Canary("a workload's token", workloads.rpartition(".")[2].encode())]
    canaries += SHOWN.values()
    stored = of_files(member.directory, "data/**/*")
    assert [each for each in stored if "snapshot" in each], "one was written"
    assert found(canaries, stored) == []
    canaries += [Canary("data", DATA.encode())]
    # Where a client put its token into the address it is in the answer about that address.
    said = {where: text for where, text in said.items() if "POST /v1/" not in where}
    assert b"Fatal Python error: Aborted" in (member.directory / "member.log").read_bytes()
    files = of_files(member.directory, "member.log", "audit.jsonl*", "data/owner")
    assert found(canaries, said | files) == []
    noted = lines(member.directory / "audit.jsonl")
    noted += lines(member.directory / "audit.jsonl.strangers")
    refused = [each for each in noted if each["event"] == "request.refused"]
    assert {each["code"] for each in refused} == {"AuthFailed", "NoAuth"}
    assert "worker" in {each["identity"] for each in refused}
    assert f"token:{token_id}" in {each["credential"] for each in refused}
