"""S131 A bank account rather has no holder than two: it stops when unsure, which is the default."""

from __future__ import annotations

import asyncio

from coordinator.errors import LockLostError
from examples.stage import Stage, perform
from recipes import Lock


async def transfers(stage: Stage) -> None:
    booked = 0
    async with stage.connect("bank", lease=3, timeout=0.5) as client:
        try:
            async with Lock(client, "account-17") as grant:
                outage = stage.cluster.cut_off(client)
                while True:
                    await asyncio.sleep(stage.seconds(0.5))
                    booked += 1  # each booking carries grant.fencing_token to the store
        except LockLostError:
            stage.say("Cut off; the lease is about to end: stopped by ourselves, before it did.")
        outage.end()
        stage.say(
            f"Booked something before: {booked > 0}. Sure of the lock now: {not grant.is_lost}"
        )


def story(stage: Stage) -> None:
    asyncio.run(transfers(stage))


if __name__ == "__main__":
    perform(story)
