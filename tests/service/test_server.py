"""The server: builds a member from its configuration, starts it whole or not at all, stops it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from threading import current_thread
from typing import Any

import aiohttp
import pytest

from coordinator.errors import ConfigError, StorageError
from coordinator.node.config import Config, HttpConfig, MemberConfig
from coordinator.node.server import Server, facts_to_agree_on
from coordinator.raft.engine import EngineStatus
from coordinator.raft.loopback import LoopbackEngine
from coordinator.raft.network.agreement import Agreement, ShownAgreement, check_facts, difference
from coordinator.state.rules import digest_at
from tests.service.fake_cluster import World, soon

ROOT = Path(__file__).resolve().parent.parent.parent
ANY_PORT = Config(http=HttpConfig(bind_port=0))


def on_disk(path: Path) -> Config:
    return replace(ANY_PORT, member=MemberConfig(data_dir=str(path)))


async def call(server: Server, method: str, path: str, body: Any = None) -> Any:
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, server.url + path, json=body) as response,
    ):
        return response.status, await response.json()


async def test_a_member_in_memory_serves_http_at_once() -> None:
    """The whole product in one process, without a disk."""
    server = Server.in_memory(ANY_PORT)
    await server.start()

    written = await soon(call(server, "POST", "/v1/tree/a", {"data": "x"}))
    read = await soon(call(server, "GET", "/v1/tree/a"))
    status = await soon(call(server, "GET", "/v1/status"))
    members = await soon(call(server, "GET", "/v1/members"))
    await server.stop()
    await server.stop()

    assert written[0] == 201
    assert read[1]["data"] == "x"
    assert status[1]["summary"].startswith("member 1 leads")
    assert members[1]["health"] == {
        "level": "good",
        "text": "All is well: member 1 leads in term 1, 1 member answers, and there is no other.",
        "findings": [],
    }


async def test_any_thread_may_log_what_the_member_is() -> None:
    """A JSON line is made of plain attributes: threads of the disk and of names log, too."""
    asked: set[str] = set()

    class Asked(LoopbackEngine):
        def status(self) -> EngineStatus:
            asked.add(current_thread().name)
            return super().status()

    server = Server(ANY_PORT, engine=Asked())
    await server.start()
    assert (await soon(call(server, "POST", "/v1/tree/a", {"data": "x"})))[0] == 201

    fields = await asyncio.to_thread(server.log_fields)
    await server.stop()

    assert fields == {"cluster": "coordinator", "member": "1", "term": 1, "zxid": 1}
    assert asked <= {current_thread().name}


async def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    """On disk: znodes, sessions and locks; only watches start from what was restored."""
    first = Server(on_disk(tmp_path))
    await first.start()
    assert (await soon(call(first, "POST", "/v1/tree/a", {"data": "x"})))[0] == 201
    body = {"lease_ms": 60_000, "timeout_ms": 1_000}
    _, acquired = await soon(call(first, "POST", "/v1/locks/l", body))
    await first.stop()

    second = Server(on_disk(tmp_path))
    await second.start()
    read = await soon(call(second, "GET", "/v1/tree/a"))
    lock = await soon(call(second, "GET", "/v1/locks/l"))
    await second.stop()

    assert read[1]["data"] == "x"
    assert lock[1]["holder"]["fencing_token"] == acquired["grant"]["fencing_token"]


async def test_a_taken_port_is_a_clear_error_and_leaves_nothing_running(tmp_path: Path) -> None:
    """ConfigError names the key; the member that had started is stopped again."""
    first = Server.in_memory(ANY_PORT)
    await first.start()
    port = int(first.url.rpartition(":")[2])
    taken = replace(on_disk(tmp_path), http=HttpConfig(bind_port=port))
    tasks_before = asyncio.all_tasks()

    with pytest.raises(ConfigError, match="bind_port"):
        await Server(taken).start()
    assert asyncio.all_tasks() == tasks_before
    await first.stop()


async def test_a_failed_member_is_told_to_whoever_runs_the_server() -> None:
    """Loudly: with the reason, and not ready any more."""
    world = World(1, ANY_PORT)
    server = Server(ANY_PORT, engine=world.engines["1"])
    await server.start()
    error = StorageError("the disk is gone")
    world.engines["1"].fail(error)

    assert await soon(server.failed()) is error
    code, body = await soon(call(server, "GET", "/health/ready"))
    assert (code, body["reason"]) == (503, "member 1 has failed and stops: the disk is gone")
    await server.stop()


async def test_a_failed_member_waits_for_no_client() -> None:
    """It is to be gone at once: a body that does not come has not the grace of an orderly stop."""
    config = Config(http=HttpConfig(bind_port=0, shutdown_grace_ms=600_000))
    world = World(1, config)
    server = Server(config, engine=world.engines["1"])
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.url.rpartition(":")[2])
    writer.write(b"POST /v1/tree/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n")
    writer.write(b"Content-Type: application/json\r\n\r\n{")
    await writer.drain()
    assert (await soon(call(server, "GET", "/health/live")))[0] == 200  # it came after the body

    world.engines["1"].fail(StorageError("the disk is gone"))
    async with asyncio.timeout(60):
        await server.stop()
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_process_in_order(tmp_path: Path, number: signal.Signals) -> None:
    """The process says that it stops, closes its files and ends with 0."""
    code = (
        "from coordinator.node.config import Config, HttpConfig, MemberConfig\n"
        "from coordinator.node.server import run\n"
        f"run(Config(member=MemberConfig(data_dir={str(tmp_path)!r}),"
        " http=HttpConfig(bind_port=0)))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stderr=asyncio.subprocess.PIPE, env=dict(os.environ)
    )
    assert process.stderr is not None
    lines = []
    async with asyncio.timeout(30):
        while b"listens on" not in (line := await process.stderr.readline()):
            assert line, "".join(lines)
            lines.append(line.decode())
        process.send_signal(number)
        rest = await process.stderr.read()
        exit_code = await process.wait()

    assert (exit_code, b"stops" in rest) == (0, True)
    assert b"Traceback" not in rest


async def test_a_thread_that_hangs_does_not_hold_the_process() -> None:
    """A look-up of a name that nobody answers must not delay the end of a stopped member."""
    code = (
        "import asyncio, sys\n"
        "from coordinator.node.server import _end_threads\n"
        "async def main():\n"
        "    asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)\n"
        "    await _end_threads(exit_status=7)\n"
        "asyncio.run(main())\n"
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, cwd=ROOT, stdin=pipe, stderr=pipe, env=dict(os.environ)
    )
    async with asyncio.timeout(30):
        exit_code = await process.wait()  # its standard input stays open

    assert exit_code == 7


def test_members_of_releases_that_decide_differently_refuse_each_other() -> None:
    """The rules of each level are shown in the handshake, as a digest."""
    own = facts_to_agree_on()
    theirs = (own[0]._replace(value="0"), *own[1:])

    check_facts(own)
    assert difference(Agreement(own), ShownAgreement.read(Agreement(own).shown()), "1", "2") == ""
    assert difference(Agreement(own), ShownAgreement.read(Agreement(theirs).shown()), "1", "2") == (
        f"members 1 and 2 differ in the rules of level 1: '{digest_at(1)}' on member 1, '0' on"
        " member 2; run the same release on all members"
    )
