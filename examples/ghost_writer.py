"""The ghost writer: a lease of 5 s, a pause of 8 s, and a write that comes too late.

A takes the lock, looks at it ("held"), and is frozen before it writes. The cluster gives the lock
to B, which writes. A wakes and does what it was about to do. Without tokens that destroys B's work;
with them the store refuses it, and names both.
"""

from __future__ import annotations

from examples.ghost import nights
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with nights(stage) as play:
        stage.say("Without fencing tokens:")
        with play.night("report-101", lease_s=5, is_fenced=False) as night:
            night.b_writes("by B")
            night.a_wakes_and_writes("by A", after_s=8)
            assert night.report() == "by A"
        stage.say("The report is A's, though B holds the lock: B's work is lost.")

        stage.say("With fencing tokens:")
        with play.night("report-101", lease_s=5) as night:
            night.b_writes("by B")
            night.a_wakes_and_writes("by A", after_s=8)
            assert night.report() == "by B"
        stage.say("The report is B's, as it must be.")


if __name__ == "__main__":
    perform(story)
