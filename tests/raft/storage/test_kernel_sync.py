"""Syncs by the kernel: bounded waits, errors, and the thread where the kernel does none."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import StorageError
from coordinator.raft.blocking import run_in_thread
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.kernel_sync import KernelSyncs, Syncs, open_kernel_syncs
from coordinator.raft.storage.sync import LogSync
from tests.patience import patient

SETUP, DESTROY, GETEVENTS, SUBMIT = 206, 207, 208, 209


class Kernel:
    """A kernel whose syncs end when the test says so, and as it says."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.eventfd = -1
        self.result: int | None = 0
        """Of the sync under way; None: it has not ended."""
        self.takes = True
        self.waited_s = 0.0
        """How long it was waited for by now."""

    def __call__(self, number: Any, *arguments: Any) -> int:
        self.calls.append(number.value)
        if number.value == SUBMIT:
            self.eventfd = arguments[2][0].contents.eventfd
            return 1 if self.takes else -1
        if number.value == GETEVENTS:
            if self.result is None:
                wait = arguments[4]._obj
                wait_s = wait.seconds + wait.nanoseconds / 1e9
                self.waited_s += wait_s
                time.sleep(wait_s)
                return 0
            arguments[3][0].result = self.result
            return 1
        return 0

    def end(self, result: int) -> None:
        self.result = result
        os.eventfd_write(self.eventfd, 1)

    def open(self) -> KernelSyncs:
        return KernelSyncs(self, "x86_64")


class Call:
    """A sync of a file, or more than that."""

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        self.thread: int | None = None
        """That in which it was called."""
        self.error: OSError | None = None
        self.is_ended = False

    def __call__(self) -> None:
        self.thread = threading.get_ident()

    def end(self, error: OSError | None) -> None:
        self.is_ended, self.error = True, error
        if error is not None:
            raise StorageError("sync: failed")


def test_a_real_file_is_synced_without_a_thread(tmp_path: Path) -> None:
    syncs, before = Syncs(), threading.active_count()
    with (tmp_path / "log").open("wb") as file:
        for _ in range(20):
            file.write(b"x" * 4096)
            file.flush()
            call = Call(file.fileno())
            started = syncs(call)
            assert started.wait(10)
            if call.thread is not None:
                pytest.skip("this kernel takes no syncs")
            assert call.is_ended
    assert threading.active_count() == before
    syncs.close()


def test_what_the_kernel_cannot_sync_a_thread_is_asked_for() -> None:
    """More than one file, or a file that has no fdatasync: what that says counts."""
    syncs, more = Syncs(), Call(None)
    assert syncs(more).wait(10)
    assert more.thread not in (None, threading.get_ident())
    reader, writer = os.pipe()
    of_pipe = Call(writer)
    assert syncs(of_pipe).wait(10)
    assert of_pipe.thread == more.thread
    syncs.close()
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("opened", [lambda: None, lambda: _refusing()])
def test_without_a_kernel_that_syncs_a_thread_does(opened: Callable[[], Any]) -> None:
    syncs, call = Syncs(opened), Call(1)
    assert syncs(call).wait(10)
    assert call.thread not in (None, threading.get_ident())
    assert not call.is_ended
    syncs.close()


def _refusing() -> KernelSyncs:
    kernel = Kernel()
    kernel.takes = False
    return kernel.open()


async def test_a_wait_is_bounded_and_the_loop_is_told_of_the_end() -> None:
    kernel = Kernel()
    syncs, call = Syncs(kernel.open), Call(1)
    kernel.result = None
    began, started = time.monotonic(), syncs(call)
    assert not started.wait(0.01)
    assert time.monotonic() - began < patient(0.1)

    done = asyncio.ensure_future(started.done())
    await asyncio.sleep(0.01)
    os.eventfd_write(kernel.eventfd, 1)  # of an earlier sync: says nothing of this one
    await asyncio.sleep(0.01)
    assert not done.done()
    assert not call.is_ended
    kernel.end(0)
    await asyncio.wait_for(done, 10)
    assert call.is_ended
    syncs.close()


def test_a_look_at_once_costs_no_call_and_the_next_one_tells() -> None:
    """The worker has not run yet; whoever leaves a sync looks again when it matters."""
    kernel = Kernel()
    syncs, call = Syncs(kernel.open), Call(1)
    started = syncs(call)
    asked = len(kernel.calls)

    assert not started.wait(0)
    assert len(kernel.calls) == asked
    assert started.wait(0)
    assert len(kernel.calls) == asked + 1
    assert call.is_ended
    syncs.close()


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_failed_sync_is_the_calls_error(is_late: bool) -> None:
    kernel = Kernel()
    syncs, call = Syncs(kernel.open), Call(1)
    kernel.result = None if is_late else -errno.EIO
    started = syncs(call)
    if is_late:
        assert not started.wait(0.001)
        asyncio.get_running_loop().call_later(0.01, kernel.end, -errno.EIO)
    with pytest.raises(StorageError):
        await asyncio.wait_for(started.done(), 10) if is_late else started.wait(1)
    assert call.error is not None
    assert call.error.errno == errno.EIO
    syncs.close()


