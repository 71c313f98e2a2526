"""A store that refuses fencing tokens lower than it has seen: the half of fencing that locks lack.

It is a server in the test's process, so that a holder that is stopped in the middle of a write does
not keep the others from writing. One line with the token is a write; the answer is a line.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from types import TracebackType

from coordinator.errors import StaleTokenError

OK, STALE = b"ok\n", b"stale\n"


class FencedStore:
    """``with FencedStore() as store``; ``tokens`` are those of the writes it took, in order."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.refused_count = 0
        self._guard = threading.Lock()
        store = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    self.wfile.write(OK if store.take(int(line)) else STALE)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    def take(self, token: int) -> bool:
        """Write under ``token``; False if a larger one was here before."""
        with self._guard:
            is_stale = bool(self.tokens) and token < max(self.tokens)
            if is_stale:
                self.refused_count += 1
            else:
                self.tokens.append(token)
            return not is_stale

    def __enter__(self) -> FencedStore:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class FencedWriter:
    """A holder's connection to the store."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._file = socket.create_connection((host, int(port))).makefile("rwb")

    def write(self, token: int) -> None:
        """Raises StaleTokenError when the store has seen a larger token."""
        self._file.write(b"%d\n" % token)
        self._file.flush()
        if self._file.readline() != OK:
            raise StaleTokenError(f"the store has seen a larger token than {token}")
