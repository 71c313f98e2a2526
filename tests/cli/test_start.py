"""How a verb starts: with only what it needs, and interrupted without a word."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator.cli.main import _HOMES, SECTIONS, cli
from tests.cli.conftest import CommandLine

ROOT = Path(__file__).resolve().parents[2]


def loaded_by(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(done.stdout.split())


def test_the_command_line_loads_no_client_before_a_verb_needs_one() -> None:
    """--version, --help of a verb and a wrong option answer at once."""
    loaded = loaded_by("import coordinator.cli.main")

    assert not {"aiohttp", "asyncio", "msgpack", "coordinator.recipes"} & loaded


def test_a_verb_loads_neither_the_server_nor_the_other_verbs() -> None:
    """Nor an HTTP library, which took a third of the time: the stream needs none."""
    loaded = loaded_by(
        "from coordinator.cli.main import _load; _load('get'); import coordinator.client.connecting"
    )

    unwanted = {"aiohttp", "pysyncobj", "prometheus_client"}
    unwanted |= {"coordinator.node.server", "coordinator.recipes"}
    assert not unwanted & loaded
    assert "coordinator.cli.locks" not in loaded


def test_a_member_loads_aiohttp_when_a_request_needs_it() -> None:
    """It starts without, and answers the stream and plain requests: a third less to load.

    Nor does it load what only a scrape, TLS, an audit log or a wrong configuration needs."""
    program = """
import asyncio
from coordinator import connect
from coordinator.node.config import Config, HttpConfig
from coordinator.node.server import Server

async def main():
    server = Server.in_memory(Config(http=HttpConfig(bind_port=0)))
    await server.start()
    unwanted = {"prometheus_client", "cryptography.fernet", "coordinator.audit.log"}
    assert not {*unwanted, "importlib.metadata"} & set(sys.modules)
    async with await connect(server.url) as client:
        await client.create("/a", b"")
    reader, writer = await asyncio.open_connection("127.0.0.1", server._http.port)
    async def ask(target):
        writer.write(b"GET %b HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n" % target)
        head = await reader.readuntil(b"\\r\\n\\r\\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split()[0]))
    await ask(b"/v1/tree/a")
    assert "aiohttp" not in sys.modules
    await ask(b"/openapi.json")
    assert "aiohttp" in sys.modules
    writer.close()
    await server.stop()
asyncio.run(main())
"""
    assert "aiohttp" in loaded_by(program)


def test_every_verb_is_found_under_its_name() -> None:
    """The table of the verbs and the commands agree, and all of them are in the help."""
    assert [str(each.name) for _, group in SECTIONS for each in group] == list(_HOMES)
    help_text = CliRunner().invoke(cli, ["--help"]).output
    assert all(f"  {name} " in help_text for name in _HOMES)


def interrupted_at(module: str) -> tuple[int, str, str]:
    """Return how ``coordinator get`` ends that is interrupted when it begins to load ``module``."""
    program = f"""
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from coordinator.cli.entry import main
sys.argv = ["coordinator", "get", "/", "--endpoints", "http://127.0.0.1:9"]
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("module", ["click", "coordinator.cli.connection", "coordinator.errors"])
def test_ctrl_c_while_it_loads_prints_nothing(module: str) -> None:
    """It ends by the signal, as a shell expects, whatever is being loaded just then."""
    assert interrupted_at(module) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize(
    "module", ["coordinator.cli.znodes", "coordinator.client.calling.calls", "yarl"]
)
def test_ctrl_c_while_a_verb_loads_prints_nothing_either(module: str) -> None:
    """Its code is that of an interruption: 1 would say that the request was refused for good."""
    assert interrupted_at(module) == (128 + signal.SIGINT, "", "")


def test_hardly_anything_is_loaded_before_ctrl_c_is_quiet() -> None:
    """What comes before is Python's own start."""
    bare = loaded_by("import __future__, signal, importlib")
    ours = loaded_by("import coordinator.cli.entry") - bare

    assert {each for each in ours if not each.startswith("coordinator")} == set()
    assert len(ours) <= 3


@pytest.mark.parametrize("transport", ["http", "auto"])
def test_no_cluster_there_is_a_short_traceback_and_one_line(
    transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller's lines and the reason, not the inside of the client and of aiohttp."""
    monkeypatch.setenv("COORDINATOR_TRANSPORT", transport)
    program = (
        "from coordinator import connect\nconnect('http://127.0.0.1:9', timeout=0.5).get('/')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT
    )
    shown = CliRunner().invoke(
        cli, ["get", "/", "--endpoints", "http://127.0.0.1:9", "--timeout", "0.5"]
    )

    lines = done.stderr.splitlines()
    assert lines[-1].endswith(
        "UnavailableError: http://127.0.0.1:9: cannot connect: Connection refused"
    )
    assert len(lines) < 20
    assert done.stderr.count("Traceback") == 1
    assert len(shown.stderr.splitlines()) == 1


def test_who_waits_is_told_for_whom(coordinator: CommandLine) -> None:
    """After a second, on standard error, also without a terminal; not with --quiet."""
    command = [sys.executable, "-m", "coordinator", "lock", "told"]
    where = ["--endpoints", coordinator.url]
    with subprocess.Popen(
        [*command, *where, "--label", "the first", "--", "sleep", "60"], cwd=ROOT
    ) as holder:
        try:
            while not coordinator.json("locks")["locks"]:
                time.sleep(0.05)
            waiting = [
                subprocess.Popen(
                    [*command, *where, "--timeout", "3", *quiet, "--", "true"],
                    stderr=subprocess.PIPE,
                    text=True,
                    cwd=ROOT,
                )
                for quiet in ([], ["--quiet"])
            ]
            said, quiet = [each.communicate()[1] for each in waiting]
        finally:
            holder.terminate()

    assert "waiting for lock told, held by the first on " in said
    assert "held by 'the first'" in said  # and in the refusal itself
    assert "waiting for" not in quiet
