"""The guard of MySQL and MariaDB: the token's row is locked from the check until the commit.

::

    guard = MysqlGuard(connection, "accounts/17")             # a PyMySQL connection
    guard.create_table()                                      # once, where the schema is made

    guard.write(grant.fencing_token, "UPDATE accounts SET cents = %s WHERE id = 17", [500])

    with guard.transaction(grant.fencing_token) as cursor:    # several statements
        cursor.execute(...)

    connection.begin()                                        # a transaction of your own
    guard.check(connection, grant.fencing_token)
    ...
    connection.commit()

1. The first statement raises the row to the greater of both tokens and locks it; the second, a
   locking read, says which it is, whatever the isolation level (an ordinary read would answer from
   the snapshot of a repeatable read). A transaction with another token waits at that row until this
   one has ended.
2. What you write must be transactional: InnoDB tables, and no statement with an implicit commit
   (most DDL). If the transaction ended inside the body, that is reported as an error.
3. Errors of the store (a deadlock, a lock wait timeout, a lost connection in the commit) are raised
   as PyMySQL's own. A lost connection leaves the outcome unknown.
4. A holder that is stopped inside its transaction keeps the others waiting, until
   ``innodb_lock_wait_timeout`` ends their wait with an error.

PyMySQL has no asyncio API, so there is none here; a ``Lock`` on asyncio raises the guard in a
thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.guards.extras import missing_extra
from coordinator.guards.tokens import (
    DEFAULT_TABLE,
    checked_resource,
    checked_table,
    checked_token,
    checked_write_number,
    refuse_lower,
    stale_write,
)

try:
    from pymysql.connections import Connection
    from pymysql.constants.ER import SP_DOES_NOT_EXIST
    from pymysql.constants.SERVER_STATUS import SERVER_STATUS_IN_TRANS
    from pymysql.cursors import Cursor
    from pymysql.err import MySQLError
except ImportError as error:
    raise missing_extra("MysqlGuard", "mysql") from error

Params = Sequence[Any] | Mapping[str, Any] | None

_SAVEPOINT = "fencing_tokens_checked"
"""Gone when its transaction has ended, also when the next one has begun implicitly."""


class MysqlGuard:
    """Guards ``resource`` in the database of a PyMySQL connection.

    The connection must be outside any transaction when ``write``, ``transaction`` or ``raise_to``
    is called: they begin and commit their own. Like the connection, use it from one thread at a
    time.
    """

    def __init__(
        self, connection: Connection[Any], resource: str, *, table: str = DEFAULT_TABLE
    ) -> None:
        self.resource = checked_resource(resource)
        self._connection = connection
        # Bytes, not text: most collations take "a" and "A", or "a" and "a ", for the same.
        self._key = resource.encode()
        name = ".".join(f"`{part}`" for part in checked_table(table).split("."))
        self._create = (
            f"CREATE TABLE IF NOT EXISTS {name} ("
            f"resource VARBINARY(500) NOT NULL PRIMARY KEY, token BIGINT NOT NULL, "
            f"write_token BIGINT NOT NULL DEFAULT 0, write_number BIGINT NOT NULL DEFAULT 0) "
            f"ENGINE=InnoDB"
        )
        self._raise = (
            f"INSERT INTO {name} (resource, token) VALUES (%s, %s) "  # noqa: S608 (a checked name)
            f"ON DUPLICATE KEY UPDATE token = GREATEST(token, %s)"
        )
        self._read = f"SELECT token FROM {name} WHERE resource = %s"  # noqa: S608
        self._number = (
            f"UPDATE {name} SET write_token = %s, write_number = %s "  # noqa: S608
            f"WHERE resource = %s AND (write_token <> %s OR write_number < %s)"
        )
        self._read_number = f"SELECT write_number FROM {name} WHERE resource = %s"  # noqa: S608

    def create_table(self) -> None:
        """Create the table of tokens, unless it is there. Commits, as every DDL here does."""
        self._expect_idle()
        with self._connection.cursor(Cursor) as cursor:
            cursor.execute(self._create)

    def check(
        self, connection: Connection[Any], token: int, *, write_number: int | None = None
    ) -> None:
        """Check ``token`` in the transaction that is open on ``connection``, until it ends.

        Raises:
            StaleTokenError: a higher token has been seen; roll back.
            StaleWriteError: this write number or a higher one has been seen under it; roll back.
            BadArgumentsError: no transaction is open, so the check would not last until the write.
        """
        token, number = checked_token(token), checked_write_number(write_number)
        with connection.cursor(Cursor) as cursor:
            cursor.execute(self._raise, (self._key, token, token))
            if not _is_in_transaction(connection):
                raise BadArgumentsError(
                    "check: expected an open transaction, found a connection in autocommit mode "
                    "outside one: the check ended before your write began. Use begin()."
                )
            cursor.execute(self._read + " FOR UPDATE", (self._key,))
            refuse_lower(self.resource, token, _number_of(cursor))
            if number is None:
                return
            if cursor.execute(self._number, (token, number, self._key, token, number)) == 0:
                cursor.execute(self._read_number + " FOR UPDATE", (self._key,))
                raise stale_write(self.resource, token, number, _number_of(cursor))

    @contextmanager
    def transaction(self, token: int, *, write_number: int | None = None) -> Iterator[Cursor]:
        """Begin, check ``token``, give a cursor for the writes, commit; roll back on any error."""
        token, number = checked_token(token), checked_write_number(write_number)
        self._expect_idle()
        self._connection.begin()
        try:
            self.check(self._connection, token, write_number=number)
            self._connection.query(f"SAVEPOINT {_SAVEPOINT}")
            with self._connection.cursor() as cursor:
                yield cursor
            self._expect_same_transaction()
            self._connection.commit()
        except BaseException:
            self._roll_back()
            raise

    def write(
        self, token: int, statement: str, params: Params = None, *, write_number: int | None = None
    ) -> int:
        """Execute one statement under ``token``; return how many rows it touched."""
        with self.transaction(token, write_number=write_number) as cursor:
            return cursor.execute(statement, params)

    def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``."""
        with self.transaction(token):
            pass

    def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        self._expect_idle()
        self._connection.begin()  # a snapshot of now
        try:
            with self._connection.cursor(Cursor) as cursor:
                cursor.execute(self._read, (self._key,))
                row = cursor.fetchone()
        finally:
            self._roll_back()
        return int(row[0]) if row else None

    def _expect_idle(self) -> None:
        if self._connection.open and _is_in_transaction(self._connection):
            raise BadArgumentsError(
                "expected a connection outside a transaction, found one inside: beginning another "
                "would commit it. Inside a transaction of your own use check(connection, token)."
            )

    def _expect_same_transaction(self) -> None:
        try:
            self._connection.query(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        except MySQLError as error:
            if error.args[:1] != (SP_DOES_NOT_EXIST,):
                raise
            raise BadArgumentsError(
                f"{self.resource}: the transaction ended inside the body, by commit(), rollback(), "
                f"a deadlock or a statement with an implicit commit; what came after it was not "
                f"guarded, and is rolled back unless it was committed, too"
            ) from error

    def _roll_back(self) -> None:
        if self._connection.open:  # closed: the server rolls back
            self._connection.rollback()


def _is_in_transaction(connection: Connection[Any]) -> bool:
    status: int = getattr(connection, "server_status", 0)  # of the last answer; not in the stubs
    return bool(status & SERVER_STATUS_IN_TRANS)


def _number_of(cursor: Cursor) -> int:
    row = cursor.fetchone()
    assert row is not None, "the row was written by the statement before"
    return int(row[0])
