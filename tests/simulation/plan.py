"""What takes part in a world: its seed says so, or the faults that somebody asks for.

What came later draws from streams of its own, in some seeds only: all others, and those that ever
found something, are the worlds that they were.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.simulation import (
    beginnings,
    changed_settings,
    forgeries,
    more_faults,
    quotas,
    recoveries,
    rights,
)

MORE_EVERY = 5
"""More faults, and an onlooker, in the last of so many seeds."""
KEEPERS_EVERY = 4
"""One that keeps many sessions in one of so many, not where the cluster begins again: what was
told of sessions before is forgotten there."""
SETTINGS_EVERY = 10
"""Other settings in one of so many, not one of those."""
FORGERIES_EVERY = 10
"""A member that lies, in one of so many, again in others."""
BEGINNINGS_EVERY = 10
"""A first election with late members, in one of so many, again in others."""
RECOVERIES_EVERY = 20
"""A cluster that is begun again in its middle, in one of so many, again in others."""
STREAMS_FROM = 100_000
"""From this seed on, some clients of each world speak the stream; those before are as they were."""
RIGHTS_EVERY = 20
"""Access rights that change, in one of so many, from ``STREAMS_FROM`` on."""
QUOTAS_EVERY = 20
"""Quotas that change, in one of so many, again in others."""
_STREAMS = 0.7


class Plan:
    """Of one seed, beside ``only_faults``."""

    def __init__(self, seed: int, only_faults: Iterable[str]) -> None:
        asked = set(only_faults)

        def among(names: Iterable[str], every: int, turn: int) -> bool:
            return not asked.isdisjoint(names) or seed % every == turn

        self.has_more = among(more_faults.NAMES, MORE_EVERY, MORE_EVERY - 1)
        self.has_changes = among(changed_settings.NAMES, SETTINGS_EVERY, SETTINGS_EVERY - 2)
        self.has_forgeries = among(forgeries.NAMES, FORGERIES_EVERY, FORGERIES_EVERY - 4)
        self.begins_late = among(beginnings.NAMES, BEGINNINGS_EVERY, BEGINNINGS_EVERY - 8)
        self.begins_again = among(recoveries.NAMES, RECOVERIES_EVERY, 11)
        self.has_keeper = seed % KEEPERS_EVERY == 1 and not self.begins_again
        self.has_streams = seed >= STREAMS_FROM
        are_quotas_asked_for = not asked.isdisjoint(quotas.NAMES)
        self.has_rights = not asked.isdisjoint(rights.NAMES) or (
            self.has_streams and seed % RIGHTS_EVERY == 0 and not are_quotas_asked_for
        )
        self.has_quotas = not self.has_rights and (
            are_quotas_asked_for or (self.has_streams and seed % QUOTAS_EVERY == 10)
        )

    def speaks_stream(self, client_seed: int) -> bool:
        """Whether the client drawn by this seed speaks the stream."""
        return self.has_streams and random.Random(f"speaks {client_seed}").random() < _STREAMS
