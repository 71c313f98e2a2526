"""The rows of the comparison: what is done, by whom, with how many workers.

A load row runs in processes of their own (``load``); what needs more than a load is in ``special``.
"""

from __future__ import annotations

from dataclasses import dataclass

EVERYBODY = ("ours", "ours-sync", "ours-http", "etcd", "etcd-sync", "zookeeper", "redis")
NO_HTTP = ("ours", "ours-sync", "etcd", "etcd-sync", "zookeeper", "redis")
QUEUES = ("ours", "etcd", "zookeeper")
PIPES = ("ours", "etcd", "zookeeper", "redis")
CONSENSUS = ("ours", "etcd", "zookeeper")


@dataclass(frozen=True, slots=True)
class Row:
    """One row: ``kind`` of work, ``workers`` (threads, tasks, contenders, sessions, znodes)."""

    name: str
    what: str
    kind: str
    workers: int
    adapters: tuple[str, ...]
    is_special: bool = False
    is_long: bool = False
    """Left out by ``--quick``."""


def _load(kind: str, what: str, workers: tuple[int, ...], adapters: tuple[str, ...]) -> list[Row]:
    return [
        Row(f"{kind}-{each}", f"{what}, {each:,} worker{'s' * (each > 1)}", kind, each, adapters)
        for each in workers
    ]


ROWS: tuple[Row, ...] = (
    *_load("lock", "lock cycles (acquire and release, own lock)", (1, 8, 64), EVERYBODY),
    *_load("handoff", "hand-offs of one lock", (8, 32), NO_HTTP),
    *_load("handoff", "hand-offs of one lock", (1_000, 10_000), QUEUES),
    *_load("write", "writes of 100 B", (1, 64, 256), EVERYBODY),
    *_load("pipeline", "pipelined writes, 64 under way for each", (2,), PIPES),
    *_load("read", "linearizable reads", (1, 64), EVERYBODY),
    *_load("stale", "stale reads", (1, 64), EVERYBODY),
    Row("sessions-5000", "processor time of 5,000 idle sessions", "sessions", 5_000, CONSENSUS,
        True),
    Row("watchers-500", "500 watchers on 10 connections see a write", "watchers", 500, CONSENSUS,
        True),
    Row("kill", "leader killed, until the first write", "kill", 1, CONSENSUS, True),
    Row("silent", "leader stopped (its host silent), until the first write", "silent", 1, CONSENSUS,
        True),
    Row("idle", "three idle members", "idle", 0, ("ours", "etcd", "zookeeper", "redis"), True),
    Row("ceiling", "writes by compiled clients, 64 connections", "ceiling", 64,
        ("ours", "etcd", "zookeeper"), True),
    Row("znodes-100000", "100,000 znodes of 100 B: memory, all killed and restarted", "znodes",
        100_000, CONSENSUS, True),
    Row("znodes-1000000", "1,000,000 znodes: writes against 1,000, snapshot, restart", "million",
        1_000_000, ("ours",), True, True),
)  # fmt: skip

BY_NAME = {each.name: each for each in ROWS}
