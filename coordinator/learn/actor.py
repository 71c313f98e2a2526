"""A client of a story, in a process of its own: it can be frozen (SIGSTOP) at any moment.

``python -m coordinator.learn.actor`` reads cues, lines of JSON, and says in lines of JSON what it
does. It uses the client and the recipes as any program does, and heartbeats as any program does:
so what stops when it is frozen is what would stop anywhere. What is sent to it meanwhile waits in
its pipe, and is the first thing that it does when it wakes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from typing import Any

from coordinator.client import Client, connect
from coordinator.errors import CoordinatorError
from coordinator.guards import SqliteGuard
from coordinator.recipes import Lock
from coordinator.recipes.locks.grant import Grant

RESOURCE = "report"
"""What the guard of the store is called."""
_UPDATE = "UPDATE report SET value = ?"
_ACQUIRE_TIMEOUT_S = 120.0
_output = threading.Lock()


def report(what: str, **facts: Any) -> None:
    """Say what this actor does."""
    with _output:
        sys.stdout.write(json.dumps({"what": what, **facts}) + "\n")
        sys.stdout.flush()


class Part:
    """What one actor does in one story: one client, one lock, one store."""

    def __init__(self, client: Client, name: str, lock: str, database: str) -> None:
        self._client = client
        self._name = name
        self._lock = lock
        self._database = database
        self._guard = SqliteGuard(database, RESOURCE)
        self._grant: Grant[Client] | None = None
        self._token = 0
        self._contender: Lock[Client] | None = None

    def cues(self) -> dict[str, Callable[..., None]]:
        """Return what it can do."""
        return {
            "acquire": self.acquire,
            "write": self.write,
            "add": self.add,
            "check": self.check,
            "release": self.release,
        }

    def acquire(self, *, is_fenced: bool = True) -> None:
        """Queue for the lock, say so, and hold it when it is granted."""
        contender = self._contender = Lock(
            self._client,
            self._lock,
            timeout=_ACQUIRE_TIMEOUT_S,
            label=self._name,
            owner="",
            guards=[self._guard] if is_fenced else [],
        )
        grant = contender.acquire()
        self._grant, self._token = grant, grant.fencing_token
        grant.on_lost(lambda: report("lost", token=grant.fencing_token, why=grant.loss().message))
        report("holds", token=self._token)

    def write(self, value: str, *, is_fenced: bool = True) -> None:
        """Write with the token it got, whatever became of the lock since: it has looked already."""
        if is_fenced:
            self._guard.write(self._token, _UPDATE, (value,))
        else:
            with closing(sqlite3.connect(self._database, timeout=10)) as plain, plain:
                plain.execute(_UPDATE, (value,))
        report("wrote", value=value, token=self._token)

    def add(self, amount: int, seen: int) -> None:
        """Write ``seen + amount`` without looking again: what it knew before it was stopped."""
        self.write(str(seen + amount))

    def check(self) -> None:
        """Ask the client whether the lock is still held, without a request."""
        if self._grant is None or self._grant.is_lost:
            report("not held", token=self._token)
        else:
            report("held", token=self._token, safe_ms=self._grant.remaining_safe_ms())

    def release(self) -> None:
        """Give the lock back, if it is still this actor's."""
        assert self._contender is not None
        report("released", was_held=self._contender.release(), token=self._token)


def main() -> None:
    """Play one part, until standard input ends."""
    part = json.loads(_line())
    connector = connect(
        part["endpoints"], session_timeout=part["lease_s"], label=part["name"], timeout=10.0
    )
    with connector as client:
        session = client.session()
        report("ready", session_id=session.session_id, process_id=os.getpid())
        cues = Part(client, part["name"], part["lock"], part["database"]).cues()
        while True:
            cue = json.loads(_line())
            try:
                cues[cue.pop("do")](**cue)
            except CoordinatorError as error:
                report("refused", code=error.code, message=error.message)


def _line() -> str:
    line = sys.stdin.readline()
    if not line:
        os._exit(0)
    return line


if __name__ == "__main__":
    main()
