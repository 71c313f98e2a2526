"""Real members with a fault: whichever is asked, ``status`` names it, as the console does.

The same of all faults, in fakes, is ``tests/service/test_cluster_health.py``. Not here: a member
that lags catches up before it can be asked; a member does not start with a certificate that has
expired.
"""

from __future__ import annotations

import errno
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from coordinator import connect
from coordinator.cli.main import cli
from coordinator.cli.output import EXIT_UNAVAILABLE
from coordinator.recipes import ManualLock
from coordinator.service.reporting.cluster_health import LEADERS_MAX
from tests.certificates import Certificates
from tests.cluster.faults.shim import Shim, build
from tests.cluster.faults.world import Skipped
from tests.cluster.processes import ProcessCluster
from tests.cluster.rotting_member import PATH
from tests.patience import patient

pytestmark = pytest.mark.check

ENTRY = Path(__file__).with_name("rotting_member.py")
_FOUND_WITHIN_S = 20.0
_SLOW_MS = 1_500


class FaultyCluster(ProcessCluster):
    """Three members, of which the second has a faulty disk and memory on command."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.shim = Shim(build(directory), directory / "shim", self.data_dir("2"))

    def command(self, member_id: str) -> list[str]:
        config = str(self.directory / f"member-{member_id}.toml")
        return [sys.executable, str(ENTRY), "serve", "--config", config]

    def stop(self) -> None:
        self.shim.calm()
        super().stop()
        self.shim.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FaultyCluster]:
    try:
        made = FaultyCluster(tmp_path)
    except Skipped as reason:
        pytest.skip(str(reason))
    try:
        made.start("1", "3")
        made.start("2", env=made.shim.environment)
        made.wait_ready(deadline_s=60)
        yield made
    finally:
        made.stop()


@contextmanager
def slow_disk(cluster: FaultyCluster) -> Iterator[None]:
    cluster.shim.set(sync_delay_ms=_SLOW_MS)
    yield
    cluster.shim.calm()


@contextmanager
def full_disk(cluster: FaultyCluster) -> Iterator[None]:
    cluster.shim.set(error=errno.ENOSPC, write_failures=1_000_000)
    yield
    cluster.shim.calm()


@contextmanager
def member_away(cluster: FaultyCluster) -> Iterator[None]:
    cluster.signal("3", signal.SIGSTOP)
    yield
    cluster.signal("3", signal.SIGCONT)


@contextmanager
def no_secret(cluster: FaultyCluster) -> Iterator[None]:
    secret = cluster.directory / "cluster-secret"
    secret.rename(secret.with_suffix(".away"))
    cluster.signal("2", signal.SIGHUP)
    yield
    secret.with_suffix(".away").rename(secret)
    cluster.signal("2", signal.SIGHUP)


@contextmanager
def hold_overdue(cluster: FaultyCluster) -> Iterator[None]:
    with connect(cluster.urls) as client:
        held = ManualLock(client, "deploys").acquire("a long night", alarm_after=1)
        yield
        ManualLock(client, "deploys").release(held.fencing_token)


@contextmanager
def many_elections(cluster: FaultyCluster) -> Iterator[None]:
    for _ in range(LEADERS_MAX + 1):
        url = f"{cluster.url(cluster.leader(patient(20)))}/v1/members/handover"
        request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=patient(20)) as reply:
            assert reply.status == 200
    yield


@contextmanager
def state_differs(cluster: FaultyCluster) -> Iterator[None]:
    cluster.signal("2", signal.SIGUSR1)
    yield


FAULTS: dict[Callable[[FaultyCluster], AbstractContextManager[None]], tuple[str, str]] = {
    hold_overdue: ("123", "1 lock is held by hand for longer than planned"),
    no_secret: ("123", "Member 2: the former secret stays in use"),
    full_disk: ("123", "The disk of member 2 is full: it accepts no writes."),
    slow_disk: ("123", "The disk of member 2 is slow"),
    member_away: ("12", "Member 3 does not answer; no other may fail."),
    many_elections: ("123", "times in ten minutes"),
    state_differs: ("123", "ember 2 has stopped answering: its state differs from that of members"),
}
"""Who is asked, and what each says; the last one is not mended."""


def asked(cluster: ProcessCluster, member_id: str) -> tuple[int, str, str]:
    """Return the exit code and the words of ``status``, and those that the console is given."""
    arguments = ["status", "--endpoints", cluster.url(member_id)]
    if cluster.certificates is not None:
        arguments += ["--ca-file", cluster.certificates.ca_file]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    _, body = cluster.get(member_id, "/v1/members", timeout_s=patient(5))
    findings = body["health"]["findings"] if body else ()
    console = " ".join(f"{each['text']} {each['todo']}" for each in findings)
    return result.exit_code, " ".join(result.stdout.split()), console


@pytest.mark.timeout(600)
def test_each_member_names_each_fault(cluster: FaultyCluster) -> None:
    """With the exit code 3, in the sentence of the console; and never that all is well."""
    with connect(cluster.url("1")) as client:
        client.create(PATH, b"right")
        for fault, (members, expected) in FAULTS.items():
            with fault(cluster):
                for member_id in members:
                    end_s = time.monotonic() + patient(_FOUND_WITHIN_S)
                    code, words, console = asked(cluster, member_id)
                    while expected not in words or expected not in console:
                        assert time.monotonic() < end_s, (fault.__name__, member_id, words)
                        client.set(PATH, b"right")  # a slow disk is one that has something to do
                        code, words, console = asked(cluster, member_id)

                    assert code == EXIT_UNAVAILABLE, words
                    assert "All is well" not in words


def test_each_member_names_a_certificate_that_expires(tmp_path: Path) -> None:
    """One that clients see of member 2, which expires within a week."""
    certificates = Certificates(tmp_path / "tls")
    cluster = ProcessCluster(tmp_path, certificates=certificates)
    config = tmp_path / "member-2.toml"
    members, http = config.read_text().split("[http]")
    shown, _ = certificates.member("2", days=3, name="shown")
    http = http.replace("member-2.pem", "shown.pem").replace("member-2.key", "shown.key")
    config.write_text(f"{members}[http]{http}")
    assert shown in http
    try:
        cluster.start()
        cluster.wait_ready(deadline_s=60)
        for member_id in "123":
            end_s = time.monotonic() + patient(_FOUND_WITHIN_S)
            while True:
                code, words, console = asked(cluster, member_id)
                if all("ember 2" in said and "expires at" in said for said in (words, console)):
                    break
                assert time.monotonic() < end_s, (member_id, words)

            assert code == EXIT_UNAVAILABLE, words
            assert "All is well" not in words
    finally:
        cluster.stop()
