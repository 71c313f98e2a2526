"""The last places of a full member, which are kept for operators.

While access rights are on, an operator is who has ``admin`` on ``@limits``, as for the last of the
cluster's znodes; while they are off there is none, and all may take all places.
"""

from __future__ import annotations

from typing import Final

from coordinator.model.access import LIMITS, Caller, Verb
from coordinator.state.access.table import AccessTable

_KEPT_PERCENT: Final = 2


def is_operator(table: AccessTable, caller: Caller) -> bool:
    """Whether the last places of a member are also for ``caller``."""
    return table.is_on and table.allows(caller, Verb.ADMIN, LIMITS)


def has_place(table: AccessTable, caller: Caller, taken: int, maximum: int, count: int = 1) -> bool:
    """Whether ``caller`` may take ``count`` places while ``taken`` of ``maximum`` are taken."""
    free = maximum - taken - count
    if not table.is_on or free >= maximum * _KEPT_PERCENT // 100:
        return free >= 0
    return free >= 0 and is_operator(table, caller)
