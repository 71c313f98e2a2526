"""A service of which one is to run: it writes its token to a fenced store, and looks at nothing.

    COORDINATOR_FENCING_TOKEN=7 python singleton_writer.py HOST:PORT
"""

from __future__ import annotations

import os
import socket
import sys
import time

STEP_S = 0.01


def main() -> None:
    host, _, port = sys.argv[1].rpartition(":")
    token = os.environ["COORDINATOR_FENCING_TOKEN"].encode()
    with socket.create_connection((host, int(port))) as channel:
        while True:
            channel.sendall(token + b"\n")
            channel.recv(16)
            time.sleep(STEP_S)


main()
