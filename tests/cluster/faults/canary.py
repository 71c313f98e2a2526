"""How slow is the machine? A process that wants hardly anything, and notes how long it had to wait.

    python canary.py FILE BESIDE [URL]

Fifty times a second it asks for 2 ms of processor time, and now and then it syncs a few bytes to
``BESIDE``; each look is a record in ``FILE`` (see ``read``). With ``URL`` it asks that instead, and
notes how long the answer took: it is no part of the load, whose own loop may be late.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

_RECORD = struct.Struct("<dddd")
_GAP_S = 0.02
_WORK_S = 0.002
_SYNC_EVERY = 25
_BLOCK = bytes(16_384)


def read(path: Path) -> Iterator[tuple[float, float, float, float]]:
    """Yield (when it began, processor time, time in all, sync time or -1) of each look so far."""
    data = path.read_bytes() if path.exists() else b""
    yield from _RECORD.iter_unpack(data[: len(data) - len(data) % _RECORD.size])


def main() -> None:
    """Look until we are killed."""
    path, beside, *url = sys.argv[1:]
    with open(path, "ab", buffering=0) as file, open(beside, "wb", buffering=0) as synced:
        number = 0
        while True:
            due = time.monotonic() + _GAP_S
            time.sleep(_GAP_S)
            number += 1
            if url:
                at, work_s, took_s = _ask(url[0])
                file.write(_RECORD.pack(at, work_s, took_s, -1.0))
                continue
            began, used = due, time.thread_time()
            while time.thread_time() - used < _WORK_S:
                zlib.crc32(_BLOCK)
            work_s, took_s, sync_s = time.thread_time() - used, time.monotonic() - began, -1.0
            if number % _SYNC_EVERY == 0:
                at = time.monotonic()
                synced.write(b"canary")
                os.fdatasync(synced.fileno())
                sync_s = time.monotonic() - at
            file.write(_RECORD.pack(began, work_s, took_s, sync_s))


def _ask(url: str) -> tuple[float, float, float]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    at, used = time.monotonic(), time.thread_time()
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", parts.path)
        connection.getresponse().read()
    return at, time.thread_time() - used, time.monotonic() - at


if __name__ == "__main__":
    main()
