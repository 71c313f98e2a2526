"""The guard of PostgreSQL: the token's row is locked from the check until the commit.

::

    guard = PostgresGuard(connection, "accounts/17")          # or a psycopg_pool.ConnectionPool
    guard.create_table()                                      # once, where the schema is made

    guard.write(grant.fencing_token, "UPDATE accounts SET cents = %s WHERE id = 17", [500])

    with guard.transaction(grant.fencing_token) as cursor:    # several statements
        cursor.execute(...)

    with connection.transaction():                            # a transaction of your own
        guard.check(connection, grant.fencing_token)
        ...

1. One statement raises the row to the greater of both tokens, locks it and returns it. A
   transaction with another token waits at that row until this one has ended.
2. A refused check writes nothing; its transaction is rolled back.
3. Errors of the store (a serialization failure, a lost connection in the commit) are raised as
   psycopg's own. After a lost connection it is unknown whether the write happened.
4. A COMMIT or ROLLBACK that the body executes is found at its end by a savepoint that is gone.
5. A holder that is stopped inside its transaction keeps the others waiting, not failing: let the
   server end such transactions (``idle_in_transaction_session_timeout``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from typing import TYPE_CHECKING, Any, LiteralString

from coordinator.errors import BadArgumentsError, StaleWriteError
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
    from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor
    from psycopg.errors import InvalidSavepointSpecification, NoActiveSqlTransaction
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row
    from psycopg.sql import SQL, Identifier
except ImportError as error:
    raise missing_extra("PostgresGuard", "postgresql") from error

if TYPE_CHECKING:
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

Params = Sequence[Any] | Mapping[str, Any] | None

_SAVE, _RELEASE = "SAVEPOINT fencing_tokens_checked", "RELEASE SAVEPOINT fencing_tokens_checked"
"""Gone when its transaction has ended, also when the next one has begun implicitly."""
_GONE = (InvalidSavepointSpecification, NoActiveSqlTransaction)


class _Statements:
    """The SQL of one table, and what it is asked about one resource."""

    def __init__(self, resource: str, table: str) -> None:
        self.resource = checked_resource(resource)
        table_name = Identifier(*checked_table(table).split("."))
        self.create = SQL(
            "CREATE TABLE IF NOT EXISTS {} ("
            "resource text PRIMARY KEY, token bigint NOT NULL CHECK (token > 0), "
            "write_token bigint NOT NULL DEFAULT 0, write_number bigint NOT NULL DEFAULT 0)"
        ).format(table_name)
        self.raise_ = SQL(
            "INSERT INTO {} AS seen (resource, token) VALUES (%s, %s) "
            "ON CONFLICT (resource) DO UPDATE SET token = GREATEST(seen.token, excluded.token) "
            "RETURNING token"
        ).format(table_name)
        self.read = SQL("SELECT token FROM {} WHERE resource = %s").format(table_name)
        self.number = SQL(
            "UPDATE {} SET write_token = %(token)s, write_number = %(number)s "
            "WHERE resource = %(resource)s "
            "AND (write_token <> %(token)s OR write_number < %(number)s) RETURNING write_number"
        ).format(table_name)
        self.read_number = SQL("SELECT write_number FROM {} WHERE resource = %s").format(table_name)

    def refuse_lower(self, token: int, row: tuple[Any, ...] | None) -> None:
        assert row is not None, "an upsert returns its row"
        refuse_lower(self.resource, token, row[0])

    def numbered(self, token: int, number: int) -> dict[str, Any]:
        """Return what ``number`` is executed with."""
        return {"token": token, "number": number, "resource": self.resource}

    def ended_inside(self) -> BadArgumentsError:
        return BadArgumentsError(
            f"{self.resource}: the transaction ended inside the body, by a COMMIT or ROLLBACK that "
            f"was executed there; what came after it was not guarded, and is rolled back unless it "
            f"was committed, too"
        )

    def stale_write(self, token: int, number: int, row: tuple[Any, ...] | None) -> StaleWriteError:
        assert row is not None, "its token was written before"
        return stale_write(self.resource, token, number, row[0])


class PostgresGuard:
    """Guards ``resource`` in the database of a psycopg connection, or of a pool of them.

    A connection must be outside any transaction when ``write``, ``transaction`` or ``raise_to`` is
    called: they begin and commit their own.
    """

    def __init__(
        self,
        connections: Connection[Any] | ConnectionPool[Any],
        resource: str,
        *,
        table: str = DEFAULT_TABLE,
    ) -> None:
        self.resource = resource
        self._connections = connections
        self._sql = _Statements(resource, table)

    def create_table(self) -> None:
        """Create the table of tokens, unless it is there."""
        with self._idle() as connection, connection.transaction():
            connection.execute(self._sql.create)

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
        _expect_transaction(connection)
        with connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(self._sql.raise_, (self.resource, token))
            self._sql.refuse_lower(token, cursor.fetchone())
            if number is None:
                return
            cursor.execute(self._sql.number, self._sql.numbered(token, number))
            if cursor.fetchone() is None:  # a pipeline does not know its rowcount yet
                cursor.execute(self._sql.read_number, (self.resource,))
                raise self._sql.stale_write(token, number, cursor.fetchone())

    @contextmanager
    def transaction(self, token: int, *, write_number: int | None = None) -> Iterator[Cursor[Any]]:
        """Begin, check ``token``, give a cursor for the writes, commit; roll back on any error."""
        token, number = checked_token(token), checked_write_number(write_number)
        with self._idle() as connection, connection.transaction():
            self.check(connection, token, write_number=number)
            connection.execute(_SAVE)
            with connection.cursor() as cursor:
                yield cursor
            try:
                connection.execute(_RELEASE)
            except _GONE as error:
                raise self._sql.ended_inside() from error

    def write(
        self,
        token: int,
        statement: LiteralString,
        params: Params = None,
        *,
        write_number: int | None = None,
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
        with self._idle() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            with connection.transaction():
                row = cursor.execute(self._sql.read, (self.resource,)).fetchone()
            return row[0] if row else None

    @contextmanager
    def _idle(self) -> Iterator[Connection[Any]]:
        borrowed: AbstractContextManager[Connection[Any]]
        if isinstance(self._connections, Connection):
            borrowed = nullcontext(self._connections)
        else:
            borrowed = self._connections.connection()
        with borrowed as connection:
            _expect_idle(connection)
            yield connection


class AsyncPostgresGuard:
    """PostgresGuard for an AsyncConnection or an AsyncConnectionPool; its methods are awaited."""

    def __init__(
        self,
        connections: AsyncConnection[Any] | AsyncConnectionPool[Any],
        resource: str,
        *,
        table: str = DEFAULT_TABLE,
    ) -> None:
        self.resource = resource
        self._connections = connections
        self._sql = _Statements(resource, table)

    async def create_table(self) -> None:
        """Create the table of tokens, unless it is there."""
        async with self._idle() as connection, connection.transaction():
            await connection.execute(self._sql.create)

    async def check(
        self, connection: AsyncConnection[Any], token: int, *, write_number: int | None = None
    ) -> None:
        """Check ``token`` in the transaction that is open on ``connection``; see PostgresGuard."""
        token, number = checked_token(token), checked_write_number(write_number)
        _expect_transaction(connection)
        async with connection.cursor(row_factory=tuple_row) as cursor:
            await cursor.execute(self._sql.raise_, (self.resource, token))
            self._sql.refuse_lower(token, await cursor.fetchone())
            if number is None:
                return
            await cursor.execute(self._sql.number, self._sql.numbered(token, number))
            if await cursor.fetchone() is None:  # a pipeline does not know its rowcount yet
                await cursor.execute(self._sql.read_number, (self.resource,))
                raise self._sql.stale_write(token, number, await cursor.fetchone())

    @asynccontextmanager
    async def transaction(
        self, token: int, *, write_number: int | None = None
    ) -> AsyncIterator[AsyncCursor[Any]]:
        """Begin, check ``token``, give a cursor for the writes, commit; roll back on any error."""
        token, number = checked_token(token), checked_write_number(write_number)
        async with self._idle() as connection, connection.transaction():
            await self.check(connection, token, write_number=number)
            await connection.execute(_SAVE)
            async with connection.cursor() as cursor:
                yield cursor
            try:
                await connection.execute(_RELEASE)
            except _GONE as error:
                raise self._sql.ended_inside() from error

    async def write(
        self,
        token: int,
        statement: LiteralString,
        params: Params = None,
        *,
        write_number: int | None = None,
    ) -> int:
        """Execute one statement under ``token``; return how many rows it touched."""
        async with self.transaction(token, write_number=write_number) as cursor:
            await cursor.execute(statement, params)
            return cursor.rowcount

    async def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``."""
        async with self.transaction(token):
            pass

    async def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        async with self._idle() as connection, connection.cursor(row_factory=tuple_row) as cursor:
            async with connection.transaction():
                await cursor.execute(self._sql.read, (self.resource,))
                row = await cursor.fetchone()
            return row[0] if row else None

    @asynccontextmanager
    async def _idle(self) -> AsyncIterator[AsyncConnection[Any]]:
        borrowed: AbstractAsyncContextManager[AsyncConnection[Any]]
        if isinstance(self._connections, AsyncConnection):
            borrowed = nullcontext(self._connections)
        else:
            borrowed = self._connections.connection()
        async with borrowed as connection:
            _expect_idle(connection)
            yield connection


def _expect_transaction(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    is_idle = connection.info.transaction_status is TransactionStatus.IDLE
    if connection.autocommit and is_idle:
        raise BadArgumentsError(
            "check: expected an open transaction, found a connection in autocommit mode outside "
            "one: the check would end before your write begins. Use connection.transaction()."
        )


def _expect_idle(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    status = connection.info.transaction_status
    if status is not TransactionStatus.IDLE:
        raise BadArgumentsError(
            f"expected a connection outside a transaction, found it {status.name}: what the guard "
            f"writes would be committed only with that one. Inside a transaction of your own use "
            f"check(connection, token)."
        )
