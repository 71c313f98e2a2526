"""Real servers of the stores, from Debian's packages: started in a directory of their own, stopped.

All but the object store listen on a socket file there, not on a network. They run as an
unprivileged user when the tests run as root (PostgreSQL and MariaDB insist), and end with the
process that started them. Their data is not synced: what is tried here are their transactions, not
their disks.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from coordinator.cli.parent_death import dying_with_parent
from tests.ports import free_ports

OBJECT_KEY = "tester-of-guards"
"""The key and the secret of the object store."""
_READY_S = 60.0
_PLACES = "/usr/lib/postgresql/*/bin", "/usr/sbin", "/usr/local/sbin"


def program(name: str, package: str) -> str:
    """Return the path of ``name``; skips the test where Debian's ``package`` is not installed."""
    found = shutil.which(name)
    for pattern in _PLACES:
        places = sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)
        found = found or next(filter(None, (shutil.which(name, path=str(p)) for p in places)), None)
    if found is None:
        pytest.skip(f"no {name} here; Debian and Ubuntu: tests/install guards, for {package}")
    return found


@contextmanager
def postgresql() -> Iterator[Path]:
    """Serve PostgreSQL; yields the directory of its socket (user ``tester``)."""
    initdb, postgres = program("initdb", "postgresql"), program("postgres", "postgresql")
    with _directory() as directory:
        data = str(directory / "data")
        _run(directory, initdb, "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8",
             "--locale=C", "--no-sync", "--no-instructions")  # fmt: skip
        serve = (postgres, "-D", data, "-k", str(directory), "-h", "", "-F", "-c",
                 "max_connections=40", "-c", "shared_buffers=16MB")  # fmt: skip
        with _serving(directory, serve, lambda: _accepts_postgresql(directory)):
            yield directory


@contextmanager
def mariadb() -> Iterator[Path]:
    """Serve MariaDB; yields the path of its socket (any user, no password).

    An empty directory is enough: without grants it needs none of its own tables.
    """
    serve = program("mariadbd", "mariadb-server-core")
    with _directory() as directory:
        data, socket = directory / "data", directory / "socket"
        _run(directory, "mkdir", str(data))
        arguments = (serve, "--no-defaults", f"--datadir={data}", f"--socket={socket}",
                     "--skip-grant-tables", "--skip-networking", "--skip-log-bin",
                     "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M",
                     "--innodb-flush-log-at-trx-commit=0")  # fmt: skip
        with _serving(directory, arguments, lambda: _accepts_mariadb(socket)):
            yield socket


@contextmanager
def redis() -> Iterator[Path]:
    """Serve Redis; yields the path of its socket."""
    serve = program("redis-server", "redis-server")
    with _directory() as directory:
        socket = directory / "socket"
        arguments = (serve, "--port", "0", "--unixsocket", str(socket), "--save", "",
                     "--dir", str(directory))  # fmt: skip
        with _serving(directory, arguments, lambda: _accepts_redis(socket)):
            yield socket


@contextmanager
def minio(serve: str) -> Iterator[str]:
    """Serve MinIO, a real object store, from its program ``serve``; yields its URL."""
    with _directory() as directory:
        address = f"127.0.0.1:{free_ports(1)[0]}"
        arguments = ("env", f"MINIO_ROOT_USER={OBJECT_KEY}", f"MINIO_ROOT_PASSWORD={OBJECT_KEY}",
                     "MINIO_BROWSER=off", "MINIO_UPDATE=off", "MINIO_CI_CD=on",
                     f"HOME={directory}", serve, "server", "--quiet", "--address", address,
                     str(directory / "data"))  # fmt: skip
        with _serving(directory, arguments, lambda: _answers(f"http://{address}")):
            yield f"http://{address}"


@contextmanager
def moto() -> Iterator[str]:
    """Serve moto's S3 in a thread of this process; yields its URL.

    It answers one request at a time: left to itself moto looks at a condition and puts in two
    steps. So it shows that the guard sends the right conditions and understands the answers, and
    nothing about how a real store keeps them under load, or across its own machines.
    """
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/minio/health/cluster", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _accepts_postgresql(directory: Path) -> bool:
    import psycopg

    try:
        psycopg.connect(host=str(directory), user="tester", dbname="postgres").close()
    except psycopg.OperationalError:
        return False
    return True


def _accepts_mariadb(socket: Path) -> bool:
    import pymysql

    try:
        connection = pymysql.connect(unix_socket=str(socket), user="root")
    except pymysql.err.OperationalError:
        return False
    connection.cursor().execute("CREATE DATABASE IF NOT EXISTS tests")
    connection.close()
    return True


def _accepts_redis(socket: Path) -> bool:
    from redis import ConnectionError, Redis

    try:
        with Redis(unix_socket_path=str(socket)) as client:
            return bool(client.ping())
    except ConnectionError:
        return False


# --- processes


def _account() -> pwd.struct_passwd | None:
    """Return whom servers run as, None for whoever runs the tests."""
    return pwd.getpwnam("nobody") if os.geteuid() == 0 else None


@contextmanager
def _directory() -> Iterator[Path]:
    # Not pytest's: that is closed to other users, and too deep for the name of a socket.
    directory = Path(tempfile.mkdtemp(prefix="guards-"))
    try:
        if account := _account():
            os.chown(directory, account.pw_uid, account.pw_gid)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _run(directory: Path, *arguments: str) -> None:
    result = subprocess.run(
        arguments, cwd=directory, capture_output=True, text=True, timeout=_READY_S,
        check=False, **_as_account(),
    )  # fmt: skip
    assert result.returncode == 0, f"{arguments}\n{result.stdout}{result.stderr}"


def _as_account() -> dict[str, object]:
    account = _account()
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@contextmanager
def _serving(
    directory: Path, arguments: tuple[str, ...], is_ready: Callable[[], bool]
) -> Iterator[None]:
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments, cwd=directory, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, preexec_fn=dying_with_parent(9), **_as_account(),
        )  # type: ignore[call-overload]  # fmt: skip
    try:
        end = time.monotonic() + _READY_S
        while not is_ready():
            is_well = process.poll() is None and time.monotonic() < end
            assert is_well, f"{arguments[0]} did not come up:\n{log.read_text()[-3000:]}"
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
