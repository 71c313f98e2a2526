"""What locks protect: a file, a row, an entry of a queue, a value of a configuration.

Each is written under a lock by somebody who loses it without knowing, and by who holds it next. The
file and the row refuse the late write by their guard, what lies in the coordinator by ``if_held``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from coordinator.client import Client, Delete, SetData
from coordinator.errors import LockLostError, StaleTokenError
from coordinator.guards import FileGuard, SqliteGuard
from coordinator.recipes import Grant, Lock
from coordinator.recipes.locks.raising import Guard
from examples.stage import Stage, perform

Write = Callable[[Client, Grant[Client], str], object]


def twice(stage: Stage, new: Client, name: str, write: Write, guards: Sequence[Guard] = ()) -> None:
    """Let somebody lose the lock ``name``, ``new`` write under it, and the other one try to."""
    with stage.connect("old") as old:
        late = Lock(old, name, guards=guards).acquire()
        stage.cluster.expire(old)
        with Lock(new, name, timeout=60, guards=guards) as grant:
            write(new, grant, "new")
            try:
                write(old, late, "old")
                stage.say(f"{name}: THE LATE WRITE WAS TAKEN")
            except (StaleTokenError, LockLostError) as error:
                stage.say(f"{name}: the late write was refused: {type(error).__name__}")


def story(stage: Stage) -> None:
    with TemporaryDirectory() as directory, stage.connect("new") as new:
        file = FileGuard(Path(directory) / "report.txt")
        twice(
            stage,
            new,
            "the file",
            lambda _, grant, by: file.write(grant.fencing_token, by.encode()),
            [file],
        )

        database = Path(directory) / "shop.db"
        with closing(sqlite3.connect(database)) as plain, plain:
            plain.execute("CREATE TABLE orders AS SELECT 17 AS id, '' AS by")
        row = SqliteGuard(database, "orders/17")
        row.create_table()
        update = "UPDATE orders SET by = ? WHERE id = 17"
        twice(
            stage,
            new,
            "the row",
            lambda _, grant, by: row.write(grant.fencing_token, update, [by]),
            [row],
        )

        new.create("/queue/entry-1", b"pack order 17", parents="persistent")
        new.create("/done")
        twice(
            stage,
            new,
            "the entry of the queue",
            lambda client, grant, by: client.multi(
                [Delete("/queue/entry-1"), SetData("/done", by.encode())], if_held=grant
            ),
        )

        new.create("/config/rate", b"50", parents="persistent")
        twice(
            stage,
            new,
            "the configuration",
            lambda client, grant, by: client.set("/config/rate", by.encode(), if_held=grant),
        )

        with closing(sqlite3.connect(database)) as plain:
            in_row = plain.execute("SELECT by FROM orders").fetchone()[0]
        found = [file.read(), in_row.encode(), new.get("/done").data, new.get("/config/rate").data]
        stage.say(f"All of them are by: {', '.join(sorted({(e or b'').decode() for e in found}))}")


if __name__ == "__main__":
    perform(story)
