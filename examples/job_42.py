"""The ghost writer of job-42: tokens 7 and 8, a lease of 10 s, pauses of 11 s and of 15 s.

A pause that is a little too long is as bad as one that is much too long, and no length of the lease
would help: a pause can always be longer.
"""

from __future__ import annotations

from coordinator.testing import local_cluster
from examples.ghost import nights
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with nights(stage) as play:
        stage.say("Without fencing tokens:")
        with play.night("job-42", lease_s=10, is_fenced=False) as night:
            night.b_writes("by B")
            night.a_wakes_and_writes("by A", after_s=11)
            assert night.report() == "by A"
        stage.say("The result of job-42 is A's: B's work is lost.")

        for pause_s in (11, 15):
            stage.say(f"With fencing tokens, a pause of {pause_s} s:")
            with (
                local_cluster(members=1) as cluster,  # of its own, for the numbers
                play.night("job-42", lease_s=10, cluster=cluster, token=7) as night,
            ):
                assert (night.a_token, night.b_token) == (7, 8)
                night.b_writes("by B")
                night.a_wakes_and_writes("by A", after_s=pause_s)
                assert night.report() == "by B"
            stage.say("The result of job-42 is B's, as it must be.")


if __name__ == "__main__":
    perform(story)
