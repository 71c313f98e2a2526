"""The notices to a service manager over ``NOTIFY_SOCKET``: sd_notify(3), without a library.

1. ``READY=1`` means that a member serves, not that it knows a leader; that a program contends, not
   that it leads. A unit whose start waited for others would time out. ``STATUS=`` says the rest.
2. ``WATCHDOG=1`` comes from the event loop that does the work: if that hangs, the manager ends the
   process and starts it again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, MutableMapping

logger = logging.getLogger("coordinator.service_manager")

STATUS_S = 10.0
"""How often what may have changed, or was not sent, is said, where no watchdog is answered."""
_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceManager:
    """The manager that started this process; without one nothing is said."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._every_s = _watchdog_s(environ)
        for name in _VARIABLES:  # a command is another process, which is not asked
            environ.pop(name, None)
        self._states: tuple[str, ...] = ()
        """Those that the manager did not get yet."""
        self._lines = self._sent = ""
        """What is to be said, and what the manager got last."""

    def say(self, status: str, *states: str) -> None:
        """Report ``status``, for people, and states such as ``READY=1``.

        States that cannot be sent now go with what is said next, unless that has its own."""
        self._states = states or self._states
        self._lines = "\n".join([*self._states, f"STATUS={status}"])
        self._say_again()

    def _say_again(self) -> None:
        if self._lines == self._sent or self._send(self._lines):
            self._sent, self._states = self._lines, ()

    async def keep_alive(self, status: Callable[[], str] | None = None) -> None:
        """Answer the watchdog, say ``status`` when it changes, and again what could not be sent,
        while this event loop runs."""
        while self._address:
            if self._every_s:
                self._send("WATCHDOG=1")
            self._say_again()
            try:
                if status is not None:
                    self.say(status())
            except Exception:  # the sign of life goes on: a status is for people alone
                logger.exception("the status for the service manager could not be made")
            await asyncio.sleep(self._every_s or STATUS_S)

    def _send(self, lines: str) -> bool:
        """Return whether it was sent, or nobody is to get it."""
        if not self._address:
            return True
        # A name that begins with @ is one of the abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto(lines.encode(), address)
        except OSError:
            return False  # it is not there, or does not read: the service goes on
        return True


def _watchdog_s(environ: MutableMapping[str, str]) -> float:
    """Return how often the manager wants a sign of life from us, 0 for never; half its limit."""
    limit_us, process = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not limit_us.isdecimal() or process not in ("", str(os.getpid())):
        return 0.0
    return int(limit_us) / 2_000_000
