"""The limits of the state machine, and its level: they decide outcomes, so they are part of it.

1. A limit is what the last ``SetLimits`` command set, at its place in the log. A snapshot carries
   all limits. No file, flag or release changes a limit of an existing state.
2. The configuration proposes only the first limits: a new cluster's first command sets them
   (``service.writes.limits``), under the names of the sections ``limits`` and ``sessions``.
3. Until a command has set them, ``UNSET`` holds. Its values never change: a limit that is added is
   read as its default in states that were begun before it, so that must decide as before.
4. The last of the sessions, znodes and bytes (beyond ``ordinary_percent_max``) are a reserve, so
   that a client that fills the state does not shut out those who repair it. Reserved sessions are
   for operators; reserved znodes and bytes are for contenders of locks and elections, which end
   with their sessions. While access rights are on, the last of the znodes and bytes (beyond
   ``client_percent_max``) are for operators alone: who has ``admin`` on ``@limits``. Deleting and
   ending need no room.
5. Lowering a limit deletes nothing: what exceeds it stays and can be read and deleted; only growth
   is refused. Remembered outcomes, releases and ended grants are dropped little by little,
   ``DROPPED_AT_ONCE`` with each command, until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from coordinator.errors import BadArgumentsError, BadVersionError
from coordinator.model.limits import UNSET, MachineLimits
from coordinator.state.commands import ANY_VERSION, SetLevel, SetLimits

DROPPED_AT_ONCE: Final = 2_048
"""Remembered items dropped by one command, so that a lowered limit makes no command long."""
BY_CHARACTERS_MAX: Final = 256
RULES_MAX: Final = 256


def check_by(by: str) -> None:
    """Raise BadArgumentsError if who does it has too long a name."""
    if len(by) > BY_CHARACTERS_MAX:
        raise BadArgumentsError(
            f"by: expected at most {BY_CHARACTERS_MAX} characters, found {len(by)}"
        )


@dataclass(frozen=True, slots=True)
class LimitsRecord:
    """The limits of a state, and how they came to be.

    ``version`` counts the commands that changed them; 0: none has, the defaults hold.
    ``changed_by`` and ``changed_ms`` are labels of the last one, for people.
    """

    limits: MachineLimits = UNSET
    version: int = 0
    changed_by: str = ""
    changed_ms: int = 0
    rules: tuple[tuple[str, str], ...] = ()
    """The rules of the release that began this state, as its first command said (``rules``)."""
    level: int = 1
    """Which formats are written, and how is decided (``levels``)."""

    def after(self, operation: SetLimits, wall_ms: int) -> LimitsRecord:
        """Return the limits after ``operation``; this same record if it changes nothing.

        Raises:
            BadArgumentsError, BadVersionError: it is refused.
        """
        expected = operation.expected_version
        if expected not in (ANY_VERSION, self.version):
            raise BadVersionError(
                f"set limits: expected version {expected}, found {self.version}",
                expected_version=expected,
                current_version=self.version,
            )
        if len(operation.rules) > RULES_MAX:
            raise BadArgumentsError(
                f"set limits: expected at most {RULES_MAX} rules, found {len(operation.rules)}"
            )
        check_by(operation.by)
        limits = self.limits.changed(operation.values)
        if self.version and limits == self.limits:
            return self
        rules = self.rules if self.version else operation.rules
        return LimitsRecord(limits, self.version + 1, operation.by, wall_ms, rules, self.level)

    def at_level(self, operation: SetLevel) -> LimitsRecord:
        """Return the record with the level raised; this same record if it is so already.

        Raises:
            BadArgumentsError: it is another level than the next one.
        """
        if operation.level == self.level:
            return self
        if operation.level != self.level + 1:
            raise BadArgumentsError(
                f"set level: expected {self.level + 1}, the one after the present one, found "
                f"{operation.level}"
            )
        check_by(operation.by)
        return replace(self, level=operation.level)

    def changes_since(self, before: LimitsRecord) -> tuple[tuple[str, int, int], ...]:
        """Return (name, before, now) of each limit that differs, in the order of the fields."""
        return tuple(
            [
                (name, was, now)
                for (name, was), (_, now) in zip(
                    before.limits.items(), self.limits.items(), strict=True
                )
                if was != now
            ]
        )
