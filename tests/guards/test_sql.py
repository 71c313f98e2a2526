"""What the SQL guards have beyond the conformance kit: transactions of yours, and their misuse."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
import pytest
from psycopg.rows import dict_row

from coordinator.errors import BadArgumentsError, StaleTokenError, StaleWriteError
from coordinator.guards import AsyncPostgresGuard, MysqlGuard, PostgresGuard, SqliteGuard
from tests.guards.values import mariadb_connection, postgres_connection

CREATE = "CREATE TABLE IF NOT EXISTS words (token INTEGER NOT NULL, word VARCHAR(20))"


class Database:
    """One SQL store: connections in its three shapes, and the guard made of one."""

    def __init__(self, kind: str, place: Path) -> None:
        self.kind, self.place = kind, place
        self.mark = "?" if kind == "sqlite" else "%s"
        self.insert = "INSERT INTO words VALUES (?, ?)".replace("?", self.mark)

    def connect(self, *, autocommit: bool = False) -> Any:
        if self.kind == "postgresql":
            return postgres_connection(self.place, autocommit=autocommit)
        if self.kind == "mariadb":
            return mariadb_connection(self.place, autocommit=autocommit)
        return sqlite3.connect(self.place, isolation_level=None if autocommit else "")

    def guard(self, connection: Any, resource: str = "lines") -> Any:
        kinds = {"postgresql": PostgresGuard, "mariadb": MysqlGuard, "sqlite": SqliteGuard}
        return kinds[self.kind](connection, resource)

    def lines(self, connection: Any) -> list[tuple[int, str]]:
        with closing(connection.cursor()) as cursor:
            cursor.execute("SELECT token, word FROM words ORDER BY word")
            rows = [tuple(row) for row in cursor.fetchall()]
        connection.rollback()
        return rows


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    """Each store in turn, with empty tables."""
    if request.param == "sqlite":
        place = request.getfixturevalue("memory_path") / "data.db"
    else:
        place = request.getfixturevalue(request.param)
    database = Database(request.param, place)
    with closing(database.connect(autocommit=True)) as connection:
        if request.param == "sqlite":
            connection.execute("PRAGMA journal_mode=WAL")  # readers keep their snapshot
        database.guard(connection).create_table()
        for statement in (CREATE, "DELETE FROM words", "DELETE FROM fencing_tokens"):
            connection.cursor().execute(statement)
    return database


@pytest.fixture
def connection(database: Database) -> Iterator[Any]:
    with closing(database.connect()) as connection:
        yield connection


def test_write_tells_how_many_rows_it_touched(database: Database, connection: Any) -> None:
    """As the cursor's rowcount does."""
    guard = database.guard(connection)
    guard.write(7, database.insert, (7, "a"))
    guard.write(7, database.insert, (7, "b"))

    assert guard.write(8, "UPDATE words SET token = 8") == 2
    assert guard.highest_token() == 8
    assert database.lines(connection) == [(8, "a"), (8, "b")]


