"""The rules: every named value in this room that decides an outcome and is not a limit.

1. A release fixes the rules; an operator may change ``limits``. Releases with different rules
   decide some command differently, so one must not replay a log of the other.
2. The first command of a state stamps those of its level (``SetLimits.rules``), and a snapshot
   carries the stamp. A member whose release has other rules stops and logs the ``difference``.
   Members compare a digest of the rules of each level when they connect.
3. To change a value, make it a limit whose default decides as before. A rule that is added, and any
   other change of what ``apply`` decides, is of a new level, and a state of a lower one is decided
   as before (``levels``).

A test finds the constants of this room: each is listed here, or marked as deciding nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Any, Final

from coordinator.model import access as model_access
from coordinator.model import limits as model_limits
from coordinator.state import dedup, limits, paths, remembered, sessions, tree
from coordinator.state.access import operations as access_operations
from coordinator.state.access import quotas as access_quotas
from coordinator.state.access import table as access_table
from coordinator.state.locks import contender, deadlock, grant_history, operations, queues, release

ADDED: Final[dict[str, int]] = {}
"""The rules that a later level than the first one added, by name, with that level."""

_DECIDING: Final[tuple[tuple[str, Any, tuple[str, ...]], ...]] = (
    (
        "access", model_access,
        (
            "ACCESS", "ADMIN_ROLE", "ALL_THINGS", "ANONYMOUS", "BY_TOKEN", "DIGEST_BYTES",
            "IDENTITIES_MAX", "LABEL_CHARACTERS_MAX", "LIMITS", "MEMBER", "NAME_CHARACTERS_MAX",
            "PREFIX_BYTES_MAX", "QUOTA_LIMITS", "QUOTA_MAX", "ROLES_MAX", "ROLES_PER_IDENTITY_MAX",
            "RULES_MAX", "RULES_PER_ROLE_MAX", "SESSIONS", "SUBJECT_CHARACTERS_MAX",
            "SUBJECTS_PER_IDENTITY_MAX", "TOKENS_PER_IDENTITY_MAX",
        ),
    ),
    (
        "access", access_operations,
        ("NAME", "PREFIX", "SUBJECT", "TOKEN_ID", "_ALL", "_SHOWN_MAX", "_SHOWN_NAMES_MAX"),
    ),
    ("access", access_quotas, ("OWN_QUOTA", "_DO_LESS")),
    ("access", access_table, ("_SHOWN_CHARACTERS_MAX",)),
    ("contenders", release, ("_SHOWN_DIRECTORIES_MAX",)),
    ("deadlock", deadlock, ("CYCLE_SHOWN_MAX", "_SCANNED_EACH")),
    ("dedup", dedup, ("CLIENT_ID",)),
    ("dedup", remembered, ("_OUTCOME_BYTES", "_RESULT_BYTES")),
    ("grants", grant_history, ("_GRANT_BYTES",)),
    ("limits", limits, ("DROPPED_AT_ONCE", "BY_CHARACTERS_MAX", "RULES_MAX")),
    ("limits", model_limits, ("_NAME_SHOWN_MAX",)),
    (
        "lock_operations", operations,
        (
            "BY_CHARACTERS_MAX", "CONDITIONS_MAX", "GROUP_MAX", "LOCK_DELAY_MS_MAX",
            "MAX_HOLD_MS_MAX", "NOTE_BYTES_MAX", "OWNER_CHARACTERS_MAX", "PREFIX_CHARACTERS_MAX",
            "REASON_CHARACTERS_MAX", "SIZE_MAX", "_LONGEST_DELAY", "_SHOWN_TOKENS_MAX",
        ),
    ),
    ("paths", paths, ("SEQUENCE_DIGITS", "_PATH", "_FORBIDDEN_CHARACTER", "_SHOWN_CHARACTERS_MAX")),
    (
        "places", contender,
        (
            "CONTENDER_DEPTH", "DELAY_PREFIX", "HAND_MADE_NUMBER_MAX", "QUEUE_DEPTH",
            "QUEUE_ROOTS", "RECORDED_DATA_BYTES_MAX", "_KINDS_BY_PREFIX", "_KIND_PREFIX_LENGTH",
            "_LONG_NUMBER",
        ),
    ),
    ("queues", queues, ("LOOKED_AT_ONCE",)),
    (
        "sessions", sessions,
        ("ADDRESS", "BY_CHARACTERS_MAX", "CLIENT_ID", "LABEL_CHARACTERS_MAX", "SESSION_ID"),
    ),
    ("tree", tree, ("ZNODE_OVERHEAD_BYTES",)),
)  # fmt: skip
"""The deciding constants by the name in the stamp, which stays when a module moves."""


def _text_of(value: Any) -> str:
    """Return a value as a text that is the same in every process."""
    if isinstance(value, re.Pattern):
        return str(value.pattern)
    if isinstance(value, dict):
        return ", ".join([f"{name}: {_text_of(each)}" for name, each in sorted(value.items())])
    return str(value)


def _find() -> tuple[tuple[str, str], ...]:
    found = {}
    for room, module, names in _DECIDING:
        for name in names:
            found[f"{room}.{name.strip('_').lower()}"] = _text_of(getattr(module, name))
    for name, value in model_limits.UNSET.items():
        low, high = model_limits.bounds_of(name)
        found[f"limits.{name}"] = f"{low} to {high}, {value} until it is set"
    return tuple(sorted(found.items()))


RULES: Final = _find()
"""The rules of this release by name, each as a text, sorted."""


def rules_at(
    level: int, rules: tuple[tuple[str, str], ...] = RULES
) -> tuple[tuple[str, str], ...]:
    """Return those of the rules that hold at a level."""
    return tuple([each for each in rules if ADDED.get(each[0], 1) <= level])


def digest_at(level: int) -> str:
    """Return a digest of the rules that hold at a level, as hexadecimal digits."""
    found = sha256()
    for name, value in rules_at(level):
        found.update(f"{name}={value!r}\n".encode())
    return found.hexdigest()[:32]


def difference(
    stamped: Iterable[tuple[str, str]], rules: tuple[tuple[str, str], ...] = RULES
) -> str:
    """Describe how this release differs from the rules ``stamped`` in a state; "" if it does not.

    A rule added since then is no difference: see 3 of ``limits`` and of this module.
    """
    own = dict(rules)
    for name, value in stamped:
        if own.get(name) != value:
            return f"{name} is {own.get(name, 'no rule')} in this release, and was {value}"
    return ""
