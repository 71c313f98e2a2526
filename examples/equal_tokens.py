"""Tokens 33 and 34, then 42 and 43: a lower one is refused, an equal one passes.

The guard refuses what is lower than the highest token it has seen, not what is lower or equal: B
writes twice with 34, and both pass. A's 33 does not, before B's second write or after it.
"""

from __future__ import annotations

from coordinator.testing import local_cluster
from examples.ghost import nights
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with nights(stage) as play:
        stage.say("Without fencing tokens:")
        with play.night("report-103", lease_s=5, is_fenced=False) as night:
            night.b_writes("first of B")
            night.a_wakes_and_writes("by A", after_s=6)
            assert night.report() == "by A"
        stage.say("The report is A's: B's work is lost.")

        stage.say("With fencing tokens:")
        for token in (33, 42):
            with (
                local_cluster(members=1) as cluster,  # of its own, for the numbers
                play.night("report-103", lease_s=5, cluster=cluster, token=token) as night,
            ):
                assert (night.a_token, night.b_token) == (token, token + 1)
                assert night.b_writes("first of B")
                assert not night.a_wakes_and_writes("by A", after_s=6)
                assert night.b_writes("second of B")
                assert not night.a_writes("by A, again")
                stage.say(f"The report is {night.report()!r}.")


if __name__ == "__main__":
    perform(story)
