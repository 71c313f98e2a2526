"""The lines of streams that were read last, and how much of them is kept."""

from __future__ import annotations

from coordinator.client.calling.answers import RecentLines


def test_of_long_lines_the_last_is_kept_until_others_follow() -> None:
    """Also by no other name: a line of 2 MB was kept after it had been forgotten."""
    lines = RecentLines()
    first, long = b"1" * 5_000, b"2" * 5_000
    lines.keep(first, "first", len(first))
    lines.keep(long, "long", len(long))
    assert list(lines.said) == [long]

    for number in range(32):
        lines.keep(number, "short", 10)

    assert list(lines.said) == list(range(32))
    assert lines._long is None
