"""Lets each packet of a netfilter queue wait for its own time; runs inside a member's namespace.

    python delay.py QUEUE LOW_MS HIGH_MS REORDERED

Without REORDERED packets keep their order whatever they drew. Speaks netlink itself (the kernel's
``linux/netfilter/nfnetlink_queue.h``), so it needs no library. Prints ``bound`` when it works.
"""

from __future__ import annotations

import heapq
import random
import select
import socket
import struct
import sys
import time

_NETLINK_NETFILTER = 12
_QUEUE_SUBSYSTEM = 3 << 8
_PACKET, _VERDICT, _CONFIG = 0, 1, 2
_REQUEST, _ACK = 1, 4
_ACCEPT = 1
_BIND = 1
_COPY_META = 1
_PACKETS_MAX = 65_536


def message(kind: int, queue: int, attribute: int, data: bytes, flags: int = _REQUEST) -> bytes:
    """Return one netlink message with one attribute."""
    length = 4 + len(data)
    body = struct.pack(">BBH", socket.AF_UNSPEC, 0, queue) + struct.pack("=HH", length, attribute)
    body += data + bytes(-length % 4)
    return struct.pack("=IHHII", 16 + len(body), _QUEUE_SUBSYSTEM | kind, flags, 0, 0) + body


def packet_id(data: bytes) -> int | None:
    """Return the id of the packet that a message is about; raise OSError for an error message."""
    _, kind = struct.unpack_from("=IH", data)
    if kind == 2:
        error = -struct.unpack_from("=i", data, 16)[0]
        if error:
            raise OSError(error, "the netfilter queue refused")
        return None
    offset = 20
    while offset + 4 <= len(data):
        length, attribute = struct.unpack_from("=HH", data, offset)
        if attribute & 0x7FFF == 1:
            return int(struct.unpack_from(">I", data, offset + 4)[0])
        offset += (length + 3) & ~3
    return None


def main() -> None:
    queue, low_ms, high_ms = (int(argument) for argument in sys.argv[1:4])
    reordered = float(sys.argv[4])
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    link.bind((0, 0))
    for attribute, data in (
        (1, struct.pack(">BBH", _BIND, 0, socket.AF_INET)),
        (2, struct.pack(">IB", 0, _COPY_META)),
        (3, struct.pack(">I", _PACKETS_MAX)),
    ):
        link.send(message(_CONFIG, queue, attribute, data, _REQUEST | _ACK))
        packet_id(link.recv(65_536))
    print("bound", flush=True)
    waiting: list[tuple[float, int]] = []
    latest = 0.0
    while True:
        now = time.monotonic()
        while waiting and waiting[0][0] <= now:
            verdict = struct.pack(">II", _ACCEPT, heapq.heappop(waiting)[1])
            link.send(message(_VERDICT, queue, 2, verdict))
        patience = max(0.0, waiting[0][0] - now) if waiting else None
        if not select.select([link], [], [], patience)[0]:
            continue
        data = link.recv(65_536)
        while data:
            length = struct.unpack_from("=I", data)[0]
            number = packet_id(data[:length])
            data = data[(length + 3) & ~3 :]
            if number is None:
                continue
            due = time.monotonic() + random.uniform(low_ms, high_ms) / 1000
            if random.random() >= reordered:
                due = max(due, latest)
                latest = due
            heapq.heappush(waiting, (due, number))


if __name__ == "__main__":
    main()
