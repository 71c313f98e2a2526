"""Sizes as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def in_bytes(count: int) -> str:
    """Return a size in its largest unit: ``0 B``, ``1.4 KiB``."""
    at, value = 0, float(count)
    while value >= 1024 and at < len(_UNITS) - 1:
        value, at = value / 1024, at + 1
    return f"{value:.1f} {_UNITS[at]}" if at else f"{count} B"
