"""Alert rules and the Grafana board of ``examples/deploy``: each fires, and each query has data.

``promtool`` and ``prometheus`` are asked where they are installed (tests/install promtool).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from coordinator.recipes import Lock
from coordinator.testing.cluster import LocalCluster
from tests.patience import patient
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples" / "deploy"
PROMETHEUS = DEPLOY / "prometheus"
RULES = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]
BOARD = json.loads((DEPLOY / "grafana.json").read_text("utf-8"))
COLUMNS = 24
SEEN_BY_PROMETHEUS = {"up"}
SILENT = {"coordinator_certificate_expiry_timestamp_seconds"}
"""What a cluster without TLS does not say."""


def queries() -> list[str]:
    """Return what the board asks, with the variables of a real cluster."""
    return [
        target["expr"].replace("$cluster", "locks").replace("$__rate_interval", "10s")
        for panel in BOARD["panels"]
        for target in panel["targets"]
    ]


def names_in(expression: str) -> set[str]:
    """Return the metrics that an expression is about."""
    return set(re.findall(r"\b(?:(?:coordinator|process)_[a-z0-9_]+|up)\b(?=[{ ])", expression))


def tool(name: str) -> str:
    there = ROOT / ".openapi-tools" / name
    found = str(there) if there.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not there: tests/install promtool")
    return found


@pytest.fixture
def busy_cluster(shared_coordinator_cluster: LocalCluster) -> LocalCluster:
    """A cluster in which something has happened."""
    with shared_coordinator_cluster.connect() as client, Lock(client, "board"):
        client.get("/")
    return shared_coordinator_cluster


def test_every_rule_is_tried_and_names_a_page() -> None:
    """A critical one of them, too, can be looked up: the page is there and says what to do."""
    tried = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text("utf-8"))["tests"]
    assert [each["name"] for each in tried] == [*(each["alert"] for each in RULES),
                                                "a healthy cluster"]  # fmt: skip
    for rule in RULES:
        assert (ROOT / rule["annotations"]["runbook"]).is_file(), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "--syntax-only", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts.test.yml"),
    ],
)
def test_promtool_accepts_the_rules(arguments: tuple[str, ...]) -> None:
    """Each rule fires for its fault, and none for a healthy cluster."""
    done = subprocess.run(
        [tool("promtool"), *arguments],
        cwd=PROMETHEUS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_board_is_whole() -> None:
    """Panels have ids of their own and do not overlap; each asks something of the chosen source."""
    panels = BOARD["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"]
        assert panel["type"] in ("stat", "timeseries")
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({each["refId"] for each in panel["targets"]}) == len(panel["targets"]) > 0
        assert all("$cluster" in each["expr"] for each in panel["targets"])
    assert {each["name"] for each in BOARD["templating"]["list"]} == {"datasource", "cluster"}


def test_members_have_every_metric_that_is_asked_for(busy_cluster: LocalCluster) -> None:
    """One that was renamed takes rules and board along."""
    text = ""
    for member in busy_cluster.members:  # what one alone counts is not shown by the others
        with urlopen(f"{busy_cluster.url(member)}/metrics", timeout=10) as reply:
            text += reply.read().decode()
    there = set(re.findall(r"^([a-z_0-9]+)(?:{| )", text, re.MULTILINE))
    families = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    asked = set().union(*map(names_in, [*queries(), *(each["expr"] for each in RULES)]))

    assert len(asked) > 25
    assert asked - there - families - SEEN_BY_PROMETHEUS == set()


class Prometheus:
    """A real one that looks at the members every half second."""

    def __init__(self, directory: Path, cluster: LocalCluster) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        targets = [cluster.url(each).removeprefix("http://") for each in cluster.members]
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(PROMETHEUS / "alerts.yml")],
            "scrape_configs": [
                {
                    "job_name": "coordinator",
                    "static_configs": [{"targets": targets, "labels": {"cluster": "locks"}}],
                }
            ],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._process = subprocess.Popen(
            [
                tool("prometheus"), f"--config.file={directory}/prometheus.yml",
                f"--storage.tsdb.path={directory}/data", f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def asked(self, query: str) -> Any:
        """Return what comes of a query, None while nobody answers."""
        try:
            with urlopen(f"{self.url}/api/v1/query?{urlencode({'query': query})}") as reply:
                return json.load(reply)["data"]["result"]
        except OSError:
            return None

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(patient(20))


@pytest.fixture
def prometheus(tmp_path: Path, busy_cluster: LocalCluster) -> Iterator[Prometheus]:
    running = Prometheus(tmp_path, busy_cluster)
    yield running
    running.stop()


def soon(is_so: Callable[[], object]) -> None:
    ends = time.monotonic() + patient(30)
    while not is_so():
        assert time.monotonic() < ends, "not in time"
        time.sleep(0.2)


@pytest.mark.check
def test_every_query_has_an_answer(prometheus: Prometheus) -> None:
    """As Prometheus itself reads them, of the figures of a real cluster; no rule fires there."""
    soon(lambda: len(prometheus.asked("coordinator_is_leader") or ()) == 3)
    soon(lambda: prometheus.asked("rate(coordinator_engine_syncs_total[10s])"))
    for query in queries():
        if not names_in(query) & SILENT and 'status=~"429' not in query:
            soon(lambda query=query: prometheus.asked(query))  # type: ignore[misc]
    assert prometheus.asked('ALERTS{alertname!="CoordinatorDiskNearlyFull"}') == []
