"""Syncs by a worker of the kernel (Linux asynchronous I/O): a wait for one can be bounded.

A thread that calls ``fdatasync`` waits until the disk answers, and nothing ends that wait. One that
does it for another costs two switches and the interpreter's lock twice. So the kernel is asked to
sync (``io_submit``); the caller waits for the answer (``io_getevents``), at most as long as it
wants; an eventfd tells an event loop of one that takes longer.

It is the same sync as fdatasync's, with the same errors. The system calls are made by number, for C
libraries have none for them; where they are not known or not allowed there is the thread.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from coordinator.raft.blocking import Started, WorkerThread

_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
"""The system call numbers of io_setup, io_destroy, io_getevents and io_submit, by machine."""
_FDSYNC = 3  # IOCB_CMD_FDSYNC, since Linux 4.18
_TELL_EVENTFD = 1  # IOCB_FLAG_RESFD


class _Request(ctypes.Structure):
    """``struct iocb`` of a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_int32),
        ("opcode", ctypes.c_uint16), ("priority", ctypes.c_int16), ("descriptor", ctypes.c_uint32),
        ("buffer", ctypes.c_uint64), ("length", ctypes.c_uint64), ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("eventfd", ctypes.c_uint32),
    )  # fmt: skip


class _Answer(ctypes.Structure):
    """The C struct ``io_event``."""

    _fields_ = (
        ("data", ctypes.c_uint64), ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64), ("second_result", ctypes.c_int64),
    )  # fmt: skip


class _Time(ctypes.Structure):
    """The C struct ``timespec``."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class KernelSyncs:
    """Syncs of one caller, one at a time; ``open_kernel_syncs`` makes it."""

    def __init__(self, system_call: Callable[..., int], machine: str) -> None:
        """Ask the kernel for a queue of one request; OSError."""
        self.fileno = -1
        self._call = system_call
        setup, self._destroy, getevents, submit = _NUMBERS[machine]
        self._context = ctypes.c_ulong(0)
        if self._call(ctypes.c_long(setup), ctypes.c_long(1), ctypes.byref(self._context)) != 0:
            raise OSError(ctypes.get_errno(), "io_setup")
        self.fileno = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable after each sync that has ended, until ``take_signal``."""
        self.is_under_way = False
        self._request = _Request(opcode=_FDSYNC, flags=_TELL_EVENTFD, eventfd=self.fileno)
        self._answers, self._time = (_Answer * 1)(), _Time()
        requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))
        # Made once: to convert them takes as long as the call.
        self._submit_arguments = (
            ctypes.c_long(submit), self._context, ctypes.c_long(1), requests,
        )  # fmt: skip
        self._wait_arguments = (
            ctypes.c_long(getevents), self._context, ctypes.c_long(1), ctypes.c_long(1),
            self._answers, ctypes.byref(self._time),
        )  # fmt: skip

    def begin(self, descriptor: int) -> bool:
        """Begin to sync a file; False, with nothing begun, if the kernel does not take it."""
        if self.is_under_way:
            return False
        self._request.descriptor = descriptor
        self.is_under_way = self._call(*self._submit_arguments) == 1
        return self.is_under_way

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; return whether it is done. OSError: it failed."""
        whole = int(seconds)
        self._time.seconds, self._time.nanoseconds = whole, int((seconds - whole) * 1e9)
        count = self._call(*self._wait_arguments)
        if count == 0 or (count < 0 and ctypes.get_errno() == errno.EINTR):
            return False
        if count < 0:
            raise OSError(ctypes.get_errno(), "io_getevents")
        self.is_under_way = False
        result = self._answers[0].result
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return True

    def take_signal(self) -> None:
        """Let the eventfd be readable only when another sync has ended."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.fileno)

    def close(self) -> None:
        """Give the queue back; one whose sync never ended is left to the end of the process."""
        if self.fileno >= 0 and not self.is_under_way:
            self._call(ctypes.c_long(self._destroy), self._context)
            os.close(self.fileno)
            self.fileno = -1

    def __del__(self) -> None:
        self.close()


def open_kernel_syncs() -> KernelSyncs | None:
    """Return syncs by the kernel; None where there are none."""
    is_known = sys.platform == "linux" and sys.byteorder == "little" and sys.maxsize > 2**32
    if not is_known or platform.machine() not in _NUMBERS:
        return None
    try:
        system_call = ctypes.CDLL(None, use_errno=True).syscall
        return KernelSyncs(system_call, platform.machine())
    except (OSError, AttributeError):
        return None  # an old kernel, one that forbids it, or no more queues for anybody


class SyncCall(Protocol):
    """A call that makes a file stable: the journal's ``SyncToken``."""

    @property
    def descriptor(self) -> int | None:
        """The file's, if to sync it is all that the call does; else None."""
        ...

    def __call__(self) -> None:
        """Sync the file in this thread."""
        ...

    def end(self, error: OSError | None) -> None:
        """Take note of what another has done in its place; raises what the call would raise."""
        ...


class Syncs:
    """Starts syncs, one at a time: in the kernel, or else in a thread that stands ready."""

    def __init__(self, opened: Callable[[], KernelSyncs | None] = open_kernel_syncs) -> None:
        self._open = opened
        self._is_open = False
        self._kernel: KernelSyncs | None = None
        self._thread = WorkerThread("sync")

    def __call__(self, call: SyncCall, /) -> Started:
        """Start ``call``; what was started before it must have ended."""
        if not self._is_open:
            self._is_open, self._kernel = True, self._open()
        kernel, descriptor = self._kernel, call.descriptor
        if kernel is not None and descriptor is not None and kernel.begin(descriptor):
            return _InKernel(kernel, call)
        return self._thread(call)

    def close(self) -> None:
        """Nothing is started any more. Idempotent."""
        self._thread.close()
        if self._kernel is not None:
            self._kernel.close()
        self._is_open, self._kernel = True, None


class _InKernel:
    """A sync under way in the kernel."""

    def __init__(self, kernel: KernelSyncs, call: SyncCall) -> None:
        self._kernel = kernel
        self._call = call
        self._is_new = True
        """Whether nobody has looked yet. The kernel's worker runs on the processor of who asked it,
        so not before that one waits: a look at once costs a call and finds nothing."""

    def wait(self, seconds: float) -> bool:
        """Wait at most so long; return whether it is done, or raise its error."""
        is_new, self._is_new = self._is_new, False
        if is_new and seconds <= 0:
            return False
        try:
            is_done = self._kernel.wait(seconds)
        except OSError as error:
            self._call.end(error)
            raise
        if is_done:
            self._call.end(None)
        return is_done

    async def done(self) -> None:
        """Return when it is done, or raise its error."""
        loop, kernel = asyncio.get_running_loop(), self._kernel
        signalled = asyncio.Event()
        while not self.wait(0):
            loop.add_reader(kernel.fileno, signalled.set)
            try:
                await signalled.wait()
            finally:
                loop.remove_reader(kernel.fileno)
            signalled.clear()
            kernel.take_signal()
