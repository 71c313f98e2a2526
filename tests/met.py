"""What a test met: counts that let it fail when it held too little of what it is about.

A judgement that was never asked for says nothing: a storm without a hand-over, a run that cancelled
nothing on the way. What is counted is decided by seeds, not by the clock; the least numbers leave
room for a change of the code, not for an empty run.
"""

from __future__ import annotations

from collections import Counter


class Met(Counter[str]):
    """How often each of these was met."""

    def check(self, **least: int) -> None:
        """Fail if one was met less often than ``least`` says; ``_`` stands for a blank, too."""
        counts = {name.replace(" ", "_"): count for name, count in self.items()}
        found = {name: counts.get(name.replace(" ", "_"), 0) for name in least}
        short = {name: (found[name], n) for name, n in least.items() if found[name] < n}
        assert not short, f"too little of what this is about was met (found, least): {short}"
