"""/metrics follows the rules of Prometheus, and says what an operator looks for.

``promtool`` is asked where it is installed (tests/install); the same rules are written out here
for where it is not.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from coordinator.recipes import Lock
from coordinator.service.base.metrics import TEXTS
from coordinator.testing import local_cluster

ROOT = Path(__file__).resolve().parents[2]
PROMTOOL = ROOT / ".openapi-tools" / "promtool"


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as response:
        text: str = response.read().decode()
        return text


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Return what each member of a cluster says once it had something to do."""
    with local_cluster() as cluster:
        with cluster.connect() as client, Lock(client, "orders:1"):
            client.create("/metrics", b"")
            client.get("/metrics")
            client.get("/metrics", stale=True)
        for member in cluster.members:
            for path in ("/v1/tree/metrics", "/v1/tree/none", "/nothing"):
                with suppress(urllib.error.HTTPError):
                    fetched(cluster.url(member) + path)
        return [fetched(f"{cluster.url(member)}/metrics") for member in cluster.members]


def families(text: str) -> Iterator[Metric]:
    for each in text_string_to_metric_families(text):
        if not each.name.endswith("_created"):  # the library's own, when a counter began
            yield each


def names_of(text: str) -> set[str]:
    return {sample.name for family in families(text) for sample in family.samples}


def test_names_and_texts_follow_the_rules(texts: list[str]) -> None:
    """Only counters end in _total, only histograms in _count; a text says more than the name."""
    for family in (each for text in texts for each in families(text)):
        name, text = family.name, family.documentation
        if family.type == "counter":  # the parser takes _total off
            assert all(each.name.endswith(("_total", "_created")) for each in family.samples), name
        elif family.type == "gauge":
            assert not name.endswith(("_total", "_count", "_sum", "_bucket")), name
        assert re.fullmatch(r"(coordinator|process)_[a-z0-9_]+", name), name
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|kilobytes)(_|$)", name), name
        assert text.endswith("."), name
        said = set(re.findall(r"[a-z]+", text.lower()))
        assert len(said - set(name.split("_")) - {"of", "this", "member", "a"}) >= 2, text
        assert "A figure of this member's engine" not in text, (
            f"{name}: give it a sentence in coordinator/service/base/metrics.py"
        )


def test_every_text_is_of_a_figure_that_is_there(texts: list[str]) -> None:
    """A figure that was renamed takes its text along."""
    assert set(TEXTS) <= set().union(*map(names_of, texts))


@pytest.mark.parametrize(
    "name",
    [
        "coordinator_leader_changes_total", "coordinator_peer_reachable",
        "coordinator_requests_total", "coordinator_read_seconds_count",
        "coordinator_engine_disk_free_bytes", "coordinator_build_info",
        "process_resident_memory_bytes", "process_open_fds", "process_cpu_seconds_total",
        "process_start_time_seconds",
    ],
)  # fmt: skip
def test_what_operators_look_for_is_there(texts: list[str], name: str) -> None:
    """On every member."""
    assert all(name in names_of(text) for text in texts)


def test_requests_are_counted_by_operation_and_status(texts: list[str]) -> None:
    """Never by path: what is counted must not leak, nor grow with what clients ask for."""
    counted = {
        (sample.labels["route"], sample.labels["status"])
        for text in texts
        for family in families(text)
        for sample in family.samples
        if sample.name == "coordinator_requests_total"
    }

    assert {("create_znode", "201"), ("read_znode", "200"), ("read_znode", "404")} <= counted
    assert ("none", "404") in counted
    assert all(re.fullmatch(r"[a-z_]+", route) for route, _ in counted)
    assert all(re.fullmatch(r"\d{3}|gone", status) for _, status in counted)


def test_peers_and_leaders_are_told_by_their_ids(texts: list[str]) -> None:
    """Each member says of each other one whether it is connected."""
    for text in texts:
        peers = re.findall(r'^coordinator_peer_reachable\{peer_id="(\w)"\} 1\.0', text, re.M)
        assert len(peers) == len(texts) - 1
        (changes,) = re.findall(r"^coordinator_leader_changes_total (\S+)", text, re.M)
        assert float(changes) >= 1


def test_promtool_finds_nothing(texts: list[str]) -> None:
    """The linter of Prometheus itself."""
    promtool = str(PROMTOOL) if PROMTOOL.exists() else shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not there: tests/install promtool")
    for text in texts:
        done = subprocess.run(
            [promtool, "check", "metrics"], input=text, text=True, check=False, timeout=60,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "")
