"""Shared configuration from a shell: change, look, go back, render a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.cli.output import EXIT_NOT_FOUND, EXIT_REFUSED, EXIT_USAGE
from coordinator.cli.rendering import TEMPLATE_BYTES_MAX, write
from coordinator.client import connect
from coordinator.errors import ConfigError
from coordinator.recipes import Configuration
from tests.cli.conftest import CommandLine

TEMPLATE = "host {{ db.host }} $x ${y}\npool {{db.pool}}\n"


def test_values_change_and_go_back(coordinator: CommandLine, tmp_path: Path) -> None:
    """Text and JSON; what is refused changes nothing."""
    assert coordinator("config", "get", "web").exit_code == EXIT_REFUSED
    changes = ("a=x=1\x1b[2J", "b:=[1, true]", "c:=null", "--note", "first", "--by", "ann")
    assert coordinator.text("config", "set", "web", *changes) == "1\n"
    file = tmp_path / "web.json"
    file.write_text('{"d": 4}')
    more = ("config", "set", "web", "--file", str(file), "--remove", "c", "--expected-version")
    assert coordinator(*more, "0").exit_code == EXIT_REFUSED
    assert coordinator.json(*more, "1") == {"version": 2}

    assert coordinator.text("config").split() == ["web"]
    assert coordinator.text("config", "get", "web", "a") == "x=1\x1b[2J\n"
    assert coordinator.text("config", "get", "web", "b") == "[1,true]\n"
    assert coordinator("config", "get", "web", "c").exit_code == EXIT_REFUSED
    whole = coordinator.text("config", "get", "web").splitlines()
    assert whole == ['a = "x=1\\u001b[2J"', "b = [1,true]", "d = 4"]
    assert coordinator.text("config", "diff", "web").splitlines() == ["- c = null", "+ d = 4"]
    table = coordinator.text("config", "history", "web").splitlines()
    assert [line.split()[0] for line in table] == ["VERSION", "2", "1"]
    assert table[2].split()[2:] == ["ann", "first"]

    assert coordinator.text("config", "rollback", "web", "1") == "3\n"
    assert coordinator.json("config", "get", "web")["values"]["c"] is None
    assert coordinator("config", "rollback", "web", "9").exit_code == EXIT_REFUSED
    for wrong in ("a", "a:={"):
        assert coordinator("config", "set", "web", wrong).exit_code == EXIT_USAGE
    assert coordinator("config", "set", "web").exit_code == EXIT_USAGE


def test_a_file_is_replaced_whole_or_left(tmp_path: Path) -> None:
    """It keeps its mode; a template that lacks a value, or is none, changes nothing."""
    template, out = tmp_path / "t", tmp_path / "out"
    template.write_text(TEMPLATE)
    values = {"db.host": "a", "db.pool": [1]}
    assert write(template, values, out)
    assert out.read_text() == "host a $x ${y}\npool [1]\n"
    out.chmod(0o640)
    assert not write(template, values, out)
    link = tmp_path / "link"
    link.symlink_to(out)
    assert write(template, {**values, "db.host": "{{db.pool}}"}, link)
    assert out.read_text().startswith("host {{db.pool}} ")
    assert (out.stat().st_mode & 0o777, link.is_symlink()) == (0o640, True)

    before = out.read_text()
    for source, error in [
        (TEMPLATE.encode() + b"{{more}}", "expected values for more, found none"),
        (b"\xff", "UTF-8"),
        (b"x" * (TEMPLATE_BYTES_MAX + 1), "at most"),
    ]:
        template.write_bytes(source)
        with pytest.raises(ConfigError, match=error):
            write(template, values, out)
    with pytest.raises(ConfigError, match="No such file"):
        write(tmp_path / "none", values, out)
    template.write_text("x")
    with pytest.raises(ConfigError, match="regular file"):
        write(template, values, Path("/dev/null"))
    with pytest.raises(ConfigError, match="nowhere"):
        write(template, values, tmp_path / "nowhere" / "out")
    assert out.read_text() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "out", "t"]


def test_a_command_runs_after_the_file_is_written(coordinator: CommandLine, tmp_path: Path) -> None:
    """Once; its exit code is ours, and a version that lacks a value is wrong usage."""
    template, out = tmp_path / "t", tmp_path / "out"
    template.write_text(TEMPLATE)
    render = ("render", str(template), "--from", "once", "--out", str(out), "--once")
    assert coordinator(*render).exit_code == EXIT_USAGE
    coordinator.text("config", "set", "once", "db.host=a", "db.pool:=2")
    assert coordinator(*render, "--", "sh", "-c", f"cp {out} {out}.copy; exit 7").exit_code == 7
    assert Path(f"{out}.copy").read_text() == "host a $x ${y}\npool 2\n"
    assert coordinator(*render, "--", str(tmp_path / "none")).exit_code == EXIT_NOT_FOUND
    assert coordinator(*render, "--signal", "HUP", "--", "true").exit_code == EXIT_USAGE
    assert coordinator(*render[:-1], "--signal", "NONE", "--", "true").exit_code == EXIT_USAGE


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_change_reaches_the_program(
    coordinator: CommandLine, tmp_path: Path, is_kept: bool
) -> None:
    """By a signal to the one that runs, or by running it again; SIGTERM ends both."""
    template, out, log = tmp_path / "t", tmp_path / "out", tmp_path / "log"
    name = f"kept-{is_kept}"
    template.write_text("{{n}}\n")
    kept = f"trap 'cat {out} >> {log}' HUP; cat {out} >> {log}; while :; do sleep 0.02; done"
    program = ["--signal", "HUP", "--", "sh", "-c", kept]
    command = program if is_kept else ["--", "sh", "-c", f"cat {out} >> {log}"]
    arguments = ["render", str(template), "--from", name, "--out", str(out), *command]
    process = subprocess.Popen(
        [sys.executable, "-m", "coordinator", *arguments],
        env={**os.environ, "COORDINATOR_ENDPOINTS": coordinator.url},
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),  # as nohup does
    )
    try:
        with connect(coordinator.url) as client:
            shared = Configuration(client, name)
            for number in ("1", "2"):
                shared.change({"n": number})
                wait_until(lambda number=number: number in lines(log))
            shared.replace({})
            shared.change({"n": "3"})
            wait_until(lambda: lines(log) == ["1", "2", "3"])
    finally:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert lines(log) == ["1", "2", "3"]


def lines(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def wait_until(is_there: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if is_there():
            return
        time.sleep(0.01)
    raise AssertionError("it never came")
