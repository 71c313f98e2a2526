"""The table and the plots of the benches: what was found, what was not, and what is missing."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from bench.peers import report
from bench.peers.ceiling import wrk_figures
from bench.peers.rows import BY_NAME, ROWS
from bench.peers.svg import bar_chart


def spread(value: float | None) -> dict[str, float | None]:
    return {"median": value, "least": value, "greatest": value}


def row(name: str, rates: dict[str, float]) -> dict[str, Any]:
    """Return a row as it is in the JSON: every figure of a system is its rate."""
    figures = ("per_second", "p50_ms", "p99_ms", "p999_ms", "servers_us", "client_us")
    found = {system: dict.fromkeys(figures, spread(rate)) for system, rate in rates.items()}
    said = BY_NAME[name]
    return {
        "what": said.what, "kind": said.kind, "workers": said.workers, "found": found,
        "failed": {},
    }  # fmt: skip


def results(**rows: dict[str, Any]) -> dict[str, Any]:
    about = {
        "at": "2026-01-02 03:04", "revision": "abc", "build": "Python", "cores": 2,
        "system": "Linux", "seconds": 1.0, "rounds": 3,
    }  # fmt: skip
    rows = {name.replace("_", "-"): each for name, each in rows.items()}
    return {"about": about, "missing": {"redis": "Redis is not here: install it"}, "rows": rows}


def test_ours_is_compared_with_the_best_peer_that_promises_as_much() -> None:
    """The better of our clients, by the better of theirs; Redis waits for no replica."""
    rates = {"ours": 50.0, "ours-sync": 80.0, "ours-http": 900.0, "etcd": 30.0, "etcd-sync": 40.0,
             "zookeeper": 20.0, "redis": 5_000.0}  # fmt: skip

    assert report.against_peers(row("lock-8", rates)) == 2.0
    assert math.isnan(report.against_peers(row("lock-8", {"ours": 1.0})))


def test_what_is_missing_and_what_failed_is_named() -> None:
    """A system that could not be measured is never left out in silence."""
    found = row("lock-8", {"ours": 50.0})
    found["failed"] = {"etcd": "it ended"}

    text = report.table(results(lock_8=found))

    assert "Not measured: Redis is not here: install it." in text
    assert f"- {found['what']}, etcd: it ended" in text
    assert f"| {found['what']} | ours | 50.0 (50.0 to 50.0) |" in text


def test_table_and_plots_are_written_beside_the_results(tmp_path: Path) -> None:
    """Also of a figure that nothing was found for."""
    found = results(lock_8=row("lock-8", {"ours": 50.0, "etcd": 25.0}))
    found["rows"]["lock-8"]["found"]["ours"]["p99_ms"] = spread(None)
    (tmp_path / "results.json").write_text(json.dumps(found))

    report.write(tmp_path / "results.json")

    assert "| 2.00 |" in (tmp_path / "table.md").read_text()
    assert {each.name for each in tmp_path.glob("*.svg")} == {"locks.svg", "lock-cpu.svg"}


def test_a_chart_is_well_formed_and_higher_bars_are_higher() -> None:
    """Names and values are in it, whatever is in a name."""
    text = bar_chart("A & B", "a second", [("1", {"ours": 1_000.0, "etcd": 10.0}), ("64", {})])

    root = ElementTree.fromstring(text)  # noqa: S314
    bars = [each for each in root.iter() if each.tag.endswith("rect") and list(each)]
    heights = [float(each.attrib["height"]) for each in bars]
    assert heights[0] > heights[1] >= 0
    assert "ours: 1,000.0 a second" in text
    assert "A &amp; B" in text


def test_the_figures_of_wrk_are_read() -> None:
    """In the units that it chooses; refusals are no operations."""
    text = "    50%  950.00us\n    99%    1.25s\n  Requests/sec:   1234.50\n"

    expected = {"per_second": 1234.5, "p50_ms": 0.95, "p99_ms": 1250.0}
    assert wrk_figures(text) == pytest.approx(expected)
    with pytest.raises(RuntimeError, match="7 requests"):
        wrk_figures(text + "  Non-2xx or 3xx responses: 7\n")
    with pytest.raises(ValueError, match="figures of wrk"):
        wrk_figures("unable to connect")


def test_rows_have_names_of_their_own() -> None:
    """``--rows`` finds each of them."""
    assert len(BY_NAME) == len(ROWS)
