"""Fair turns: whose requests a member begins now, and whose wait, while several clients ask.

A member does one thing after the other, so what one client asks by the thousand delays what the
others ask. Therefore:

1. A client that is alone has no bound but ``ALONE_MAX`` under way; nothing waits, little is
   counted.
2. While several ask, one that wants more than ``MODEST_MAX`` under way is *heavy*: what it asks
   waits in a line of its own, in its order. The others never wait. So is one whose long answers
   and bodies made much more work than all that another one asked: a list may cost as much as ten
   reads, a value of a megabyte as a hundred writes, and a few under way take most of a member.
3. While others ask, a heavy client works by batches, and rests after each for ``REST`` times as
   long as the batch took, whatever made it long. So the others have the member to themselves for
   most of the time. It rests no longer than they ask: once they have been quiet for ``_QUIET_S``
   the next batch begins. Several heavy ones rest longer; when all are heavy, none rests, and
   they share ``UNDER_WAY_MAX``.
4. Members tell the leader ten times a second who asks there, and hear whether others ask anywhere
   (``asking``): a flood on one member delays a quorum, too.
5. Only what works counts, until it is answered: what waits for others (a lock, a change) ends its
   turn.
6. A client's heartbeats and releases go first in its line. Alone they make no other client wait:
   who only keeps sessions is not a client that asks.
7. A line is bounded: a client with ``LINE_MAX`` in it is not read from until it is shorter. What
   has waited for too long is refused; nothing of it was begun.
8. A client may send ``requests_per_second_max`` to each member, and as many again in a burst. More
   is refused, but not heartbeats and releases.

A client is known by its key: the identity that it has proved, else its address.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from itertools import islice
from typing import Final

from coordinator.errors import ThrottledError

ALONE_MAX: Final = 512
"""The requests of a client that is alone, on one member; more at once makes nothing faster."""
MODEST_MAX: Final = 8
"""The requests of a client while others ask, before it counts as heavy."""
BATCH_MAX: Final = 32
REST: Final = 9
UNDER_WAY_MAX: Final = 64
"""The requests of all heavy clients together while only such ask."""
LINE_MAX: Final = 64
"""The waiting frames of one client's connections together; the frames behind wait in their
connections."""
LONG_COST: Final = 4
"""What a list counts as, or another long answer, where a write or a read of one znode is one."""
BODY_COST_BYTES: Final = 8 * 1024
"""So many bytes of a body count as one more request."""
WORK_FREE: Final = 200
"""Kibibytes of long answers in two periods, two megabytes a second: less makes no client heavy."""
WORK_SHARE: Final = 1.5
"""How much more work than another one's is too much, in requests and kibibytes of long answers."""
_WORK_HEAVY_S: Final = 1.0
"""For so long a client is heavy whose work was too much."""
ASKING_SHOWN_MAX: Final = 16
_PERIOD_S: Final = 0.1
_BATCH_S_MAX: Final = 0.3
"""A batch that took longer is followed by no longer a rest: requests do not wait for ever."""
_QUIET_S: Final = 0.005
_AWAITED_S: Final = 2.0
"""For so long a client whose request is not answered counts as asking: it may wait for others."""
_CLIENTS_KEPT: Final = 256

KEY: Final[ContextVar[str]] = ContextVar("client key", default="")
"""The key of the client for whom the running task works; empty: of none, the member itself."""


def cost_of(body_bytes: int) -> int:
    """Return what a request with a body of so many bytes counts as."""
    return 1 + body_bytes // BODY_COST_BYTES


Begin = Callable[[int], bool]
"""Begins what waited, under its mark (0: it has waited too long); says whether it was wanted."""


class Turn:
    """One request that waits for its turn."""

    __slots__ = ("begin", "cost", "until_s")

    def __init__(self, begin: Begin, cost: int, until_s: float) -> None:
        self.begin = begin
        self.cost = cost
        self.until_s = until_s


class _Client:
    """What one client has under way, what it did lately, and its line."""

    __slots__ = ("batch_s", "heavy_until_s", "held", "line", "long_before", "long_work", "noted",
                 "period", "rest_until_s", "since", "tokens", "under_way", "urgent", "work",
                 "work_before")  # fmt: skip

    def __init__(self, tokens: float) -> None:
        self.tokens = tokens
        """How many more requests it may send now."""
        self.period = 0
        self.since = 0
        """The first period from which on it has asked in each."""
        self.noted = 0
        """The last period in which it asked for more than to keep its sessions."""
        self.under_way = 0
        """What was begun, and is neither answered nor waits for others."""
        self.work = self.work_before = 0
        """What was begun in ``period`` and the one before, ended or not, and its long answers."""
        self.long_work = self.long_before = 0
        """The kibibytes of long answers, and what long bodies count as."""
        self.heavy_until_s = 0.0
        self.batch_s = 0.0
        """When its batch began; 0: none is under way."""
        self.rest_until_s = 0.0
        self.urgent: deque[Turn] = deque()
        self.line: deque[Turn] = deque()
        self.held: deque[Callable[[], None]] = deque()
        """Go on with connections that are not read from."""

    def start(self, cost: int) -> None:
        """Count a request that begins."""
        self.under_way += cost
        self.work += cost
        if cost > LONG_COST:
            self.long_work += cost

    @property
    def is_idle(self) -> bool:
        return not (self.line or self.urgent or self.held)


