"""The thread that runs syncs: what the loop waits for, and what it does not."""

from __future__ import annotations

import asyncio
import gc
import os
import threading

import pytest

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.blocking import WorkerThread, noting_failures, run_in_thread


def _threads(name: str) -> int:
    return sum(each.name == name for each in threading.enumerate())


def test_calls_run_one_after_the_other_in_one_thread() -> None:
    """The same one each time; each is done when the wait says so, and an error is its own."""
    thread, ran = WorkerThread("one"), []

    for number in range(100):
        assert thread(lambda number=number: ran.append((number, threading.get_ident()))).wait(5)

    def fail() -> None:
        raise OSError("spoiled")

    with pytest.raises(OSError, match="spoiled"):
        thread(fail).wait(5)
    assert thread(lambda: None).wait(5)
    assert [number for number, _ in ran] == list(range(100))
    assert len({ident for _, ident in ran} - {threading.get_ident()}) == 1


async def test_a_call_that_takes_long_is_waited_for_on_the_loop() -> None:
    """It is not done before it is; its error comes there, too; the next call is as any other."""
    thread, gate = WorkerThread("long"), threading.Event()

    def wait_and_fail() -> None:
        gate.wait(10)
        raise OSError("late")

    started = thread(wait_and_fail)
    assert not started.wait(0.001)
    done = asyncio.ensure_future(started.done())
    await asyncio.sleep(0.01)
    assert not done.done()

    gate.set()
    with pytest.raises(OSError, match="late"):
        await asyncio.wait_for(done, 5)
    assert thread(lambda: None).wait(5)


async def test_a_call_that_nobody_waited_for_ends_no_other() -> None:
    """Its signal comes when the next call is under way, whose sync is not done then."""
    thread, first, second = WorkerThread("late"), threading.Event(), threading.Event()
    waiting = asyncio.ensure_future(thread(lambda: first.wait(10) and None).done())
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait({waiting})
    first.set()
    while not thread._poll.poll(1_000):
        pass

    started = thread(lambda: second.wait(10) and None)
    assert not started.wait(0.001)
    done = asyncio.ensure_future(started.done())
    await asyncio.sleep(0.01)
    assert not done.done()
    second.set()
    await asyncio.wait_for(done, 5)
    assert thread(lambda: None).wait(5)


def test_nothing_is_left_of_it() -> None:
    """Neither the thread nor a descriptor, once it is not used any more; not before a call ends."""
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    thread, gate, ended = WorkerThread("left"), threading.Event(), threading.Event()

    def wait() -> None:
        gate.wait(10)
        ended.set()

    assert not thread(wait).wait(0.001)
    del thread
    gc.collect()
    gate.set()

    assert ended.wait(5)
    for _ in range(500):
        if not _threads("left"):
            break
        threading.Event().wait(0.01)
    assert not _threads("left")
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before


def test_a_call_is_run_though_the_end_follows_at_once() -> None:
    """Before the thread has looked: both signals were one, and the call was dropped."""
    for _ in range(20):
        thread, ran = WorkerThread("ended"), threading.Event()
        thread(ran.set)
        thread.close()

        assert ran.wait(5)
    for each in threading.enumerate():
        if each.name == "ended":
            each.join(5)
    assert _threads("ended") == 0


def test_it_ends_when_it_is_told_to_whoever_still_refers_to_it() -> None:
    """A stopped member may be referred to for long: caches of libraries keep what they met."""
    thread = WorkerThread("told")
    assert thread(lambda: None).wait(5)
    thread.close()
    thread.close()

    for each in threading.enumerate():
        if each.name == "told":
            each.join(5)
    assert _threads("told") == 0


async def test_a_failure_of_the_disk_is_noted_before_the_loop_hears_of_it() -> None:
    """In the thread that met it; one without room can be tried again, and others are no disk's."""
    noted: list[tuple[StorageError, int]] = []
    run = noting_failures(run_in_thread, lambda error: noted.append((error, threading.get_ident())))

    def fail(error: Exception) -> None:
        raise error

    for error in (DiskFullError("full"), ValueError("no")):
        with pytest.raises(type(error)):
            await run(lambda error=error: fail(error))
    assert await run(lambda: 3) == 3
    assert not noted
    failure = StorageError("rename: Input/output error")
    with pytest.raises(StorageError):
        await run(lambda: fail(failure))
    [(found, thread)] = noted
    assert found is failure
    assert thread != threading.get_ident()
