"""Ports on loopback for servers that tests start, stop and start again.

A port that the system picks (``bind`` to 0) lies in its ephemeral range: once it is let go, any
outgoing connection of any other test may be given it before the server of this one binds it. So:

1. Ports are taken from below that range, where nothing is bound but by name.
2. Each worker of pytest-xdist has a slice of its own, so two of them never pick one port.
3. A port is tried by binding it, and is not given again until all of the slice was.
"""

from __future__ import annotations

import os
import socket
from itertools import islice
from pathlib import Path
from random import SystemRandom

LOWEST = 10_000
"""Below are the ports of well known servers, and this product's own."""
HIGHEST = 65_536
DEFAULT_EPHEMERAL = (32_768, 60_999)
"""Linux's; where another system has no such file, it begins above (RFC 6335: 49152)."""
LEAST = 2_000
"""So many ports are worth having; a full run of the suite asks for some hundreds."""
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def allowed(ephemeral: tuple[int, int]) -> range:
    """Return the ports to take: below the ephemeral ones, else above, else among them."""
    first, last = ephemeral
    below, above = range(LOWEST, first), range(max(LOWEST, last + 1), HIGHEST)
    return next((each for each in (below, above) if len(each) >= LEAST), range(LOWEST, HIGHEST))


def slice_of(ports: range, worker: int, workers: int) -> range:
    """Return the part of ``ports`` that is the ``worker``-th one's, counted from 0."""
    assert 0 <= worker < workers, (worker, workers)
    size = len(ports) // workers
    return ports[worker * size : (worker + 1) * size]


def ephemeral_range(source: Path = EPHEMERAL_RANGE) -> tuple[int, int]:
    try:
        first, last = source.read_text().split()
    except OSError:
        return DEFAULT_EPHEMERAL
    return int(first), int(last)


class Ports:
    """Those of one process; begins anywhere, as other suites may run on this machine."""

    def __init__(self, ports: range, start: int | None = None) -> None:
        self._ports = ports
        self._next = SystemRandom().randrange(len(ports)) if start is None else start

    def take(self, count: int) -> list[int]:
        """Return ``count`` ports in a row that are free, and were not given for long."""
        assert 0 < count <= len(self._ports), count
        for _ in range(len(self._ports)):
            if self._next + count > len(self._ports):
                self._next = 0
            row = list(islice(self._ports, self._next, self._next + count))
            taken = next((n for n, port in enumerate(row) if not is_free(port)), None)
            if taken is None:
                self._next += count
                return row
            self._next += taken + 1
        raise AssertionError(f"no {count} free ports in a row within {self._ports}")


def is_free(port: int) -> bool:
    """Whether nobody has bound ``port``, on any address; one that lingers is not free either."""
    with socket.socket() as tried:
        try:
            tried.bind(("", port))
        except OSError:
            return False
    return True


def _of_this_process() -> Ports:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return Ports(slice_of(allowed(ephemeral_range()), int(worker), workers))


_ours = _of_this_process()


def free_ports(count: int) -> list[int]:
    """Return ``count`` ports on loopback, one after the other, that were free a moment ago."""
    return _ours.take(count)
