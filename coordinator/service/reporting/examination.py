"""The examination of all members for ``coordinator doctor``: each measures itself and its peers.

1. It decides nothing, and costs something: each member asks each other one a few times. So only an
   operator may have it, and those who ask within ``SHARED_MS`` share one.
2. A member that does not answer within ``ANSWER_S`` is left out: the health of the cluster says
   that it is silent.
3. A clock is compared with that of the member that asked, at the middle of the round trip.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from coordinator.errors import CoordinatorError
from coordinator.model.access import MEMBERS, Caller, Verb
from coordinator.model.diagnosis import CheckResult
from coordinator.node.build import is_compiled
from coordinator.node.config import SETTINGS, Config
from coordinator.node.open_files import open_files
from coordinator.service.base.context import MemberContext
from coordinator.service.reporting.checks import Examined, Look, checks_of
from coordinator.service.reporting.members import PAYLOAD_BYTES_MAX
from coordinator.service.reporting.status import product_version
from coordinator.service.writes.limits import LimitsService

REQUEST_KIND = "examine"
ECHO_KIND = "echo"
ANSWER_S = 3.0
ECHO_S = 1.0
SHARED_MS = 500
_ECHOES: Final = 3
"""So many round trips are made to each, of which the shortest counts."""
_OWN: Final = frozenset({"bind_host", "bind_port", "allowed_hosts", "learn_url", "syslog_address"})
"""Settings that may well be another one on each member, besides names of files."""
_DECODER = msgspec.msgpack.Decoder(Examined)


def shared_settings(config: Config) -> dict[str, str]:
    """Return the settings that should be equal on all members, by section and key."""
    return {
        f"{section}.{key}": str(config.value(section, key))
        for section, keys in SETTINGS.items()
        for key, part in keys.items()
        if section not in ("member", "cluster", "log")
        and part != "first_limits"
        and key not in _OWN
        and not key.endswith("file")
    }


class Examinations:
    """The examinations as one member makes them."""

    def __init__(self, context: MemberContext, limits: LimitsService) -> None:
        self._engine = context.engine
        self._clock = context.clock
        self._config = context.config
        self._replica = context.replica
        self._limits = limits
        self._found: asyncio.Future[tuple[CheckResult, ...]] | None = None
        self._found_ms = 0
        self.expire_s: Callable[[], Mapping[str, float]] = dict
        """Says when certificates expire, by whom they are shown to; the server sets it."""
        context.engine.on_request(REQUEST_KIND, self._on_request)
        context.engine.on_request(ECHO_KIND, self._on_echo)

    async def checks(self, caller: Caller) -> tuple[CheckResult, ...]:
        """Return what an examination of all members found, now or within ``SHARED_MS``.

        Raises:
            NoAuthError: the caller does not administer the members.
        """
        self._replica.machine.access.check(caller, Verb.ADMIN, MEMBERS)
        now_ms = self._clock.monotonic_ms()
        if self._found is None or now_ms - self._found_ms >= SHARED_MS:
            self._found = asyncio.ensure_future(self._examine())
            self._found_ms = now_ms
        return await asyncio.shield(self._found)  # who goes away does not end it for the others

    async def _examine(self) -> tuple[CheckResult, ...]:
        others = self._others()
        own, *answers = await asyncio.gather(self._own(), *(self._ask(each) for each in others))
        assert own is not None, "this member answers itself"
        members, clocks_ms = [own[0]], {own[0].member_id: own[1]}
        for answer in answers:
            if answer is not None:
                members.append(answer[0])
                clocks_ms[answer[0].member_id] = answer[1]
        members.sort(key=lambda each: each.member_id)
        round_trip_ms_max = max(1, self._config.raft.election_timeout_ms_min // 10)
        return checks_of(Look(tuple(members), clocks_ms, round_trip_ms_max))

    async def _own(self) -> tuple[Examined, tuple[int, int]] | None:
        return await self._examined(), (0, 0)

    async def _ask(self, member_id: str) -> tuple[Examined, tuple[int, int]] | None:
        """Return what another member found, and its clock: how far ahead, give or take."""
        clock = self._clock
        try:
            async with asyncio.timeout(ANSWER_S):
                payload = await self._engine.request(member_id, REQUEST_KIND, b"")
                began_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
                echo = await self._engine.request(member_id, ECHO_KIND, b"")
                took_ms = clock.monotonic_ms() - began_ms
            if len(payload) > PAYLOAD_BYTES_MAX:
                return None
            found = _DECODER.decode(payload)
            ahead_ms = msgspec.msgpack.decode(echo, type=int) - wall_ms - took_ms // 2
        except (TimeoutError, CoordinatorError, ValueError, RecursionError):
            return None
        if found.member_id != member_id:
            return None
        return found, (ahead_ms, took_ms // 2 + 1)

    async def _examined(self) -> Examined:
        """Return what this member finds of itself."""
        figures = self._engine.metrics()
        files, files_max = open_files()
        others = self._others()
        trips = await asyncio.gather(*(self._round_trip_ms(each) for each in others))
        average_s = figures.get("sync_seconds_average")
        return Examined(
            member_id=self._engine.member_id,
            wall_ms=self._clock.wall_ms(),
            version=product_version(),
            is_compiled=is_compiled(),
            round_trips_ms=dict(zip(others, trips, strict=True)),
            sync_ms=None if average_s is None else average_s * 1_000,
            files=files,
            files_max=files_max,
            expires_ms={whom: int(each * 1_000) for whom, each in self.expire_s().items()},
            used={
                name: (now, getattr(self._replica.machine.limits, name))
                for name, now, _ in self._limits.filled()
            },
            settings=shared_settings(self._config),
        )

    async def _round_trip_ms(self, member_id: str) -> int | None:
        best: int | None = None
        try:
            async with asyncio.timeout(ECHO_S):
                for _ in range(_ECHOES):
                    began_ms = self._clock.monotonic_ms()
                    await self._engine.request(member_id, ECHO_KIND, b"")
                    took_ms = self._clock.monotonic_ms() - began_ms
                    best = took_ms if best is None else min(best, took_ms)
        except (TimeoutError, CoordinatorError):
            pass  # what was measured before counts
        return best

    def _others(self) -> list[str]:
        return sorted(self._engine.status().is_reachable)

    async def _on_request(self, _sender: str, _payload: bytes) -> bytes:
        return msgspec.msgpack.encode(await self._examined())

    async def _on_echo(self, _sender: str, _payload: bytes) -> bytes:
        return msgspec.msgpack.encode(self._clock.wall_ms())
