"""A region's server is frozen and replaced; when it wakes it writes on, and is refused.

It was elected, so it does not ask before each write, and a region is written to all day: whoever
serves it holds the leadership for weeks. The epoch of the leadership goes with every write, and the
region's store was raised to the new epoch before the new server served anybody.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from coordinator import connect
from coordinator.errors import LockLostError, StaleTokenError
from coordinator.guards import SqliteGuard
from coordinator.recipes import Election
from examples.actors import LEASE_S_MIN, Actor, report, wait_for_cue
from examples.stage import Stage, perform

UPDATE = "UPDATE region SET row = ?"


def act(name: str, endpoints: str, database: str, lease_s: float) -> None:
    """Serve the region while elected: write on cue."""
    guard = SqliteGuard(database, "region-7")
    try:
        with (
            connect(endpoints, session_timeout=lease_s, label=name) as client,
            Election(client, "region-7", value=name.encode(), guards=[guard]) as leadership,
        ):
            report("serves", epoch=leadership.epoch)
            while (row := wait_for_cue()) != "leave":
                try:
                    guard.write(leadership.epoch, UPDATE, (row,))
                    report("wrote")
                except StaleTokenError as error:
                    report("refused", message=error.message)
    except LockLostError as error:
        report("lost", message=error.message)
    report("left")


def story(stage: Stage) -> None:
    with (
        TemporaryDirectory() as directory,
        Actor("examples.zombie_server", "server 1") as one,
        Actor("examples.zombie_server", "server 2") as two,
        stage.connect("client") as client,
    ):
        database = Path(directory) / "region.db"
        SqliteGuard(database, "region-7").create_table()
        with closing(sqlite3.connect(database)) as plain, plain:
            plain.execute("CREATE TABLE region AS SELECT 'empty' AS row")
        part = {"endpoints": stage.cluster.endpoints, "database": str(database)}
        one.begin(**part, lease_s=max(LEASE_S_MIN, stage.seconds(5)))
        epoch = one.expect("serves")["epoch"]
        one.cue("by server 1")
        one.expect("wrote")
        stage.say(f"Server 1 serves the region in epoch {epoch}, writes, and is frozen.")
        one.freeze()
        two.begin(**part, lease_s=10)
        epoch = two.expect("serves")["epoch"]
        elected = client.election("region-7").elected
        assert elected is not None
        serves = (elected.value or b"").decode()
        stage.say(f"Its session has ended; everybody reads that {serves} serves, epoch {epoch}.")
        two.cue("by server 2")
        two.expect("wrote")

        one.cue("by the zombie")
        one.wake()
        line = one.expect("wrote", "refused")
        stage.say(f"Server 1 wakes and writes: {line.get('message', 'TAKEN')}")
        one.cue("leave")
        stage.say(f"Then it learns of it: {one.expect('lost')['message'].partition(': ')[2]}")
        with closing(sqlite3.connect(database)) as plain:
            (row,) = plain.execute("SELECT row FROM region").fetchone()
        stage.say(f"The region is {row}.")
        two.cue("leave")
        two.expect("left")


if __name__ == "__main__":
    perform(story)
