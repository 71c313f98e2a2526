"""The limits of the state machine: they decide outcomes, so they are part of the state.

1. A limit is what the last ``SetLimits`` command set, at its place in the log. A snapshot carries
   all limits. No file, flag or release changes a limit of an existing state.
2. The configuration proposes only the first limits: a new cluster's first command sets them
   (``service.limits``), under the names of the sections ``limits`` and ``sessions``.
3. Until a command has set them, the defaults below hold. They never change: logs and snapshots from
   before limits were part of the state (commands up to format 4, snapshots up to format 3) are
   read under them. A new limit's default must decide as the release before it did.
4. The last of the sessions, znodes and bytes (beyond ``ordinary_percent_max``) are a reserve, so
   that a client that fills the state does not shut out those who repair it. Reserved sessions are
   for operators; reserved znodes and bytes are for contenders of locks and elections, which end
   with their sessions. Deleting and ending need no room.
5. Lowering a limit deletes nothing: what exceeds it stays and can be read and deleted; only growth
   is refused. Remembered outcomes, releases and ended grants are dropped little by little,
   ``DROPPED_AT_ONCE`` with each command, until they fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from coordinator.errors import BadArgumentsError, BadVersionError
from coordinator.state.commands import ANY_VERSION, SetLimits

DROPPED_AT_ONCE = 2_048
"""Remembered items dropped by one command, so that a lowered limit makes no command long."""
_MIB = 1024 * 1024
_NAME_SHOWN_MAX = 40
BY_CHARACTERS_MAX = 256
RULES_MAX = 256
_COUNT = (1, 1_000_000_000)
_BYTES = (1, 1024 * 1024 * _MIB)
_MS = (1, 30 * 24 * 3_600_000)
BOUNDS = {
    "data_bytes_max": (1, 128 * _MIB),
    "path_bytes_max": (64, 65_536),
    "path_depth_max": (4, 1_024),
    "state_bytes_max": _BYTES,
    "remembered_bytes_max": _BYTES,
    "grant_history_bytes_max": _BYTES,
    "timeout_ms_min": _MS,
    "timeout_ms_max": _MS,
    "request_window": (1, 16_384),
    "ordinary_percent_max": (1, 100),
}
"""The least and the greatest value that a command may set; the others are ``_COUNT``."""


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The limits of the tree, the sessions and the exactly-once table; units in the names.

    The defaults are those of a state in which no command has set any. Do not change them: the
    defaults of a new cluster are in ``coordinator.config``.
    """

    data_bytes_max: int = 1_048_576
    """Data of one znode; also what the reads of one command may return together."""
    path_bytes_max: int = 1_024
    path_depth_max: int = 64
    children_max: int = 100_000
    znodes_max: int = 1_000_000
    state_bytes_max: int = 1024 * 1024 * 1024
    """Data, paths and a fixed sum for each znode (``tree.ZNODE_OVERHEAD_BYTES``)."""
    operations_per_multi_max: int = 1_000
    """Conditions and both branches of a guarded write count together."""
    ephemerals_per_session_max: int = 20_000
    recursive_delete_max: int = 10_000
    grants_per_command_max: int = 1_000_000_000
    """Contenders beyond that are granted by commands that follow (``commands.FinishGrants``)."""
    request_window: int = 128
    clients_max: int = 20_000
    remembered_bytes_max: int = 256 * 1024 * 1024
    """Outcomes remembered for retries, together; the least recently used clients go first."""
    released_grants_max: int = 4_096
    grant_history_max: int = 10_000
    grant_history_bytes_max: int = 16 * 1024 * 1024
    """All ended grants in the history together, by a fixed estimate."""
    timeout_ms_min: int = 1_000
    timeout_ms_max: int = 3_600_000
    sessions_max: int = 50_000
    sessions_per_address_max: int = 1_000_000_000
    """Open sessions whose clients have one address; of IPv6 one /64."""
    sessions_per_client_max: int = 1_000_000_000
    """Open sessions opened under one client id."""
    ordinary_percent_max: int = 100
    """How much of ``sessions_max``, ``znodes_max`` and ``state_bytes_max`` is not the reserve."""

    def __post_init__(self) -> None:
        for each in fields(self):
            assert getattr(self, each.name) >= 1, f"{each.name} must be at least 1"

    @classmethod
    def of(cls, limits: object, sessions: object) -> MachineLimits:
        """Take each limit by its name from the config's ``limits`` or ``sessions`` section."""
        values = {}
        for name in NAMES:
            source = limits if hasattr(limits, name) else sessions
            values[name] = getattr(source, name)
        return cls(**values)

    def ordinary_max(self, name: str) -> int:
        """Return how much of the limit ``name`` is not the reserve."""
        maximum: int = getattr(self, name)
        return maximum - maximum * (100 - self.ordinary_percent_max) // 100

    def items(self) -> tuple[tuple[str, int], ...]:
        """Return all names and values, in the order of the fields."""
        return tuple([(name, getattr(self, name)) for name in NAMES])

    def written(self) -> tuple[tuple[str, int], ...]:
        """Return ``items`` as a snapshot has them: without those that came later and are not set,
        so that a state from before them is written as it was."""
        return tuple([each for each in self.items() if each not in _LATER])

    def changed(self, values: Iterable[tuple[str, int]]) -> MachineLimits:
        """Return these limits with ``values`` in place of theirs.

        Raises:
            BadArgumentsError: a name is not known or there twice, or a value cannot be.
        """
        found: dict[str, int] = {}
        for name, value in values:
            if name not in NAMES:
                raise BadArgumentsError(
                    f"limit {name[:_NAME_SHOWN_MAX]!a}: expected one of {', '.join(NAMES)}"
                )
            if name in found:
                raise BadArgumentsError(f"limit {name}: expected it once, found it twice")
            low, high = bounds_of(name)
            if not low <= value <= high:
                raise BadArgumentsError(
                    f"limit {name}: expected a whole number from {low} to {high}, found {value}",
                    limit=name,
                )
            found[name] = value
        limits = replace(self, **found)
        if limits.timeout_ms_max < limits.timeout_ms_min:
            raise BadArgumentsError(
                f"limit timeout_ms_max: expected at least timeout_ms_min "
                f"({limits.timeout_ms_min}), found {limits.timeout_ms_max}",
                limit="timeout_ms_max",
            )
        return limits


NAMES = tuple(each.name for each in fields(MachineLimits))
UNSET = MachineLimits()
"""The limits of a state in which no command has set any."""
_LATER = frozenset(
    (name, getattr(UNSET, name))
    for name in ("sessions_per_address_max", "sessions_per_client_max", "ordinary_percent_max")
)
"""Limits added within snapshot format 4, with the values that hold until they are set."""


def bounds_of(name: str) -> tuple[int, int]:
    """Return the least and the greatest value that the limit ``name`` may be set to."""
    return BOUNDS.get(name, _COUNT)


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
    """The rules of the release that began this state (``rules.RULES``), as its first command said;
    empty for a state from before."""

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
        if len(operation.by) > BY_CHARACTERS_MAX:
            raise BadArgumentsError(
                f"by: expected at most {BY_CHARACTERS_MAX} characters, found {len(operation.by)}"
            )
        limits = self.limits.changed(operation.values)
        if self.version and limits == self.limits:
            return self
        rules = self.rules if self.version else operation.rules
        return LimitsRecord(limits, self.version + 1, operation.by, wall_ms, rules)

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