def test_one_at_a_time(tmp_path: Path) -> None:
    """While one is under way the next one is a thread's; a queue that is closed is given back."""
    kernel = Kernel()
    kernels, kernel.result = kernel.open(), None
    assert kernels.begin(1)
    assert not kernels.begin(1)
    kernels.close()
    assert DESTROY not in kernel.calls, "the end of that would wait for the sync"
    kernel.result = 0
    assert kernels.wait(0)
    kernels.close()
    kernels.close()
    assert kernel.calls.count(DESTROY) == 1


def test_queues_are_given_back_with_their_owner() -> None:
    """The machine has some thousands of them for all."""
    count = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(50):
        if open_kernel_syncs() is None:
            pytest.skip("this kernel takes no syncs")
    assert len(os.listdir("/proc/self/fd")) <= count + 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_log_holds_no_loop_and_believes_no_sync_before_its_end(
    fails: bool, tmp_path: Path
) -> None:
    async def scenario() -> None:
        kernel = Kernel()
        syncs, log = Syncs(kernel.open), Journal(str(tmp_path / "log"), OsDisk())
        sent: list[Message] = []
        failures: list[BaseException] = []
        is_over = asyncio.Event()

        def fail(error: BaseException) -> None:
            failures.append(error)
            is_over.set()

        log_sync = LogSync(
            log,
            send=lambda _member_id, message: sent.append(message) is None,
            start_blocking=syncs,
            run_blocking=run_in_thread,
            run_reserving=run_in_thread,
            in_place_seconds_max=0.005,
            slow_seconds=0.2,
            on_durable=is_over.set,
            on_failure=fail,
        )
        kernel.result = None
        log.add(b"a", 1, 0)
        log_sync.hold("2", say.Appended(term=1, epoch=0, next_index=2, is_success=True))
        began = time.monotonic()
        log_sync.sync()
        assert time.monotonic() - began < patient(0.1)
        await asyncio.sleep(0.3)
        assert (log.durable_index, sent, log_sync.is_slow) == (0, [], True)

        kernel.end(-errno.EIO if fails else 0)
        async with asyncio.timeout(10):
            await is_over.wait()
        assert sent == (
            [] if fails else [say.Appended(term=1, epoch=0, next_index=2, is_success=True)]
        )
        assert bool(failures) == fails
        assert (log.durable_index, log.failure is not None) == (0 if fails else 1, fails)
        if fails:
            assert "Input/output error" in str(failures[0])
            with pytest.raises(StorageError):
                log.add(b"b", 2, 0)
        await log_sync.stop()
        log._destroy()
        syncs.close()

    asyncio.run(scenario())


class Leader:
    """The syncs of a leader's log, by a kernel whose syncs end when the test says so."""

    def __init__(self, directory: Path) -> None:
        self.kernel = Kernel()
        self.syncs = Syncs(self.kernel.open)
        self.log = Journal(str(directory / "log"), OsDisk())
        self.sent: list[Message] = []
        self.failures: list[BaseException] = []
        self.woken = asyncio.Event()
        self.log_sync = LogSync(
            self.log,
            send=lambda _member_id, message: self.sent.append(message) is None,
            start_blocking=self.syncs,
            run_blocking=None,
            run_reserving=run_in_thread,
            in_place_seconds_max=0.005,
            slow_seconds=0.8,
            on_durable=self.woken.set,
            on_failure=self.failures.append,
        )
        self.kernel.result = None

    async def write(self, index: int) -> None:
        self.log.add(b"a", index, 0)
        self.log_sync.sync(may_leave=True)

    async def stop(self) -> None:
        self.kernel.result = 0
        await self.log_sync.stop()
        self.log._destroy()
        self.syncs.close()


async def test_a_leader_goes_on_while_its_log_is_synced(tmp_path: Path) -> None:
    """Nothing counts as durable before somebody has asked, and the kernel has said so."""
    leader = Leader(tmp_path)
    began = time.monotonic()
    await leader.write(1)
    leader.log_sync.settle(is_needed=False)
    leader.log_sync.sync(may_leave=True)
    assert leader.kernel.calls.count(SUBMIT) == 1
    assert time.monotonic() - began < patient(0.01)
    assert (leader.log.durable_index, leader.log_sync.is_settled) == (0, False)

    leader.log_sync.settle()  # a follower has it: waited for a while
    assert leader.log.durable_index == 0
    leader.kernel.end(0)
    await asyncio.wait_for(leader.woken.wait(), 10)
    assert (leader.log.durable_index, leader.log_sync.is_settled) == (1, True)

    await leader.write(2)
    leader.kernel.result = 0
    leader.log_sync.settle()
    assert leader.log.durable_index == 2, "it was done when it was looked for"
    await leader.stop()


