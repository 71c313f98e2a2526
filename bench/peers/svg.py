"""Bar charts as SVG: groups of bars on a logarithmic scale, one colour for each system."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = {
    "ours": "#1f6feb", "ours-sync": "#6cb0ff", "ours-http": "#b6d7ff", "etcd": "#d9822b",
    "etcd-sync": "#f2c08a", "zookeeper": "#3f8f4f", "redis": "#8a8a8a",
}  # fmt: skip
_BAR, _GAP, _LEFT, _TOP, _HEIGHT, _BOTTOM = 14, 26, 64, 44, 260, 56
_ROOM_PER_LETTER = 8


def bar_chart(title: str, unit: str, groups: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Return the chart: for each group its name and the value of each system."""
    values = [each for _, found in groups for each in found.values() if each > 0]
    low = math.floor(math.log10(min(values, default=1.0)))
    high = max(math.ceil(math.log10(max(values, default=10.0))), low + 1)

    def y(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return round(_TOP + _HEIGHT * (1 - share), 1)

    parts: list[str] = []
    for power in range(low, high + 1):
        at = y(10.0**power)
        label = f"{10.0**power:,.0f}" if power >= 0 else f"{10.0**power:g}"
        parts.append(f'<line x1="{_LEFT}" x2="100%" y1="{at}" y2="{at}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{at + 4}" text-anchor="end">{label}</text>')
    x = _LEFT + _GAP / 2
    for name, found in groups:
        began = x
        for system, value in found.items():
            top = y(value)
            said = escape(f"{system}: {value:,.1f} {unit}")
            parts.append(
                f'<rect x="{x:.0f}" y="{top}" width="{_BAR - 2}" '
                f'height="{round(_TOP + _HEIGHT - top, 1)}" '
                f'fill="{COLOURS.get(system, "#555")}"><title>{said}</title></rect>'
            )
            x += _BAR
        x = max(x, began + _ROOM_PER_LETTER * len(name))
        middle = (began + x) / 2
        parts.append(
            f'<text x="{middle:.0f}" y="{_TOP + _HEIGHT + 18}" text-anchor="middle">'
            f"{escape(name)}</text>"
        )
        x += _GAP
    legend = dict.fromkeys(system for _, found in groups for system in found)
    width = max(x, _LEFT + 96 * len(legend))
    for number, system in enumerate(legend):
        at = _LEFT + 96 * number
        below = _TOP + _HEIGHT + 36
        colour = COLOURS.get(system, "#555")
        parts.append(f'<rect x="{at}" y="{below}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{at + 14}" y="{below + 9}">{escape(system)}</text>')
    height = _TOP + _HEIGHT + _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="12">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="{_LEFT}" y="22" font-size="15">{escape(title)}, {escape(unit)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
