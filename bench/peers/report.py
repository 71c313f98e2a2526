"""The table and the plots of a run, from its JSON: ``table.md`` and ``*.svg`` beside it."""

from __future__ import annotations

import json
import math
import textwrap
from pathlib import Path
from typing import Any

from bench.peers.figures import best
from bench.peers.load import system_of
from bench.peers.rows import BY_NAME
from bench.peers.svg import bar_chart

_COLUMNS = 100
OURS = ("ours", "ours-sync")
PLOTS = (
    ("locks", "Lock cycles", "a second", "lock", "per_second"),
    ("hand-offs", "Hand-offs of one lock", "a second", "handoff", "per_second"),
    ("writes", "Writes of 100 B", "a second", "write", "per_second"),
    ("reads", "Linearizable reads", "a second", "read", "per_second"),
    ("stale-reads", "Stale reads", "a second", "stale", "per_second"),
    ("write-latency", "Writes, 99 % within", "ms", "write", "p99_ms"),
    ("write-cpu", "Writes, processor time of all members", "µs each", "write", "servers_us"),
    ("lock-cpu", "Lock cycles, processor time of all members", "µs each", "lock", "servers_us"),
)
LOADS = ("lock", "handoff", "write", "pipeline", "read", "stale")
UNITS = {
    "servers_percent": "% of a core", "median_ms": "ms, median", "greatest_ms": "ms, at most",
    "servers_ms": "ms of the members' processors, 15 writes", "seconds": "s", "memory_mib": "MiB",
    "fill_s": "s to fill", "restart_s": "s from start to first write",
    "few_per_second": "writes/s among 1,000", "many_per_second": "writes/s among 1,000,000",
    "few_p99_ms": "ms p99 among 1,000", "many_p99_ms": "ms p99 among 1,000,000",
    "per_second": "a second", "p50_ms": "ms p50", "p99_ms": "ms p99",
    "servers_us": "µs of the members each",
}  # fmt: skip


def write(results: Path) -> None:
    """Write the table and the plots beside the results."""
    found = json.loads(results.read_text())
    (results.parent / "table.md").write_text(table(found))
    for name, title, unit, kind, figure in PLOTS:
        groups = [
            (f"{row['workers']:,}", _medians(row, figure))
            for row in found["rows"].values()
            if row["kind"] == kind and row["found"]
        ]
        if groups:
            (results.parent / f"{name}.svg").write_text(bar_chart(title, unit, groups))


def _medians(row: dict[str, Any], figure: str) -> dict[str, float]:
    """Return the median of one figure for each system that has it."""
    found = {name: each.get(figure, {}).get("median") for name, each in row["found"].items()}
    return {name: value for name, value in found.items() if value is not None}


def against_peers(row: dict[str, Any]) -> float:
    """Return our rate by that of the best peer that promises as much (so not Redis); else NaN."""
    rates = _medians(row, "per_second")
    peers = [name for name in rates if system_of(name) in ("etcd", "zookeeper")]
    return best(rates, OURS) / best(rates, peers)


def table(found: dict[str, Any]) -> str:
    """Return all rows as Markdown."""
    about = found["about"]
    lines = [
        textwrap.fill(
            f"Measured {about['at']} at `{about['revision']}` ({about['build']}) on "
            f"{about['cores']} cores, {about['system']}, {about['rounds']} rounds of "
            f"{about['seconds']:g} s, medians with least and greatest.",
            _COLUMNS,
        ),
        *(f"Not measured: {text}." for text in found.get("missing", {}).values()),
        "",
        textwrap.fill(
            "Load rows: operations a second; latencies in ms; processor time of all members and of "
            "the client for each operation, in µs. The last column is ours by the best of etcd and "
            "ZooKeeper.",
            _COLUMNS,
        ),
        "",
        "| work | by | a second | p50 | p99 | p99.9 | members µs | client µs | ours / best |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    order = list(BY_NAME)
    rows = sorted(found["rows"].items(), key=lambda each: order.index(each[0]))
    for _, row in rows:
        if row["kind"] in LOADS:
            lines += _load_lines(row)
    lines += ["", "| work | of | found |", "|---|---|---|"]
    for _, row in rows:
        if row["kind"] not in LOADS:
            lines += [
                f"| {row['what']} | {name} | {_described(each)} |"
                for name, each in row["found"].items()
            ]
    failed = [
        textwrap.fill(f"- {row['what']}, {name}: {text}", _COLUMNS, subsequent_indent="  ")
        for _, row in rows
        for name, text in row["failed"].items()
    ]
    if failed:
        lines += ["", "Did not work:", "", *failed]
    return "\n".join(lines) + "\n"


def _load_lines(row: dict[str, Any]) -> list[str]:
    ratio = against_peers(row)
    said = "" if math.isnan(ratio) else f"{ratio:.2f}"
    lines = []
    for name, each in row["found"].items():
        cells = [_number(each[key]["median"]) for key in
                 ("p50_ms", "p99_ms", "p999_ms", "servers_us", "client_us")]  # fmt: skip
        rate = each["per_second"]
        span = (
            f"{_number(rate['median'])} ({_number(rate['least'])} to {_number(rate['greatest'])})"
        )
        last = said if name == "ours" else ""
        lines.append(f"| {row['what']} | {name} | {span} | {' | '.join(cells)} | {last} |")
    return lines


def _described(figures: dict[str, Any]) -> str:
    return "; ".join(
        f"{_number(each['median'])} {UNITS.get(name, name)}"
        for name, each in figures.items()
        if name != "operations"
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2g}" if value < 10 else f"{value:.1f}"
