"""The examples of docs/guards.md that need a server, run with one; tests/docs runs the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from coordinator import connect
from coordinator.guards.postgresql import PostgresGuard
from tests.client.server_thread import serving
from tests.guards.servers import OBJECT_KEY
from tests.guards.values import mariadb_connection, postgres_connection, s3_client

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guards.md"
BLOCKS = re.findall(
    r"<!-- not run: [^>]*test_documentation[^>]*-->\n```python\n(.*?)^```",
    PAGE.read_text(),
    re.M | re.S,
)
Run = Callable[..., None]


def block_with(word: str) -> str:
    (block,) = [block for block in BLOCKS if word in block]
    return str(block)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture
def run(url: str) -> Iterator[Run]:
    """Run the block that has a word, with a client and what else it is given."""
    with connect(url) as client:

        def run(word: str, **names: Any) -> None:
            exec(compile(block_with(word), word, "exec"), {"client": client, **names})  # noqa: S102

        yield run


def test_postgresql(run: Run, postgresql: Path) -> None:
    """As it stands, with the two tables of the example."""
    with postgres_connection(postgresql) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS accounts (id int, cents int)")
        connection.execute("CREATE TABLE IF NOT EXISTS bookings (account int, cents int)")
        connection.execute("INSERT INTO accounts VALUES (17, 100)")

    run("PostgresGuard", conninfo=f"host={postgresql} user=tester dbname=postgres")

    with postgres_connection(postgresql) as connection:
        assert connection.execute("SELECT cents FROM accounts").fetchall() == [(450,)]


def test_mariadb(run: Run, mariadb: Path) -> None:
    """As it stands."""
    with closing(mariadb_connection(mariadb, autocommit=True)) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE accounts (id int, cents int) ENGINE=InnoDB")
        cursor.execute("INSERT INTO accounts VALUES (17, 100)")

        run(
            "MysqlGuard",
            options={"unix_socket": str(mariadb), "user": "root", "database": "tests"},
        )

        cursor.execute("SELECT cents FROM accounts")
        assert cursor.fetchall() == ((450,),)


def test_redis(run: Run, redis_server: Path) -> None:
    """As it stands."""
    run("RedisGuard", options={"unix_socket_path": str(redis_server)})


def test_s3(run: Run, object_store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands, with MinIO or moto's."""
    s3_client(object_store).create_bucket(Bucket="reports")
    keys = {"aws_access_key_id": OBJECT_KEY, "aws_secret_access_key": OBJECT_KEY}

    run("S3Guard", options={"endpoint_url": object_store, "region_name": "us-east-1"} | keys)

    assert "b'...'" in capsys.readouterr().out


def test_http(run: Run, served: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands, with a proxy and a service."""
    run("HttpGuard", proxy=served)

    assert "201" in capsys.readouterr().out


def test_every_example_that_tests_docs_leaves_out_is_run_here() -> None:
    """A sixth one needs a test of its own."""
    assert len(BLOCKS) == 5


def test_the_tables_are_as_the_page_says(postgresql: Path) -> None:
    """The DDL of the page makes a table that the guard works with."""
    (ddl,) = re.findall(
        r"^CREATE TABLE fencing_tokens \(resource text[^;]*;$", PAGE.read_text(), re.M
    )
    with postgres_connection(postgresql, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA documented")
        connection.execute(ddl.replace("fencing_tokens", "documented.fencing_tokens"))
        guard = PostgresGuard(connection, "a", table="documented.fencing_tokens")
        guard.raise_to(7)

        assert guard.write(7, "SELECT 1", write_number=1) == 1
