"""A guarded value in each store, as the conformance kit wants it: what a user would write."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pymysql
import redis
import redis.asyncio

from coordinator.guards import (
    AsyncPostgresGuard,
    AsyncRedisGuard,
    FileGuard,
    MysqlGuard,
    PostgresGuard,
    RedisGuard,
    S3Guard,
    SqliteGuard,
)
from tests.guards.servers import OBJECT_KEY

BUCKET = "guarded"


class InSqlite:
    """A row of a SQLite database."""

    UPSERT = (
        "INSERT INTO data VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )

    def __init__(self, path: Path, name: str) -> None:
        import sqlite3

        self.name = name
        self.connection = sqlite3.connect(path, timeout=10, check_same_thread=False)
        self.guard = SqliteGuard(path, name)
        self.connection.execute("CREATE TABLE IF NOT EXISTS data (name TEXT PRIMARY KEY, value)")
        self.guard.create_table()

    def write(self, token: int, value: str) -> None:
        self.guard.write(token, self.UPSERT, (self.name, value))

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.guard.write(token, self.UPSERT, (self.name, value), write_number=number)

    def read(self) -> Any:
        row = self.connection.execute(
            "SELECT value FROM data WHERE name = ?", [self.name]
        ).fetchone()
        return row[0] if row else None

    def raise_to(self, token: int) -> None:
        self.guard.raise_to(token)

    def close(self) -> None:
        self.connection.close()


class InPostgres:
    """A row of a PostgreSQL database."""

    UPSERT = (
        "INSERT INTO data VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
    )
    SELECT = "SELECT value FROM data WHERE name = %s"

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.connection = postgres_connection(directory)
        self.guard = PostgresGuard(self.connection, name)

    def write(self, token: int, value: str) -> None:
        self.guard.write(token, self.UPSERT, (self.name, value))

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.guard.write(token, self.UPSERT, (self.name, value), write_number=number)

    def read(self) -> Any:
        with self.connection.transaction():
            row = self.connection.execute(self.SELECT, [self.name]).fetchone()
        return row[0] if row else None

    def raise_to(self, token: int) -> None:
        self.guard.raise_to(token)

    def close(self) -> None:
        self.connection.close()


class AwaitedInPostgres:
    """The same over an AsyncConnection."""

    def __init__(self, connection: psycopg.AsyncConnection[Any], name: str) -> None:
        self.name, self.connection = name, connection
        self.guard = AsyncPostgresGuard(connection, name)

    @classmethod
    async def open(cls, directory: Path, name: str) -> AwaitedInPostgres:
        return cls(
            await psycopg.AsyncConnection.connect(
                host=str(directory), user="tester", dbname="postgres"
            ),
            name,
        )

    async def write(self, token: int, value: str) -> None:
        await self.guard.write(token, InPostgres.UPSERT, (self.name, value))

    async def write_numbered(self, token: int, number: int, value: str) -> None:
        row = (self.name, value)
        await self.guard.write(token, InPostgres.UPSERT, row, write_number=number)

    async def read(self) -> Any:
        async with self.connection.transaction():
            cursor = await self.connection.execute(InPostgres.SELECT, [self.name])
            row = await cursor.fetchone()
        return row[0] if row else None

    async def raise_to(self, token: int) -> None:
        await self.guard.raise_to(token)

    async def close(self) -> None:
        await self.connection.close()


class InMariadb:
    """A row of a MariaDB database."""

    def __init__(self, socket: Path, name: str) -> None:
        self.name = name
        self.connection = mariadb_connection(socket)
        self.guard = MysqlGuard(self.connection, name)

    UPSERT = "REPLACE INTO data VALUES (%s, %s)"

    def write(self, token: int, value: str) -> None:
        self.guard.write(token, self.UPSERT, (self.name, value))

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.guard.write(token, self.UPSERT, (self.name, value), write_number=number)

    def read(self) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT value FROM data WHERE name = %s", [self.name])
            row = cursor.fetchone()
        self.connection.rollback()
        return row[0] if row else None

    def raise_to(self, token: int) -> None:
        self.guard.raise_to(token)

    def close(self) -> None:
        self.connection.close()


class InRedis:
    """A key of a Redis server."""

    def __init__(self, socket: Path, name: str) -> None:
        self.client = redis.Redis(unix_socket_path=str(socket))
        self.key = f"data:{name}"
        self.guard = RedisGuard(self.client, name)

    def write(self, token: int, value: str) -> None:
        assert self.guard.write(token, "SET", self.key, value) == b"OK"

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.guard.write(token, "SET", self.key, value, write_number=number)

    def read(self) -> Any:
        return self.client.get(self.key)

    def raise_to(self, token: int) -> None:
        self.guard.raise_to(token)

    def close(self) -> None:
        self.client.close()


class AwaitedInRedis:
    """The same over ``redis.asyncio``."""

    def __init__(self, socket: Path, name: str) -> None:
        self.client = redis.asyncio.Redis(unix_socket_path=str(socket))
        self.key = f"data:{name}"
        self.guard = AsyncRedisGuard(self.client, name)

    async def write(self, token: int, value: str) -> None:
        await self.guard.write(token, "SET", self.key, value)

    async def write_numbered(self, token: int, number: int, value: str) -> None:
        await self.guard.write(token, "SET", self.key, value, write_number=number)

    async def read(self) -> Any:
        return await self.client.get(self.key)

    async def raise_to(self, token: int) -> None:
        await self.guard.raise_to(token)

    async def close(self) -> None:
        await self.client.aclose()


class InS3:
    """An object of an S3-style store."""

    def __init__(self, client: Any, name: str) -> None:
        self.guard = S3Guard(client, bucket=BUCKET, key=name)

    def write(self, token: int, value: str) -> None:
        self.guard.write(token, value.encode())

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.guard.write(token, value.encode(), write_number=number)

    def read(self) -> Any:
        # A raise of a new object has to write one: empty, which here means that nobody has written.
        return self.guard.read() or None

    def raise_to(self, token: int) -> None:
        self.guard.raise_to(token)


class InFile:
    """A file."""

    def __init__(self, directory: Path, name: str) -> None:
        self.guard = FileGuard(directory / name)

    def write(self, token: int, value: str) -> None:
        self.guard.write(token, value.encode())

    def write_numbered(self, token: int, number: int, value: str) -> None:
        self.guard.write(token, value.encode(), write_number=number)

    def read(self) -> Any:
        return self.guard.read()

    def raise_to(self, token: int) -> None:
        self.guard.raise_to(token)


def postgres_connection(directory: Path, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(host=str(directory), user="tester", dbname="postgres", **options)


def mariadb_connection(socket: Path, **options: Any) -> pymysql.connections.Connection[Any]:
    return pymysql.connect(
        unix_socket=str(socket), user="root", database="tests", ssl_disabled=True, **options
    )


@cache
def s3_client(url: str) -> Any:
    """Return a client of the store at ``url``; made once, since making one takes long."""
    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=OBJECT_KEY,
        aws_secret_access_key=OBJECT_KEY,
    )
