"""The row lock of docs/locks.md, run against a real PostgreSQL server."""

from __future__ import annotations

import io
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path

from tests.docs.pages import examples
from tests.guards import servers
from tests.guards.values import postgres_connection

PIECES, BUYERS = 5, 8
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"


def wait_for_waiters(directory: Path) -> None:
    """Wait until all buyers wait for the row."""
    with postgres_connection(directory, autocommit=True) as connection:
        deadline_s = time.monotonic() + 60
        while connection.execute(WAITING).fetchone() != (BUYERS,):
            assert time.monotonic() < deadline_s, "the buyers do not wait for each other"
            time.sleep(0.01)


def test_the_row_lock_of_the_page_sells_what_is_there_and_no_more() -> None:
    """Eight buyers run it at the same time; of five pieces five are sold."""
    (example,) = [
        each
        for each in examples("python")
        if each.page.name == "locks.md" and "FOR UPDATE" in each.body
    ]
    code = compile(example.body, example.name, "exec")

    with servers.postgresql() as directory:
        with postgres_connection(directory) as connection:
            connection.execute("CREATE TABLE stock (id int, pieces int)")
            connection.execute("INSERT INTO stock VALUES (17, %s)", [PIECES])
        conninfo = f"host={directory} user=tester dbname=postgres"
        said = io.StringIO()
        with redirect_stdout(said), ThreadPoolExecutor(BUYERS) as buyers:
            with postgres_connection(directory) as first:
                first.execute("UPDATE stock SET pieces = pieces WHERE id = 17")
                all_bought = [
                    buyers.submit(exec, code, {"conninfo": conninfo}) for _ in range(BUYERS)
                ]
                wait_for_waiters(directory)  # whoever looked without the lock has seen five
            for bought in all_bought:
                bought.result()
        with postgres_connection(directory) as connection:
            left = connection.execute("SELECT pieces FROM stock").fetchall()

    assert left == [(0,)]
    assert said.getvalue().count("sold\n") == PIECES
    assert said.getvalue().count("sold out") == BUYERS - PIECES
