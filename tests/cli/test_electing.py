"""``coordinator elect`` as a supervisor, as processes, against a member with real leases."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.serving import ServedMember
from tests.cli.supervising import eventually
from tests.cli.test_locks import Start, ended, stamper, stamps, start
from tests.ports import free_ports

pytestmark = [
    pytest.mark.check,
    pytest.mark.skipif(sys.platform != "linux", reason="needs prctl and /proc"),
]
assert start  # the fixture


def epochs_in(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def noting(path: Path, then: str = "exec sleep 60") -> list[str]:
    return ["--", "sh", "-c", f'echo "$COORDINATOR_FENCING_TOKEN" >> {path}; {then}']


def ready(port: int) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=2) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def stop(*processes: subprocess.Popen[str]) -> list[str]:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    return [ended(process)[2] for process in processes]


def test_a_leadership_is_handed_over_by_name(
    start: Start, coordinator: CommandLine, tmp_path: Path
) -> None:
    """The first command is ended before the second begins; who is ready says so."""
    ports = free_ports(2)
    replicas = []
    for name, port in zip("ab", ports, strict=True):
        replicas.append(
            start(
                *("elect", "moved", "--label", name, "--http", f"127.0.0.1:{port}"),
                *("--ready-file", str(tmp_path / f"ready-{name}"), "--"),
                *stamper(tmp_path / name),
            )
        )
        if name == "a":
            eventually(lambda: bool(stamps(tmp_path / "a")), "a is elected")
    view = f"{coordinator.url}/v1/elections/moved"
    eventually(lambda: b'"label":"b"' in urllib.request.urlopen(view).read(), "b waits")
    assert ready(ports[0])[0] == 200
    assert ready(ports[1])[0] == 503
    assert (tmp_path / "ready-a").exists()

    refused = coordinator("hand-over", "moved", "--to", "nobody")
    moved = coordinator.json("hand-over", "moved", "--to", "b", "--by", "ann", "--reason", "disk")

    assert refused.exit_code == 1
    assert moved["label"] == "b"
    ended = coordinator.json("grants", "moved", "--election", "--how", "deleted")
    assert (ended["by"], ended["reason"]) == ("ann", "disk")
    last_ms = max(stamps(tmp_path / "a").values())
    eventually(lambda: bool(stamps(tmp_path / "b")), "b is elected")
    assert max(stamps(tmp_path / "a").values()) == last_ms
    assert ready(ports[1]) == (200, {**ready(ports[1])[1], "epoch": moved["epoch"]})
    assert ready(ports[0])[0] == 503
    assert not (tmp_path / "ready-a").exists()
    assert (tmp_path / "ready-b").read_text() == f"{moved['epoch']}\n"
    first, _ = stop(*replicas)
    assert "handed over to b (ann: disk)" in first
    assert not (tmp_path / "ready-b").exists()


def test_a_command_is_started_again_under_its_epoch(start: Start, tmp_path: Path) -> None:
    """Until it has failed too often; then others may try, and it contends again."""
    process = start("elect", "failing", "--restart", "on-failure", "--backoff", "0.05",
                    "--backoff-max", "1.5", "--restarts", "2",
                    *noting(tmp_path / "epochs", "exit 3"))  # fmt: skip
    eventually(lambda: len(epochs_in(tmp_path / "epochs")) >= 4, "it is elected again")
    (err,) = stop(process)

    first, second, third, fourth = epochs_in(tmp_path / "epochs")[:4]
    assert first == second == third < fourth
    assert "again in 0.05 s" in err
    assert "3 times in a row" in err


def test_a_clean_end_is_the_end(start: Start, tmp_path: Path) -> None:
    """With on-failure the exit code 0 is passed on."""
    code, _, _ = ended(start("elect", "clean", "--restart", "on-failure", "--", "true"))
    assert code == 0


def test_a_killed_one_leads_on_when_it_is_started_again(
    start: Start, member: ServedMember, tmp_path: Path
) -> None:
    """Long before its lease ends, and before another that waits; nothing of it ran meanwhile."""
    epochs, file = tmp_path / "epochs", str(tmp_path / "leader")
    line = ["elect", "resumed", "--ttl", "30", "--resume", file, *noting(epochs)]
    first = start(*line)
    eventually(lambda: len(epochs_in(epochs)) == 1, "it is elected")
    other = start("elect", "resumed", "--ttl", "30", *noting(tmp_path / "other"))
    first.kill()
    again = start(*line)
    eventually(lambda: len(epochs_in(epochs)) == 2, "it leads on")

    before, after = epochs_in(epochs)
    assert before < after
    assert not (tmp_path / "other").exists()
    assert "took over" in stop(again)[0]
    stop(other)
    assert Path(file).read_bytes() == b""


def test_a_successor_waits_for_the_last_process(start: Start, tmp_path: Path) -> None:
    """Of a command that does not want to end, though its supervisor is dead."""
    line = ["elect", "late", "--ttl", "20", "--kill-grace", "1.5", "--resume",
            str(tmp_path / "leader"), "--"]  # fmt: skip
    first = start(*line, *stamper(tmp_path / "first", "ignore-term"))
    eventually(lambda: bool(stamps(tmp_path / "first")), "it is elected")
    first.kill()
    second = start(*line, *stamper(tmp_path / "second"))
    eventually(lambda: bool(stamps(tmp_path / "second")), "it leads on")

    ended_ms = max(stamps(tmp_path / "first").values())
    assert ended_ms < min(stamps(tmp_path / "second").values())
    stop(second)
    assert max(stamps(tmp_path / "first").values()) == ended_ms


def test_one_that_gives_way_lets_a_heavier_one_lead(start: Start, tmp_path: Path) -> None:
    """As soon as it comes; one of no weight never leads."""
    never = start("elect", "heavy", "--weight", "0", *noting(tmp_path / "never"))
    light = start("elect", "heavy", "--weight", "1", "--give-way", *noting(tmp_path / "light"))
    eventually(lambda: bool(epochs_in(tmp_path / "light")), "the light one is elected")
    heavy = start("elect", "heavy", "--weight", "2", *noting(tmp_path / "heavy"))
    eventually(lambda: bool(epochs_in(tmp_path / "heavy")), "the heavy one is elected")

    assert epochs_in(tmp_path / "light") < epochs_in(tmp_path / "heavy")
    stop(never, light, heavy)
    assert not (tmp_path / "never").exists()
