"""A rate limiter tolerates two holders for a while, but not none: it continues when unsure.

Running twice costs a few requests too many; standing still costs all of them. So it keeps running
through an outage, and says that it is unsure. That it may have run beside another is in the audit.
"""

from __future__ import annotations

from coordinator.errors import LockLostError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    let_through = 0
    with (
        stage.connect("limiter", lease=3, timeout=0.5) as client,
        stage.connect("auditor") as auditor,
    ):
        with Lock(client, "limiter", purpose="efficiency", when_unsure="continue") as grant:
            outage = stage.cluster.cut_off(client)
            said = False
            for _ in range(8):
                stage.wait(2)
                let_through += 1
                if grant.is_lost and not said:
                    said = True
                    stage.say("The lease has ended in the outage; going on, unsure.")
            outage.end()
        stage.say(
            f"Let {let_through} of 8 through. Afterwards the grant says: lost = {grant.is_lost}"
        )
        try:
            grant.check()
        except LockLostError:
            stage.say("and what must not be done twice would be refused: its token is an old one.")
        for each in auditor.grants("limiter"):
            stage.say(
                f"The audit: token {each.fencing_token}, {each.how}; unsure: {each.when_unsure}"
            )


if __name__ == "__main__":
    perform(story)
