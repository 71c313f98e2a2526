"""The two actors of the four ghost stories, and one night of theirs.

Both do the same: take the lock, look at it, and write the report when they are told to. A is frozen
between looking and writing, for longer than its lease; B gets the lock meanwhile.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from coordinator import Client, connect
from coordinator.errors import LockLostError, StaleTokenError, UnavailableError
from coordinator.guards import SqliteGuard
from coordinator.recipes import Grant, Lock
from coordinator.testing import LocalCluster
from examples.actors import (
    LEASE_S_MIN,
    Actor,
    report,
    wait_for_cue,
    wait_for_waiter,
    write_up_to_token,
)
from examples.stage import Stage

UPDATE = "UPDATE report SET text = ?"


def act(
    name: str,
    endpoints: str,
    lock: str,
    database: str,
    lease_s: float,
    is_fenced: bool,
    raise_on_acquire: bool,
) -> None:
    """Take the lock and write on cue; what either of the two does."""
    guard = SqliteGuard(database, "report")
    guards = [guard] if is_fenced else []
    with connect(endpoints, session_timeout=lease_s, label=name) as client:
        client.session()
        report("ready")
        wait_for_cue()
        wanted = Lock(client, lock, timeout=60, guards=guards, raise_on_acquire=raise_on_acquire)
        try:
            with held(wanted) as grant:
                grant.check()
                report("holds", token=grant.fencing_token)
                # A is frozen here: its look is the past, its write is the future.
                while (text := wait_for_cue()) != "leave":
                    try:
                        if is_fenced:
                            guard.write(grant.fencing_token, UPDATE, (text,))
                        else:
                            with closing(sqlite3.connect(database)) as plain, plain:
                                plain.execute(UPDATE, (text,))
                        report("wrote")
                    except StaleTokenError as error:
                        report("refused", message=error.message)
        except LockLostError as error:
            report("lost", message=error.message)
        report("left")


@contextmanager
def held(wanted: Lock[Client]) -> Iterator[Grant[Client]]:
    """Hold it; while no member acknowledges the session in time it is not granted: then again."""
    with ExitStack() as stack:
        while True:
            try:
                grant = stack.enter_context(wanted)
                break
            except UnavailableError:
                continue
        yield grant


@dataclass(frozen=True)
class Night:
    """A holds the lock and is frozen, B holds it now; the story says who writes what, and when."""

    stage: Stage
    a: Actor
    b: Actor
    a_token: int
    b_token: int
    frozen_at_s: float
    database: Path

    def b_writes(self, text: str) -> bool:
        """Let B write ``text``; return whether the store took it."""
        return self._write(self.b, text, f"B writes {text!r}")

    def a_writes(self, text: str) -> bool:
        """Let A, awake, write ``text``; return whether the store took it."""
        return self._write(self.a, text, f"A writes {text!r}")

    def a_wakes_and_writes(self, text: str, after_s: float) -> bool:
        """Wake A when it was frozen for ``after_s`` of the story; it writes first of all."""
        left_s = self.frozen_at_s + self.stage.seconds(after_s) - time.monotonic()
        time.sleep(max(0.0, left_s))
        self.a.wake()
        return self._write(self.a, text, f"A wakes after {after_s:g} s and writes {text!r}")

    def report(self) -> str:
        """Return what the report says now."""
        with closing(sqlite3.connect(self.database)) as plain:
            text: str = plain.execute("SELECT text FROM report").fetchone()[0]
            return text

    def _write(self, actor: Actor, text: str, what: str) -> bool:
        actor.cue(text)
        line = actor.expect("wrote", "refused")
        was_taken = bool(line["what"] == "wrote")
        self.stage.say(f"{what}: {'taken' if was_taken else 'refused: ' + line['message']}")
        return was_taken


@contextmanager
def nights(stage: Stage) -> Iterator[Play]:
    """Yield what plays nights with the same two actors, one after the other."""
    with (
        TemporaryDirectory() as directory,
        Actor("examples.ghost", "A") as a,
        Actor("examples.ghost", "B") as b,
    ):
        yield Play(stage, a, b, Path(directory))


@dataclass(frozen=True)
class Play:
    """Both actors, and where they keep their reports."""

    stage: Stage
    a: Actor
    b: Actor
    directory: Path

    @contextmanager
    def night(
        self,
        lock: str,
        *,
        lease_s: float,
        is_fenced: bool = True,
        raise_on_acquire: bool = True,
        cluster: LocalCluster | None = None,
        token: int = 0,
    ) -> Iterator[Night]:
        """Yield the night from when B holds the lock; A's lease is ``lease_s`` of the story.

        With ``token`` A's is that one, and ``cluster`` one of its own.
        """
        stage, cluster = self.stage, cluster or self.stage.cluster
        database = self.directory / f"{time.monotonic_ns()}.db"
        SqliteGuard(database, "report").create_table()
        with closing(sqlite3.connect(database)) as plain, plain:
            plain.execute("CREATE TABLE report AS SELECT 'empty' AS text")
        for actor in (self.a, self.b):
            actor.begin(
                endpoints=cluster.endpoints,
                lock=lock,
                database=str(database),
                lease_s=max(LEASE_S_MIN, stage.seconds(lease_s)),
                is_fenced=is_fenced,
                raise_on_acquire=raise_on_acquire,
            )
        for actor in (self.a, self.b):
            actor.expect("ready")
        with connect(cluster.endpoints) as client:
            if token:
                write_up_to_token(client, token)
            self.a.cue("take the lock")
            a_token: int = self.a.expect("holds")["token"]
            self.b.cue("take the lock")
            wait_for_waiter(client, lock)
        self.a.freeze()
        frozen_at_s = time.monotonic()
        stage.say(f"A holds {lock} with token {a_token}, has looked at it, and is frozen.")
        b_token: int = self.b.expect("holds")["token"]
        stage.say(f"Its lease of {lease_s:g} s has ended. B holds {lock} with token {b_token}.")
        yield Night(stage, self.a, self.b, a_token, b_token, frozen_at_s, database)
        self.a.cue("leave")
        stage.say(f"A leaves its `with`: LockLostError: {self.a.expect('lost')['message']}")
        self.b.cue("leave")
        for actor in (self.a, self.b):
            actor.expect("left")
