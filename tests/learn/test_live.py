"""The stories on a live cluster: real members, real clients, a process that is really stopped."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from coordinator.cli.learn import placed
from coordinator.learn.film import parse_film
from coordinator.learn.page_server import KEY_HEADER, LIVE, PageServer
from coordinator.learn.playing import PLAYED
from coordinator.learn.stage import Stage, Venue
from tests.cli.supervising import eventually, is_alive
from tests.cluster.processes import ProcessCluster

pytestmark = pytest.mark.check
PACE = "0.2"


def play(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coordinator", "learn", "--pace", PACE, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_freeze_ray_plays_without_a_browser(tmp_path: Path) -> None:
    """A is frozen, B writes, A wakes and is refused; tokens and zxids are the cluster's own."""
    record = tmp_path / "film.json"

    done = play("--script", "freeze-ray", "--members", "1", "--record", str(record))

    assert done.returncode == 0, done.stderr
    said = (
        r"next change of the cluster is zxid 33",
        r"zxid 33 +A is queued for report with token 33; A holds, token 33",
        r"A is frozen .*SIGSTOP",
        r"zxid 34 +B is queued for report with token 34",
        r"B writes 'by B' with token 34: taken",
        r"A wakes: SIGCONT",
        r"A writes with token 33: .*33 is stale, 34 has been seen",
        r"B's work is safe",
    )
    at = 0
    for each in said:
        found = re.compile(each).search(done.stdout, at)
        assert found, f"not said: {each}\n{done.stdout}"
        at = found.end()
    assert re.search(r"zxid 35 +A's contender is gone: its session expired after \d+ ms",
                     done.stdout)  # fmt: skip
    film = parse_film(record.read_text(encoding="utf-8"))
    assert film.state()["store"]["shield"] == "BLOCKED 33 < 34"
    assert film.state()["store"]["highest_token"] == 34
    zxids = [step.zxid for step in film.steps if step.zxid is not None]
    assert zxids == [33, 34, 35]
    left = [step.changes[("lock", "left_ms")] for step in film.steps
            if ("lock", "left_ms") in step.changes]  # fmt: skip
    assert len([each for each in left if isinstance(each, int)]) > 3, "the bar ran down"


async def _play_all(place: Venue, names: tuple[str, ...], is_fenced: bool) -> dict[str, Any]:
    ends = {}
    for number, name in enumerate(names):
        scripted = PLAYED[name]
        stage = Stage(
            place,
            scripted.title,
            lock=f"lock-{number}",
            has_actors=scripted.has_actors,
            lease_s=scripted.lease_s,
        )
        async with stage:
            stage.is_fenced = is_fenced
            await scripted.play(stage)
        ends[name] = stage.state
    return ends


@pytest.mark.slow
async def test_the_leader_is_killed_in_the_middle() -> None:
    """The lock survives, and without fencing the damage is shown; one cluster for both."""
    async with placed(3, None, float(PACE)) as place:
        unfenced = await _play_all(place, ("freeze-ray",), False)
        ends = await _play_all(place, ("lost-leader",), True)

    assert unfenced["freeze-ray"]["store"]["value"] == "by A"
    assert "B holds the lock, and its work is lost" in unfenced["freeze-ray"]["store"]["damage"]
    assert ends["lost-leader"]["store"]["value"] == "by B"


async def test_a_page_plays_and_does_deeds() -> None:
    """Over its stream: the open stage, what a person does there, and a script after it."""
    async with (
        placed(1, None, float(PACE)) as place,
        PageServer(place) as server,
        aiohttp.ClientSession(headers={KEY_HEADER: server.key}) as session,
    ):
        deeds = server.url + f"{LIVE}/deeds"

        async def do(**deed: Any) -> int:
            async with session.post(deeds, json=deed) as reply:
                return reply.status

        assert await do(do="acquire", who="A") == 400  # nothing is open yet
        assert await do(do="open", is_fenced=False) == 200
        async with asyncio.timeout(60), session.get(server.url + f"{LIVE}/steps") as steps:
            async for raw in steps.content:
                line = json.loads(raw) if raw.strip() else {}
                text = line.get("text", "")
                if text.startswith("The lock is free"):
                    while await do(do="acquire", who="A") != 200:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                if text.startswith("A holds the lock"):
                    assert await do(do="freeze", who="A") == 200
                    assert await do(do="freeze", who="A") == 400
                if text.startswith("A learns that it lost the lock"):
                    break
        assert await do(do="kill leader", who="nobody") == 200
        assert await do(do="no such deed") == 400
        assert await do(do="play", script="no-such") == 400
        async with session.get(server.url + f"{LIVE}/film") as reply:
            film = parse_film(await reply.text())

    assert any("SIGSTOP" in step.text for step in film.steps)
    assert film.state()["store"]["is_fenced"] is False


@pytest.mark.slow
async def test_every_script_comes_out() -> None:
    """On one cluster of three, one after the other."""
    names = tuple(name for name in PLAYED if name not in ("freeze-ray", "lost-leader"))
    async with placed(3, None, float(PACE)) as place:
        ends = await _play_all(place, names, True)

    assert ends["herd"]["counts"]["herd"] == 28 > ends["herd"]["counts"]["predecessor"] == 7


@pytest.mark.parametrize("cluster", ["production", "dev"])
async def test_only_a_development_cluster_is_joined(cluster: str, tmp_path: Path) -> None:
    """By its name, before anything is changed; and on none that it joined are members killed."""
    members = ProcessCluster(tmp_path, 1, {"cluster": {"name": cluster}})
    members.start()
    try:
        await members.wait_ready_async()
        refused = play("--script", "herd", "--join", members.endpoints)
        killing = play("--script", "lost-leader", "--join", members.endpoints)
        status = members.status("1")
    finally:
        members.stop()

    assert status is not None
    assert killing.returncode != 0
    if cluster == "dev":
        assert refused.returncode == 0, refused.stderr
        assert "leave out --join" in killing.stderr
    else:
        assert refused.returncode != 0
        assert "stories never play on another" in refused.stderr
        assert status["zxid"] == 0


def test_an_ended_one_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    """Killed while A is frozen, it takes its members and clients with it; its files are removed at
    the next start. TERM, as of a service manager or of a terminal that is closed, removes them."""

    def ended(by: signal.Signals, after: str) -> tuple[int, list[int]]:
        started = subprocess.Popen(
            [sys.executable, "-m", "coordinator", "learn", "--script", "freeze-ray",
             "--members", "1"],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        assert started.stdout is not None
        with started.stdout:
            while after not in started.stdout.readline():
                pass
            children = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text()
            assert list(tmp_path.iterdir())
            started.send_signal(by)
            return started.wait(30), [int(pid) for pid in children.split()]

    code, children = ended(signal.SIGKILL, "A is frozen")
    assert code == -signal.SIGKILL
    assert len(children) == 3  # a member, A and B
    eventually(lambda: not any(map(is_alive, children)), "no process is left")
    left = set(tmp_path.iterdir())
    assert len(left) == 2  # of the members, and of the store

    code, children = ended(signal.SIGTERM, "The lock is free")
    assert code == 128 + signal.SIGTERM
    assert not any(map(is_alive, children))
    assert list(tmp_path.iterdir()) == []
