"""The TLS handshakes of one port: their turns, and the share of one address.

1. A handshake costs processor time (0.15 ms with a P-256 key, 3 ms with RSA 4096), and a crowd of
   strangers may ask for many at once. They take turns: ``AT_ONCE`` in a pass of the loop; until its
   turn comes, one costs no more than what was read of it.
2. The handshakes of one address may take a tenth of the time, and ``BURST_S`` of it at once. Beyond
   that they wait, one after the other, and those of other addresses go ahead of them.
3. Of those that were answered and wait for the other side, the oldest is ended if they are too
   many.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Protocol

AT_ONCE = 4
LOOKED_AT = 64
"""How many a pass looks at, also of those that have to wait."""
SHARE = 10
"""One address may have a part of the time: one in so many."""
BURST_S = 0.2
"""How much of it may be at once: some hundred handshakes, of programs that start together."""
_OWING_MAX = 10_000
"""The addresses of which is known what their handshakes took lately; the oldest is forgotten."""
READ_BYTES = 17 * 1024
"""A whole record. The dearest that may be in it are 650 changes of keys: 10 ms."""


class Handshake(Protocol):
    """The handshake of one connection."""

    address: str

    def shake(self) -> None:
        """Go on with it."""

    def fail(self, error: Exception) -> None:
        """End it."""


class Handshakes:
    """The unfinished handshakes of one port, and their turns."""

    def __init__(self, unfinished_max: int) -> None:
        self._unfinished_max = unfinished_max
        self._unfinished: dict[Handshake, None] = {}  # the oldest first
        self._due: deque[Handshake] = deque()
        self._is_scheduled = False
        self._paid_s: dict[str, float] = {}
        """When each address will have made good what its handshakes took, on the loop's clock."""
        self._waiting: dict[str, deque[Handshake]] = {}
        """Of the addresses that took more than their share; each has a timer."""
        self.buffer = memoryview(bytearray(READ_BYTES))
        """What is read into: of all connections, one after the other."""

    def __len__(self) -> int:
        return len(self._unfinished)

    def answered(self, handshake: Handshake) -> None:
        """Count one more that waits for the other side; the oldest makes room for it."""
        if handshake in self._unfinished:
            return
        if len(self._unfinished) >= self._unfinished_max:
            next(iter(self._unfinished)).fail(
                ssl.SSLError("too many connections with an unfinished TLS handshake")
            )
        self._unfinished[handshake] = None

    def end(self, handshake: Handshake) -> None:
        """Count one less; its turn, if it waits for one, does nothing."""
        self._unfinished.pop(handshake, None)

    def take_turn(self, handshake: Handshake) -> None:
        """Go on with this handshake when it is its turn."""
        self._due.append(handshake)
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        shaken = 0
        for _ in range(min(LOOKED_AT, len(self._due))):
            handshake = self._due.popleft()
            if not self._must_wait(handshake):
                self._shake(handshake)
                shaken += 1
                if shaken == AT_ONCE:
                    break
        self._is_scheduled = bool(self._due)
        if self._is_scheduled:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _must_wait(self, handshake: Handshake) -> bool:
        """Whether its address has taken more than its share; it is kept until that is made good."""
        address = handshake.address
        waiting = self._waiting.get(address)
        if waiting is None:
            if self._rest_s(address) <= 0:
                return False
            waiting = self._waiting[address] = deque()
            self._resume_later(address)
        waiting.append(handshake)
        return True

    def _rest_s(self, address: str) -> float:
        """Return for how long an address has to wait, 0 or less if it need not."""
        now_s = asyncio.get_running_loop().time()
        return self._paid_s.get(address, 0.0) - now_s - BURST_S * SHARE

    def _resume_later(self, address: str) -> None:
        rest_s = max(0.0, self._rest_s(address))
        asyncio.get_running_loop().call_later(rest_s, self._resume, address)

    def _resume(self, address: str) -> None:
        """Go on with one of this address, and with the next when that is made good."""
        waiting = self._waiting[address]
        self._shake(waiting.popleft())
        if waiting:
            self._resume_later(address)
        else:
            del self._waiting[address]

    def _shake(self, handshake: Handshake) -> None:
        loop, address = asyncio.get_running_loop(), handshake.address
        began_s = loop.time()
        handshake.shake()
        if address:
            took_s = loop.time() - began_s
            paid_s = max(self._paid_s.pop(address, 0.0), began_s) + took_s * SHARE
            if len(self._paid_s) >= _OWING_MAX:
                del self._paid_s[next(iter(self._paid_s))]
            self._paid_s[address] = paid_s
