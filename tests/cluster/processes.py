"""Real members in real processes, for tests and measurements that kill, pause and restart them.

``ProcessCluster`` writes a configuration file for each member, starts ``coordinator serve`` for it
and knows its process. Only processes started here are ever signalled, by their id.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.certificates import Certificates
from tests.patience import patient
from tests.ports import free_ports


def member_environment() -> dict[str, str]:
    """Return what a member's process is given: as installed, it starts from compiled bytecode."""
    return {name: each for name, each in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class ProcessCluster:
    """``members`` members on loopback, or on ``hosts``; their data under ``directory``."""

    def __init__(
        self,
        directory: Path,
        members: int = 3,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        hosts: Sequence[str] | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.directory = directory
        self.certificates = certificates
        self.ids = [str(number) for number in range(1, members + 1)]
        ports = free_ports(2 * members)
        self.client_ports = dict(zip(self.ids, ports[:members], strict=True))
        self.member_ports = dict(zip(self.ids, ports[members:], strict=True))
        self.hosts = dict(zip(self.ids, hosts or ["127.0.0.1"] * members, strict=True))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._settings = settings or {}
        directory.mkdir(parents=True, exist_ok=True)
        secret = directory / "cluster-secret"
        if not secret.exists():
            descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(descriptor, secrets.token_hex(32).encode())
            os.close(descriptor)
        for member_id in self.ids:
            self._write_config(member_id)

    @property
    def urls(self) -> list[str]:
        return [self.url(member_id) for member_id in self.ids]

    @property
    def endpoints(self) -> str:
        return ",".join(self.urls)

    def url(self, member_id: str) -> str:
        scheme = "http" if self.certificates is None else "https"
        return f"{scheme}://{self.hosts[member_id]}:{self.client_ports[member_id]}"

    def log_path(self, member_id: str) -> Path:
        return self.directory / f"member-{member_id}.log"

    def data_dir(self, member_id: str) -> Path:
        return self.directory / f"member-{member_id}"

    def _write_config(self, member_id: str) -> None:
        sections: dict[str, dict[str, Any]] = {
            "member": {"member_id": member_id, "data_dir": str(self.data_dir(member_id))},
            "cluster": {"name": "test", "secret_file": str(self.directory / "cluster-secret")},
            "http": {
                "bind_host": self.hosts[member_id],
                "bind_port": self.client_ports[member_id],
                **({} if self.hosts[member_id] == "127.0.0.1" else {"tls": "off", "access": "off"}),
            },
        }
        if self.certificates is not None:
            files = self.certificates.member(member_id)
            shown = dict(zip(("tls_cert_file", "tls_key_file"), files, strict=True))
            sections["member"].update(shown)
            sections["http"].update(shown)
            sections["cluster"] = {"name": "test", "tls_ca_file": self.certificates.ca_file}
        for section, values in self._settings.items():
            sections.setdefault(section, {}).update(values)
        lines: list[str] = []
        for section, values in sections.items():
            lines.append(f"[{section}]")
            lines.extend(f"{key} = {json.dumps(value)}" for key, value in values.items())
            lines.append("")
        for other in self.ids:
            lines += [
                "[[cluster.members]]",
                f'member_id = "{other}"',
                f'client_url = "{self.url(other)}"',
                f'member_host = "{self.hosts[other]}"',
                f"member_port = {self.member_ports[other]}",
                "",
            ]
        (self.directory / f"member-{member_id}.toml").write_text("\n".join(lines))

    def start(self, *member_ids: str, env: Mapping[str, str] | None = None) -> None:
        """Start these members (all when none is named); does not wait for them."""
        for member_id in member_ids or tuple(self.ids):
            running = self.processes.get(member_id)
            assert running is None or running.poll() is not None, f"member {member_id} runs"
            with self.log_path(member_id).open("ab") as log:
                self.processes[member_id] = subprocess.Popen(
                    self.command(member_id),
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    env={**member_environment(), **(env or {})},
                )

    def command(self, member_id: str) -> Sequence[str]:
        config = str(self.directory / f"member-{member_id}.toml")
        return [sys.executable, "-m", "coordinator", "serve", "--config", config]

    def signal(self, member_id: str, number: int) -> None:
        self.processes[member_id].send_signal(number)

    def kill(self, *member_ids: str) -> None:
        """kill -9 these members (all when none is named) and reap them."""
        chosen = member_ids or tuple(self.processes)
        for member_id in chosen:
            self.processes[member_id].kill()
        for member_id in chosen:
            self.processes[member_id].wait()

    def is_running(self, member_id: str) -> bool:
        process = self.processes.get(member_id)
        return process is not None and process.poll() is None

    def status(self, member_id: str) -> dict[str, Any] | None:
        """Return what the member says of itself, None when it can not be reached."""
        code, body = self.get(member_id, "/v1/status")
        return body if code == 200 else None

    def metric(self, member_id: str, name: str) -> float:
        """Return one number of /metrics, summed over its labels."""
        with urllib.request.urlopen(self.url(member_id) + "/metrics", timeout=5) as reply:
            lines = reply.read().decode().splitlines()
        found = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return sum(float(value) for key, value in found if key.partition("{")[0] == name)

    def tracebacks(self) -> list[str]:
        """Return the members whose log holds an unhandled exception."""
        return [each for each in self.ids if self.log_path(each).exists()
                and "Traceback" in self.log_path(each).read_text(errors="replace")]  # fmt: skip

    def stop(self) -> None:
        """End every member: TERM, a grace, KILL."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wipe(self, member_id: str) -> None:
        shutil.rmtree(self.data_dir(member_id))

    def _context(self) -> ssl.SSLContext | None:
        if self.certificates is None:
            return None
        return ssl.create_default_context(cafile=self.certificates.ca_file)

    def get(self, member_id: str, path: str, timeout_s: float = 2.0) -> tuple[int, Any]:
        """GET from one member; status 0 when it could not be reached."""
        try:
            url, context = self.url(member_id) + path, self._context()
            with urllib.request.urlopen(url, timeout=timeout_s, context=context) as reply:
                return reply.status, json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as error:
            body = error.read()
            try:
                return error.code, json.loads(body or b"null")
            except ValueError:
                return error.code, body.decode(errors="replace")
        except (OSError, ValueError):
            return 0, None

    def leader(self, deadline_s: float = 20.0) -> str:
        """Return the id of a member that leads and is ready."""
        end = time.monotonic() + deadline_s
        while time.monotonic() < end:
            for member_id, process in self.processes.items():
                if process.poll() is not None:
                    continue
                status, body = self.get(member_id, "/v1/status", timeout_s=0.5)
                if status == 200 and body["role"] == "leader" and body["is_ready"]:
                    return member_id
            time.sleep(0.02)
        raise TimeoutError(f"no leader within {deadline_s} s\n{self.logs()}")

    def wait_ready(self, *member_ids: str, deadline_s: float = 30.0) -> None:
        """Wait until these members (all running ones when none is named) are ready."""
        end = time.monotonic() + patient(deadline_s)
        for member_id in member_ids or tuple(self.processes):
            while self.get(member_id, "/health/ready", timeout_s=1.0)[0] != 200:
                if self.processes[member_id].poll() is not None:
                    raise RuntimeError(f"member {member_id} ended\n{self.logs()}")
                if time.monotonic() > end:
                    raise TimeoutError(f"member {member_id} is not ready\n{self.logs()}")
                time.sleep(0.02)

    async def wait_ready_async(self, *member_ids: str) -> None:
        await asyncio.to_thread(self.wait_ready, *member_ids)

    def logs(self, tail: int = 3_000) -> str:
        """Return the end of every member's log, for a failing test's message."""
        parts = []
        for member_id in self.ids:
            path = self.log_path(member_id)
            if path.exists():
                parts.append(f"--- member {member_id}\n{path.read_text(errors='replace')[-tail:]}")
        return "\n".join(parts)
