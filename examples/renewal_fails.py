"""The heartbeats stop while it works: a short silence is nothing, a long one ends the work.

The work is cancelled when the lock can no longer be relied upon, and told why; it is not a surprise
at the release.
"""

from __future__ import annotations

import asyncio

from coordinator.errors import LockLostError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


async def work(stage: Stage) -> None:
    async with stage.connect("worker", lease=15) as client:
        async with Lock(client, "index") as grant:
            with stage.cluster.freeze_heartbeats(client):
                await asyncio.sleep(stage.seconds(3))
            await asyncio.sleep(stage.seconds(4))
            grant.check()
            stage.say("No heartbeat for 3 s of 15: the work goes on.")
        try:
            async with Lock(client, "index") as grant:
                stage.cluster.freeze_heartbeats(client)
                stage.say(f"Token {grant.fencing_token}; the heartbeats stop for good.")
                await asyncio.sleep(60)
                stage.say("NOT CANCELLED")
        except LockLostError as error:
            stage.say(f"The work was cancelled: {error.message.partition(' of session')[0]} ...")


def story(stage: Stage) -> None:
    asyncio.run(work(stage))


if __name__ == "__main__":
    perform(story)
