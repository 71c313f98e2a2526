"""Quorum rounds: whether a majority still follows this leader; all askers of one pass share one.

A round has a number. A member's answer counts for that round and every earlier one, since it was
given after they all had begun. An asker waits for a round that begins after its question (Raft
thesis, 6.4). No I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from coordinator.errors import NoLeaderError
from coordinator.waiting import SharedAnswer

ROUNDS_IN_FLIGHT_MAX = 16


class QuorumRounds:
    """The rounds of one member while it leads."""

    def __init__(self, member_ids: Sequence[str]) -> None:
        self._answered = dict.fromkeys(member_ids, 0)
        self._others_needed = (len(member_ids) + 1) // 2
        self.joining: SharedAnswer[int] | None = None
        """What those share who wait for the next round to begin; None if nobody does."""
        self._in_flight: deque[tuple[int, int, SharedAnswer[int]]] = deque()
        self._round_number = 0

    def join(self) -> SharedAnswer[int]:
        """Return the result of the next round to begin: the commit index at its beginning.

        Wait for it in the same step."""
        if self.joining is None:
            self.joining = SharedAnswer()
        return self.joining

    @property
    def has_joined(self) -> bool:
        """Whether a caller waits for a round that may begin now."""
        return self.joining is not None and len(self._in_flight) < ROUNDS_IN_FLIGHT_MAX

    @property
    def is_waiting(self) -> bool:
        """Whether a round is under way."""
        return bool(self._in_flight)

    @property
    def current(self) -> int:
        """The number of the newest round."""
        return self._round_number

    def begin(self, commit_index: int) -> None:
        """Begin a round for those who have joined; ``current``, its number, is sent to all."""
        assert self.joining is not None
        self._round_number += 1
        self._in_flight.append((self._round_number, commit_index, self.joining))
        self.joining = None
        self._finish()

    def on_reply(self, member_id: str, round_number: int) -> None:
        """Count a reply of the current term."""
        if round_number > self._round_number or round_number <= self._answered[member_id]:
            return
        self._answered[member_id] = round_number
        self._finish()

    def fail(self) -> None:
        """Fail all waiters: this member does not lead. Answers to old rounds no longer count."""
        waiting = [answer for _, _, answer in self._in_flight]
        if self.joining is not None:
            waiting.append(self.joining)
        self.joining = None
        self._in_flight.clear()
        for member_id in self._answered:
            self._answered[member_id] = self._round_number
        for answer in waiting:
            answer.fail(lambda: NoLeaderError("this member does not lead any more"))

    def _finish(self) -> None:
        if self._others_needed:
            answered = sorted(self._answered.values(), reverse=True)
            confirmed = answered[self._others_needed - 1]
        else:
            confirmed = self._round_number
        while self._in_flight and self._in_flight[0][0] <= confirmed:
            _, index, answer = self._in_flight.popleft()
            answer.resolve(index)
