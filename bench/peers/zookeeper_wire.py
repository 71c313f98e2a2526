"""Just enough of ZooKeeper's protocol to connect without a client library and its waits.

Records are big-endian behind their length (ZooKeeper's ``zookeeper.jute``): sessions by the
thousand, and the first write after a failover.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from bench.peers.work import VALUE

_PING = struct.pack(">iii", 8, -2, 11)
_CREATE, _SET = 1, 5
_OPEN_ACL = struct.pack(">iii5si6s", 1, 31, 5, b"world", 6, b"anyone")
NODE_EXISTS = -110


def connect_request(timeout_ms: int) -> bytes:
    """Return the first bytes of a connection: a new session."""
    body = struct.pack(">iqiqi", 0, 0, timeout_ms, 0, 16) + bytes(16) + b"\0"
    return struct.pack(">i", len(body)) + body


def _text(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def request(xid: int, operation: int, body: bytes) -> bytes:
    return struct.pack(">iii", 8 + len(body), xid, operation) + body


class Connection:
    """A blocking connection with one request under way."""

    def __init__(self, endpoint: str, timeout_s: float) -> None:
        host, _, port = endpoint.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._socket.sendall(connect_request(10_000))
        self._frame()
        self._xid = 0

    def create(self, path: str) -> int:
        """Create a znode; return the error code."""
        return self._ask(_CREATE, _text(path.encode()) + _text(VALUE) + _OPEN_ACL + bytes(4))

    def set(self, path: str) -> int:
        """Write; return the error code."""
        return self._ask(_SET, _text(path.encode()) + _text(VALUE) + struct.pack(">i", -1))

    def close(self) -> None:
        self._socket.close()

    def _ask(self, operation: int, body: bytes) -> int:
        self._xid += 1
        self._socket.sendall(request(self._xid, operation, body))
        error: int = struct.unpack_from(">i", self._frame(), 12)[0]
        return error

    def _frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = self._socket.recv(count - len(found))
            if not part:
                raise ConnectionError("closed")
            found += part
        return found


async def keep_session(endpoint: str, timeout_ms: int) -> asyncio.Task[None]:
    """Open a session and keep it with pings, every third of its timeout as clients do."""
    host, _, port = endpoint.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(connect_request(timeout_ms))
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(length)

    async def ping() -> None:
        while True:
            await asyncio.sleep(timeout_ms / 3_000)
            writer.write(_PING)
            await reader.readexactly(20)

    return asyncio.create_task(ping())
