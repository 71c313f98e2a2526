"""For a bank account no holder is better than two: it stops when unsure, which is the default."""

from __future__ import annotations

import asyncio

from coordinator.errors import LockLostError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


async def transfers(stage: Stage) -> None:
    booked: list[int] = []
    async with stage.connect("bank", lease=3, timeout=0.5) as client:
        try:
            async with Lock(client, "account-17") as grant:
                outage = stage.cluster.cut_off(client)
                while True:
                    await asyncio.sleep(stage.seconds(0.5))
                    booked.append(grant.fencing_token)  # goes with the booking to its store
        except LockLostError:
            stage.say("Cut off; the lease is about to end: stopped by ourselves, before it did.")
        outage.end()
        stage.say(
            f"Booked something before: {bool(booked)}. Sure of the lock now: {not grant.is_lost}"
        )


def story(stage: Stage) -> None:
    asyncio.run(transfers(stage))


if __name__ == "__main__":
    perform(story)
