"""Guards: the storage half of fencing. A store refuses what a replaced holder writes late."""

from __future__ import annotations

from recipes.guards.raising import Guard

__all__ = ["Guard"]
