"""The files of a development cluster: where they are, how they are made, how its members start.

Everything lies in one directory: configuration files, the cluster's secret, logs and data.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coordinator.cli.certs import make as make_certificates
from coordinator.cli.parent_death import dying_with_parent
from coordinator.errors import ConfigError
from coordinator.model.status import DEVELOPMENT
from coordinator.node.secret_file import ensure_secret

HOST = "127.0.0.1"
_PATIENCE = "election_timeout_ms_min = 1000\nelection_timeout_ms_max = 2000\n"
"""All members share a machine with whatever else runs on it, which may hold them up for longer than
a server is. A member whose process has ended is noticed at once in any case."""
# What would give all members the same address or the same data.
_OF_ONE_MEMBER = ("COORDINATOR_MEMBER_", "COORDINATOR_CLUSTER_", "COORDINATOR_HTTP_BIND_")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything of a development cluster is."""

    directory: Path
    members: int
    client_port: int
    member_port: int
    has_tls: bool = False
    member_bind_host: str | None = None
    """Where members listen for each other, if not where they are reached."""
    learn_url: str = ""
    """Where stories play on it; "": nowhere."""

    @property
    def ids(self) -> range:
        """The numbers of the members, from 1."""
        return range(1, self.members + 1)

    def url(self, member: int) -> str:
        """Return where clients reach a member."""
        scheme = "https" if self.has_tls else "http"
        return f"{scheme}://{HOST}:{self.client_port + member - 1}"

    @property
    def endpoints(self) -> str:
        """Where clients reach the cluster, separated by commas."""
        return ",".join(self.url(member) for member in self.ids)

    def file(self, member: int) -> Path:
        """Return the configuration file of a member."""
        return self.directory / f"member-{member}.toml"

    def log(self, member: int) -> Path:
        """Return the log file of a member."""
        return self.directory / f"member-{member}.log"

    @property
    def secret(self) -> Path:
        """The file of the secret that the members share."""
        return self.directory / "cluster-secret"

    @property
    def certificates(self) -> Path:
        """The directory of the CA and of the members' certificates."""
        return self.directory / "certs"

    @property
    def ca_file(self) -> Path:
        """The CA that clients trust."""
        return self.certificates / "ca.pem"

    def ports(self) -> Iterator[tuple[int, str]]:
        """Yield each port with the option that moves it."""
        for member in self.ids:
            yield self.client_port + member - 1, "--client-port"
        for member in self.ids:
            yield self.member_port + member - 1, "--member-port"


# --- before anything is started


def check_ports(layout: Layout) -> None:
    """Raise ConfigError if one of the ports is in use."""
    seen: dict[int, str] = {}
    for port, option in layout.ports():
        if port in seen:
            raise ConfigError(
                f"port {port}: expected different ports for clients and members, found it in "
                f"{seen[port]} and {option}"
            )
        seen[port] = option
        with socket.socket() as probe:
            # As the members do: a port whose last connections are still winding up is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise ConfigError(
                    f"port {port}: expected a free port on {HOST}, found: {error.strerror}; "
                    f"end what uses it, or choose others with {option}"
                ) from error


def prepare_directory(layout: Layout) -> None:
    """Make the directory, for this user only, and the secret in it, once."""
    try:
        layout.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{layout.directory}: expected a directory to write to, found: {error.strerror}"
        ) from error
    ensure_secret(layout.secret)


