"""A wakes when B holds the lock but has not written yet: the gap, and what closes it.

The store has seen no token higher than A's, so it lets A's late write in: a token protects from the
moment in which the store has seen the next one. ``raise_on_acquire``, on by default, shows it the
new token before the new holder's body runs, and closes the gap.
"""

from __future__ import annotations

from coordinator.testing import local_cluster
from examples.ghost import nights
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with nights(stage) as play:
        stage.say("Without fencing tokens:")
        with play.night("report-104", lease_s=5, is_fenced=False) as night:
            assert night.a_wakes_and_writes("by A", after_s=6)
            night.b_writes("by B")
            assert night.a_writes("by A, again")
            stage.say(f"The report is {night.report()!r}: nothing ever stops A.")

        stage.say("With fencing tokens, and raise_on_acquire=False:")
        with play.night("report-104", lease_s=5, raise_on_acquire=False) as night:
            assert night.a_wakes_and_writes("by A", after_s=6)
            stage.say("B has not written yet, so nothing was there to refuse A.")
            night.b_writes("by B")
            assert not night.a_writes("by A, again")

        stage.say("With fencing tokens, raised when B acquired (the default):")
        with (
            local_cluster(members=1) as cluster,  # of its own, for the numbers
            play.night("report-104", lease_s=5, cluster=cluster, token=33) as night,
        ):
            assert not night.a_wakes_and_writes("by A", after_s=6)
            stage.say(f"The report is {night.report()!r}: A came too late, and the store knew.")


if __name__ == "__main__":
    perform(story)
