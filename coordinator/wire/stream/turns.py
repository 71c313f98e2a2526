"""The turns of the requests of one connection, and when nothing more is read from it.

Lists and other long answers of one connection are made one after the other, as over HTTP: a hundred
of them in one pass would hold the loop for long. What is short does not wait for them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from coordinator.errors import ThrottledError
from coordinator.service.base.turns import LONG_COST
from coordinator.wire.client_turns import ClientTurns, is_long, no_turn
from coordinator.wire.stream.request import StreamRequest

_EXPORT: Final = "/v1/grants"
_REFUSED_HOLD_S: Final = 0.1
"""For so long a client that sends too many a second is not read from."""


class ServingConnection(Protocol):
    """The connection, as its turns see it."""

    def is_waited_for(self, number: int) -> bool:
        """Whether the client is there, and has not given this request up."""

    def serve(self, request: StreamRequest) -> None:
        """Begin to answer a request, in a task of its own."""

    def give_up(self, request: StreamRequest, error: ThrottledError) -> None:
        """Refuse a request of which nothing was begun."""


class _Lost:
    """A connection that was lost."""

    def is_waited_for(self, number: int) -> bool:
        return False

    def serve(self, request: StreamRequest) -> None:
        raise AssertionError("nobody waits for it")

    def give_up(self, request: StreamRequest, error: ThrottledError) -> None:
        raise AssertionError("nobody waits for it")

    def take(self) -> None:
        """Do nothing: the connection is lost."""


_LOST: Final = _Lost()


class RequestTurns:
    """The turns of one connection's requests; ``take`` goes on with frames that have come."""

    __slots__ = ("_hold_until_s", "_is_held", "_is_long_served", "_key", "_long", "_loop",
                 "_serving", "_take", "_turns")  # fmt: skip

    def __init__(
        self, turns: ClientTurns, serving: ServingConnection, take: Callable[[], None]
    ) -> None:
        self._turns = turns
        self._key = ""
        """The key of the client of the latest request."""
        self._serving: ServingConnection = serving
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._is_held = False
        self._hold_until_s = 0.0
        self._long: deque[StreamRequest] = deque()
        """The requests that wait for the long answer before theirs."""
        self._is_long_served = False

    @property
    def client(self) -> str:
        """Whose the latest request was; empty: there was none."""
        return self._key

    def start(self, request: StreamRequest) -> None:
        """Begin a request, or let it wait for a turn."""
        if not is_long(request.method, request.target):
            self._start(request)
        else:
            request.cost = LONG_COST
            self._long.append(request)
            if not self._is_long_served:
                self._next_long()

    def on_lines(self, request: StreamRequest) -> None:
        """The lines of a request begin: one that observes may never end."""
        self._turns.end(request)
        if request.is_long and not request.target.startswith(_EXPORT):
            request.is_long = False
            self._next_long()

    def forget(self, request: StreamRequest) -> None:
        """A request is not waited for any more, and has not begun."""
        if request in self._long:
            self._long.remove(request)

    def over(self, request: StreamRequest) -> None:
        """A request has ended; the next long answer begins."""
        if request.is_long:
            self._next_long()

    def close(self) -> None:
        """The connection was lost: no cycle is left for the collector."""
        self._long.clear()
        self._serving, self._take = _LOST, _LOST.take

    def _next_long(self) -> None:
        self._is_long_served = False
        while self._long and not self._is_long_served:
            request = self._long.popleft()
            if self._serving.is_waited_for(request.id):
                self._is_long_served = request.is_long = True
                self._start(request)

    def _start(self, request: StreamRequest) -> None:
        try:
            if self._turns.begin(request):
                self._serving.serve(request)
            else:
                self._turns.wait(request, partial(self._start_later, request))
        except ThrottledError as error:
            self._hold_until_s = self._loop.time() + _REFUSED_HOLD_S
            self._give_up(request, error)
        self._key = request.key

    def _start_later(self, request: StreamRequest) -> bool:
        if not self._serving.is_waited_for(request.id):
            return False
        if request.mark:
            self._serving.serve(request)
        else:
            self._give_up(request, no_turn())
        return True

    def _give_up(self, request: StreamRequest, error: ThrottledError) -> None:
        self._serving.give_up(request, error)
        if request.is_long:
            self._loop.call_soon(self._next_long)

    def has_to_hold(self) -> bool:
        """Whether nothing more may be begun for now; ``take`` is called when it may be."""
        if self._is_held:
            return True
        if self._turns.waiting and self._turns.is_line_full(self._key):
            self._is_held = True
            self._turns.hold(self._key, self._go_on)
        elif self._hold_until_s:
            left_s = self._hold_until_s - self._loop.time()
            self._hold_until_s = 0.0
            if left_s > 0:
                self._is_held = True
                self._loop.call_later(left_s, self._go_on)
        return self._is_held

    def _go_on(self) -> None:
        self._is_held = False
        self._take()
