"""Two holders at once: both processes are inside the critical section, by construction.

A is frozen in the middle of it, B is let in when A's lease has ended, and stays in when A wakes.
Each adds to a balance as programs do: read, add, write back. No lock can keep them from being there
together; what keeps the balance right is that the store takes writes only from the latest holder.
A, when it is refused, takes the lock again, reads again, and adds then.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from coordinator import Client, connect
from coordinator.errors import LockLostError, StaleTokenError
from coordinator.guards import SqliteGuard
from coordinator.recipes import Grant, Lock
from examples.actors import LEASE_S_MIN, Actor, report, wait_for_cue
from examples.stage import Stage, perform

OPENING, DEPOSITS = 100, {"A": 50, "B": 30}
UPDATE = "UPDATE account SET balance = ?"


def act(name: str, endpoints: str, database: str, lease_s: float, is_fenced: bool) -> None:
    """Deposit once, under the lock; again from the beginning if the store refused it."""
    guard = SqliteGuard(database, "account")
    is_written = False
    while not is_written:
        try:
            with (
                connect(endpoints, session_timeout=lease_s) as client,
                Lock(client, "account", timeout=60, guards=[guard] if is_fenced else []) as grant,
            ):
                is_written = deposit(name, guard if is_fenced else None, grant, database)
        except LockLostError as error:
            report("lost", message=error.message)
    report("left")


def deposit(name: str, guard: SqliteGuard | None, grant: Grant[Client], database: str) -> bool:
    """Read, wait for the cue, write back, stay; return whether it was written."""
    balance = balance_in(database)
    report("inside", token=grant.fencing_token, balance=balance)
    wait_for_cue()
    balance += DEPOSITS[name]
    try:
        if guard is not None:
            guard.write(grant.fencing_token, UPDATE, (balance,))
        else:
            with closing(sqlite3.connect(database)) as plain, plain:
                plain.execute(UPDATE, (balance,))
    except StaleTokenError as error:
        report("refused", message=error.message)
        return False
    report("wrote", balance=balance)
    wait_for_cue()
    return True


def story(stage: Stage) -> None:
    with (
        Actor("examples.two_holders", "A") as a,
        Actor("examples.two_holders", "B") as b,
        TemporaryDirectory() as directory,
    ):
        stage.say("Without fencing tokens:")
        assert day(stage, a, b, Path(directory) / "without.db", is_fenced=False) == 150
        stage.say("With fencing tokens:")
        assert day(stage, a, b, Path(directory) / "with.db", is_fenced=True) == 180


def day(stage: Stage, a: Actor, b: Actor, database: Path, *, is_fenced: bool) -> int:
    """Return the balance in the end."""
    SqliteGuard(database, "account").create_table()
    with closing(sqlite3.connect(database)) as plain, plain:
        plain.execute("CREATE TABLE account AS SELECT 100 AS balance")
    part = {
        "endpoints": stage.cluster.endpoints,
        "database": str(database),
        "lease_s": max(LEASE_S_MIN, stage.seconds(5)),
        "is_fenced": is_fenced,
    }
    a.begin(**part)
    inside = a.expect("inside")
    a.freeze()
    awake_at_s = time.monotonic() + stage.seconds(8)
    stage.say(f"A is inside with token {inside['token']}, has read {inside['balance']}, is frozen.")
    b.begin(**part)
    inside = b.expect("inside")
    stage.say(f"B is inside with token {inside['token']}, has read {inside['balance']}.")
    b.cue("write")
    stage.say(f"B adds {DEPOSITS['B']}, writes {b.expect('wrote')['balance']}, and stays inside.")

    time.sleep(max(0.0, awake_at_s - time.monotonic()))
    a.cue("write")
    a.wake()
    line = a.expect("wrote", "refused")
    if line["what"] == "wrote":
        stage.say(f"A wakes inside, adds {DEPOSITS['A']} and writes {line['balance']}.")
    else:
        stage.say(f"A wakes inside and adds {DEPOSITS['A']}: refused: {line['message']}")
    b.cue("leave")
    b.expect("left")
    if line["what"] == "refused":
        inside = a.expect("inside")
        stage.say(f"A is in again, token {inside['token']}, and reads {inside['balance']}.")
        a.cue("write")
        stage.say(f"A adds {DEPOSITS['A']} and writes {a.expect('wrote')['balance']}.")
    a.cue("leave")
    a.expect("left")
    balance = balance_in(str(database))
    stage.say(f"The balance is {balance}; {OPENING + sum(DEPOSITS.values())} were paid in.")
    return balance


def balance_in(database: str) -> int:
    with closing(sqlite3.connect(Path(database))) as plain:
        balance: int = plain.execute("SELECT balance FROM account").fetchone()[0]
        return balance


if __name__ == "__main__":
    perform(story)
