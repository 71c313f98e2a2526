"""The certificates of one member, as its settings name them: for other members, and for clients."""

from __future__ import annotations

import asyncio
import logging

from coordinator.clock import Clock
from coordinator.node.config import Config, HttpConfig
from coordinator.node.config_rules import what_is_off
from coordinator.tls.files import (
    RELOAD_MS,
    MemberTls,
    Reloaded,
    ServerTls,
    TlsFiles,
    expiry_warning,
    list_warning,
    member_tls,
    server_tls,
)
from coordinator.tls.names import member_uri

logger = logging.getLogger("coordinator.tls")

_WARN_AGAIN_MS = 24 * 3_600_000


def of_member(config: Config) -> Reloaded[MemberTls] | None:
    """Return what it shows other members, None if they talk without TLS. Raises ConfigError."""
    if not config.member.has_tls:
        return None
    files = TlsFiles(
        config.member.tls_cert_file, config.member.tls_key_file, config.cluster.tls_ca_file,
        "member.tls_cert_file", "member.tls_key_file", "cluster.tls_ca_file",
    )  # fmt: skip
    uri = member_uri(config.cluster.name, config.member.member_id)
    return Reloaded(lambda: member_tls(files, uri), files.all())


def of_door(http: HttpConfig) -> Reloaded[ServerTls] | None:
    """Return what it shows clients, None if they connect without TLS. Raises ConfigError."""
    if not http.has_tls:
        return None
    files = TlsFiles(
        http.tls_cert_file, http.tls_key_file, http.client_ca_file,
        "http.tls_cert_file", "http.tls_key_file", "http.client_ca_file",
    )  # fmt: skip
    needs_certificate = http.is_client_cert_required
    return Reloaded(lambda: server_tls(files, needs_certificate=needs_certificate), files.all())


class Certificates:
    """The certificates of one member, kept as their files are, and warnings about them."""

    def __init__(self, config: Config, clock: Clock, *, has_members: bool = True) -> None:
        self._config = config
        self._clock = clock
        self.member = of_member(config) if has_members else None
        self.door = of_door(config.http)
        self._keeping: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look at the files from now on, if there are some, and say what is off."""
        self._say()
        self._keeping = asyncio.get_running_loop().create_task(
            self._keep(), name="read certificates again"
        )

    def end(self) -> None:
        """Look at them no more; idempotent."""
        if self._keeping is not None:
            self._keeping.cancel()

    def reload(self, *, is_asked: bool = True) -> None:
        """Read the files again, whether they have changed or not."""
        for each in (self.member, self.door):
            if each is not None:
                each.maybe_reload(is_asked=is_asked)

    def warnings(self) -> tuple[str, ...]:
        """Return which certificates want an operator."""
        now_ms = self._clock.wall_ms()
        found = []
        for where, ca, each in (
            ("cluster", "cluster.tls_ca_file", self.member),
            ("http", "http.client_ca_file", self.door),
        ):
            if each is not None and each.problem:
                found.append(f"the former certificate stays in use: {each.problem}")
            if each is not None:
                found.append(expiry_warning(f"[{where}]", each.current.expires_ms, now_ms))
                found.append(list_warning(ca, each.current.list_end, now_ms))
        return tuple(each for each in found if each)

    def expire_s(self) -> dict[str, float]:
        """Return when the certificates in use expire, in Unix seconds, by where they are shown."""
        shown = (("members", self.member), ("clients", self.door))
        return {where: each.current.expires_ms / 1_000 for where, each in shown if each is not None}

    async def _keep(self) -> None:
        said_ms = self._clock.monotonic_ms()
        has_files = self.member is not None or self.door is not None
        wait_ms = RELOAD_MS if has_files else _WARN_AGAIN_MS
        while True:
            await asyncio.sleep(wait_ms / 1_000)
            self.reload(is_asked=False)
            if self._clock.monotonic_ms() - said_ms >= _WARN_AGAIN_MS:
                said_ms = self._clock.monotonic_ms()
                self._say()

    def _say(self) -> None:
        for warning in (*what_is_off(self._config), *self.warnings()):
            logger.warning("%s", warning)
