"""Three members with TLS and access rights, and two clients that have rights on their own alone."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from tests.certificates import Certificates
from tests.cluster.processes import ProcessCluster
from tests.patience import patient

CLIENTS = ("raging", "other")


class SecuredCluster:
    """The members, and the tokens of the clients and of an operator."""

    def __init__(self, directory: Path) -> None:
        made = Certificates(directory / "certs")
        self.ca_file = made.ca_file
        self._context = ssl.create_default_context(cafile=made.ca_file)
        self.members = ProcessCluster(directory / "cluster", 3, certificates=made)
        self.tokens: dict[str, str] = {}

    def start(self) -> None:
        """Start the members, and turn rights on."""
        self.members.start()
        self.members.wait_ready()
        folder = self.members.directory
        admin = folder / "admin.token"
        environment = {
            **os.environ,
            "COORDINATOR_ENDPOINTS": self.members.endpoints,
            "COORDINATOR_CA_FILE": self.ca_file,
        }
        self._access(environment, "init", "--out", str(admin))
        environment["COORDINATOR_TOKEN_FILE"] = str(admin)
        self.tokens["admin"] = admin.read_text().strip()
        for name in CLIENTS:
            rules = [f"read,write,watch:/{name}", f"lock:/locks/{name}*"]
            file = folder / f"{name}.token"
            self._access(environment, "role", "put", name, *rules)
            self._access(environment, "identity", "put", name, "--role", name)
            self._access(environment, "token", "add", name, "--out", str(file))
            self.tokens[name] = file.read_text().strip()

    def _access(self, environment: dict[str, str], *arguments: str) -> None:
        command = [sys.executable, "-m", "coordinator", "access", *arguments]
        subprocess.run(command, check=True, env=environment, capture_output=True)

    def said(self, name: str) -> dict[str, Any]:
        """Return what the process of a client is given."""
        return {"urls": self.members.urls, "ca_file": self.ca_file, "token": self.tokens[name]}

    def asked(self, member_id: str, target: str) -> str:
        """Return the answer to an operator's request."""
        headers = {"Authorization": f"Bearer {self.tokens['admin']}"}
        port = self.members.client_ports[member_id]
        asked = HTTPSConnection("127.0.0.1", port, timeout=patient(10), context=self._context)
        try:
            asked.request("GET", target, headers=headers)
            return asked.getresponse().read().decode()
        finally:
            asked.close()

    def led(self) -> tuple[int, str | None]:
        """Return the term and the leader, once all members agree on them."""
        end = time.monotonic() + patient(30)
        while time.monotonic() < end:
            try:
                found = [json.loads(self.asked(each, "/v1/status")) for each in self.members.ids]
            except (OSError, ValueError):
                continue
            said = {(each["term"], each["leader_id"]) for each in found}
            if len(said) == 1:
                return said.pop()
        raise TimeoutError("the members do not agree on a leader")

    def data_bytes(self) -> int:
        """Return the bytes of all data."""
        lines = self.asked(self.members.ids[0], "/metrics").splitlines()
        (found,) = [each for each in lines if each.startswith("coordinator_data_bytes ")]
        return int(float(found.split()[1]))

    def resident_bytes(self) -> dict[str, int]:
        """Return the memory of each member's process."""
        return {each: _resident_bytes(process.pid) for each, process
                in self.members.processes.items()}  # fmt: skip


def _resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = [each for each in text.splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024
