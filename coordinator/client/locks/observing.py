"""A stream of the elected, now and after each change; it continues at another member.

1. The first item says who is elected now (or that no candidate is).
2. After a reconnect the present state is repeated only if it differs from the last item; what
   happened in between is not reported.
"""

from __future__ import annotations

from typing import Any

from coordinator.client.calling.calls import Call, target_of
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.watches.lines import Lines
from coordinator.model.events import StreamError
from coordinator.model.views import Elected
from coordinator.wire.codec import union_from_body
from coordinator.wire.messages import NDJSON_TYPE


class ElectionStream:
    """``async for elected in stream``; ``zxid`` is that of the last item."""

    def __init__(
        self, delivery: CallDelivery, name: str | int, contact_timeout_ms: int | None
    ) -> None:
        self.zxid: int | None = None
        target = target_of("elections", name) + "?observe"
        call = Call("GET", target, accept=NDJSON_TYPE, is_for_any=True)
        self._lines: Lines[Elected] = Lines(delivery, lambda: call, _read_line, contact_timeout_ms)
        self._last: Elected | None = None
        self._is_finished = False

    async def open(self) -> ElectionStream:
        """Return once a member observes for us."""
        await self._lines.peek()
        return self

    async def close(self) -> None:
        """Stop observing."""
        self._is_finished = True
        await self._lines.close()

    def __aiter__(self) -> ElectionStream:
        return self

    async def __anext__(self) -> Elected:
        while not self._is_finished:
            elected = await self._lines.next()
            if self._last is None or self._is_news(elected, self._last):
                self._last = elected
                self.zxid = elected.zxid
                return elected
        raise StopAsyncIteration

    async def __aenter__(self) -> ElectionStream:
        return await self.open()

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    @staticmethod
    def _is_news(elected: Elected, last: Elected) -> bool:
        # A member that lags behind the last one may report its past first.
        return elected.zxid >= last.zxid and elected.elected != last.elected


def _read_line(body: Any) -> Elected | StreamError:
    line: Elected | StreamError = union_from_body(Elected | StreamError, body, "line")
    return line
