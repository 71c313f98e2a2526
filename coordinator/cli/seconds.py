"""Seconds on the command line: a number that time can have, neither NaN nor infinite."""

from __future__ import annotations

from typing import Any

import click

SECONDS_MAX = 1e9
"""Thirty years; more may not fit the milliseconds of the protocol."""


class Seconds(click.FloatRange):
    """A range of seconds with an upper end; NaN, which compares with nothing, is refused."""

    def __init__(
        self, *, min: float = 0.0, max: float = SECONDS_MAX, min_open: bool = False
    ) -> None:
        super().__init__(min=min, max=max, min_open=min_open)

    def _describe_range(self) -> str:
        """Leave the upper end out of the help where it is only the largest number that fits."""
        if self.max != SECONDS_MAX:
            return super()._describe_range()
        return f"x{'>' if self.min_open else '>='}{self.min:g}"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number; refuse what is no time."""
        seconds: float = super().convert(value, param, ctx)
        if seconds != seconds:  # click's range lets NaN pass: it is not below, and not above
            self.fail(f"expected a number of seconds, found {value!r}", param, ctx)
        return seconds