async def test_a_sync_that_was_left_is_done_when_it_is_needed(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    await leader.write(1)
    leader.kernel.result = 0
    leader.log_sync.settle()
    assert leader.log.durable_index == 1
    assert leader.log_sync.sync_count == 1
    await leader.stop()


async def test_a_leader_with_other_work_is_told_of_the_end_of_a_sync(tmp_path: Path) -> None:
    """A kernel's worker may need the processor that the leader would wait on."""
    leader = Leader(tmp_path)
    await leader.write(1)
    leader.log_sync.settle(may_wait=False)
    leader.log.add(b"b", 2, 0)
    leader.log_sync.sync(may_leave=True, may_wait=False)
    assert (leader.kernel.calls.count(SUBMIT), leader.kernel.waited_s) == (1, 0.0)
    assert leader.log.durable_index == 0

    await asyncio.sleep(0)
    leader.kernel.end(0)
    await asyncio.wait_for(leader.woken.wait(), 10)
    assert leader.log.durable_index == 1

    leader.kernel.result = None
    leader.log_sync.sync(may_leave=True, may_wait=False)
    leader.log.add(b"c", 3, 0)
    leader.log_sync.sync(may_leave=True, may_wait=False)  # written while that is under way
    assert (leader.kernel.calls.count(SUBMIT), leader.kernel.waited_s) == (2, 0.0)
    await leader.stop()


async def test_the_time_of_a_sync_is_not_that_of_the_loop_that_hears_of_it_late(
    tmp_path: Path,
) -> None:
    """The metric tells of the disk; what a busy leader did meanwhile is left out."""
    leader = Leader(tmp_path)
    await leader.write(1)
    leader.log_sync.settle(may_wait=False)
    await asyncio.sleep(0)
    leader.kernel.end(0)
    busy_s = patient(0.3)
    asyncio.get_running_loop().call_soon(time.sleep, busy_s)
    await asyncio.wait_for(leader.woken.wait(), patient(10))
    assert leader.log_sync.sync_count == 1
    assert leader.log_sync.sync_seconds_total < busy_s / 2
    assert not leader.log_sync.is_slow
    await leader.stop()


async def test_a_busy_leader_sees_that_its_disk_is_slow(tmp_path: Path) -> None:
    """A sync counts at least for as long as it was seen under way, however late its end is."""
    leader = Leader(tmp_path)
    leader.kernel.result = None
    await leader.write(1)
    leader.log_sync.settle(may_wait=False)
    await asyncio.sleep(0.9)
    leader.kernel.end(0)
    await asyncio.wait_for(leader.woken.wait(), 10)
    assert leader.log_sync.sync_seconds_total > 0.8
    assert leader.log_sync.is_slow, "it is remembered for a while"
    await leader.stop()


async def test_what_comes_while_a_sync_was_left_has_a_sync_of_its_own(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    await leader.write(1)
    leader.kernel.result = 0
    leader.log.add(b"b", 2, 0)
    leader.kernel.result = None
    leader.log_sync.sync(may_leave=True)  # the first has not ended: waited for, not long
    assert leader.kernel.calls.count(SUBMIT) == 1
    leader.kernel.end(0)
    await asyncio.wait_for(leader.woken.wait(), 10)
    assert leader.log.durable_index == 1
    leader.log_sync.sync(may_leave=True)
    leader.log_sync.settle()
    assert (leader.log.durable_index, leader.kernel.calls.count(SUBMIT)) == (2, 2)
    await leader.stop()


async def test_a_message_that_is_held_is_not_left_behind(tmp_path: Path) -> None:
    """One that leads no more acknowledges what it wrote as a leader only when it is stable."""
    leader = Leader(tmp_path)
    await leader.write(1)
    leader.log_sync.hold("2", say.Appended(term=1, epoch=0, next_index=2, is_success=True))
    leader.log_sync.sync()
    assert leader.sent == [say.ProbeReply(1, 0)]
    leader.kernel.end(0)
    await asyncio.wait_for(leader.woken.wait(), 10)
    leader.log_sync.sync()
    assert leader.sent[1:] == [say.Appended(term=1, epoch=0, next_index=2, is_success=True)]
    await leader.stop()


@pytest.mark.parametrize("how", ["needed", "stopped"])
async def test_the_failure_of_a_sync_that_was_left_stops_the_member(
    how: str, tmp_path: Path
) -> None:
    leader = Leader(tmp_path)
    await leader.write(1)
    leader.kernel.result = -errno.EIO
    if how == "needed":
        with pytest.raises(StorageError, match="Input/output error"):
            leader.log_sync.settle()
    else:
        await leader.log_sync.stop()
        assert "Input/output error" in str(leader.failures[0])
    assert leader.log.durable_index == 0
    with pytest.raises(StorageError):
        leader.log.add(b"b", 2, 0)
    leader.log._destroy()
    leader.syncs.close()


async def test_a_disk_that_hangs_is_seen_to_be_slow_though_nobody_waits(tmp_path: Path) -> None:
    leader = Leader(tmp_path)
    await leader.write(1)
    async with asyncio.timeout(10):
        while not leader.log_sync.is_slow:
            await asyncio.sleep(0.05)
            leader.log_sync.settle(is_needed=False)  # a heartbeat
    assert leader.log.durable_index == 0
    leader.kernel.end(0)
    await asyncio.wait_for(leader.woken.wait(), 10)
    assert leader.log.durable_index == 1
    await leader.stop()
