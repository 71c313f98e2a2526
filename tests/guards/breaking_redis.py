"""A Redis that takes a script and breaks the connection before it answers."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

_GREETING = b"%1\r\n$5\r\nproto\r\n:3\r\n"


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


class BreakingRedis:
    """Counts the scripts that arrive. The first is never answered: it may have been executed.

    Later ones are told that their write number was seen.
    """

    def __init__(self, *, knows_script: bool = True) -> None:
        self.scripts: list[str] = []
        self.port = 0
        self._knows_script = knows_script

    @contextmanager
    def serving(self) -> Iterator[BreakingRedis]:
        """Serve on a free port until the end of the body."""
        breaking = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while words := _command(self.rfile):
                    answer = breaking._answer(words[0].decode().upper())
                    if not answer:
                        return
                    self.wfile.write(answer)

        with _Server(("127.0.0.1", 0), Handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, args=[0.02])
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def _answer(self, verb: str) -> bytes:
        if verb == "HELLO":
            return _GREETING
        if verb not in ("EVAL", "EVALSHA"):
            return b"+OK\r\n"
        if verb == "EVALSHA" and not self._knows_script:
            return b"-NOSCRIPT No matching script.\r\n"
        self.scripts.append(verb)
        return b"" if len(self.scripts) == 1 else b"*2\r\n:2\r\n$1\r\n1\r\n"


def _command(stream: BinaryIO) -> list[bytes]:
    """Return the words of the next command, none at the end of the connection."""
    try:
        head = stream.readline()
        words = []
        for _ in range(int(head[1:] or 0)):
            size = int(stream.readline()[1:])
            words.append(stream.read(size + 2)[:-2])
        return words
    except OSError:
        return []
