"""The guard of SQLite: check and write are one transaction, and SQLite has one writer at a time.

::

    guard = SqliteGuard("accounts.db", "accounts/17")         # or a sqlite3 connection of yours
    guard.create_table()                                      # once, where the schema is made

    guard.write(grant.fencing_token, "UPDATE accounts SET cents = ? WHERE id = 17", [500])

    with guard.transaction(grant.fencing_token) as cursor:    # several statements
        cursor.execute(...)

    connection.execute("BEGIN IMMEDIATE")                     # a transaction of your own
    guard.check(connection, grant.fencing_token)
    ...
    connection.commit()

1. With a path each call opens a connection of its own, so the guard may be used from any thread and
   by any process of this machine. With a connection it is as bound to its thread as that is: a
   ``Lock`` raises its guards in another thread, so open it with ``check_same_thread=False``.
2. The check takes the file's write lock, which is kept until the transaction ends.
3. Errors of SQLite (``database is locked``, a full disk) are raised as its own.
4. A holder that is stopped inside its transaction keeps the others waiting, for ``timeout_s``.
5. As durable as the database: with ``PRAGMA synchronous=OFF``, or on a network file system without
   working locks, neither the data nor the token is safe.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.guards.tokens import (
    DEFAULT_TABLE,
    checked_resource,
    checked_table,
    checked_token,
    checked_write_number,
    refuse_lower,
    stale_write,
)

Params = Sequence[Any] | Mapping[str, Any]

DEFAULT_TIMEOUT_S = 10.0

_SAVEPOINT = "fencing_tokens_checked"
"""Gone when its transaction has ended, also when the next one has begun implicitly."""


class SqliteGuard:
    """Guards ``resource`` in a database file, or in that of a connection.

    Args:
        database: a path, or a connection outside any transaction.
        resource: what is guarded, named as you like; each has its own highest token.
        table: where the tokens are kept.
        timeout_s: how long to wait for other writers; only with a path.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | sqlite3.Connection,
        resource: str,
        *,
        table: str = DEFAULT_TABLE,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.resource = checked_resource(resource)
        self._database = database
        self._timeout_s = timeout_s
        name = checked_table(table)
        self._create = (
            f"CREATE TABLE IF NOT EXISTS {name} (resource TEXT NOT NULL PRIMARY KEY, "
            f"token INTEGER NOT NULL CHECK (typeof(token) = 'integer'), "
            f"write_token INTEGER NOT NULL DEFAULT 0, write_number INTEGER NOT NULL DEFAULT 0) "
            f"WITHOUT ROWID"
        )
        self._raise = (
            f"INSERT INTO {name} (resource, token) VALUES (?, ?) "  # noqa: S608 (a checked name)
            f"ON CONFLICT (resource) DO UPDATE SET token = max(token, excluded.token)"
        )
        self._read = f"SELECT token FROM {name} WHERE resource = ?"  # noqa: S608
        self._number = (
            f"UPDATE {name} SET write_token = ?1, write_number = ?2 "  # noqa: S608
            f"WHERE resource = ?3 AND (write_token <> ?1 OR write_number < ?2)"
        )
        self._read_number = f"SELECT write_number FROM {name} WHERE resource = ?"  # noqa: S608

    def create_table(self) -> None:
        """Create the table of tokens, unless it is there."""
        with self._idle() as connection, _immediate(connection) as cursor:
            cursor.execute(self._create)

    def check(
        self, connection: sqlite3.Connection, token: int, *, write_number: int | None = None
    ) -> None:
        """Check ``token`` in the transaction that is open on ``connection``, until it ends.

        Raises:
            StaleTokenError: a higher token has been seen; roll back.
            StaleWriteError: this write number or a higher one has been seen under it; roll back.
            BadArgumentsError: no transaction is open, so the check would not last until the write.
        """
        token, number = checked_token(token), checked_write_number(write_number)
        with closing(_plain_cursor(connection)) as cursor:
            cursor.execute(self._raise, (self.resource, token))
            if not connection.in_transaction:
                raise BadArgumentsError(
                    "check: expected an open transaction, found a connection in autocommit mode "
                    "outside one: the check ended before your write began. Execute BEGIN IMMEDIATE."
                )
            (highest,) = cursor.execute(self._read, (self.resource,)).fetchone()
            refuse_lower(self.resource, token, highest)
            if number is not None:
                cursor.execute(self._number, (token, number, self.resource))
                if cursor.rowcount == 0:
                    (seen,) = cursor.execute(self._read_number, (self.resource,)).fetchone()
                    raise stale_write(self.resource, token, number, seen)

    @contextmanager
    def transaction(
        self, token: int, *, write_number: int | None = None
    ) -> Iterator[sqlite3.Cursor]:
        """Begin, check ``token``, give a cursor for the writes, commit; roll back on any error."""
        token, number = checked_token(token), checked_write_number(write_number)
        with self._idle() as connection, _immediate(connection) as cursor:
            self.check(connection, token, write_number=number)
            cursor.execute(f"SAVEPOINT {_SAVEPOINT}")
            yield cursor
            self._expect_same_transaction(connection)

    def write(
        self, token: int, statement: str, params: Params = (), *, write_number: int | None = None
    ) -> int:
        """Execute one statement under ``token``; return how many rows it touched."""
        with self.transaction(token, write_number=write_number) as cursor:
            return cursor.execute(statement, params).rowcount

    def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``."""
        with self.transaction(token):
            pass

    def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        with self._idle() as connection, closing(_plain_cursor(connection)) as cursor:
            row = cursor.execute(self._read, (self.resource,)).fetchone()
            return None if row is None else int(row[0])

    def _expect_same_transaction(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute(f"RELEASE {_SAVEPOINT}")
        except sqlite3.OperationalError as error:
            if "no such savepoint" not in str(error):
                raise
            raise BadArgumentsError(
                f"{self.resource}: the transaction ended inside the body, by commit(), rollback() "
                f"or executescript(); what came after it was not guarded, and is rolled back "
                f"unless it was committed, too"
            ) from error

    @contextmanager
    def _idle(self) -> Iterator[sqlite3.Connection]:
        if not isinstance(self._database, sqlite3.Connection):
            with closing(sqlite3.connect(self._database, timeout=self._timeout_s)) as connection:
                yield connection
            return
        if self._database.in_transaction:
            raise BadArgumentsError(
                "expected a connection outside a transaction, found one inside: what the guard "
                "writes would be committed only with that one. Inside a transaction of your own "
                "use check(connection, token)."
            )
        yield self._database


@contextmanager
def _immediate(connection: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """Run the body in a transaction that has the write lock from its beginning."""
    with closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
            cursor.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise


def _plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor whose rows are tuples, whatever the connection makes of its own."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return cursor