class Turns:
    """The turns of the clients of one member."""

    def __init__(self, per_second_max: int = 1_000_000_000) -> None:
        self._per_second_max = per_second_max
        self._clients: dict[str, _Client] = {}
        self._shared_until_s = 0.0
        """Until when more than one client counts as asking."""
        self._period = 0
        self._asked: dict[str, None] = {}
        """Who has asked in this period; and in the one before, or awaits an answer since."""
        self._asked_before: dict[str, None] = {}
        self._modest_until_s = 0.0
        """Until when a client counts as asking modestly, here or elsewhere."""
        self._elsewhere_until_s = 0.0
        self._waiting: dict[str, _Client] = {}
        self.waiting = self._waiting.keys()
        """Whose requests wait for a turn, or are not read."""
        self._waited = -1
        """The last period in which one began to wait."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_asked: Callable[[], object] = lambda: None
        """Is called for the first who asks in a period."""
        self.waits_total = 0
        """Requests that had to wait for a turn; those that waited for too long; those that were too
        many a second."""
        self.missed_total = 0
        self.refused_total = 0

    def begin(
        self, key: str, cost: int = 1, *, is_urgent: bool = False, is_charged: bool = False
    ) -> int:
        """Count what is begun for a client, and return its mark for ``end``; 0: it has to wait.

        ``is_charged``: it has just come, and counts against the rate of its client.

        Raises:
            ThrottledError: it is one too many for now."""
        now_s = self._now_s()
        client = self._clients.get(key) or self._new(key)
        period = int(now_s / _PERIOD_S) + 1
        if client.period != period:
            self._roll(client, period)
        if is_charged:
            charge = min(cost, LONG_COST)
            client.tokens -= charge
            if client.tokens < 0 and not is_urgent:
                client.tokens += charge
                self.refused_total += 1
                raise ThrottledError(
                    f"expected at most {self._per_second_max} requests a second of one client "
                    f"({key or 'this process'}) on one member (requests_per_second_max), found "
                    "more; nothing was done, send fewer at a time or let several requests be one"
                )
        if client.noted != period and not is_urgent:
            client.noted = period
            self._note(key, period, now_s)
        under_way = client.under_way
        if now_s < self._shared_until_s:
            if client.heavy_until_s > now_s or under_way >= MODEST_MAX:
                client.heavy_until_s = max(client.heavy_until_s, now_s + 2 * _PERIOD_S)
                return 0
            if client.long_work + client.long_before > WORK_FREE and self._does_most(client, now_s):
                client.heavy_until_s = now_s + _WORK_HEAVY_S
                return 0
        elif under_way >= ALONE_MAX or client.line:
            return 0
        client.start(cost)
        return period

    def note_work(self, key: str, kibibytes: int) -> None:
        """Count a long answer that was made for a client."""
        client = self._clients.get(key)
        if client is not None:
            client.work += kibibytes
            client.long_work += kibibytes

    def end(self, key: str, mark: int, cost: int = 1) -> None:
        """Note that the request begun under ``mark`` has ended, or waits for others."""
        client = self._clients.get(key)
        if client is None or not mark:
            return
        client.under_way -= cost
        if self._waiting and key in self._waiting:
            self._go_on(key, client)
        elif self._waiting or client.period - self._waited <= 1:
            now_s = self._now_s()
            if client.heavy_until_s <= now_s:
                self._modest_until_s = now_s + _QUIET_S

    def wait(
        self, key: str, begin: Begin, wait_s: float, cost: int = 1, *, is_urgent: bool = False
    ) -> None:
        """Have ``begin`` called when it is the turn of this client, or when it has waited."""
        loop = self._running_loop()
        client = self._clients.get(key) or self._new(key)
        line = client.urgent if is_urgent else client.line
        line.append(Turn(begin, cost, loop.time() + wait_s))
        self._waiting[key] = client
        self._waited = client.period
        self.waits_total += 1
        if not client.under_way:
            loop.call_soon(self._go_on, key, client)  # no end would begin its turn
        self._look_again(_PERIOD_S)

    async def turn(self, key: str, wait_s: float, cost: int = 1, *, is_urgent: bool = False) -> int:
        """Wait for a turn; return its mark, 0 if there was none within ``wait_s``."""
        mark = self.begin(key, cost, is_urgent=is_urgent)
        if mark:
            return mark
        given: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def begin(mark: int) -> bool:
            if given.done():
                return False
            given.set_result(mark)
            return True

        self.wait(key, begin, wait_s, cost, is_urgent=is_urgent)
        try:
            return await given
        except asyncio.CancelledError:
            if not given.cancelled():  # it was given before the cancellation
                self.end(key, given.result(), cost)
            raise

    def is_line_full(self, key: str) -> bool:
        """Whether no more of what this client sends should be read."""
        client = self._waiting.get(key)
        return client is not None and len(client.line) >= LINE_MAX

    def hold(self, key: str, go_on: Callable[[], None]) -> None:
        """Have ``go_on`` called when the line of this client is shorter, one after the other."""
        client = self._waiting[key] = self._clients.get(key) or self._new(key)
        client.held.append(go_on)
        self._look_again(_PERIOD_S)

    # --- who asks

    def asking(self) -> list[tuple[str, bool]]:
        """Return who asks here, some of them if they are many, and whether they are heavy."""
        now_s = self._now_s()
        self._turn_period(int(now_s / _PERIOD_S) + 1)
        shown = islice({**self._asked_before, **self._asked}, ASKING_SHOWN_MAX)
        return [(key, self._is_heavy(key, now_s)) for key in shown]

    def note_elsewhere(self, asking: Iterable[tuple[str, bool]]) -> tuple[int, bool]:
        """Note who asks at another member; return how many ask, and whether one modestly."""
        now_s = self._now_s()
        period = int(now_s / _PERIOD_S) + 1
        for key, is_heavy in asking:
            if is_heavy:
                client = self._clients.get(key) or self._new(key)
                client.heavy_until_s = max(client.heavy_until_s, now_s + 3 * _PERIOD_S)
            elif not self._is_heavy(key, now_s):
                self._elsewhere_until_s = now_s + 3 * _PERIOD_S
            self._note(key, period, now_s)
        here = self.asking()
        return len(here), not all(is_heavy for _, is_heavy in here)

    def note_cluster(self, count: int, *, is_one_modest: bool) -> None:
        """Note how many ask anywhere, as the leader says, and whether one of them modestly."""
        now_s = self._now_s()
        if count > 1:
            self._shared_until_s = now_s + 3 * _PERIOD_S
            if is_one_modest:
                self._elsewhere_until_s = now_s + 3 * _PERIOD_S

    def figures(self) -> dict[str, float]:
        """Return what metrics show of this member's clients; none is named."""
        asking = self.asking()
        return {
            "client_turn_waits_total": self.waits_total,
            "client_turns_missed_total": self.missed_total,
            "client_rate_refusals_total": self.refused_total,
            "clients_asking": len(asking),
            "clients_heavy": sum(is_heavy for _, is_heavy in asking),
        }

    def _is_heavy(self, key: str, now_s: float) -> bool:
        client = self._clients.get(key)
        return client is not None and client.heavy_until_s > now_s

    def _note(self, key: str, period: int, now_s: float) -> None:
        self._turn_period(period)
        if not self._asked:
            self.on_asked()
        if len(self._asked) < _CLIENTS_KEPT:
            self._asked[key] = None
        if len(self._asked) > 1 or (self._asked_before and self._asked_before.keys() != {key}):
            self._shared_until_s = max(self._shared_until_s, now_s + 2 * _PERIOD_S)

    def _turn_period(self, period: int) -> None:
        if self._period != period:
            before = {**self._asked_before, **self._asked}
            asked = self._asked if self._period == period - 1 else {}
            self._asked_before = {k: None for k in before if k in asked or self._awaits(k, period)}
            self._asked, self._period = {}, period

    def _awaits(self, key: str, period: int) -> bool:
        """Whether a client has asked lately and was not answered: it goes on asking."""
        client = self._clients.get(key)
        if client is None or not client.under_way:
            return False
        return period - client.noted <= _AWAITED_S / _PERIOD_S

    def _does_most(self, client: _Client, now_s: float) -> bool:
        """Whether the work of a client is much more than that of another one that is not heavy, and
        has asked for as long as the work is counted: who has just come has done little."""
        bound = (client.work + client.work_before) / WORK_SHARE
        for key in {**self._asked_before, **self._asked}:
            each = self._clients.get(key)
            if each is None or each is client or each.heavy_until_s > now_s:
                continue
            if each.period >= client.period - 1 and each.since < client.period - 1:
                before = each.work_before if each.period == client.period else 0
                if each.work + before < bound:
                    return True
        return False

    # --- whose turn it is

    def _go_on(self, key: str, client: _Client) -> None:
        """Begin what may begin of this client's line."""
        now_s = self._now_s()
        period = int(now_s / _PERIOD_S) + 1
        if client.period != period:
            self._roll(client, period)
        room = self._room(key, client, period, now_s)
        while lined := client.urgent or client.line:
            if lined[0].until_s <= now_s:
                lined.popleft().begin(0)
                self.missed_total += 1
                continue
            if room <= 0:
                break
            turn = lined.popleft()
            client.start(turn.cost)
            room -= turn.cost
            if not turn.begin(period):
                client.under_way -= turn.cost
                room += turn.cost
        for _ in range(min(len(client.held), max(1, (LINE_MAX - len(client.line)) // 16))):
            if len(client.line) < LINE_MAX // 2:
                self._running_loop().call_soon(client.held.popleft())
        if client.is_idle:
            self._waiting.pop(key, None)

    def _room(self, key: str, client: _Client, period: int, now_s: float) -> int:
        """Return how many more this client may begin now."""
        under_way = client.under_way
        if now_s >= self._shared_until_s:
            client.batch_s = 0.0
            return ALONE_MAX - under_way
        if client.line or client.urgent:
            client.heavy_until_s = max(client.heavy_until_s, now_s + 2 * _PERIOD_S)
            self._note(key, period, now_s)
        is_elsewhere = now_s < self._elsewhere_until_s
        is_awaited = is_elsewhere or self._is_awaited(now_s)
        is_modest = is_awaited or now_s < self._modest_until_s + _PERIOD_S
        heavy = max(1, len(self._waiting))
        if not is_modest:
            client.batch_s = 0.0
            return UNDER_WAY_MAX // max(2, heavy) - under_way
        if under_way > 0:
            return 0  # its batch, or what it had begun before others came
        if client.batch_s:
            took_s = now_s - client.batch_s
            client.batch_s = 0.0
            client.rest_until_s = now_s + REST * heavy * min(took_s, _BATCH_S_MAX)
        if now_s < client.rest_until_s:
            quiet_s = client.rest_until_s if is_awaited else self._modest_until_s
            if now_s < quiet_s:
                again_s = min(client.rest_until_s, quiet_s)
                self._look_again(again_s - now_s)
                return 0
        if client.line or client.urgent:
            client.batch_s = now_s
        return BATCH_MAX

    def _is_awaited(self, now_s: float) -> bool:
        """Whether one who asks modestly has something under way."""
        for key in {**self._asked_before, **self._asked}:
            each = self._clients.get(key)
            if each is None or key in self._waiting or each.heavy_until_s > now_s:
                continue
            if each.under_way > 0:
                return True
        return False

    def _look_again(self, in_s: float) -> None:
        """Look again at those who wait: one that begins to wait for others does not say so."""
        loop = self._running_loop()
        at_s = loop.time() + max(in_s, 0.0005)
        if self._timer is not None:
            if self._timer.when() <= at_s:
                return
            self._timer.cancel()
        self._timer = loop.call_at(at_s, self._look)

    def _look(self) -> None:
        self._timer = None
        for key, client in list(self._waiting.items()):
            self._go_on(key, client)
        if self._waiting:
            self._look_again(_PERIOD_S)

    def _new(self, key: str) -> _Client:
        if len(self._clients) >= max(_CLIENTS_KEPT, 2 * len(self._waiting)):
            now = int(self._now_s() / _PERIOD_S)
            old = [k for k, each in islice(self._clients.items(), _CLIENTS_KEPT)
                   if each.is_idle and not each.under_way and each.period < now]  # fmt: skip
            for each in old:
                del self._clients[each]
        client = self._clients[key] = _Client(self._per_second_max)
        return client

    def _roll(self, client: _Client, period: int) -> None:
        """Another period has begun for a client."""
        is_next = client.period == period - 1
        if not is_next:
            client.since = period
        client.work_before = client.work if is_next else 0
        client.long_before = client.long_work if is_next else 0
        client.work = client.long_work = 0
        earned = (period - client.period) * self._per_second_max * _PERIOD_S
        client.tokens = min(self._per_second_max, client.tokens + earned)
        client.period = period

    def _now_s(self) -> float:
        return self._running_loop().time()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the member's loop; asyncio asks the system for the process each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop


class FirstFew:
    """Counts the requests of each client in the present second: the first few of them pass before
    they are looked at closely."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._second = 0
        self._counts: dict[str, int] = {}
        """Of this second: so only clients that ask now are kept."""

    def count(self, client: str) -> int:
        """Count one more of a client; return how many it is in this second, from 1 on."""
        second = self._now_ms() // 1_000
        if second != self._second:
            self._second, self._counts = second, {}
        count = self._counts[client] = self._counts.get(client, 0) + 1
        return count
