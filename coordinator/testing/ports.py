"""Reserved ports on loopback: they stay this cluster's own while no member listens on them.

A socket that is bound but does not listen keeps its port from all others except those that ask to
share it (SO_REUSEADDR), as a listening server does. Connections are refused meanwhile.
"""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


class ReservedPorts:
    """``count`` free ports, until ``release``."""

    def __init__(self, count: int) -> None:
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                self._sockets.append(_reserved())
        except BaseException:
            self.release()
            raise
        self.ports = tuple(int(each.getsockname()[1]) for each in self._sockets)

    def release(self) -> None:
        """Free the ports; idempotent."""
        for each in self._sockets:
            each.close()


def _reserved() -> socket.socket:
    kept = socket.socket()
    try:
        kept.bind((LOOPBACK, 0))  # not shared yet, so no other cluster is given this port
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except BaseException:
        kept.close()
        raise
    return kept
