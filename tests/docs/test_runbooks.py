"""The runbooks: their commands, run against three members that are processes, with the case there.

A machine is a directory here, with its own ``/etc`` and ``/var/lib``; ``sudo`` and ``systemctl``
are programs of the test that start and stop members. ``<!-- on: 3 -->`` before a block says on
which machine an operator runs it (the first, unless it says more). What ``text`` quotes below a
block must come out of it, at once or after a while; a block without it must succeed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.cli.parent_death import dying_with_parent
from tests.cluster.next_release import make_next_release
from tests.patience import patient
from tests.ports import free_ports

RUNBOOKS = Path(__file__).resolve().parents[2] / "docs" / "runbooks"
PAGES = sorted(each.name for each in RUNBOOKS.glob("*.md") if each.name != "README.md")
BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^\n]*?) -->\n)?```sh\n(?P<commands>.*?)```\n(?:```text\n(?P<said>.*?)```)?",
    re.DOTALL,
)
STUBS = {
    "sudo": '#!/bin/sh\n[ "$1" = -u ] && shift 2\nexec "$@"\n',
    "systemctl": (
        f"#!{sys.executable}\nimport os, socket, sys\n"
        "s = socket.socket(socket.AF_UNIX); s.connect(os.environ['MACHINES'])\n"
        "s.sendall(f'{sys.argv[1]} {os.environ[\"MEMBER\"]}\\n'.encode()); s.recv(10)\n"
    ),
    "coordinator": f'#!/bin/sh\nexec {sys.executable} -m coordinator "$@"\n',
    "chown": "#!/bin/sh\n",
}
PIP = '#!/bin/sh\ncase "$*" in *--no-deps*) basename "$4" > "$0.installed";; esac\n'
"""Notes what is installed on a machine; members are started with it."""

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(sys.platform != "linux", reason="needs all of 127.0.0.0/8, and mounts"),
]


class Machines:
    """Three machines with a member each, at 127.0.0.1 to 127.0.0.3."""

    def __init__(self, directory: Path, *, has_tls: bool = False, more: str = "") -> None:
        self.directory = directory
        self.has_tls = has_tls
        self.client_port, self.member_port = free_ports(2)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (directory / "bin").mkdir()
        (directory / "admin").mkdir()
        for name, text in STUBS.items():
            (directory / "bin" / name).write_text(text)
            (directory / "bin" / name).chmod(0o755)
        for number in "123":
            for folder in ("etc", "var/member", "opt/coordinator/bin"):
                (directory / number / folder).mkdir(parents=True)
            pip = self.pip(number)
            pip.write_text(PIP)
            pip.chmod(0o755)
            self._configure(number, more)
        self._secure()
        machines = self

        class Manager(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                verb, number = self.rfile.readline().decode().split()
                machines.order(verb, number)
                self.wfile.write(b"done")

        self._server = socketserver.UnixStreamServer(str(directory / "machines"), Manager)
        # One thread for all: a process ends with the thread that began it.
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.environ = {
            **os.environ,
            "PATH": f"{directory}/bin:{os.environ['PATH']}",
            "MACHINES": str(directory / "machines"),
            "COORDINATOR_ENDPOINTS": ",".join(self.url(number) for number in "123"),
            "OLD": "127.0.0.3",
            "NEW": "127.0.0.13",
        }
        if has_tls:
            self.environ["COORDINATOR_CA_FILE"] = str(directory / "admin/certs/ca.pem")

    def url(self, number: str) -> str:
        return f"http{'s' if self.has_tls else ''}://127.0.0.{number}:{self.client_port}"

    def _configure(self, number: str, more: str) -> None:
        etc = self.directory / number / "etc"
        members = "".join(
            f'[[cluster.members]]\nmember_id = "{each}"\nclient_url = "{self.url(each)}"\n'
            f'member_host = "127.0.0.{each}"\nmember_port = {self.member_port}\n'
            for each in "123"
        )
        tls = ""
        if self.has_tls:
            tls = f'tls_cert_file = "{etc}/member.pem"\ntls_key_file = "{etc}/member-key.pem"\n'
        ca = f'tls_ca_file = "{self.directory}/admin/certs/ca.pem"\n' if self.has_tls else ""
        (etc / "member.toml").write_text(
            f'[member]\nmember_id = "{number}"\ndata_dir = "{self.var(number)}/member/data"\n{tls}'
            f'[http]\nbind_host = "127.0.0.{number}"\nbind_port = {self.client_port}\n{tls}{more}\n'
            f'[cluster]\nname = "locks"\nsecret_file = "{self.directory}/secret"\n{ca}{members}'
        )

    def _secure(self) -> None:
        config = self.directory / "1/etc/member.toml"
        make = [sys.executable, "-m", "coordinator"]
        subprocess.run([*make, "secret", str(self.directory / "secret")], check=True)
        if not self.has_tls:
            return
        certs = self.directory / "admin/certs"
        subprocess.run([*make, "certs", str(certs), "--config", str(config), "--days", "20"],
                       check=True)  # fmt: skip
        for number in "123":
            for end in ("", "-key"):
                shutil.copy(certs / f"member-{number}{end}.pem",
                            self.directory / number / f"etc/member{end}.pem")  # fmt: skip

    def var(self, number: str) -> Path:
        return self.directory / number / "var"

    def pip(self, number: str) -> Path:
        return self.directory / number / "opt/coordinator/bin/pip"

    def release(self, number: str) -> dict[str, str]:
        """Return the environment in which the release that is installed on a machine runs."""
        installed = self.pip(number).with_name("pip.installed")
        if not installed.exists() or installed.read_text() == "former\n":
            return {}
        following = self.directory / installed.read_text().strip()
        return {"PYTHONPATH": str(following), "PYTHONSAFEPATH": "1"}

    def order(self, verb: str, number: str) -> None:
        """Do what an operator orders of the service of a machine."""
        if verb in ("stop", "restart"):
            self.end(number, signal.SIGTERM)
        if verb in ("start", "restart") and number not in self._processes:
            config = self.directory / number / "etc/member.toml"
            with (self.directory / number / "log").open("ab") as log:
                self._processes[number] = subprocess.Popen(
                    [sys.executable, "-m", "coordinator", "serve", "--config", str(config)],
                    preexec_fn=dying_with_parent(), stderr=log,
                    env={**os.environ, **self.release(number)},
                )  # fmt: skip

    def end(self, number: str, how: signal.Signals = signal.SIGKILL) -> None:
        process = self._processes.pop(number, None)
        if process is not None:
            process.send_signal(how)
            process.wait(patient(30))

    def run(self, commands: str, number: str) -> tuple[int, str]:
        """Run what an operator types at a machine; return the exit code and what was said."""
        here = self.directory / number
        commands = commands.replace("/etc/coordinator", f"{here}/etc")
        commands = commands.replace("/var/lib/coordinator", f"{here}/var")
        commands = commands.replace("/opt/coordinator", f"{here}/opt/coordinator")
        commands = commands.replace(" -o coordinator", "")
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=self.directory / "admin",
            env={**self.environ, "MEMBER": number}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=patient(60),
        )  # fmt: skip
        return done.returncode, done.stdout

    def until(self, commands: str, number: str, said: list[str]) -> None:
        """Run it again until it says all of this; a busy machine wants an operator, too."""
        ends = time.monotonic() + patient(60)
        while True:
            code, text = self.run(commands, number)
            told = " ".join(text.split())
            if all(" ".join(each.split()) in told for each in said):
                return
            assert time.monotonic() < ends, (commands, code, text, self.logs())
            time.sleep(0.3)

    def logs(self) -> str:
        return "\n".join((self.directory / each / "log").read_text()[-1_500:] for each in "123")

    def close(self) -> None:
        for number in "123":
            self.end(number)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


# --- the cases


def nothing(_: Machines) -> None:
    """The page is for what cannot be made here: its commands show what is there."""


def away(*numbers: str) -> Callable[[Machines], None]:
    def kill(machines: Machines) -> None:
        for number in numbers:
            machines.end(number)

    return kill


def two_disks_lost(machines: Machines) -> None:
    for number in "23":
        machines.end(number)
        shutil.rmtree(machines.var(number) / "member/data")


def disk_lost(machines: Machines) -> None:
    machines.end("3")
    shutil.rmtree(machines.var("3") / "member/data/log")


def disk_filled(machines: Machines) -> None:
    logs = machines.var("2") / "old-logs"
    logs.mkdir()
    free = shutil.disk_usage(logs).free
    with (logs / "a.log").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free)
    for number in range(30):  # until the reserve of its log is used, too
        machines.run(f"coordinator create /big-{number} {'x' * 100_000}", "1")
        if "is full" in machines.run("coordinator status || true", "1")[1]:
            return
    raise AssertionError(machines.logs())


def flooded(machines: Machines) -> None:
    program = (
        "from coordinator.client import connect\nimport time\n"
        "clients = [connect(session_timeout=60, label='flood').__enter__() for _ in range(17)]\n"
        "[each.create(f'/f-{n}', mode='ephemeral') for n, each in enumerate(clients)]\n"
        "print('there', flush=True)\ntime.sleep(600)\n"
    )
    flood = subprocess.Popen(
        [sys.executable, "-c", program], env=machines.environ, stdout=subprocess.PIPE,
        preexec_fn=dying_with_parent(),
    )  # fmt: skip
    assert flood.stdout is not None
    assert flood.stdout.readline() == b"there\n"
    flood.kill()
    flood.wait()


def held(machines: Machines) -> None:
    subprocess.Popen(
        [sys.executable, "-m", "coordinator", "lock", "deploys", "--ttl", "60", "--", "sleep",
         "600"],
        env=machines.environ, preexec_fn=dying_with_parent(), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    machines.until("coordinator why deploys", "1", ["is held by"])


def badly_upgraded(machines: Machines) -> None:
    for number, name in (("2", "next"), ("3", "broken")):
        make_next_release(machines.directory / name)
        if name == "broken":
            (machines.directory / name / "coordinator/__main__.py").write_text("raise SystemExit")
        install = f"/opt/coordinator/bin/pip install --quiet --no-deps ./{name}"
        machines.run(f"systemctl stop coordinator@member\n{install}", number)
        machines.run("systemctl start coordinator@member", number)
        machines.until("coordinator upgrade status", "1", ["next: member 2"])


CASES: dict[str, Callable[[Machines], None]] = {
    "certificate-expired.md": nothing,
    "client-floods.md": flooded,
    "clock-jumped.md": nothing,
    "disk-full.md": disk_filled,
    "disk-lost.md": disk_lost,
    "disk-slow.md": nothing,
    "lock-stuck.md": held,
    "machine-lost.md": away("3"),
    "move.md": nothing,
    "quorum-gone.md": two_disks_lost,
    "quorum-lost.md": away("2", "3"),
    "upgrade-went-wrong.md": badly_upgraded,
}


@pytest.fixture
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    page = request.param
    more = "[sessions]\nsessions_max = 20\n" if page == "client-floods.md" else ""
    made = Machines(tmp_path, has_tls=page == "certificate-expired.md", more=more)
    disk = made.var("2") if page == "disk-full.md" else None
    try:
        if disk is not None:
            mount = ["mount", "-t", "tmpfs", "-o", "size=800m", "none", str(disk)]
            if subprocess.run(mount, capture_output=True, timeout=60).returncode:
                pytest.skip("no right to mount a disk of a test")
            (disk / "member").mkdir()
        for number in "123":
            made.run("systemctl start coordinator@member", number)
        made.until("coordinator status || true", "1", ["member", "leads in term"])
        yield made
    finally:
        made.close()
        if disk is not None:
            subprocess.run(["umount", str(disk)], check=False, timeout=60)


@pytest.mark.parametrize(("page", "machines"), [(each, each) for each in PAGES],
                         indirect=["machines"], ids=PAGES)  # fmt: skip
def test_an_operator_who_follows_the_page_ends_the_case(page: str, machines: Machines) -> None:
    """What it says is seen, what it asks for can be done, and it is over in the end."""
    CASES[page](machines)

    for block in BLOCK.finditer((RUNBOOKS / page).read_text("utf-8")):
        note = block["note"] or ""
        if note.startswith("not run: "):
            continue
        on = note.removeprefix("on: ").replace("each", "1 2 3").replace("ca", "1").split() or ["1"]
        for number in on:
            if block["said"] is not None:
                machines.until(block["commands"], number, block["said"].splitlines())
            else:
                code, text = machines.run(block["commands"], number)
                assert code == 0, (block["commands"], number, text, machines.logs())


def test_every_page_has_its_case_and_its_line() -> None:
    """And is found from the table of cases."""
    table = (RUNBOOKS / "README.md").read_text("utf-8")
    assert list(CASES) == PAGES
    assert [each for each in PAGES if f"]({each})" not in table] == []
