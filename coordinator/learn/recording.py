"""A film of any cluster as it runs: what its tree, its grants, its members and its sessions do.

It only reads: a watch of the whole tree, and status, locks and sessions from time to time. Data of
znodes is not in it, and neither are the notes of grants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from coordinator.client import AsyncClient, Change
from coordinator.clock import SystemClock
from coordinator.errors import AuthFailedError, CoordinatorError, NoAuthError
from coordinator.learn.film import Film, Recorder, Step, Value
from coordinator.learn.onlooker import AskMember, Onlooker

LOOK_S = 0.5
SHOWN_MAX = 50
"""Locks and sessions in the picture; the events have all."""


async def record(
    client: AsyncClient,
    urls: Mapping[str, str],
    seconds: float,
    *,
    path: str = "/",
    ask: AskMember | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Film:
    """Return the film of the next ``seconds`` of a cluster, or less if it gets full.

    Args:
        urls: where each member is reached, by its id.
        path: only events at and below this path.
        ask: how a member is asked for its role; None: by HTTP, without a token.
    """
    recorder = Recorder(SystemClock(), "A cluster", f"recorded: {len(urls)} members, {path}")
    if on_step is not None:
        recorder.on_step.append(on_step)
    onlooker = Onlooker(client, recorder, "", urls, ask=ask)
    zxid = (await client.status()).zxid
    recorder.step("film", f"Recording begins at zxid {zxid}.", {("world", "zxid"): zxid})
    tasks = [
        asyncio.create_task(_watch(client, recorder, path, zxid)),
        asyncio.create_task(_look(client, recorder)),
        asyncio.create_task(onlooker.look_at_members()),
    ]
    try:
        await asyncio.sleep(seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await onlooker.stop()
    return recorder.film()


async def _watch(client: AsyncClient, recorder: Recorder, path: str, from_zxid: int) -> None:
    while not recorder.is_full:
        try:
            async with client.watch(path, kind="subtree", from_zxid=from_zxid) as changes:
                async for change in changes:
                    from_zxid = change.zxid
                    _show(recorder, change)
        except (AuthFailedError, NoAuthError) as error:
            recorder.step("film", f"Events are not shown: {error.message}")
            return
        except CoordinatorError as error:
            recorder.step("film", f"The watch was lost, and goes on: {error.message}")
            await asyncio.sleep(LOOK_S)


def _show(recorder: Recorder, change: Change) -> None:
    text = "; ".join(f"{event.type} {event.path}" for event in change.events)
    recorder.step("cluster", text, {("world", "zxid"): change.zxid}, zxid=change.zxid)


async def _look(client: AsyncClient, recorder: Recorder) -> None:
    shown: dict[str, Value] = {}
    reads = {"locks": _locks, "sessions": _sessions}
    while not recorder.is_full:
        found: dict[str, Value] = {}
        for name, read in list(reads.items()):
            try:
                found[name] = await read(client)
            except (AuthFailedError, NoAuthError) as error:
                recorder.step("film", f"The {name} are not shown: {error.message}")
                del reads[name]
            except CoordinatorError:
                continue
        new: dict[tuple[str, ...], Value] = {
            (name,): value for name, value in found.items() if shown.get(name) != value
        }
        if new:
            shown |= found
            recorder.sample(new)
        await asyncio.sleep(LOOK_S)


async def _locks(client: AsyncClient) -> Value:
    found: dict[str, Value] = {}
    async for lock in client.locks():
        holder = lock.holder
        found[lock.lock] = {
            "holder": None if holder is None else holder.label or holder.session_id,
            "token": None if holder is None else holder.fencing_token,
            "waiting": lock.queue_length,
        }
        if len(found) >= SHOWN_MAX:
            break
    return found


async def _sessions(client: AsyncClient) -> Value:
    sessions = await client.sessions()
    return {each.session_id: {"label": each.label, "state": "open"}
            for each in sessions[:SHOWN_MAX]}  # fmt: skip
