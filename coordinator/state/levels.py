"""The levels: one number decides all formats of a state, and all that ``apply`` decides by its age.

1. The level is part of the state (``LimitsRecord.level``), begins at 1, and grows by one with each
   ``SetLevel`` in the log. So every member knows the level of each place in the log.
2. A release reads all levels from ``OLDEST`` to ``NEWEST``, and writes at that of the state:
   commands, outcomes, snapshots and slices. A new release can so be started on one member after
   the other, and the former one started again, until the level is raised (docs/upgrading.md).
3. Whatever changes a format, or what a command comes to, is of a new level: an operation or a field
   that is added, another encoding, another decision, a rule or a limit that is added (which a state
   of a lower level neither has nor digests). A release has at most one new level. It keeps the code
   that writes the level before, for as long as it reads it.
4. A release does not start on data of a level that it does not read, and says which one it needs.
"""

from __future__ import annotations

from typing import Final

OLDEST: Final = 1
NEWEST: Final = 1
"""The levels that this release reads."""


class UnreadLevelError(ValueError):
    """What is to be read is of a level that this release does not read."""


def check_level(level: int) -> None:
    """Raise UnreadLevelError unless this release reads what is written at a level."""
    if not OLDEST <= level <= NEWEST:
        what = "a newer" if level > NEWEST else "an older"
        raise UnreadLevelError(
            f"the data are of level {level}, and this release reads levels {OLDEST} to {NEWEST}:"
            f" start this member with {what} release (docs/upgrading.md)"
        )
