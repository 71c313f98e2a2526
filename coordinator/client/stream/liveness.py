"""The presence of a connection's server, in the loop: it is asked (PING) when it is silent.

1. If it owes the first of an answer it is asked soon, and what waits for that goes elsewhere if it
   goes on to say nothing; at once if another member says that it leads no more.
2. While only lines are waited for it is asked later.
3. It is asked when it let a deadline pass, too. If it goes on sending instead, what it sends is
   before all further answers: the connection takes no request until its PONG has come, so a
   heartbeat behind a long answer on a slow network is sent again on another connection.
4. A server that was asked and goes on to say nothing is taken for dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.client.stream.conversation import Conversation, Waiter
from coordinator.client.stream.patience import (
    ASK_MS,
    PROOF_MS,
    QUIET_MS,
    REPLACED_MS,
    SILENCE_MS_MAX,
    answer_ms,
)
from coordinator.client.stream.shared_lines import SharedLines
from coordinator.client.stream.waiters import LinesRead
from coordinator.errors import ConnectionLostError

_ASK_S, _QUIET_S = ASK_MS / 1000, QUIET_MS / 1000


class Liveness:
    """What one connection knows of its server; belongs to the connection's event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        conversation: Conversation,
        flush_soon: Callable[[], None],
        give_up: Callable[[int], None],
        close: Callable[[str], None],
    ) -> None:
        self.heard_s = loop.time()
        """When the server has sent something last."""
        self.on_silent: Callable[[], None] = lambda: None
        """Called when it is asked since it is silent: what waits may go elsewhere soon."""
        self.proof = 0
        """The PONG to be heard before another request is taken."""
        self._loop = loop
        self._conversation = conversation
        self._flush_soon = flush_soon
        self._give_up = give_up
        self._close = close
        self._asked_s = 0.0
        """When it was asked since it was silent; it has answered if it was heard since then."""
        self._line_streams = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        """By what is done then."""

    def watch_answers(self) -> None:
        """Look after it from now on while it owes the first of an answer."""
        if "answers" not in self._timers:
            self._at("answers", self._loop.time() + _ASK_S, self._look_at_answers)

    def watch_lines(self) -> None:
        """Look after it, too, until ``lines_closed``: lines are waited for."""
        self._line_streams += 1
        if "lines" not in self._timers:
            self._at("lines", self._loop.time() + _QUIET_S, self._look_at_lines)

    def lines_closed(self) -> None:
        """End what ``watch_lines`` began."""
        self._line_streams -= 1

    def doubt(self) -> None:
        """Another member leads, as it says: what waits here does so only if this one is heard."""
        if not self._conversation.waiting or "replaced" in self._timers:
            return
        if self._asked_s <= self.heard_s:
            self._ask()
        self._at("replaced", self._asked_s + REPLACED_MS / 1000, self._look_whether_replaced)

    def ask_for_proof(self, waited_s: float) -> None:
        """Ask the server, which let a deadline pass, whether it is there; if not, it is closed."""
        if "proof" not in self._timers:
            is_heard = self._loop.time() - self.heard_s < waited_s / 2
            self._expect_proof(takes_none=is_heard)  # it sends, but not this

    def end(self) -> None:
        """Look no more: the connection has ended."""
        for timer in self._timers.values():
            timer.cancel()

    def _at(self, what: str, due_s: float, look: Callable[[], None]) -> None:
        self._timers[what] = self._loop.call_at(due_s, look)

    def _expect_proof(self, *, takes_none: bool) -> None:
        asked_s = self._loop.time()

        def look() -> None:
            del self._timers["proof"]
            if self.heard_s < asked_s:
                self._close(f"the server {self._silence()}")

        if "proof" not in self._timers:
            self._at("proof", asked_s + PROOF_MS / 1000, look)
        number = self._conversation.ping()
        if takes_none:
            self.proof = number
        self._flush_soon()

    def _ask(self) -> None:
        self._asked_s = self._loop.time()
        self._conversation.ping()
        self._flush_soon()
        self.on_silent()

    def _silence(self) -> str:
        return f"said nothing for {self._loop.time() - self.heard_s:.1f} s"

    def _look_at_answers(self) -> None:
        del self._timers["answers"]
        waiting = self._conversation.waiting
        owed = [(number, each) for number, each in waiting.items() if not has_begun(each)]
        if not owed:
            return
        now_s = self._loop.time() + 1e-6
        answer_s = answer_ms(self._conversation.unheard_bytes) / 1000
        if self._asked_s > self.heard_s:
            due_s = self._asked_s + answer_s
            if due_s <= now_s:
                self._let_go(owed)
                return
        else:
            due_s = self.heard_s + _ASK_S
            if due_s <= now_s:
                self._ask()
                due_s = self._asked_s + answer_s
        self._at("answers", due_s, self._look_at_answers)

    def _let_go(self, owed: list[tuple[int, Waiter]]) -> None:
        """Let what waits go elsewhere; only lines wait on, for a while."""
        endpoint = self._conversation.endpoint
        for number, waiter in owed:
            self._give_up(number)
            message = f"{endpoint}: no answer; the member {self._silence()}"
            waiter.on_failure(ConnectionLostError(message, endpoint=endpoint))
        self._expect_proof(takes_none=True)

    def _look_whether_replaced(self) -> None:
        del self._timers["replaced"]
        if self._asked_s > self.heard_s:
            self._close(f"another member leads, and this one {self._silence()}")

    def _look_at_lines(self) -> None:
        del self._timers["lines"]
        silence_s = self._loop.time() - self.heard_s
        if silence_s >= SILENCE_MS_MAX / 1000:
            self._close(f"the server said nothing for {SILENCE_MS_MAX} ms")
        elif self._line_streams:
            if silence_s >= _QUIET_S / 2:
                self._conversation.ping()
                self._flush_soon()
            self._at("lines", self._loop.time() + _QUIET_S, self._look_at_lines)


def has_begun(waiter: Waiter) -> bool:
    """Whether more lines are all that it waits for."""
    return isinstance(waiter, LinesRead | SharedLines) and waiter.has_begun
