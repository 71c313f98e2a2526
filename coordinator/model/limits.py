"""The limits of the cluster: their one definition, and how clients see and set them.

``MachineLimits`` has two sets of values. ``UNSET`` holds in a state that no command has given
limits; it never changes. ``NEW_CLUSTER`` is what a configuration proposes for a new cluster where
it names nothing else; a release may change it, since only what a ``SetLimits`` command carries
decides anything (``coordinator.state.limits``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Annotated

from msgspec import Meta, Struct

from coordinator.errors import BadArgumentsError
from coordinator.model.fields import ANY_VERSION, Count, ExpectedVersion, ShortText

_MIB = 1024 * 1024
_NAME_SHOWN_MAX = 40
_COUNT = (1, 1_000_000_000)
_BYTES = (1, 1024 * 1024 * _MIB)
_MS = (1, 30 * 24 * 3_600_000)
BOUNDS = {
    "data_bytes_max": (1, 128 * _MIB),
    "path_bytes_max": (64, 65_536),
    "path_depth_max": (4, 1_024),
    "operations_per_multi_max": (1, 5_000),
    "state_bytes_max": _BYTES,
    "remembered_bytes_max": _BYTES,
    "grant_history_bytes_max": _BYTES,
    "timeout_ms_min": _MS,
    "timeout_ms_max": _MS,
    "request_window": (1, 16_384),
    "bytes_per_identity_max": _BYTES,
    "remembered_percent_max": (1, 100),
    "ordinary_percent_max": (1, 100),
    "client_percent_max": (1, 100),
}
"""The least and the greatest value that a command may set; the others are ``_COUNT``.

They decide outcomes, so they are rules that no release changes (``coordinator.state.rules``)."""

PROPOSED_MAX = {
    "children_max": 300_000,
    "recursive_delete_max": 1_500,
    "grants_per_command_max": 2_000,
    "deadlock_search_max": 1_500,
    "grant_history_max": 200_000,
    "clients_max": 150_000,
    "released_grants_max": 150_000,
    "sessions_max": 150_000,
    "ephemerals_per_session_max": 50_000,
}
"""The greatest value that a member proposes, where that is less than a command may set.

With more, one step would hold its event loop for longer than 20 ms. This decides only what is
proposed: a log is read as it is."""
WHY_NO_MORE = "with more, one step of a member could take longer than 20 ms"


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """The limits of the tree, the sessions and the exactly-once table; units in the names.

    The defaults are ``UNSET``. Do not change them; change ``NEW_CLUSTER``.
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
    deadlock_search_max: int = 1_000_000_000
    """Contenders that one attempt's check for a deadlock may look at."""
    request_window: int = 128
    """Outcomes remembered for each client id; the number of requests it may have in flight."""
    clients_max: int = 20_000
    """Client ids remembered beyond those bound to open sessions."""
    remembered_bytes_max: int = 256 * 1024 * 1024
    """Outcomes remembered for retries, together; the least recently used clients go first."""
    released_grants_max: int = 4_096
    grant_history_max: int = 10_000
    """Ended grants in the history (``coordinator grants``)."""
    grant_history_bytes_max: int = 16 * 1024 * 1024
    """All ended grants in the history together, by a fixed estimate."""
    remembered_percent_max: int = 100
    """How much of that history, of ``clients_max`` and of ``remembered_bytes_max`` one owner may
    have before its own go first: an identity; of the history else a queue."""
    timeout_ms_min: int = 1_000
    timeout_ms_max: int = 3_600_000
    sessions_max: int = 50_000
    sessions_per_address_max: int = 1_000_000_000
    """Open sessions whose clients have one address; of IPv6 one /64. A proxy is one address."""
    sessions_per_client_max: int = 1_000_000_000
    """Open sessions opened under one client id (``Coordinator-Client-Id``)."""
    sessions_per_identity_max: int = 1_000_000_000
    """Open sessions of one identity, which its clients have proved (``model/access``)."""
    znodes_per_identity_max: int = 1_000_000_000
    """Znodes that one identity has created; as the two that follow, for identities without a
    quota of their own, and while access rights are on."""
    bytes_per_identity_max: int = 1024 * 1024 * _MIB
    """Of the znodes that one identity has created, counted as for ``state_bytes_max``."""
    waiters_per_identity_max: int = 1_000_000_000
    """Places of one identity in queues of locks and elections that do not hold."""
    ordinary_percent_max: int = 100
    """How much of ``sessions_max``, ``znodes_max`` and ``state_bytes_max`` is not the reserve: of
    sessions for operators, of the others for locks and elections."""
    client_percent_max: int = 100
    """How much of ``znodes_max`` and ``state_bytes_max`` is there for others than operators, locks
    and elections included, while access rights are on."""

    def __post_init__(self) -> None:
        for each in fields(self):
            assert getattr(self, each.name) >= 1, f"{each.name} must be at least 1"

    def ordinary_max(self, name: str) -> int:
        """Return how much of the limit ``name`` is not the reserve."""
        maximum: int = getattr(self, name)
        return maximum - maximum * (100 - self.ordinary_percent_max) // 100

    def client_max(self, name: str) -> int:
        """Return how much of the limit ``name`` is not kept for operators."""
        maximum: int = getattr(self, name)
        return maximum - maximum * (100 - self.client_percent_max) // 100

    def items(self) -> tuple[tuple[str, int], ...]:
        """Return all names and values, in the order of the fields."""
        return tuple([(name, getattr(self, name)) for name in NAMES])

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
NEW_CLUSTER = MachineLimits(
    ordinary_percent_max=95,
    client_percent_max=98,
    remembered_percent_max=10,
    recursive_delete_max=1_500,
    grants_per_command_max=500,
    deadlock_search_max=1_500,
    sessions_per_address_max=10_000,
    sessions_per_client_max=1_000,
    sessions_per_identity_max=10_000,
    znodes_per_identity_max=UNSET.znodes_max // 2,
    bytes_per_identity_max=UNSET.state_bytes_max // 2,
    waiters_per_identity_max=20_000,
)
"""The limits of a new cluster whose configuration names none."""


def bounds_of(name: str) -> tuple[int, int]:
    """Return the least and the greatest value that the limit ``name`` may be set to."""
    return BOUNDS.get(name, _COUNT)


def proposed_bounds_of(name: str) -> tuple[int, int]:
    """Return the least and the greatest value that a member proposes for the limit ``name``."""
    low, high = bounds_of(name)
    return low, min(high, PROPOSED_MAX.get(name, high))


LIMITS_NAMED_MAX = 100

Limits = Annotated[
    dict[str, Count],
    Meta(
        max_length=LIMITS_NAMED_MAX,
        examples=[{"znodes_max": 2_000_000}],
        extra_json_schema={"minProperties": 1},
        description="whole numbers by the names of limits",
    ),
]


class LimitsChange(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of PATCH /v1/limits; limits that are not named stay as they are."""

    limits: Limits
    by: ShortText = ""
    expected_version: ExpectedVersion = ANY_VERSION


class LimitsView(Struct, frozen=True):
    """The limits that hold. ``version`` counts the changes, the first ones of the cluster included.

    ``changed_ms`` is the wall time of the last change, ``by`` says who made it; labels both."""

    limits: Limits
    version: Count
    by: str
    changed_ms: Count
