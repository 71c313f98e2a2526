"""Every guard of every store passes every trial of the conformance kit, against a real server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coordinator.guards import MysqlGuard, PostgresGuard
from coordinator.guards.conformance import NUMBER_TRIALS, TRIALS, Trial, try_guard
from tests.guards.object_store import Store
from tests.guards.values import (
    BUCKET,
    AwaitedInPostgres,
    AwaitedInRedis,
    InFile,
    InMariadb,
    InPostgres,
    InRedis,
    InS3,
    InSqlite,
    mariadb_connection,
    postgres_connection,
    s3_client,
)

ALL = (*TRIALS, *NUMBER_TRIALS)
each_trial = pytest.mark.parametrize("trial", ALL, ids=lambda trial: trial.name)
Opened = Callable[[str], Any]


@pytest.fixture(scope="module")
def postgres_tables(postgresql: Path) -> Path:
    with postgres_connection(postgresql) as connection:
        PostgresGuard(connection, "any").create_table()
        connection.execute("CREATE TABLE IF NOT EXISTS data (name text PRIMARY KEY, value text)")
    return postgresql


@pytest.fixture(scope="module")
def mariadb_tables(mariadb: Path) -> Path:
    connection = mariadb_connection(mariadb)
    MysqlGuard(connection, "any").create_table()
    connection.cursor().execute(
        "CREATE TABLE IF NOT EXISTS data (name VARBINARY(500) PRIMARY KEY, value TEXT)"
        " ENGINE=InnoDB"
    )
    connection.close()
    return mariadb


@pytest.fixture(scope="module")
def bucket(object_store: str) -> str:
    s3_client(object_store).create_bucket(Bucket=BUCKET)
    return object_store


def check(factory: Opened, trial: Trial, module: str) -> None:
    finding = try_guard(factory, trial, pause_in=[f"coordinator.guards.{module}"], patience_s=15)
    assert finding is None, str(finding)


@each_trial
def test_postgresql(trial: Trial, postgres_tables: Path) -> None:
    """PostgresGuard over psycopg, against a PostgreSQL server."""
    check(partial(InPostgres, postgres_tables), trial, "postgresql")


@each_trial
def test_postgresql_asyncio(trial: Trial, postgres_tables: Path) -> None:
    """AsyncPostgresGuard likewise."""
    check(partial(AwaitedInPostgres.open, postgres_tables), trial, "postgresql")


@each_trial
def test_mariadb(trial: Trial, mariadb_tables: Path) -> None:
    """MysqlGuard over PyMySQL, against a MariaDB server."""
    check(partial(InMariadb, mariadb_tables), trial, "mysql")


@each_trial
def test_redis(trial: Trial, redis_server: Path) -> None:
    """RedisGuard over redis-py, against a Redis server."""
    check(partial(InRedis, redis_server), trial, "redis")


@each_trial
def test_redis_asyncio(trial: Trial, redis_server: Path) -> None:
    """AsyncRedisGuard likewise."""
    check(partial(AwaitedInRedis, redis_server), trial, "redis")


PAUSED = [trial for trial in ALL if trial.name.startswith("paused")]


@pytest.mark.parametrize(
    "trial", [trial for trial in ALL if trial not in PAUSED], ids=lambda trial: trial.name
)
def test_s3(trial: Trial, bucket: str) -> None:
    """S3Guard over boto3, against MinIO, or moto's S3 (servers.moto tells what that proves)."""
    check(partial(InS3, s3_client(bucket)), trial, "s3")


@pytest.mark.parametrize("trial", PAUSED, ids=lambda trial: trial.name)
def test_s3_paused(trial: Trial) -> None:
    """The many rounds of these against a store in memory: moto and the wire take long."""
    check(partial(InS3, Store()), trial, "s3")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("minio") is None, reason="tests/install object-store")
@pytest.mark.parametrize("trial", PAUSED, ids=lambda trial: trial.name)
def test_s3_paused_at_a_real_store(trial: Trial, bucket: str) -> None:
    """The same over the wire, at MinIO."""
    check(partial(InS3, s3_client(bucket)), trial, "s3")


@each_trial
def test_sqlite(trial: Trial, memory_path: Path) -> None:
    """SqliteGuard over a database file."""
    check(partial(InSqlite, memory_path / "data.db"), trial, "sqlite")


@each_trial
def test_file(trial: Trial, memory_path: Path) -> None:
    """FileGuard over a local file."""
    check(partial(InFile, memory_path), trial, "file")
