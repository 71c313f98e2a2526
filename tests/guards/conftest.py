"""The stores, started when the first test wants them and stopped after the last."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guards import proxied, servers


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory whose files need no disk, where there is one: what is tried is not the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="guards-", dir=memory) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Path]:
    """The directory of a PostgreSQL server's socket."""
    with servers.postgresql() as directory:
        yield directory


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Path]:
    """The socket of a MariaDB server."""
    with servers.mariadb() as socket:
        yield socket


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Path]:
    """The socket of a Redis server."""
    with servers.redis() as socket:
        yield socket


@pytest.fixture(scope="session")
def object_store() -> Iterator[str]:
    """The URL of MinIO, where its program is, else of moto's S3."""
    program = shutil.which("minio")
    with servers.moto() if program is None else servers.minio(program) as url:
        yield url


@pytest.fixture(scope="session")
def served() -> Iterator[str]:
    """The URL of a fencing proxy in front of a service."""
    with proxied.in_thread() as url:
        yield url
