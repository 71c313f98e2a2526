"""A fault: in effect from its creation until it is ended, or for a ``with``."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal


class Fault:
    """``end()`` it, leave the ``with`` of it, or let it last as long as the cluster."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end: Callable[[], None] | None = on_end
        self._guard = threading.Lock()

    @property
    def is_in_effect(self) -> bool:
        """Whether the fault has not been ended."""
        return self._on_end is not None

    def end(self) -> None:
        """End it; idempotent, from any thread."""
        with self._guard:
            on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_exception: object) -> Literal[None]:
        self.end()
