"""The store of the stories: a report in a SQLite file, guarded by fencing tokens or not at all."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from coordinator.guards import SqliteGuard
from coordinator.learn.actor import RESOURCE


class Report:
    """One report with a value; real, and shared by processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard = SqliteGuard(path, RESOURCE)

    def create(self, value: str, highest_token: int) -> None:
        """Make the file, with this value; tokens below ``highest_token`` are refused from now."""
        self._guard.create_table()
        with closing(sqlite3.connect(self.path)) as plain, plain:
            plain.execute("CREATE TABLE report (value TEXT NOT NULL)")
            plain.execute("INSERT INTO report VALUES (?)", (value,))
        if highest_token:
            self._guard.raise_to(highest_token)

    def read(self) -> tuple[str, int]:
        """Return the value, and the highest token that was seen (0 before the first)."""
        with closing(sqlite3.connect(self.path)) as plain:
            (value,) = plain.execute("SELECT value FROM report").fetchone()
        return str(value), self._guard.highest_token() or 0
