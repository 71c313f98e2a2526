"""``serve --check``: all that keeps a member from starting, at once, and nothing is started."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coordinator.cli.main import cli
from coordinator.cli.output import EXIT_USAGE
from coordinator.node.secret_file import ensure_secret
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.ownership import Owner, save
from tests.certificates import Certificates
from tests.ports import free_ports


def checked(path: Path) -> Result:
    return CliRunner().invoke(cli, ["serve", "--check", str(path)])


def lines(result: Result) -> list[str]:
    """Return the problems, without where they are."""
    return [line for line in result.stdout.splitlines() if line.startswith("problem: ")]


def written(directory: Path, more: str = "", member: str = "") -> Path:
    """Return the file of one of three members on this machine, with the ports of nobody."""
    ports = free_ports(6)
    members = "".join(
        f'[[cluster.members]]\nmember_id = "{number}"\nclient_url = "http://127.0.0.1:'
        f'{ports[number]}"\nmember_host = "127.0.0.1"\nmember_port = {ports[number + 2]}\n'
        for number in (1, 2, 3)
    )
    path = directory / "member-1.toml"
    path.write_text(
        f'[member]\nmember_id = "1"\n{member}\n[http]\nbind_port = {ports[1]}\n{more}\n'
        f'[cluster]\nname = "locks"\nsecret_file = "secret"\n{members}'
    )
    return path


def test_a_member_that_could_start_is_said_to(tmp_path: Path) -> None:
    """Nothing is made: neither the data directory nor the secret."""
    path = written(tmp_path)
    result = checked(path)

    assert (result.exit_code, lines(result)) == (0, [])
    assert result.stdout.endswith(f"member 1 of 3 of cluster 'locks' can start with {path}\n")
    assert os.listdir(tmp_path) == ["member-1.toml"]


def test_all_that_is_wrong_in_a_file_is_said_at_once(tmp_path: Path) -> None:
    """A misspelt key, an unknown section, a wrong type and a value out of range."""
    path = tmp_path / "member.toml"
    path.write_text(
        '[raft]\nheartbeat = 5\nsegment_bytes = "16 MiB"\n'
        "[http]\nbind_port = 70000\n[https]\na = 1\n"
    )
    result = checked(path)

    assert result.exit_code == EXIT_USAGE
    assert [line.removeprefix(f"problem: {path}: ").split(":")[0] for line in lines(result)] == [
        "[raft] heartbeat", "[https]", "[http] bind_port", "[raft] segment_bytes",
    ]  # fmt: skip
    assert "write segment_bytes = 16777216" in result.stdout
    assert "can start" not in result.stdout


def test_all_rules_that_values_break_together_are_said(tmp_path: Path) -> None:
    """Each names what it must fit."""
    path = tmp_path / "member.toml"
    path.write_text(
        "[raft]\nheartbeat_interval_ms = 300\n[sessions]\ntick_ms = 2000\n"
        '[log]\nlevel = "loud"\n'
    )
    result = checked(path)

    assert result.exit_code == EXIT_USAGE
    assert [each for each in ("election_timeout_ms_min", "tick_ms", "level")
            if not any(each in line for line in lines(result))] == []  # fmt: skip


def test_what_the_file_names_is_looked_at(tmp_path: Path) -> None:
    """A secret that others can read, another's data, a taken port and no place for the audit."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        path = written(
            tmp_path, f'[audit]\ntarget = "file"\nfile = "{tmp_path}/none/audit.log"'
        )
        path.write_text(
            "".join(
                f"bind_port = {taken}\n" if line.startswith("bind_port") else line
                for line in path.read_text().splitlines(keepends=True)
            )
        )
        ensure_secret(tmp_path / "secret")
        (tmp_path / "secret").chmod(0o644)
        data = tmp_path / "data" / "member-1"
        data.mkdir(parents=True)
        save(OsDisk(), str(data), Owner("locks", "2"))
        before = sorted(tmp_path.rglob("*"))
        result = checked(path)

    assert result.exit_code == EXIT_USAGE
    secret, owner, port, audit = lines(result)
    assert "expected mode 0600" in secret
    assert "expected the data of member '1' of cluster 'locks', found those of member '2'" in owner
    assert port.endswith(f"cannot listen on 127.0.0.1:{taken}: another program listens there")
    assert "[audit] file: expected a directory" in audit
    assert sorted(tmp_path.rglob("*")) == before


def test_beside_a_running_member_its_ports_are_not_tried(tmp_path: Path) -> None:
    """Before a restart an operator checks the new file while the member serves."""
    path = written(tmp_path)
    log = tmp_path / "data" / "member-1" / "log"
    log.mkdir(parents=True)
    lock = OsDisk().lock_directory(str(log))
    with socket.create_server(("127.0.0.1", _port_of(path))):
        running = checked(path)
        lock.release()
        stopped = checked(path)

    assert running.exit_code == 0
    assert "note: this member runs: its ports were not tried" in running.stdout
    assert stopped.exit_code == EXIT_USAGE
    assert "another program listens there" in stopped.stdout


def test_a_check_keeps_nobody_from_starting(tmp_path: Path) -> None:
    """It makes no lock file, and only looks at one that is there: two checks pass each other."""
    path = written(tmp_path)
    log = tmp_path / "data" / "member-1" / "log"
    log.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    new = checked(path)
    assert sorted(tmp_path.rglob("*")) == before
    OsDisk().lock_directory(str(log)).release()
    (lock,) = log.iterdir()
    with lock.open() as another_check:
        fcntl.flock(another_check, fcntl.LOCK_SH)
        beside = checked(path)

    assert (new.exit_code, beside.exit_code) == (0, 0)
    assert "this member runs" not in new.stdout + beside.stdout


@pytest.mark.parametrize(
    ("days", "code", "said"),
    [
        (0, EXIT_USAGE, "problem: http.tls_cert_file"),
        (5, 0, "note: the certificate of [http] expires at"),
    ],
)
def test_a_certificate_that_has_expired_is_a_problem(
    tmp_path: Path, days: int, code: int, said: str
) -> None:
    """One that expires soon is worth a note."""
    certificate, key = Certificates(tmp_path).member("1", days=days)
    path = written(tmp_path, f'tls_cert_file = "{certificate}"\ntls_key_file = "{key}"')
    path.write_text(path.read_text().replace("http://", "https://"))
    result = checked(path)

    assert said in result.stdout
    assert result.exit_code == code


def test_either_a_check_or_a_start() -> None:
    """Both at once are a mistake."""
    result = CliRunner().invoke(cli, ["serve", "--check", "a.toml", "--config", "b.toml"])
    assert result.exit_code == EXIT_USAGE


def _port_of(path: Path) -> int:
    line = next(each for each in path.read_text().splitlines() if each.startswith("bind_port"))
    return int(line.split("=")[1])
