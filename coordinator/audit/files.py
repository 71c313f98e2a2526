"""The audit logs of a member: one of what callers with an identity do, one of what strangers try.

Anybody may be refused, any number of times. In files of their own the lines of strangers push out
only one another, never a line about roles, tokens or forced ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from coordinator.audit.chain import ChainHead
from coordinator.audit.event import REFUSED, AuditEvent
from coordinator.audit.log import AuditLog


class AuditLogs:
    """The log of a member, and that of strangers; with one target for both they are one."""

    def __init__(self, main: AuditLog, strangers: AuditLog | None = None) -> None:
        self._main = main
        self._strangers = main if strangers is None else strangers
        self._all = (main,) if strangers is None else (main, strangers)

    @property
    def is_kept(self) -> bool:
        """Whether events are written: they are."""
        return True

    @property
    def is_running(self) -> bool:
        """Whether what is noted will be written."""
        return self._main.is_running

    @property
    def head(self) -> ChainHead:
        """The end of the chain of the member's log, as far as it is written."""
        return self._main.head

    def start(self) -> None:
        """Begin to write; raises as ``AuditLog.start``, and then writes nothing."""
        try:
            for each in self._all:
                each.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Write what was noted, as far as that takes a few seconds. Idempotent."""
        for each in self._all:
            each.stop()

    def note(self, event: AuditEvent) -> None:
        """Have ``event`` written, or counted."""
        is_strangers = event.event == REFUSED and not event.identity
        (self._strangers if is_strangers else self._main).note(event)

    def figures(self) -> Mapping[str, float]:
        """Return how many lines were written, left out, and could not be written."""
        found = [each.figures() for each in self._all]
        return {name: sum(each[name] for each in found) for name in found[0]}