def test_several_statements_are_one_transaction(database: Database, connection: Any) -> None:
    """All of them under one check; none if the body fails, and then not even the token."""
    guard = database.guard(connection)
    with guard.transaction(7) as cursor:
        cursor.execute(database.insert, (7, "a"))
        cursor.execute(database.insert, (7, "b"))

    def insert_and_fail() -> None:
        with guard.transaction(8) as cursor:
            cursor.execute(database.insert, (8, "c"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()

    assert database.lines(connection) == [(7, "a"), (7, "b")]
    assert guard.highest_token() == 7


def test_a_write_that_failed_has_not_used_up_its_number(
    database: Database, connection: Any
) -> None:
    """The number is committed with the write, or not at all."""
    guard = database.guard(connection)
    guard.write(7, database.insert, (7, "a"), write_number=1)

    def insert_and_fail() -> None:
        with guard.transaction(7, write_number=2) as cursor:
            cursor.execute(database.insert, (7, "b"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    guard.write(7, database.insert, (7, "c"), write_number=2)
    with pytest.raises(StaleWriteError, match="write 2 under token 7"):
        guard.write(7, database.insert, (7, "d"), write_number=2)

    assert database.lines(connection) == [(7, "a"), (7, "c")]


def test_a_table_of_before_serves_until_a_number_is_used(
    database: Database, connection: Any
) -> None:
    """It has no column for it; then the store says so, and one statement of the docs adds it."""
    cursor = connection.cursor()
    cursor.execute("DROP TABLE IF EXISTS former")
    cursor.execute("CREATE TABLE former (resource VARCHAR(99) PRIMARY KEY, token BIGINT NOT NULL)")
    connection.commit()
    guard = type(database.guard(connection))(connection, "lines", table="former")
    guard.create_table()
    guard.write(7, database.insert, (7, "a"))

    with pytest.raises(Exception, match="write_token"):
        guard.write(7, database.insert, (7, "b"), write_number=1)
    connection.rollback()
    for column in ("write_token", "write_number"):
        cursor.execute(f"ALTER TABLE former ADD COLUMN {column} BIGINT NOT NULL DEFAULT 0")
    connection.commit()
    guard.write(7, database.insert, (7, "c"), write_number=1)

    assert database.lines(connection) == [(7, "a"), (7, "c")]


def test_the_body_of_a_refused_transaction_does_not_run(
    database: Database, connection: Any
) -> None:
    """The check comes first; the connection is usable afterwards."""
    guard = database.guard(connection)
    guard.raise_to(8)

    expected = pytest.raises(StaleTokenError, match=r"lines: token 7 is stale, 8 has been seen")
    with expected, guard.transaction(7):
        pytest.fail("the body ran")

    guard.write(8, database.insert, (8, "a"))
    assert database.lines(connection) == [(8, "a")]


def test_a_check_joins_a_transaction_of_yours(database: Database, connection: Any) -> None:
    """What was written before the check is rolled back with it when it is refused."""
    guard = database.guard(connection)
    with closing(connection.cursor()) as cursor:
        guard.check(connection, 7)
        cursor.execute(database.insert, (7, "a"))
        connection.commit()
        guard.raise_to(8)

        cursor.execute(database.insert, (7, "b"))
        with pytest.raises(StaleTokenError):
            guard.check(connection, 7)
        connection.rollback()

    assert database.lines(connection) == [(7, "a")]


def test_a_check_that_would_end_before_the_write_is_refused(database: Database) -> None:
    """In autocommit mode outside a transaction a check protects nothing."""
    with closing(database.connect(autocommit=True)) as connection:
        with pytest.raises(BadArgumentsError, match="autocommit"):
            database.guard(connection).check(connection, 7)

        begin = "BEGIN IMMEDIATE" if database.kind == "sqlite" else "BEGIN"
        connection.cursor().execute(begin)
        database.guard(connection).check(connection, 7)
        connection.rollback()


def test_a_guard_does_not_begin_inside_a_transaction_of_yours(
    database: Database, connection: Any
) -> None:
    """There its own commit would be none, or would be yours."""
    guard = database.guard(connection)
    guard.check(connection, 7)  # opens one

    for call in (lambda: guard.raise_to(8), lambda: guard.write(8, database.insert, (8, "a"))):
        with pytest.raises(BadArgumentsError, match="use check"):
            call()
    connection.rollback()

    guard.raise_to(8)


def test_two_guards_in_one_transaction(database: Database, connection: Any) -> None:
    """A write that concerns two resources is checked for both, each with its own lock's token."""
    first, second = database.guard(connection, "a"), database.guard(connection, "b")
    second.raise_to(50)

    def write(token: int, second_token: int) -> None:
        with first.transaction(token) as cursor:
            cursor.execute(database.insert, (token, "a word"))
            second.check(connection, second_token)

    with pytest.raises(StaleTokenError, match="b: token 49"):
        write(7, 49)
    write(8, 50)

    assert database.lines(connection) == [(8, "a word")]


def test_resources_are_told_apart_to_the_byte(database: Database, connection: Any) -> None:
    """Case, trailing spaces and accents differ, whatever the collation says."""
    names = ["a", "A", "a ", "á", "a\u0301"]
    for token, name in enumerate(names, 1):
        database.guard(connection, name).raise_to(token)

    seen = [database.guard(connection, name).highest_token() for name in names]

    assert seen == [1, 2, 3, 4, 5]


def test_a_commit_inside_the_body_is_an_error(database: Database, connection: Any) -> None:
    """What comes after it would not be guarded; it is told instead of passing silently."""
    guard = database.guard(connection)

    with (
        pytest.raises((BadArgumentsError, psycopg.ProgrammingError)),
        guard.transaction(7),
    ):
        connection.commit()


def test_a_statement_with_an_implicit_commit_is_an_error_in_mariadb(mariadb: Path) -> None:
    """DDL ends the transaction there, so the rest of the body would not be guarded."""
    database = Database("mariadb", mariadb)
    with closing(database.connect()) as connection:
        guard = database.guard(connection)
        guard.create_table()

        with (
            pytest.raises(BadArgumentsError, match="implicit commit"),
            guard.transaction(7) as cursor,
        ):
            cursor.execute("CREATE TABLE IF NOT EXISTS other (n INTEGER)")


def test_nothing_is_written_after_a_commit_inside_the_body(
    database: Database, connection: Any
) -> None:
    """The next statement begins another transaction by itself, which no check keeps apart."""
    guard = database.guard(connection)
    with closing(database.connect()) as other:

        def write_late() -> None:
            with guard.transaction(7) as cursor:
                cursor.execute(database.insert, (7, "a"))
                connection.commit()
                database.guard(other).write(8, database.insert, (8, "b"))
                cursor.execute(database.insert, (7, "c"))

        with pytest.raises((BadArgumentsError, psycopg.ProgrammingError)):
            write_late()

    assert (7, "c") not in database.lines(connection)


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize(
    "ending", ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN", "COMMIT; SELECT 1", "COMMIT; BEGIN"]
)
def test_an_end_by_a_statement_is_an_error_in_postgresql(
    postgresql: Path, ending: Any, autocommit: bool
) -> None:
    """psycopg sees no such end; neither at the end of the body nor before another statement."""
    database = Database("postgresql", postgresql)
    with closing(database.connect(autocommit=autocommit)) as connection:
        guard = PostgresGuard(connection, "ended")
        guard.create_table()
        with (
            pytest.raises(BadArgumentsError, match="ended inside the body"),
            guard.transaction(7) as cursor,
        ):
            cursor.execute(ending)
        with pytest.raises(BadArgumentsError, match="ended inside the body"):
            guard.write(7, ending)

        def write_late() -> None:
            with guard.transaction(7) as cursor:
                cursor.execute(ending)
                cursor.execute("SELECT 1")

        with pytest.raises(BadArgumentsError, match="ended inside the body"):
            write_late()
        guard.write(7, "SELECT 1")  # and it is as good as before


@pytest.mark.parametrize("ending", ["COMMIT", "COMMIT AND CHAIN"])
async def test_an_end_by_a_statement_is_an_error_with_asyncio_too(
    postgresql: Path, ending: Any
) -> None:
    """What came after it is not committed."""
    conninfo = f"host={postgresql} user=tester dbname=postgres"
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        guard = AsyncPostgresGuard(connection, "ended")
        await guard.create_table()

        async def write_late() -> None:
            async with guard.transaction(7) as cursor:
                await cursor.execute(ending)
                await cursor.execute("SELECT 1")

        with pytest.raises(BadArgumentsError, match="ended inside the body"):
            await write_late()


def test_a_write_number_is_used_once_in_a_pipeline_too(postgresql: Path) -> None:
    """Where psycopg does not know how many rows a statement touched until its results are read."""
    database = Database("postgresql", postgresql)
    with closing(database.connect()) as connection:
        guard = PostgresGuard(connection, "pipelined")
        guard.create_table()
        guard.write(7, "SELECT 1", write_number=1)

        with (
            connection.pipeline(),
            pytest.raises(StaleWriteError, match="write 1 under token 7"),
            connection.transaction(),
        ):
            guard.check(connection, 7, write_number=1)


def test_a_repeatable_read_sees_no_old_token(database: Database, connection: Any) -> None:
    """A transaction whose snapshot is older than the raise is refused all the same."""
    guard = database.guard(connection)
    guard.raise_to(7)
    with closing(database.connect()) as other, closing(other.cursor()) as cursor:
        if database.kind == "postgresql":
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if database.kind == "sqlite":
            cursor.execute("BEGIN")
        cursor.execute("SELECT token FROM words")
        cursor.fetchall()  # the snapshot is taken
        guard.raise_to(8)

        with pytest.raises((StaleTokenError, psycopg.Error, sqlite3.OperationalError)):
            database.guard(other).check(other, 7)
        other.rollback()


def test_rows_of_your_own_shape_do_not_confuse_the_guard(postgresql: Path) -> None:
    """A connection that makes dictionaries of rows, in PostgreSQL and in SQLite."""
    with postgres_connection(postgresql, row_factory=dict_row) as connection:
        guard = PostgresGuard(connection, "shapes")
        guard.create_table()
        guard.raise_to(7)
        assert guard.highest_token() == 7
        with guard.transaction(7) as cursor:
            assert cursor.execute("SELECT 1 AS one").fetchone() == {"one": 1}

    with closing(sqlite3.connect(":memory:")) as memory:
        memory.row_factory = lambda cursor, row: {"row": row}
        lite = SqliteGuard(memory, "shapes")
        lite.create_table()
        lite.raise_to(7)
        assert lite.highest_token() == 7


def test_a_pool_lends_a_connection_for_each_call(postgresql: Path) -> None:
    """One guard for all threads of a program."""
    conninfo = f"host={postgresql} user=tester dbname=postgres"
    with psycopg_pool.ConnectionPool(conninfo, min_size=1, max_size=2) as pool:
        guard = PostgresGuard(pool, "pooled")
        guard.create_table()
        guard.raise_to(7)

        with pytest.raises(StaleTokenError):
            guard.write(6, "SELECT 1")

        assert guard.write(7, "SELECT 1") == 1
        assert guard.highest_token() == 7


async def test_an_asyncio_pool_too(postgresql: Path) -> None:
    """And a transaction of your own, with await."""
    conninfo = f"host={postgresql} user=tester dbname=postgres"
    async with psycopg_pool.AsyncConnectionPool(conninfo, min_size=1, max_size=2) as pool:
        guard = AsyncPostgresGuard(pool, "pooled asyncio")
        await guard.create_table()
        await guard.raise_to(7)

        async with pool.connection() as connection, connection.transaction():
            with pytest.raises(StaleTokenError):
                await guard.check(connection, 6)
        with pytest.raises(StaleTokenError):
            await guard.write(6, "SELECT 1")

        assert await guard.write(7, "SELECT 1") == 1
        assert await guard.highest_token() == 7


def test_a_guard_of_a_path_works_in_any_thread(memory_path: Path) -> None:
    """Each call opens its own connection; ``:memory:`` would be another database each time."""
    path = memory_path / "data.db"
    SqliteGuard(path, "lines").create_table()

    def work() -> int | None:
        SqliteGuard(path, "lines").raise_to(8)
        return guard.highest_token()

    guard = SqliteGuard(str(path), "lines")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == 8
    assert guard.highest_token() == 8
