"""The process between ``coordinator lock`` and its command: ends the command in time, whatever
happens to the process that asked for it.

It runs in a session of its own, takes no part in the network, and knows one thing: until when the
command may run. Its parent, the supervisor, moves that moment on over a socket. If the supervisor
is stopped, hangs, or is killed, the moment comes, or the socket ends, and the watchdog acts.

1. The command and all its descendants are dead before the watchdog reports "ended" or exits.
2. ``term_at_ms`` reached: SIGTERM to all of them; ``kill_at_ms`` reached: SIGKILL until none is
   left. Both are readings of ``Clock.monotonic_ms``, which all processes of a machine share.
3. The socket ends: SIGTERM now, SIGKILL after the grace, but never later than ``kill_at_ms``.
4. The command ends by itself: what it left running is ended the same way. Nothing goes on without
   the lock.
5. The watchdog itself is killed: the kernel kills the command with it (PR_SET_PDEATHSIG).

Descendants: the command leads a new session and group; orphans that leave it are adopted by the
watchdog (PR_SET_CHILD_SUBREAPER), so a daemon that detached itself is found as well. Outside Linux
only the group is ended.

Lines of JSON, from the supervisor: ``{"argv": [...], "grace_ms": n}`` once, then
``{"until": [term_at_ms, kill_at_ms]}`` and ``{"signal": n}``. To it: ``{"started": pid}`` or
``{"failed": errno}``, then ``{"ended": wait_status, "is_lost": bool}``. With ``"ready": [path,
text]`` the file is there from the start of the command until its end begins.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from coordinator.cli.parent_death import adopt_orphans, dying_with_parent
from coordinator.clock import Clock, SystemClock

# Also how late a deadline can be noticed after the machine was suspended, since poll() does not
# count that time.
_LOOK_INTERVAL_MS = 200
_SWEEP_INTERVAL_MS = 20
_UNTOUCHABLE = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


class Watchdog:
    """Runs one command for the supervisor at the other end of ``channel``."""

    def __init__(
        self,
        channel: socket.socket,
        clock: Clock,
        children: Callable[[], list[int]] | None = None,
    ) -> None:
        self._channel = channel
        self._clock = clock
        self._children = children or children_of_this_process
        self._received = b""
        self._is_attended = True
        """Whether the supervisor still holds its end of the channel."""
        self._grace_ms = 0
        self._term_at_ms = 0
        self._kill_at_ms = 0
        self._is_ending = False
        self._is_lost = False
        self._leader = 0
        self._status: int | None = None
        self._ready: tuple[str, str] | None = None
        """The file that says that the command runs, and its text."""
        self._is_adopting = adopt_orphans()
        self._wakeup = _wake_on_child_exit()

    def run(self) -> None:
        """Wait for the order, run the command, return when nothing of it is left."""
        while self._is_attended and not self._leader:
            self._wait(_LOOK_INTERVAL_MS)
            for message in self._messages():
                self._obey(message)
        while self._leader:
            self._wait(self._wait_ms())
            for message in self._messages():
                self._obey(message)
            self._look_after()

    # --- what the supervisor says

    def _messages(self) -> list[dict[str, Any]]:
        try:
            while chunk := self._channel.recv(65_536, socket.MSG_DONTWAIT):
                self._received += chunk
            self._is_attended = False
        except BlockingIOError:
            pass  # all that was sent so far has been read
        except OSError:
            self._is_attended = False
        *lines, self._received = self._received.split(b"\n")
        return [json.loads(line) for line in lines]

    def _obey(self, message: dict[str, Any]) -> None:
        if "until" in message:
            # A command that was asked to end is not continued: its end has begun.
            term_at_ms, kill_at_ms = message["until"]
            if not self._is_ending or kill_at_ms < self._kill_at_ms:
                self._term_at_ms, self._kill_at_ms = term_at_ms, kill_at_ms
        if "argv" in message:
            self._grace_ms = message["grace_ms"]
            self._ready = message.get("ready")
            self._start(message["argv"])
        if "signal" in message and self._leader and self._status is None:
            _signal_group(self._leader, message["signal"])

    def _say(self, message: dict[str, Any]) -> None:
        try:
            self._channel.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self._is_attended = False

    # --- the command

    def _start(self, argv: list[str]) -> None:
        try:
            process = subprocess.Popen(  # noqa: S603 - running what the user named is the purpose
                argv, start_new_session=True, preexec_fn=dying_with_parent(signal.SIGKILL)
            )
        except (OSError, ValueError) as error:
            self._say({"failed": getattr(error, "errno", None) or 0, "text": str(error)})
            self._is_attended = False
            return
        process.returncode = 0  # it is reaped here, not by the Popen object
        self._leader = process.pid
        if self._ready is not None:
            write_ready(*self._ready)
        self._say({"started": process.pid})

    def _look_after(self) -> None:
        now_ms = self._clock.monotonic_ms()
        has_ended = self._has_leader_ended()
        orphans, are_all = self.orphans()
        is_alone = are_all and not orphans
        if has_ended and is_alone and (self._is_adopting or self._is_ending):
            self._finish()
            return
        if not self._is_ending:
            is_out_of_time = now_ms >= self._term_at_ms and not has_ended
            if is_out_of_time or has_ended or not self._is_attended:
                self._is_lost = is_out_of_time
                self._begin_to_end(now_ms, orphans)
        if self._is_ending and now_ms >= self._kill_at_ms:
            self._is_lost = self._is_lost or not has_ended
            self._signal_all(signal.SIGKILL, orphans)

    def _begin_to_end(self, now_ms: int, orphans: list[int]) -> None:
        self._is_ending = True
        self._remove_ready()
        self._kill_at_ms = min(self._kill_at_ms, now_ms + self._grace_ms)
        # Outside Linux the rest of a group whose leader has ended cannot be seen: it gets no grace.
        if not self._is_adopting and self._has_leader_ended():
            self._signal_all(signal.SIGKILL, orphans)
        self._signal_all(signal.SIGTERM, orphans)
        self._signal_all(signal.SIGCONT, orphans)  # one that is stopped must be able to end

    def _remove_ready(self) -> None:
        if self._ready is not None:
            remove_ready(self._ready[0])

    def _finish(self) -> None:
        self._remove_ready()
        _, status = os.waitpid(self._leader, 0)
        self._status = status
        self._leader = 0
        self._say({"ended": status, "is_lost": self._is_lost})

    def _has_leader_ended(self) -> bool:
        # It is left unreaped until the end, so that its id, which names the group, stays taken.
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._leader, flags) is not None

    def orphans(self) -> tuple[list[int], bool]:
        """Return the living children other than the command itself, and whether these are all.

        The dead ones are reaped. One that ended while we looked may have left a child of its own,
        which is ours now and was not looked at."""
        living: list[int] = []
        are_all = True
        if not self._is_adopting:
            return living, are_all
        for child in self._children():
            if child == self._leader:
                continue
            try:
                if os.waitpid(child, os.WNOHANG) == (0, 0):
                    living.append(child)
                else:
                    are_all = False
            except ChildProcessError:
                pass  # not ours after all: it ended and its id was given to another process
        return living, are_all

    def _signal_all(self, number: int, orphans: list[int]) -> None:
        # Our unreaped children keep their ids, so none of these groups is of another program.
        groups = {self._leader}
        for child in orphans:
            try:
                groups.add(os.getpgid(child))
            except ProcessLookupError:
                pass  # it ended meanwhile
        for group in groups - {os.getpgrp()}:
            _signal_group(group, number)

    # --- waiting

    def _wait_ms(self) -> int:
        if self._is_ending:
            return _SWEEP_INTERVAL_MS
        remaining_ms = self._term_at_ms - self._clock.monotonic_ms()
        return max(0, min(remaining_ms, _LOOK_INTERVAL_MS))

    def _wait(self, timeout_ms: int) -> None:
        poll = select.poll()
        poll.register(self._wakeup, select.POLLIN)
        if self._is_attended:
            poll.register(self._channel, select.POLLIN)
        poll.poll(timeout_ms)
        try:
            self._wakeup.recv(4_096)
        except BlockingIOError:
            pass  # woken by something else


def ready_draft(path: str, text: str = "") -> str:
    """Write a file beside ``path`` and return its name. A link that waits there is not followed:
    who may write into the directory chooses no other file of ours to be overwritten.

    Raises:
        OSError: nothing can be written there.
    """
    draft = f"{path}.{os.getpid()}"
    with suppress(FileNotFoundError):
        os.unlink(draft)
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(draft, new, 0o644), "w", encoding="utf-8") as file:
        file.write(text)
    return draft


def write_ready(path: str, text: str) -> None:
    """Let the file be there, whole."""
    with suppress(OSError):  # checked by the supervisor before; the command matters more
        os.replace(ready_draft(path, text), path)


def remove_ready(path: str) -> None:
    """Let the file be gone."""
    with suppress(OSError):
        os.unlink(path)


def _signal_group(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # gone; or all that is left of it belongs to another user, which only root may end


def children_of_this_process() -> list[int]:
    """Return the ids of our children, living or not reaped."""
    children, own_id = [], os.getpid()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # pid (name, which may hold anything) state ppid ...
            fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended while we looked
        if int(fields[1]) == own_id:
            children.append(int(entry.name))
    return children


def _wake_on_child_exit() -> socket.socket:
    """Take no signal but those that cannot be refused; let SIGCHLD end a wait."""
    for number in signal.valid_signals() - _UNTOUCHABLE - _FAULTS:
        # A handler and not SIG_IGN, which the command would inherit. What nohup ignored stays so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _take_no_notice)
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _take_no_notice)
    return reader


def _take_no_notice(_number: int, _frame: object) -> None:
    """Do nothing: the watchdog ends when its work is done, not by a signal."""


def main() -> None:
    """Be the watchdog: the only argument is the descriptor of the channel."""
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        # The command must not hold it: its end has to be seen when the supervisor goes.
        channel.set_inheritable(False)
        Watchdog(channel, SystemClock()).run()
