"""Audit logs for tests: a file in a directory of the test's, and what is in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator.audit.chain import ChainHead, ChainVerdict, lines_of, verify
from coordinator.audit.event import AuditEvent, Source
from coordinator.audit.log import AuditLog
from coordinator.audit.targets import FileTarget, Target, chunks_of, rotated
from coordinator.clock import Clock, ManualClock
from coordinator.node.config import AuditConfig

AT_MS = 1_800_000_000_000


def change(zxid: int, **said: Any) -> AuditEvent:
    return AuditEvent(
        **{
            "event": "limits.changed",
            "source": Source.APPLIED,
            "time_ms": AT_MS + zxid,
            "zxid": zxid,
            "index": zxid,
            "identity": "ann",
            **said,
        }
    )


def refusal(number: int = 0) -> AuditEvent:
    return AuditEvent(
        event="request.refused",
        source=Source.REQUEST,
        time_ms=AT_MS,
        address=f"2001:db8:{number:x}::1",
        outcome="refused",
        resource=f"/secret/{number}",
    )


def log_of(
    path: Path, clock: Clock | None = None, target: Target | None = None, **settings: Any
) -> AuditLog:
    """Return the log of a member that keeps it in ``path``; not started."""
    config = replace(AuditConfig(target="file", file=str(path)), **settings)
    target = target or FileTarget(path, bytes_max=config.file_bytes_max, files_max=config.files_max)
    return AuditLog(target, config, clock or ManualClock(), cluster="c", member_id="1")


def write(path: Path, *events: AuditEvent, **settings: Any) -> ChainHead:
    """Write ``events`` in a life of their own, and return the head it ends with."""
    log = log_of(path, **settings)
    log.start()
    for event in events:
        log.note(event)
    log.stop()
    return log.head


def lines(path: Path) -> list[Any]:
    """Return the lines of all files of a log, the oldest first."""
    return [
        json.loads(line)
        for file in [*rotated(path), path]
        for line in file.read_bytes().splitlines()
    ]


def verdict(path: Path, known: ChainHead | None = None) -> ChainVerdict:
    files = [*rotated(path), path]
    return verify((each for file in files for each in lines_of(file.name, chunks_of(file))), known)