@contextmanager
def held_directory(directory: Path) -> Iterator[None]:
    """Let no second ``coordinator dev`` use the directory; ends with the process in any case."""
    with (directory / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(
                f"{directory}: expected it to be free, found it in use by another coordinator dev"
            ) from None
        yield


def write_files(layout: Layout) -> None:
    """Write the configuration file of each member."""
    addresses = "".join(
        f"\n[[cluster.members]]\n"
        f'member_id = "{member}"\n'
        f'client_url = "{layout.url(member)}"\n'
        f'member_host = "{HOST}"\n'
        f"member_port = {layout.member_port + member - 1}\n"
        for member in layout.ids
    )
    if layout.has_tls:
        hosts = {str(member): (HOST,) for member in layout.ids}
        make_certificates(layout.certificates, "dev", hosts, is_renewal=True)
    bind_host = layout.member_bind_host
    bound = "" if bind_host is None else f'member_bind_host = "{bind_host}"\n'
    stories = f'learn_url = "{layout.learn_url}"\n' if layout.learn_url else ""
    for member in layout.ids:
        data_dir = json.dumps(f"member-{member}")
        name = f"{layout.certificates.name}/member-{member}"
        shown = f'tls_cert_file = "{name}.pem"\ntls_key_file = "{name}-key.pem"\n'
        ca = f'tls_ca_file = "{layout.certificates.name}/ca.pem"\n'
        shown, ca = (shown, ca) if layout.has_tls else ("", "")
        layout.file(member).write_text(
            "# Written by coordinator dev at each start; changes here are lost.\n"
            f'[member]\nmember_id = "{member}"\ndata_dir = {data_dir}\n{bound}{shown}\n'
            f'[cluster]\nname = "{DEVELOPMENT}"\nsecret_file = "{layout.secret.name}"\n{ca}\n'
            f'[http]\nbind_host = "{HOST}"\nbind_port = {layout.client_port + member - 1}\n{shown}'
            + stories
            + f"\n[raft]\n{_PATIENCE}"
            + addresses,
            encoding="utf-8",
        )


def environ_of_members() -> dict[str, str]:
    """Return our environment without what would give all members one address or one directory."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(_OF_ONE_MEMBER)
    }


def start_member(layout: Layout, member: int) -> subprocess.Popen[bytes]:
    """Start a member as a process that ends with this one; does not wait until it is ready."""
    command = [sys.executable, "-m", "coordinator", "serve", "--config", str(layout.file(member))]
    with layout.log(member).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is ours to pass on
            preexec_fn=dying_with_parent(signal.SIGKILL),
            env=environ_of_members(),
        )


# --- what the person reads


def greeting(layout: Layout) -> str:
    """Return what to know about the running cluster: URLs, a first lock, how to stop."""
    command = command_name()
    curl = f"curl --cacert {shown_path(layout.ca_file)}" if layout.has_tls else "curl"
    lines = ["", "Ready." if layout.members == 1 else f"Ready: {layout.members} members.", ""]
    lines += [f"  member {member}   {layout.url(member)}" for member in layout.ids]
    lines += [
        f"  console    {layout.url(1)}/console",
        "",
        f"Data, logs and configuration: {shown_path(layout.directory)}",
        "",
        "Take a lock, from another terminal:",
        "",
        f"  export COORDINATOR_ENDPOINTS={layout.endpoints}",
        *([f"  export COORDINATOR_CA_FILE={layout.ca_file}"] if layout.has_tls else []),
        f"  {command} lock demo -- sh -c 'echo \"my fencing token: $COORDINATOR_FENCING_TOKEN\"'",
        "",
        "or with curl:",
        "",
        f"  {curl} -X POST {layout.url(1)}/v1/locks/demo \\",
        "       -H 'Content-Type: application/json' -d '{\"lease_ms\": 10000}'",
        f"  {curl} {layout.url(1)}/v1/locks/demo",
        "",
        f"How it is: {command} status        Stop it: Ctrl-C",
        "",
    ]
    return "\n".join(lines)


def command_name() -> str:
    """Return how this program can be called from here."""
    if shutil.which("coordinator") is not None:
        return "coordinator"
    beside = Path(sys.executable).parent / "coordinator"
    return shown_path(beside) if beside.exists() else "python3 -m coordinator"


def shown_path(path: Path) -> str:
    """Return ``path`` as seen from the working directory, if it lies below it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
