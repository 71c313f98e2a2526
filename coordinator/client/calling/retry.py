"""The pauses between tries: capped exponential backoff with full jitter.

Full jitter, a delay drawn evenly from zero to the ceiling, spreads a thousand clients that lost
their leader in the same instant best (AWS Architecture Blog, "Exponential Backoff And Jitter").
Pure but for the random source that is passed in.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from coordinator.errors import BadArgumentsError

_DOUBLINGS_MAX = 32


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a client tries again; the overall deadline of the call always has the last word.

    ``base_ms`` is the ceiling of the first delay, doubled up to ``cap_ms``. ``tries`` is how often
    one call is sent in all; None means as often as fits before its deadline. ``jitter`` is the
    random share of each delay, 1.0 by default and never 0 unless asked for. ``seed`` makes the
    delays repeatable, for tests.
    """

    base_ms: int = 50
    cap_ms: int = 2_000
    tries: int | None = None
    jitter: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.base_ms < 1 or self.cap_ms < self.base_ms:
            raise BadArgumentsError(
                f"retry: expected 1 <= base_ms <= cap_ms, found {self.base_ms} and {self.cap_ms}"
            )
        if self.tries is not None and self.tries < 1:
            raise BadArgumentsError(f"retry: expected tries of 1 or more, found {self.tries}")
        if not 0.0 <= self.jitter <= 1.0:
            raise BadArgumentsError(f"retry: expected jitter from 0 to 1, found {self.jitter}")

    def source(self) -> random.Random:
        """Return the source of the jitter."""
        return random.Random(self.seed)  # noqa: S311 - spreads load, keeps no secret

    def delay_ms(self, failures: int, source: random.Random) -> int:
        """Return how long to wait after this many failures (1..)."""
        ceiling = min(self.cap_ms, self.base_ms * 2 ** min(failures - 1, _DOUBLINGS_MAX))
        return int(ceiling * (1 - self.jitter) + source.uniform(0, ceiling * self.jitter))
