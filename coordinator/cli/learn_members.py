"""The members that ``coordinator learn`` starts: processes that stories kill, cut off and heal.

Only processes that are started here are ever signalled. They end with this process, however it
ends.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import subprocess
from pathlib import Path

from coordinator.cli.dev import end_members, is_ready, transport_to
from coordinator.cli.dev_layout import (
    HOST,
    Layout,
    check_ports,
    prepare_directory,
    start_member,
    write_files,
)
from coordinator.cli.member_relay import MemberRelay
from coordinator.errors import ConfigError, UnavailableError

RELAYED_HOST = "127.0.0.2"
"""Where members listen behind their relays; all of 127/8 is loopback on Linux."""
_READY_S = 60.0
_STOP_S = 5.0
_LOOK_S = 0.05
_PORTS = range(20_000, 32_000)
"""Below those that the kernel gives to connections that go out."""
_TRIES = 50


class LearnMembers:
    """``layout.members`` processes; their links can be cut where the machine allows it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.ids = tuple(map(str, layout.ids))
        self.endpoints = layout.endpoints
        self.urls = {str(member): layout.url(member) for member in layout.ids}
        self._relays = [
            MemberRelay(str(member), HOST, RELAYED_HOST, layout.member_port + member - 1)
            for member in layout.ids
            if layout.member_bind_host is not None
        ]

    @property
    def can_cut(self) -> bool:
        """Whether links can be cut: there are relays, and more than one member."""
        return len(self._relays) > 1

    def is_running(self, member_id: str) -> bool:
        """Whether the process of a member runs."""
        process = self._processes.get(member_id)
        return process is not None and process.poll() is None

    async def start_all(self) -> None:
        """Start the relays and all members, and wait until they are ready."""
        prepare_directory(self._layout)
        write_files(self._layout)
        for relay in self._relays:
            await relay.start()
        for member_id in self.ids:
            self.start(member_id)
        await self.wait_ready()

    def start(self, member_id: str) -> None:
        """Start a member that does not run; does not wait for it."""
        assert not self.is_running(member_id), f"member {member_id} runs"
        self._processes[member_id] = start_member(self._layout, int(member_id))

    def kill(self, member_id: str) -> None:
        """Send SIGKILL to a member, and reap it."""
        process = self._processes[member_id]
        process.kill()
        process.wait()

    def cut(self, member_id: str) -> None:
        """Drop everything between this member and the others."""
        for relay in self._relays:
            relay.cut_off |= {member_id}

    def heal(self) -> None:
        """Let everything through again."""
        for relay in self._relays:
            relay.heal()

    async def wait_ready(self) -> None:
        """Wait until every running member is ready; UnavailableError if one ends or stays away."""
        transport = transport_to(self._layout)
        try:
            async with asyncio.timeout(_READY_S):
                for member_id in self.ids:
                    while not await is_ready(transport, self.urls[member_id]):
                        if not self.is_running(member_id):
                            log = self._layout.log(int(member_id))
                            raise UnavailableError(f"member {member_id} has ended; see {log}")
                        await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise UnavailableError(
                f"expected ready members within {_READY_S:g} s, found some that are not; see the "
                f"logs in {self._layout.directory}"
            ) from None
        finally:
            await transport.close()

    async def stop(self) -> None:
        """End every member: TERM, a grace, KILL; then the relays."""
        await end_members(self._processes.values(), _STOP_S)
        for relay in self._relays:
            await relay.stop()


def can_relay() -> bool:
    """Whether members can listen beside the addresses of their relays (Linux: yes)."""
    with socket.socket() as probe:
        try:
            probe.bind((RELAYED_HOST, 0))
        except OSError:
            return False
    return True


def free_layout(directory: Path, members: int) -> Layout:
    """Return a layout on ports that are free now; ConfigError if none are found."""
    bind_host = RELAYED_HOST if can_relay() else None
    for _ in range(_TRIES):
        base = _PORTS.start + secrets.randbelow(len(_PORTS) - 2 * members)
        layout = Layout(directory, members, base, base + members, False, bind_host)
        try:
            check_ports(layout)
        except ConfigError:
            continue
        return layout
    raise ConfigError(f"ports: expected {2 * members} free ones in {_PORTS}, found none")
